//! Spans at the intake: their counters, and how many names of spans are labels.
//!
//! A name may have an id that no template finds, and each name is series. The names that came first
//! since the start of the process keep their series; further ones share the name `other`.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Mutex, PoisonError};

use decode::spans::{OTHER_NAME, SpanProblem, SpanSummary};

use crate::meter::{EventCounter, Meter};
use crate::span_ranks::SpanRanks;
use crate::trace_buffer::{TraceBuffer, TracePolicy};

/// Span names of a service.
const NAMES_PER_SERVICE_MAX: usize = 1000;
/// Span names of all services, and so the number of services; their table takes about 4 MB.
const NAMES_MAX: usize = 100_000;

/// Names and counters.
#[derive(Debug, Default)]
pub(crate) struct SpanIntake {
    names: Mutex<SpanNames>,
    pub(crate) ranks: SpanRanks,
    pub(crate) traces: TraceBuffer,
    measured: EventCounter,
    /// In the order of [`SpanProblem::ALL`].
    problems: Vec<EventCounter>,
    other_names: EventCounter,
    ignored_thresholds: EventCounter,
}

/// Names of spans by service, as hashes: two names with one hash count once.
#[derive(Debug, Default)]
struct SpanNames {
    services: HashMap<u64, HashSet<u64>>,
    count: usize,
}

fn hash(text: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl SpanNames {
    /// The service is its name and namespace.
    fn admits(&mut self, service: (&str, &str), name: &str) -> bool {
        let is_full = self.count >= NAMES_MAX;
        let (service, is_other, name) = (hash(service), name == OTHER_NAME, hash(name));
        let known = self.services.get(&service);
        if known.is_some_and(|names| is_other || names.contains(&name)) {
            return true;
        }
        if is_full || known.is_some_and(|names| names.len() >= NAMES_PER_SERVICE_MAX) {
            return false;
        }
        self.services.entry(service).or_default().insert(name);
        self.count += 1;
        true
    }
}

impl SpanIntake {
    pub(crate) fn new(traces: TracePolicy, meter: &Meter) -> SpanIntake {
        let received = |outcome| {
            let about = "Spans received, by outcome";
            meter.counter("topdeck_spans_received_total", about, &[("outcome", outcome)])
        };
        SpanIntake {
            names: Mutex::default(),
            ranks: SpanRanks::default(),
            traces: TraceBuffer::new(traces, meter),
            measured: received("measured"),
            problems: SpanProblem::ALL.map(|problem| received(problem.name())).into(),
            other_names: meter.counter(
                "topdeck_spans_other_name_total",
                "Measured spans whose service or name exceeds the number of names",
                &[],
            ),
            ignored_thresholds: meter.counter(
                "topdeck_spans_ignored_threshold_total",
                "Measured spans that count once because their sampling threshold is invalid",
                &[],
            ),
        }
    }

    /// Whether a name of a service may be a label.
    pub(crate) fn admits_name(&self, service: &str, namespace: &str, name: &str) -> bool {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.admits((service, namespace), name)
    }

    pub(crate) fn count(&self, summary: &SpanSummary) {
        self.measured.add(summary.measured);
        self.problems.iter().zip(summary.problems).for_each(|(counter, spans)| counter.add(spans));
        self.other_names.add(summary.other_names);
        self.ignored_thresholds.add(summary.ignored_thresholds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_service_are_bounded() {
        let mut names = SpanNames::default();
        let mut admits =
            |service: &str, name: usize| names.admits((service, ""), &name.to_string());
        assert!((0..NAMES_PER_SERVICE_MAX).all(|name| admits("a", name)));
        assert!(!admits("a", NAMES_PER_SERVICE_MAX));
        assert!(admits("a", 0) && admits("b", NAMES_PER_SERVICE_MAX));
        assert!(names.admits(("a", ""), OTHER_NAME) && names.admits(("a", "b"), "x"));
    }

    #[test]
    fn services_are_bounded() {
        let mut names = SpanNames::default();
        assert!((0..NAMES_MAX).all(|service| names.admits((&service.to_string(), ""), "get")));
        assert!(!names.admits(("x", ""), "get") && !names.admits(("x", ""), OTHER_NAME));
        assert!(names.admits(("0", ""), "get") && !names.admits(("0", ""), "set"));
        assert!(names.admits(("0", ""), OTHER_NAME) && !names.admits(("0", "a"), OTHER_NAME));
    }

    /// They were not counted.
    #[test]
    fn services_whose_spans_are_named_other_are_bounded() {
        let mut names = SpanNames::default();
        let mut admits = |service: usize| names.admits((&service.to_string(), ""), OTHER_NAME);
        assert!((0..NAMES_MAX).all(&mut admits));
        assert!(!admits(NAMES_MAX) && admits(0));
    }
}
