//! Quoting and unquoting of strings.

/// Double-quoted string that parses to the same text.
pub(super) fn quote_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            c => push(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// Single-quoted character.
pub(super) fn quote_char(c: char) -> String {
    let mut out = String::from("'");
    match c {
        '\'' => out.push_str("\\'"),
        c => push(&mut out, c),
    }
    out.push('\'');
    out
}

/// Character as `U+002E '.'`, for messages about escapes.
pub(super) fn code_point(c: char) -> String {
    let number = format!("U+{:04X}", u32::from(c));
    if is_printable(c) { format!("{number} '{c}'") } else { number }
}

fn push(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0b' => out.push_str("\\v"),
        '\x0c' => out.push_str("\\f"),
        // The lexer rejects a literal replacement character.
        c if is_printable(c) && c != '\u{fffd}' => out.push(c),
        c if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
    }
}

/// Whether a character is printable or a plain space.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{a0}' | '\u{ad}' => false,
        c if c.is_alphanumeric() => true,
        c => !c.is_whitespace() && c.escape_debug().count() == 1,
    }
}

/// Text of a quoted string. The lexer has validated quotes and escapes; anything invalid is
/// skipped. Bytes written as `\xff` or `\377` that are not UTF-8 become the replacement character:
/// no label has such bytes.
pub(super) fn unquote(text: &str) -> String {
    let quote = text.chars().next().unwrap_or('"');
    let inner = text.get(1..text.len().saturating_sub(1)).unwrap_or("");
    if quote == '`' || !inner.contains('\\') {
        return inner.to_owned();
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let Some(c) = rest[at + 1..].chars().next() else { break };
        rest = &rest[at + 1 + c.len_utf8()..];
        let (digits, base) = match c {
            'x' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            '0'..='7' => (2, 8),
            _ => (0, 10),
        };
        let (number, after) = rest.split_at_checked(digits).unwrap_or(("", rest));
        rest = after;
        let number = u32::from_str_radix(number, base).unwrap_or(0);
        match c {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            'x' => bytes.push(number as u8),
            'u' | 'U' => {
                let c = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            '0'..='7' => bytes.push(((u32::from(c) - u32::from('0')) * 64 + number) as u8),
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (text, expected) in [
            (r#""plain""#, "plain"),
            (r#"'it\'s'"#, "it's"),
            (r"`raw\n`", r"raw\n"),
            (r#""\a\b\f\n\r\t\v\\\"""#, "\x07\x08\x0c\n\r\t\x0b\\\""),
            (r#""\x41\101\u00e4\U0001F600""#, "AAä😀"),
            (r#""\xc3\xa4 \xff""#, "ä \u{fffd}"),
        ] {
            assert_eq!(unquote(text), expected, "{text}");
        }
    }

    #[test]
    fn quotes_read_back() {
        for text in
            ["", "a\"b'c`d\\", "\0\x1f\x7f\u{85}\u{a0}\u{feff}\u{fffd}", "ä😀\u{301}", "\n\t"]
        {
            assert_eq!(unquote(&quote_text(text)), text);
        }
        assert_eq!(quote_char('}'), "'}'");
        assert_eq!(code_point('.'), "U+002E '.'");
    }
}
