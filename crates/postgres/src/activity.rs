//! Samples of sessions: waits, running statements, ages of transactions.
//!
//! Samples are taken on an open-loop schedule: a sample that was due while the connection was busy
//! is counted as skipped, not taken later. A distribution of sessions has one value per sample,
//! zeros included, so that its mean is the average number of sessions in that wait (average active
//! sessions) and its quantiles are those of the moments.

use std::collections::BTreeMap;

use hist::Histogram;

use crate::metric::{PostgresMetric, counter, distribution};
use crate::report::{LABEL_CHARS_MAX, PostgresRow, first_chars};
use crate::session::ResultRow;

/// Sessions that do something or hold a transaction, and background processes that wait for other
/// than their next task. `pg_stat_get_activity` is the function below `pg_stat_activity`, without
/// its joins.
pub(crate) const SQL: &str = "SELECT wait_event_type, wait_event, state, \
    extract(epoch FROM clock_timestamp() - xact_start)::float8, backend_type \
    FROM pg_stat_get_activity(NULL) WHERE pid <> pg_backend_pid() \
    AND coalesce(state, '') NOT IN ('idle', 'disabled') \
    AND coalesce(wait_event_type, '') <> 'Activity'";

/// Wait events of extensions have any name.
const WAIT_EVENTS_MAX: usize = 300;
/// PostgreSQL has seven states.
const STATES_MAX: usize = 16;
/// Type and name of what has no wait event.
const NO_EVENT: &str = "CPU";
const OTHER: &str = "other";

pub(crate) const WAIT_SESSIONS: PostgresMetric = distribution(
    "pg_wait_sessions",
    "",
    "sessions in a wait at a moment, by `wait_event_type` and `wait_event`; `CPU` is no wait \
     event: on a CPU, or waiting for one; one value per sample",
);
pub(crate) const ACTIVE_SESSIONS: PostgresMetric = distribution(
    "pg_active_sessions",
    "",
    "client sessions that run a statement at a moment; one value per sample",
);
pub(crate) const TRANSACTION_AGE: PostgresMetric = distribution(
    "pg_transaction_age",
    "ns",
    "ages of the transactions in progress at a moment, by `state`; one value per transaction and \
     sample",
);
pub(crate) const SAMPLES: PostgresMetric = counter(
    "pg_samples_total",
    "",
    "",
    "samples of sessions, by `outcome`: success, skipped (the connection was busy or lost)",
);

/// Samples since the last row.
#[derive(Debug, Default)]
pub(crate) struct ActivitySamples {
    samples: u64,
    /// Histograms by wait event; all events seen since the start.
    waits: BTreeMap<(String, String), Histogram>,
    active: Histogram,
    ages: BTreeMap<String, Histogram>,
    taken: u64,
    skipped: u64,
    /// Since when both count.
    began: i64,
}

impl ActivitySamples {
    pub(crate) fn new(began: i64) -> ActivitySamples {
        ActivitySamples { began, ..ActivitySamples::default() }
    }

    /// Adds a sample. Returns the number of sessions that wait for a lock.
    pub(crate) fn add(&mut self, rows: &[ResultRow]) -> u64 {
        let mut sessions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let (mut active, mut blocked) = (0, 0);
        for row in rows {
            let [wait_type, wait_event, state, age, backend] = &row[..] else { continue };
            let wait = match (wait_type.as_deref(), wait_event.as_deref()) {
                (Some(kind), Some(event)) => (kind, event),
                _ => (NO_EVENT, NO_EVENT),
            };
            blocked += u64::from(wait.0 == "Lock");
            *sessions.entry(wait).or_default() += 1;
            let state = state.as_deref();
            if state == Some("active") && backend.as_deref() == Some("client backend") {
                active += 1;
            }
            let age = age.as_deref().and_then(|age| age.parse::<f64>().ok());
            if let (Some(age), Some(state)) = (age, state) {
                let state = first_chars(state, LABEL_CHARS_MAX);
                let is_known = self.ages.len() < STATES_MAX || self.ages.contains_key(state);
                let state = if is_known { state } else { OTHER };
                let ages = self.ages.entry(state.to_owned()).or_default();
                ages.record((age * 1e9).max(0.0));
            }
        }
        self.samples += 1;
        self.taken += 1;
        self.active.record(active as f64);
        let mut others = 0;
        for ((kind, event), count) in sessions {
            let key = [kind, event].map(|text| first_chars(text, LABEL_CHARS_MAX).to_owned());
            let key = <(String, String)>::from(key);
            if self.waits.len() < WAIT_EVENTS_MAX || self.waits.contains_key(&key) {
                self.waits.entry(key).or_default().record(count as f64);
            } else {
                others += count;
            }
        }
        if others > 0 {
            let key = (OTHER.to_owned(), OTHER.to_owned());
            self.waits.entry(key).or_default().record(others as f64);
        }
        blocked
    }

