//! Rows: values for time intervals.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram};
use model::SeriesKind;

use crate::cumulative_value::CumulativeValue;

/// A value for the interval from `start` to `end`, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<T> {
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Value.
    pub value: T,
}

impl<T> Row<T> {
    /// Sort key of rows: end, then start.
    pub(crate) fn time(&self) -> (i64, i64) {
        (self.end, self.start)
    }
}

/// Summary of numbers: count, sum, min, max, first, last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberAggregate {
    /// Number of values.
    pub count: u64,
    /// Number of NaN values; the other fields exclude them.
    pub nan: u64,
    /// Sum, computed as with 100 bits.
    pub sum: DoubleDouble,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Earliest value.
    pub first: f64,
    /// Latest value.
    pub last: f64,
}

impl NumberAggregate {
    /// Summary of no number.
    pub(crate) const EMPTY: NumberAggregate = NumberAggregate {
        count: 0,
        nan: 0,
        sum: DoubleDouble::ZERO,
        min: 0.0,
        max: 0.0,
        first: 0.0,
        last: 0.0,
    };

    /// Summary of one number.
    pub fn of_number(value: f64) -> NumberAggregate {
        if value.is_nan() {
            return NumberAggregate { nan: 1, ..NumberAggregate::EMPTY };
        }
        let sum = DoubleDouble::new(value);
        NumberAggregate { count: 1, nan: 0, sum, min: value, max: value, first: value, last: value }
    }

    /// Adds numbers of the same time or later.
    pub fn add(&mut self, later: &NumberAggregate) {
        let nan = self.nan.saturating_add(later.nan);
        if self.count == 0 {
            *self = *later;
        } else if later.count > 0 {
            self.count = self.count.saturating_add(later.count);
            self.sum = self.sum.plus(later.sum);
            self.min = lesser(self.min, later.min);
            self.max = -lesser(-self.max, -later.max);
            self.last = later.last;
        }
        self.nan = nan;
    }

    /// The numbers divided by one, each quotient rounded once.
    #[must_use]
    pub fn divide(&self, divisor: f64) -> NumberAggregate {
        NumberAggregate {
            sum: DoubleDouble::new(self.sum.value() / divisor),
            min: self.min / divisor,
            max: self.max / divisor,
            first: self.first / divisor,
            last: self.last / divisor,
            ..*self
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.nan == 0
    }

    /// Mean; `None` if empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.value() / self.count as f64)
    }
}

/// The smaller of two numbers other than NaN; −0 is smaller than 0, so the result is independent of
/// order.
fn lesser(a: f64, b: f64) -> f64 {
    if a.total_cmp(&b).is_le() { a } else { b }
}

/// Predecessor of the first cumulative sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Predecessor {
    /// Unknown: it may have been dropped.
    Unknown,
    /// None: the sample is the first of its series.
    Nothing,
    /// The previous sample, as the only row.
    Sample(Rows),
}

impl Predecessor {
    /// End and start, if known.
    pub(crate) fn time(&self) -> Option<(i64, i64)> {
        match self {
            Predecessor::Sample(row) => row.first_time(),
            _ => None,
        }
    }

    /// Row of the predecessor.
    pub(crate) fn into_sample(self) -> Option<Rows> {
        match self {
            Predecessor::Sample(row) => Some(row),
            _ => None,
        }
    }
}

/// Whether a row, by its start and end, is a gauge value on the boundary between two
/// intervals of `period`. It is stored in the earlier interval; reads that assign it to the later
/// interval must find it, so rollups keep it separate.
pub(crate) fn is_between_intervals((start, end): (i64, i64), period: i64) -> bool {
    start == end && end.rem_euclid(period) == 0
}

