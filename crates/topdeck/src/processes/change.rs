//! What happened to a value between two looks.

use hist::Histogram;
use shm::show::{Number, Value};

use crate::processes::values;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// So much was counted.
    Counted(Number),
    /// Another value was set.
    Set {
        /// By how much it differs from before, where that can be said.
        by: f64,
        now: Number,
    },
    /// Another text was set.
    Said(String),
    /// What was recorded meanwhile.
    Recorded(Box<Histogram>),
    /// Operations began and ended.
    Flowed { began: u64, ended: u64, now: u64 },
    /// A heart beat so often.
    Beat(u64),
    /// It holds less than before: it is not the same process, or the looks are in the wrong order.
    Back,
    /// It cannot be told.
    Unknown(&'static str),
}

/// What happened since `before`, which is `None` for what was not there; `None` where nothing did.
pub(crate) fn between(before: Option<&Value>, after: &Value) -> Option<Change> {
    match (before, after) {
        (None, Value::Counter(now)) => counted(zero(*now), *now),
        (None, Value::Histogram(now)) => (!now.is_empty()).then(|| Change::Recorded(now.clone())),
        (None, Value::Gauge(now)) => Some(Change::Set { by: values::as_float(*now), now: *now }),
        (None, Value::Text(now)) => Some(Change::Said(now.clone())),
        (None, Value::InFlight(now)) => flowed((0, 0), now),
        (None, Value::Heartbeat(now)) => (now.beats > 0).then_some(Change::Beat(now.beats)),
        (Some(Value::Counter(before)), Value::Counter(now)) => counted(*before, *now),
        (Some(Value::Gauge(before)), Value::Gauge(now)) => {
            let by = values::as_float(*now) - values::as_float(*before);
            // What is no number is not equal to itself, and is no change.
            let same =
                before == now || [before, now].iter().all(|n| values::as_float(**n).is_nan());
            (!same).then_some(Change::Set { by, now: *now })
        }
        (Some(Value::Text(before)), Value::Text(now)) => {
            (before != now).then(|| Change::Said(now.clone()))
        }
        (Some(Value::Histogram(before)), Value::Histogram(now)) => recorded(before, now),
        (Some(Value::InFlight(before)), Value::InFlight(now)) => {
            flowed((before.started, before.ended), now)
        }
        (Some(Value::Heartbeat(before)), Value::Heartbeat(now)) => {
            match now.beats.checked_sub(before.beats) {
                None => Some(Change::Back),
                Some(0) => None,
                Some(beats) => Some(Change::Beat(beats)),
            }
        }
        (_, Value::Unknown(why)) => Some(Change::Unknown(why)),
        (Some(Value::Unknown(why)), _) => Some(Change::Unknown(why)),
        _ => Some(Change::Unknown("it is of another kind than before")),
    }
}

fn zero(of: Number) -> Number {
    match of {
        Number::Unsigned(_) => Number::Unsigned(0),
        Number::Signed(_) => Number::Signed(0),
        Number::Float(_) => Number::Float(0.0),
    }
}

fn counted(before: Number, now: Number) -> Option<Change> {
    let by = match (before, now) {
        (Number::Unsigned(a), Number::Unsigned(b)) => b.checked_sub(a).map(Number::Unsigned),
        (Number::Signed(a), Number::Signed(b)) => {
            b.checked_sub(a).filter(|by| *by >= 0).map(Number::Signed)
        }
        _ => Some(values::as_float(now) - values::as_float(before))
            .filter(|by| *by >= 0.0)
            .map(Number::Float),
    };
    match by {
        None => Some(Change::Back),
        Some(by) => (values::as_float(by) != 0.0).then_some(Change::Counted(by)),
    }
}

fn recorded(before: &Histogram, now: &Histogram) -> Option<Change> {
    let mut rest = now.clone();
    match rest.subtract(before) {
        Err(_) => Some(Change::Back),
        Ok(()) if rest.is_empty() => None,
        Ok(()) => Some(Change::Recorded(Box::new(rest))),
    }
}

fn flowed(before: (u64, u64), now: &shm::show::InFlight) -> Option<Change> {
    match (now.started.checked_sub(before.0), now.ended.checked_sub(before.1)) {
        (Some(0), Some(0)) => None,
        (Some(began), Some(ended)) => {
            Some(Change::Flowed { began, ended, now: values::outstanding(now) })
        }
        _ => Some(Change::Back),
    }
}

/// So many in so much time.
pub(crate) fn rate(n: f64, ns: u64) -> String {
    let show = crate::hist::show::Show::new(None);
    match ns {
        0 => "unknown".to_owned(),
        _ => format!("{}/s", show.estimate(n * 1e9 / ns as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_and_nothing_else() {
        let counter = |n| Value::Counter(Number::Unsigned(n));
        let gauge = |x| Value::Gauge(Number::Float(x));
        assert_eq!(between(Some(&counter(3)), &counter(3)), None);
        let five = Some(Change::Counted(Number::Unsigned(5)));
        assert_eq!(between(Some(&counter(3)), &counter(8)), five);
        assert_eq!(between(None, &counter(5)), five);
        assert_eq!(between(Some(&counter(3)), &counter(2)), Some(Change::Back));
        assert_eq!(between(Some(&gauge(f64::NAN)), &gauge(f64::NAN)), None);
        let set = Some(Change::Set { by: -1.0, now: Number::Float(1.0) });
        assert_eq!(between(Some(&gauge(2.0)), &gauge(1.0)), set);
        let other = Some(Change::Unknown("it is of another kind than before"));
        assert_eq!(between(Some(&gauge(2.0)), &counter(2)), other);
    }

    #[test]
    fn the_maximum_of_an_interval_is_known_where_it_is_a_new_one() {
        let mut before = Histogram::default();
        before.record(100.0);
        let mut now = before.clone();
        now.record(7.0);
        now.record(9.0);
        let Some(Change::Recorded(rest)) = between(
            Some(&Value::Histogram(Box::new(before.clone()))),
            &Value::Histogram(Box::new(now.clone())),
        ) else {
            panic!("something was recorded")
        };
        assert_eq!(rest.count(), 2);
        let max = rest.max().unwrap();
        assert!(!max.is_exact() && max.contains(9.0), "{max:?}");
        now.record(200.0);
        let Some(Change::Recorded(rest)) = recorded(&before, &now) else { panic!() };
        assert_eq!(rest.max().unwrap(), hist::Bracket::exact(200.0));
        assert_eq!(recorded(&now, &before), Some(Change::Back));
    }
}
