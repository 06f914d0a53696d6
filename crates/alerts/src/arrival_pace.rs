//! When queries are evaluated on arrival: each at most once per second, more rarely if it takes
//! long, and all of them in a share of the time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::arrival_index::RulePlace;

/// Least time between two evaluations of a query on arrival.
pub(crate) const ARRIVAL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two evaluations of a query, in durations of the last one: it takes at most a
/// twentieth of a CPU.
const QUERY_PAUSE_FACTOR: u32 = 20;
/// Time between the begins of two passes, in durations of the first: all queries take at most a
/// quarter of a CPU.
const PASS_PAUSE_FACTOR: u32 = 4;
/// Expected duration of a pass beyond which no query is added: selectors wait for it.
const PASS_MAX: Duration = Duration::from_millis(100);

/// Times of the next evaluations.
#[derive(Debug, Default)]
pub(crate) struct QueryPace {
    rules: HashMap<RulePlace, QueryTiming>,
    next_pass: Option<Instant>,
}

#[derive(Debug)]
struct QueryTiming {
    next: Instant,
    /// Of the last evaluation.
    duration: Duration,
}

impl QueryPace {
    /// Queries to be evaluated now, of those whose rows arrived: those that waited longest, until
    /// they are expected to take [`PASS_MAX`].
    pub(crate) fn due(&self, arrived: &[RulePlace], now: Instant) -> Vec<RulePlace> {
        if self.next_pass.is_some_and(|next| now < next) {
            return Vec::new();
        }
        let next = |place: &RulePlace| self.rules.get(place).map(|timing| timing.next);
        let mut due: Vec<RulePlace> = arrived.to_vec();
        due.retain(|place| next(place).is_none_or(|next| next <= now));
        model::sort::by_key(&mut due, next);
        let duration = |place: &RulePlace| self.rules.get(place).map(|timing| timing.duration);
        let mut expected = Duration::ZERO;
        due.retain(|place| {
            let fits = expected < PASS_MAX;
            expected += duration(place).unwrap_or_default();
            fits
        });
        due
    }

    /// Time until a query of those whose rows arrived may be evaluated; `None` without any.
    pub(crate) fn time_to_next(&self, arrived: &[RulePlace], now: Instant) -> Option<Duration> {
        let next = |place: &RulePlace| self.rules.get(place).map_or(now, |timing| timing.next);
        let earliest = arrived.iter().map(next).min()?;
        let next = self.next_pass.map_or(earliest, |pass| pass.max(earliest));
        Some(next.saturating_duration_since(now))
    }

    /// Notes an evaluation of a query.
    pub(crate) fn record(&mut self, place: RulePlace, began: Instant, duration: Duration) {
        let next = began + (duration * QUERY_PAUSE_FACTOR).max(ARRIVAL_INTERVAL);
        self.rules.insert(place, QueryTiming { next, duration });
    }

    /// Notes the duration of a pass.
    pub(crate) fn end_pass(&mut self, began: Instant, duration: Duration) {
        self.next_pass = Some(began + duration * PASS_PAUSE_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn query(rule: usize) -> RulePlace {
        RulePlace { is_query: true, group: 0, rule }
    }

    /// Evaluates what is due within a simulated time, each in its duration. Returns the times in
    /// milliseconds at which each began.
    #[track_caller]
    fn check(durations_ms: &[u32], time_ms: u32, expected: &[&[u128]]) {
        let arrived: Vec<RulePlace> = (0..durations_ms.len()).map(query).collect();
        let (start, mut pace) = (Instant::now(), QueryPace::default());
        let mut begins = vec![Vec::new(); durations_ms.len()];
        let mut now = start;
        while now < start + MS * time_ms {
            let began = now;
            for place in pace.due(&arrived, now) {
                let duration = MS * durations_ms[place.rule];
                begins[place.rule].push(now.duration_since(start).as_millis());
                pace.record(place, now, duration);
                now += duration;
            }
            if now > began {
                pace.end_pass(began, now - began);
            }
            now += pace.time_to_next(&arrived, now).expect("rows arrived");
        }
        assert_eq!(begins, expected, "{durations_ms:?}");
    }

    #[test]
    fn a_query_is_evaluated_once_per_second_or_in_a_twentieth_of_the_time() {
        check(&[10], 3500, &[&[0, 1000, 2000, 3000]]);
        check(&[200], 9000, &[&[0, 4000, 8000]]);
    }

    #[test]
    fn all_queries_take_a_quarter_of_the_time_and_each_has_its_turn() {
        // Unknown durations are those of short queries.
        let begins: &[&[u128]] = &[&[0, 8000], &[400, 9600], &[800, 11200]];
        check(&[400, 400, 400], 12_000, begins);
        // A short query waits for the pauses of a long one.
        check(&[1000, 1], 10_000, &[&[0], &[1000, 4004, 5004, 6004, 7004, 8004, 9004]]);
    }

    #[test]
    fn nothing_is_due_without_rows() {
        let pace = QueryPace::default();
        let now = Instant::now();
        assert_eq!((pace.due(&[], now), pace.time_to_next(&[], now)), (Vec::new(), None));
    }
}
