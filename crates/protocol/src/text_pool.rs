//! Texts of requests in flight, whose allocations are reused.

use crate::observer::STATEMENT_BYTES_MAX;

/// Texts that are retained for reuse, at most.
const FREE_MAX: usize = 16;

/// Source of the texts of a connection's requests, with a limit on the bytes of all of them.
#[derive(Default)]
pub(crate) struct TextPool {
    free: Vec<String>,
    used_bytes: usize,
    /// Whether the text that was taken last may grow.
    is_open: bool,
}

impl TextPool {
    /// Maximum size of all texts of a connection, in bytes. A text that might exceed it stays
    /// empty: a part of a statement would be another statement.
    const BYTES_MAX: usize = 128 << 10;

    /// An empty text. Only the text that was taken last may be changed.
    pub(crate) fn take(&mut self) -> String {
        self.is_open = self.used_bytes + STATEMENT_BYTES_MAX <= TextPool::BYTES_MAX;
        self.free.pop().unwrap_or_default()
    }

    /// Appends to the text that was taken last as much as the limits allow.
    pub(crate) fn push(&mut self, text: &mut String, addition: &str) {
        if self.is_open {
            let free = STATEMENT_BYTES_MAX.saturating_sub(text.len());
            let end = addition.floor_char_boundary(free);
            if self.used_bytes + end <= TextPool::BYTES_MAX {
                text.push_str(&addition[..end]);
                self.used_bytes += end;
            }
        }
    }

    /// Empties a text of this pool.
    pub(crate) fn clear(&mut self, text: &mut String) {
        self.used_bytes -= text.len();
        text.clear();
    }

    /// Ends the use of a text.
    pub(crate) fn put_back(&mut self, mut text: String) {
        self.clear(&mut text);
        // A text of unusual size does not stay allocated.
        if self.free.len() < FREE_MAX && (1..=4096).contains(&text.capacity()) {
            self.free.push(text);
        }
    }

    /// Bytes on the heap of the texts that are free.
    pub(crate) fn memory(&self) -> usize {
        self.free.iter().map(String::capacity).sum::<usize>()
            + self.free.capacity() * size_of::<String>()
    }
}
