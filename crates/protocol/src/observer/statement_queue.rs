//! Texts of requests in flight, in one buffer: a request costs no allocation.
//!
//! Requests of most protocols are answered in their order, so texts are released in the order in
//! which they were added.

use std::borrow::Cow;

use super::STATEMENT_BYTES_MAX;

/// Maximum size of all texts, in bytes. A request whose text does not fit is not measured.
const QUEUE_BYTES_MAX: usize = 128 << 10;
/// Capacity that is kept while the queue is empty.
const IDLE_BYTES_MAX: usize = 4 << 10;

/// Texts of requests in flight.
#[derive(Debug, Default)]
pub(crate) struct StatementQueue {
    text: String,
    /// Position of the first byte of `text` since the start.
    base: u64,
    /// Position before which no text is needed.
    released: u64,
}

/// A text in a [`StatementQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatementRef {
    start: u64,
    length: u32,
}

impl StatementQueue {
    /// Adds a text, cut at [`STATEMENT_BYTES_MAX`]; bytes that are not UTF-8 are replaced. `None`
    /// if the queue is full.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<StatementRef> {
        let text = lossy_text(bytes);
        if self.text.len() + text.len() > QUEUE_BYTES_MAX {
            self.text.drain(..(self.released - self.base) as usize);
            self.base = self.released;
            if self.text.len() + text.len() > QUEUE_BYTES_MAX {
                return None;
            }
        }
        let start = self.base + self.text.len() as u64;
        self.text.push_str(&text);
        Some(StatementRef { start, length: text.len() as u32 })
    }

    /// A text that was not released.
    pub(crate) fn get(&self, statement: StatementRef) -> &str {
        let start = statement.start.saturating_sub(self.base) as usize;
        self.text.get(start..start + statement.length as usize).unwrap_or("")
    }

    /// Releases this text and all before it.
    pub(crate) fn release(&mut self, statement: StatementRef) {
        self.released = self.released.max(statement.start + u64::from(statement.length));
        if self.released == self.base + self.text.len() as u64 {
            self.clear();
        }
    }

    /// Releases all texts.
    pub(crate) fn clear(&mut self) {
        self.base += self.text.len() as u64;
        self.released = self.base;
        self.text.clear();
        if self.text.capacity() > IDLE_BYTES_MAX {
            self.text.shrink_to(IDLE_BYTES_MAX);
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity()
    }
}

impl StatementRef {
    /// The text without its first bytes.
    pub(crate) fn without_start(self, bytes: usize) -> StatementRef {
        let bytes = bytes.min(self.length as usize);
        StatementRef { start: self.start + bytes as u64, length: self.length - bytes as u32 }
    }
}

/// The text of bytes, cut at the boundary of a character.
pub(crate) fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = cut(bytes);
    // The replacement reads byte by byte; almost no text needs it.
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::from_utf8_lossy(bytes);
    // Replacement characters are longer than what they replace.
    if text.len() > STATEMENT_BYTES_MAX {
        let end = text.floor_char_boundary(STATEMENT_BYTES_MAX);
        text.to_mut().truncate(end);
    }
    text
}

/// At most [`STATEMENT_BYTES_MAX`] bytes; a character of UTF-8 is not divided.
fn cut(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= STATEMENT_BYTES_MAX {
        return bytes;
    }
    let is_inside = |at: &usize| bytes[*at] & 0xc0 == 0x80;
    let boundary = (STATEMENT_BYTES_MAX - 3..=STATEMENT_BYTES_MAX).rev().find(|at| !is_inside(at));
    &bytes[..boundary.unwrap_or(STATEMENT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_until_they_are_released() {
        let mut queue = StatementQueue::default();
        let [a, b, c] = ["abc", "", "d\u{e9}"].map(|text| queue.push(text.as_bytes()).unwrap());
        assert_eq!([a, b, c].map(|text| queue.get(text)), ["abc", "", "d\u{e9}"]);
        queue.release(a);
        assert_eq!([b, c].map(|text| queue.get(text)), ["", "d\u{e9}"]);
        assert_eq!(queue.get(c.without_start(1)), "\u{e9}");
        queue.release(c);
        assert_eq!(queue.text, "");
        assert_eq!(queue.push(b"x").map(|text| queue.get(text).to_owned()).unwrap(), "x");
    }

    #[test]
    fn a_full_queue_rejects_texts_until_some_are_released() {
        let mut queue = StatementQueue::default();
        let text = [b'a'; STATEMENT_BYTES_MAX + 1];
        let texts: Vec<_> = std::iter::from_fn(|| queue.push(&text)).collect();
        assert_eq!(texts.len(), QUEUE_BYTES_MAX / STATEMENT_BYTES_MAX);
        queue.release(texts[0]);
        let last = queue.push(b"last").unwrap();
        assert_eq!(queue.get(last), "last");
        assert_eq!(queue.get(texts[1]).len(), STATEMENT_BYTES_MAX);
        assert!(queue.memory() <= 2 * QUEUE_BYTES_MAX);
        queue.clear();
        assert!(queue.memory() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let max = STATEMENT_BYTES_MAX;
        let text = ["a".repeat(max - 1), "\u{20ac}".to_owned()].concat();
        assert_eq!(lossy_text(text.as_bytes()), "a".repeat(max - 1));
        let text = ["a".repeat(max - 3), "\u{20ac}b".to_owned()].concat();
        assert_eq!(lossy_text(text.as_bytes()), text[..max]);
        assert!(lossy_text(&[0xff; STATEMENT_BYTES_MAX]).len() <= max);
        assert_eq!(lossy_text(b"a\xffb"), "a\u{fffd}b");
    }
}
