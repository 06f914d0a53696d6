//! The slow way: all rows of a series, and what happened between them, worked out anew for each question.

use std::ops::Range;

/// Buckets of the histograms that are sent: those up to 1, 2, 4, 8, 16 and 32.
pub(super) const BUCKETS: usize = 6;

/// Values per bucket; of a number, the number alone.
pub(super) type Counts = [u64; BUCKETS];

/// What a series holds, and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Prometheus remote write.
    Gauge,
    /// Influx lines.
    Lines,
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
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Gauge,
        Kind::Lines,
        Kind::Counter,
        Kind::Native,
        Kind::Points,
        Kind::Delta,
        Kind::Cumulative,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "depth",
            Kind::Lines => "temperature",
            Kind::Counter => "requests_total",
            Kind::Native => "native_duration",
            Kind::Points => "queue_age",
            Kind::Delta => "delta_duration",
            Kind::Cumulative => "cumulative_duration",
        }
    }

    pub(super) fn is_gauge(self) -> bool {
        matches!(self, Kind::Gauge | Kind::Lines)
    }

    pub(super) fn is_cumulative(self) -> bool {
        matches!(self, Kind::Counter | Kind::Native | Kind::Cumulative)
    }

    pub(super) fn is_histogram(self) -> bool {
        !self.is_gauge() && self != Kind::Counter
    }
}

/// One row; `start` is its end where the sender says none. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) end: i64,
    pub(super) start: i64,
    pub(super) counts: Counts,
}

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

fn minus(after: &Counts, before: &Counts) -> Option<Counts> {
    let mut difference = Counts::default();
    for (at, difference) in difference.iter_mut().enumerate() {
        *difference = after[at].checked_sub(before[at])?;
    }
    Some(difference)
}

impl Model {
    pub(super) fn has(&self, end: i64) -> bool {
        self.rows.iter().any(|row| row.end == end)
    }

    /// The last row that ended by a time.
    pub(super) fn before(&self, time: i64) -> Option<Row> {
        self.rows.iter().copied().filter(|row| row.end <= time).max()
    }

    /// Forgets rows that belong to a stretch of time: a row belongs to the nanosecond before its end.
    pub(super) fn delete(&mut self, range: &Range<i64>) {
        self.rows.retain(|row| !range.contains(&(row.end - 1)));
    }

    /// Rows by time. Deltas add up; of others one stays: the greater reading, and a histogram of a
    /// moment is only ever sent again as it was.
    fn settled(&self) -> Vec<Row> {
        let mut rows = self.rows.clone();
        rows.sort_unstable();
        if self.kind == Kind::Delta {
            return rows;
        }
        rows.sort_by_key(|row| (row.end, row.start, sum(&row.counts)));
        rows.reverse();
        rows.dedup_by_key(|row| (row.end, row.start));
        rows.reverse();
        rows
    }

    fn happened(&self) -> Vec<Happened> {
        let rows = self.settled();
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
                Some(before) => minus(&row.counts, &before.counts).unwrap_or(row.counts),
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
