//! A source in memory with anything in it that a source can say, out of choices: numbers that are none, marks,
//! counts of all kinds, moments at both ends of time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality::{Cumulative, Delta};
use hist::{Histogram, Mixture, Scheme};
use model::{Kind, Selector, Series};
use query::{
    FloatHistogram, Grid, Handle, Labels, NAME, Read, Reading, ResetHint, Result, STALE_BITS,
    Source, Value,
};
use store::Summary;

use super::choice::Choice;
use super::words::NAMES;

/// Series with readings.
pub(crate) struct Wild {
    series: Vec<(Series, Vec<Reading>)>,
}

const SECOND: i64 = 1_000_000_000;

const BEGINS: [i64; 8] =
    [0, 0, 0, 1_700_000_000 * SECOND, -1_000 * SECOND, i64::MIN, i64::MAX - 600 * SECOND, 12_345];
const STEPS: [i64; 8] =
    [15 * SECOND, 15 * SECOND, 15 * SECOND, SECOND, 60 * SECOND, 1, 7_000_001, 3600 * SECOND];

impl Wild {
    /// Around when things are measured.
    pub(crate) fn begin(choice: &mut Choice<'_>) -> i64 {
        choice.of(&BEGINS)
    }

    pub(crate) fn new(choice: &mut Choice<'_>, begin: i64) -> Wild {
        let mut series: BTreeMap<(String, String, bool), (Series, Vec<Reading>)> = BTreeMap::new();
        for _ in 0..choice.of(&[12, 9, 6, 4, 3, 2, 1, 0]) {
            let name = choice.of(&NAMES);
            let kind = match (name, choice.below(8)) {
                ("latency", 0..=5) => Kind::Histogram(Delta),
                ("waited", 0..=5) => Kind::Histogram(Cumulative),
                ("requests", 0..=5) => Kind::Counter(Delta),
                ("bytes_total" | "old_bucket", 0..=5) => Kind::Counter(Cumulative),
                (_, 6) => Kind::Histogram(Cumulative),
                (_, 7) => Kind::Histogram(Delta),
                _ => Kind::Gauge,
            };
            let mut labels = vec![("host", choice.of(&["a", "b", "c"]))];
            if choice.one_in(3) {
                labels.push(("zone", choice.of(&["x", "y"])));
            }
            if name == "old_bucket" {
                labels.push(("le", choice.of(&["0.1", "1", "10", "+Inf", "nought"])));
            }
            if name == "target_info" || choice.one_in(8) {
                labels.extend([("instance", choice.of(&["i", "j"])), ("job", "k")]);
            }
            let mut own = Series::new(name, kind).with_unit(choice.of(&["", "s", "ns"]));
            own = labels.iter().fold(own, |series, (name, value)| series.with_label(*name, *value));
            let readings = readings(choice, kind, begin);
            let is_histogram = matches!(kind, Kind::Histogram(_));
            series.insert((name.to_owned(), format!("{labels:?}"), is_histogram), (own, readings));
        }
        Wild { series: series.into_values().collect() }
    }
}

fn readings(choice: &mut Choice<'_>, kind: Kind, begin: i64) -> Vec<Reading> {
    let step = choice.of(&STEPS);
    let mut readings = Vec::new();
    let mut time = begin.saturating_add(choice.below(5) as i64 * SECOND);
    let mut total = 0.0;
    for _ in 0..choice.of(&[12, 10, 8, 6, 4, 2, 1, 0]) {
        time = time.saturating_add(step.saturating_mul(1 + choice.below(3) as i64));
        let start = match choice.below(4) {
            0 => time,
            1 => time.saturating_sub(step),
            2 => begin,
            _ => time.saturating_sub(2 * step),
        };
        let is_mixed = choice.one_in(20);
        let value = match kind {
            Kind::Histogram(Delta) if !is_mixed => Value::Distribution(Arc::new(mixture(choice))),
            Kind::Histogram(_) => Value::Histogram(Arc::new(histogram(choice))),
            _ if is_mixed => Value::Histogram(Arc::new(histogram(choice))),
            _ => {
                total += choice.below(100) as f64;
                Value::Number(if choice.one_in(3) { number(choice) } else { total })
            }
        };
        readings.push(Reading { start: Some(start).filter(|start| *start < time), time, value });
    }
    readings.dedup_by_key(|reading| reading.time);
    readings
}

