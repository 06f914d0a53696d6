//! Minimal protobuf writer for responses.

use std::time::Duration;

use hist::codec::bytes::put_varint;

/// A message under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtobufWriter(pub(crate) Vec<u8>);

impl ProtobufWriter {
    /// A varint; 0 is omitted.
    pub(crate) fn number(mut self, field: u32, value: u64) -> ProtobufWriter {
        if value != 0 {
            put_varint(&mut self.0, u64::from(field) << 3);
            put_varint(&mut self.0, value);
        }
        self
    }

    /// A signed varint in zigzag encoding; 0 is omitted.
    pub(crate) fn zigzag(self, field: u32, value: i64) -> ProtobufWriter {
        self.number(field, (value << 1 ^ value >> 63).cast_unsigned())
    }

    /// A double; 0 is omitted.
    pub(crate) fn double(self, field: u32, value: f64) -> ProtobufWriter {
        if value.to_bits() == 0 { self } else { self.double_always(field, value) }
    }

    /// A double of a `oneof`, where a 0 is present too.
    pub(crate) fn double_always(mut self, field: u32, value: f64) -> ProtobufWriter {
        put_varint(&mut self.0, u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Packed doubles; none are omitted.
    pub(crate) fn doubles(self, field: u32, values: impl Iterator<Item = f64>) -> ProtobufWriter {
        let bytes: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        self.bytes(field, &bytes)
    }

    /// Bytes, a string or a message; an empty one is omitted.
    pub(crate) fn bytes(mut self, field: u32, bytes: &[u8]) -> ProtobufWriter {
        if !bytes.is_empty() {
            put_varint(&mut self.0, u64::from(field) << 3 | 2);
            put_varint(&mut self.0, bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
        self
    }
}

/// `google.rpc.Status`, with `google.rpc.RetryInfo` if the request may be retried.
pub(crate) fn rpc_status(code: u32, what: &str, after: Option<Duration>) -> ProtobufWriter {
    let status = ProtobufWriter::default().number(1, u64::from(code)).bytes(2, what.as_bytes());
    let Some(after) = after else { return status };
    let duration =
        ProtobufWriter::default().number(1, after.as_secs()).number(2, after.subsec_nanos().into());
    let retry = ProtobufWriter::default().bytes(1, &duration.0);
    let any = ProtobufWriter::default()
        .bytes(1, b"type.googleapis.com/google.rpc.RetryInfo")
        .bytes(2, &retry.0);
    status.bytes(3, &any.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_protobuf() {
        // The first two are examples of the protobuf encoding guide.
        assert_eq!(ProtobufWriter::default().number(1, 150).0, [0x08, 0x96, 0x01]);
        assert_eq!(ProtobufWriter::default().bytes(2, b"testing").0, b"\x12\x07testing");
        assert!(ProtobufWriter::default().number(1, 0).bytes(2, b"").0.is_empty());
        assert_eq!(ProtobufWriter::default().zigzag(1, -2).zigzag(2, 0).0, [0x08, 0x03]);
        let one = [0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        assert_eq!(ProtobufWriter::default().double(1, 1.0).0, [&[0x09][..], &one].concat());
        assert!(ProtobufWriter::default().double(1, 0.0).doubles(2, [].into_iter()).0.is_empty());
        assert_eq!(ProtobufWriter::default().double_always(1, 0.0).0.len(), 9);
        let packed = ProtobufWriter::default().doubles(2, [1.0].into_iter()).0;
        assert_eq!(packed, [&[0x12, 8][..], &one].concat());
        let status = rpc_status(8, "full", Some(Duration::from_millis(1500)));
        let any = b"\n(type.googleapis.com/google.rpc.RetryInfo\x12\x0a\n\x08\x08\x01\x10\x80\xca\xb5\xee\x01";
        let expected = [b"\x08\x08\x12\x04full\x1a".as_slice(), &[any.len() as u8], any].concat();
        assert_eq!(status.0, expected);
    }
}
