//! Samples of many series of numbers that are read before they are asked for.

use std::ops::Range;

use store::NumberRows;

use crate::source::SeriesHandle;

/// Keys of handles that are read ahead, in proportion to the handles: others lie in between.
const AHEAD_KEYS_MAX: usize = 4;

/// Samples of many series of numbers that are read before they are asked for.
pub(super) struct SamplesAhead {
    pub(super) range: Range<i64>,
    /// The least key of the handles.
    first_key: usize,
    /// Position of each handle by its key; the number of handles for other keys.
    positions: Vec<u32>,
    handles: u32,
    pub(super) rows: NumberRows,
}

impl SamplesAhead {
    pub(super) fn new(
        range: Range<i64>,
        series: &[&SeriesHandle],
        rows: NumberRows,
    ) -> Option<SamplesAhead> {
        let keys = || series.iter().map(|handle| handle.key);
        let (first_key, last_key) = (keys().min()?, keys().max()?);
        let count = last_key - first_key + 1;
        if count > series.len().saturating_mul(AHEAD_KEYS_MAX) {
            return None;
        }
        let handles = series.len() as u32;
        let mut positions = vec![handles; count];
        (0..).zip(keys()).for_each(|(at, key)| positions[key - first_key] = at);
        Some(SamplesAhead { range, first_key, positions, handles, rows })
    }

    /// Positions of series, if all of them were read.
    pub(super) fn positions_of(&self, series: &[&SeriesHandle]) -> Option<Vec<usize>> {
        let position = |handle: &&SeriesHandle| {
            let at = *self.positions.get(handle.key.checked_sub(self.first_key)?)?;
            (at < self.handles).then_some(at as usize)
        };
        series.iter().map(position).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.bytes() + size_of_val(&*self.positions) as u64
    }
}
