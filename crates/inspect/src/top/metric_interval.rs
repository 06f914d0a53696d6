//! Metric change between two samples. Times are nanoseconds of `clock::now`.

use hist::{Bracket, Histogram};
use shm::snapshot::{MetricValue, NumericValue};

use crate::top::partial_value::PartialValue;
use crate::value_change;

/// Change between two samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum IntervalChange {
    /// Unknown, with the reason.
    Unknown(&'static str),
    /// Increase of a counter.
    Counter(f64),
    /// Recorded values.
    Histogram(Box<Histogram>),
    /// Not a metric of events, but of a state.
    None,
}

/// Interval and its change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricInterval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) change: IntervalChange,
}

/// Statistics of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IntervalStats {
    pub(crate) count: u64,
    /// `None` if nothing was recorded. The maximum is exact if it is the largest since the start of
    /// the process, or if its bucket holds one integer only.
    pub(crate) p50: Option<Bracket>,
    pub(crate) p99: Option<Bracket>,
    pub(crate) max: Option<Bracket>,
}

const NS_PER_S: f64 = 1e9;
pub(crate) const COUNTER_RESET: &str = "counter reset";
pub(crate) const ONE_SAMPLE: &str = "first sample: changes need two";
/// Limit of records in progress, one per thread of a process.
const IN_FLIGHT_MAX: u64 = 64;
const EMPTY_INTERVAL: &str = "two samples at the same time";

impl MetricInterval {
    /// Change between two samples. For a histogram whose buckets were not read in both, the number
    /// of recorded values.
    pub(crate) fn between(
        before: (u64, &PartialValue),
        now: (u64, &PartialValue),
    ) -> MetricInterval {
        match (before.1, now.1) {
            (PartialValue::Full(first), PartialValue::Full(second)) => {
                MetricInterval::new(before.0, now.0, || value_change(first, second))
            }
            _ => MetricInterval::between_counts(before, now),
        }
    }

    /// Change between two samples; for histograms only the number of values, which takes a
    /// hundredth of the time.
    pub(crate) fn between_counts(
        before: (u64, &PartialValue),
        now: (u64, &PartialValue),
    ) -> MetricInterval {
        MetricInterval::new(before.0, now.0, || match (before.1.recorded(), now.1.recorded()) {
            // Records in progress are counted if buckets were not read, and are not if they were.
            (Some(first), Some(second)) if first > second && first - second <= IN_FLIGHT_MAX => {
                IntervalChange::Counter(0.0)
            }
            (Some(first), Some(second)) => {
                let counter = |n| MetricValue::Counter(NumericValue::Unsigned(n));
                value_change(&counter(first), &counter(second))
            }
            _ => {
                let value = |reading: &PartialValue| reading.counter().or(reading.value().cloned());
                match (value(before.1), value(now.1)) {
                    (Some(first), Some(second)) => value_change(&first, &second),
                    _ => IntervalChange::None,
                }
            }
        })
    }

    fn new(start_ns: u64, end_ns: u64, change: impl FnOnce() -> IntervalChange) -> MetricInterval {
        let change =
            if end_ns > start_ns { change() } else { IntervalChange::Unknown(EMPTY_INTERVAL) };
        MetricInterval { start_ns, end_ns, change }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / NS_PER_S
    }

    /// Increase of the counter, or number of recorded values.
    pub(crate) fn count(&self) -> Option<f64> {
        match &self.change {
            IntervalChange::Counter(count) => Some(*count),
            IntervalChange::Histogram(values) => Some(values.count() as f64),
            IntervalChange::Unknown(_) | IntervalChange::None => None,
        }
    }

    /// Rate per second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.count().map(|count| count / self.seconds()).filter(|rate| rate.is_finite())
    }

    /// Recorded values, if known.
    pub(crate) fn values(&self) -> Option<&Histogram> {
        match &self.change {
            IntervalChange::Histogram(values) => Some(values),
            _ => None,
        }
    }
}

impl IntervalStats {
    pub(crate) fn new(values: &Histogram) -> IntervalStats {
        let max = values.max();
        // No percentile exceeds the maximum: if only the bucket of the maximum is known, both are
        // estimates.
        let least = |value: Bracket| match max {
            Some(max) => Bracket { estimate: value.estimate.min(max.estimate), ..value },
            None => value,
        };
        let quantile = |q| values.quantile(q).map(least);
        IntervalStats { count: values.count(), p50: quantile(0.5), p99: quantile(0.99), max }
    }
}

