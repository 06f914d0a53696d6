//! The series of a test as a server stores what Prometheus sends: own rules read counters,
//! distributions and units, where rules of Prometheus read gauges and float histograms.
//!
//! Kind and unit follow from the name, as in remote write, or from the labels `__type__` and
//! `__unit__` of Prometheus. Native histograms are cumulative, unless they are gauges.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram, HistogramParts, MergeError, Mixture, Scheme, TrackedValue};
use model::{Selector, Series, SeriesKind};
use query::{
    BucketGrid, FloatHistogram, LabelSet, NAME, ResetHint, SeriesHandle, SeriesPoint, Source,
    SourceRead, StepValue, TYPE, UNIT,
};
use store::{NumberAggregate, TimeGrid};

use crate::memory_histograms::{
    classic_times, classic_values, is_classic, select_classic, unit_of_name,
};
use crate::memory_series::MemorySeries;

/// Counts up to which doubles skip no whole number.
const COUNT_MAX: f64 = 9_007_199_254_740_992.0;

/// Series with their kinds and units.
#[derive(Default)]
pub(super) struct ServerSeries {
    series: MemorySeries,
    kinds: BTreeMap<LabelSet, (SeriesKind, String)>,
}

impl ServerSeries {
    /// Adds a sample of a sender. The error is the cause.
    pub(super) fn receive(
        &mut self,
        sent: &LabelSet,
        time_ns: i64,
        value: StepValue,
    ) -> Result<(), String> {
        if let StepValue::Histogram(histogram) = &value {
            let cause = |cause: &str| format!("cannot read histogram {sent}: {cause}");
            whole_histogram(histogram).map_err(|it| cause(&it))?;
        }
        let is_counter = match sent.get(TYPE) {
            "counter" => true,
            "gauge" => false,
            _ => decode::is_monotonic(sent.name()),
        };
        self.push(sent, is_counter, time_ns, value);
        Ok(())
    }

    /// Adds a sample that a rule recorded, which is stored as a gauge.
    pub(super) fn record(&mut self, labels: &LabelSet, time_ns: i64, value: StepValue) {
        // The server does not store recorded histograms.
        if value.number().is_some() {
            self.push(labels, false, time_ns, value);
        }
    }

    fn push(&mut self, sent: &LabelSet, is_counter: bool, time_ns: i64, value: StepValue) {
        let labels = sent.with(TYPE, "").with(UNIT, "");
        let kind = match &value {
            StepValue::Histogram(histogram) if histogram.hint == ResetHint::Gauge => {
                Some(SeriesKind::Histogram(Temporality::Delta))
            }
            StepValue::Histogram(_) => Some(SeriesKind::Histogram(Temporality::Cumulative)),
            _ if self.kinds.contains_key(&labels) => None,
            _ if is_counter => Some(SeriesKind::Counter(Temporality::Cumulative)),
            _ => Some(SeriesKind::Gauge),
        };
        if let Some(kind) = kind {
            let unit = match sent.get(UNIT) {
                "" => unit_of_name(sent.name()),
                unit => unit.to_owned(),
            };
            self.kinds.insert(labels.clone(), (kind, unit));
        }
        self.series.push(&labels, time_ns, value);
    }

    /// Samples of a series up to the end of a range, with the one before it.
    fn samples_from(
        &self,
        labels: &LabelSet,
        range: &Range<i64>,
    ) -> impl Iterator<Item = (i64, &StepValue)> {
        let samples = self.series.of_labels(labels).into_iter();
        let range = range.start..range.end.max(range.start);
        samples.flat_map(move |samples| {
            let is_value = |(_, value): &(&i64, &StepValue)| !is_nan(value);
            let before = samples.range(..=range.start).rev().find(is_value);
            let bounds = (Bound::Excluded(range.start), Bound::Included(range.end));
            let within = samples.range(bounds).filter(is_value);
            before.into_iter().chain(within).map(|(time, value)| (*time, value))
        })
    }

    /// The values of a series of histograms in a range.
    fn histogram_values(
        &self,
        handle: &SeriesHandle,
        range: &Range<i64>,
    ) -> Result<Mixture, MergeError> {
        let mut values = Mixture::default();
        let mut earlier: Option<Histogram> = None;
        for (time, value) in self.samples_from(&handle.labels, range) {
            let StepValue::Histogram(sample) = value else { continue };
            let Ok(now) = whole_histogram(sample) else { continue };
            let is_cumulative = handle.kind.is_cumulative();
            let increase = match &earlier {
                _ if !is_cumulative => Some(now.clone()),
                // A histogram that has lost values has begun anew.
                Some(before) if sample.hint != ResetHint::Reset => {
                    Some(now.difference(before).unwrap_or_else(|_| now.clone()))
                }
                before => before.is_some().then(|| now.clone()),
            };
            if let Some(increase) = increase.filter(|_| time > range.start) {
                values.add(&increase)?;
            }
            earlier = Some(now);
        }
        Ok(values)
    }

