//! Source that notes what a query reads: which times depends on ranges, offsets and lookbacks, and
//! which series on searches and names, both of which each language has in its own words.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hist::Mixture;
use model::{Gap, Selector, SeriesKind};
use query::{SeriesHandle, SeriesPoint, Source, SourceRead, StoredMetric, WindowSource};
use store::{HistogramIncrements, NumberAggregate, TimeGrid};

/// Maximum number of selectors that are noted.
const SELECTORS_MAX: usize = 100;
/// Maximum number of ranges that are noted: a subquery reads one per step.
const RANGES_MAX: usize = 10_000;

/// A source, and what was read from it.
pub(super) struct ReadRecorder<'a> {
    source: &'a dyn Source,
    /// Each once.
    ranges: Mutex<Vec<Range<i64>>>,
    /// Each once.
    selectors: Mutex<Vec<Selector>>,
    /// By key.
    series: Mutex<BTreeMap<usize, SeriesHandle>>,
}

/// What a query read.
pub(super) struct QueryReads {
    /// Start exclusive, end inclusive; each once. What exceeds the maximum is part of the last one.
    pub(super) ranges: Vec<Range<i64>>,
    /// Selectors of the series that it looked for, at most 100.
    pub(super) selectors: Vec<Selector>,
    /// Series that it read, also those without rows in these ranges.
    pub(super) series: Vec<SeriesHandle>,
}

/// Selectors of the series that a query looked for in its evaluations: rows of these series call
/// for another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuerySelectors(Option<Arc<Vec<Selector>>>);

impl QuerySelectors {
    /// The selectors; `None` before the first evaluation.
    pub(crate) fn known(&self) -> Option<&[Selector]> {
        self.0.as_deref().map(Vec::as_slice)
    }

    /// Adds those of an evaluation. Those of earlier ones stay, since an evaluation may leave out
    /// a part of the query, unless that makes too many.
    pub(super) fn add(&mut self, read: Vec<Selector>) {
        let known = self.known().unwrap_or_default();
        let is_new = |selector: &Selector| !known.contains(selector);
        let new: Vec<Selector> = read.iter().filter(|selector| is_new(selector)).cloned().collect();
        if new.is_empty() && self.0.is_some() {
            return;
        }
        let all = match known.len() + new.len() <= SELECTORS_MAX {
            true => known.iter().cloned().chain(new).collect(),
            false => read,
        };
        self.0 = Some(Arc::new(all));
    }

    /// Whether both are the same.
    pub(crate) fn is_same(&self, other: &QuerySelectors) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
            _ => false,
        }
    }
}

impl<'a> ReadRecorder<'a> {
    pub(super) fn new(source: &'a dyn Source) -> ReadRecorder<'a> {
        let (ranges, selectors, series) = Default::default();
        ReadRecorder { source, ranges, selectors, series }
    }

    /// What was read.
    pub(super) fn into_reads(self) -> QueryReads {
        let series = self.series.into_inner().unwrap_or_else(PoisonError::into_inner);
        QueryReads {
            ranges: self.ranges.into_inner().unwrap_or_else(PoisonError::into_inner),
            selectors: self.selectors.into_inner().unwrap_or_else(PoisonError::into_inner),
            series: series.into_values().collect(),
        }
    }

    fn add_selector(&self, selector: &Selector) {
        let mut selectors = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        if selectors.len() < SELECTORS_MAX && !selectors.contains(selector) {
            selectors.push(selector.clone());
        }
    }

    fn add(&self, series: &[&SeriesHandle], read: &Range<i64>) {
        self.add_series(series.iter().copied());
        self.add_range(read);
    }

    fn add_series<'s>(&self, series: impl Iterator<Item = &'s SeriesHandle>) {
        let mut known = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in series {
            known.entry(handle.key).or_insert_with(|| handle.clone());
        }
    }

    fn add_range(&self, read: &Range<i64>) {
        if read.is_empty() {
            return;
        }
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        // Not merged: of a longer range it may be known that a clock step does not matter.
        match ranges.iter().rev().any(|known| known == read) {
            true => {}
            false if ranges.len() < RANGES_MAX => ranges.push(read.clone()),
            false => {
                let last = ranges.last_mut().expect("BUG: no range at the maximum");
                *last = last.start.min(read.start)..last.end.max(read.end);
            }
        }
    }

    fn add_grid(&self, series: &[&SeriesHandle], grid: TimeGrid) {
        let Some(last) = grid.columns.checked_sub(1) else { return };
        self.add(series, &(grid.column(0).start..grid.column(last).end));
    }
}

