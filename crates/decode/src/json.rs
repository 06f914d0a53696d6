//! JSON tokenizer with byte offsets (RFC 8259).
//!
//! Documents may follow one another and keys may repeat: HTTPTrap needs both, and the tokens before
//! a syntax error are returned before the error. Nesting deeper than [`NESTING_MAX`] is rejected.
//! Comments are not JSON but some senders write them: [`JsonTokenizer::with_comments`].

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;

use crate::input_error::{InputError, InputPosition, quote};

/// Nesting limit. No metrics sender nests deeper.
pub(crate) const NESTING_MAX: usize = 128;

/// Start of a container, or a scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonToken<'a> {
    Object,
    Array,
    Text(String),
    /// Source text of the number.
    Number(&'a str),
    Bool(bool),
    Null,
}

/// JSON tokenizer.
#[derive(Clone)]
pub(crate) struct JsonTokenizer<'a> {
    bytes: &'a [u8],
    position: usize,
    depth: usize,
    depth_max: usize,
    has_comments: bool,
    /// Whether nothing has been read since the last object or array was opened.
    after_open: bool,
}

type Result<T> = std::result::Result<T, InputError>;

impl<'a> JsonTokenizer<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> JsonTokenizer<'a> {
        let at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let (depth_max, has_comments) = (NESTING_MAX, false);
        JsonTokenizer { bytes, position: at, depth: 0, depth_max, has_comments, after_open: false }
    }

    /// Accepts C comments of both kinds wherever whitespace is allowed.
    pub(crate) fn with_comments(mut self) -> JsonTokenizer<'a> {
        self.has_comments = true;
        self
    }

    /// Sets a lower nesting limit, up to [`NESTING_MAX`].
    pub(crate) fn with_nesting(mut self, depth_max: usize) -> JsonTokenizer<'a> {
        self.depth_max = depth_max.min(NESTING_MAX);
        self
    }

    /// Offset of the next token.
    pub(crate) fn offset(&mut self) -> usize {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => {
                    self.position = self.position.saturating_add(1)
                }
                Some(b'/') if self.has_comments => match self.comment() {
                    Some(length) => self.position = self.position.saturating_add(length),
                    None => return self.position,
                },
                _ => return self.position,
            }
        }
    }

    /// Length of the comment that begins here, if it is terminated.
    fn comment(&self) -> Option<usize> {
        let rest = &self.bytes[self.position..];
        match rest.get(1)? {
            b'/' => Some(rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())),
            b'*' => {
                rest[2..].windows(2).position(|pair| pair == b"*/").map(|at| at.saturating_add(4))
            }
            _ => None,
        }
    }

    /// Whether another document follows.
    pub(crate) fn has_next_document(&mut self) -> bool {
        self.offset() == self.bytes.len()
    }

    /// Reads a value: a whole scalar, or the start of an object or array.
    pub(crate) fn value(&mut self) -> Result<JsonToken<'a>> {
        let start = self.offset();
        match self.peek() {
            Some(b'{') => self.open(JsonToken::Object),
            Some(b'[') => self.open(JsonToken::Array),
            Some(b'"') => self.text().map(JsonToken::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let words = [
                    ("true", JsonToken::Bool(true)),
                    ("false", JsonToken::Bool(false)),
                    ("null", JsonToken::Null),
                ];
                for (word, token) in words {
                    if self.bytes[start..].starts_with(word.as_bytes()) {
                        self.position = self.position.saturating_add(word.len());
                        return Ok(token);
                    }
                }
                Err(self.unexpected("a JSON value"))
            }
        }
    }

    /// After [`JsonToken::Object`]: reads the next key with its colon, or the end of the object.
    pub(crate) fn key(&mut self) -> Result<Option<String>> {
        let first = self.after_open;
        if self.next_or_close(b'}', "a comma or }")? {
            return Ok(None);
        }
        self.offset();
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(if first {
                "a key in quotes or }"
            } else {
                "a key in quotes"
            }));
        }
        let key = self.text()?;
        self.offset();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("a colon"));
        }
        self.position = self.position.saturating_add(1);
        Ok(Some(key))
    }

    /// After [`JsonToken::Array`]: whether another element follows.
    pub(crate) fn element(&mut self) -> Result<bool> {
        Ok(!self.next_or_close(b']', "a comma or ]")?)
    }

    /// Skips a value and checks its syntax.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let token = self.value()?;
        self.skip_rest(&token)
    }

    /// Skips the rest of a value whose first token was read.
    pub(crate) fn skip_rest(&mut self, token: &JsonToken<'_>) -> Result<()> {
        match token {
            JsonToken::Object => {
                while self.key()?.is_some() {
                    self.skip()?;
                }
            }
            JsonToken::Array => {
                while self.element()? {
                    self.skip()?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn open(&mut self, token: JsonToken<'a>) -> Result<JsonToken<'a>> {
        if self.depth == self.depth_max {
            return Err(self.unexpected(format!("nesting of at most {} levels", self.depth_max)));
        }
        self.depth = self.depth.saturating_add(1);
        self.position = self.position.saturating_add(1);
        self.after_open = true;
        Ok(token)
    }

    fn next_or_close(&mut self, end: u8, expected: &'static str) -> Result<bool> {
        let first = std::mem::take(&mut self.after_open);
        self.offset();
        match self.peek() {
            Some(byte) if byte == end => {
                self.position = self.position.saturating_add(1);
                self.depth = self.depth.saturating_sub(1);
                Ok(true)
            }
            Some(b',') if !first => {
                self.position = self.position.saturating_add(1);
                Ok(false)
            }
            _ if first => Ok(false),
            _ => Err(self.unexpected(expected)),
        }
    }

    fn number(&mut self) -> Result<JsonToken<'a>> {
        let start = self.position;
        let digits = |tokens: &mut Self| {
            let from = tokens.position;
            while tokens.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                tokens.position = tokens.position.saturating_add(1);
            }
            if tokens.position == from { Err(tokens.unexpected("a digit")) } else { Ok(()) }
        };
        if self.peek() == Some(b'-') {
            self.position = self.position.saturating_add(1);
        }
        if self.peek() == Some(b'0') {
            self.position = self.position.saturating_add(1);
        } else {
            digits(self)?;
        }
        if self.peek() == Some(b'.') {
            self.position = self.position.saturating_add(1);
            digits(self)?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.position = self.position.saturating_add(1);
            if let Some(b'+' | b'-') = self.peek() {
                self.position = self.position.saturating_add(1);
            }
            digits(self)?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.position]);
        text.map(JsonToken::Number).map_err(|_| self.unexpected("a number"))
    }

    fn text(&mut self) -> Result<String> {
        self.position = self.position.saturating_add(1);
        let mut text = String::new();
        loop {
            let run = self.position;
            while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
                self.position = self.position.saturating_add(1);
            }
            match std::str::from_utf8(&self.bytes[run..self.position]) {
                Ok(plain) => text.push_str(plain),
                Err(error) => {
                    self.position = run.saturating_add(error.valid_up_to());
                    return Err(self.unexpected("UTF-8"));
                }
            }
            match self.peek() {
                Some(b'"') => {
                    self.position = self.position.saturating_add(1);
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.unexpected("the end of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        self.position = self.position.saturating_add(1);
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.position = self.position.saturating_add(1);
                return self.unicode();
            }
            _ => {
                return Err(
                    self.unexpected("an escape: one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u")
                );
            }
        };
        self.position = self.position.saturating_add(1);
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char> {
        let unit = self.hex()?;
        let code = match unit {
            0xd800..=0xdbff if self.bytes[self.position..].starts_with(b"\\u") => {
                self.position = self.position.saturating_add(2);
                let low = self.hex()?;
                if !(0xdc00..=0xdfff).contains(&low) {
                    return Err(self.unexpected("the second half of a surrogate pair before this"));
                }
                // Each surrogate carries ten bits.
                0x10000_u32.saturating_add((unit & 0x3ff) << 10 | low & 0x3ff)
            }
            unit => unit,
        };
        char::from_u32(code).ok_or_else(|| self.unexpected("a whole surrogate pair before this"))
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.bytes.get(self.position..).and_then(|rest| rest.first_chunk::<4>());
        let number = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(number) = number else { return Err(self.unexpected("four hexadecimal digits")) };
        self.position = self.position.saturating_add(4);
        Ok(number)
    }

    fn unexpected(&self, expected: impl Into<Cow<'static, str>>) -> InputError {
        let rest = &self.bytes[self.position..];
        let found = if rest.is_empty() {
            "the end of the input".to_owned()
        } else {
            let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            quote(&rest[..end.clamp(1, 20)])
        };
        InputError::new(InputPosition::Byte(self.position as u64), expected, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut tokens = JsonTokenizer::new(text.as_bytes());
        let mut read = || -> Result<()> {
            while !tokens.has_next_document() {
                tokens.skip()?;
            }
            Ok(())
        };
        assert_eq!(
            read().map_or_else(|error| error.to_string(), |()| "ok".to_owned()),
            expected,
            "{text}"
        );
    }

    #[test]
    fn valid_documents_are_accepted() {
        for text in [
            "",
            " ",
            "{}",
            "[]",
            "1 2 3",
            "{\"a\":1,\"a\":2}{}",
            "[1,[2],{\"b\":null}]",
            "-0.5e+10",
            "\"\\u00e9\\ud83d\\ude00\\n\"",
            "\u{feff}true",
        ] {
            check(text, "ok");
        }
    }

    #[test]
    fn errors_have_their_offset() {
        check("{\"a\":1,}", "byte 7: expected a key in quotes, found \"}\"");
        check("{\"a\" 1}", "byte 5: expected a colon, found \"1}\"");
        check("[1 2]", "byte 3: expected a comma or ], found \"2]\"");
        check("[1,]", "byte 3: expected a JSON value, found \"]\"");
        check("{a:1}", "byte 1: expected a key in quotes or }, found \"a:1}\"");
        check("[1", "byte 2: expected a comma or ], found the end of the input");
        check("\"abc", "byte 4: expected the end of a string, found the end of the input");
        check("\"a\nb\"", "byte 2: expected the end of a string, found \"\\n\"");
        check("01x", "byte 2: expected a JSON value, found \"x\"");
        check("-", "byte 1: expected a digit, found the end of the input");
        check("1.e5", "byte 2: expected a digit, found \"e5\"");
        check(
            "\"\\ud800x\"",
            "byte 7: expected a whole surrogate pair before this, found \"x\\\"\""
                .replace("\\\"", "\"")
                .as_str(),
        );
        check("\"\\u12g4\"", "byte 3: expected four hexadecimal digits, found \"12g4\"\"");
        check(
            &"[".repeat(200),
            &format!(
                "byte 128: expected nesting of at most 128 levels, found \"{}…\"",
                "[".repeat(20)
            )
            .replace('…', ""),
        );
    }

    #[test]
    fn comments_are_allowed_where_spaces_are() {
        let text = b"/* a */ { // b\n\"x\" /**/ : [1 /* , 2 */ , /*/*/ 3] } // end";
        let mut tokens = JsonTokenizer::new(text).with_comments();
        assert_eq!(tokens.skip(), Ok(()));
        assert!(tokens.has_next_document());
        for text in ["/* ", "/ 1", "/*/"] {
            let error = JsonTokenizer::new(text.as_bytes()).with_comments().skip().unwrap_err();
            assert_eq!(error.position, InputPosition::Byte(0), "{text}");
        }
        assert!(JsonTokenizer::new(text).skip().is_err());
    }

    #[test]
    fn text_is_unescaped() {
        let mut tokens = JsonTokenizer::new(br#""a\"\\\/\u00e9\ud83d\ude00""#);
        assert_eq!(tokens.value(), Ok(JsonToken::Text("a\"\\/é😀".to_owned())));
    }
}
