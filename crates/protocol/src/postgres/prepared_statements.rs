//! Texts of the prepared statements and portals of a connection, by name.
//!
//! A statement without a known text (prepared before capture started, or beyond the limits) is
//! empty in operations.

use std::collections::HashMap;
use std::sync::Arc;

use crate::observer::statement_queue::lossy_text;

/// Maximum number of named statements, and of named portals.
const NAMES_MAX: usize = 512;
/// Maximum size of their names and texts, in bytes.
const BYTES_MAX: usize = 64 << 10;
/// Bytes of a table entry beside name and text.
const ENTRY_BYTES: usize = 96;

/// Statements and portals of a connection.
#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    statements: HashMap<Vec<u8>, Arc<str>>,
    portals: HashMap<Vec<u8>, Arc<str>>,
    /// Size of the names and texts of both.
    bytes: usize,
    /// Text of the unnamed statement.
    unnamed: Vec<u8>,
    /// What the unnamed portal executes.
    bound: BoundStatement,
}

/// Statement of a portal.
#[derive(Clone, Debug, Default)]
pub(super) enum BoundStatement {
    #[default]
    Unknown,
    /// The unnamed statement.
    Unnamed,
    Named(Arc<str>),
}

impl PreparedStatements {
    /// Handles a Parse message: name and text.
    pub(super) fn parse(&mut self, name: &[u8], text: &[u8]) {
        if !name.is_empty() {
            if self.statements.contains_key(name) {
                // Either the server rejects it, or SQL has deallocated the name.
                return self.close_statement(name);
            }
            return insert(&mut self.statements, &mut self.bytes, name, || {
                Arc::from(&*lossy_text(text))
            });
        }
        if matches!(self.bound, BoundStatement::Unnamed) {
            self.bound = BoundStatement::Unknown;
        }
        self.unnamed.clear();
        self.unnamed.extend_from_slice(text);
    }

    /// Handles a Bind message: names of portal and statement.
    pub(super) fn bind(&mut self, portal: &[u8], statement: &[u8]) {
        let bound = match self.statements.get(statement) {
            _ if statement.is_empty() => BoundStatement::Unnamed,
            Some(text) => BoundStatement::Named(text.clone()),
            None => BoundStatement::Unknown,
        };
        if portal.is_empty() {
            self.bound = bound;
            return;
        }
        match bound {
            BoundStatement::Unknown => self.close_portal(portal),
            BoundStatement::Named(text) => {
                insert(&mut self.portals, &mut self.bytes, portal, || text);
            }
            BoundStatement::Unnamed => {
                let text = &self.unnamed;
                insert(&mut self.portals, &mut self.bytes, portal, || {
                    Arc::from(&*lossy_text(text))
                });
            }
        }
    }

    /// The statement of a portal.
    pub(super) fn bound(&self, portal: &[u8]) -> BoundStatement {
        if portal.is_empty() {
            return self.bound.clone();
        }
        match self.portals.get(portal) {
            Some(text) => BoundStatement::Named(text.clone()),
            None => BoundStatement::Unknown,
        }
    }

    /// Text of the unnamed statement.
    pub(super) fn unnamed(&self) -> &[u8] {
        &self.unnamed
    }

    pub(super) fn close_statement(&mut self, name: &[u8]) {
        remove(&mut self.statements, &mut self.bytes, name);
        if name.is_empty() {
            self.unnamed.clear();
        }
    }

    pub(super) fn close_portal(&mut self, name: &[u8]) {
        remove(&mut self.portals, &mut self.bytes, name);
        if name.is_empty() {
            self.bound = BoundStatement::Unknown;
        }
    }

    /// All statements and portals are closed, or unknown.
    pub(super) fn clear(&mut self) {
        *self = PreparedStatements::default();
    }

    pub(super) fn memory(&self) -> usize {
        let capacity = self.statements.capacity() + self.portals.capacity();
        self.bytes + capacity * ENTRY_BYTES + self.unnamed.capacity()
    }
}

/// Replaces the text of a name; without room, the name has no text.
fn insert(
    texts: &mut HashMap<Vec<u8>, Arc<str>>,
    bytes: &mut usize,
    name: &[u8],
    text: impl FnOnce() -> Arc<str>,
) {
    remove(texts, bytes, name);
    let text = text();
    let size = name.len() + text.len();
    if texts.len() < NAMES_MAX && *bytes + size <= BYTES_MAX {
        *bytes += size;
        texts.insert(name.to_vec(), text);
    }
}

fn remove(texts: &mut HashMap<Vec<u8>, Arc<str>>, bytes: &mut usize, name: &[u8]) {
    if let Some(text) = texts.remove(name) {
        *bytes -= name.len() + text.len();
    }
}
