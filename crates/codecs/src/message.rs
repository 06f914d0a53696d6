//! Protobuf messages of the codecs: decoding with error offsets, field validation, and count
//! totals.
//!
//! Allocations are proportional to the input: the worst case is an empty opaque field, two bytes
//! that become a `Vec` of 24. *Claims* of a message (span lengths, offsets) allocate nothing.

use hist::DecodeError;
use hist::codec::bytes::ByteReader;

use crate::protobuf::{MessageFields, MessageReader};

/// A message of type `M`, or the offset of the first invalid byte.
pub(crate) fn decode<M: MessageFields>(
    bytes: &[u8],
    message: &'static str,
) -> Result<M, DecodeError> {
    let mut fields = M::default();
    let mut reader = ByteReader::new(bytes);
    while !reader.is_empty() {
        let start = reader.offset();
        skip_field(&mut reader, message)?;
        let field = MessageReader::new(&bytes[start..reader.offset()]);
        fields.merge(field).map_err(|error| {
            let offset = start.wrapping_add(error.offset as usize);
            ByteReader::invalid_error(offset, message, error.found, error.expected)
        })?;
    }
    Ok(fields)
}

fn skip_field(reader: &mut ByteReader, message: &'static str) -> Result<(), DecodeError> {
    let start = reader.offset();
    let wire_type = reader.varint(message)? & 7;
    let len = match wire_type {
        0 => return reader.varint(message).map(|_| ()),
        1 => 8,
        2 => usize::try_from(reader.varint(message)?).unwrap_or(usize::MAX),
        5 => 4,
        _ => {
            let found = format_args!("wire type {wire_type}");
            return Err(ByteReader::invalid_error(start, message, found, "wire type 0, 1, 2 or 5"));
        }
    };
    reader.read_bytes(len, message).map(|_| ())
}

/// Error for a field of a decoded message with an invalid value.
pub(crate) fn field_error(
    field: &'static str,
    found: impl ToString,
    expected: impl ToString,
) -> DecodeError {
    DecodeError::Field { field, found: found.to_string(), expected: expected.to_string() }
}

/// The sum of counts, which is checked for overflow.
pub(crate) fn total(counts: impl Iterator<Item = u64>) -> u128 {
    counts.map(u128::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{Error, FieldValue, MessageWriter};

    #[derive(Debug, Default)]
    struct TestMessage {
        number: u64,
        double: f64,
        next: Option<Box<TestMessage>>,
    }

    impl MessageFields for TestMessage {
        fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
            match number {
                1 => self.number = field.varint()?,
                2 => self.double = field.double()?,
                3 => self.next.get_or_insert_default().merge(field.message()?)?,
                _ => {}
            }
            Ok(())
        }

        fn put(&self, out: &mut MessageWriter) {
            out.varint(1, self.number);
            out.double(2, self.double);
            out.messages(3, self.next.as_deref());
        }
    }

    #[test]
    fn messages_round_trip() {
        let pair = TestMessage { number: 300, double: -1.5, next: Some(Box::default()) };
        let bytes = pair.to_message();
        assert_eq!(bytes[..3], [0x08, 0xac, 0x02]);
        assert_eq!(bytes[bytes.len() - 2..], [0x1a, 0]);
        let read: TestMessage = decode(&bytes, "pair").unwrap();
        assert_eq!((read.number, read.double, read.next.is_some()), (300, -1.5, true));
        assert!(TestMessage { double: -0.0, ..TestMessage::default() }.to_message().is_empty());
        // The last value of a repeated scalar field wins; a repeated message is merged; unknown
        // fields are skipped.
        let bytes = [0x08, 1, 0x08, 2, 0x1a, 2, 0x08, 5, 0x1a, 0, 0x25, 1, 2, 3, 4];
        let read: TestMessage = decode(&bytes, "pair").unwrap();
        assert_eq!((read.number, read.next.unwrap().number), (2, 5));
    }

    #[track_caller]
    fn check(bytes: &[u8], error: &str) {
        assert_eq!(decode::<TestMessage>(bytes, "pair").unwrap_err().to_string(), error);
    }

    #[test]
    fn damage_is_named_with_its_offset() {
        check(&[0x08, 0x05, 0x11, 0x00], "at byte 3: the input ends inside pair");
        check(&[0x08, 0x80], "at byte 2: the input ends inside pair");
        check(
            &[0x08, 0x05, 0x10, 0x05],
            "at byte 2: pair is a number of variable length, expected eight bytes",
        );
        check(
            &[0x08, 0x05, 0x1a, 0x02, 0x08, 0x80],
            "at byte 5: pair is the end of the message, expected the rest of a number",
        );
        check(
            &[0x08, 0x05, 0x07],
            "at byte 2: pair is wire type 7, expected wire type 0, 1, 2 or 5",
        );
    }
}
