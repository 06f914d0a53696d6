//! How often a metric did what it did between two looks at it ([`change`] says what). Times are nanoseconds of `clock::now`.

use hist::{Bracket, Histogram};
use shm::show::{Number, Value};

use crate::processes::change;
use crate::top::reading::Reading;

/// What was added between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// It cannot be told, and why.
    Unknown(&'static str),
    /// So much was counted.
    Counted(f64),
    /// These values were recorded.
    Recorded(Box<Histogram>),
    /// It is no metric of what happens, but of what is.
    None,
}

/// A stretch of time, and what happened in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) change: Change,
}

/// What a row shows of an interval's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) count: u64,
    /// `None` where nothing was recorded. The maximum is exact where it is the greatest since the process began, or its bucket
    /// holds one whole number.
    pub(crate) p50: Option<Bracket>,
    pub(crate) p99: Option<Bracket>,
    pub(crate) max: Option<Bracket>,
}

const NS_PER_S: f64 = 1e9;
pub(crate) const BEGAN_ANEW: &str = "it is less than before: it began anew";
pub(crate) const ONE_LOOK: &str =
    "one look so far: it takes two to tell what happened between them";
/// Threads of a process that may be in the midst of a record.
const UNDER_WAY_MAX: u64 = 64;
const NO_LENGTH: &str = "two looks at the same moment";

impl Interval {
    /// Between a look at a value and the next. Of a histogram whose buckets were not read at both, how many values were recorded.
    pub(crate) fn between(before: (u64, &Reading), now: (u64, &Reading)) -> Interval {
        match (before.1, now.1) {
            (Reading::Of(first), Reading::Of(second)) => {
                Interval::of(before.0, now.0, || change(first, second))
            }
            _ => Interval::counted(before, now),
        }
    }

    /// The same, but of values only how many were recorded: that takes a hundredth of the time.
    pub(crate) fn counted(before: (u64, &Reading), now: (u64, &Reading)) -> Interval {
        Interval::of(before.0, now.0, || match (before.1.recorded(), now.1.recorded()) {
            // Records that were under way are counted where buckets were not read, and not where they were.
            (Some(first), Some(second)) if first > second && first - second <= UNDER_WAY_MAX => {
                Change::Counted(0.0)
            }
            (Some(first), Some(second)) => {
                let counter = |n| Value::Counter(Number::Unsigned(n));
                change(&counter(first), &counter(second))
            }
            _ => {
                let value = |reading: &Reading| reading.counter().or(reading.value().cloned());
                match (value(before.1), value(now.1)) {
                    (Some(first), Some(second)) => change(&first, &second),
                    _ => Change::None,
                }
            }
        })
    }

    fn of(start_ns: u64, end_ns: u64, change: impl FnOnce() -> Change) -> Interval {
        let change = if end_ns > start_ns { change() } else { Change::Unknown(NO_LENGTH) };
        Interval { start_ns, end_ns, change }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / NS_PER_S
    }

    /// How much was counted, or how many values recorded.
    pub(crate) fn count(&self) -> Option<f64> {
        match &self.change {
            Change::Counted(count) => Some(*count),
            Change::Recorded(values) => Some(values.count() as f64),
            Change::Unknown(_) | Change::None => None,
        }
    }

    /// The same each second.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.count().map(|count| count / self.seconds()).filter(|rate| rate.is_finite())
    }

    /// What was recorded, if that can be told.
    pub(crate) fn values(&self) -> Option<&Histogram> {
        match &self.change {
            Change::Recorded(values) => Some(values),
            _ => None,
        }
    }
}

impl Figures {
    pub(crate) fn of(values: &Histogram) -> Figures {
        let max = values.max();
        // No percentile is shown above the maximum: where only its bucket is known, both are estimates.
        let least = |value: Bracket| match max {
            Some(max) => Bracket { estimate: value.estimate.min(max.estimate), ..value },
            None => value,
        };
        let quantile = |q| values.quantile(q).map(least);
        Figures { count: values.count(), p50: quantile(0.5), p99: quantile(0.99), max }
    }
}

