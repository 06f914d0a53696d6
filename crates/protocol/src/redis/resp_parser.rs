//! Messages of one direction as an observer needs them: commands with their first arguments,
//! replies with their kind, size and error.
//!
//! As in [`super::ReplyParser`], one counter of outstanding elements replaces a stack.

use super::captured_arguments::{CapturedArguments, CapturedText};
use crate::ProtocolViolation;
use crate::observer::{FlowDirection, PacketTime};

/// Maximum number of digits of a length.
const DIGITS_MAX: usize = 20;
/// Maximum size of an inline command, as in Redis.
const INLINE_MAX: u64 = 64 << 10;

/// Parser of one direction of an observed connection.
#[derive(Debug)]
pub(super) struct RespParser {
    direction: FlowDirection,
    state: RespState,
    /// Outstanding elements of this message, including the current one.
    rest: u64,
    digits: [u8; DIGITS_MAX],
    digit_count: usize,
    message: RespMessage,
    /// First strings of the message.
    arguments: CapturedArguments,
}

/// A complete message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RespMessage {
    /// Time of the first byte.
    pub(super) start: PacketTime,
    pub(super) size: u64,
    /// First character of a reply, without attributes; 0 before it.
    pub(super) mark: u8,
    /// Elements, or pairs of them, of an aggregate.
    pub(super) elements: Option<u64>,
    /// First line of the first error, or of a simple string.
    pub(super) line: CapturedText<24>,
    pub(super) is_error: bool,
    /// The last number of a reply.
    pub(super) number: CapturedText<24>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RespState {
    /// At the start of an element.
    Mark,
    /// In a line, which is captured as `line` or `number`.
    Line { is_number: bool, is_captured: bool },
    /// In the line with a length, of an element with this mark.
    Length(u8),
    /// Bytes of a string still to read. The string is captured as an argument, or as an error.
    Bytes { rest: u64, is_error: bool },
    /// In the CRLF after a string.
    End,
    /// In a command without RESP: arguments with spaces between them.
    Inline,
}

impl RespParser {
    pub(super) fn new(direction: FlowDirection) -> RespParser {
        RespParser {
            direction,
            state: RespState::Mark,
            rest: 0,
            digits: [0; DIGITS_MAX],
            digit_count: 0,
            message: RespMessage::default(),
            arguments: CapturedArguments::default(),
        }
    }

    /// Continues at the start of a message.
    pub(super) fn reset(&mut self) {
        *self = RespParser::new(self.direction);
    }

    pub(super) fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// First strings of the message that was just returned.
    pub(super) fn arguments(&self) -> &CapturedArguments {
        &self.arguments
    }

    /// Consumes bytes up to the end of a message; `None` if it is incomplete.
    pub(super) fn read(
        &mut self,
        bytes: &mut &[u8],
        time: PacketTime,
    ) -> Result<Option<RespMessage>, ProtocolViolation> {
        while let Some(&first) = bytes.first() {
            if self.rest == 0 {
                self.start(first, time)?;
            }
            let before = bytes.len();
            let is_end = self.read_part(first, bytes)?;
            self.message.size += (before - bytes.len()) as u64;
            if self.state == RespState::Inline && self.message.size > INLINE_MAX {
                return Err(ProtocolViolation);
            }
            if is_end {
                self.state = RespState::Mark;
                return Ok(Some(self.message));
            }
        }
        Ok(None)
    }

    /// Skips bytes that are missing. Returns whether the position is still known: they are inside a
    /// string whose captured start is complete.
    pub(super) fn skip(&mut self, missing: u64) -> bool {
        match &mut self.state {
            RespState::Bytes { rest, is_error: false }
                if self.arguments.is_full() && missing <= *rest =>
            {
                *rest -= missing;
                self.message.size += missing;
                if *rest == 0 {
                    self.state = RespState::End;
                }
                true
            }
            _ => false,
        }
    }

    fn start(&mut self, first: u8, time: PacketTime) -> Result<(), ProtocolViolation> {
        self.rest = 1;
        self.message = RespMessage { start: time, ..RespMessage::default() };
        self.arguments.clear();
        self.state = RespState::Mark;
        if self.direction == FlowDirection::ToServer && first != b'*' {
            if !first.is_ascii_graphic() && !matches!(first, b' ' | b'\r' | b'\n') {
                return Err(ProtocolViolation);
            }
            self.state = RespState::Inline;
        }
        Ok(())
    }

