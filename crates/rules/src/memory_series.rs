//! Series in memory, as a source of the query engine: gauges and delta histograms, and the classic
//! histograms whose buckets are among the gauges.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use hist::Mixture;
use hist::codec::header::Temporality;
use model::{Selector, Series, SeriesKind};
use query::{LabelSet, NAME, SeriesHandle, SeriesPoint, Source, SourceRead, StepValue};
use store::{NumberAggregate, TimeGrid};

use crate::memory_histograms::{MemorySamples, classic_values, is_classic, select_classic};

/// Series with their samples by time. A series with distributions is a delta histogram, any other
/// one a gauge.
#[derive(Default)]
pub struct MemorySeries(BTreeMap<LabelSet, MemorySamples>);

impl MemorySeries {
    /// Adds a sample, in place of one at the same time.
    pub fn push(&mut self, labels: &LabelSet, time_ns: i64, value: StepValue) {
        self.0.entry(labels.clone()).or_default().insert(time_ns, value);
    }

    /// All series.
    pub(crate) fn all(&self) -> &BTreeMap<LabelSet, MemorySamples> {
        &self.0
    }

    /// Samples of a series.
    pub(crate) fn of_labels(&self, labels: &LabelSet) -> Option<&MemorySamples> {
        self.0.get(labels)
    }

    fn samples_in(
        &self,
        labels: &LabelSet,
        range: &Range<i64>,
    ) -> impl Iterator<Item = (i64, &StepValue)> {
        let bounds = (Bound::Excluded(range.start), Bound::Included(range.end.max(range.start)));
        let samples = self.0.get(labels).into_iter().flat_map(move |held| held.range(bounds));
        samples.map(|(time, value)| (*time, value))
    }

    fn kind(values: &BTreeMap<i64, StepValue>) -> SeriesKind {
        match values.values().next() {
            Some(StepValue::Distribution(_)) => SeriesKind::Histogram(Temporality::Delta),
            _ => SeriesKind::Gauge,
        }
    }

    /// A value for each column.
    pub(crate) fn columns<T>(grid: TimeGrid, read: impl Fn(Range<i64>) -> T) -> SourceRead<T> {
        // A sample at a time belongs to the nanosecond before it.
        let values = (0..grid.columns).map(|at| read(grid.column(at)));
        SourceRead { values: values.collect(), gaps: Vec::new() }
    }
}

impl Source for MemorySeries {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        let series = |labels: &LabelSet, kind| {
            Series::new(labels.name(), kind)
                .with_labels(labels.iter().filter(|(name, _)| *name != NAME))
        };
        let matching = self.0.iter().enumerate().filter(|(_, (labels, values))| {
            selector.matches(&series(labels, MemorySeries::kind(values)))
        });
        let handle = |(key, (labels, values)): (usize, (&LabelSet, &BTreeMap<i64, StepValue>))| {
            SeriesHandle {
                labels: labels.clone(),
                kind: MemorySeries::kind(values),
                unit: String::new(),
                key,
            }
        };
        Ok(matching.map(handle).collect())
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> query::Result<()> {
        // A series of this name is what is meant.
        if found.is_empty() {
            found.extend(select_classic(&self.0, selector));
        }
        Ok(())
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        if series.iter().any(is_classic) {
            return Ok(Some(range));
        }
        let samples = series.iter().flat_map(|handle| self.samples_in(&handle.labels, &range));
        let times: Vec<i64> = samples.map(|(time, _)| time).collect();
        let first = times.iter().min().map(|time| time.saturating_sub(1));
        Ok(first.zip(times.iter().max().copied()).map(|(start, end)| start..end))
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        let point = |(time, value): (i64, &StepValue)| SeriesPoint {
            start: None,
            time,
            value: value.clone(),
        };
        let values = self.samples_in(&series.labels, &range).map(point).collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        Ok(MemorySeries::columns(grid, |range| {
            let mut merged = Mixture::default();
            let mut add = |mixture: &Mixture| {
                for part in mixture.components() {
                    merged.add(part).expect("BUG: the histograms of tests can be merged");
                }
            };
            for handle in series.iter().filter(|handle| is_classic(handle)) {
                add(&classic_values(&self.0, &handle.labels, &range));
            }
            let samples = series.iter().flat_map(|handle| self.samples_in(&handle.labels, &range));
            for (_, value) in samples {
                let StepValue::Distribution(mixture) = value else { continue };
                add(mixture);
            }
            merged
        }))
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        Ok(MemorySeries::columns(grid, |range| {
            let samples = series.iter().flat_map(|handle| self.samples_in(&handle.labels, &range));
            let numbers = samples.filter_map(|(_, value)| value.number());
            numbers.map(NumberAggregate::of_number).reduce(|mut merged, next| {
                merged.add(&next);
                merged
            })
        }))
    }
}
