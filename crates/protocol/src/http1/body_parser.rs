//! Finds the end of a message body; skips its bytes.

use super::head::HEAD_MAX;
use crate::ProtocolViolation;

/// Parser of one body.
#[derive(Debug)]
pub(super) struct BodyParser {
    state: BodyState,
    /// Incomplete line of a chunk or trailer.
    line: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum BodyState {
    /// Bytes of the body still to read.
    Length(u64),
    /// In the line with the length of the next chunk.
    ChunkLength,
    /// Bytes of a chunk and its CRLF still to read.
    Chunk(u64),
    /// In the trailer section, up to an empty line.
    Trailer,
    /// The body ends when the connection closes.
    UntilClosed,
}

impl BodyParser {
    /// A body of `length` bytes.
    pub(super) fn with_length(length: u64) -> BodyParser {
        BodyParser { state: BodyState::Length(length), line: Vec::new() }
    }

    /// A body with chunked transfer encoding.
    pub(super) fn chunked() -> BodyParser {
        BodyParser { state: BodyState::ChunkLength, line: Vec::new() }
    }

    /// A body that ends when the connection closes.
    pub(super) fn until_closed() -> BodyParser {
        BodyParser { state: BodyState::UntilClosed, line: Vec::new() }
    }

    /// Whether the body ends when the connection closes.
    pub(super) fn is_until_closed(&self) -> bool {
        self.state == BodyState::UntilClosed
    }

    /// Consumes bytes up to the end of the body. Returns whether the body is complete.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<bool, ProtocolViolation> {
        loop {
            match self.state {
                BodyState::Length(rest) => {
                    let rest = skip(rest, bytes);
                    self.state = BodyState::Length(rest);
                    return Ok(rest == 0);
                }
                BodyState::Chunk(rest) => match skip(rest, bytes) {
                    0 => self.state = BodyState::ChunkLength,
                    rest => {
                        self.state = BodyState::Chunk(rest);
                        return Ok(false);
                    }
                },
                BodyState::ChunkLength => {
                    let Some(length) = self.read_line(bytes, chunk_length)? else {
                        return Ok(false);
                    };
                    self.state = match length? {
                        0 => BodyState::Trailer,
                        length => BodyState::Chunk(length.checked_add(2).ok_or(ProtocolViolation)?),
                    };
                }
                BodyState::Trailer => match self.read_line(bytes, <[u8]>::is_empty)? {
                    Some(true) => return Ok(true),
                    Some(false) => {}
                    None => return Ok(false),
                },
                BodyState::UntilClosed => {
                    *bytes = &[];
                    return Ok(false);
                }
            }
        }
    }

    /// Skips bytes that are missing. Returns whether the position is still known: they are inside
    /// the body, or inside one chunk, and do not include its last byte.
    pub(super) fn skip(&mut self, missing: u64) -> bool {
        let (rest, end) = match &mut self.state {
            BodyState::Length(rest) => (rest, 1),
            // The CRLF after a chunk.
            BodyState::Chunk(rest) => (rest, 2),
            BodyState::ChunkLength | BodyState::Trailer | BodyState::UntilClosed => return false,
        };
        let is_inside = rest.checked_sub(end).is_some_and(|rest| missing <= rest);
        if is_inside {
            *rest -= missing;
        }
        is_inside
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.line.capacity()
    }

    /// Consumes a line, of earlier and new bytes, and reads it without its line end. `None` if the
    /// line is incomplete.
    fn read_line<T>(
        &mut self,
        bytes: &mut &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, ProtocolViolation> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            *bytes = &[];
            return if self.line.len() > HEAD_MAX { Err(ProtocolViolation) } else { Ok(None) };
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let result = if self.line.is_empty() {
            read(line.strip_suffix(b"\r").unwrap_or(line))
        } else {
            self.line.extend_from_slice(line);
            let result = read(self.line.strip_suffix(b"\r").unwrap_or(&self.line));
            self.line.clear();
            result
        };
        *bytes = rest;
        Ok(Some(result))
    }
}

/// Skips at most `rest` bytes. Returns how many are left to skip.
fn skip(rest: u64, bytes: &mut &[u8]) -> u64 {
    let length = rest.min(bytes.len() as u64);
    *bytes = &bytes[length as usize..];
    rest - length
}

fn chunk_length(line: &[u8]) -> Result<u64, ProtocolViolation> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = std::str::from_utf8(digits).map_err(|_| ProtocolViolation)?;
    u64::from_str_radix(digits.trim(), 16).map_err(|_| ProtocolViolation)
}
