//! Decoder of header blocks of HTTP/2 (HPACK, RFC 7541), for an observer.
//!
//! It differs from decoders of HTTP implementations: it may join a connection late, when entries of
//! the dynamic table are unknown. Entries are numbered from the newest one, so those that were
//! added since are known, and those before have no value. For the same reason its table may be
//! smaller than that of the connection. It retains only headers of interest, and allocates nothing
//! per block.
//!
//! No library does that. h2 keeps its decoder private; hpack, fluke-hpack and httlib-hpack end with
//! an error at the first entry that they do not have (`HeaderIndexOutOfBounds`, `InvalidIndex`), so
//! that a connection that was joined late could not be read at all, and retain all names and
//! values. The examples of RFC 7541 are tests, and `observe_http2` is a fuzz target.

use std::collections::VecDeque;

use super::huffman::decode_huffman;

/// Size of the table, at most, in the bytes that RFC 7541 counts. Both sides announce 4 KiB by
/// default, browsers 64 KiB: entries beyond this are unknown.
const TABLE_BYTES_MAX: usize = 32 << 10;
const TABLE_BYTES_DEFAULT: usize = 4096;

/// What RFC 7541 adds to the size of an entry.
const ENTRY_BYTES: usize = 32;

/// A header of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderName {
    Method,
    Path,
    Status,
    GrpcStatus,
    Traceparent,
    Other,
}

impl HeaderName {
    fn of(name: &[u8]) -> HeaderName {
        match name {
            b":method" => HeaderName::Method,
            b":path" => HeaderName::Path,
            b":status" => HeaderName::Status,
            b"grpc-status" => HeaderName::GrpcStatus,
            b"traceparent" => HeaderName::Traceparent,
            _ => HeaderName::Other,
        }
    }
}

/// Entry of the dynamic table.
struct HeaderTableEntry {
    name: HeaderName,
    name_bytes: usize,
    /// Empty for names of no interest.
    value: Box<[u8]>,
    value_bytes: usize,
}

impl HeaderTableEntry {
    fn bytes(&self) -> usize {
        self.name_bytes + self.value_bytes + ENTRY_BYTES
    }
}

/// Decodes the header blocks of one direction.
pub(super) struct HeaderDecoder {
    /// The newest entry first.
    entries: VecDeque<HeaderTableEntry>,
    bytes: usize,
    bytes_max: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A block that HPACK does not allow.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidBlock;

impl HeaderDecoder {
    pub(super) fn new() -> HeaderDecoder {
        HeaderDecoder {
            entries: VecDeque::new(),
            bytes: 0,
            bytes_max: TABLE_BYTES_DEFAULT,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Forgets the table: blocks were not captured.
    pub(super) fn forget_table(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        // The size is unknown, and may be larger than it was.
        self.bytes_max = TABLE_BYTES_MAX;
    }

    pub(super) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<HeaderTableEntry>()
            + self.bytes
            + self.name.capacity()
            + self.value.capacity()
    }

    /// Decodes a block, and calls `each` with the headers of interest whose value is known.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        each: &mut impl FnMut(HeaderName, &[u8]),
    ) -> Result<(), InvalidBlock> {
        while let Some(first) = block.first() {
            match first {
                0x80.. => {
                    let index = read_integer(&mut block, 7)?;
                    self.visit_indexed(index, each);
                }
                0x40.. => {
                    let (name, name_bytes) = self.read_literal(&mut block, 6)?;
                    each_known(name, &self.value, each);
                    self.insert(name, name_bytes);
                }
                0x20.. => {
                    self.bytes_max = read_integer(&mut block, 5)?.min(TABLE_BYTES_MAX);
                    self.evict();
                }
                _ => {
                    let (name, _) = self.read_literal(&mut block, 4)?;
                    each_known(name, &self.value, each);
                }
            }
        }
        Ok(())
    }

    fn visit_indexed(&self, index: usize, each: &mut impl FnMut(HeaderName, &[u8])) {
        match index.checked_sub(STATIC_TABLE.len() + 1) {
            None => {
                if let Some((name, value)) = STATIC_TABLE.get(index.wrapping_sub(1)) {
                    each_known(HeaderName::of(name.as_bytes()), value.as_bytes(), each);
                }
            }
            Some(index) => {
                if let Some(entry) = self.entries.get(index) {
                    each_known(entry.name, &entry.value, each);
                }
            }
        }
    }

    /// Reads the name and the value of a literal. Returns the name and its size.
    fn read_literal(
        &mut self,
        block: &mut &[u8],
        prefix_bits: u32,
    ) -> Result<(HeaderName, usize), InvalidBlock> {
        let index = read_integer(block, prefix_bits)?;
        let name = match index.checked_sub(STATIC_TABLE.len() + 1) {
            _ if index == 0 => {
                read_string(block, &mut self.name)?;
                (HeaderName::of(&self.name), self.name.len())
            }
            None => {
                let (name, _) = STATIC_TABLE[index - 1];
                (HeaderName::of(name.as_bytes()), name.len())
            }
            Some(index) => match self.entries.get(index) {
                Some(entry) => (entry.name, entry.name_bytes),
                None => (HeaderName::Other, 0),
            },
        };
        read_string(block, &mut self.value)?;
        Ok(name)
    }

