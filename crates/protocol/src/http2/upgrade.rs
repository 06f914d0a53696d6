//! Start of a connection as HTTP/1.1, which is upgraded to HTTP/2 (`Upgrade: h2c`).

/// Longer heads are not those of an upgrade.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Head of a message of HTTP/1.1.
#[derive(Default)]
pub(super) struct UpgradeHead {
    head: Vec<u8>,
}

/// Result of reading a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadParse {
    /// It is complete, and took so many bytes of the last ones.
    Complete(usize),
    Incomplete,
    TooLong,
}

impl UpgradeHead {
    pub(super) fn read(&mut self, bytes: &[u8]) -> HeadParse {
        let before = self.head.len();
        let free = HEAD_BYTES_MAX - before;
        self.head.extend_from_slice(&bytes[..bytes.len().min(free)]);
        let from = before.saturating_sub(3);
        let end = self.head[from..].windows(4).position(|window| window == b"\r\n\r\n");
        match end {
            Some(end) => HeadParse::Complete(from + end + 4 - before),
            None if bytes.len() > free => HeadParse::TooLong,
            None => HeadParse::Incomplete,
        }
    }

    /// The head, whose end was found.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.head
    }

    /// Method and path of a request.
    pub(super) fn request_line(&self) -> Option<(&[u8], &[u8])> {
        let mut words = self.head.split(|byte| *byte == b' ');
        Some((words.next()?, words.next()?))
    }

    pub(super) fn memory(&self) -> usize {
        self.head.capacity()
    }
}
