//! Model: keeps all rows of a series and recomputes the increases for each query.

use std::ops::Range;

/// Number of histogram buckets: upper bounds 1, 2, 4, 8, 16 and 32, zero, and lower bounds -1 and
/// -2.
pub(super) const BUCKETS: usize = POSITIVE + 1 + NEGATIVE;
pub(super) const POSITIVE: usize = 6;
pub(super) const NEGATIVE: usize = 2;
pub(super) const ZERO: usize = POSITIVE;

/// Values per bucket; for a number, the number alone.
pub(super) type ModelCounts = [u64; BUCKETS];

/// Kind of a series, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelKind {
    /// Gauge by Prometheus remote write.
    Gauge,
    /// Influx lines.
    Lines,
    /// HTTPTrap, with timestamps.
    Httptrap,
    /// StatsD, counts with timestamps.
    Statsd,
    /// Counter by Prometheus remote write.
    Counter,
    /// Cumulative native histograms by remote write.
    Native,
    /// Point-in-time native histograms by remote write.
    Points,
    /// OTLP, delta.
    Delta,
    /// OTLP, cumulative, with a start time.
    Cumulative,
    /// Counter whose name does not show it: a gauge in remote write 1, a counter in remote write 2.
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

    /// Increase between two sends; deltas add up even if they are sent twice.
    pub(super) fn is_delta(self) -> bool {
        matches!(self, ModelKind::Delta | ModelKind::Statsd)
    }

    pub(super) fn is_histogram(self) -> bool {
        !self.is_gauge()
            && !matches!(self, ModelKind::Counter | ModelKind::Statsd | ModelKind::Retyped)
    }

    /// Prometheus native histograms: several schemas, with zero and negative buckets.
    pub(super) fn is_native(self) -> bool {
        matches!(self, ModelKind::Native | ModelKind::Points)
    }

    /// OTLP histograms, whose sender sometimes changes the buckets.
    pub(super) fn is_otlp(self) -> bool {
        matches!(self, ModelKind::Delta | ModelKind::Cumulative)
    }

    /// Whether the sender marks the end of a series (staleness marker).
    pub(super) fn has_stale_marks(self) -> bool {
        matches!(self, ModelKind::Gauge | ModelKind::Counter | ModelKind::Native)
    }
}

/// Row; `start` equals its end if the protocol has no start. Times are nanoseconds since the Unix
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ModelRow {
    pub(super) end: i64,
    pub(super) start: i64,
    pub(super) counts: ModelCounts,
    /// For a native histogram: 2^schema buckets per power of two. For others the buckets: [`FINE`],
    /// [`COARSE`] or [`EXPONENTIAL`]. For a number: [`COUNTER`] if the sender declares a counter.
    pub(super) schema: u32,
    /// Staleness marker without a value.
    pub(super) is_stale_mark: bool,
}

/// Classic histogram with a bound per power of two.
pub(super) const FINE: u32 = 0;
/// Classic histogram with bounds 2, 8 and 32: each bucket covers two fine ones.
pub(super) const COARSE: u32 = 1;
/// OTLP exponential histogram with a bucket per power of two.
pub(super) const EXPONENTIAL: u32 = 2;

pub(super) const COUNTER: u32 = 1;

/// All rows of one series.
#[derive(Clone, Debug)]
pub(super) struct SeriesModel {
    pub(super) kind: ModelKind,
    pub(super) rows: Vec<ModelRow>,
}

/// Cumulative counts up to a time.
pub(super) type CumulativeCounts = (i64, ModelCounts);

pub(super) fn sum(counts: &ModelCounts) -> u64 {
    counts.iter().sum()
}

/// Converts fine to coarse counts; buckets at and below zero stay.
pub(super) fn coarse(counts: &ModelCounts) -> ModelCounts {
    let mut coarse = *counts;
    for pair in coarse[..POSITIVE].chunks_exact_mut(2) {
        pair[1] += std::mem::take(&mut pair[0]);
    }
    coarse
}

/// Increase; all counts after a reset: smaller counts, or buckets into which the previous ones
/// cannot be merged, which Prometheus treats as a reset, too.
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

    /// Whether there are no rows except staleness markers.
    pub(super) fn is_empty(&self) -> bool {
        self.effective_rows().is_empty()
    }

    /// Last row that ended at or before a time.
    pub(super) fn last_before(&self, time: i64) -> Option<ModelRow> {
        self.effective_rows().into_iter().filter(|row| row.end <= time).max()
    }

    /// Deletes the rows of a time range: a row belongs to the nanosecond before its end.
    pub(super) fn delete(&mut self, range: &Range<i64>) {
        self.rows.retain(|row| !range.contains(&(row.end - 1)));
    }

    /// Rows by time. Deltas with the same time add up. Otherwise one row stays: the greater sample;
    /// a gauge histogram is only sent again unchanged. Staleness markers are dropped.
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

    /// Whether the classic histograms had different buckets.
    pub(super) fn has_coarse(&self) -> bool {
        self.kind.is_otlp() && self.rows.iter().any(|row| row.schema == COARSE)
    }

    fn cumulative(&self) -> Vec<CumulativeCounts> {
        let mut rows = self.effective_rows();
        if self.kind == ModelKind::Retyped {
            // Samples declared as a gauge have no increase.
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

    /// Increases per column.
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

    /// Number of rows that ended in each column.
    pub(super) fn rows_in(&self, columns: &[Range<i64>]) -> Vec<u64> {
        let rows = self.effective_rows();
        let of = |range: &Range<i64>| {
            rows.iter().filter(|row| range.contains(&(row.end - 1))).count() as u64
        };
        columns.iter().map(of).collect()
    }
}
