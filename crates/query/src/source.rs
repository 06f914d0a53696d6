//! Data source interface of queries.

use std::ops::Range;

use hist::Mixture;
use model::{Gap, Selector, SeriesKind};
use store::{NumberSummary, TimeGrid};

use crate::error::Result;
use crate::labels::LabelSet;
use crate::stream::SeriesPoint;

/// Handle of a selected series. `key` means something only to the source that gave it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesHandle {
    /// Name and labels.
    pub labels: LabelSet,
    /// What its samples are.
    pub kind: SeriesKind,
    /// In what it is measured; the empty text where that is not known.
    pub unit: String,
    /// By which the source knows it again.
    pub key: usize,
}

/// Column values with gaps.
pub struct ColumnRead<T> {
    /// One for each column, or each reading.
    pub values: Vec<T>,
    /// What is missing.
    pub gaps: Vec<Gap>,
}

/// Data source of queries. All reads of one question see the same moment.
pub trait Source: Sync {
    /// The series that a selector picks, in no order.
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>>;

    /// The part of a range, its start excluded and its end included, that can have readings of some
    /// series; the whole range, where that is not known.
    fn time_range(
        &self,
        _series: &[SeriesHandle],
        range: Range<i64>,
    ) -> Result<Option<Range<i64>>> {
        Ok((range.start < range.end).then_some(range))
    }

    /// What is known to be missing in a range, its start excluded and its end included, of whatever
    /// series: a series all of whose rows are missing is none that a selector picks.
    fn gaps(&self, _range: &Range<i64>) -> Vec<Gap> {
        Vec::new()
    }

    /// How many series a selector picks.
    fn select_count(&self, selector: &Selector) -> Result<u64> {
        self.select(selector).map(|series| series.len() as u64)
    }

    /// About how many rows of so many series there are to be read of a range: as they came, or
    /// added up in columns as long as `step`. It costs no more than a look at what is in memory.
    fn estimate_rows(&self, _series: u64, _range: &Range<i64>, _step: Option<i64>) -> u64 {
        0
    }

    /// Readings of a series as they came, that were made after `range.start` and not after
    /// `range.end`, by time.
    fn readings(&self, series: &SeriesHandle, range: Range<i64>)
    -> Result<ColumnRead<SeriesPoint>>;

    /// Distributions of series of histograms, put together: what ended within each column, its
    /// start excluded and its end included. Of cumulative series it is what was added.
    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<ColumnRead<Mixture>>;

    /// The same, but distributions of a moment belong to the column that begins by then. A source
    /// that has none need not tell them apart.
    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<ColumnRead<Mixture>> {
        self.histograms(series, grid)
    }

    /// Numbers of series of counts or gauges, put together likewise; `None` where there are none.
    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<ColumnRead<Option<NumberSummary>>>;
}
