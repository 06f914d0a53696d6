//! Groups of rule files for tests, and a simulated node: a clock, series in memory, one rule file.

use std::cell::Cell;
use std::sync::Arc;

use hist::{Histogram, Mixture};
use query::promql::parse_series_labels;
use query::{LabelSet, Settings, Source, StepValue, is_stale, promql};
use rules::{
    AlertNotice, AlertState, AlertTemplates, EvaluatedGroup, GroupDefaults, IterationInputs,
    IterationResult, MemorySeries, OverlayEvaluator, ProblemSeverity, RuleFile, RuleProblem,
    RuleQueryError, RuleSample, SampleOverlay, SourceEvaluator, decode_snapshots, encode_snapshots,
    parse_rule_file,
};

pub(crate) const SECOND: i64 = 1_000_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
/// Start of the simulated clock.
pub(crate) const START: i64 = 1_700_000_000 * SECOND;

/// Evaluator whose queries can be made to fail.
struct FailingEvaluator<'a> {
    evaluator: SourceEvaluator<'a>,
    is_failing: bool,
}

impl OverlayEvaluator for FailingEvaluator<'_> {
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError> {
        match self.is_failing {
            true => Err(RuleQueryError("the store is not available".to_owned())),
            false => self.evaluator.instant_over(overlay, expression, time_ns),
        }
    }

    fn with_source(
        &self,
        _: &str,
        read: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError> {
        match self.is_failing {
            true => Err(RuleQueryError("the store is not available".to_owned())),
            false => read(&self.evaluator),
        }
    }
}

/// Simulated node with one group.
pub(crate) struct SimulatedNode {
    pub(crate) series: MemorySeries,
    pub(crate) group: EvaluatedGroup,
    pub(crate) time_ns: i64,
    pub(crate) is_failing: Cell<bool>,
    pub(crate) resend_delay_ns: i64,
}

/// Parses a file of own rules or of Prometheus.
pub(crate) fn parse(text: &str) -> RuleFile {
    let name = if text.contains("[[rule") { "rules.toml" } else { "rules.yml" };
    parse_rule_file(name, text, &promql::Options::default())
}

/// Group of a file without errors.
#[track_caller]
pub(crate) fn group(text: &str) -> EvaluatedGroup {
    let file = parse(text);
    let is_error = |problem: &RuleProblem| problem.severity == ProblemSeverity::Error;
    assert!(!file.problems.iter().any(is_error), "{:?}", file.problems);
    let group = file.groups.into_iter().next().expect("a group");
    EvaluatedGroup::new(group, &GroupDefaults::default())
}

/// The group after a kill of its process and a start with these rules.
#[track_caller]
pub(crate) fn restarted(before: &EvaluatedGroup, rules: &str) -> EvaluatedGroup {
    let stored = encode_snapshots(&[before.snapshot()]);
    let mut after = group(rules);
    let mut snapshots = decode_snapshots(&stored).expect("the states as written");
    after.restore(snapshots.pop().expect("one group"));
    after
}

/// Evaluates the rules of a group over a source, or those whose rows arrived.
pub(crate) fn evaluate_over(
    source: &dyn Source,
    group: &mut EvaluatedGroup,
    time_ns: i64,
    arrived: Option<&[usize]>,
) -> IterationResult {
    let inputs = IterationInputs {
        evaluator: &SourceEvaluator {
            source,
            settings: &Settings::default(),
            options: promql::Options::all(),
            context: &|| false,
        },
        templates: &AlertTemplates::default(),
        resend_delay_ns: MINUTE,
    };
    match arrived {
        None => group.evaluate(time_ns, &inputs),
        Some(rules) => {
            let rules = rules.iter().copied().collect();
            group.evaluate_arrived(time_ns, &inputs, &rules)
        }
    }
}

/// Group `g` with an interval of 30 s.
pub(crate) fn with_rules(rules: &str) -> String {
    format!("groups:\n- name: g\n  interval: 30s\n  rules:\n{rules}")
}

pub(crate) fn labels(text: &str) -> LabelSet {
    match parse_series_labels(text) {
        Ok((pairs, "")) => LabelSet::new(pairs),
        other => panic!("{text}: {other:?}"),
    }
}

