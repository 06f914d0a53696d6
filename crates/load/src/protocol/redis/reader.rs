//! Where a reply of Redis ends: elements are counted, not kept.
//!
//! A reply is one element; an array of n elements stands for n more, a map for twice as many. So one number says how much is still to
//! come, and no depth needs a stack. Strings of RESP 3 that come in pieces of unknown length (`$?`) are sent by no server and refused.

use crate::failure::Failure;

/// Longer numbers are no lengths.
const DIGITS_MAX: usize = 20;

/// Reads replies.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: State,
    /// How many elements of this reply are still to come, with the one that is being read.
    rest: u64,
    reply: Reply,
    /// What came of a length.
    digits: Vec<u8>,
}

/// A reply that has come to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// An error is in it.
    pub(super) is_error: bool,
    /// Nobody asked for it.
    pub(super) is_push: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before an element.
    #[default]
    Mark,
    /// In a line whose contents do not matter.
    Line,
    /// In the line that says how long this is.
    Length(Long),
    /// In a string of which so much is still to come.
    Bytes(u64),
    /// Before the end of the line that a string ends with.
    Return,
    /// Before the second byte of that end.
    Feed(Then),
}

/// What has a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    /// In bytes.
    String,
    /// In elements.
    Array,
    /// In pairs of elements.
    Map,
    /// In pairs of elements that are said about the one that follows.
    Attributes,
}

/// What follows the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    End,
    Length(Long),
}

impl Reader {
    /// Whether the next byte is the first of a reply.
    pub(super) fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// Takes bytes up to the end of a reply; `None` if it is not whole.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Reply>, Failure> {
        while let Some((&first, after)) = bytes.split_first() {
            let is_end = match self.state {
                State::Mark => {
                    *bytes = after;
                    self.mark(first)?;
                    false
                }
                State::Line => {
                    let end = bytes.iter().position(|byte| *byte == b'\r');
                    *bytes = end.map_or(&[], |end| &bytes[end + 1..]);
                    if end.is_some() {
                        self.state = State::Feed(Then::End);
                    }
                    false
                }
                State::Length(long) => {
                    *bytes = after;
                    match first {
                        b'\r' => self.state = State::Feed(Then::Length(long)),
                        b'0'..=b'9' | b'-' if self.digits.len() < DIGITS_MAX => {
                            self.digits.push(first);
                        }
                        _ => return Err(Failure::Malformed),
                    }
                    false
                }
                State::Bytes(rest) => {
                    let taken = rest.min(bytes.len() as u64);
                    *bytes = &bytes[taken as usize..];
                    let left = rest - taken;
                    self.state = if left == 0 { State::Return } else { State::Bytes(left) };
                    false
                }
                State::Return if first == b'\r' => {
                    *bytes = after;
                    self.state = State::Feed(Then::End);
                    false
                }
                State::Feed(then) if first == b'\n' => {
                    *bytes = after;
                    match then {
                        Then::End => self.end(1),
                        Then::Length(long) => self.length(long)?,
                    }
                }
                State::Return | State::Feed(_) => return Err(Failure::Malformed),
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
            self.reply = Reply { is_error: false, is_push: mark == b'>' };
        }
        self.reply.is_error |= matches!(mark, b'-' | b'!');
        self.digits.clear();
        self.state = match mark {
            b'+' | b'-' | b':' | b',' | b'(' | b'#' | b'_' => State::Line,
            b'$' | b'=' | b'!' => State::Length(Long::String),
            b'*' | b'~' | b'>' => State::Length(Long::Array),
            b'%' => State::Length(Long::Map),
            b'|' => State::Length(Long::Attributes),
            _ => return Err(Failure::Malformed),
        };
        Ok(())
    }

    /// So many elements have come to their end. Whether the reply has.
    fn end(&mut self, count: u64) -> bool {
        self.state = State::Mark;
        self.rest -= count;
        self.rest == 0
    }

    fn length(&mut self, long: Long) -> Result<bool, Failure> {
        let text = std::str::from_utf8(&self.digits).map_err(|_| Failure::Malformed)?;
        let length = match (text, long) {
            // Nothing, as RESP 2 says it.
            ("-1", Long::String | Long::Array) => return Ok(self.end(1)),
            _ => text.parse::<u64>().map_err(|_| Failure::Malformed)?,
        };
        let more = match long {
            Long::String => {
                self.state = if length == 0 { State::Return } else { State::Bytes(length) };
                return Ok(false);
            }
            Long::Array => Some(length),
            Long::Map | Long::Attributes => length.checked_mul(2),
        };
        let rest = more.and_then(|more| self.rest.checked_add(more));
        self.rest = rest.ok_or(Failure::Malformed)?;
        Ok(self.end(u64::from(long != Long::Attributes)))
    }
}
