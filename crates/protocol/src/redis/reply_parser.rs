//! Finds the end of a Redis reply: counts elements without storing them.
//!
//! A command is an array too ([`super::encode_command`]), so the parser also finds the end of a
//! command.
//!
//! A reply is one element. An array of n elements adds n outstanding elements, a map adds 2n. One
//! counter of outstanding elements replaces a stack. Streamed strings of RESP 3 (`$?`) are
//! rejected: no server sends them.

use crate::ProtocolViolation;

/// Maximum number of digits of a length.
const DIGITS_MAX: usize = 20;

/// Parser of one direction of a connection.
#[derive(Debug, Default)]
pub struct ReplyParser {
    state: ParserState,
    /// Outstanding elements of this reply, including the current one.
    rest: u64,
    reply: RedisReply,
    /// Digits of the current length.
    digits: Vec<u8>,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisReply {
    /// Whether it contains an error.
    pub is_error: bool,
    /// Whether it is an unsolicited push message.
    pub is_push: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    /// At the start of an element.
    #[default]
    Mark,
    /// In a line whose content is skipped.
    Line,
    /// In the line with a length.
    Length(LengthPrefixed),
    /// Bytes of a string still to read.
    Bytes(u64),
    /// Before the CR after a string.
    Return,
    /// Before the LF of a CRLF.
    Feed(AfterLine),
}

/// Element type with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthPrefixed {
    /// Length in bytes.
    String,
    /// Length in elements.
    Array,
    /// Length in pairs of elements.
    Map,
    /// Length in pairs of elements, which annotate the next element.
    Attributes,
}

/// Next state after the CRLF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterLine {
    End,
    Length(LengthPrefixed),
}

