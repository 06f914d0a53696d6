//! Reads of the distributions of a row.

use std::ops::Range;

use hist::{Histogram, Mixture};
use model::Gap;
use store::{ReadView, SeriesEntryRef, TimeGrid};

use crate::classic_buckets::{DistributionColumnIter, columns_with_cuts};
use crate::compare::merge_error;
use crate::error::Result;

/// Maximum number of cuts of a read of classic histograms. A refresh looks at the time between
/// reads only, so that one may not take very long: a cut reads the buckets of a histogram twice.
/// Bounds that change, or a scrape of which some buckets are missing, need a few cuts each.
const CUTS_MAX: u32 = 256;

/// Reads the series of a row.
#[derive(Clone, Copy)]
pub(super) struct RowReader<'a> {
    view: &'a ReadView,
    series: &'a [SeriesEntryRef],
}

impl<'a> RowReader<'a> {
    pub(super) fn new(view: &'a ReadView, series: &'a [SeriesEntryRef]) -> RowReader<'a> {
        RowReader { view, series }
    }

    /// Merged values in columns.
    pub(super) fn columns(&self, grid: TimeGrid) -> Result<DistributionColumnIter<'a>> {
        columns_with_cuts(self.view, self.series, grid, CUTS_MAX)
    }

    /// Merged values in a range.
    pub(super) fn column(&self, range: Range<i64>, gaps: &mut Vec<Gap>) -> Result<Mixture> {
        let mut values = Mixture::default();
        if range.is_empty() {
            return Ok(values);
        }
        let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
        for column in self.columns(grid)? {
            let column = column?;
            gaps.extend(column.gaps);
            values = column.value;
        }
        Ok(values)
    }
}

/// Memory of values, in bytes. A merge reserves the buckets of both sides, which may be twice the
/// buckets of the sum.
pub(super) fn mixture_bytes(of: &Mixture) -> usize {
    let part_bytes = |part: &Histogram| {
        let buckets = part.positive().len() + part.negative().len();
        size_of::<Histogram>() + 2 * buckets * size_of::<(i32, u64)>()
    };
    of.components().iter().map(part_bytes).sum()
}

/// Memory of gaps, in bytes.
pub(super) fn gap_bytes(gaps: &[Gap]) -> usize {
    gaps.iter().map(|gap| size_of::<Gap>() + gap.reason.len()).sum()
}

/// Values of both.
pub(super) fn merge(a: &Mixture, b: &Mixture) -> Result<Mixture> {
    let mut all = Mixture::default();
    for part in a.components().iter().chain(b.components()).filter(|part| !part.is_empty()) {
        all.add(part).map_err(merge_error)?;
    }
    Ok(all)
}
