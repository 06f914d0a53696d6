//! SNMP v2c: a GetRequest, and the values of its response (BER).
//!
//! Sources: RFC 3416 (operations), RFC 1901 (v2c), RFC 2578 (types), X.690 (BER). Version 3 is not
//! here: its privacy needs AES-CFB, which no library in use has.

/// Largest number of objects of a request.
pub const OBJECTS_MAX: usize = 32;
/// Longest identifier of an object: RFC 2578 allows 128 numbers.
const ARCS_MAX: usize = 128;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const COUNTER_32: u8 = 0x41;
const GAUGE_32: u8 = 0x42;
const TIME_TICKS: u8 = 0x43;
const COUNTER_64: u8 = 0x46;
const GET_REQUEST: u8 = 0xa0;
const RESPONSE: u8 = 0xa2;
/// Version 2c.
const VERSION: u8 = 1;

/// Errors of a response, by number (RFC 3416, section 3).
const ERRORS: [&str; 19] = [
    "noError",
    "tooBig",
    "noSuchName",
    "badValue",
    "readOnly",
    "genErr",
    "noAccess",
    "wrongType",
    "wrongLength",
    "wrongEncoding",
    "wrongValue",
    "noCreation",
    "inconsistentValue",
    "resourceUnavailable",
    "commitFailed",
    "undoFailed",
    "authorizationError",
    "notWritable",
    "inconsistentName",
];

/// Identifier of an object, encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId(Vec<u8>);

/// Value of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum SnmpValue {
    /// INTEGER, Counter32, Gauge32, Counter64.
    Number(f64),
    /// TimeTicks, in seconds.
    Seconds(f64),
    /// OCTET STRING.
    Text(Vec<u8>),
    /// The agent has no such object.
    Missing,
    /// A type that is no number.
    Other(u8),
}

impl ObjectId {
    /// Parses `1.3.6.1.2.1.1.3.0`, with or without a dot at the start.
    pub fn parse(text: &str) -> Option<ObjectId> {
        let arcs = text.strip_prefix('.').unwrap_or(text).split('.');
        let arcs: Option<Vec<u32>> = arcs.take(ARCS_MAX + 1).map(|arc| arc.parse().ok()).collect();
        let arcs = arcs.filter(|arcs| (2..=ARCS_MAX).contains(&arcs.len()))?;
        let is_valid = arcs[0] <= 2 && (arcs[0] == 2 || arcs[1] < 40) && arcs[1] <= u32::MAX - 80;
        if !is_valid {
            return None;
        }
        let mut bytes = Vec::new();
        let first = arcs[0] * 40 + arcs[1];
        for arc in std::iter::once(first).chain(arcs[2..].iter().copied()) {
            // Groups of 7 bits, all but the last with the high bit.
            let groups = (32 - (arc | 1).leading_zeros()).div_ceil(7);
            for group in (0..groups).rev() {
                let more = if group > 0 { 0x80 } else { 0 };
                bytes.push((arc >> (7 * group)) as u8 & 0x7f | more);
            }
        }
        Some(ObjectId(bytes))
    }
}

/// Type, length and contents.
fn encode(kind: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len();
    let mut out = vec![kind];
    match length {
        ..=0x7f => out.push(length as u8),
        0x80..=0xff => out.extend([0x81, length as u8]),
        _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend(contents);
    out
}

/// A GetRequest; the community has at most 255 bytes, and there are at most [`OBJECTS_MAX`]
/// objects.
pub fn get_request(community: &str, request_id: u32, objects: &[ObjectId]) -> Vec<u8> {
    let binding = |object: &ObjectId| {
        let name = encode(OBJECT_IDENTIFIER, &object.0);
        encode(SEQUENCE, &[name, encode(NULL, &[])].concat())
    };
    let bindings: Vec<u8> = objects.iter().flat_map(binding).collect();
    // Below 2^31: a positive integer of four bytes.
    let id = encode(INTEGER, &(request_id >> 1).to_be_bytes());
    let zero = encode(INTEGER, &[0]);
    let body = [id, zero.clone(), zero, encode(SEQUENCE, &bindings)].concat();
    let community = encode(OCTET_STRING, community.as_bytes());
    let version = encode(INTEGER, &[VERSION]);
    encode(SEQUENCE, &[version, community, encode(GET_REQUEST, &body)].concat())
}

/// Reader of BER.
struct BerReader<'a>(&'a [u8]);

impl<'a> BerReader<'a> {
    /// The next type and its contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[kind, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = match first {
            ..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = digits.iter().fold(0, |length, byte| length << 8 | u32::from(*byte));
                (usize::try_from(length).ok()?, rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((kind, contents))
    }

