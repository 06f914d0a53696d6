//! Change of a value between two samples.

use hist::Histogram;
use shm::snapshot::{InFlightSnapshot, MetricValue, NumericValue};

/// Change of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueChange {
    /// Increase of a counter.
    Added(NumericValue),
    /// New value of a gauge.
    Set {
        /// Difference from the previous value, if it is defined.
        by: f64,
        now: NumericValue,
    },
    /// New text.
    TextChanged(String),
    /// Values recorded in between.
    Recorded(Box<Histogram>),
    /// Operations started and ended.
    InFlightChanged { started: u64, finished: u64, now: u64 },
    /// Number of beats.
    Heartbeat(u64),
    /// The value decreased: another process, or samples in the wrong order.
    CounterReset,
    /// Unknown, with the reason.
    Unknown(&'static str),
}

impl ValueChange {
    /// Whether nothing changed.
    fn is_unchanged(&self) -> bool {
        match self {
            ValueChange::Added(by) => by.as_float() == 0.0,
            ValueChange::Recorded(of) => of.is_empty(),
            ValueChange::InFlightChanged { started, finished, .. } => {
                (*started, *finished) == (0, 0)
            }
            ValueChange::Heartbeat(beats) => *beats == 0,
            ValueChange::Set { .. }
            | ValueChange::TextChanged(_)
            | ValueChange::CounterReset
            | ValueChange::Unknown(_) => false,
        }
    }
}

/// Change since `before`, which is `None` for a new metric; `None` if nothing changed.
pub(crate) fn change_between(
    before: Option<&MetricValue>,
    after: &MetricValue,
) -> Option<ValueChange> {
    change_since(before, after).filter(|change| !change.is_unchanged())
}

/// Change since `before`, including increases of 0: `None` is an unchanged gauge or text.
pub(crate) fn change_since(
    before: Option<&MetricValue>,
    after: &MetricValue,
) -> Option<ValueChange> {
    Some(match (before, after) {
        (None, MetricValue::Counter(now)) => ValueChange::Added(*now),
        (None, MetricValue::Histogram(now)) => ValueChange::Recorded(now.clone()),
        (None, MetricValue::Gauge(now)) => ValueChange::Set { by: now.as_float(), now: *now },
        (None, MetricValue::Text(now)) => ValueChange::TextChanged(now.clone()),
        (None, MetricValue::InFlight(now)) => in_flight_change(&InFlightSnapshot::default(), now),
        (None, MetricValue::Heartbeat(now)) => ValueChange::Heartbeat(now.beats),
        (Some(MetricValue::Counter(before)), MetricValue::Counter(now)) => {
            counter_change(*before, *now)
        }
        (Some(MetricValue::Gauge(before)), MetricValue::Gauge(now)) => {
            // NaN is not equal to itself; two NaN are no change.
            let are_none = [before, now].iter().all(|n| n.as_float().is_nan());
            if before == now || are_none {
                return None;
            }
            ValueChange::Set { by: now.as_float() - before.as_float(), now: *now }
        }
        (Some(MetricValue::Text(before)), MetricValue::Text(now)) if before == now => return None,
        (Some(MetricValue::Text(_)), MetricValue::Text(now)) => {
            ValueChange::TextChanged(now.clone())
        }
        (Some(MetricValue::Histogram(before)), MetricValue::Histogram(now)) => {
            histogram_change(before, now)
        }
        (Some(MetricValue::InFlight(before)), MetricValue::InFlight(now)) => {
            in_flight_change(before, now)
        }
        (Some(MetricValue::Heartbeat(before)), MetricValue::Heartbeat(now)) => now
            .beats
            .checked_sub(before.beats)
            .map_or(ValueChange::CounterReset, ValueChange::Heartbeat),
        (_, MetricValue::Unknown(reason)) | (Some(MetricValue::Unknown(reason)), _) => {
            ValueChange::Unknown(reason)
        }
        _ => ValueChange::Unknown("it is of another kind than before"),
    })
}

