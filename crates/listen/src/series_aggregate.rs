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
    /// Values as sent.
    pub(crate) received: u64,
    pub(crate) value: AggregateValue,
}

#[derive(Clone, Debug)]
pub(crate) enum AggregateValue {
    Histogram(Box<Histogram>),
    Count(f64),
    /// Last value of a gauge, or its change since the last known value, with the time.
    Gauge {
        set: Option<f64>,
        change: f64,
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
            AggregateKind::Sum => AggregateValue::Count(0.0),
            AggregateKind::Last => AggregateValue::Gauge { set: None, change: 0.0, time },
            AggregateKind::Set => AggregateValue::Set(HashSet::default()),
            AggregateKind::Points => AggregateValue::Points(Vec::new()),
        }
    }

    /// Merges another aggregate of the same or a later time; gauges are in time order. Returns the
    /// number of values that do not fit.
    pub(crate) fn merge(&mut self, other: AggregateValue, received: u64) -> u64 {
        match (self, other) {
            (AggregateValue::Histogram(ours), AggregateValue::Histogram(theirs)) => {
                match ours.merge(&theirs) {
                    Ok(()) => 0,
                    // The bucket layouts are equal, so only a count above 2^64 fails.
                    Err(_) => received,
                }
            }
            (AggregateValue::Count(ours), AggregateValue::Count(theirs)) => {
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
            (ours @ AggregateValue::Gauge { .. }, theirs @ AggregateValue::Gauge { .. }) => {
                ours.merge_gauge(theirs);
                0
            }
            _ => received,
        }
    }

    fn merge_gauge(&mut self, other: AggregateValue) {
        let at_of = |what: &AggregateValue| {
            if let AggregateValue::Gauge { time: at, .. } = what { *at } else { 0 }
        };
        let (earlier, later) = if at_of(self) <= at_of(&other) {
            (std::mem::replace(self, AggregateValue::Count(0.0)), other)
        } else {
            (other, std::mem::replace(self, AggregateValue::Count(0.0)))
        };
        *self = match (earlier, later) {
            (_, later @ AggregateValue::Gauge { set: Some(_), .. }) => later,
            (
                AggregateValue::Gauge { set, change: before, .. },
                AggregateValue::Gauge { change, time: at, .. },
            ) => {
                let set_now = set.map(|set| set + change);
                let change = if set.is_some() { 0.0 } else { before + change };
                AggregateValue::Gauge { set: set_now, change, time: at }
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
            AggregateValue::Count(_) | AggregateValue::Gauge { .. } => 0,
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

    fn gauge(set: Option<f64>, change: f64, at: i64) -> AggregateValue {
        AggregateValue::Gauge { set, change, time: at }
    }

    #[track_caller]
    fn check(mut one: AggregateValue, other: AggregateValue, expected: (Option<f64>, f64, i64)) {
        assert_eq!(one.merge(other, 1), 0);
        let AggregateValue::Gauge { set, change, time: at } = one else { panic!("a gauge") };
        assert_eq!((set, change, at), expected);
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
