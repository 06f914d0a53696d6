//! Queries and responses of DNS.
//!
//! Source: RFC 1035, section 4, RFC 3596 (AAAA), 2782 (SRV), 8659 (CAA) and 6891 (EDNS).

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// Longest name, in the encoding.
const NAME_BYTES_MAX: usize = 255;
const LABEL_BYTES_MAX: usize = 63;
/// Compression pointers that are followed in a name.
const POINTERS_MAX: usize = 16;
const HEADER_BYTES: usize = 12;
const CLASS_INTERNET: u16 = 1;
const TYPE_OPT: u16 = 41;
/// Length of the record of EDNS at the end of a query.
const EDNS_BYTES: usize = 11;
/// Records of a message that are read.
const RECORDS_MAX: usize = 1_000;

const FLAG_RESPONSE: u8 = 0x80;
const FLAG_TRUNCATED: u8 = 0x02;
const FLAG_RECURSION_DESIRED: u8 = 0x01;

/// Names of response codes (IANA), by number.
pub(super) const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET",
    "NXRRSET", "NOTAUTH", "NOTZONE",
];

pub(super) fn is_rcode(name: &str) -> bool {
    RCODES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Type of a record that can be asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordType {
    /// IPv4 address.
    #[default]
    A,
    /// IPv6 address.
    Aaaa,
    /// Allowed certificate authorities.
    Caa,
    /// Canonical name.
    Cname,
    /// Mail server.
    Mx,
    /// Name server.
    Ns,
    /// Name of an address.
    Ptr,
    /// Start of a zone.
    Soa,
    /// Server of a service.
    Srv,
    /// Texts.
    Txt,
}

impl RecordType {
    fn number(self) -> u16 {
        match self {
            RecordType::A => 1,
            RecordType::Ns => 2,
            RecordType::Cname => 5,
            RecordType::Soa => 6,
            RecordType::Ptr => 12,
            RecordType::Mx => 15,
            RecordType::Txt => 16,
            RecordType::Aaaa => 28,
            RecordType::Srv => 33,
            RecordType::Caa => 257,
        }
    }
}

/// Encodes a name; `None` if it is none.
pub(super) fn encode_name(name: &str) -> Option<Vec<u8>> {
    let mut encoded = Vec::new();
    let name = name.strip_suffix('.').unwrap_or(name);
    // The root has no labels.
    for label in name.split('.').filter(|_| !name.is_empty()) {
        let length = u8::try_from(label.len()).ok()?;
        if length == 0 || label.len() > LABEL_BYTES_MAX {
            return None;
        }
        encoded.push(length);
        encoded.extend_from_slice(label.as_bytes());
    }
    encoded.push(0);
    (encoded.len() <= NAME_BYTES_MAX).then_some(encoded)
}

/// Encodes a query for an encoded name, which allows responses of `udp_bytes`.
pub(super) fn encode_query(id: u16, name: &[u8], wanted: RecordType, udp_bytes: u16) -> Vec<u8> {
    let mut query = id.to_be_bytes().to_vec();
    query.extend_from_slice(&[FLAG_RECURSION_DESIRED, 0]);
    // One question, and the record of EDNS.
    query.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 1]);
    query.extend_from_slice(name);
    for word in [wanted.number(), CLASS_INTERNET] {
        query.extend_from_slice(&word.to_be_bytes());
    }
    query.push(0);
    for word in [TYPE_OPT, udp_bytes, 0, 0, 0] {
        query.extend_from_slice(&word.to_be_bytes());
    }
    query
}

/// Contents of a response.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DnsResponse {
    pub(super) rcode: String,
    pub(super) is_truncated: bool,
    /// Records of each section.
    pub(super) answer_count: u16,
    pub(super) authority_count: u16,
    pub(super) additional_count: u16,
    /// Data of the answer's records of the type in the question.
    pub(super) answers: Vec<String>,
    /// Least time to live of these, in seconds.
    pub(super) least_ttl: Option<u32>,
    /// Serial number of the first SOA record.
    pub(super) serial: Option<u32>,
}

impl DnsResponse {
    /// Reads a response to a query; the reason if it is none.
    pub(super) fn read(message: &[u8], query: &[u8]) -> Result<DnsResponse, String> {
        let cut = || "the response ends within a record".to_owned();
        let mut reader = DnsReader { message, at: 0 };
        let header = reader.take(HEADER_BYTES).ok_or("the response is shorter than its header")?;
        if header[..2] != query[..2] || header[2] & FLAG_RESPONSE == 0 {
            return Err("the message is not a response to the query".to_owned());
        }
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let code = usize::from(header[3] & 15);
        let mut response = DnsResponse {
            rcode: RCODES.get(code).map_or_else(|| code.to_string(), |name| (*name).to_owned()),
            is_truncated: header[2] & FLAG_TRUNCATED != 0,
            answer_count: count(6),
            authority_count: count(8),
            additional_count: count(10),
            ..DnsResponse::default()
        };
        for _ in 0..count(4).min(1) {
            // The identifier has 16 bits only: an answer to another question is none.
            let end = query.len().saturating_sub(EDNS_BYTES);
            let question = query.get(HEADER_BYTES..end).unwrap_or_default();
            let found = message.get(HEADER_BYTES..HEADER_BYTES + question.len());
            if !found.is_some_and(|found| found.eq_ignore_ascii_case(question)) {
                return Err("the response has another question".to_owned());
            }
            reader.name().ok_or_else(cut)?;
            let wanted = reader.u16().ok_or_else(cut)?;
            reader.u16().ok_or_else(cut)?;
            response.read_answers(&mut reader, wanted).ok_or_else(cut)?;
        }
        Ok(response)
    }

