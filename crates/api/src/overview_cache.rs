//! What has been read for the overview; the next request reads only what is new.

use std::sync::Mutex;

use query::overview::{MEMORY_BYTES_MAX, Overview, RowGroup};

/// What has been read for the overview of each group, in the order of [`RowGroup::ALL`].
#[derive(Debug)]
pub(crate) struct OverviewCache(Vec<Mutex<CachedOverview>>);

/// The overview of a group, and what it covers.
#[derive(Debug)]
pub(crate) struct CachedOverview {
    pub(crate) overview: Overview,
    pub(crate) today_start: i64,
    pub(crate) is_complete: bool,
}

impl Default for OverviewCache {
    fn default() -> OverviewCache {
        let of = |(group, _): &(RowGroup, &str)| {
            let overview = Overview::new(*group, MEMORY_BYTES_MAX);
            Mutex::new(CachedOverview { overview, today_start: i64::MIN, is_complete: false })
        };
        OverviewCache(RowGroup::ALL.iter().map(of).collect())
    }
}

impl OverviewCache {
    pub(crate) fn group(&self, group: RowGroup) -> &Mutex<CachedOverview> {
        let at = RowGroup::ALL.iter().position(|(known, _)| *known == group);
        &self.0[at.expect("BUG: a group is not in the table")]
    }
}
