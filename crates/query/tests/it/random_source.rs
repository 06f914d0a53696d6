//! Random in-memory source with anything that a source can return: NaN, staleness markers, counters
//! of all kinds, timestamps at both ends of the time range.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality::{Cumulative, Delta};
use hist::{Histogram, Mixture, Scheme};
use model::{Selector, Series, SeriesKind};
use query::{
    BucketGrid, FloatHistogram, LabelSet, NAME, ResetHint, Result, STALE_BITS, SeriesHandle,
    SeriesPoint, Source, SourceRead, StepValue,
};
use store::NumberAggregate;

use super::choice::ByteChoices;
use super::words::NAMES;

/// Series with samples.
pub(crate) struct RandomSource {
    series: Vec<(Series, Vec<SeriesPoint>)>,
}

const SECOND: i64 = 1_000_000_000;

const START_TIMES: [i64; 8] =
    [0, 0, 0, 1_700_000_000 * SECOND, -1_000 * SECOND, i64::MIN, i64::MAX - 600 * SECOND, 12_345];
const STEPS: [i64; 8] =
    [15 * SECOND, 15 * SECOND, 15 * SECOND, SECOND, 60 * SECOND, 1, 7_000_001, 3600 * SECOND];

impl RandomSource {
    /// Approximate start of the measurements.
    pub(crate) fn begin(choice: &mut ByteChoices<'_>) -> i64 {
        choice.pick_one(&START_TIMES)
    }

    pub(crate) fn new(choice: &mut ByteChoices<'_>, begin: i64) -> RandomSource {
        let mut series: BTreeMap<(String, String, bool), (Series, Vec<SeriesPoint>)> =
            BTreeMap::new();
        for _ in 0..choice.pick_one(&[12, 9, 6, 4, 3, 2, 1, 0]) {
            let name = choice.pick_one(&NAMES);
            let kind = match (name, choice.below(8)) {
                ("latency", 0..=5) => SeriesKind::Histogram(Delta),
                ("waited", 0..=5) => SeriesKind::Histogram(Cumulative),
                ("requests", 0..=5) => SeriesKind::Counter(Delta),
                ("bytes_total" | "old_bucket", 0..=5) => SeriesKind::Counter(Cumulative),
                (_, 6) => SeriesKind::Histogram(Cumulative),
                (_, 7) => SeriesKind::Histogram(Delta),
                _ => SeriesKind::Gauge,
            };
            let mut labels = vec![("host", choice.pick_one(&["a", "b", "c"]))];
            if choice.one_in(3) {
                labels.push(("zone", choice.pick_one(&["x", "y"])));
            }
            if name == "old_bucket" {
                labels.push(("le", choice.pick_one(&["0.1", "1", "10", "+Inf", "nought"])));
            }
            if name == "target_info" || choice.one_in(8) {
                labels.extend([("instance", choice.pick_one(&["i", "j"])), ("job", "k")]);
            }
            let mut own = Series::new(name, kind).with_unit(choice.pick_one(&["", "s", "ns"]));
            own = labels.iter().fold(own, |series, (name, value)| series.with_label(*name, *value));
            let samples = samples(choice, kind, begin);
            let is_histogram = matches!(kind, SeriesKind::Histogram(_));
            series.insert((name.to_owned(), format!("{labels:?}"), is_histogram), (own, samples));
        }
        RandomSource { series: series.into_values().collect() }
    }
}

fn samples(choice: &mut ByteChoices<'_>, kind: SeriesKind, begin: i64) -> Vec<SeriesPoint> {
    let step = choice.pick_one(&STEPS);
    let mut samples = Vec::new();
    let mut time = begin.saturating_add(choice.below(5) as i64 * SECOND);
    let mut total = 0.0;
    for _ in 0..choice.pick_one(&[12, 10, 8, 6, 4, 2, 1, 0]) {
        time = time.saturating_add(step.saturating_mul(1 + choice.below(3) as i64));
        let start = match choice.below(4) {
            0 => time,
            1 => time.saturating_sub(step),
            2 => begin,
            _ => time.saturating_sub(2 * step),
        };
        let is_mixed = choice.one_in(20);
        let value = match kind {
            SeriesKind::Histogram(Delta) if !is_mixed => {
                StepValue::Distribution(Arc::new(mixture(choice)))
            }
            SeriesKind::Histogram(_) => StepValue::Histogram(Arc::new(histogram(choice))),
            _ if is_mixed => StepValue::Histogram(Arc::new(histogram(choice))),
            _ => {
                total += choice.below(100) as f64;
                StepValue::Number(if choice.one_in(3) { number(choice) } else { total })
            }
        };
        samples.push(SeriesPoint { start: Some(start).filter(|start| *start < time), time, value });
    }
    samples.dedup_by_key(|sample| sample.time);
    samples
}

fn number(choice: &mut ByteChoices<'_>) -> f64 {
    match choice.below(16) {
        0 => 0.0,
        1 => -0.0,
        2 => f64::NAN,
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        5 => f64::MAX,
        6 => f64::MIN,
        7 => 5e-324,
        8 => f64::from_bits(STALE_BITS),
        9 => f64::from_bits(choice.word()),
        10 => -1.0,
        11 => 9.3e18,
        12 => 1e-9,
        _ => choice.below(1000) as f64 / 8.0,
    }
}

