//! Aggregate of one series in one interval.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use hist::Histogram;

/// Limit of distinct set members per interval. Further members are dropped and counted.
pub(crate) const SET_MEMBERS_MAX: usize = 1 << 16;

/// Aggregation of a series' values in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateKind {
    /// Histogram.
    Histogram,
    /// Sum; each value is divided by its sample rate.
    Sum,
    /// Last value.
    Last,
    /// Number of distinct members.
    Set,
    /// All values, with their own timestamps.
    Points,
}

/// Aggregated values of one series in an interval.
#[derive(Clone, Debug)]
pub(crate) struct SeriesAggregate {
    /// Number of values received; the sample rate does not count.
    pub(crate) received: u64,
    pub(crate) value: AggregateValue,
}

#[derive(Clone, Debug)]
pub(crate) enum AggregateValue {
    Histogram(Box<Histogram>),
    /// Sum of the values, each divided by its sample rate.
    Sum(f64),
    /// Last value of a gauge and its time.
    Last {
        /// The last absolute value, with the deltas after it.
        absolute: Option<f64>,
        /// Sum of the deltas to the last known value, if there is no absolute value.
        delta: f64,
        time: i64,
    },
    /// Hashes of the distinct members.
    Set(HashSet<u128>),
    /// Values with their own timestamps.
    Points(Vec<(i64, f64)>),
}

/// Hash of set members, equal in all threads and keyed at random (128 bits).
#[derive(Clone, Debug, Default)]
pub(crate) struct SetHasher([RandomState; 2]);

impl SetHasher {
    pub(crate) fn hash(&self, member: &[u8]) -> u128 {
        let [a, b] = self.0.each_ref().map(|state| state.hash_one(member));
        u128::from(a) << 64 | u128::from(b)
    }
}

impl AggregateValue {
    /// Creates an empty aggregate; `time` is the time of the first value.
    pub(crate) fn new(aggregation: AggregateKind, time: i64) -> AggregateValue {
        match aggregation {
            AggregateKind::Histogram => AggregateValue::Histogram(Box::default()),
            AggregateKind::Sum => AggregateValue::Sum(0.0),
            AggregateKind::Last => AggregateValue::Last { absolute: None, delta: 0.0, time },
            AggregateKind::Set => AggregateValue::Set(HashSet::default()),
            AggregateKind::Points => AggregateValue::Points(Vec::new()),
        }
    }

    /// Merges another aggregate, earlier or later: gauges are merged in the order of their times.
    /// Returns the number of values that do not fit.
    pub(crate) fn merge(&mut self, other: AggregateValue, received: u64) -> u64 {
        match (self, other) {
            (AggregateValue::Histogram(ours), AggregateValue::Histogram(theirs)) => {
                match ours.merge(&theirs) {
                    Ok(()) => 0,
                    // The bucket layouts are equal, so only a count above 2^64 fails.
                    Err(_) => received,
                }
            }
            (AggregateValue::Sum(ours), AggregateValue::Sum(theirs)) => {
                *ours += theirs;
                0
            }
            (AggregateValue::Set(ours), AggregateValue::Set(theirs)) => {
                let mut lost = 0;
                for member in theirs {
                    match ours.len() < SET_MEMBERS_MAX || ours.contains(&member) {
                        true => drop(ours.insert(member)),
                        false => lost += 1,
                    }
                }
                lost
            }
            (AggregateValue::Points(ours), AggregateValue::Points(theirs)) => {
                ours.extend(theirs);
                0
            }
            (ours @ AggregateValue::Last { .. }, theirs @ AggregateValue::Last { .. }) => {
                ours.merge_gauge(theirs);
                0
            }
            _ => received,
        }
    }

    fn merge_gauge(&mut self, other: AggregateValue) {
        let at_of = |what: &AggregateValue| {
            if let AggregateValue::Last { time: at, .. } = what { *at } else { 0 }
        };
        let (earlier, later) = if at_of(self) <= at_of(&other) {
            (std::mem::replace(self, AggregateValue::Sum(0.0)), other)
        } else {
            (other, std::mem::replace(self, AggregateValue::Sum(0.0)))
        };
        *self = match (earlier, later) {
            (_, later @ AggregateValue::Last { absolute: Some(_), .. }) => later,
            (
                AggregateValue::Last { absolute, delta: before, .. },
                AggregateValue::Last { delta, time: at, .. },
            ) => {
                let absolute = absolute.map(|absolute| absolute + delta);
                let delta = if absolute.is_some() { 0.0 } else { before + delta };
                AggregateValue::Last { absolute, delta, time: at }
            }
            (earlier, _) => earlier,
        };
    }

    /// Approximate memory in bytes, without the key.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            AggregateValue::Histogram(histogram) => {
                size_of::<Histogram>() + 24 * buckets(histogram)
            }
            AggregateValue::Sum(_) | AggregateValue::Last { .. } => 0,
            AggregateValue::Set(members) => 36 * members.len(),
            AggregateValue::Points(points) => 32 * points.len(),
        }
    }
}

pub(crate) fn buckets(histogram: &Histogram) -> usize {
    histogram.positive().len() + histogram.negative().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(absolute: Option<f64>, delta: f64, at: i64) -> AggregateValue {
        AggregateValue::Last { absolute, delta, time: at }
    }

    #[track_caller]
    fn check(mut one: AggregateValue, other: AggregateValue, expected: (Option<f64>, f64, i64)) {
        assert_eq!(one.merge(other, 1), 0);
        let AggregateValue::Last { absolute, delta, time: at } = one else { panic!("a gauge") };
        assert_eq!((absolute, delta, at), expected);
    }

    #[test]
    fn gauges_are_merged_in_the_order_of_their_times() {
        check(gauge(Some(1.0), 0.0, 1), gauge(Some(2.0), 0.0, 2), (Some(2.0), 0.0, 2));
        check(gauge(Some(1.0), 0.0, 2), gauge(Some(2.0), 0.0, 1), (Some(1.0), 0.0, 2));
        check(gauge(Some(1.0), 0.0, 1), gauge(None, 5.0, 2), (Some(6.0), 0.0, 2));
        check(gauge(None, 5.0, 1), gauge(Some(1.0), 0.0, 2), (Some(1.0), 0.0, 2));
        check(gauge(None, 5.0, 1), gauge(None, -2.0, 2), (None, 3.0, 2));
    }

    #[test]
    fn set_members_are_limited() {
        let set =
            |range: std::ops::Range<usize>| AggregateValue::Set(range.map(|n| n as u128).collect());
        let mut one = set(0..SET_MEMBERS_MAX - 1);
        assert_eq!(one.merge(set(0..10), 10), 0);
        assert_eq!(one.merge(set(SET_MEMBERS_MAX..SET_MEMBERS_MAX + 10), 10), 9);
        let AggregateValue::Set(members) = one else { panic!("a set") };
        assert_eq!(members.len(), SET_MEMBERS_MAX);
    }
}