fn change(before: &Value, now: &Value) -> Change {
    use crate::processes::change::Change as Happened;
    match (before, now) {
        // What was set, or said, is shown as it is.
        (_, Value::Gauge(_) | Value::Text(_)) => return Change::None,
        (Value::Unknown(_), now) if !matches!(now, Value::Unknown(_)) => {
            return Change::Unknown(ONE_LOOK);
        }
        _ => {}
    }
    match change::since(Some(before), now) {
        Some(Happened::Counted(by)) => Change::Counted(by.as_float()),
        Some(Happened::Recorded(values)) => Change::Recorded(values),
        Some(Happened::Flowed { ended, .. }) => Change::Counted(ended as f64),
        Some(Happened::Beat(beats)) => Change::Counted(beats as f64),
        Some(Happened::Back) => Change::Unknown(BEGAN_ANEW),
        Some(Happened::Unknown(why)) => Change::Unknown(why),
        Some(Happened::Set { .. } | Happened::Said(_)) | None => Change::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hist::{Integers, Scheme};

    fn recorded(values: &[u64]) -> Reading {
        let mut histogram = Histogram::new(Scheme::Exp2(Integers::<5>::grid()));
        values.iter().for_each(|&value| histogram.record(value as f64));
        Reading::Of(Value::Histogram(Box::new(histogram)))
    }

    /// Count, whether the maximum is exact, and its estimate, of what came between.
    #[track_caller]
    fn figures(before: &[u64], after: &[u64]) -> (u64, bool, f64) {
        let all: Vec<u64> = before.iter().chain(after).copied().collect();
        let (before, all) = (recorded(before), recorded(&all));
        let interval = Interval::between((0, &before), (500_000_000, &all));
        let figures = Figures::of(interval.values().expect("they grew"));
        assert_eq!(interval.rate(), Some(figures.count as f64 * 2.0));
        let max = figures.max.expect("something was recorded");
        assert!(figures.p99.is_some_and(|p99| p99.estimate <= max.estimate));
        (figures.count, max.is_exact(), max.estimate)
    }

    #[test]
    fn a_new_greatest_value_is_exact_and_another_is_known_by_its_bucket() {
        assert_eq!(figures(&[1_000, 2_000], &[5_001, 70_003]), (2, true, 70_003.0));
        let (count, is_exact, max) = figures(&[1_000, 99_999], &[5_001, 70_003]);
        assert_eq!((count, is_exact), (2, false));
        assert!((max - 70_003.0).abs() / 70_003.0 < 0.022, "{max}");
    }

    #[test]
    fn nothing_recorded_is_known_to_be_nothing() {
        let (before, now) = (recorded(&[7]), recorded(&[7]));
        let interval = Interval::between((0, &before), (1_000_000_000, &now));
        assert_eq!(interval.rate(), Some(0.0));
        let figures = Figures::of(interval.values().expect("it is known"));
        assert_eq!((figures.count, figures.p99, figures.max), (0, None, None));
    }

    #[test]
    fn what_shrinks_is_unknown_and_says_why() {
        let interval = Interval::between((0, &recorded(&[7, 8])), (9, &recorded(&[7])));
        assert_eq!(interval.change, Change::Unknown(BEGAN_ANEW));
        let of = |n| Reading::Of(Value::Counter(Number::Unsigned(n)));
        let interval = Interval::between((0, &of(8)), (9, &of(7)));
        assert_eq!((interval.rate(), interval.change), (None, Change::Unknown(BEGAN_ANEW)));
        let at_once = Interval::between((9, &of(8)), (9, &of(9)));
        assert_eq!(at_once.change, Change::Unknown(NO_LENGTH));
    }

    #[test]
    fn counters_keep_their_small_steps() {
        let of = |n| Reading::Of(Value::Counter(Number::Unsigned(n)));
        let interval = Interval::between((0, &of(u64::MAX - 3)), (2_000_000_000, &of(u64::MAX)));
        assert_eq!((interval.count(), interval.rate()), (Some(3.0), Some(1.5)));
        let gauge = Reading::Of(Value::Gauge(Number::Signed(-4)));
        assert_eq!(Interval::between((0, &gauge), (9, &gauge)).change, Change::None);
    }

    #[test]
    fn where_buckets_were_not_read_values_are_counted() {
        let of = |before: &Reading, now: &Reading| {
            let interval = Interval::between((0, before), (1_000_000_000, now));
            (interval.count(), interval.values().is_some())
        };
        assert_eq!(of(&Reading::Recorded(4), &Reading::Recorded(9)), (Some(5.0), false));
        assert_eq!(of(&Reading::Recorded(1), &recorded(&[7, 8])), (Some(1.0), false));
        assert_eq!(of(&recorded(&[7]), &Reading::Recorded(3)), (Some(2.0), false));
        // One record was under way at the first look, and is none yet where buckets are read.
        assert_eq!(of(&Reading::Recorded(3), &recorded(&[7, 8])), (Some(0.0), false));
        assert_eq!(of(&Reading::Recorded(1_000), &recorded(&[7, 8])), (None, false));
    }
}