fn counter_change(before: NumericValue, now: NumericValue) -> ValueChange {
    let by = match (before, now) {
        (NumericValue::Unsigned(a), NumericValue::Unsigned(b)) => {
            b.checked_sub(a).map(NumericValue::Unsigned)
        }
        (NumericValue::Signed(a), NumericValue::Signed(b)) => {
            b.checked_sub(a).filter(|by| *by >= 0).map(NumericValue::Signed)
        }
        _ => Some(now.as_float() - before.as_float())
            .filter(|by| *by >= 0.0)
            .map(NumericValue::Float),
    };
    by.map_or(ValueChange::CounterReset, ValueChange::Added)
}

fn histogram_change(before: &Histogram, now: &Histogram) -> ValueChange {
    let mut rest = now.clone();
    rest.subtract(before)
        .map_or(ValueChange::CounterReset, |()| ValueChange::Recorded(Box::new(rest)))
}

fn in_flight_change(before: &InFlightSnapshot, now: &InFlightSnapshot) -> ValueChange {
    // Both counters wrap, which takes 500 years at a billion per second.
    let more = |before: u64, now: u64| u64::try_from(now.wrapping_sub(before).cast_signed()).ok();
    match (more(before.started, now.started), more(before.ended, now.ended)) {
        (Some(began), Some(ended)) => {
            ValueChange::InFlightChanged { started: began, finished: ended, now: now.count() }
        }
        _ => ValueChange::CounterReset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported() {
        let counter = |n| MetricValue::Counter(NumericValue::Unsigned(n));
        let gauge = |x| MetricValue::Gauge(NumericValue::Float(x));
        assert_eq!(change_between(Some(&counter(3)), &counter(3)), None);
        let five = Some(ValueChange::Added(NumericValue::Unsigned(5)));
        assert_eq!(change_between(Some(&counter(3)), &counter(8)), five);
        assert_eq!(change_between(None, &counter(5)), five);
        assert_eq!(change_between(Some(&counter(3)), &counter(2)), Some(ValueChange::CounterReset));
        assert_eq!(change_between(Some(&gauge(f64::NAN)), &gauge(f64::NAN)), None);
        let set = Some(ValueChange::Set { by: -1.0, now: NumericValue::Float(1.0) });
        assert_eq!(change_between(Some(&gauge(2.0)), &gauge(1.0)), set);
        let other = Some(ValueChange::Unknown("it is of another kind than before"));
        assert_eq!(change_between(Some(&gauge(2.0)), &counter(2)), other);
    }

    #[test]
    fn unchanged_counter_reports_zero() {
        let counter = MetricValue::Counter(NumericValue::Unsigned(3));
        assert_eq!(
            change_since(Some(&counter), &counter),
            Some(ValueChange::Added(NumericValue::Unsigned(0)))
        );
        let gauge = MetricValue::Gauge(NumericValue::Unsigned(3));
        assert_eq!(change_since(Some(&gauge), &gauge), None);
        let flight = |started, ended| {
            MetricValue::InFlight(InFlightSnapshot {
                started,
                ended,
                ..InFlightSnapshot::default()
            })
        };
        assert_eq!(change_between(Some(&flight(5, 3)), &flight(5, 3)), None);
        let wrapped = ValueChange::InFlightChanged { started: 4, finished: 2, now: 4 };
        let (before, now) = (flight(u64::MAX, u64::MAX - 2), flight(3, u64::MAX));
        assert_eq!(change_since(Some(&before), &now), Some(wrapped));
        assert_eq!(change_since(Some(&now), &before), Some(ValueChange::CounterReset));
    }

    #[test]
    fn interval_maximum_is_known_if_new() {
        let mut before = Histogram::default();
        before.record(100.0);
        let mut now = before.clone();
        now.record(7.0);
        now.record(9.0);
        let Some(ValueChange::Recorded(rest)) = change_between(
            Some(&MetricValue::Histogram(Box::new(before.clone()))),
            &MetricValue::Histogram(Box::new(now.clone())),
        ) else {
            panic!("something was recorded")
        };
        assert_eq!(rest.count(), 2);
        let max = rest.max().unwrap();
        assert!(!max.is_exact() && max.contains(9.0), "{max:?}");
        now.record(200.0);
        let ValueChange::Recorded(rest) = histogram_change(&before, &now) else { panic!() };
        assert_eq!(rest.max().unwrap(), hist::Bracket::exact(200.0));
        assert_eq!(histogram_change(&now, &before), ValueChange::CounterReset);
    }
}
