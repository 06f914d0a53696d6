//! The first messages of a client, which have no type: requests of encryption, of cancellation, and
//! the startup message. They consist of a length, which includes itself, and a code.

use crate::observer::PacketTime;

/// Length and code.
const HEAD: usize = 8;
/// Maximum length that the server accepts.
const LENGTH_MAX: u32 = 10_000;

/// Parser of a message without type.
#[derive(Debug, Default)]
pub(super) struct StartupParser {
    head: [u8; HEAD],
    received: usize,
    rest: u32,
    start: PacketTime,
}

/// A complete message without type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartupMessage {
    TlsRequest,
    GssRequest,
    /// A connection that only cancels a request of another one.
    CancelRequest,
    /// Protocol 3.0 or 3.2.
    Startup {
        start: PacketTime,
        size: u64,
    },
    /// Another protocol.
    Other,
}

impl StartupParser {
    /// Consumes bytes up to the end of a message; `None` if it is incomplete.
    pub(super) fn read(&mut self, bytes: &mut &[u8], time: PacketTime) -> Option<StartupMessage> {
        if self.received == 0 && !bytes.is_empty() {
            self.start = time;
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
            self.rest = self.length().checked_sub(HEAD as u32).unwrap_or(u32::MAX);
            if self.rest > LENGTH_MAX {
                return Some(StartupMessage::Other);
            }
        }
        let byte_count = bytes.len().min(self.rest as usize);
        *bytes = &bytes[byte_count..];
        self.rest -= byte_count as u32;
        if self.rest > 0 {
            return None;
        }
        self.received = 0;
        let code = u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]]);
        Some(match code {
            80_877_102 => StartupMessage::CancelRequest,
            80_877_103 => StartupMessage::TlsRequest,
            80_877_104 => StartupMessage::GssRequest,
            _ if code >> 16 == 3 => {
                StartupMessage::Startup { start: self.start, size: u64::from(self.length()) }
            }
            _ => StartupMessage::Other,
        })
    }

    /// Whether the next byte starts a message.
    pub(super) fn is_between(&self) -> bool {
        self.received == 0
    }

    fn length(&self) -> u32 {
        u32::from_be_bytes([self.head[0], self.head[1], self.head[2], self.head[3]])
    }
}
