//! Flush interval: aggregates by series.
//!
//! A series is identified by a key: a kind byte, then the name as received; see the files of the
//! formats.

use std::collections::HashMap;

use crate::drop_counts::{DropCounts, DropReason};
use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Approximate memory of a series in addition to its key and aggregate, and of an interval.
pub(crate) const SERIES_BYTES: usize = 160;

/// `[start, end)`, in nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlushInterval {
    pub(crate) start: i64,
    pub(crate) end: i64,
    index: HashMap<Box<[u8]>, usize>,
    aggregates: Vec<SeriesAggregate>,
    pub(crate) drops: DropCounts,
}

/// Series key and its aggregate.
pub(crate) type AggregateRow = (Box<[u8]>, SeriesAggregate);

impl FlushInterval {
    pub(crate) fn new(start: i64, length: i64) -> FlushInterval {
        FlushInterval { start, end: start.saturating_add(length), ..FlushInterval::default() }
    }

    /// Interval of the given length that contains the time; intervals are aligned to multiples of
    /// their length.
    pub(crate) fn containing(time: i64, length: i64) -> FlushInterval {
        FlushInterval::new(time.saturating_sub(time.rem_euclid(length)), length)
    }

    pub(crate) fn contains(&self, time: i64) -> bool {
        (self.start..self.end).contains(&time)
    }

    /// Whether nothing was received and nothing was lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.aggregates.is_empty() && self.drops.is_empty()
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        self.index.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: Box<[u8]>, aggregate: SeriesAggregate) -> usize {
        let at = self.aggregates.len();
        self.index.insert(key, at);
        self.aggregates.push(aggregate);
        at
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut SeriesAggregate {
        &mut self.aggregates[at]
    }

    /// Removes and returns all rows, in order of arrival.
    pub(crate) fn drain_rows(&mut self) -> Vec<AggregateRow> {
        let mut keys: Vec<(Box<[u8]>, usize)> =
            std::mem::take(&mut self.index).into_iter().collect();
        keys.sort_unstable_by_key(|&(_, at)| at);
        let aggregates = std::mem::take(&mut self.aggregates);
        keys.into_iter().map(|(key, _)| key).zip(aggregates).collect()
    }

    /// Copy without the rows.
    pub(crate) fn without_rows(&self) -> FlushInterval {
        FlushInterval {
            start: self.start,
            end: self.end,
            drops: self.drops,
            ..FlushInterval::default()
        }
    }

    /// Drop counts if the rows are lost.
    pub(crate) fn as_dropped(&self, reason: DropReason) -> DropCounts {
        let mut lost = DropCounts::default();
        self.aggregates.iter().for_each(|aggregate| lost.add_aggregate(reason, aggregate));
        lost
    }

    /// Merges rows into those of the same key. Returns the number of values that did not fit.
    pub(crate) fn add_rows(&mut self, rows: impl IntoIterator<Item = AggregateRow>) -> DropCounts {
        let mut lost = DropCounts::default();
        for (key, aggregate) in rows {
            match self.find(&key) {
                None => {
                    self.insert(key, aggregate);
                }
                Some(at) => {
                    let reason = match aggregate.value {
                        AggregateValue::Set(_) => DropReason::SetMembersLimit,
                        _ => DropReason::MemoryLimit,
                    };
                    let ours = &mut self.aggregates[at];
                    let n = ours.value.merge(aggregate.value, aggregate.received);
                    ours.received += aggregate.received.saturating_sub(n);
                    lost.add(reason, n);
                }
            }
        }
        lost
    }

    /// Merges another interval; the result spans both. The values lost by merging are added to
    /// [`Self::lost`] and returned.
    pub(crate) fn merge(&mut self, mut other: FlushInterval) -> DropCounts {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.drops.merge(&other.drops);
        let lost = self.add_rows(other.drain_rows());
        self.drops.merge(&lost);
        lost
    }

    /// Approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let keys: usize = self.index.keys().map(|key| key.len()).sum();
        let aggregate_bytes: usize =
            self.aggregates.iter().map(|aggregate| aggregate.value.bytes()).sum();
        SERIES_BYTES * (1 + self.aggregates.len()) + keys + aggregate_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(time: i64, expected: (i64, i64)) {
        let interval = FlushInterval::containing(time, 10);
        assert_eq!((interval.start, interval.end), expected);
        assert!(interval.contains(time) || interval.end == i64::MAX);
    }

    #[test]
    fn intervals_are_aligned() {
        check(0, (0, 10));
        check(19, (10, 20));
        check(20, (20, 30));
        check(-1, (-10, 0));
        check(i64::MAX, (i64::MAX - 7, i64::MAX));
    }

    #[test]
    fn rows_keep_their_order_and_are_merged() {
        let row = |key: &str, n: f64| {
            (key.as_bytes().into(), SeriesAggregate { received: 1, value: AggregateValue::Sum(n) })
        };
        let (mut one, mut other) = (FlushInterval::new(0, 10), FlushInterval::new(10, 10));
        assert!(one.add_rows([row("b", 1.0), row("a", 2.0)]).is_empty());
        assert!(other.add_rows([row("c", 3.0), row("a", 4.0)]).is_empty());
        assert!(one.merge(other).is_empty());
        assert_eq!((one.start, one.end), (0, 20));
        let shown: Vec<String> = one
            .drain_rows()
            .iter()
            .map(|(key, aggregate)| {
                format!("{} {:?}", String::from_utf8_lossy(key), aggregate.value)
            })
            .collect();
        assert_eq!(shown, ["b Sum(1.0)", "a Sum(6.0)", "c Sum(3.0)"]);
    }
}