/// Rows of one series of any kind, by time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rows {
    /// Histograms of intervals.
    Histograms(Vec<Row<Histogram>>),
    /// Histograms cumulative since a start.
    Cumulative(Vec<Row<Histogram>>),
    Numbers(Vec<Row<f64>>),
    Aggregates(Vec<Row<NumberAggregate>>),
    Texts(Vec<Row<String>>),
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Rows::Histograms(rows) | Rows::Cumulative(rows) => rows.len(),
            Rows::Numbers(rows) => rows.len(),
            Rows::Aggregates(rows) => rows.len(),
            Rows::Texts(rows) => rows.len(),
        }
    }

    pub(crate) fn times(&self) -> Vec<(i64, i64)> {
        fn of<T>(rows: &[Row<T>]) -> Vec<(i64, i64)> {
            rows.iter().map(|row| (row.start, row.end)).collect()
        }
        match self {
            Rows::Histograms(rows) | Rows::Cumulative(rows) => of(rows),
            Rows::Numbers(rows) => of(rows),
            Rows::Aggregates(rows) => of(rows),
            Rows::Texts(rows) => of(rows),
        }
    }

    /// End and start of the first row.
    pub(crate) fn first_time(&self) -> Option<(i64, i64)> {
        match self {
            Rows::Histograms(rows) | Rows::Cumulative(rows) => rows.first().map(Row::time),
            Rows::Numbers(rows) => rows.first().map(Row::time),
            Rows::Aggregates(rows) => rows.first().map(Row::time),
            Rows::Texts(rows) => rows.first().map(Row::time),
        }
    }

    /// The first sample of a cumulative series that has a value, as the only row. The rows are
    /// normalized.
    pub(crate) fn first_sample(&self) -> Option<Rows> {
        fn of<T: CumulativeValue>(rows: &[Row<T>]) -> Option<Vec<Row<T>>> {
            rows.iter().find(|row| row.value.is_amount()).map(|row| vec![row.clone()])
        }
        match self {
            Rows::Cumulative(rows) => of(rows).map(Rows::Cumulative),
            Rows::Numbers(rows) => of(rows).map(Rows::Numbers),
            _ => None,
        }
    }

    /// A rollup row without values for each sample of a cumulative series that has one: after the
    /// sample is dropped, it tells that there was a sample whose increase is unknown.
    pub(crate) fn empty_rollups(&self) -> Rows {
        fn of<T: CumulativeValue, R>(rows: &[Row<T>], empty: impl Fn(&T) -> R) -> Vec<Row<R>> {
            let empty = |row: &Row<T>| {
                // It is not a point between two intervals.
                let start = row.end.saturating_sub(1);
                Row { start, end: row.end, value: empty(&row.value) }
            };
            rows.iter().filter(|row| row.value.is_amount()).map(empty).collect()
        }
        match self {
            Rows::Cumulative(rows) => {
                Rows::Histograms(of(rows, |value| Histogram::new(value.scheme().clone())))
            }
            Rows::Numbers(rows) => Rows::Aggregates(of(rows, |_| NumberAggregate::EMPTY)),
            other => panic!("BUG: {other:?} are not cumulative"),
        }
    }

    /// Numbers as summaries of one number each; other rows as they are.
    pub(crate) fn into_summaries(self) -> Rows {
        let summary = |row: Row<f64>| Row {
            start: row.start,
            end: row.end,
            value: NumberAggregate::of_number(row.value),
        };
        match self {
            Rows::Numbers(rows) => Rows::Aggregates(rows.into_iter().map(summary).collect()),
            rows => rows,
        }
    }

    /// The last sample of a cumulative series that ended by `time` and has a value, as the only
    /// row. The rows are normalized.
    pub(crate) fn last_sample(&self, time: i64) -> Option<Rows> {
        fn of<T: CumulativeValue>(rows: &[Row<T>], time: i64) -> Option<Vec<Row<T>>> {
            let ended = rows.partition_point(|row| row.end <= time);
            rows[..ended].iter().rfind(|row| row.value.is_amount()).map(|row| vec![row.clone()])
        }
        match self {
            Rows::Cumulative(rows) => of(rows, time).map(Rows::Cumulative),
            Rows::Numbers(rows) => of(rows, time).map(Rows::Numbers),
            other => panic!("BUG: {other:?} are not cumulative"),
        }
    }

    /// Appends rows of the same kind, unsorted.
    pub(crate) fn append(&mut self, more: Rows) {
        match (self, more) {
            (Rows::Histograms(rows), Rows::Histograms(more)) => rows.extend(more),
            (Rows::Cumulative(rows), Rows::Cumulative(more)) => rows.extend(more),
            (Rows::Numbers(rows), Rows::Numbers(more)) => rows.extend(more),
            (Rows::Aggregates(rows), Rows::Aggregates(more)) => rows.extend(more),
            (Rows::Texts(rows), Rows::Texts(more)) => rows.extend(more),
            (ours, theirs) => panic!("BUG: rows of a series are {ours:?} and {theirs:?}"),
        }
    }

    /// Number of values in histograms, or of numbers in summaries.
    pub(crate) fn amount(&self) -> u128 {
        match self {
            Rows::Histograms(rows) => rows
                .iter()
                .map(|row| {
                    u128::from(row.value.count()).saturating_add(row.value.nan_count().into())
                })
                .sum(),
            Rows::Aggregates(rows) => rows
                .iter()
                .map(|row| u128::from(row.value.count).saturating_add(row.value.nan.into()))
                .sum(),
            other => panic!("BUG: {other:?} are neither deltas nor rollups"),
        }
    }

    /// Empty base rows for a series of that kind.
    pub(crate) fn empty_for(kind: SeriesKind) -> Rows {
        match kind {
            SeriesKind::Histogram(Temporality::Cumulative) => Rows::Cumulative(Vec::new()),
            SeriesKind::Histogram(Temporality::Delta) => Rows::Histograms(Vec::new()),
            SeriesKind::Counter(_) | SeriesKind::Gauge => Rows::Numbers(Vec::new()),
            SeriesKind::Text => Rows::Texts(Vec::new()),
        }
    }

    /// Empty rollup rows for a series of that kind.
    pub(crate) fn none_of_rollup(kind: SeriesKind) -> Rows {
        match kind {
            SeriesKind::Histogram(_) => Rows::Histograms(Vec::new()),
            _ => Rows::Aggregates(Vec::new()),
        }
    }

    /// A copy of the rows for which `keep` holds, by start and end.
    pub(crate) fn filtered(&self, keep: impl Fn(i64, i64) -> bool) -> Rows {
        fn of<T: Clone>(rows: &[Row<T>], keep: impl Fn(i64, i64) -> bool) -> Vec<Row<T>> {
            rows.iter().filter(|row| keep(row.start, row.end)).cloned().collect()
        }
        match self {
            Rows::Histograms(rows) => Rows::Histograms(of(rows, keep)),
            Rows::Cumulative(rows) => Rows::Cumulative(of(rows, keep)),
            Rows::Numbers(rows) => Rows::Numbers(of(rows, keep)),
            Rows::Aggregates(rows) => Rows::Aggregates(of(rows, keep)),
            Rows::Texts(rows) => Rows::Texts(of(rows, keep)),
        }
    }

    /// Retains rows for which `keep` holds, by start and end.
    pub(crate) fn retain(&mut self, keep: impl Fn(i64, i64) -> bool) {
        match self {
            Rows::Histograms(rows) | Rows::Cumulative(rows) => {
                rows.retain(|row| keep(row.start, row.end));
            }
            Rows::Numbers(rows) => rows.retain(|row| keep(row.start, row.end)),
            Rows::Aggregates(rows) => rows.retain(|row| keep(row.start, row.end)),
            Rows::Texts(rows) => rows.retain(|row| keep(row.start, row.end)),
        }
    }

    /// Sorts by time and combines rows of the same time: interval counts add up; of two conflicting
    /// values the greater stays. The result is independent of the order of arrival.
    pub(crate) fn normalize(&mut self, kind: SeriesKind) {
        let adds = kind == SeriesKind::Counter(Temporality::Delta);
        match self {
            Rows::Histograms(rows) => {
                rows.sort_by(|a, b| row_order((a.time(), &a.value), (b.time(), &b.value)));
                let mut normalized: Vec<Row<Histogram>> = Vec::with_capacity(rows.len());
                for row in rows.drain(..) {
                    if !merge_into_rows(&mut normalized, row.time(), &row.value) {
                        normalized.push(row);
                    }
                }
                *rows = normalized;
            }
            Rows::Cumulative(rows) => {
                rows.sort_by(|a, b| {
                    a.time().cmp(&b.time()).then_with(|| rank(&a.value).cmp(&rank(&b.value)))
                });
                dedup(rows, |normalized, row| {
                    normalized.value = row.value.clone();
                    true
                });
            }
            Rows::Numbers(rows) => {
                rows.sort_by(|a, b| a.time().cmp(&b.time()).then(a.value.total_cmp(&b.value)));
                dedup(rows, |normalized, row| {
                    normalized.value = if adds { normalized.value + row.value } else { row.value };
                    true
                });
            }
            Rows::Aggregates(rows) => {
                rows.sort_by_key(Row::time);
                dedup(rows, |normalized, row| {
                    normalized.value.add(&row.value);
                    true
                });
            }
            Rows::Texts(rows) => {
                rows.sort_by(|a, b| a.time().cmp(&b.time()).then_with(|| a.value.cmp(&b.value)));
                rows.dedup();
            }
        }
    }
}

