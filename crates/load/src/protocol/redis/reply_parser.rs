//! Finds the end of a Redis reply: counts elements without storing them.
//!
//! A reply is one element; an array of n elements adds n, a map twice as many. One counter of
//! outstanding elements replaces a stack. Streamed strings of RESP 3 (`$?`) are sent by no server
//! and rejected.

use crate::failure::Failure;

/// Maximum digits of a length.
const DIGITS_MAX: usize = 20;

/// Parser state.
#[derive(Debug, Default)]
pub(super) struct ReplyParser {
    state: ParserState,
    /// Outstanding elements of this reply, with the current one.
    rest: u64,
    reply: RedisReply,
    /// Digits of the current length.
    digits: Vec<u8>,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RedisReply {
    /// Whether it contains an error.
    pub(super) is_error: bool,
    /// Whether it is an unsolicited push message.
    pub(super) is_push: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    /// Before an element.
    #[default]
    Mark,
    /// In a line whose content does not matter.
    Line,
    /// In the line with a length.
    Length(LengthPrefixed),
    /// Bytes of a string to come.
    Bytes(u64),
    /// Before the CR after a string.
    Return,
    /// Before the LF of a CRLF.
    Feed(AfterLine),
}

/// Element type with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthPrefixed {
    /// In bytes.
    String,
    /// In elements.
    Array,
    /// In pairs of elements.
    Map,
    /// In pairs of elements, which annotate the next one.
    Attributes,
}

/// What follows the CRLF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterLine {
    End,
    Length(LengthPrefixed),
}

impl ReplyParser {
    /// Whether the next byte starts a reply.
    pub(super) fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// Consumes bytes up to the end of a reply; `None` if it is incomplete.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<RedisReply>, Failure> {
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
                        _ => return Err(Failure::Malformed),
                    }
                    false
                }
                ParserState::Bytes(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    *bytes = &bytes[taken as usize..];
                    let left = rest - taken;
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
                ParserState::Return | ParserState::Feed(_) => return Err(Failure::Malformed),
            };
            if is_end {
                return Ok(Some(std::mem::take(&mut self.reply)));
            }
        }
        Ok(None)
    }

    fn mark(&mut self, mark: u8) -> Result<(), Failure> {
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
            _ => return Err(Failure::Malformed),
        };
        Ok(())
    }

    /// Ends elements. Returns whether the reply is complete.
    fn end(&mut self, count: u64) -> bool {
        self.state = ParserState::Mark;
        self.rest -= count;
        self.rest == 0
    }

    fn length(&mut self, long: LengthPrefixed) -> Result<bool, Failure> {
        let text = std::str::from_utf8(&self.digits).map_err(|_| Failure::Malformed)?;
        let length = match (text, long) {
            // The null value of RESP 2.
            ("-1", LengthPrefixed::String | LengthPrefixed::Array) => return Ok(self.end(1)),
            _ => text.parse::<u64>().map_err(|_| Failure::Malformed)?,
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
        self.rest = rest.ok_or(Failure::Malformed)?;
        Ok(self.end(u64::from(long != LengthPrefixed::Attributes)))
    }
}
