//! Canonical keys of deleted series.

use std::collections::HashMap;

use model::SeriesId;

/// Canonical keys of deleted series, retained while the journal may refer to their ids.
#[derive(Debug, Default)]
pub(crate) struct DeletedSeriesKeys {
    pub(crate) keys: HashMap<SeriesId, Vec<u8>>,
    /// Journal end at the last deletion: no later record names a deleted series by id.
    pub(crate) end: u64,
}

impl DeletedSeriesKeys {
    pub(crate) fn key(&self, id: &SeriesId) -> Option<Vec<u8>> {
        self.keys.get(id).cloned()
    }
}