impl ReplyParser {
    /// Whether the next byte starts a reply.
    pub fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// Consumes bytes up to the end of a reply; `None` if it is incomplete.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<RedisReply>, ProtocolViolation> {
        while let Some((&first, after)) = bytes.split_first() {
            let is_end = match self.state {
                ParserState::Mark => {
                    *bytes = after;
                    self.mark(first)?;
                    false
                }
                ParserState::Line => {
                    let end = bytes.iter().position(|byte| *byte == b'\r');
                    *bytes = end.map_or(&[], |end| &bytes[end + 1..]);
                    if end.is_some() {
                        self.state = ParserState::Feed(AfterLine::End);
                    }
                    false
                }
                ParserState::Length(long) => {
                    *bytes = after;
                    match first {
                        b'\r' => self.state = ParserState::Feed(AfterLine::Length(long)),
                        b'0'..=b'9' | b'-' if self.digits.len() < DIGITS_MAX => {
                            self.digits.push(first);
                        }
                        _ => return Err(ProtocolViolation),
                    }
                    false
                }
                ParserState::Bytes(rest) => {
                    let length = rest.min(bytes.len() as u64);
                    *bytes = &bytes[length as usize..];
                    let left = rest - length;
                    self.state =
                        if left == 0 { ParserState::Return } else { ParserState::Bytes(left) };
                    false
                }
                ParserState::Return if first == b'\r' => {
                    *bytes = after;
                    self.state = ParserState::Feed(AfterLine::End);
                    false
                }
                ParserState::Feed(then) if first == b'\n' => {
                    *bytes = after;
                    match then {
                        AfterLine::End => self.end(1),
                        AfterLine::Length(long) => self.length(long)?,
                    }
                }
                ParserState::Return | ParserState::Feed(_) => return Err(ProtocolViolation),
            };
            if is_end {
                return Ok(Some(std::mem::take(&mut self.reply)));
            }
        }
        Ok(None)
    }

    fn mark(&mut self, mark: u8) -> Result<(), ProtocolViolation> {
        if self.rest == 0 {
            self.rest = 1;
            self.reply = RedisReply { is_error: false, is_push: mark == b'>' };
        }
        self.reply.is_error |= matches!(mark, b'-' | b'!');
        self.digits.clear();
        self.state = match mark {
            b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => ParserState::Line,
            b'$' | b'=' | b'!' => ParserState::Length(LengthPrefixed::String),
            b'*' | b'~' | b'>' => ParserState::Length(LengthPrefixed::Array),
            b'%' => ParserState::Length(LengthPrefixed::Map),
            b'|' => ParserState::Length(LengthPrefixed::Attributes),
            _ => return Err(ProtocolViolation),
        };
        Ok(())
    }

    /// Completes elements. Returns whether the reply is complete.
    fn end(&mut self, count: u64) -> bool {
        self.state = ParserState::Mark;
        self.rest -= count;
        self.rest == 0
    }

    fn length(&mut self, long: LengthPrefixed) -> Result<bool, ProtocolViolation> {
        let text = std::str::from_utf8(&self.digits).map_err(|_| ProtocolViolation)?;
        let length = match (text, long) {
            // The null value of RESP 2.
            ("-1", LengthPrefixed::String | LengthPrefixed::Array) => return Ok(self.end(1)),
            _ => text.parse::<u64>().map_err(|_| ProtocolViolation)?,
        };
        let more = match long {
            LengthPrefixed::String => {
                self.state =
                    if length == 0 { ParserState::Return } else { ParserState::Bytes(length) };
                return Ok(false);
            }
            LengthPrefixed::Array => Some(length),
            LengthPrefixed::Map | LengthPrefixed::Attributes => length.checked_mul(2),
        };
        let rest = more.and_then(|more| self.rest.checked_add(more));
        self.rest = rest.ok_or(ProtocolViolation)?;
        Ok(self.end(u64::from(long != LengthPrefixed::Attributes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::encode_command;

    /// Replies in these bytes, which arrive whole, and byte by byte.
    #[track_caller]
    fn replies(bytes: &[u8]) -> Result<Vec<RedisReply>, ProtocolViolation> {
        let read = |pieces: Vec<&[u8]>| {
            let (mut parser, mut replies) = (ReplyParser::default(), Vec::new());
            for mut piece in pieces {
                while let Some(reply) = parser.read(&mut piece)? {
                    replies.push(reply);
                }
                assert!(piece.is_empty());
            }
            Ok(replies)
        };
        let once = read(vec![bytes]);
        assert_eq!(once, read(bytes.chunks(1).collect()), "{bytes:?}");
        once
    }

    #[track_caller]
    fn check(reply: &str, is_error: bool, is_push: bool) {
        let expected = RedisReply { is_error, is_push };
        assert_eq!(replies(reply.as_bytes()), Ok(vec![expected]), "{reply:?}");
        assert_eq!(replies(reply.repeat(2).as_bytes()), Ok(vec![expected; 2]), "{reply:?}");
        // No reply completes before the last byte.
        assert_eq!(replies(&reply.as_bytes()[..reply.len() - 1]), Ok(vec![]), "{reply:?}");
    }

    #[test]
    fn replies_end_by_line_length_or_count() {
        let deep = format!("{}:1\r\n", "*1\r\n".repeat(10_000));
        for reply in [
            "+PONG\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "*0\r\n",
            "*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n+x\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "(123456789012345678901234567890\r\n",
            "=7\r\ntxt:abc\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n",
            "|0\r\n:3\r\n",
            deep.as_str(),
        ] {
            check(reply, false, false);
        }
        for reply in ["-ERR no\r\n", "!3\r\nERR\r\n", "*2\r\n+a\r\n-ERR b\r\n"] {
            check(reply, true, false);
        }
        check(">2\r\n+invalidate\r\n*1\r\n+a\r\n", false, true);
    }

    #[test]
    fn commands_end_like_replies() {
        let mut bytes = Vec::new();
        encode_command([&b"SET"[..], b"a\r\n", b""], &mut bytes);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$0\r\n\r\n");
        check(std::str::from_utf8(&bytes).unwrap(), false, false);
    }

    #[test]
    fn garbage_is_a_violation() {
        for reply in [
            "HTTP/1.1 400 Bad Request\r\n",
            "$x\r\n",
            "$-2\r\n",
            "%-1\r\n",
            "$?\r\n",
            "$\r\n",
            "$3\r\nabcd\r\n",
            "$1\r\na\nb",
            "+a\rb",
            "$99999999999999999999999\r\n",
            "*18446744073709551615\r\n",
            "%9223372036854775808\r\n",
        ] {
            assert_eq!(replies(reply.as_bytes()), Err(ProtocolViolation), "{reply:?}");
        }
    }
}