    /// Adds the literal that was read last.
    fn insert(&mut self, name: HeaderName, name_bytes: usize) {
        let value = match name {
            HeaderName::Other => Box::default(),
            _ => self.value.as_slice().into(),
        };
        let entry = HeaderTableEntry { name, name_bytes, value, value_bytes: self.value.len() };
        self.bytes += entry.bytes();
        self.entries.push_front(entry);
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.bytes_max {
            let Some(entry) = self.entries.pop_back() else { return };
            self.bytes -= entry.bytes();
        }
    }
}

fn each_known(name: HeaderName, value: &[u8], each: &mut impl FnMut(HeaderName, &[u8])) {
    if name != HeaderName::Other {
        each(name, value);
    }
}

/// An integer with a prefix, RFC 7541 section 5.1.
fn read_integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, InvalidBlock> {
    let (first, mut rest) = block.split_first().ok_or(InvalidBlock)?;
    let mask = (1_usize << prefix_bits) - 1;
    let mut number = usize::from(*first) & mask;
    if number == mask {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first().ok_or(InvalidBlock)?;
            rest = after;
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            match byte & 0x80 {
                0 => break,
                _ if shift > 21 => return Err(InvalidBlock),
                _ => {}
            }
        }
    }
    *block = rest;
    Ok(number)
}

/// A string, RFC 7541 section 5.2.
fn read_string(block: &mut &[u8], text: &mut Vec<u8>) -> Result<(), InvalidBlock> {
    let is_huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = read_integer(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length).ok_or(InvalidBlock)?;
    *block = rest;
    text.clear();
    match is_huffman {
        true => decode_huffman(bytes, text).ok_or(InvalidBlock)?,
        false => text.extend_from_slice(bytes),
    }
    Ok(())
}

/// RFC 7541 appendix A.
static STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut HeaderDecoder, hex: &str) -> Vec<(HeaderName, String)> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        let block: Vec<u8> = digits.chunks(2).map(|pair| byte(pair).unwrap()).collect();
        let mut headers = Vec::new();
        let mut each = |name, value: &[u8]| {
            headers.push((name, String::from_utf8(value.to_vec()).unwrap()));
        };
        decoder.decode(&block, &mut each).unwrap();
        headers
    }

    #[track_caller]
    fn check(decoder: &mut HeaderDecoder, hex: &str, expected: &[(HeaderName, &str)]) {
        let headers = decode(decoder, hex);
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| (*name, (*value).to_string())).collect();
        assert_eq!(headers, expected);
    }

    const GET: (HeaderName, &str) = (HeaderName::Method, "GET");

    /// RFC 7541 appendices C.3 and C.4: the same requests without and with Huffman codes.
    #[test]
    fn requests_of_the_standard() {
        let root = [GET, (HeaderName::Path, "/")];
        let index = [GET, (HeaderName::Path, "/index.html")];
        let mut decoder = HeaderDecoder::new();
        check(&mut decoder, "828684410f7777772e6578616d706c652e636f6d", &root);
        check(&mut decoder, "828684be58086e6f2d6361636865", &root);
        let last = "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565";
        check(&mut decoder, last, &index);
        assert_eq!((decoder.bytes, decoder.entries.len()), (164, 3));
        let mut decoder = HeaderDecoder::new();
        check(&mut decoder, "828684418cf1e3c2e5f23a6ba0ab90f4ff", &root);
        check(&mut decoder, "828684be5886a8eb10649cbf", &root);
        check(&mut decoder, "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", &index);
        assert_eq!((decoder.bytes, decoder.entries.len()), (164, 3));
    }

    /// RFC 7541 appendix C.6: responses with Huffman codes and eviction in a table of 256 bytes.
    #[test]
    fn responses_of_the_standard() {
        let mut decoder = HeaderDecoder::new();
        decoder.bytes_max = 256;
        let first = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff
                     6e919d29ad171863c78f0b97c8e9ae82ae43d3";
        check(
            &mut decoder,
            &first.replace(char::is_whitespace, ""),
            &[(HeaderName::Status, "302")],
        );
        check(&mut decoder, "4883640effc1c0bf", &[(HeaderName::Status, "307")]);
        assert_eq!((decoder.bytes, decoder.entries.len()), (222, 4));
    }

    #[test]
    fn entries_before_a_late_start_are_unknown() {
        let mut decoder = HeaderDecoder::new();
        decoder.forget_table();
        // An entry before the start, a new one by its name, the new one, and the one before again.
        check(
            &mut decoder,
            "be 44 02 2f61 be bf",
            &[(HeaderName::Path, "/a"), (HeaderName::Path, "/a")],
        );
    }

    #[test]
    fn invalid_blocks_are_errors() {
        for block in [&[0xff][..], &[0x41, 0x05, b'a'], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]] {
            assert_eq!(HeaderDecoder::new().decode(block, &mut |_, _| {}), Err(InvalidBlock));
        }
    }
}
