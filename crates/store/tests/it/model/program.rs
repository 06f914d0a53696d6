//! Random programs: operations applied to store and evaluator alike, and queries compared.

use std::collections::BTreeSet;
use std::ops::Range;

use hist::codec::header::Temporality::{Cumulative, Delta};
use hist::{Histogram, Mixture, Scheme, TrackedValue};
use journal::{BatchIdentity, Level};
use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use proptest::prelude::*;
use store::{DAY, HOUR, MINUTE, NumberAggregate, Store, TimeColumn, TimeGrid};

use super::comparison::{
    assert_brackets_contain, assert_same_mixtures, assert_same_values, at, grid, ranges,
};
use super::evaluator::{Evaluator, ModelSample, counted_at};
use crate::fixture::StoreFixture;

/// Start of programs: the start of a day.
pub(crate) const BEGIN: i64 = 20_000 * DAY;

/// A random sample.
#[derive(Clone, Debug)]
pub(crate) struct DrawnSample {
    series: usize,
    /// Age of its end, in minutes.
    age_min: i64,
    /// Offset from the minute, in nanoseconds.
    off_ns: i64,
    span_s: i64,
    values: Vec<f64>,
    scheme: u8,
    thresholds: bool,
    /// For cumulative series: 0 resets with a start time, 1 resets without, others grow.
    reset: u8,
    has_start_time: bool,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) enum ModelStep {
    Ingest(u64, Vec<DrawnSample>),
    /// Sends a batch again, unchanged.
    Repeat(usize),
    /// Sends the samples of a batch in a new batch.
    Again(usize),
    Advance(i64),
    Flush,
    Maintain,
    Reopen,
    /// Series, start in minutes before now, duration, and offset in ns.
    Delete(usize, i64, i64, i64),
    /// Series, start in days before today, number of days.
    DeleteDays(usize, i64, i64),
    Check(ModelQuery),
    /// Compares sums in columns that rollups can answer.
    CheckSums,
}

/// A query.
#[derive(Clone, Debug)]
pub(crate) struct ModelQuery {
    series: u16,
    pub(super) step: i64,
    /// Offset of the columns from the day, in nanoseconds.
    pub(super) off_ns: i64,
}

fn draw() -> impl Strategy<Value = DrawnSample> {
    let age = prop_oneof![
        4 => Just(0i64),
        3 => 0i64..60,
        2 => (0i64..60).prop_map(|hours| hours * 60),
        1 => 0i64..4 * 24 * 60,
    ];
    let span = prop_oneof![3 => Just(60), 1 => Just(0), 2 => 1i64..7200, 1 => Just(3600)];
    let value = prop_oneof![
        8 => (1i32..2000).prop_map(f64::from),
        1 => (-50i32..=0).prop_map(f64::from),
        1 => (1i32..40).prop_map(|n| f64::from(n) * 1e6),
    ];
    let off = prop_oneof![6 => Just(0i64), 1 => Just(1), 1 => Just(-1), 1 => -20_000_000_000i64..20_000_000_000];
    (
        (0..series().len(), age, off, span),
        (prop::collection::vec(value, 0..5), 0u8..8, any::<bool>(), 0u8..12, any::<bool>()),
    )
        .prop_map(
            |(
                (series, age_min, off_ns, span_s),
                (values, scheme, thresholds, reset, says_since),
            )| {
                DrawnSample {
                    series,
                    age_min,
                    off_ns,
                    span_s,
                    values,
                    scheme,
                    thresholds,
                    reset,
                    has_start_time: says_since,
                }
            },
        )
}

fn question() -> impl Strategy<Value = ModelQuery> {
    let step = prop_oneof![
        Just(i64::MAX),
        Just(DAY),
        Just(HOUR),
        Just(90 * MINUTE),
        Just(6 * HOUR),
        Just(17 * MINUTE),
        Just(5 * MINUTE),
        10 * MINUTE..3 * DAY,
    ];
    let off = prop_oneof![3 => Just(0i64), 1 => Just(1), 1 => Just(-1), 1 => -DAY..DAY];
    let series = prop_oneof![Just(u16::MAX), any::<u16>(), (0u16..16).prop_map(|at| 1 << at)];
    (series, step, off).prop_map(|(series, step, off_ns)| ModelQuery { series, step, off_ns })
}

