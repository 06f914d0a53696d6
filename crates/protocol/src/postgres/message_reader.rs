//! Messages of one direction as an observer needs them: with their times, the start of those bodies
//! that it reads, and a position that survives a gap inside a body that nobody reads.

use super::HEAD;
use crate::ProtocolViolation;
use crate::observer::PacketTime;

/// Maximum length of a message: PostgreSQL accepts less than 1 GiB.
const LENGTH_MAX: u32 = 1 << 30;
/// Capacity that is kept for the next incomplete message.
const IDLE_BYTES_MAX: usize = 1 << 10;

/// Parser of one direction of an observed connection.
#[derive(Debug)]
pub(super) struct PostgresMessageReader {
    /// Types of this direction, and the number of bytes of their body that are retained.
    retained: fn(kind: u8) -> Option<usize>,
    head: [u8; HEAD],
    /// `received`: bytes of the head received; `rest`: bytes of the body still to read.
    received: usize,
    rest: u32,
    body: Vec<u8>,
    start: PacketTime,
}

/// A complete message.
#[derive(Debug)]
pub(super) struct PostgresMessage<'a> {
    pub(super) kind: u8,
    /// Time of the first byte.
    pub(super) start: PacketTime,
    /// Size with its head.
    pub(super) size: u64,
    /// The retained start of the body.
    pub(super) body: &'a [u8],
}

impl PostgresMessageReader {
    pub(super) fn new(retained: fn(kind: u8) -> Option<usize>) -> PostgresMessageReader {
        PostgresMessageReader {
            retained,
            head: [0; HEAD],
            received: 0,
            rest: 0,
            body: Vec::new(),
            start: 0,
        }
    }

    /// Continues at the start of a message.
    pub(super) fn reset(&mut self) {
        self.received = 0;
    }

    pub(super) fn is_between(&self) -> bool {
        self.received == 0
    }

    pub(super) fn memory(&self) -> usize {
        self.body.capacity()
    }

    /// Consumes bytes up to the end of a message; `None` if it is incomplete.
    pub(super) fn read<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
        time: PacketTime,
    ) -> Result<Option<PostgresMessage<'a>>, ProtocolViolation> {
        if self.received == 0 {
            if let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
                let (retained, length) = self.parse_head(*head)?;
                if let Some(body) = rest.get(..length as usize) {
                    *bytes = &rest[body.len()..];
                    let size = (HEAD + body.len()) as u64;
                    let body = &body[..body.len().min(retained)];
                    return Ok(Some(PostgresMessage { kind: head[0], start: time, size, body }));
                }
            } else if bytes.is_empty() {
                return Ok(None);
            }
            self.start = time;
            self.body.clear();
            self.body.shrink_to(IDLE_BYTES_MAX);
        }
        if self.received < HEAD {
            let byte_count = (HEAD - self.received).min(bytes.len());
            self.head[self.received..self.received + byte_count]
                .copy_from_slice(&bytes[..byte_count]);
            self.received += byte_count;
            *bytes = &bytes[byte_count..];
            if self.received < HEAD {
                return Ok(None);
            }
            self.rest = self.parse_head(self.head)?.1;
        }
        let (retained, length) = self.parse_head(self.head)?;
        let byte_count = bytes.len().min(self.rest as usize);
        let space = retained.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..byte_count.min(space)]);
        *bytes = &bytes[byte_count..];
        self.rest -= byte_count as u32;
        if self.rest > 0 {
            return Ok(None);
        }
        self.received = 0;
        let size = HEAD as u64 + u64::from(length);
        Ok(Some(PostgresMessage { kind: self.head[0], start: self.start, size, body: &self.body }))
    }

    /// Skips bytes that are missing. Returns whether the position is still known: they are inside a
    /// body, after its retained start, and do not include its last byte.
    pub(super) fn skip(&mut self, missing: u64) -> bool {
        let Ok((retained, _)) = self.parse_head(self.head) else { return false };
        let is_inside =
            self.received == HEAD && self.body.len() == retained && missing < u64::from(self.rest);
        if is_inside {
            self.rest -= missing as u32;
        }
        is_inside
    }

    /// Whether this packet consists of messages of this direction; the last may be incomplete.
    pub(super) fn can_start(&self, mut packet: &[u8]) -> bool {
        if packet.len() < HEAD {
            return false;
        }
        while let Some((head, rest)) = packet.split_first_chunk::<HEAD>() {
            let Ok((_, length)) = self.parse_head(*head) else { return false };
            packet = rest.get(length as usize..).unwrap_or_default();
        }
        packet.first().is_none_or(|kind| (self.retained)(*kind).is_some())
    }

    /// The number of bytes of the body that are retained, and its length.
    fn parse_head(&self, head: [u8; HEAD]) -> Result<(usize, u32), ProtocolViolation> {
        let [kind, length @ ..] = head;
        let retained = (self.retained)(kind).ok_or(ProtocolViolation)?;
        let length = u32::from_be_bytes(length).checked_sub(4).ok_or(ProtocolViolation)?;
        if length > LENGTH_MAX { Err(ProtocolViolation) } else { Ok((retained, length)) }
    }
}
