//! The slow way: all rows of a series, and what happened between them, worked out anew for each
//! question.

use std::ops::Range;

/// Buckets of the histograms that are sent: those up to 1, 2, 4, 8, 16 and 32, zero, and those from
/// -1 and from -2 on.
pub(super) const BUCKETS: usize = POSITIVE + 1 + NEGATIVE;
pub(super) const POSITIVE: usize = 6;
pub(super) const NEGATIVE: usize = 2;
pub(super) const ZERO: usize = POSITIVE;

/// Values per bucket; of a number, the number alone.
pub(super) type ModelCounts = [u64; BUCKETS];

/// What a series holds, and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelKind {
    /// Prometheus remote write.
    Gauge,
    /// Influx lines.
    Lines,
    /// HTTPTrap, with times.
    Httptrap,
    /// StatsD, counts with times.
    Statsd,
    /// Prometheus remote write.
    Counter,
    /// Native histograms that grow, by remote write.
    Native,
    /// Native histograms of a moment, by remote write.
    Points,
    /// OTLP, delta.
    Delta,
    /// OTLP, cumulative, with a start.
    Cumulative,
    /// A counter whose name does not say so: remote write 1 has it as a gauge, version 2 says what
    /// it is.
    Retyped,
}

impl ModelKind {
    pub(super) const ALL: [ModelKind; 10] = [
        ModelKind::Gauge,
        ModelKind::Lines,
        ModelKind::Httptrap,
        ModelKind::Statsd,
        ModelKind::Counter,
        ModelKind::Native,
        ModelKind::Points,
        ModelKind::Delta,
        ModelKind::Cumulative,
        ModelKind::Retyped,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ModelKind::Gauge => "depth",
            ModelKind::Lines => "temperature",
            ModelKind::Httptrap => "pressure",
            ModelKind::Statsd => "hits",
            ModelKind::Counter => "requests_total",
            ModelKind::Native => "native_duration",
            ModelKind::Points => "queue_age",
            ModelKind::Delta => "delta_duration",
            ModelKind::Cumulative => "cumulative_duration",
            ModelKind::Retyped => "served",
        }
    }

    pub(super) fn is_gauge(self) -> bool {
        matches!(self, ModelKind::Gauge | ModelKind::Lines | ModelKind::Httptrap)
    }

    pub(super) fn is_cumulative(self) -> bool {
        matches!(
            self,
            ModelKind::Counter | ModelKind::Native | ModelKind::Cumulative | ModelKind::Retyped
        )
    }

    /// What happened between two sends, which adds up however often it is sent.
    pub(super) fn is_delta(self) -> bool {
        matches!(self, ModelKind::Delta | ModelKind::Statsd)
    }

    pub(super) fn is_histogram(self) -> bool {
        !self.is_gauge()
            && !matches!(self, ModelKind::Counter | ModelKind::Statsd | ModelKind::Retyped)
    }

    /// Prometheus' native histograms: of several schemas, with zero and negative buckets.
    pub(super) fn is_native(self) -> bool {
        matches!(self, ModelKind::Native | ModelKind::Points)
    }

    /// OTLP's histograms, whose sender chooses the buckets anew now and then.
    pub(super) fn is_otlp(self) -> bool {
        matches!(self, ModelKind::Delta | ModelKind::Cumulative)
    }

    /// Whether its sender says when a series ends.
    pub(super) fn has_stale_marks(self) -> bool {
        matches!(self, ModelKind::Gauge | ModelKind::Counter | ModelKind::Native)
    }
}

/// One row; `start` is its end where the sender says none. Times are nanoseconds since the Unix
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelRow {
    pub(super) end: i64,
    pub(super) start: i64,
    pub(super) counts: ModelCounts,
    /// Of a native histogram: there are 2^schema buckets for each power of two. Of another one its
    /// buckets: [`FINE`], [`COARSE`] or [`EXPONENTIAL`]. Of a number: [`COUNTER`] if its sender
    /// calls it that.
    pub(super) schema: u32,
    /// It says that the series ended, and nothing else.
    pub(super) is_stale_mark: bool,
}

/// A classic histogram with a bound at each power of two.
pub(super) const FINE: u32 = 0;
/// A classic one with bounds at 2, 8 and 32: each of its buckets is two of the fine ones.
pub(super) const COARSE: u32 = 1;
/// A native histogram in OTLP's words, with a bucket for each power of two.
pub(super) const EXPONENTIAL: u32 = 2;

pub(super) const COUNTER: u32 = 1;

