//! Evaluation of own rules when rows arrive.
//!
//! Those with a selector come first, each pass of them at most once per second. What a query reads
//! is known when it was evaluated; until then, any row calls for its evaluation.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use model::SeriesId;
use rules::is_alert_series;

use super::RuleWorker;
use crate::arrival_index::RulePlace;
use crate::arrival_pace::{ARRIVAL_INTERVAL, QueryPace};

/// Time between two evaluations on arrival, in durations of the first: they take at most a quarter
/// of a CPU.
const ARRIVAL_PAUSE_FACTOR: u32 = 4;
/// The same for the index of series: at most a tenth.
const INDEX_PAUSE_FACTOR: u32 = 10;

/// When rules are evaluated on arrival at the earliest.
pub(super) struct ArrivalSchedule {
    /// Those with a selector.
    selected: Instant,
    queries: QueryPace,
    /// When the index of arrivals is built again.
    index: Instant,
}

impl ArrivalSchedule {
    pub(super) fn new(now: Instant) -> ArrivalSchedule {
        ArrivalSchedule { selected: now, queries: QueryPace::default(), index: now }
    }
}

impl RuleWorker {
    /// Whether rules read series is another question with other rules.
    pub(super) fn reset_arrivals(&mut self) {
        let mut rules = self.groups.iter().flat_map(|scheduled| scheduled.group.rules());
        let is_active = rules.any(|rule| {
            rule.rule().condition().is_some_and(|own| own.has_selector() || own.is_query())
        });
        self.arrivals.reset(is_active);
        let selected = self.arrival_times.selected;
        self.arrival_times = ArrivalSchedule { selected, ..ArrivalSchedule::new(Instant::now()) };
    }

    /// Evaluates the own rules whose streams got rows. Rules with a selector, queries and the index
    /// of series take at most a fixed share of the time each.
    pub(super) fn evaluate_arrived(&mut self) {
        if self.arrivals.pending().has_unknown && Instant::now() >= self.arrival_times.index {
            let began = Instant::now();
            self.index_series();
            let pause = (began.elapsed() * INDEX_PAUSE_FACTOR).max(ARRIVAL_INTERVAL);
            self.arrival_times.index = Instant::now() + pause;
        }
        self.evaluate_selected();
        self.evaluate_queries();
    }

    fn evaluate_selected(&mut self) {
        let began = Instant::now();
        if began < self.arrival_times.selected {
            return;
        }
        let arrived = self.arrivals.take_selected();
        if arrived.is_empty() {
            return;
        }
        for (at, rules) in arrived {
            if self.control.is_stopping() {
                return;
            }
            let now_ns = self.intake.now();
            self.evaluate(at, now_ns, Some(&rules));
        }
        let pause = (began.elapsed() * ARRIVAL_PAUSE_FACTOR).max(ARRIVAL_INTERVAL);
        self.arrival_times.selected = began + pause;
    }

    fn evaluate_queries(&mut self) {
        let began = Instant::now();
        let due = self.arrival_times.queries.due(&self.arrivals.pending().queries, began);
        if due.is_empty() {
            return;
        }
        for (group, rules) in self.arrivals.take_queries(&due) {
            if self.control.is_stopping() {
                return;
            }
            let (at, now_ns) = (Instant::now(), self.intake.now());
            let Some(report) = self.evaluate(group, now_ns, Some(&rules)) else { continue };
            for rule in rules {
                let duration = report.rule_durations.get(rule).copied().unwrap_or_default();
                let place = RulePlace { is_query: true, group, rule };
                self.arrival_times.queries.record(place, at, duration);
            }
        }
        self.arrival_times.queries.end_pass(began, began.elapsed());
    }

    /// Finds the series of each own rule. Those of alerts are left out: rules would call for their
    /// own evaluation.
    fn index_series(&self) {
        let Ok(view) = self.store.view() else { return };
        let mut places: HashMap<SeriesId, Vec<RulePlace>> = HashMap::new();
        let mut unread = Vec::new();
        for (group, scheduled) in self.groups.iter().enumerate() {
            for (index, rule) in scheduled.group.rules().iter().enumerate() {
                let is_query = rule.rule().condition().is_some_and(|own| own.is_query());
                let place = RulePlace { is_query, group, rule: index };
                let Some(selectors) = rule.selectors() else {
                    unread.push(place);
                    continue;
                };
                for selector in selectors {
                    // The buckets of a classic histogram do not match its name.
                    let buckets = query::bucket_counters(selector);
                    for selector in std::iter::once(selector).chain(&buckets) {
                        view.each_key(selector, &mut |_, series| {
                            if !is_alert_series(series.name) {
                                // Most series have one reader, and there may be very many.
                                let readers = places
                                    .entry(series.selected.id())
                                    .or_insert_with(|| Vec::with_capacity(1));
                                // Several selectors of a query may find a series.
                                if readers.last() != Some(&place) {
                                    readers.push(place);
                                }
                            }
                            ControlFlow::Continue(())
                        });
                    }
                }
            }
        }
        self.arrivals.replace(places, unread);
    }

    /// Time until rules may be evaluated on arrival; `None` if no rows arrived.
    pub(super) fn time_to_arrivals(&self) -> Option<Duration> {
        let pending = self.arrivals.pending();
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let times = &self.arrival_times;
        let selected = pending.has_selected.then(|| until(times.selected));
        let index = pending.has_unknown.then(|| until(times.index));
        let queries = times.queries.time_to_next(&pending.queries, now);
        selected.into_iter().chain(index).chain(queries).min()
    }
}
