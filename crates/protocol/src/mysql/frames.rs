//! Packets of one direction: with their times, the start of their payload, and a position that
//! survives a gap inside a payload that nobody reads.

use crate::observer::PacketTime;

/// Length and sequence number.
const HEAD: usize = 4;
/// Length of a packet that the next one continues.
const CONTINUED: u32 = 0xff_ffff;
/// Maximum length of a greeting, far above real ones.
const GREETING_MAX: u32 = 1 << 10;
/// Capacity that is kept for the next incomplete packet.
const IDLE_BYTES_MAX: usize = 1 << 10;

/// Parser of one direction of an observed connection.
#[derive(Debug)]
pub(super) struct MysqlFrames {
    /// Bytes of a payload that are retained.
    retained: usize,
    head: [u8; HEAD],
    /// `received`: bytes of the head received; `rest`: bytes of the payload still to read.
    received: usize,
    rest: u32,
    payload: Vec<u8>,
    start: PacketTime,
    /// Whether the next packet continues the last one.
    is_continued: bool,
}

/// A complete packet.
#[derive(Debug)]
pub(super) struct MysqlFrame<'a> {
    pub(super) sequence: u8,
    /// Time of the first byte.
    pub(super) start: PacketTime,
    /// Size with its head.
    pub(super) size: u64,
    /// Length of the payload.
    pub(super) length: usize,
    /// The retained start of the payload.
    pub(super) payload: &'a [u8],
    /// Whether it continues the packet before.
    pub(super) is_continuation: bool,
    /// Whether the next packet continues it.
    pub(super) is_continued: bool,
}

impl MysqlFrames {
    pub(super) fn new(retained: usize) -> MysqlFrames {
        MysqlFrames {
            retained,
            head: [0; HEAD],
            received: 0,
            rest: 0,
            payload: Vec::new(),
            start: 0,
            is_continued: false,
        }
    }

    /// Continues at the start of a packet.
    pub(super) fn reset(&mut self) {
        (self.received, self.is_continued) = (0, false);
    }

    pub(super) fn is_between(&self) -> bool {
        self.received == 0 && !self.is_continued
    }

    /// Whether the incomplete packet cannot be a greeting, the first packet of a server.
    pub(super) fn is_no_greeting(&self) -> bool {
        self.received == HEAD && (self.head[3] != 0 || packet_length(self.head) > GREETING_MAX)
    }

    pub(super) fn memory(&self) -> usize {
        self.payload.capacity()
    }

    /// Consumes bytes up to the end of a packet; `None` if it is incomplete.
    pub(super) fn read<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
        time: PacketTime,
    ) -> Option<MysqlFrame<'a>> {
        if self.received == 0 {
            if let Some((head, rest)) = bytes.split_first_chunk::<HEAD>()
                && let Some(payload) = rest.get(..packet_length(*head) as usize)
            {
                *bytes = &rest[payload.len()..];
                let retained = &payload[..payload.len().min(self.retained)];
                return Some(frame(*head, time, retained, &mut self.is_continued));
            }
            if bytes.is_empty() {
                return None;
            }
            self.start = time;
            self.payload.clear();
            self.payload.shrink_to(IDLE_BYTES_MAX);
        }
        if self.received < HEAD {
            let byte_count = (HEAD - self.received).min(bytes.len());
            self.head[self.received..self.received + byte_count]
                .copy_from_slice(&bytes[..byte_count]);
            self.received += byte_count;
            *bytes = &bytes[byte_count..];
            if self.received < HEAD {
                return None;
            }
            self.rest = packet_length(self.head);
        }
        let byte_count = bytes.len().min(self.rest as usize);
        let space = self.retained.saturating_sub(self.payload.len());
        self.payload.extend_from_slice(&bytes[..byte_count.min(space)]);
        *bytes = &bytes[byte_count..];
        self.rest -= byte_count as u32;
        if self.rest > 0 {
            return None;
        }
        self.received = 0;
        Some(frame(self.head, self.start, &self.payload, &mut self.is_continued))
    }

    /// Skips bytes that are missing. Returns whether the position is still known: they are inside a
    /// payload, after its retained start, and do not include its last byte.
    pub(super) fn skip(&mut self, missing: u64) -> bool {
        let is_inside = self.received == HEAD
            && self.payload.len() == self.retained
            && missing < u64::from(self.rest);
        if is_inside {
            self.rest -= missing as u32;
        }
        is_inside
    }
}

fn frame<'a>(
    head: [u8; HEAD],
    start: PacketTime,
    payload: &'a [u8],
    is_continued: &mut bool,
) -> MysqlFrame<'a> {
    let length = packet_length(head);
    let is_continuation = std::mem::replace(is_continued, length == CONTINUED);
    MysqlFrame {
        sequence: head[3],
        start,
        size: HEAD as u64 + u64::from(length),
        length: length as usize,
        payload,
        is_continuation,
        is_continued: *is_continued,
    }
}

fn packet_length([low, middle, high, _]: [u8; HEAD]) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}
