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
                    let Some(line) = self.line(bytes)? else { return Ok(false) };
                    self.state = match chunk_length(&line)? {
                        0 => BodyState::Trailer,
                        length => BodyState::Chunk(length.checked_add(2).ok_or(ProtocolViolation)?),
                    };
                }
                BodyState::Trailer => {
                    let Some(line) = self.line(bytes)? else { return Ok(false) };
                    if line.is_empty() {
                        return Ok(true);
                    }
                }
                BodyState::UntilClosed => {
                    *bytes = &[];
                    return Ok(false);
                }
            }
        }
    }

    /// Removes a line, without its line end, from earlier and new bytes. `None` if the line is
    /// incomplete.
    fn line(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, ProtocolViolation> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            *bytes = &[];
            return if self.line.len() > HEAD_MAX { Err(ProtocolViolation) } else { Ok(None) };
        };
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(&bytes[..end]);
        *bytes = &bytes[end + 1..];
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
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