    fn read_answers(&mut self, reader: &mut DnsReader<'_>, wanted: u16) -> Option<()> {
        for _ in 0..usize::from(self.answer_count).min(RECORDS_MAX) {
            reader.name()?;
            let (kind, _class) = (reader.u16()?, reader.u16()?);
            let ttl = reader.u32()?;
            let length = usize::from(reader.u16()?);
            let end = reader.at.checked_add(length).filter(|end| *end <= reader.message.len())?;
            if kind == wanted {
                let data = reader.data(kind, end, &mut self.serial)?;
                self.answers.push(data);
                self.least_ttl = Some(self.least_ttl.map_or(ttl, |least| least.min(ttl)));
            }
            reader.at = end;
        }
        Some(())
    }
}

/// Reads a message from front to back.
struct DnsReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> DnsReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.message.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    /// Reads a name, which may end with pointers to earlier parts of the message.
    fn name(&mut self) -> Option<String> {
        let (mut name, mut at, mut end) = (String::new(), self.at, None);
        let mut pointers = 0;
        loop {
            let length = usize::from(*self.message.get(at)?);
            match length {
                0 => {
                    self.at = end.unwrap_or(at + 1);
                    return Some(if name.is_empty() { ".".to_owned() } else { name });
                }
                1..=LABEL_BYTES_MAX => {
                    let label = self.message.get(at + 1..at + 1 + length)?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    push_text(&mut name, label);
                    at += 1 + length;
                }
                0xc0.. => {
                    end = end.or(Some(at + 2));
                    at = (length & 0x3f) << 8 | usize::from(*self.message.get(at + 1)?);
                    pointers += 1;
                }
                _ => return None,
            }
            if pointers > POINTERS_MAX || name.len() > 4 * NAME_BYTES_MAX {
                return None;
            }
        }
    }

    /// Reads the data of a record that ends at `end`, in the format of zone files.
    fn data(&mut self, kind: u16, end: usize, serial: &mut Option<u32>) -> Option<String> {
        Some(match kind {
            1 => Ipv4Addr::from(self.u32()?).to_string(),
            2 | 5 | 12 => self.name()?,
            6 => {
                let (server, mailbox) = (self.name()?, self.name()?);
                let number = self.u32()?;
                serial.get_or_insert(number);
                format!("{server} {mailbox} {number}")
            }
            15 => format!("{} {}", self.u16()?, self.name()?),
            16 => {
                let mut text = String::new();
                while self.at < end {
                    let length = usize::from(self.take(1)?[0]);
                    push_text(&mut text, self.take(length)?);
                }
                text
            }
            28 => {
                let bytes: [u8; 16] = self.take(16)?.try_into().ok()?;
                Ipv6Addr::from(bytes).to_string()
            }
            33 => {
                let (priority, weight, port) = (self.u16()?, self.u16()?, self.u16()?);
                format!("{priority} {weight} {port} {}", self.name()?)
            }
            257 => {
                let flags = self.take(1)?[0];
                let length = usize::from(self.take(1)?[0]);
                let mut text = format!("{flags} ");
                push_text(&mut text, self.take(length)?);
                text.push(' ');
                push_text(&mut text, self.message.get(self.at..end)?);
                text
            }
            _ => return None,
        })
    }
}

