//! Recognition of TLS on a connection of another protocol.

/// Whether the bytes are the start of a TLS record: content type, version 3.x, and a length of at
/// most 2^14 + 256.
pub(crate) fn is_tls_record(bytes: &[u8]) -> bool {
    let &[kind, major, minor, length, ..] = bytes else { return false };
    (20..=23).contains(&kind) && major == 3 && minor <= 4 && length <= 0x41
}