fn scheme(choice: &mut ByteChoices<'_>) -> Scheme {
    match choice.below(8) {
        0..=2 => Scheme::exp2(5),
        3 => Scheme::exp2(choice.below(19) as i32 - 10),
        4 => Ok(Scheme::LogLinear10),
        5 => Scheme::log_linear2(5),
        6 => Scheme::log(0.02),
        _ => Scheme::explicit(&[-1.0, 0.0, 1.0, 10.0, 1e9]),
    }
    .unwrap_or_default()
}

fn record_values(choice: &mut ByteChoices<'_>) -> Histogram {
    let mut histogram = Histogram::new(scheme(choice));
    for _ in 0..choice.below(6) {
        let value = number(choice);
        let n = choice.pick_one(&[1, 1, 1, 2, 1 << 40, 1 << 60]);
        histogram.record_n(value, n);
    }
    histogram
}

fn mixture(choice: &mut ByteChoices<'_>) -> Mixture {
    let mut mixture = Mixture::default();
    for _ in 0..1 + choice.below(3) / 2 {
        // More than 2^64 values are rejected.
        let _ = mixture.add(&record_values(choice));
    }
    mixture
}

fn histogram(choice: &mut ByteChoices<'_>) -> FloatHistogram {
    let hint = choice.pick_one(&[
        ResetHint::Unknown,
        ResetHint::Gauge,
        ResetHint::Reset,
        ResetHint::NotReset,
    ]);
    if choice.below(3) > 0 {
        return FloatHistogram { hint, ..FloatHistogram::from(&record_values(choice)) };
    }
    let grid = match choice.below(4) {
        0 | 1 => BucketGrid::Exponential(choice.below(13) as i32 - 4),
        2 => BucketGrid::Custom([-1.0, 0.5, 3.0].into()),
        _ => BucketGrid::Scheme(scheme(choice)),
    };
    let is_custom = matches!(grid, BucketGrid::Custom(_));
    let mut counts = |least: i32, most: i32| {
        let mut counts = BTreeMap::new();
        for _ in 0..choice.below(4) {
            let index = least + choice.below((most - least) as usize + 1) as i32;
            let count = choice.pick_one(&[1.0, 0.25, 3.0, 1e300, -2.0]);
            counts.insert(index, count);
        }
        counts.into_iter().collect::<Vec<(i32, f64)>>()
    };
    let (positive, negative) = match is_custom {
        true => (counts(0, 3), Vec::new()),
        false => (counts(-40, 40), counts(-40, 40)),
    };
    let zero_count = if is_custom { 0.0 } else { choice.below(3) as f64 };
    let count = zero_count + positive.iter().chain(&negative).map(|(_, count)| count).sum::<f64>();
    let sum = number(choice);
    let zero_threshold = if is_custom { 0.0 } else { choice.pick_one(&[0.0, 1e-128, 0.5]) };
    FloatHistogram { grid, zero_threshold, zero_count, count, sum, positive, negative, hint }
}

impl Source for RandomSource {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let picked = self.series.iter().enumerate().filter(|(_, held)| selector.matches(&held.0));
        let handle = |(key, (series, _)): (usize, &(Series, _))| {
            let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = LabelSet::new(pairs.chain([(NAME, series.name())]));
            SeriesHandle { labels, kind: series.kind(), unit: series.unit().to_owned(), key }
        };
        Ok(picked.map(handle).collect())
    }

    fn time_range(&self, series: &[SeriesHandle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        let times = series.iter().flat_map(|handle| &self.series[handle.key].1).map(|of| of.time);
        let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { return Ok(None) };
        let (start, end) = (range.start.max(first.saturating_sub(1)), range.end.min(last));
        Ok((start < end).then_some(start..end))
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let samples = &self.series[series.key].1;
        let is_in = |sample: &&SeriesPoint| range.start < sample.time && sample.time <= range.end;
        Ok(SourceRead { values: samples.iter().filter(is_in).cloned().collect(), gaps: Vec::new() })
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: store::TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        let mut values = vec![Mixture::default(); grid.columns as usize];
        self.for_each_value(series, grid, |at, value| {
            if let StepValue::Distribution(mixture) = value {
                for part in mixture.components() {
                    let _ = values[at].add(part);
                }
            }
        });
        Ok(SourceRead { values, gaps: Vec::new() })
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: store::TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        let mut values: Vec<Option<NumberAggregate>> = vec![None; grid.columns as usize];
        self.for_each_value(series, grid, |at, value| {
            if let StepValue::Number(number) = value {
                match &mut values[at] {
                    Some(sum) => sum.add(&NumberAggregate::of_number(*number)),
                    empty => *empty = Some(NumberAggregate::of_number(*number)),
                }
            }
        });
        Ok(SourceRead { values, gaps: Vec::new() })
    }
}

impl RandomSource {
    fn for_each_value(
        &self,
        series: &[&SeriesHandle],
        grid: store::TimeGrid,
        mut take: impl FnMut(usize, &StepValue),
    ) {
        for sample in series.iter().flat_map(|handle| &self.series[handle.key].1) {
            let at = (i128::from(sample.time) - i128::from(grid.start) - 1)
                .div_euclid(i128::from(grid.step));
            if (0..i128::from(grid.columns)).contains(&at) {
                take(at as usize, &sample.value);
            }
        }
    }
}
