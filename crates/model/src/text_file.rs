//! Text files of facts, one per line, that end with a checksum line.
//!
//! A fact is words, separated by a space. Text of users is one word: bytes other than visible ASCII
//! characters, and `%`, are `%XX`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt::Write as _;

/// The last line: CRC-32C of all preceding ones, 8 hexadecimal digits.
pub fn checksum_line(body: &str) -> String {
    format!("checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// The lines before the last one, and the last one.
pub fn split_last_line(text: &str) -> (&str, &str) {
    text.split_at(text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at.saturating_add(1)))
}

/// The words of a line, if there are `N`.
pub fn split_words<const N: usize>(line: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = line.split(' ').collect();
    words.try_into().ok()
}

/// The text as one word: bytes other than visible ASCII characters, and `%`, as `%XX`.
pub fn escape_word(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => out.push(byte.into()),
            // Writing to a string does not fail.
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

/// The text of an escaped word.
pub fn unescape_word(word: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let hex = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_line_ends_the_lines_before_it() {
        let body = "title 1\nfact a b\n";
        let text = [body, &checksum_line(body)].concat();
        let (found, last) = split_last_line(&text);
        assert_eq!((found, last), (body, checksum_line(found).as_str()));
        assert_eq!(split_last_line("one\n"), ("", "one\n"));
    }

    #[test]
    fn a_line_has_the_expected_number_of_words() {
        assert_eq!(split_words("a b"), Some(["a", "b"]));
        assert_eq!(split_words::<3>("a b"), None);
        assert_eq!(split_words("a "), Some(["a", ""]));
    }

    #[test]
    fn escaped_text_is_one_word() {
        let text = "a b\n%25 é-";
        assert_eq!(escape_word(text), "a%20b%0A%2525%20%C3%A9-");
        assert_eq!(unescape_word(&escape_word(text)).as_deref(), Some(text));
        assert_eq!(
            [unescape_word("%2"), unescape_word("%zz"), unescape_word("%FF")],
            [None, None, None]
        );
    }
}