/// All rows of one series.
#[derive(Clone, Debug)]
pub(super) struct SeriesModel {
    pub(super) kind: ModelKind,
    pub(super) rows: Vec<ModelRow>,
}

/// What happened up to a moment.
pub(super) type CumulativeCounts = (i64, ModelCounts);

pub(super) fn sum(counts: &ModelCounts) -> u64 {
    counts.iter().sum()
}

/// Counts of fine buckets as the coarse ones have them; those at zero and below stay.
pub(super) fn coarse(counts: &ModelCounts) -> ModelCounts {
    let mut coarse = *counts;
    for pair in coarse[..POSITIVE].chunks_exact_mut(2) {
        pair[1] += std::mem::take(&mut pair[0]);
    }
    coarse
}

/// What was added; nothing if it began anew: it has less, or buckets into which those before it do
/// not fold, which Prometheus takes for a reset too.
fn delta(kind: ModelKind, after: &ModelRow, before: &ModelRow) -> Option<ModelCounts> {
    let before_counts = match (kind.is_otlp(), after.schema, before.schema) {
        (_, schema, other) if schema == other => before.counts,
        (false, schema, finer) if schema < finer => before.counts,
        (true, COARSE, FINE) => coarse(&before.counts),
        _ => return None,
    };
    let mut difference = ModelCounts::default();
    for (at, difference) in difference.iter_mut().enumerate() {
        *difference = after.counts[at].checked_sub(before_counts[at])?;
    }
    Some(difference)
}

impl SeriesModel {
    pub(super) fn has(&self, end: i64) -> bool {
        self.rows.iter().any(|row| row.end == end)
    }

    /// Whether there is nothing to find: no row but such as say that the series ended.
    pub(super) fn is_empty(&self) -> bool {
        self.effective_rows().is_empty()
    }

    /// The last row that ended by a time.
    pub(super) fn last_before(&self, time: i64) -> Option<ModelRow> {
        self.effective_rows().into_iter().filter(|row| row.end <= time).max()
    }

    /// Forgets rows that belong to a stretch of time: a row belongs to the nanosecond before its
    /// end.
    pub(super) fn delete(&mut self, range: &Range<i64>) {
        self.rows.retain(|row| !range.contains(&(row.end - 1)));
    }

    /// Rows by time. Deltas add up; of others one stays: the greater reading, and a histogram of a
    /// moment is only ever sent again as it was. The end of a series is no row of it.
    fn effective_rows(&self) -> Vec<ModelRow> {
        let mut rows = self.rows.clone();
        rows.retain(|row| !row.is_stale_mark);
        rows.sort_unstable();
        if self.kind.is_delta() {
            return rows;
        }
        rows.sort_by_key(|row| (row.end, row.start, sum(&row.counts)));
        rows.reverse();
        rows.dedup_by_key(|row| (row.end, row.start));
        rows.reverse();
        rows
    }

    /// Whether its classic histograms did not always have the same buckets.
    pub(super) fn has_coarse(&self) -> bool {
        self.kind.is_otlp() && self.rows.iter().any(|row| row.schema == COARSE)
    }

    fn cumulative(&self) -> Vec<CumulativeCounts> {
        let mut rows = self.effective_rows();
        if self.kind == ModelKind::Retyped {
            // What was called a gauge tells no increase.
            rows.retain(|row| row.schema == COUNTER);
        }
        if !self.kind.is_cumulative() {
            return rows.iter().map(|row| (row.end, row.counts)).collect();
        }
        let mut happened = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let has_start = row.start < row.end;
            let counts = match at.checked_sub(1).map(|at| &rows[at]) {
                None if has_start => row.counts,
                None => continue,
                Some(before) if has_start && row.start >= before.end => row.counts,
                Some(before) => delta(self.kind, row, before).unwrap_or(row.counts),
            };
            happened.push((row.end, counts));
        }
        happened
    }

    /// What happened in each column of time.
    pub(super) fn columns(&self, columns: &[Range<i64>]) -> Vec<ModelCounts> {
        let happened = self.cumulative();
        let of = |range: &Range<i64>| {
            let mut total = ModelCounts::default();
            for (_, counts) in happened.iter().filter(|(end, _)| range.contains(&(end - 1))) {
                total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
            }
            total
        };
        columns.iter().map(of).collect()
    }

    /// How many rows ended in each column.
    pub(super) fn rows_in(&self, columns: &[Range<i64>]) -> Vec<u64> {
        let rows = self.effective_rows();
        let of = |range: &Range<i64>| {
            rows.iter().filter(|row| range.contains(&(row.end - 1))).count() as u64
        };
        columns.iter().map(of).collect()
    }
}