    /// The numbers of a series in a range: of a counter, its increases.
    fn series_numbers(&self, handle: &SeriesHandle, range: &Range<i64>) -> Vec<f64> {
        let mut numbers = Vec::new();
        let mut earlier = None;
        for (time, value) in self.samples_from(&handle.labels, range) {
            let Some(now) = value.number() else { continue };
            let number = match (handle.kind.is_cumulative(), earlier) {
                (false, _) => Some(now),
                (true, Some(before)) => Some(if now < before { now } else { now - before }),
                (true, None) => None,
            };
            numbers.extend(number.filter(|_| time > range.start));
            earlier = Some(now);
        }
        numbers
    }

    fn classic_times(&self, handle: &SeriesHandle, range: &Range<i64>) -> Vec<i64> {
        let times = classic_times(self.series.all(), &handle.labels, range.end);
        times.into_iter().filter(|time| *time > range.start).collect()
    }
}

fn is_nan(value: &StepValue) -> bool {
    value.number().is_some_and(f64::is_nan)
}

/// A histogram of a test, whose counts must be whole numbers. The error is the cause.
fn whole_histogram(histogram: &FloatHistogram) -> Result<Histogram, String> {
    let whole = |count: f64| match count.fract() == 0.0 && (0.0..=COUNT_MAX).contains(&count) {
        true => Ok(count as u64),
        false => Err(format!("found count {count}, expected a whole number")),
    };
    let (scheme, offset) = match &histogram.grid {
        // Prometheus numbers a bucket by its upper bound, `hist` by its lower bound.
        BucketGrid::Exponential(schema) => (Scheme::exp2(*schema), 1),
        BucketGrid::Custom(bounds) => (Scheme::explicit(bounds), 0),
        BucketGrid::Scheme(scheme) => (Ok(scheme.clone()), 0),
    };
    let scheme = scheme.map_err(|error| error.to_string())?;
    let side = |buckets: &[(i32, f64)]| {
        let counts = buckets.iter().filter(|(_, count)| *count != 0.0);
        let counts = counts.map(|(at, count)| Ok((at.saturating_sub(offset), whole(*count)?)));
        counts.collect::<Result<Vec<_>, String>>()
    };
    let parts = HistogramParts {
        zero_threshold: histogram.zero_threshold,
        positive: side(&histogram.positive)?,
        negative: side(&histogram.negative)?,
        zero: whole(histogram.zero_count)?,
        sum: match histogram.sum.is_finite() {
            true => TrackedValue::Exact(DoubleDouble::new(histogram.sum)),
            false => TrackedValue::Absent,
        },
        ..HistogramParts::new(scheme)
    };
    let found = Histogram::from_parts(parts).map_err(|error| error.to_string())?;
    match found.count() == whole(histogram.count)? {
        true => Ok(found),
        false => {
            let (count, of_buckets) = (histogram.count, found.count());
            Err(format!("its count is {count}, and that of its buckets {of_buckets}"))
        }
    }
}

impl Source for ServerSeries {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        let of = |(key, (labels, (kind, unit))): (usize, (&LabelSet, &(SeriesKind, String)))| {
            let others = labels.iter().filter(|(name, _)| *name != NAME);
            let series = Series::new(labels.name(), *kind).with_labels(others).with_unit(unit);
            let (labels, kind, unit) = (labels.clone(), *kind, unit.clone());
            selector.matches(&series).then_some(SeriesHandle { labels, kind, unit, key })
        };
        Ok(self.kinds.iter().enumerate().filter_map(of).collect())
    }

    fn bucket_count(&self, selector: &Selector) -> u64 {
        select_classic(self.series.all(), selector).len() as u64
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> query::Result<()> {
        // A series of this name is what is meant.
        if found.is_empty() {
            found.extend(select_classic(self.series.all(), selector));
        }
        Ok(())
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        let (classic, others): (Vec<_>, Vec<_>) = series.iter().cloned().partition(is_classic);
        let times = classic.iter().flat_map(|handle| self.classic_times(handle, &range));
        let of_classic = times.map(|time| time - 1..time);
        let all = of_classic.chain(self.series.time_range(&others, range.clone())?);
        Ok(all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)))
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        if !is_classic(series) {
            return self.series.samples(series, range);
        }
        // They have times, not values.
        let point = |time| SeriesPoint { start: None, time, value: StepValue::Number(0.0) };
        let values = self.classic_times(series, &range).into_iter().map(point).collect();
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        let values = |handle: &&SeriesHandle, range: &Range<i64>| match is_classic(handle) {
            true => Ok(classic_values(self.series.all(), &handle.labels, range)),
            false => self.histogram_values(handle, range),
        };
        let SourceRead { values, gaps } = MemorySeries::columns(grid, |range| {
            let mut merged = Mixture::default();
            for handle in series {
                for part in values(handle, &range)?.components() {
                    merged.add(part)?;
                }
            }
            Ok(merged)
        });
        let values = values.into_iter().collect::<Result<Vec<Mixture>, MergeError>>();
        let values = values.map_err(|error| query::Error::Execution {
            span: query::SourceSpan::default(),
            message: format!("cannot merge histograms: {error}"),
        })?;
        Ok(SourceRead { values, gaps })
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        Ok(MemorySeries::columns(grid, |range| {
            let numbers = series.iter().flat_map(|handle| self.series_numbers(handle, &range));
            numbers.map(NumberAggregate::of_number).reduce(|mut merged, next| {
                merged.add(&next);
                merged
            })
        }))
    }
}
