//! Late samples of cumulative series: of a day of which samples were dropped, or before the first
//! sample of a series whose day was rolled up without them and cannot be rolled up again.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;

use model::{Gap, SeriesId};

use crate::error::Result;
use crate::inner::StoreInner;
use crate::manifest::Manifest;
use crate::resolution::{DAY, interval_start};
use crate::row::Rows;

impl StoreInner {
    /// End of the first interval that rollups hold of a series, if it is final: some source parts
    /// of its day are gone, so it is not rolled up again. The increase from a sample that arrives
    /// later to the first sample of that interval is in no rollup, and never will be.
    pub(crate) fn first_final_interval_end(
        &self,
        manifest: &Manifest,
        id: &SeriesId,
    ) -> Result<Option<i64>> {
        let mut first: Option<i64> = None;
        for part in manifest.parts.values() {
            let Some(period) = part.resolution.period() else { continue };
            let locations = self.part(part.number)?.find(id)?;
            let ends = locations.iter().map(|location| location.start.saturating_add(period));
            first = first.into_iter().chain(ends).min();
        }
        Ok(first.filter(|&end| !manifest.has_all_source_parts(interval_start(end, DAY))))
    }
}

/// Gap for samples whose increase is in no rollup. `final_end` is the end of the series' first
/// interval in rollups, if that interval is not rolled up again: the increase to it is unknown too.
pub(crate) fn late_gap(
    series: &dyn fmt::Display,
    rows: &Rows,
    final_end: Option<i64>,
) -> Option<Gap> {
    let times = rows.times();
    let (first, last) =
        (times.iter().map(|time| time.1).min()?, times.iter().map(|time| time.1).max()?);
    let end = final_end.filter(|&end| first < end).map_or(last, |end| end.max(last));
    // Intervals exclude their start: the first sample lies in (first - 1, first].
    let (start, lost) = (first.saturating_sub(1), Some(times.len() as u64));
    let reason = Gap::late_samples_reason(series);
    Some(Gap { start, end, producer: None, lost, reason })
}