/// Appends bytes as text; bytes that are not printable ASCII become `\nnn`, as in zone files.
fn push_text(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\{byte:03}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of a response with `answers` records, and the question `a.example`.
    fn response(flags: [u8; 2], wanted: RecordType, answers: u16) -> Vec<u8> {
        let mut message = vec![1, 2, flags[0], flags[1], 0, 1];
        message.extend_from_slice(&answers.to_be_bytes());
        message.extend_from_slice(&[0, 3, 0, 4]);
        message.extend_from_slice(&encode_name("a.example").unwrap());
        message.extend_from_slice(&wanted.number().to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message
    }

    /// Adds a record with the name of the question.
    fn add(message: &mut Vec<u8>, kind: RecordType, ttl: u32, data: &[u8]) {
        message.extend_from_slice(&[0xc0, 12]);
        message.extend_from_slice(&kind.number().to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        message.extend_from_slice(&ttl.to_be_bytes());
        message.extend_from_slice(&(data.len() as u16).to_be_bytes());
        message.extend_from_slice(data);
    }

    fn read(message: &[u8]) -> Result<DnsResponse, String> {
        let name = encode_name("a.example").unwrap();
        let kind = message.get(24).map_or(0, |byte| *byte);
        let mut query = encode_query(0x0102, &name, RecordType::A, 4096);
        // The type is that of the message, in its lower byte; CAA has another upper byte.
        query[24] = kind;
        query[23] = message.get(23).map_or(0, |byte| *byte);
        DnsResponse::read(message, &query)
    }

    #[test]
    fn a_query_has_its_question() {
        let name = encode_name("a.example.").unwrap();
        assert_eq!(name, b"\x01a\x07example\x00");
        let query = encode_query(0x0102, &name, RecordType::Aaaa, 4096);
        let expected = b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01a\x07example\x00\x00\
            \x1c\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00";
        assert_eq!(query, expected);
        assert_eq!(encode_name("").unwrap(), [0]);
        for wrong in ["a..b", ".a", &"a".repeat(64), &"a.".repeat(128)] {
            assert_eq!(encode_name(wrong), None, "{wrong}");
        }
        assert!(encode_name(&"a.".repeat(127)).is_some());
    }

    #[test]
    fn records_of_each_type_are_read() {
        #[track_caller]
        fn check(kind: RecordType, data: &[u8], expected: &str) {
            let mut message = response([0x81, 0x80], kind, 1);
            add(&mut message, kind, 300, data);
            let response = read(&message).unwrap();
            assert_eq!(response.answers, [expected]);
            assert_eq!((response.rcode.as_str(), response.least_ttl), ("NOERROR", Some(300)));
        }
        check(RecordType::A, &[192, 0, 2, 7], "192.0.2.7");
        check(RecordType::Aaaa, &Ipv6Addr::LOCALHOST.octets(), "::1");
        check(RecordType::Cname, b"\x01b\xc0\x0c", "b.a.example");
        check(RecordType::Ns, b"\x00", ".");
        check(RecordType::Ptr, b"\x01\xff\xc0\x0e", "\\255.example");
        check(RecordType::Mx, b"\x00\x0a\x02mx\xc0\x0c", "10 mx.a.example");
        check(RecordType::Txt, b"\x02v=\x01x", "v=x");
        check(RecordType::Srv, b"\x00\x01\x00\x02\x14\x66\x01s\x00", "1 2 5222 s");
        check(RecordType::Caa, b"\x00\x05issueca.example", "0 issue ca.example");
        let mut message = response([0x81, 0x80], RecordType::Soa, 1);
        add(&mut message, RecordType::Soa, 60, b"\x01n\x00\x01m\x00\x00\x00\x00\x09");
        let soa = read(&message).unwrap();
        assert_eq!((soa.serial, soa.answers), (Some(9), vec!["n m 9".to_owned()]));
    }

    #[test]
    fn records_of_other_types_are_no_answers() {
        let mut message = response([0x83, 0x83], RecordType::A, 3);
        add(&mut message, RecordType::Cname, 5, b"\x00");
        add(&mut message, RecordType::A, 70, &[10, 0, 0, 1]);
        add(&mut message, RecordType::A, 60, &[10, 0, 0, 2]);
        let response = read(&message).unwrap();
        let counts = (response.answer_count, response.authority_count, response.additional_count);
        assert_eq!(counts, (3, 3, 4));
        assert_eq!(response.answers, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!((response.least_ttl, response.is_truncated), (Some(60), true));
        assert_eq!(response.rcode, "NXDOMAIN");
    }

    #[test]
    fn damaged_responses_are_refused() {
        let mut message = response([0x81, 0x80], RecordType::Mx, 1);
        add(&mut message, RecordType::Mx, 300, b"\x00\x0a\x02mx\xc0\x0c");
        for end in 0..message.len() {
            assert!(read(&message[..end]).is_err(), "{end}");
        }
        // A pointer to itself, and a label of a reserved kind.
        for name in [b"\xc0\x36", b"\x80\x01"] {
            let mut message = response([0x81, 0x80], RecordType::Cname, 1);
            add(&mut message, RecordType::Cname, 300, name);
            assert_eq!(read(&message).unwrap_err(), "the response ends within a record");
        }
        let mut other = message.clone();
        other[0] = 9;
        assert!(read(&other).is_err(), "another id");
        message[2] = 1;
        assert!(read(&message).is_err(), "a query");
    }

    /// Any byte may change: reading ends, without a panic.
    #[test]
    fn changed_responses_are_read_to_an_end() {
        let mut message = response([0x81, 0x80], RecordType::Txt, 2);
        add(&mut message, RecordType::Txt, 300, b"\x02ab");
        add(&mut message, RecordType::Soa, 300, b"\x01n\xc0\x0c\x01m\x00\x00\x00\x00\x09");
        for at in 0..message.len() {
            for byte in 0..=255 {
                let mut changed = message.clone();
                changed[at] = byte;
                let _ = read(&changed);
            }
        }
    }
}
