//! Canonical keys of deleted series.

use std::collections::HashMap;

use model::SeriesId;

/// Canonical keys of deleted series, retained while the journal may refer to their ids.
#[derive(Debug, Default)]
pub(crate) struct DeletedSeriesKeys {
    pub(crate) keys: HashMap<SeriesId, Vec<u8>>,
    /// Where the journal ended when the last was deleted: nothing behind it names one.
    pub(crate) end: u64,
}

impl DeletedSeriesKeys {
    pub(crate) fn key(&self, id: &SeriesId) -> Option<Vec<u8>> {
        self.keys.get(id).cloned()
    }
}