    /// The contents of the next value, which has this type.
    fn expect(&mut self, kind: u8) -> Option<&'a [u8]> {
        self.next().filter(|next| next.0 == kind).map(|next| next.1)
    }
}

/// Big-endian number with a sign, of at most 8 bytes, or 9 if the first is 0.
fn parse_signed(contents: &[u8]) -> Option<i128> {
    let is_valid = match contents {
        [] => false,
        [0, rest @ ..] => rest.len() <= 8,
        _ => contents.len() <= 8,
    };
    let sign = if contents.first()? & 0x80 != 0 { -1 } else { 0 };
    let value = contents.iter().fold(sign, |value: i128, byte| value << 8 | i128::from(*byte));
    is_valid.then_some(value)
}

/// The same without a sign: some agents leave out the zero before a first bit that is set.
fn parse_unsigned(contents: &[u8]) -> Option<u64> {
    parse_signed(contents)?;
    Some(contents.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Reads the response to a request: the values in the order of the objects. `None` if the bytes are
/// the response to another request, such as one that came too late.
pub fn read_response(
    bytes: &[u8],
    request_id: u32,
    objects: &[ObjectId],
) -> Option<Result<Vec<SnmpValue>, String>> {
    let malformed = || Some(Err("the response is malformed".to_owned()));
    let Some((id, error, mut bindings)) = read_head(bytes) else { return malformed() };
    if id != i128::from(request_id >> 1) {
        return None;
    }
    if error != 0 {
        let name = usize::try_from(error).ok().and_then(|error| ERRORS.get(error)).copied();
        return Some(Err(format!("the agent reports {}", name.unwrap_or("an unknown error"))));
    }
    let mut values = Vec::new();
    for object in objects {
        let Some((name, value)) = read_binding(&mut bindings) else { return malformed() };
        if name != object.0 {
            return Some(Err("the response has other objects than the request".to_owned()));
        }
        values.push(value);
    }
    Some(Ok(values))
}

/// Identifier of the request, status, and the list of values.
fn read_head(bytes: &[u8]) -> Option<(i128, i128, BerReader<'_>)> {
    let mut message = BerReader(BerReader(bytes).expect(SEQUENCE)?);
    if message.expect(INTEGER)? != [VERSION] {
        return None;
    }
    message.expect(OCTET_STRING)?;
    let mut body = BerReader(message.expect(RESPONSE)?);
    let id = parse_signed(body.expect(INTEGER)?)?;
    let error = parse_signed(body.expect(INTEGER)?)?;
    body.expect(INTEGER)?;
    Some((id, error, BerReader(body.expect(SEQUENCE)?)))
}

fn read_binding<'a>(bindings: &mut BerReader<'a>) -> Option<(&'a [u8], SnmpValue)> {
    let mut binding = BerReader(bindings.expect(SEQUENCE)?);
    let name = binding.expect(OBJECT_IDENTIFIER)?;
    let (kind, contents) = binding.next()?;
    let value = match kind {
        INTEGER => SnmpValue::Number(parse_signed(contents)? as f64),
        COUNTER_32 | GAUGE_32 | COUNTER_64 => SnmpValue::Number(parse_unsigned(contents)? as f64),
        TIME_TICKS => SnmpValue::Seconds(parse_unsigned(contents)? as f64 / 100.0),
        OCTET_STRING => SnmpValue::Text(contents.to_vec()),
        // noSuchObject, noSuchInstance, endOfMibView.
        0x80..=0x82 => SnmpValue::Missing,
        kind => SnmpValue::Other(kind),
    };
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> ObjectId {
        ObjectId::parse(text).unwrap()
    }

    #[test]
    fn identifiers_are_encoded() {
        assert_eq!(object("1.3.6.1.2.1.1.3.0").0, [0x2b, 6, 1, 2, 1, 1, 3, 0]);
        assert_eq!(object(".1.3.128.16384").0, [0x2b, 0x81, 0, 0x81, 0x80, 0]);
        assert_eq!(object("2.999.4294967295").0, [0x88, 0x37, 0x8f, 0xff, 0xff, 0xff, 0x7f]);
        for text in ["", "1", "1.40", "3.1", "1.3.x", "1..3", "1.3.4294967296", "2.4294967295"] {
            assert_eq!(ObjectId::parse(text), None, "{text}");
        }
        assert_eq!(ObjectId::parse(&"1.".repeat(200)), None);
    }

    /// The bytes of `snmpget -v2c -c public HOST 1.3.6.1.2.1.1.3.0`, by the formats of the RFCs.
    #[test]
    fn a_request_has_its_fields() {
        let bytes = get_request("public", 0x1234_5678 << 1, &[object("1.3.6.1.2.1.1.3.0")]);
        let expected = [
            &[0x30, 0x29, 2, 1, 1, 4, 6][..],
            b"public",
            &[0xa0, 0x1c, 2, 4, 0x12, 0x34, 0x56, 0x78, 2, 1, 0, 2, 1, 0],
            &[0x30, 0x0e, 0x30, 0x0c, 6, 8, 0x2b, 6, 1, 2, 1, 1, 3, 0, 5, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }

    /// Response with a value per object.
    fn response(id: u32, error: u8, values: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let binding = |(name, value): &(&str, Vec<u8>)| {
            let name = encode(OBJECT_IDENTIFIER, &object(name).0);
            encode(SEQUENCE, &[name, value.clone()].concat())
        };
        let bindings: Vec<u8> = values.iter().flat_map(binding).collect();
        let body = [
            encode(INTEGER, &(id >> 1).to_be_bytes()),
            encode(INTEGER, &[error]),
            encode(INTEGER, &[0]),
            encode(SEQUENCE, &bindings),
        ];
        let head = [encode(INTEGER, &[VERSION]), encode(OCTET_STRING, b"public")].concat();
        encode(SEQUENCE, &[head, encode(RESPONSE, &body.concat())].concat())
    }

    #[test]
    fn values_of_a_response_are_read() {
        let values = [
            ("1.3.1", encode(INTEGER, &[0xff, 0x7f])),
            ("1.3.2", encode(COUNTER_32, &[0, 0xff, 0xff, 0xff, 0xff])),
            ("1.3.3", encode(TIME_TICKS, &[0x01, 0x2c])),
            ("1.3.4", encode(COUNTER_64, &[0, 0x80, 0, 0, 0, 0, 0, 0, 0])),
            ("1.3.5", encode(OCTET_STRING, &[b'x'; 300])),
            ("1.3.6", encode(0x81, &[])),
            ("1.3.7", encode(0x40, &[10, 0, 0, 1])),
        ];
        let objects: Vec<ObjectId> = values.iter().map(|value| object(value.0)).collect();
        let bytes = response(8, 0, &values);
        let expected = vec![
            SnmpValue::Number(-129.0),
            SnmpValue::Number(4_294_967_295.0),
            SnmpValue::Seconds(3.0),
            SnmpValue::Number(9_223_372_036_854_775_808.0),
            SnmpValue::Text(vec![b'x'; 300]),
            SnmpValue::Missing,
            SnmpValue::Other(0x40),
        ];
        assert_eq!(read_response(&bytes, 8, &objects), Some(Ok(expected)));
        assert_eq!(read_response(&bytes, 10, &objects), None);
        let other = read_response(&bytes, 8, &[object("1.3.2")]).unwrap();
        assert_eq!(other.unwrap_err(), "the response has other objects than the request");
        let error = read_response(&response(8, 5, &[]), 8, &objects).unwrap();
        assert_eq!(error.unwrap_err(), "the agent reports genErr");
        let error = read_response(&response(8, 99, &[]), 8, &objects).unwrap();
        assert_eq!(error.unwrap_err(), "the agent reports an unknown error");
        // Cut at any place.
        for end in 0..bytes.len() {
            let found = read_response(&bytes[..end], 8, &objects);
            assert_eq!(found, Some(Err("the response is malformed".to_owned())), "{end}");
        }
    }

    #[test]
    fn wrong_lengths_are_malformed() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 0x80],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
            &[0x30, 3, 2, 1, 0],
            &[0x30, 3, 2, 0, 1],
        ] {
            assert_eq!(
                read_response(bytes, 8, &[]),
                Some(Err("the response is malformed".to_owned()))
            );
        }
        assert_eq!(parse_signed(&[0xff; 4]), Some(-1));
        assert_eq!(parse_unsigned(&[0xff; 4]), Some(0xffff_ffff));
        assert_eq!(parse_unsigned(&[0, 0xff]), Some(255));
        for contents in [&[][..], &[1; 9], &[0; 10]] {
            assert_eq!(parse_signed(contents), None);
            assert_eq!(parse_unsigned(contents), None);
        }
        let values = [("1.3.1", encode(INTEGER, &[]))];
        let found = read_response(&response(8, 0, &values), 8, &[object("1.3.1")]);
        assert!(found.unwrap().is_err());
    }
}
