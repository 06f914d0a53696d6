//! Texts of the prepared statements of a connection, by identifier.
//!
//! A statement without a known text (prepared before capture started, or beyond the limits) is
//! empty in operations.

use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of statements.
const STATEMENTS_MAX: usize = 512;
/// Maximum size of their texts, in bytes.
const BYTES_MAX: usize = 64 << 10;
/// Bytes of a table entry beside the text.
const ENTRY_BYTES: usize = 48;
/// Identifier of the statement that was prepared last (MariaDB).
const LAST: u32 = u32::MAX;

/// Prepared statements of a connection.
#[derive(Debug, Default)]
pub(super) struct MysqlStatements {
    texts: HashMap<u32, Arc<str>>,
    bytes: usize,
}

impl MysqlStatements {
    pub(super) fn insert(&mut self, id: u32, text: &str) {
        self.close(id);
        if self.texts.len() < STATEMENTS_MAX && self.bytes + text.len() <= BYTES_MAX {
            self.bytes += text.len();
            self.texts.insert(id, Arc::from(text));
        }
    }

    /// The text of a statement. That of [`LAST`] is unknown while its Prepare is in flight.
    pub(super) fn get(&self, id: u32) -> Option<Arc<str>> {
        self.texts.get(&id).filter(|_| id != LAST).cloned()
    }

    pub(super) fn close(&mut self, id: u32) {
        if let Some(text) = self.texts.remove(&id) {
            self.bytes -= text.len();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = MysqlStatements::default();
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes + self.texts.capacity() * ENTRY_BYTES
    }
}
