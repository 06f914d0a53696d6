//! The slow way: all rows of a series, and what happened between them, worked out anew for each question.

use std::ops::Range;

/// Buckets of the histograms that are sent: those up to 1, 2, 4, 8, 16 and 32, zero, and those from
/// -1 and from -2 on.
pub(super) const BUCKETS: usize = POSITIVE + 1 + NEGATIVE;
pub(super) const POSITIVE: usize = 6;
pub(super) const NEGATIVE: usize = 2;
pub(super) const ZERO: usize = POSITIVE;

/// Values per bucket; of a number, the number alone.
pub(super) type Counts = [u64; BUCKETS];

/// What a series holds, and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Prometheus remote write.
    Gauge,
    /// Influx lines.
    Lines,
    /// HTTPTrap, with times.
    Trap,
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
    /// A counter whose name does not say so: remote write 1 has it as a gauge, version 2 says what it is.
    Retyped,
}

impl Kind {
    pub(super) const ALL: [Kind; 10] = [
        Kind::Gauge,
        Kind::Lines,
        Kind::Trap,
        Kind::Statsd,
        Kind::Counter,
        Kind::Native,
        Kind::Points,
        Kind::Delta,
        Kind::Cumulative,
        Kind::Retyped,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "depth",
            Kind::Lines => "temperature",
            Kind::Trap => "pressure",
            Kind::Statsd => "hits",
            Kind::Counter => "requests_total",
            Kind::Native => "native_duration",
            Kind::Points => "queue_age",
            Kind::Delta => "delta_duration",
            Kind::Cumulative => "cumulative_duration",
            Kind::Retyped => "served",
        }
    }

    pub(super) fn is_gauge(self) -> bool {
        matches!(self, Kind::Gauge | Kind::Lines | Kind::Trap)
    }

    pub(super) fn is_cumulative(self) -> bool {
        matches!(self, Kind::Counter | Kind::Native | Kind::Cumulative | Kind::Retyped)
    }

    /// What happened between two sends, which adds up however often it is sent.
    pub(super) fn is_delta(self) -> bool {
        matches!(self, Kind::Delta | Kind::Statsd)
    }

    pub(super) fn is_histogram(self) -> bool {
        !self.is_gauge() && !matches!(self, Kind::Counter | Kind::Statsd | Kind::Retyped)
    }

    /// Prometheus' native histograms: of several schemas, with zero and negative buckets.
    pub(super) fn is_native(self) -> bool {
        matches!(self, Kind::Native | Kind::Points)
    }

    /// OTLP's histograms, whose sender chooses the buckets anew now and then.
    pub(super) fn is_otlp(self) -> bool {
        matches!(self, Kind::Delta | Kind::Cumulative)
    }

    /// Whether its sender says when a series ends.
    pub(super) fn has_stale_marks(self) -> bool {
        matches!(self, Kind::Gauge | Kind::Counter | Kind::Native)
    }
}

/// One row; `start` is its end where the sender says none. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) end: i64,
    pub(super) start: i64,
    pub(super) counts: Counts,
    /// Of a native histogram: there are 2^schema buckets for each power of two. Of another one its
    /// buckets: [`FINE`], [`COARSE`] or [`EXPONENTIAL`]. Of a number: [`COUNTER`] if its sender calls
    /// it that.
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
pub(super) struct Model {
    pub(super) kind: Kind,
    pub(super) rows: Vec<Row>,
}

/// What happened up to a moment.
pub(super) type Happened = (i64, Counts);

pub(super) fn sum(counts: &Counts) -> u64 {
    counts.iter().sum()
}

/// Counts of fine buckets as the coarse ones have them; those at zero and below stay.
pub(super) fn coarse(counts: &Counts) -> Counts {
    let mut coarse = *counts;
    for pair in coarse[..POSITIVE].chunks_exact_mut(2) {
        pair[1] += std::mem::take(&mut pair[0]);
    }
    coarse
}

/// What was added; nothing if it began anew: it has less, or buckets into which those before it do
/// not fold, which Prometheus takes for a reset too.
fn minus(kind: Kind, after: &Row, before: &Row) -> Option<Counts> {
    let before_counts = match (kind.is_otlp(), after.schema, before.schema) {
        (_, schema, other) if schema == other => before.counts,
        (false, schema, finer) if schema < finer => before.counts,
        (true, COARSE, FINE) => coarse(&before.counts),
        _ => return None,
    };
    let mut difference = Counts::default();
    for (at, difference) in difference.iter_mut().enumerate() {
        *difference = after.counts[at].checked_sub(before_counts[at])?;
    }
    Some(difference)
}

impl Model {
    pub(super) fn has(&self, end: i64) -> bool {
        self.rows.iter().any(|row| row.end == end)
    }

    /// Whether there is nothing to find: no row but such as say that the series ended.
    pub(super) fn is_empty(&self) -> bool {
        self.settled().is_empty()
    }

    /// The last row that ended by a time.
    pub(super) fn before(&self, time: i64) -> Option<Row> {
        self.settled().into_iter().filter(|row| row.end <= time).max()
    }

    /// Forgets rows that belong to a stretch of time: a row belongs to the nanosecond before its end.
    pub(super) fn delete(&mut self, range: &Range<i64>) {
        self.rows.retain(|row| !range.contains(&(row.end - 1)));
    }

    /// Rows by time. Deltas add up; of others one stays: the greater reading, and a histogram of a
    /// moment is only ever sent again as it was. The end of a series is no row of it.
    fn settled(&self) -> Vec<Row> {
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

    fn happened(&self) -> Vec<Happened> {
        let mut rows = self.settled();
        if self.kind == Kind::Retyped {
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
                Some(before) => minus(self.kind, row, before).unwrap_or(row.counts),
            };
            happened.push((row.end, counts));
        }
        happened
    }

    /// What happened in each column of time.
    pub(super) fn columns(&self, columns: &[Range<i64>]) -> Vec<Counts> {
        let happened = self.happened();
        let of = |range: &Range<i64>| {
            let mut total = Counts::default();
            for (_, counts) in happened.iter().filter(|(end, _)| range.contains(&(end - 1))) {
                total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
            }
            total
        };
        columns.iter().map(of).collect()
    }

    /// How many rows ended in each column.
    pub(super) fn rows_in(&self, columns: &[Range<i64>]) -> Vec<u64> {
        let rows = self.settled();
        let of = |range: &Range<i64>| {
            rows.iter().filter(|row| range.contains(&(row.end - 1))).count() as u64
        };
        columns.iter().map(of).collect()
    }
}
