//! Texts of requests in flight, whose allocations are reused.

use crate::observer::STATEMENT_BYTES_MAX;

/// Texts that are retained for reuse, at most.
const FREE_MAX: usize = 16;

/// Source of the texts of a connection's requests, with a limit on the bytes of all of them.
#[derive(Default)]
pub(crate) struct TextPool {
    free: Vec<String>,
    used_bytes: usize,
}

impl TextPool {
    /// Maximum size of all texts of a connection, in bytes. A text that exceeds it is cut.
    pub(crate) const BYTES_MAX: usize = 256 << 10;

    /// An empty text.
    pub(crate) fn take(&mut self) -> String {
        self.free.pop().unwrap_or_default()
    }

    /// Appends to a text of this pool as much as the limits allow. Returns whether that is all.
    pub(crate) fn push(&mut self, text: &mut String, addition: &str) -> bool {
        let capacity = (TextPool::BYTES_MAX - self.used_bytes)
            .min(STATEMENT_BYTES_MAX.saturating_sub(text.len()));
        let end = addition.floor_char_boundary(capacity);
        text.push_str(&addition[..end]);
        self.used_bytes += end;
        end == addition.len()
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
