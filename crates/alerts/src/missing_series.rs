//! Series that vanished with changes that nobody accepted. A *change* is an annotation on series
//! that vanished (`docs/alerts.md`); a user accepts it. A change whose series all have samples
//! again is over.

use std::collections::HashSet;

use model::SeriesId;

/// Name of who accepts a change that is over.
pub(crate) const ACCEPTED_BY: &str = "topdeck";
/// Note of its acceptance.
pub(crate) const ACCEPTED_NOTE: &str = "the series that vanished have samples again";

/// A change, and its series that have no samples.
#[derive(Debug)]
struct ChangeSeries {
    change_id: String,
    missing: HashSet<SeriesId>,
}

/// Series of all such changes. A series is in one change at most, because it must have samples
/// before it can vanish again: they are no more than all series.
#[derive(Debug, Default)]
pub(crate) struct MissingSeries(Vec<ChangeSeries>);

impl MissingSeries {
    pub(crate) fn add(&mut self, change_id: String, missing: impl IntoIterator<Item = SeriesId>) {
        let missing: HashSet<SeriesId> = missing.into_iter().collect();
        if !missing.is_empty() {
            self.0.push(ChangeSeries { change_id, missing });
        }
    }

    /// Notes series that have samples again. Returns the changes that are over.
    pub(crate) fn remove(&mut self, returned: &HashSet<SeriesId>) -> Vec<String> {
        let mut over = Vec::new();
        self.0.retain_mut(|change| {
            change.missing.retain(|id| !returned.contains(id));
            if change.missing.is_empty() {
                over.push(std::mem::take(&mut change.change_id));
                return false;
            }
            true
        });
        over
    }

    /// Forgets changes that somebody accepted.
    pub(crate) fn forget(&mut self, is_accepted: impl Fn(&str) -> bool) {
        self.0.retain(|change| !is_accepted(&change.change_id));
    }
}
