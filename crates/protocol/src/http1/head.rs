//! The head of a message: from its first byte to the empty line.

use crate::ProtocolViolation;

/// Maximum size of a head, far above the limits of nginx and Apache.
pub(super) const HEAD_MAX: usize = 64 << 10;
/// Maximum number of headers.
pub(super) const HEADERS_MAX: usize = 128;

/// Fields of the headers that concern the body and the connection.
#[derive(Debug, Default)]
pub(super) struct HeaderFields {
    pub(super) content_length: Option<u64>,
    pub(super) is_chunked: bool,
    /// Whether the connection closes after this message.
    pub(super) is_last: bool,
}

/// Consumes bytes up to the end of a head and returns the result of `parse`. `partial` holds the
/// start of an incomplete head.
pub(super) fn read<T>(
    partial: &mut Vec<u8>,
    bytes: &mut &[u8],
    parse: impl FnOnce(&[u8]) -> Result<Option<(usize, T)>, ProtocolViolation>,
) -> Result<Option<T>, ProtocolViolation> {
    let before = partial.len();
    if before == 0 {
        let Some((length, head)) = parse(bytes)? else {
            partial.extend_from_slice(bytes);
            *bytes = &[];
            return Ok(None);
        };
        *bytes = &bytes[length..];
        return Ok(Some(head));
    }
    partial.extend_from_slice(bytes);
    let Some((length, head)) = parse(partial)? else {
        *bytes = &[];
        return Ok(None);
    };
    *bytes = &bytes[length - before..];
    partial.clear();
    Ok(Some(head))
}

/// Length of a parsed head; `None` if it is incomplete.
pub(super) fn length(
    parsed: Result<httparse::Status<usize>, httparse::Error>,
    bytes: &[u8],
) -> Result<Option<usize>, ProtocolViolation> {
    match parsed {
        Ok(httparse::Status::Complete(length)) => Ok(Some(length)),
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => Ok(None),
        _ => Err(ProtocolViolation),
    }
}

impl HeaderFields {
    pub(super) fn read(
        version: Option<u8>,
        headers: &[httparse::Header<'_>],
    ) -> Result<HeaderFields, ProtocolViolation> {
        let mut fields = HeaderFields { is_last: version == Some(0), ..HeaderFields::default() };
        for header in headers {
            let name = header.name;
            if name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).map_err(|_| ProtocolViolation)?;
                let value: u64 = text.trim().parse().map_err(|_| ProtocolViolation)?;
                if fields.content_length.replace(value).is_some_and(|before| before != value) {
                    return Err(ProtocolViolation);
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                fields.is_chunked = ends_with(header.value, b"chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                if list_contains(header.value, b"close") {
                    fields.is_last = true;
                } else if list_contains(header.value, b"keep-alive") {
                    fields.is_last = false;
                }
            }
        }
        Ok(fields)
    }
}

/// Whether a comma-separated list contains a token, ignoring case.
fn list_contains(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
}

fn ends_with(list: &[u8], word: &[u8]) -> bool {
    let last = list.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    last.trim_ascii().eq_ignore_ascii_case(word)
}
