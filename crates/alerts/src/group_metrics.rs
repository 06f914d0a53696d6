//! Metrics of a group, named as those of Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use intake::{EventCounter, LatencyHistogram, Meter};
use rules::{EvaluatedGroup, RuleHealth};

/// Metrics of a group. The label `rule_group` is file and name, as in Prometheus.
#[derive(Debug)]
pub(crate) struct GroupMetrics {
    evaluations: EventCounter,
    failures: EventCounter,
    iterations: EventCounter,
    missed: EventCounter,
    duration: LatencyHistogram,
    last_evaluation_ns: Arc<AtomicI64>,
}

impl GroupMetrics {
    pub(crate) fn new(meter: &Meter, group: &EvaluatedGroup) -> GroupMetrics {
        let key = format!("{};{}", group.file(), group.name());
        let labels = [("rule_group", key.as_str())];
        let counter = |name, about| meter.counter(name, about, &labels);
        let last_evaluation_ns = Arc::new(AtomicI64::new(0));
        let own = Arc::clone(&last_evaluation_ns);
        meter.gauge(
            "topdeck_rule_group_last_evaluation_timestamp_seconds",
            "Time of the last evaluation of a rule group, in seconds since 1970",
            &labels,
            // Relaxed: the number publishes no other data.
            move || own.load(Ordering::Relaxed) as f64 / 1e9,
        );
        GroupMetrics {
            evaluations: counter("topdeck_rule_evaluations_total", "Rule evaluations"),
            failures: counter(
                "topdeck_rule_evaluation_failures_total",
                "Rule evaluations that failed",
            ),
            iterations: counter(
                "topdeck_rule_group_iterations_total",
                "Scheduled evaluations of a rule group, whether or not they took place",
            ),
            missed: counter(
                "topdeck_rule_group_iterations_missed_total",
                "Scheduled evaluations of a rule group that did not take place",
            ),
            duration: meter.histogram(
                "topdeck_rule_group_duration",
                "Duration of an evaluation of a rule group",
                &labels,
            ),
            last_evaluation_ns,
        }
    }

    /// Counts an evaluation of some rules on arrival of rows, which is not a scheduled one.
    pub(crate) fn record_arrival(&self, rules: usize, duration: Duration) {
        self.evaluations.add(rules as u64);
        self.duration.record(duration);
    }

    /// Counts an evaluation.
    pub(crate) fn record(&self, group: &EvaluatedGroup, missed: u64, duration: Duration) {
        let rules = group.rules();
        let failed = rules.iter().filter(|rule| matches!(rule.health(), RuleHealth::Err(_)));
        self.evaluations.add(rules.len() as u64);
        self.failures.add(failed.count() as u64);
        self.iterations.add(1 + missed);
        self.missed.add(missed);
        self.duration.record(duration);
        let time_ns = group.last_evaluation_ns().unwrap_or(0);
        self.last_evaluation_ns.store(time_ns, Ordering::Relaxed);
    }
}
