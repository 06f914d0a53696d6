//! Payloads of the server's packets.

/// Flags of the status in OK and EOF packets.
pub(super) const MORE_RESULTS: u16 = 0x0008;
pub(super) const CURSOR_EXISTS: u16 = 0x0040;

/// Capabilities.
pub(super) const COMPRESSION: u32 = 1 << 5;
pub(super) const TLS: u32 = 1 << 11;
pub(super) const DEPRECATE_EOF: u32 = 1 << 24;
pub(super) const OPTIONAL_METADATA: u32 = 1 << 25;
pub(super) const ZSTD_COMPRESSION: u32 = 1 << 26;

/// Length of an EOF packet; an OK packet that ends rows is longer.
const EOF_BYTES: usize = 5;

/// A packet that ends a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResultEnd {
    /// Rows that a statement changed.
    pub(super) affected_rows: u64,
    pub(super) status: u16,
}

/// Parses an OK packet.
pub(super) fn parse_ok(payload: &[u8]) -> Option<ResultEnd> {
    let mut rest = payload.get(1..)?;
    let affected_rows = parse_integer(&mut rest)?;
    parse_integer(&mut rest)?;
    let status = rest.first_chunk::<2>().map_or(0, |status| u16::from_le_bytes(*status));
    Some(ResultEnd { affected_rows, status })
}

/// Parses a packet that ends rows: EOF, or OK with the mark of EOF.
pub(super) fn parse_rows_end(payload: &[u8], length: usize) -> Option<ResultEnd> {
    if payload.first() != Some(&0xfe) || length >= 0xff_ffff {
        return None;
    }
    if is_eof(payload, length) {
        let status = u16::from_le_bytes([payload[3], payload[4]]);
        return Some(ResultEnd { affected_rows: 0, status });
    }
    parse_ok(payload)
}

pub(super) fn is_eof(payload: &[u8], length: usize) -> bool {
    length == EOF_BYTES && payload.len() == EOF_BYTES && payload[0] == 0xfe
}

/// SQLSTATE class of an ERR packet; `None` if it reports progress (MariaDB).
pub(super) fn error_class(payload: &[u8]) -> Option<[u8; 2]> {
    match payload {
        [0xff, 0xff, 0xff, ..] => None,
        [0xff, _, _, b'#', class @ ..] => {
            let class = class.first_chunk::<2>().copied();
            Some(
                class.filter(|class| class.iter().all(u8::is_ascii_alphanumeric)).unwrap_or(*b"HY"),
            )
        }
        // Before the handshake, errors have no SQLSTATE.
        _ => Some(*b"HY"),
    }
}

/// Number of columns in the first packet of rows, and whether their definitions follow.
pub(super) fn parse_column_count(payload: &[u8], length: usize) -> Option<(u64, bool)> {
    let mut rest = payload;
    let count = parse_integer(&mut rest)?;
    // MariaDB may omit definitions that the client has.
    match (length - (payload.len() - rest.len()), rest.first()) {
        (0, _) => Some((count, true)),
        (1, Some(flag)) => Some((count, *flag != 0)),
        _ => None,
    }
}

/// Identifier, columns and parameters in the response to a Prepare.
pub(super) fn parse_prepared(payload: &[u8]) -> Option<(u32, u16, u16)> {
    match payload {
        [0, a, b, c, d, e, f, g, h, ..] => Some((
            u32::from_le_bytes([*a, *b, *c, *d]),
            u16::from_le_bytes([*e, *f]),
            u16::from_le_bytes([*g, *h]),
        )),
        _ => None,
    }
}

/// Capabilities in the greeting of a server. `None` if it is no greeting of protocol 10.
pub(super) fn parse_greeting(payload: &[u8]) -> Option<u32> {
    let rest = payload.strip_prefix(&[10])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    // Thread, authentication data, filler.
    let rest = rest.get(end + 1 + 4 + 8 + 1..)?;
    let low = u16::from_le_bytes(*rest.first_chunk()?);
    let high = rest.get(5..7).map_or(0, |high| u16::from_le_bytes([high[0], high[1]]));
    Some(u32::from(high) << 16 | u32::from(low))
}

/// An integer of variable length.
pub(super) fn parse_integer(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let length = match first {
        0..=0xfa => {
            *bytes = rest;
            return Some(u64::from(first));
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (number, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_a_variable_length() {
        for (bytes, expected) in [
            (&b"\x05"[..], Some(5)),
            (b"\xfa", Some(250)),
            (b"\xfc\x01\x02", Some(0x201)),
            (b"\xfd\x01\x02\x03", Some(0x3_0201)),
            (b"\xfe\x01\0\0\0\0\0\0\x01", Some((1 << 56) + 1)),
            (b"\xfc\x01", None),
            (b"\xfb", None),
            (b"", None),
        ] {
            let mut rest = bytes;
            assert_eq!(parse_integer(&mut rest), expected, "{bytes:?}");
        }
    }

    #[test]
    fn packets_that_end_rows() {
        let eof = b"\xfe\0\0\x0a\0";
        assert_eq!(parse_rows_end(eof, 5), Some(ResultEnd { affected_rows: 0, status: 10 }));
        let ok = b"\xfe\0\0\x22\0\0\0";
        assert_eq!(parse_rows_end(ok, 7), Some(ResultEnd { affected_rows: 0, status: 0x22 }));
        assert_eq!(parse_rows_end(b"\x01a", 2), None);
        let ok = b"\0\xfc\x10\x27\0\x02\0\0\0";
        assert_eq!(parse_ok(ok), Some(ResultEnd { affected_rows: 10_000, status: 2 }));
        assert_eq!(error_class(b"\xff\x28\x04#42000no"), Some(*b"42"));
        assert_eq!(error_class(b"\xff\x10\x04Too many connections"), Some(*b"HY"));
        assert_eq!(error_class(b"\xff\xff\xff\x01\x01"), None);
        assert_eq!(parse_column_count(b"\x03", 1), Some((3, true)));
        assert_eq!(parse_column_count(b"\x03\0", 2), Some((3, false)));
    }
}