    pub(crate) fn skip(&mut self, samples: u64) {
        self.skipped += samples;
    }

    /// Rows of all samples since [`ActivitySamples::clear`].
    pub(crate) fn rows(&self, rows: &mut Vec<PostgresRow>) {
        for (outcome, count) in [("success", self.taken), ("skipped", self.skipped)] {
            let labels = vec![("outcome", outcome.to_owned())];
            rows.push(PostgresRow::number(&SAMPLES, labels, count as f64).since(self.began));
        }
        if self.samples == 0 {
            return;
        }
        for ((kind, event), histogram) in &self.waits {
            let mut histogram = histogram.clone();
            histogram.record_n(0.0, self.samples.saturating_sub(histogram.count()));
            let labels = vec![("wait_event_type", kind.clone()), ("wait_event", event.clone())];
            rows.push(PostgresRow::distribution(&WAIT_SESSIONS, labels, histogram));
        }
        rows.push(PostgresRow::distribution(&ACTIVE_SESSIONS, Vec::new(), self.active.clone()));
        for (state, histogram) in self.ages.iter().filter(|(_, ages)| !ages.is_empty()) {
            let labels = vec![("state", state.clone())];
            rows.push(PostgresRow::distribution(&TRANSACTION_AGE, labels, histogram.clone()));
        }
    }

    /// Begins the next row. Events that were seen stay known: they have zeros from then on.
    pub(crate) fn clear(&mut self) {
        self.samples = 0;
        self.active = Histogram::default();
        self.ages.clear();
        self.waits.values_mut().for_each(|histogram| *histogram = Histogram::default());
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::report::tests::row_lines;

    /// Fields of a row are separated by blanks, `-` is NULL.
    fn sample(lines: &[&str]) -> Vec<ResultRow> {
        let value = |field: &str| (field != "-").then(|| field.replace('_', " "));
        lines.iter().map(|line| line.split(' ').map(value).collect()).collect()
    }

    #[track_caller]
    fn check(samples: &ActivitySamples, expected: Expect) {
        let mut rows = Vec::new();
        samples.rows(&mut rows);
        expected.assert_eq(&row_lines(&rows));
    }

    #[test]
    fn sessions_without_a_wait_count_as_zero_and_skipped_samples_are_counted() {
        let mut samples = ActivitySamples::new(0);
        let both = ["Lock tuple active 2 client_backend", "- - active 0.5 client_backend"];
        assert_eq!(samples.add(&sample(&both)), 1);
        let idle = "Client ClientRead idle_in_transaction 3 client_backend";
        assert_eq!(samples.add(&sample(&[idle, "IO WALSync - - walwriter"])), 0);
        assert_eq!(samples.add(&[]), 0);
        samples.skip(2);
        check(
            &samples,
            expect![[r#"
                pg_samples_total{outcome="success"} 3
                pg_samples_total{outcome="skipped"} 2
                pg_wait_sessions{wait_event_type="CPU",wait_event="CPU"} 3 values, max 1
                pg_wait_sessions{wait_event_type="Client",wait_event="ClientRead"} 3 values, max 1
                pg_wait_sessions{wait_event_type="IO",wait_event="WALSync"} 3 values, max 1
                pg_wait_sessions{wait_event_type="Lock",wait_event="tuple"} 3 values, max 1
                pg_active_sessions 3 values, max 2
                pg_transaction_age{state="active"} 2 values, max 2000000000
                pg_transaction_age{state="idle in transaction"} 1 values, max 3000000000
            "#]],
        );
        samples.clear();
        samples.add(&[]);
        check(
            &samples,
            expect![[r#"
                pg_samples_total{outcome="success"} 4
                pg_samples_total{outcome="skipped"} 2
                pg_wait_sessions{wait_event_type="CPU",wait_event="CPU"} 1 values, max 0
                pg_wait_sessions{wait_event_type="Client",wait_event="ClientRead"} 1 values, max 0
                pg_wait_sessions{wait_event_type="IO",wait_event="WALSync"} 1 values, max 0
                pg_wait_sessions{wait_event_type="Lock",wait_event="tuple"} 1 values, max 0
                pg_active_sessions 1 values, max 0
            "#]],
        );
    }

    #[test]
    fn wait_events_of_extensions_are_bounded() {
        let mut samples = ActivitySamples::new(0);
        let name = |n: usize| format!("Extension e{n} s{n} 1 client_backend");
        let lines: Vec<String> = (0..WAIT_EVENTS_MAX + 5).map(name).collect();
        let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
        samples.add(&sample(&lines));
        assert_eq!(samples.waits.len(), WAIT_EVENTS_MAX + 1);
        let other = &samples.waits[&(OTHER.to_owned(), OTHER.to_owned())];
        assert_eq!(other.tracked_max().value(), Some(5.0));
        assert_eq!(samples.ages.len(), STATES_MAX + 1);
    }
}
