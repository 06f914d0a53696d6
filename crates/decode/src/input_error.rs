//! Input errors: position, expected and actual text.

use std::borrow::Cow;
use std::fmt;

/// Number of input characters quoted in a message.
const QUOTED_CHARS_MAX: usize = 40;

/// Position in the input: lines count from 1, bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputPosition {
    /// For line formats.
    Line(u64),
    /// For formats without lines.
    Byte(u64),
}

/// Input error: position, expected and actual text. The input before the position has been
/// processed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{position}: expected {expected}, found {actual}")]
pub struct InputError {
    /// Position of the error.
    pub position: InputPosition,
    /// Expected syntax or value.
    pub expected: Cow<'static, str>,
    /// Actual text.
    pub actual: String,
    /// The syntax is valid but the value is not, such as falling cumulative counts of a histogram.
    pub is_invalid_value: bool,
}

impl InputError {
    pub(crate) fn new(
        position: InputPosition,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
    ) -> InputError {
        InputError {
            position,
            expected: expected.into(),
            actual: found.into(),
            is_invalid_value: false,
        }
    }

    /// Creates a semantic error: valid syntax, invalid value.
    pub(crate) fn semantic(
        position: InputPosition,
        expected: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
    ) -> InputError {
        InputError { is_invalid_value: true, ..InputError::new(position, expected, found) }
    }
}

impl From<codecs::protobuf::Error> for InputError {
    fn from(error: codecs::protobuf::Error) -> InputError {
        InputError::new(InputPosition::Byte(error.offset), error.expected, error.found)
    }
}

impl fmt::Display for InputPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputPosition::Line(line) => write!(f, "line {line}"),
            InputPosition::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Input bytes for a message: one line, printable, shortened.
pub(crate) fn quote(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    // A character has at most 4 bytes, so no more input is converted than can be shown.
    let head = &bytes[..bytes.len().min(4 * (QUOTED_CHARS_MAX + 1))];
    let text = String::from_utf8_lossy(head);
    let mut excerpt: String = text.chars().take(QUOTED_CHARS_MAX).flat_map(escape_char).collect();
    if bytes.len() > head.len() || text.chars().nth(QUOTED_CHARS_MAX).is_some() {
        excerpt.push('…');
    }
    format!("\"{excerpt}\"")
}

fn escape_char(c: char) -> impl Iterator<Item = char> {
    let (plain, escaped) =
        if c.is_control() { (None, Some(c.escape_default())) } else { (Some(c), None) };
    plain.into_iter().chain(escaped.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_excerpts_are_short_printable_and_one_line() {
        assert_eq!(quote(b""), "nothing");
        assert_eq!(quote("12 µs".as_bytes()), "\"12 µs\"");
        assert_eq!(quote(b"a\x1b[31m\n"), "\"a\\u{1b}[31m\\n\"");
        assert_eq!(quote(&[b'x'; 1000]), format!("\"{}…\"", "x".repeat(40)));
        assert_eq!(quote(&[b'x'; 41]), format!("\"{}…\"", "x".repeat(40)));
        assert_eq!(quote(&[b'x'; 40]), format!("\"{}\"", "x".repeat(40)));
    }
}