impl Source for ReadRecorder<'_> {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        self.add_selector(selector);
        self.source.select(selector)
    }

    fn select_in_range(
        &self,
        selector: &Selector,
        range: &Range<i64>,
    ) -> query::Result<Vec<SeriesHandle>> {
        self.add_selector(selector);
        self.source.select_in_range(selector, range)
    }

    fn bucket_count(&self, selector: &Selector) -> u64 {
        self.source.bucket_count(selector)
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> query::Result<()> {
        self.add_selector(selector);
        self.source.add_classic(selector, found)
    }

    fn shared_unit(&self, selector: &Selector) -> query::Result<Option<(SeriesKind, String)>> {
        self.source.shared_unit(selector)
    }

    fn take_hints(&self) -> Vec<String> {
        self.source.take_hints()
    }

    fn metrics(&self) -> query::Result<Vec<StoredMetric>> {
        self.source.metrics()
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        // Of a long range, series without rows in it are not read.
        self.add_series(series.iter());
        self.source.time_range(series, range)
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        self.source.gaps(series, range)
    }

    fn select_count(&self, selector: &Selector) -> query::Result<u64> {
        self.add_selector(selector);
        self.source.select_count(selector)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.source.estimate_rows(series, range, step)
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        self.add(&[series], &range);
        self.source.samples(series, range)
    }

    fn each_samples(
        &self,
        series: &[&SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, SourceRead<SeriesPoint>) -> query::Result<()>,
    ) -> query::Result<()> {
        self.add(series, &range);
        self.source.each_samples(series, range, each)
    }

    fn texts(&self, series: &SeriesHandle, range: Range<i64>) -> query::Result<Vec<(i64, String)>> {
        self.add(&[series], &range);
        self.source.texts(series, range)
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        self.add(&[series], &range);
        self.source.increments(series, range)
    }

    /// Queries read no windows, which would not be noted.
    fn windows(&self, _range: Range<i64>) -> Option<Box<dyn WindowSource + '_>> {
        None
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.add_grid(series, grid);
        self.source.histograms(series, grid)
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.add_grid(series, grid);
        self.source.histograms_by_start(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        self.add_grid(series, grid);
        self.source.numbers(series, grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_series::MemorySeries;

    #[test]
    fn a_range_that_is_read_again_is_one() {
        let source = MemorySeries::default();
        let check = |reads: &[(i64, i64)], expected: &[(i64, i64)]| {
            let recorder = ReadRecorder::new(&source);
            reads.iter().for_each(|&(start, end)| recorder.add_range(&(start..end)));
            let ranges = recorder.into_reads().ranges;
            let mut found: Vec<(i64, i64)> =
                ranges.iter().map(|range| (range.start, range.end)).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{reads:?}");
        };
        check(&[(0, 5), (20, 25)], &[(0, 5), (20, 25)]);
        check(&[(0, 5), (5, 10), (0, 5)], &[(0, 5), (5, 10)]);
        check(&[(20, 25), (3, 3), (7, 1), (0, 5)], &[(0, 5), (20, 25)]);
    }

    #[test]
    fn a_grid_is_read_from_its_first_column_to_its_last_one() {
        let series = MemorySeries::default();
        let recorder = ReadRecorder::new(&series);
        recorder.add_grid(&[], TimeGrid { start: 10, step: 5, columns: 0 });
        recorder.add_grid(&[], TimeGrid { start: 10, step: 5, columns: 3 });
        assert_eq!(recorder.into_reads().ranges, [Range { start: 10, end: 25 }]);
    }

    #[test]
    fn series_that_were_asked_for_are_read_each_once_and_others_are_not() {
        let mut series = MemorySeries::default();
        for name in ["a", "b", "c"] {
            let labels = query::LabelSet::new([(query::NAME, name)]);
            series.push(&labels, 5, query::StepValue::Number(1.0));
        }
        let recorder = ReadRecorder::new(&series);
        let found = recorder.select(&Selector::All).expect("in memory");
        for _ in 0..2 {
            recorder.samples(&found[1], 0..10).expect("in memory");
            // It has no rows there.
            assert_eq!(recorder.time_range(&found[..1], 6..10).expect("in memory"), None);
        }
        let QueryReads { selectors, series, .. } = recorder.into_reads();
        let names: Vec<&str> = series.iter().map(|handle| handle.labels.name()).collect();
        assert_eq!((selectors, names), (vec![Selector::All], vec!["a", "b"]));
    }
    #[test]
    fn selectors_of_all_evaluations_are_known_unless_there_are_too_many() {
        let selector = |at: usize| Selector::label_equals("at", at.to_string());
        let mut selectors = QuerySelectors::default();
        assert_eq!(selectors.known(), None);
        selectors.add(Vec::new());
        assert_eq!(selectors.known(), Some(&[][..]));
        selectors.add(vec![selector(1)]);
        let before = selectors.clone();
        selectors.add(vec![selector(1)]);
        assert!(selectors.is_same(&before));
        selectors.add(vec![selector(2), selector(1)]);
        assert_eq!(selectors.known(), Some(&[selector(1), selector(2)][..]));
        assert!(!selectors.is_same(&before));
        let many: Vec<Selector> = (2..SELECTORS_MAX + 2).map(selector).collect();
        selectors.add(many.clone());
        assert_eq!(selectors.known(), Some(&many[..]));
    }
}
