//! State of a job's target: its last attempt, and since when it is up or down.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use intake::LogLevel;
use role::json::Json::{self, Integer, Map, Null, Object, Text};
use role::json::integer;

/// Target of a scrape or a check.
#[derive(Debug)]
pub(crate) struct TargetState {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    attempts: Mutex<TargetAttempts>,
}

/// What the attempts have shown.
#[derive(Debug, Default)]
struct TargetAttempts {
    /// The last attempt; `None` before the first one.
    last: Option<LastAttempt>,
    /// Time since which the outcome is that of the last attempt.
    since: i64,
    /// Time and reason of the last failure.
    last_error: Option<(i64, String)>,
}

#[derive(Debug)]
struct LastAttempt {
    at: i64,
    took: Duration,
    /// Samples of a scrape; 1 for a check.
    samples: u64,
    is_up: bool,
}

impl TargetState {
    pub(crate) fn new(
        (kind, name): (&'static str, &str),
        url: String,
        labels: Vec<(String, String)>,
        (interval, timeout): (Duration, Duration),
    ) -> TargetState {
        let (name, attempts) = (name.to_owned(), Mutex::default());
        TargetState { kind, name, url, labels, interval, timeout, attempts }
    }

    /// Records an attempt at `at`: its number of samples, or the reason of its failure. An attempt
    /// that was scheduled earlier than the last one changes nothing. Returns a log line if the
    /// target went down, or came up again.
    pub(crate) fn record(
        &self,
        at: i64,
        took: Duration,
        outcome: Result<u64, String>,
    ) -> Option<(LogLevel, String)> {
        let mut held = self.lock();
        if held.last.as_ref().is_some_and(|last| last.at > at) {
            return None;
        }
        let is_up = outcome.is_ok();
        let was_up = held.last.as_ref().map(|last| last.is_up);
        let target = format!("{} {:?} ({})", self.kind, self.name, self.url);
        let line = match (&outcome, was_up) {
            (Err(reason), None | Some(true)) => {
                Some((LogLevel::Warn, format!("{target} is down: {reason}")))
            }
            (Ok(_), Some(false)) => {
                let seconds = at.saturating_sub(held.since) / 1_000_000_000;
                Some((LogLevel::Info, format!("{target} is up again after {seconds} s")))
            }
            _ => None,
        };
        if was_up != Some(is_up) {
            held.since = at;
        }
        let samples = outcome.as_ref().copied().unwrap_or(0);
        held.last_error = outcome.err().map(|reason| (at, reason)).or(held.last_error.take());
        held.last = Some(LastAttempt { at, took, samples, is_up });
        line
    }

    /// Keeps an error that is not the target's.
    pub(crate) fn set_last_error(&self, at: i64, reason: String) {
        self.lock().last_error = Some((at, reason));
    }

    fn lock(&self) -> MutexGuard<'_, TargetAttempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target in the section `targets` of the status.
    pub(crate) fn to_json(&self) -> Json {
        let ns = |time: Duration| integer(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let labels = self.labels.iter().map(|(name, value)| (name.clone(), Text(value.clone())));
        let held = self.lock();
        let state = match &held.last {
            None => "unknown",
            Some(last) if last.is_up => "up",
            Some(_) => "down",
        };
        let of = |value: &dyn Fn(&LastAttempt) -> Json| held.last.as_ref().map_or(Null, value);
        let error = held.last_error.as_ref().map(|(at, reason)| {
            Object(vec![("at_ns", Integer((*at).into())), ("reason", Text(reason.clone()))])
        });
        Object(vec![
            ("kind", Text(self.kind.to_owned())),
            ("name", Text(self.name.clone())),
            ("url", Text(self.url.clone())),
            ("labels", Map(labels.collect())),
            ("interval_ns", ns(self.interval)),
            ("timeout_ns", ns(self.timeout)),
            ("state", Text(state.to_owned())),
            ("since_ns", of(&|_| Integer(held.since.into()))),
            ("last_ns", of(&|last| Integer(last.at.into()))),
            ("last_duration_ns", of(&|last| ns(last.took))),
            ("last_samples", of(&|last| integer(last.samples))),
            ("last_error", error.unwrap_or(Null)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_once_that_a_target_is_down_and_once_that_it_is_up_again() {
        let second = Duration::from_secs(1);
        let url = "http://a:1/metrics".to_owned();
        let target = TargetState::new(("scrape", "j"), url, Vec::new(), (second, second));
        let mut lines = Vec::new();
        let outcomes = [Ok(7), Err("refused"), Err("timed out"), Ok(7), Ok(7)];
        for (at, outcome) in (0..).map(|n| n * 15_000_000_000).zip(outcomes) {
            lines.extend(target.record(at, second, outcome.map_err(str::to_owned)));
        }
        let name = r#"scrape "j" (http://a:1/metrics)"#;
        let expected = [
            (LogLevel::Warn, format!("{name} is down: refused")),
            (LogLevel::Info, format!("{name} is up again after 30 s")),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_target_that_went_down_says_since_when_and_why_and_keeps_the_reason() {
        let second = Duration::from_secs(1);
        let url = "http://a:1/metrics".to_owned();
        let target = TargetState::new(("scrape", "j"), url, Vec::new(), (second, second));
        let check = |expected: &str| {
            let text = format!("{:#}", target.to_json());
            assert!(text.contains(expected), "{text}");
        };
        check(r#""state":"unknown","since_ns":null"#);
        let _ = target.record(10, second, Ok(7));
        check(r#""state":"up","since_ns":10,"last_ns":10"#);
        check(r#""last_samples":7,"last_error":null"#);
        let _ = target.record(20, second, Err("HTTP 500".to_owned()));
        let _ = target.record(30, second, Err("HTTP 503".to_owned()));
        // An earlier attempt that ends late.
        let _ = target.record(25, second, Ok(7));
        check(r#""state":"down","since_ns":20,"last_ns":30"#);
        check(r#""last_error":{"at_ns":30,"reason":"HTTP 503"}"#);
        let _ = target.record(40, second, Ok(8));
        check(r#""state":"up","since_ns":40"#);
        check(r#""reason":"HTTP 503""#);
        // The disk of this server is full.
        target.set_last_error(50, "cannot store the result: full".to_owned());
        check(r#""state":"up","since_ns":40"#);
        check(r#""last_error":{"at_ns":50,"reason":"cannot store the result: full"}"#);
    }
}
