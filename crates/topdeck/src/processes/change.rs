//! What happened to a value between two looks.

use hist::Histogram;
use shm::show::{InFlight, Number, Value};

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

impl Change {
    /// Whether it says that nothing happened.
    fn is_nothing(&self) -> bool {
        match self {
            Change::Counted(by) => by.as_float() == 0.0,
            Change::Recorded(of) => of.is_empty(),
            Change::Flowed { began, ended, .. } => (*began, *ended) == (0, 0),
            Change::Beat(beats) => *beats == 0,
            Change::Set { .. } | Change::Said(_) | Change::Back | Change::Unknown(_) => false,
        }
    }
}

/// What happened since `before`, which is `None` for what was not there; `None` where nothing did.
pub(crate) fn between(before: Option<&Value>, after: &Value) -> Option<Change> {
    since(before, after).filter(|change| !change.is_nothing())
}

/// The same, but of what counts and records it is said that it was nothing: `None` is a gauge or a text as it was.
pub(crate) fn since(before: Option<&Value>, after: &Value) -> Option<Change> {
    Some(match (before, after) {
        (None, Value::Counter(now)) => Change::Counted(*now),
        (None, Value::Histogram(now)) => Change::Recorded(now.clone()),
        (None, Value::Gauge(now)) => Change::Set { by: now.as_float(), now: *now },
        (None, Value::Text(now)) => Change::Said(now.clone()),
        (None, Value::InFlight(now)) => flowed(&InFlight::default(), now),
        (None, Value::Heartbeat(now)) => Change::Beat(now.beats),
        (Some(Value::Counter(before)), Value::Counter(now)) => counted(*before, *now),
        (Some(Value::Gauge(before)), Value::Gauge(now)) => {
            // What is no number is not equal to itself, and is no change.
            let are_none = [before, now].iter().all(|n| n.as_float().is_nan());
            if before == now || are_none {
                return None;
            }
            Change::Set { by: now.as_float() - before.as_float(), now: *now }
        }
        (Some(Value::Text(before)), Value::Text(now)) if before == now => return None,
        (Some(Value::Text(_)), Value::Text(now)) => Change::Said(now.clone()),
        (Some(Value::Histogram(before)), Value::Histogram(now)) => recorded(before, now),
        (Some(Value::InFlight(before)), Value::InFlight(now)) => flowed(before, now),
        (Some(Value::Heartbeat(before)), Value::Heartbeat(now)) => {
            now.beats.checked_sub(before.beats).map_or(Change::Back, Change::Beat)
        }
        (_, Value::Unknown(why)) | (Some(Value::Unknown(why)), _) => Change::Unknown(why),
        _ => Change::Unknown("it is of another kind than before"),
    })
}

fn counted(before: Number, now: Number) -> Change {
    let by = match (before, now) {
        (Number::Unsigned(a), Number::Unsigned(b)) => b.checked_sub(a).map(Number::Unsigned),
        (Number::Signed(a), Number::Signed(b)) => {
            b.checked_sub(a).filter(|by| *by >= 0).map(Number::Signed)
        }
        _ => Some(now.as_float() - before.as_float()).filter(|by| *by >= 0.0).map(Number::Float),
    };
    by.map_or(Change::Back, Change::Counted)
}

fn recorded(before: &Histogram, now: &Histogram) -> Change {
    let mut rest = now.clone();
    rest.subtract(before).map_or(Change::Back, |()| Change::Recorded(Box::new(rest)))
}

fn flowed(before: &InFlight, now: &InFlight) -> Change {
    // Both counters wrap, which at a billion a second takes 500 years.
    let more = |before: u64, now: u64| u64::try_from(now.wrapping_sub(before).cast_signed()).ok();
    match (more(before.started, now.started), more(before.ended, now.ended)) {
        (Some(began), Some(ended)) => Change::Flowed { began, ended, now: now.outstanding() },
        _ => Change::Back,
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
    fn what_counts_is_known_to_have_counted_nothing() {
        let counter = Value::Counter(Number::Unsigned(3));
        assert_eq!(since(Some(&counter), &counter), Some(Change::Counted(Number::Unsigned(0))));
        let gauge = Value::Gauge(Number::Unsigned(3));
        assert_eq!(since(Some(&gauge), &gauge), None);
        let flight =
            |started, ended| Value::InFlight(InFlight { started, ended, ..InFlight::default() });
        assert_eq!(between(Some(&flight(5, 3)), &flight(5, 3)), None);
        let wrapped = Change::Flowed { began: 4, ended: 2, now: 4 };
        let (before, now) = (flight(u64::MAX, u64::MAX - 2), flight(3, u64::MAX));
        assert_eq!(since(Some(&before), &now), Some(wrapped));
        assert_eq!(since(Some(&now), &before), Some(Change::Back));
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
        let Change::Recorded(rest) = recorded(&before, &now) else { panic!() };
        assert_eq!(rest.max().unwrap(), hist::Bracket::exact(200.0));
        assert_eq!(recorded(&now, &before), Change::Back);
    }
}