/// Operations whose sums rollups can answer; deletions are whole days. For programs with retention.
pub(crate) fn adding_step() -> impl Strategy<Value = ModelStep> {
    // A gauge histogram that is sent again after its rows were dropped counts again.
    let draw = draw().prop_map(|draw| DrawnSample {
        series: [0, 1, 5][draw.series % 3],
        span_s: draw.span_s.max(1),
        ..draw
    });
    prop_oneof![
        12 => (0u64..2, prop::collection::vec(draw, 1..8)).prop_map(|(producer, draws)| ModelStep::Ingest(producer, draws)),
        1 => any::<usize>().prop_map(ModelStep::Again),
        2 => (1i64..120).prop_map(|minutes| ModelStep::Advance(minutes * MINUTE)),
        4 => (1i64..20).prop_map(|hours| ModelStep::Advance(hours * HOUR)),
        3 => Just(ModelStep::Flush),
        6 => Just(ModelStep::Maintain),
        1 => Just(ModelStep::Reopen),
        1 => (0..2usize, 0i64..5, 0i64..3).prop_map(|(which, age, length)| ModelStep::DeleteDays(which, age, length)),
        2 => Just(ModelStep::CheckSums),
    ]
}

/// All operations except retention, which drops what the evaluator keeps.
pub(crate) fn step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        12 => (0u64..2, prop::collection::vec(draw(), 1..12)).prop_map(|(producer, draws)| ModelStep::Ingest(producer, draws)),
        1 => any::<usize>().prop_map(ModelStep::Repeat),
        1 => any::<usize>().prop_map(ModelStep::Again),
        3 => (1i64..120).prop_map(|minutes| ModelStep::Advance(minutes * MINUTE)),
        2 => (1i64..20).prop_map(|hours| ModelStep::Advance(hours * HOUR)),
        1 => (DAY..2 * DAY).prop_map(ModelStep::Advance),
        3 => Just(ModelStep::Flush),
        4 => Just(ModelStep::Maintain),
        1 => Just(ModelStep::Reopen),
        1 => (0..6usize, 0i64..3 * 24 * 60, 0i64..36 * 60, -1i64..2)
            .prop_map(|(which, age, length, off)| ModelStep::Delete(which, age, length, off)),
        3 => question().prop_map(ModelStep::Check),
    ]
}

pub(crate) fn series() -> Vec<Series> {
    let named = |name: &str, kind, host: &str| {
        Series::new(name, kind).with_label("host", host).validate().unwrap()
    };
    vec![
        named("latency", SeriesKind::Histogram(Delta), "a"),
        named("latency", SeriesKind::Histogram(Delta), "b"),
        named("waited", SeriesKind::Histogram(Cumulative), "a"),
        named("waited", SeriesKind::Histogram(Cumulative), "b"),
        named("waited", SeriesKind::Histogram(Cumulative), "c"),
        named("requests", SeriesKind::Counter(Delta), "a"),
        named("bytes", SeriesKind::Counter(Cumulative), "a"),
        named("bytes", SeriesKind::Counter(Cumulative), "b"),
        named("load", SeriesKind::Gauge, "a"),
        named("version", SeriesKind::Text, "a"),
        named("waited", SeriesKind::Histogram(Cumulative), "d"),
    ]
}

/// Number of the series whose histograms have no extremes, as those of most senders.
pub(super) const WITHOUT_EXTREMES: usize = 10;

