//! Quoted strings of Go: `%q`, `%U`, and the value of a string or character literal.

use std::fmt::Write as _;

/// `text` in double quotes, as `%q` shows it.
pub(crate) fn quoted(text: &str) -> String {
    quote(text, '"', false)
}

/// `text` in quotes; `ascii` also escapes what is not ASCII.
pub(super) fn quote(text: &str, mark: char, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            _ if c == mark => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\0'..='\x7f' => drop(write!(out, "\\x{:02x}", u32::from(c))),
            _ if !ascii && is_printable(c) => out.push(c),
            _ if u32::from(c) > 0xffff => drop(write!(out, "\\U{:08x}", u32::from(c))),
            _ => drop(write!(out, "\\u{:04x}", u32::from(c))),
        }
    }
    out.push(mark);
    out
}

/// Whether a character is shown as it is. The standard library decides what `Debug` escapes by
/// the same Unicode categories as Go, except for marks that combine with the character before.
pub(super) fn is_printable(c: char) -> bool {
    match c {
        ' ' => true,
        _ if c.is_ascii() => c.is_ascii_graphic(),
        _ if c.is_whitespace() || c.is_control() => false,
        // `Debug` of a string escapes marks only at its start.
        _ => !format!("{:?}", format!("a{c}")).contains('\\'),
    }
}

/// A character as `%#U` shows it: `U+0040 '@'`.
pub(super) fn code_point(c: char) -> String {
    match is_printable(c) {
        true => format!("U+{:04X} '{c}'", u32::from(c)),
        false => format!("U+{:04X}", u32::from(c)),
    }
}

/// The value of a string literal; `None` if an escape is invalid.
pub(super) fn unquote(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('`') {
        return Some(raw.strip_suffix('`')?.replace('\r', ""));
    }
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        let (piece, tail) = unquote_char(rest, '"')?;
        match piece {
            LiteralChar::Byte(byte) => bytes.push(byte),
            LiteralChar::Char(c) => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = tail;
    }
    // A literal may spell bytes that are no UTF-8.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The code of a character literal such as `'a'`, or its error message.
pub(super) fn unquote_char_constant(literal: &str) -> Result<i64, String> {
    let invalid = || "invalid syntax".to_owned();
    let (piece, tail) = unquote_char(&literal[1..], '\'').ok_or_else(invalid)?;
    if tail != "'" {
        return Err(format!("malformed character constant: {literal}"));
    }
    Ok(match piece {
        LiteralChar::Byte(byte) => i64::from(byte),
        LiteralChar::Char(c) => i64::from(u32::from(c)),
    })
}

enum LiteralChar {
    Byte(u8),
    Char(char),
}

fn unquote_char(text: &str, mark: char) -> Option<(LiteralChar, &str)> {
    let mut chars = text.chars();
    let first = chars.next()?;
    if first == mark {
        return None;
    }
    if first != '\\' {
        return Some((LiteralChar::Char(first), chars.as_str()));
    }
    let escape = chars.next()?;
    let rest = chars.as_str();
    let simple = |c| Some((LiteralChar::Char(c), rest));
    let numbered = |digits: &str, length: usize, radix: u32| -> Option<(u32, usize)> {
        let digits = digits.get(..length)?;
        let good = digits.bytes().all(|byte| char::from(byte).is_digit(radix));
        good.then(|| u32::from_str_radix(digits, radix).ok()).flatten().map(|code| (code, length))
    };
    match escape {
        'a' => simple('\x07'),
        'b' => simple('\x08'),
        'f' => simple('\x0c'),
        'n' => simple('\n'),
        'r' => simple('\r'),
        't' => simple('\t'),
        'v' => simple('\x0b'),
        '\\' => simple('\\'),
        '\'' | '"' if escape == mark => simple(escape),
        'x' => {
            let (code, length) = numbered(rest, 2, 16)?;
            Some((LiteralChar::Byte(u8::try_from(code).ok()?), &rest[length..]))
        }
        'u' | 'U' => {
            let (code, length) = numbered(rest, if escape == 'u' { 4 } else { 8 }, 16)?;
            Some((LiteralChar::Char(char::from_u32(code)?), &rest[length..]))
        }
        '0'..='7' => {
            let digits = &text[1..];
            let (code, length) = numbered(digits, 3, 8)?;
            Some((LiteralChar::Byte(u8::try_from(code).ok()?), &digits[length..]))
        }
        _ => None,
    }
}