    /// Reads a part of an element. Returns whether the message is complete.
    fn read_part(&mut self, first: u8, bytes: &mut &[u8]) -> Result<bool, ProtocolViolation> {
        match self.state {
            RespState::Mark => {
                *bytes = &bytes[1..];
                self.mark(first)?;
                Ok(false)
            }
            RespState::Line { is_number, is_captured } => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                *bytes = rest;
                if is_number {
                    self.message.number.extend(part);
                } else if is_captured {
                    self.message.line.extend(part);
                }
                Ok(end.is_some() && self.end_elements(1))
            }
            RespState::Length(mark) => {
                *bytes = &bytes[1..];
                match first {
                    b'\r' => Ok(false),
                    b'\n' => self.length(mark),
                    b'0'..=b'9' | b'-' if self.digit_count < DIGITS_MAX => {
                        self.digits[self.digit_count] = first;
                        self.digit_count += 1;
                        Ok(false)
                    }
                    _ => Err(ProtocolViolation),
                }
            }
            RespState::Bytes { rest, is_error } => {
                let (part, after) = bytes.split_at((bytes.len() as u64).min(rest) as usize);
                *bytes = after;
                if is_error {
                    self.message.line.extend(part);
                } else {
                    self.arguments.extend(part);
                }
                let rest = rest - part.len() as u64;
                self.state = match rest {
                    0 => RespState::End,
                    _ => RespState::Bytes { rest, is_error },
                };
                Ok(false)
            }
            RespState::End => {
                *bytes = &bytes[1..];
                match first {
                    b'\r' => Ok(false),
                    b'\n' => Ok(self.end_elements(1)),
                    _ => Err(ProtocolViolation),
                }
            }
            RespState::Inline => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                *bytes = rest;
                self.arguments.extend_inline(part);
                self.rest -= u64::from(end.is_some());
                Ok(end.is_some())
            }
        }
    }

    fn mark(&mut self, mark: u8) -> Result<(), ProtocolViolation> {
        let is_command = self.direction == FlowDirection::ToServer;
        let is_top = self.message.mark == 0 && self.rest == 1;
        if is_command && mark != if is_top { b'*' } else { b'$' } {
            return Err(ProtocolViolation);
        }
        if is_top && mark != b'|' {
            self.message.mark = mark;
        }
        let is_first_error = matches!(mark, b'-' | b'!') && !self.message.is_error;
        if is_first_error {
            self.message.is_error = true;
            self.message.line = CapturedText::default();
        }
        self.digit_count = 0;
        self.state = match mark {
            b'-' => RespState::Line { is_number: false, is_captured: is_first_error },
            b'+' => RespState::Line { is_number: false, is_captured: is_top },
            b':' => {
                self.message.number = CapturedText::default();
                RespState::Line { is_number: true, is_captured: false }
            }
            b',' | b'(' | b'#' | b'_' => RespState::Line { is_number: false, is_captured: false },
            b'$' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => RespState::Length(mark),
            b'!' => RespState::Length(mark),
            _ => return Err(ProtocolViolation),
        };
        Ok(())
    }

    /// Completes elements. Returns whether the message is complete.
    fn end_elements(&mut self, count: u64) -> bool {
        self.state = RespState::Mark;
        self.rest -= count;
        self.rest == 0
    }

    fn length(&mut self, mark: u8) -> Result<bool, ProtocolViolation> {
        let is_top = self.rest == 1 && self.message.mark == mark && self.message.elements.is_none();
        let length = match &self.digits[..self.digit_count] {
            // The null value of RESP 2.
            b"-1" if matches!(mark, b'$' | b'*') => return Ok(self.end_elements(1)),
            digits => std::str::from_utf8(digits).map_err(|_| ProtocolViolation)?,
        };
        let length: u64 = length.parse().map_err(|_| ProtocolViolation)?;
        let more = match mark {
            b'$' | b'=' | b'!' => {
                let is_error = mark == b'!';
                if !is_error {
                    self.arguments.start_argument();
                }
                self.state = match length {
                    0 => RespState::End,
                    rest => RespState::Bytes { rest, is_error },
                };
                return Ok(false);
            }
            b'%' | b'|' => length.checked_mul(2),
            _ => Some(length),
        };
        if is_top && mark != b'|' {
            self.message.elements = Some(length);
        }
        let rest = more.and_then(|more| self.rest.checked_add(more));
        self.rest = rest.ok_or(ProtocolViolation)?;
        Ok(self.end_elements(u64::from(mark != b'|')))
    }
}