pub(super) fn without_extremes(histogram: Histogram) -> Histogram {
    let mut parts = histogram.into_parts();
    (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_recorded_parts(parts).unwrap()
}

/// Bucket scheme of a series' histograms: any for deltas; one each for cumulative series, because
/// another scheme is a reset.
fn scheme(series: usize, draw: u8) -> Scheme {
    match (series, draw) {
        (0, 0) => Scheme::LogLinear10,
        (0, 1) | (3, _) => Scheme::explicit(&[0.0, 1.0, 10.0, 100.0, 1000.0]).unwrap(),
        // With bounds in common with the others, and without.
        (0, 4) => Scheme::explicit(&[1.0, 7.0, 100.0]).unwrap(),
        (0, 5) => Scheme::explicit(&[3.0, 500.0]).unwrap(),
        (0, 2 | 3) | (1, 0) => Scheme::exp2(3).unwrap(),
        (4, _) => Scheme::LogLinear10,
        _ => Scheme::default(),
    }
}

/// Current values of a counting process.
#[derive(Clone, Debug)]
struct CountingProcess {
    since: i64,
    histogram: Histogram,
    number: f64,
}

/// A store and its evaluator.
pub(crate) struct ModelRun {
    pub(crate) world: StoreFixture,
    pub(crate) store: Option<Store>,
    pub(crate) evaluator: Evaluator,
    counting: Vec<Option<CountingProcess>>,
    sent: Vec<(BatchIdentity, Vec<(usize, ModelSample)>)>,
    sequences: [u64; 2],
    /// Timestamps of gauge histograms, by series: another histogram of the same timestamp
    /// is rejected, which is a gap.
    points: BTreeSet<(usize, i64)>,
    pub(crate) now: i64,
}

impl ModelRun {
    pub(crate) fn new() -> ModelRun {
        ModelRun::of(StoreFixture::new())
    }

    pub(crate) fn of(world: StoreFixture) -> ModelRun {
        world.set_now(BEGIN);
        let store = Some(world.open().unwrap());
        let series = series();
        let counting = vec![None; series.len()];
        ModelRun {
            world,
            store,
            evaluator: Evaluator::new(series),
            counting,
            sent: Vec::new(),
            sequences: [0; 2],
            points: BTreeSet::new(),
            now: BEGIN,
        }
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    pub(crate) fn advance(&mut self, ns: i64) {
        self.now += ns;
        self.world.set_now(self.now);
    }

    pub(crate) fn reopen(&mut self) {
        self.store = None;
        self.store = Some(self.world.open().unwrap());
    }

    pub(crate) fn step(&mut self, step: &ModelStep) {
        match step {
            ModelStep::Ingest(producer, draws) => {
                let samples = draws.iter().map(|draw| (draw.series, self.sample(draw))).collect();
                self.send(*producer, samples);
            }
            ModelStep::Repeat(which) if !self.sent.is_empty() => {
                let (identity, samples) = self.sent[which % self.sent.len()].clone();
                self.ingest(identity, &samples);
            }
            ModelStep::Again(which) if !self.sent.is_empty() => {
                let (identity, samples) = self.sent[which % self.sent.len()].clone();
                self.send(1 - identity.producer, samples);
            }
            ModelStep::Repeat(_) | ModelStep::Again(_) => {}
            ModelStep::Advance(ns) => self.advance(*ns),
            ModelStep::Flush => self.store().flush().unwrap(),
            ModelStep::Maintain => {
                // Rows rolled up for expiry are dropped in the next run.
                let is_done = (0..4).any(|_| !self.store().maintain().unwrap());
                assert!(is_done, "there is always something to do");
            }
            ModelStep::Reopen => self.reopen(),
            ModelStep::Delete(which, age_min, length_min, off_ns) => {
                let selector = ["latency", "and(host:a)", "waited", "bytes", "load", "*"][*which];
                let start = self.now - age_min * MINUTE + off_ns;
                self.delete(selector, start..start + length_min * MINUTE + off_ns.abs());
            }
            ModelStep::DeleteDays(which, age, days) => {
                let start = self.now - self.now.rem_euclid(DAY) - age * DAY;
                self.delete(["latency", "*"][*which], start..start + days * DAY);
            }
            ModelStep::Check(question) => self.check(question),
            ModelStep::CheckSums => {
                let Some(extent) = self.extent() else { return };
                let start = extent.start - extent.start.rem_euclid(DAY);
                let length = extent.end - start;
                for step in [HOUR, 7 * HOUR, DAY, length + DAY - length % DAY] {
                    let grid =
                        TimeGrid { start, step, columns: (length as u64).div_ceil(step as u64) };
                    self.compare_answers(grid, &[0, 1]);
                    self.compare_answers(grid, &[1]);
                    self.compare_sums(grid, &[5]);
                }
                for step in [MINUTE, 5 * MINUTE] {
                    let columns = DAY / step * (length / DAY + 1).min(step / MINUTE);
                    let grid = TimeGrid { start, step, columns: columns as u64 };
                    [0, 1].iter().for_each(|&series| self.compare_told(grid, series));
                }
            }
        }
    }

    pub(crate) fn delete(&mut self, selector: &str, range: Range<i64>) {
        let selector = Selector::parse(selector).unwrap();
        self.store().delete(&selector, range.clone()).unwrap();
        self.evaluator.delete(&selector, &range);
    }

    /// Ingests samples as the next batch of a producer.
    pub(crate) fn send(&mut self, producer: u64, samples: Vec<(usize, ModelSample)>) {
        let sequence = &mut self.sequences[producer as usize];
        *sequence += 1;
        let identity = BatchIdentity { producer, epoch: 1, sequence: *sequence };
        self.ingest(identity, &samples);
        self.sent.push((identity, samples));
    }

    fn ingest(&mut self, identity: BatchIdentity, samples: &[(usize, ModelSample)]) {
        let mut batch = BatchWriter::default();
        for (series, taken) in samples {
            batch.series(&self.evaluator.series[*series]);
            batch.sample(&taken.sample).unwrap();
        }
        let _ack = self.store().ingest(Some(identity), &batch.finish(), Level::Disk).unwrap();
        self.evaluator.ingest(identity, samples);
    }

    fn sample(&mut self, draw: &DrawnSample) -> ModelSample {
        let end = self.now - draw.age_min * MINUTE + draw.off_ns;
        let start = end - draw.span_s * 1_000_000_000;
        let kind = self.evaluator.series[draw.series].kind();
        let scheme = scheme(draw.series, draw.scheme);
        let mut histogram = Histogram::new(scheme);
        if draw.thresholds {
            histogram = histogram.with_thresholds(&[10.0, 500.0]).unwrap();
        }
        draw.values.iter().for_each(|&value| histogram.record(value));
        let number = draw.values.first().copied().unwrap_or(0.0);
        let mut taken = ModelSample {
            sample: Sample { start, end, value: SampleValue::Number(number) },
            values: vec![],
        };
        let sample = &mut taken.sample;
        if kind.is_cumulative() {
            let counting = &mut self.counting[draw.series];
            let counting = match counting {
                Some(counting) if draw.reset > 1 => {
                    counting.histogram.merge(&histogram).unwrap();
                    counting.number += number.abs();
                    counting
                }
                _ => counting.insert(CountingProcess {
                    since: start,
                    histogram: histogram.clone(),
                    number: number.abs(),
                }),
            };
            let says_since = draw.has_start_time && draw.reset != 1 && counting.since < end;
            sample.start = if says_since { counting.since } else { end };
            sample.value = match kind {
                SeriesKind::Histogram(_) => {
                    let histogram = counting.histogram.clone();
                    let histogram = match draw.series {
                        WITHOUT_EXTREMES => without_extremes(histogram),
                        _ => histogram,
                    };
                    SampleValue::Histogram(Box::new(histogram))
                }
                _ => SampleValue::Number(counting.number),
            };
            return taken;
        }
        match kind {
            SeriesKind::Histogram(_) => {
                if sample.start == end && !self.points.insert((draw.series, end)) {
                    sample.start -= MINUTE;
                }
                sample.value = SampleValue::Histogram(Box::new(histogram));
                taken.values.clone_from(&draw.values);
            }
            SeriesKind::Text => sample.value = SampleValue::Text(format!("v{number}")),
            SeriesKind::Gauge if draw.scheme == 0 => sample.value = SampleValue::Number(f64::NAN),
            _ => {}
        }
        taken
    }

    /// Time range of the evaluator's samples.
    pub(crate) fn extent(&self) -> Option<Range<i64>> {
        let timestamps =
            || self.evaluator.samples.iter().flatten().map(|taken| counted_at(taken.sample.end));
        Some(timestamps().min()?..timestamps().max()? + 1)
    }

    pub(crate) fn check(&self, question: &ModelQuery) {
        let Some(extent) = self.extent() else { return };
        let grid = grid(question, extent);
        let chosen: Vec<usize> =
            (0..self.evaluator.series.len()).filter(|at| question.series >> at & 1 == 1).collect();
        self.compare(grid, &chosen);
    }

    /// Compares everything for these series.
    pub(crate) fn compare(&self, grid: TimeGrid, chosen: &[usize]) {
        let of = |is: fn(SeriesKind) -> bool| -> Vec<usize> {
            let series = &self.evaluator.series;
            chosen.iter().copied().filter(|&at| is(series[at].kind())).collect()
        };
        self.compare_histograms(grid, &of(|kind| matches!(kind, SeriesKind::Histogram(_))));
        self.compare_numbers(
            grid,
            &of(|kind| matches!(kind, SeriesKind::Counter(_) | SeriesKind::Gauge)),
        );
        for &series in chosen {
            self.compare_samples(grid.range(), series);
        }
    }

    /// Compares columns only: base rows may have expired.
    pub(crate) fn compare_answers(&self, grid: TimeGrid, series: &[usize]) {
        match self.evaluator.series[series[0]].kind() {
            SeriesKind::Histogram(_) => self.compare_histograms(grid, series),
            _ => self.compare_numbers(grid, series),
        }
    }

    /// Compares sums of numbers only: their counts are unknown once base rows are dropped.
    pub(crate) fn compare_sums(&self, grid: TimeGrid, series: &[usize]) {
        let view = self.store().view().unwrap();
        let found = self.find_series(series, &view);
        let expected = self.evaluator.summaries(series, &ranges(grid));
        let answer = view.numbers(&found, grid).unwrap();
        let sum = |value: Option<NumberAggregate>| value.map(|value| value.sum.value());
        for (column, expected) in answer.zip(expected) {
            let column = column.unwrap();
            assert_eq!(sum(column.value), sum(expected), "{} of {grid:?}", at(column.start));
        }
    }

    /// Checks that columns of a series are correct or report a gap.
    fn compare_told(&self, grid: TimeGrid, series: usize) {
        let view = self.store().view().unwrap();
        let found = self.find_series(&[series], &view);
        let values = self.evaluator.values(&[series], &ranges(grid));
        for (column, values) in view.histograms(&found, grid).unwrap().zip(&values) {
            let column = column.unwrap();
            let is_right = column.value.count() == values.len() as u64;
            let place = at(column.start);
            assert!(is_right || !column.gaps.is_empty(), "{place} of {grid:?}, series {series}");
        }
    }

    fn find_series(&self, series: &[usize], view: &store::ReadView) -> Vec<store::SeriesEntryRef> {
        let all = view.select(&Selector::All);
        let wanted = series.iter().map(|&at| &self.evaluator.series[at]);
        wanted
            .filter_map(|wanted| all.iter().find(|found| *found.series == *wanted).cloned())
            .collect()
    }

    fn compare_histograms(&self, grid: TimeGrid, series: &[usize]) {
        let view = self.store().view().unwrap();
        let found = self.find_series(series, &view);
        let columns = ranges(grid);
        let answer: Vec<TimeColumn<Mixture>> =
            view.histograms(&found, grid).unwrap().collect::<store::Result<_>>().unwrap();
        let expected = self.evaluator.mixtures(series, &columns);
        let values = self.evaluator.values(series, &columns);
        let are_delta = series
            .iter()
            .all(|&at| self.evaluator.series[at].kind() == SeriesKind::Histogram(Delta));
        assert_eq!(answer.len(), expected.len());
        for ((column, expected), values) in answer.iter().zip(&expected).zip(&values) {
            let place = || {
                format!(
                    "column {} to {} of {grid:?}, series {series:?}",
                    at(column.start),
                    at(column.end)
                )
            };
            assert_eq!(column.gaps, [], "{}", place());
            assert_same_mixtures(&column.value, expected, are_delta, &place);
            if are_delta {
                assert_brackets_contain(&column.value, values, &place);
            }
        }
    }

    fn compare_numbers(&self, grid: TimeGrid, series: &[usize]) {
        let view = self.store().view().unwrap();
        let found = self.find_series(series, &view);
        let columns = ranges(grid);
        let answer: Vec<TimeColumn<Option<NumberAggregate>>> =
            view.numbers(&found, grid).unwrap().collect::<store::Result<_>>().unwrap();
        let expected = self.evaluator.summaries(series, &columns);
        assert_eq!(answer.len(), expected.len());
        for (column, expected) in answer.iter().zip(&expected) {
            let place = || {
                format!(
                    "column {} to {} of {grid:?}, series {series:?}",
                    at(column.start),
                    at(column.end)
                )
            };
            assert_eq!(column.gaps, [], "{}", place());
            let known = |summary: &Option<NumberAggregate>| {
                summary.map(|s| match series.len() {
                    1 => s,
                    // The first of several series is undefined.
                    _ => NumberAggregate { first: 0.0, last: 0.0, ..s },
                })
            };
            assert_eq!(known(&column.value), known(expected), "{}", place());
        }
    }

    fn compare_samples(&self, range: Range<i64>, series: usize) {
        let view = self.store().view().unwrap();
        let mut samples: Vec<Sample> = Vec::new();
        for found in self.find_series(&[series], &view) {
            let gaps =
                view.samples(&found, range.clone(), &mut |sample| samples.push(sample)).unwrap();
            assert_eq!(gaps, []);
        }
        let mut expected = self.evaluator.settled_samples(series);
        expected.retain(|row| range.contains(&counted_at(row.end)));
        let mut at = 0;
        for row in expected {
            let of_row: Vec<&SampleValue> = samples[at..]
                .iter()
                .take_while(|sample| (sample.start, sample.end) == (row.start, row.end))
                .map(|sample| &sample.value)
                .collect();
            at += of_row.len();
            assert_same_values(&of_row, &row.values, &|| format!("{row:?} of series {series}"));
        }
        assert_eq!(samples[at..], [], "samples of series {series} that were not sent");
    }
}
