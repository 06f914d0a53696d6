//! Data source interface of queries.

use std::ops::Range;

use hist::Mixture;
use model::{Gap, Selector, SeriesKind};
use store::{HistogramIncrements, NumberAggregate, Row, TimeGrid, WindowRows};

use crate::error::Result;
use crate::labels::LabelSet;
use crate::plain_numbers::without_plain_numbers;
use crate::stream::SeriesPoint;

/// Handle of a selected series. `key` is private to the source that returned it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesHandle {
    /// Name and labels.
    pub labels: LabelSet,
    /// Kind of its samples.
    pub kind: SeriesKind,
    /// Unit; empty if unknown.
    pub unit: String,
    /// Key of the series in the source.
    pub key: usize,
}

/// Stored metric: what series with the same name, unit and kind share.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredMetric {
    /// Name.
    pub name: String,
    /// Unit; empty if unknown.
    pub unit: String,
    /// Kind of the samples.
    pub kind: SeriesKind,
}

/// As [`Source::shared_unit`], of these series.
pub(crate) fn shared_unit(series: &[SeriesHandle]) -> Option<(SeriesKind, String)> {
    unit_of_all(series).or_else(|| unit_of_all(&without_plain_numbers(series)?))
}

/// Kind and unit, if all series have the same.
pub(crate) fn unit_of_all(series: &[SeriesHandle]) -> Option<(SeriesKind, String)> {
    let is_histogram = |handle: &SeriesHandle| matches!(handle.kind, SeriesKind::Histogram(_));
    let first = series.first()?;
    let is_same = |handle: &SeriesHandle| {
        handle.unit == first.unit && is_histogram(handle) == is_histogram(first)
    };
    series.iter().all(is_same).then(|| (first.kind, first.unit.clone()))
}

/// Number of selected series with a current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreshCount {
    /// Selected series.
    pub selected: u64,
    /// Those of them with a current value.
    pub fresh: u64,
}

/// Samples of one of many series of numbers.
pub struct GroupedRow<'r> {
    /// Position of the series.
    pub series: usize,
    /// Its group.
    pub group: usize,
    /// Samples by end, and then by start.
    pub rows: &'r [Row<f64>],
}

/// Gauges, or cumulative counters, of one metric with one unit, in groups by some of their labels.
pub trait NumberGroups {
    /// Kind of all series.
    fn kind(&self) -> SeriesKind;

    /// Unit of all series; empty if unknown.
    fn unit(&self) -> &str;

    /// Number of series.
    fn series(&self) -> usize;

    /// Name of the metric and labels of each group.
    fn labels(&self) -> &[LabelSet];

    /// Calls `each` with the samples of each series. About `rows_max` samples are in memory at a
    /// time. Returns the gaps that the read meets.
    fn each(
        &self,
        rows_max: u64,
        each: &mut dyn FnMut(GroupedRow<'_>) -> Result<()>,
    ) -> Result<Vec<Gap>>;

    /// Groups with a series for which `is_counted` holds, in the order of the labels of the first
    /// such series of each.
    fn order(&self, is_counted: &dyn Fn(usize) -> bool) -> Vec<usize>;
}

/// Values of columns, or samples, with gaps.
pub struct SourceRead<T> {
    /// One value for each column or sample.
    pub values: Vec<T>,
    /// Known gaps.
    pub gaps: Vec<Gap>,
}

/// Reads windows of series that end at the same time.
pub trait WindowSource {
    /// Merged distributions of histogram series, as [`Source::histograms`], and their rows; `None`
    /// for these if a later window must be read in any case.
    fn histogram(&self, series: &[&SeriesHandle]) -> Result<(Mixture, Option<WindowRows>)>;

    /// Rows of series of any kind, without their values. What arrives afterwards is not among them.
    fn rows(&self, series: &[&SeriesHandle]) -> Option<WindowRows>;

    /// Whether the window has the rows of an earlier one.
    fn is_same(&self, before: &WindowRows, series: &[&SeriesHandle]) -> bool;
}

/// Data source of queries. All reads of one query see the same snapshot.
pub trait Source: Sync {
    /// Series that match a selector, in any order.
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>>;

    /// Series that match a selector, for reads in a range (start exclusive, end inclusive): the
    /// buckets of a histogram are series of their own if they are selected by `le`.
    fn select_in_range(
        &self,
        selector: &Selector,
        _range: &Range<i64>,
    ) -> Result<Vec<SeriesHandle>> {
        self.select(selector)
    }

    /// Number of the counters of the buckets of classic histograms that a selector means.
    fn bucket_count(&self, _selector: &Selector) -> u64 {
        0
    }

    /// Adds to the series that match a selector the classic histograms that it means by the name of
    /// the histogram, whose buckets are stored as counters. They are distributions that are read in
    /// columns and windows; their samples have times, not values. A histogram with the labels of
    /// one of them is replaced by it: it has the values of both.
    fn add_classic(&self, _selector: &Selector, _found: &mut Vec<SeriesHandle>) -> Result<()> {
        Ok(())
    }