fn value_change(before: &MetricValue, now: &MetricValue) -> IntervalChange {
    use crate::value_change::ValueChange as Happened;
    match (before, now) {
        // Gauges and texts are shown as they are.
        (_, MetricValue::Gauge(_) | MetricValue::Text(_)) => return IntervalChange::None,
        (MetricValue::Unknown(_), now) if !matches!(now, MetricValue::Unknown(_)) => {
            return IntervalChange::Unknown(ONE_SAMPLE);
        }
        _ => {}
    }
    match value_change::change_since(Some(before), now) {
        Some(Happened::Added(by)) => IntervalChange::Counter(by.as_float()),
        Some(Happened::Recorded(values)) => IntervalChange::Histogram(values),
        Some(Happened::InFlightChanged { finished, .. }) => {
            IntervalChange::Counter(finished as f64)
        }
        Some(Happened::Heartbeat(beats)) => IntervalChange::Counter(beats as f64),
        Some(Happened::CounterReset) => IntervalChange::Unknown(COUNTER_RESET),
        Some(Happened::Unknown(reason)) => IntervalChange::Unknown(reason),
        Some(Happened::Set { .. } | Happened::TextChanged(_)) | None => IntervalChange::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hist::{Integers, Scheme};

    fn recorded(values: &[u64]) -> PartialValue {
        let mut histogram = Histogram::new(Scheme::Exp2(Integers::<5>::grid()));
        values.iter().for_each(|&value| histogram.record(value as f64));
        PartialValue::Full(MetricValue::Histogram(Box::new(histogram)))
    }

    /// Expected count, exactness of the maximum, and its estimate, of the change.
    #[track_caller]
    fn figures(before: &[u64], after: &[u64]) -> (u64, bool, f64) {
        let all: Vec<u64> = before.iter().chain(after).copied().collect();
        let (before, all) = (recorded(before), recorded(&all));
        let interval = MetricInterval::between((0, &before), (500_000_000, &all));
        let figures = IntervalStats::new(interval.values().expect("they grew"));
        assert_eq!(interval.rate(), Some(figures.count as f64 * 2.0));
        let max = figures.max.expect("something was recorded");
        assert!(figures.p99.is_some_and(|p99| p99.estimate <= max.estimate));
        (figures.count, max.is_exact(), max.estimate)
    }

    #[test]
    fn new_maximum_is_exact_and_others_are_bucketed() {
        assert_eq!(figures(&[1_000, 2_000], &[5_001, 70_003]), (2, true, 70_003.0));
        let (count, is_exact, max) = figures(&[1_000, 99_999], &[5_001, 70_003]);
        assert_eq!((count, is_exact), (2, false));
        assert!((max - 70_003.0).abs() / 70_003.0 < 0.022, "{max}");
    }

    #[test]
    fn unchanged_histogram_has_no_values() {
        let (before, now) = (recorded(&[7]), recorded(&[7]));
        let interval = MetricInterval::between((0, &before), (1_000_000_000, &now));
        assert_eq!(interval.rate(), Some(0.0));
        let figures = IntervalStats::new(interval.values().expect("it is known"));
        assert_eq!((figures.count, figures.p99, figures.max), (0, None, None));
    }

    #[test]
    fn counter_reset_is_unknown_with_a_reason() {
        let interval = MetricInterval::between((0, &recorded(&[7, 8])), (9, &recorded(&[7])));
        assert_eq!(interval.change, IntervalChange::Unknown(COUNTER_RESET));
        let of = |n| PartialValue::Full(MetricValue::Counter(NumericValue::Unsigned(n)));
        let interval = MetricInterval::between((0, &of(8)), (9, &of(7)));
        assert_eq!(
            (interval.rate(), interval.change),
            (None, IntervalChange::Unknown(COUNTER_RESET))
        );
        let at_once = MetricInterval::between((9, &of(8)), (9, &of(9)));
        assert_eq!(at_once.change, IntervalChange::Unknown(EMPTY_INTERVAL));
    }

    #[test]
    fn counter_differences_are_exact() {
        let of = |n| PartialValue::Full(MetricValue::Counter(NumericValue::Unsigned(n)));
        let interval =
            MetricInterval::between((0, &of(u64::MAX - 3)), (2_000_000_000, &of(u64::MAX)));
        assert_eq!((interval.count(), interval.rate()), (Some(3.0), Some(1.5)));
        let gauge = PartialValue::Full(MetricValue::Gauge(NumericValue::Signed(-4)));
        assert_eq!(MetricInterval::between((0, &gauge), (9, &gauge)).change, IntervalChange::None);
    }

    #[test]
    fn values_without_buckets_are_counted() {
        let of = |before: &PartialValue, now: &PartialValue| {
            let interval = MetricInterval::between((0, before), (1_000_000_000, now));
            (interval.count(), interval.values().is_some())
        };
        assert_eq!(
            of(&PartialValue::CountOnly(4), &PartialValue::CountOnly(9)),
            (Some(5.0), false)
        );
        assert_eq!(of(&PartialValue::CountOnly(1), &recorded(&[7, 8])), (Some(1.0), false));
        assert_eq!(of(&recorded(&[7]), &PartialValue::CountOnly(3)), (Some(2.0), false));
        // One record was in progress at the first sample, and is not in the buckets.
        assert_eq!(of(&PartialValue::CountOnly(3), &recorded(&[7, 8])), (Some(0.0), false));
        assert_eq!(of(&PartialValue::CountOnly(1_000), &recorded(&[7, 8])), (None, false));
    }
}