impl SimulatedNode {
    #[track_caller]
    pub(crate) fn new(text: &str) -> SimulatedNode {
        SimulatedNode {
            series: MemorySeries::default(),
            group: group(text),
            time_ns: START,
            is_failing: Cell::new(false),
            resend_delay_ns: MINUTE,
        }
    }

    /// Stores a sample at the current time.
    pub(crate) fn set(&mut self, series: &str, value: f64) {
        self.series.push(&labels(series), self.time_ns, StepValue::Number(value));
    }

    /// Stores a distribution at the current time.
    pub(crate) fn record(&mut self, series: &str, values: impl IntoIterator<Item = f64>) {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        let value = StepValue::Distribution(Arc::new(Mixture::from(histogram)));
        self.series.push(&labels(series), self.time_ns, value);
    }

    /// Ends a series.
    pub(crate) fn end(&mut self, series: &str) {
        self.set(series, f64::from_bits(query::STALE_BITS));
    }

    /// Evaluates at the current time and stores what was written.
    pub(crate) fn evaluate(&mut self) -> IterationResult {
        self.evaluate_by(|group, time_ns, inputs| group.evaluate(time_ns, inputs))
    }

    /// Evaluates the rules whose rows arrived.
    pub(crate) fn evaluate_arrived(&mut self, rules: &[usize]) -> IterationResult {
        let arrived = rules.iter().copied().collect();
        self.evaluate_by(|group, time_ns, inputs| group.evaluate_arrived(time_ns, inputs, &arrived))
    }

    fn evaluate_by(
        &mut self,
        evaluate: impl Fn(&mut EvaluatedGroup, i64, &IterationInputs<'_>) -> IterationResult,
    ) -> IterationResult {
        let settings = Settings::default();
        let options = promql::Options::default();
        let evaluator = SourceEvaluator {
            source: &self.series,
            settings: &settings,
            options,
            context: &|| false,
        };
        let evaluator = FailingEvaluator { evaluator, is_failing: self.is_failing.get() };
        let inputs = IterationInputs {
            evaluator: &evaluator,
            templates: &AlertTemplates::default(),
            resend_delay_ns: self.resend_delay_ns,
        };
        let result = evaluate(&mut self.group, self.time_ns, &inputs);
        for write in &result.writes {
            self.series.push(&write.labels, write.time_ns, write.value.clone());
        }
        result
    }

    /// Evaluates, and moves the clock by an interval.
    pub(crate) fn step(&mut self) -> IterationResult {
        let result = self.evaluate();
        self.time_ns += self.group.interval_ns();
        result
    }

    /// Kills the process, and starts it after some time.
    pub(crate) fn restart(&mut self, text: &str, down_ns: i64) {
        self.group = restarted(&self.group, text);
        self.time_ns += down_ns;
    }

    /// Loads another version of the file.
    pub(crate) fn reload(&mut self, text: &str) {
        let mut loaded = group(text);
        loaded.reload(&self.group);
        self.group = loaded;
    }

    /// States of the alerts of a rule, `?` for unknown: `pending b, firing? c`.
    pub(crate) fn states(&self, rule: usize) -> String {
        let alerts = self.group.rules()[rule].alerts().alerts();
        let shown = alerts.map(|(labels, alert)| {
            let unknown = if alert.is_unknown() { "?" } else { "" };
            format!("{}{unknown} {}", alert.state.text(), labels.get("instance"))
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// Notices of an iteration: `firing b`.
pub(crate) fn notices(result: &IterationResult) -> String {
    let shown = |notice: &AlertNotice| {
        let state = match notice.alert.state {
            AlertState::Inactive => "resolved",
            state => state.text(),
        };
        format!("{state} {}", notice.labels.get("instance"))
    };
    result.notices.iter().map(|(_, notice)| shown(notice)).collect::<Vec<_>>().join(", ")
}

/// Samples of an iteration, one per line.
pub(crate) fn writes(result: &IterationResult) -> String {
    let lines = result.writes.iter().map(|write| {
        let value = match &write.value {
            StepValue::Number(number) if is_stale(*number) => "stale".to_owned(),
            StepValue::Number(number) => number.to_string(),
            _ => "histogram".to_owned(),
        };
        format!("{} {value}\n", write.labels)
    });
    lines.collect()
}