/// Merges a histogram into another if their bucket schemes nest and no explicit bound is lost: as
/// [`hist::Mixture`] does, so that rollups change no answer. An empty histogram is ignored: its
/// coarser scheme would otherwise show in rollups only.
fn merge_into(target: &mut Histogram, more: &Histogram) -> bool {
    let is_nothing = |histogram: &Histogram| histogram.is_empty() && histogram.nan_count() == 0;
    if is_nothing(more) {
        return true;
    }
    if is_nothing(target) {
        target.clone_from(more);
        return true;
    }
    target.shares_layout(more) && target.merge(more).is_ok()
}

/// Order of rows of histograms, by time and layout.
pub(crate) fn row_order(
    a: ((i64, i64), &Histogram),
    b: ((i64, i64), &Histogram),
) -> std::cmp::Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.layout_order(b.1))
}

/// Merges a histogram into the row of its time that can take it; `rows` are in [`row_order`], and
/// the histogram is not before them. So of any number of explicit layouts, only the last row may
/// have that of the histogram. Returns whether there is such a row.
pub(crate) fn merge_into_rows(
    rows: &mut [Row<Histogram>],
    time: (i64, i64),
    more: &Histogram,
) -> bool {
    let candidates = if more.scheme().is_explicit() { 1 } else { usize::MAX };
    let same = rows.iter_mut().rev().take_while(|held| held.time() == time);
    same.take(candidates).any(|held| merge_into(&mut held.value, more))
}

/// Precedence of two cumulative histograms of one time: the one with the higher count wins.
fn rank(histogram: &Histogram) -> (u64, Vec<u8>) {
    let mut bytes = Vec::new();
    hist::codec::frame::encode(histogram, Default::default(), &mut bytes);
    (histogram.count(), bytes)
}

/// Joins neighbours of the same time where `join` can.
fn dedup<T>(rows: &mut Vec<Row<T>>, mut join: impl FnMut(&mut Row<T>, &Row<T>) -> bool) {
    rows.dedup_by(|row, kept| kept.time() == row.time() && join(kept, row));
}