fn number(choice: &mut Choice<'_>) -> f64 {
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

fn scheme(choice: &mut Choice<'_>) -> Scheme {
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

fn recorded(choice: &mut Choice<'_>) -> Histogram {
    let mut histogram = Histogram::new(scheme(choice));
    for _ in 0..choice.below(6) {
        let value = number(choice);
        let n = choice.of(&[1, 1, 1, 2, 1 << 40, 1 << 60]);
        histogram.record_n(value, n);
    }
    histogram
}

fn mixture(choice: &mut Choice<'_>) -> Mixture {
    let mut mixture = Mixture::default();
    for _ in 0..1 + choice.below(3) / 2 {
        // More than 2^64 values are refused.
        let _ = mixture.add(&recorded(choice));
    }
    mixture
}

fn histogram(choice: &mut Choice<'_>) -> FloatHistogram {
    let hint =
        choice.of(&[ResetHint::Unknown, ResetHint::Gauge, ResetHint::Reset, ResetHint::NotReset]);
    if choice.below(3) > 0 {
        return FloatHistogram { hint, ..FloatHistogram::from(&recorded(choice)) };
    }
    let grid = match choice.below(4) {
        0 | 1 => Grid::Exponential(choice.below(13) as i32 - 4),
        2 => Grid::Custom([-1.0, 0.5, 3.0].into()),
        _ => Grid::Native(scheme(choice)),
    };
    let is_custom = matches!(grid, Grid::Custom(_));
    let mut counts = |least: i32, most: i32| {
        let mut counts = BTreeMap::new();
        for _ in 0..choice.below(4) {
            let index = least + choice.below((most - least) as usize + 1) as i32;
            let count = choice.of(&[1.0, 0.25, 3.0, 1e300, -2.0]);
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
    let zero_threshold = if is_custom { 0.0 } else { choice.of(&[0.0, 1e-128, 0.5]) };
    FloatHistogram { grid, zero_threshold, zero_count, count, sum, positive, negative, hint }
}

impl Source for Wild {
    fn select(&self, selector: &Selector) -> Result<Vec<Handle>> {
        let picked = self.series.iter().enumerate().filter(|(_, held)| selector.matches(&held.0));
        let handle = |(key, (series, _)): (usize, &(Series, _))| {
            let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = Labels::new(pairs.chain([(NAME, series.name())]));
            Handle { labels, kind: series.kind(), unit: series.unit().to_owned(), key }
        };
        Ok(picked.map(handle).collect())
    }

    fn extent(&self, series: &[Handle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        let times = series.iter().flat_map(|handle| &self.series[handle.key].1).map(|of| of.time);
        let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { return Ok(None) };
        let (start, end) = (range.start.max(first.saturating_sub(1)), range.end.min(last));
        Ok((start < end).then_some(start..end))
    }

    fn readings(&self, series: &Handle, range: Range<i64>) -> Result<Read<Reading>> {
        let readings = &self.series[series.key].1;
        let is_in = |reading: &&Reading| range.start < reading.time && reading.time <= range.end;
        Ok(Read { values: readings.iter().filter(is_in).cloned().collect(), gaps: Vec::new() })
    }

    fn histograms(&self, series: &[&Handle], grid: store::Grid) -> Result<Read<Mixture>> {
        let mut values = vec![Mixture::default(); grid.columns as usize];
        self.each(series, grid, |at, value| {
            if let Value::Distribution(mixture) = value {
                for part in mixture.parts() {
                    let _ = values[at].add(part);
                }
            }
        });
        Ok(Read { values, gaps: Vec::new() })
    }

    fn numbers(&self, series: &[&Handle], grid: store::Grid) -> Result<Read<Option<Summary>>> {
        let mut values: Vec<Option<Summary>> = vec![None; grid.columns as usize];
        self.each(series, grid, |at, value| {
            if let Value::Number(number) = value {
                match &mut values[at] {
                    Some(sum) => sum.add(&Summary::of(*number)),
                    empty => *empty = Some(Summary::of(*number)),
                }
            }
        });
        Ok(Read { values, gaps: Vec::new() })
    }
}

impl Wild {
    fn each(&self, series: &[&Handle], grid: store::Grid, mut take: impl FnMut(usize, &Value)) {
        for reading in series.iter().flat_map(|handle| &self.series[handle.key].1) {
            let at = (i128::from(reading.time) - i128::from(grid.start) - 1)
                .div_euclid(i128::from(grid.step));
            if (0..i128::from(grid.columns)).contains(&at) {
                take(at as usize, &reading.value);
            }
        }
    }
}
