//! Alert rules of the demonstration, and the history of their alerts.
//!
//! The history is not made up: it is what the rules write when they are evaluated over the stored
//! requests, at the times at which a server that was running would have evaluated them.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use alerts::ReplayedHistory;
use anyhow::{Context as _, Result, ensure};
use model::{Series, SeriesKind};
use query::{NAME, StoreSource, promql};
use rules::slo::SloDraft;
use rules::{
    AlertTemplates, EvaluatedGroup, GroupDefaults, IterationInputs, RuleGroup, RuleWrite,
    SourceEvaluator, parse_rule_file,
};
use store::Store;

/// Name of the rule file, in the directory of the demonstration.
pub(crate) const RULE_FILE: &str = "rules/shop.yaml";

/// The rule file. Annotations say what to do: an alert is read by somebody who was asleep.
pub(crate) const RULES: &str = r#"groups:
- name: shop
  interval: 1m
  rules:
  - alert: PaymentsSlow
    expr: |
      histogram_fraction(800ms, +Inf, sum by (region, service) (
        exact_increase(request_duration{service="payment"}[5m]))) > 0.05
    for: 2m
    labels:
      severity: page
    annotations:
      summary: >-
        {{ $value | humanizePercentage }} of the payments in {{ $labels.region }} take more than
        800 ms
      description: >-
        Open the breakdown by label in Explore (Who?), then roll back the host or version that it
        names.
  - alert: OrdersSlow
    expr: |
      histogram_fraction(1s, +Inf, sum by (region, service) (
        exact_increase(request_duration{service="orders"}[5m]))) > 0.05
    for: 5m
    labels:
      severity: warning
    annotations:
      summary: >-
        {{ $value | humanizePercentage }} of the orders in {{ $labels.region }} take more than 1 s
      description: Orders wait for payments; look at these first.
  - alert: PaymentQueueLong
    expr: payment_queue_depth > 20
    for: 5m
    labels:
      severity: warning
    annotations:
      summary: "{{ $value }} payments wait for the bank in {{ $labels.region }}"
"#;

/// Window of the burn-rate alerts that have a history. Longer ones read days at each evaluation,
/// for which the start of a demonstration has no time.
const BURN_WINDOW: &str = "1h";

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);

/// A service level objective of the shop, of a week.
pub(crate) struct ShopObjective {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) selector: &'static str,
    pub(crate) threshold: &'static str,
    pub(crate) objective: &'static str,
}

pub(crate) const OBJECTIVES: [ShopObjective; 2] = [
    ShopObjective {
        name: "payments",
        description: "Payments are answered within 800 ms",
        selector: "request_duration{service=\"payment\"}",
        threshold: "800ms",
        objective: "99.5%",
    },
    ShopObjective {
        name: "orders",
        description: "Orders are answered within a second",
        selector: "request_duration{service=\"orders\"}",
        threshold: "1s",
        objective: "99%",
    },
];
pub(crate) const OBJECTIVE_PERIOD: &str = "7d";

impl ShopObjective {
    /// Its table of the settings.
    pub(crate) fn settings_text(&self) -> String {
        let ShopObjective { name, description, selector, threshold, objective } = self;
        format!(
            "[[slo]]\nname = \"{name}\"\ndescription = \"{description}\"\n\
             selector = '{selector}'\nthreshold = \"{threshold}\"\n\
             objective = \"{objective}\"\nperiod = \"{OBJECTIVE_PERIOD}\"\n\n"
        )
    }

    fn rule_group(&self) -> RuleGroup {
        let draft = SloDraft {
            name: self.name.to_owned(),
            selector: Some(self.selector.to_owned()),
            threshold: Some(self.threshold.to_owned()),
            objective: Some(self.objective.to_owned()),
            period: Some(OBJECTIVE_PERIOD.to_owned()),
            alert_windows: Some(vec![BURN_WINDOW.to_owned()]),
            ..SloDraft::default()
        };
        draft.check().expect("BUG: invalid objective of the demonstration").rule_group()
    }
}

/// Samples that the rules write in a range, and the changes of their alerts. Groups are evaluated
/// at the same time. `progress` gets the share that is done.
pub(crate) fn evaluate_rules(
    store: &Store,
    range: &Range<i64>,
    progress: &mut dyn FnMut(f64),
) -> Result<(Vec<RuleWrite>, ReplayedHistory)> {
    let file = parse_rule_file(RULE_FILE, RULES, &promql::Options::all());
    ensure!(file.problems.is_empty(), "BUG: rules of the demonstration: {:?}", file.problems);
    store.catch_up().context("cannot read the requests of the shop")?;
    let groups = file.groups.into_iter().chain(OBJECTIVES.iter().map(ShopObjective::rule_group));
    let mut groups: Vec<EvaluatedGroup> =
        groups.map(|group| EvaluatedGroup::new(group, &GroupDefaults::default())).collect();
    let iterations = |group: &EvaluatedGroup| {
        let first = group.scheduled_time_before(range.start);
        (range.end - first).max(0) / group.interval_ns().max(1) + 1
    };
    let total: i64 = groups.iter().map(iterations).sum();
    let done = &AtomicI64::new(0);
    let evaluated = thread::scope(|scope| {
        let evaluate = |group| scope.spawn(move || evaluate_group(store, range, group, done));
        let threads: Vec<_> = groups.iter_mut().map(evaluate).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            progress(done.load(Ordering::Relaxed) as f64 / total.max(1) as f64);
            thread::sleep(PROGRESS_INTERVAL);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<(Vec<RuleWrite>, ReplayedHistory)>>>()
    })?;
    let (mut writes, mut changes) = (Vec::new(), ReplayedHistory::default());
    for (of_group, changes_of_group) in evaluated {
        writes.extend(of_group);
        changes.merge(changes_of_group);
    }
    Ok((writes, changes))
}

/// The same of one group.
fn evaluate_group(
    store: &Store,
    range: &Range<i64>,
    group: &mut EvaluatedGroup,
    done: &AtomicI64,
) -> Result<(Vec<RuleWrite>, ReplayedHistory)> {
    let view = store.view()?;
    let source = StoreSource::new(&view);
    let settings = query::Settings::default();
    let evaluator = SourceEvaluator {
        source: &source,
        settings: &settings,
        options: promql::Options::all(),
        context: &|| false,
    };
    let templates = AlertTemplates::default();
    // Nobody is notified.
    let inputs =
        IterationInputs { evaluator: &evaluator, templates: &templates, resend_delay_ns: i64::MAX };
    let (mut writes, mut changes) = (Vec::new(), ReplayedHistory::default());
    let mut time_ns = group.scheduled_time_before(range.start);
    while time_ns < range.end {
        writes.extend(group.evaluate(time_ns, &inputs).writes);
        changes.record(group, time_ns);
        time_ns += group.interval_ns();
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok((writes, changes))
}

/// Series of a sample of a rule.
pub(crate) fn write_series(write: &RuleWrite) -> Series {
    let labels = write.labels.iter().filter(|(name, _)| *name != NAME);
    labels.fold(Series::new(write.labels.name(), SeriesKind::Gauge), |series, (name, value)| {
        series.with_label(name, value)
    })
}