    /// Series that match a selector, and the classic histograms that it means.
    fn select_with_classic(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let mut found = self.select(selector)?;
        self.add_classic(selector, &mut found)?;
        Ok(found)
    }

    /// Kind and unit of the series that match a selector, by the first of them; `None` without
    /// series, if they have different units, and if only some of them are distributions. Series
    /// without a unit that a query leaves out do not count.
    fn shared_unit(&self, selector: &Selector) -> Result<Option<(SeriesKind, String)>> {
        Ok(shared_unit(&self.select(selector)?))
    }

    /// Hints about the selections since the last call, for the user.
    fn take_hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// All stored metrics, each once.
    fn metrics(&self) -> Result<Vec<StoredMetric>> {
        let mut metrics: Vec<StoredMetric> = Vec::new();
        for SeriesHandle { labels, kind, unit, .. } in self.select(&Selector::All)? {
            let metric = StoredMetric { name: labels.name().to_owned(), unit, kind };
            if !metrics.contains(&metric) {
                metrics.push(metric);
            }
        }
        Ok(metrics)
    }

    /// Part of a range (start exclusive, end inclusive) that can have samples of some series; the
    /// whole range if unknown.
    fn time_range(
        &self,
        _series: &[SeriesHandle],
        range: Range<i64>,
    ) -> Result<Option<Range<i64>>> {
        Ok((range.start < range.end).then_some(range))
    }

    /// Known gaps in a range (start exclusive, end inclusive) that may concern some series, or one
    /// that is not stored: no selector matches a series whose rows are all missing.
    fn gaps(&self, _series: &[&SeriesHandle], _range: &Range<i64>) -> Vec<Gap> {
        Vec::new()
    }

    /// Number of series that match a selector.
    fn select_count(&self, selector: &Selector) -> Result<u64> {
        self.select(selector).map(|series| series.len() as u64)
    }

    /// Estimated number of rows of `series` series in a range: raw, or summed in columns of length
    /// `step`. Uses only data in memory.
    fn estimate_rows(&self, _series: u64, _range: &Range<i64>, _step: Option<i64>) -> u64 {
        0
    }

    /// Raw samples of a series after `range.start` and up to `range.end`, by time.
    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>>;

    /// Samples of several series in one range, series by series. What the series share is looked up
    /// once.
    fn each_samples(
        &self,
        series: &[&SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, SourceRead<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        let samples =
            |(at, series): (usize, &&SeriesHandle)| each(at, self.samples(series, range.clone())?);
        series.iter().enumerate().try_for_each(samples)
    }

    /// Reads samples of very many series in one range before [`Source::each_samples`] asks for
    /// them, pack by pack, if that takes less time. They are kept until
    /// [`Source::end_read_ahead`].
    fn read_ahead(&self, _series: &[&SeriesHandle], _range: &Range<i64>) -> Result<()> {
        Ok(())
    }

    /// Drops what was read ahead.
    fn end_read_ahead(&self) {}

    /// Number of series that match a selector, and of those whose last sample in a range (start
    /// exclusive, end inclusive) is no staleness marker; `None` if the source must read their
    /// labels to tell.
    fn count_fresh(&self, _selector: &Selector, _range: &Range<i64>) -> Result<Option<FreshCount>> {
        Ok(None)
    }

    /// Series that match a selector, for reads in a range (start exclusive, end inclusive), in
    /// groups by the labels that `keeps` accepts; `None` if these are not gauges or cumulative
    /// counters of one metric with one unit without known gaps, or if there are fewer than
    /// `series_min`.
    fn number_groups(
        &self,
        _selector: &Selector,
        _range: &Range<i64>,
        _series_min: u64,
        _keeps: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Box<dyn NumberGroups + '_>>> {
        Ok(None)
    }

    /// Texts of a series after `range.start` and up to `range.end`, by time.
    fn texts(&self, _series: &SeriesHandle, _range: Range<i64>) -> Result<Vec<(i64, String)>> {
        Ok(Vec::new())
    }

    /// Samples of a cumulative histogram in a range, as [`Source::samples`], as increments. The
    /// value is `None` if the source has no increments of them.
    fn increments(
        &self,
        _series: &SeriesHandle,
        _range: Range<i64>,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        Ok((None, Vec::new()))
    }

    /// Reader of windows of series (start exclusive, end inclusive); `None` if the source does not
    /// know which rows a window has.
    fn windows(&self, _range: Range<i64>) -> Option<Box<dyn WindowSource + '_>> {
        None
    }

    /// Merged distributions of histogram series: those that ended in each column, start exclusive,
    /// end inclusive. For cumulative series, the increase.
    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>>;

    /// The same, but instantaneous distributions belong to the column that includes its start. A
    /// source without such distributions need not distinguish them.
    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        self.histograms(series, grid)
    }

    /// Merged numbers of counter or gauge series, likewise; `None` for an empty column.
    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>>;
}
