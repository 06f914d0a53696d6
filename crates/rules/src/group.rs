//! Evaluation of a group: its rules in order, each over the results of those before it.

mod own_alerts;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::Selector;
use query::{LabelSet, NAME, STALE_BITS, StepValue};

use own_alerts::OwnStreams;

use crate::alert_acknowledgement::AcknowledgementChange;
use crate::alert_clearance::AlertClearance;
use crate::alert_series::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE};
use crate::alert_table::{
    AlertElement, AlertEvaluation, AlertNotice, AlertState, AlertTable, HoldCause,
};
use crate::alert_templates::{AlertTemplates, CycleQuery, ElementTemplates};
use crate::evaluator::{OverlayEvaluator, RuleSample};
use crate::other_rules::{OtherRuleStates, RuleNames};
use crate::overlay::SampleOverlay;
use crate::own::{
    EvaluationClock, FindingCache, OwnCondition, QuerySelectors, SharedWindows, StreamArrivals,
};
use crate::rule_file::{AlertSettings, LabelMap, MissingData, Rule, RuleGroup, RuleKind};

/// Values for groups that do not set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupDefaults {
    /// Time between evaluations (Prometheus: `evaluation_interval`, 1 minute).
    pub interval_ns: i64,
    /// How far in the past expressions are evaluated (Prometheus: `rule_query_offset`, 0).
    pub query_offset_ns: i64,
}

impl Default for GroupDefaults {
    fn default() -> GroupDefaults {
        GroupDefaults { interval_ns: 60 * 1_000_000_000, query_offset_ns: 0 }
    }
}

/// What an iteration needs from outside.
pub struct IterationInputs<'a> {
    /// Answers queries.
    pub evaluator: &'a dyn OverlayEvaluator,
    /// Expands templates.
    pub templates: &'a AlertTemplates,
    /// Time between notices of the same alert (Prometheus: `rules.alert.resend-delay`, 1 minute).
    pub resend_delay_ns: i64,
}

/// Sample that an iteration produced, to be stored as a gauge.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleWrite {
    /// Labels with `__name__`.
    pub labels: LabelSet,
    /// Timestamp.
    pub time_ns: i64,
    /// Number, staleness marker or histogram.
    pub value: StepValue,
}

/// Result of an iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IterationResult {
    /// Samples in the order in which they were produced.
    pub writes: Vec<RuleWrite>,
    /// Due notices with the index of their rule.
    pub notices: Vec<(usize, AlertNotice)>,
    /// What a user should know: failed templates, discarded samples.
    pub warnings: Vec<String>,
    /// Iterations that were due since the last iteration and did not take place.
    pub missed_iterations: u64,
}

/// Health of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuleHealth {
    /// Not evaluated yet.
    #[default]
    Unknown,
    /// The last evaluation succeeded.
    Ok,
    /// It failed, with the cause.
    Err(String),
}

/// Rule with its state.
#[derive(Clone, Debug)]
pub struct EvaluatedRule {
    rule: Arc<Rule>,
    table: AlertTable,
    /// Times of the rows of the streams of an own rule.
    clocks: Arc<StreamArrivals>,
    /// Findings of the last evaluation of an own rule.
    findings: Arc<FindingCache>,
    /// What the query of an own rule reads.
    selectors: QuerySelectors,
    /// Number of streams of an own rule.
    stream_count: usize,
    written: BTreeSet<LabelSet>,
    health: RuleHealth,
}

impl EvaluatedRule {
    /// Rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Alerts; empty for a recording rule.
    pub fn alerts(&self) -> &AlertTable {
        &self.table
    }

    /// Selectors of the series whose rows call for an evaluation of an own rule; `None` before the
    /// first evaluation of its query.
    pub fn selectors(&self) -> Option<&[Selector]> {
        match self.rule.condition() {
            Some(own) if own.is_query() => self.selectors.known(),
            own => Some(own.and_then(|own| own.selector()).map_or(&[][..], std::slice::from_ref)),
        }
    }

    /// Whether they are the same as before an evaluation.
    pub fn has_same_selectors(&self, before: &EvaluatedRule) -> bool {
        self.selectors.is_same(&before.selectors)
    }

    /// Number of streams that an own rule found in its last evaluation.
    pub fn stream_count(&self) -> usize {
        self.stream_count
    }

    /// Health.
    pub fn health(&self) -> &RuleHealth {
        &self.health
    }

    /// Most severe state of the alerts; inactive if there are none.
    pub fn state(&self) -> AlertState {
        let states = self.table.alerts().map(|(_, alert)| alert.state);
        states.max().unwrap_or(AlertState::Inactive)
    }
}

/// Group with its state.
#[derive(Clone, Debug)]
pub struct EvaluatedGroup {
    group: RuleGroup,
    interval_ns: i64,
    query_offset_ns: i64,
    rules: Vec<EvaluatedRule>,
    /// Series of rules that are gone, to be marked stale in the next iteration.
    stale_series: BTreeSet<LabelSet>,
    last_evaluation_ns: Option<i64>,
    /// Last evaluation before a restart, or on arrival since then.
    restored_evaluation_ns: Option<i64>,
    clock: EvaluationClock,
    missed_iterations: u64,
}

impl EvaluatedGroup {
    /// Group that was never evaluated.
    pub fn new(mut group: RuleGroup, defaults: &GroupDefaults) -> EvaluatedGroup {
        let rules = std::mem::take(&mut group.rules);
        let evaluated = |rule| EvaluatedRule {
            rule: Arc::new(rule),
            table: AlertTable::default(),
            clocks: Arc::default(),
            findings: Arc::default(),
            selectors: QuerySelectors::default(),
            stream_count: 0,
            written: BTreeSet::new(),
            health: RuleHealth::Unknown,
        };
        EvaluatedGroup {
            interval_ns: group.interval_ns.unwrap_or(defaults.interval_ns).max(1),
            query_offset_ns: group.query_offset_ns.unwrap_or(defaults.query_offset_ns),
            group,
            rules: rules.into_iter().map(evaluated).collect(),
            stale_series: BTreeSet::new(),
            last_evaluation_ns: None,
            restored_evaluation_ns: None,
            clock: EvaluationClock::default(),
            missed_iterations: 0,
        }
    }

    /// Name of the file.
    pub fn file(&self) -> &str {
        &self.group.file
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.group.name
    }

    /// Time between evaluations.
    pub fn interval_ns(&self) -> i64 {
        self.interval_ns
    }

    /// Maximum number of series or alerts of a rule; 0 for no limit.
    pub fn limit(&self) -> usize {
        self.group.limit
    }

    /// Rules in order.
    pub fn rules(&self) -> &[EvaluatedRule] {
        &self.rules
    }

    /// Time of the last iteration.
    pub fn last_evaluation_ns(&self) -> Option<i64> {
        self.last_evaluation_ns
    }

    /// Iterations that were due and did not take place.
    pub fn missed_iterations(&self) -> u64 {
        self.missed_iterations
    }

    /// Latest evaluation time that is not after `now_ns`. Times are multiples of the interval plus
    /// an offset from a hash of file and name, so that groups do not run all at once.
    pub fn scheduled_time_before(&self, now_ns: i64) -> i64 {
        let key = format!("{}\0{}", self.group.file, self.group.name);
        let hash = model::blake3_128(key.as_bytes());
        let bytes = *hash.first_chunk().expect("BUG: the hash has 16 bytes");
        let offset_ns = (u64::from_le_bytes(bytes) % self.interval_ns as u64) as i64;
        let since_scheduled_ns = now_ns.saturating_sub(offset_ns).rem_euclid(self.interval_ns);
        now_ns.saturating_sub(since_scheduled_ns)
    }

    /// Changes the acknowledgements of an alert of a rule. Returns whether there is a pending or
    /// firing one.
    pub fn change_acknowledgements(
        &mut self,
        rule: usize,
        labels: &LabelSet,
        change: &AcknowledgementChange,
    ) -> bool {
        let rule = self.rules.get_mut(rule);
        rule.is_some_and(|rule| rule.table.change_acknowledgements(labels, change))
    }

    /// Ends an alert of a rule by hand. Returns whether there was a pending or firing one. It
    /// begins anew if its condition holds at the next evaluation.
    pub fn clear_alert(
        &mut self,
        rule: usize,
        labels: &LabelSet,
        clearance: &AlertClearance,
    ) -> bool {
        self.rules.get_mut(rule).is_some_and(|rule| rule.table.clear(labels, clearance))
    }

    /// Removes the acknowledgements that have expired. Returns whether there are some. An
    /// evaluation removes them, too.
    pub fn expire_acknowledgements(&mut self, time_ns: i64) -> bool {
        let expire = |rule: &mut EvaluatedRule| rule.table.expire_acknowledgements(time_ns);
        self.rules.iter_mut().map(expire).fold(false, |any, one| any | one)
    }

    /// Earliest expiry of an acknowledgement.
    pub fn next_expiry_ns(&self) -> Option<i64> {
        let alerts = self.rules.iter().flat_map(|rule| rule.table.alerts.values());
        alerts.filter_map(|alert| alert.acknowledgements.next_expiry_ns()).min()
    }

    /// Evaluates all rules at a time.
    pub fn evaluate(&mut self, time_ns: i64, inputs: &IterationInputs<'_>) -> IterationResult {
        let missed_iterations = self.count_missed(time_ns);
        let result = self.evaluate_some(time_ns, inputs, missed_iterations, &|_| true);
        self.last_evaluation_ns = Some(time_ns);
        result
    }

    /// Evaluates own rules between two scheduled evaluations, because rows of their streams
    /// arrived, and the rules that read their states.
    pub fn evaluate_arrived(
        &mut self,
        time_ns: i64,
        inputs: &IterationInputs<'_>,
        arrived: &BTreeSet<usize>,
    ) -> IterationResult {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut selected = arrived.clone();
        // Rules follow those whose states they read.
        for (index, EvaluatedRule { rule, .. }) in self.rules.iter().enumerate() {
            let depends = |own: &Arc<OwnCondition>| {
                own.dependencies().iter().any(|name| names.contains(*name))
            };
            if selected.contains(&index) || rule.condition().is_some_and(depends) {
                selected.insert(index);
                names.insert(rule.name.clone());
            }
        }
        let restored_ns = self.restored_evaluation_ns;
        self.restored_evaluation_ns = restored_ns.map(|restored_ns| restored_ns.max(time_ns));
        self.evaluate_some(time_ns, inputs, 0, &|index| selected.contains(&index))
    }

    fn evaluate_some(
        &mut self,
        time_ns: i64,
        inputs: &IterationInputs<'_>,
        missed_iterations: u64,
        is_selected: &dyn Fn(usize) -> bool,
    ) -> IterationResult {
        self.clock.observe(time_ns, self.interval_ns);
        let mut iteration = GroupIteration {
            inputs,
            clock: self.clock,
            limit: self.group.limit,
            interval_ns: self.interval_ns,
            time_ns,
            written_at_ns: time_ns.saturating_sub(self.query_offset_ns),
            overlay: SampleOverlay::default(),
            shared: SharedWindows::new(self.rules.iter().map(EvaluatedRule::rule)),
            result: IterationResult { missed_iterations, ..IterationResult::default() },
        };
        let names = RuleNames::new(&self.rules);
        for index in (0..self.rules.len()).filter(|index| is_selected(*index)) {
            let states = names.states_for(&self.rules, index);
            iteration.evaluate_rule(index, &mut self.rules[index], &states);
        }
        for labels in std::mem::take(&mut self.stale_series) {
            iteration.mark_stale(labels);
        }
        iteration.result
    }

    fn count_missed(&mut self, time_ns: i64) -> u64 {
        let Some(last_ns) = self.last_evaluation_ns else { return 0 };
        let intervals = time_ns.saturating_sub(last_ns) / self.interval_ns;
        let missed = u64::try_from(intervals - 1).unwrap_or(0);
        self.missed_iterations += missed;
        missed
    }
}

/// An iteration in progress.
struct GroupIteration<'a> {
    inputs: &'a IterationInputs<'a>,
    limit: usize,
    interval_ns: i64,
    time_ns: i64,
    /// Evaluation time of expressions, and timestamp of samples.
    written_at_ns: i64,
    overlay: SampleOverlay,
    clock: EvaluationClock,
    /// Windows that several own rules read.
    shared: SharedWindows,
    result: IterationResult,
}

impl GroupIteration<'_> {
    fn evaluate_rule(&mut self, index: usize, rule: &mut EvaluatedRule, states: &OtherRuleStates) {
        let EvaluatedRule {
            rule,
            table,
            clocks,
            findings,
            selectors,
            stream_count,
            written,
            health,
        } = rule;
        let outcome = match &rule.kind {
            RuleKind::Recording => self.record(rule),
            RuleKind::Alerting(settings) => {
                let stopped_at_ns = table.resume_clocks(self.time_ns, self.interval_ns);
                let updated = match &settings.condition {
                    None => self.update_alerts(rule, settings, table),
                    Some(own) => {
                        let own = OwnStreams {
                            own,
                            clocks,
                            findings,
                            selectors,
                            stream_count,
                            stopped_at_ns,
                            states,
                        };
                        self.update_own(rule, settings, own, table)
                    }
                };
                self.finish_alerts(index, settings, table, updated)
            }
        };
        let (samples, error) = match outcome {
            Ok(samples) => (samples, None),
            Err(RuleFailure { cause, samples: Some(samples), .. }) => (samples, Some(cause)),
            Err(RuleFailure { cause, samples: None, .. }) => {
                *health = RuleHealth::Err(cause);
                return;
            }
        };
        let mut returned = BTreeSet::new();
        for (labels, value) in samples {
            if self.write(&labels, value) {
                returned.insert(labels);
            } else {
                let name = &rule.name;
                let cause = "another rule of the group wrote the series at the same time";
                let warning = format!("cannot record {labels} of rule {name:?}: {cause}");
                self.result.warnings.push(warning);
            }
        }
        for labels in std::mem::take(written) {
            if !returned.contains(&labels) {
                self.mark_stale(labels);
            }
        }
        *written = returned;
        *health = error.map_or(RuleHealth::Ok, RuleHealth::Err);
    }

    fn query(&self, expression: &str) -> Result<Vec<RuleSample>, RuleFailure> {
        let found =
            self.inputs.evaluator.instant_over(&self.overlay, expression, self.written_at_ns);
        found.map_err(|error| RuleFailure::new(error.0))
    }

    fn record(&self, rule: &Rule) -> Result<Vec<(LabelSet, StepValue)>, RuleFailure> {
        let mut samples = BTreeMap::new();
        for RuleSample { labels, value } in self.query(&rule.expression)? {
            let labels =
                rule.labels.iter().fold(labels.with(NAME, &rule.name), |labels, (name, text)| {
                    labels.with(name, text)
                });
            let value = match value.number() {
                Some(number) => StepValue::Number(number),
                None => value.histogram().map_or(value, StepValue::Histogram),
            };
            if samples.insert(labels.clone(), value).is_some() {
                let cause = format!("two elements of the result have the labels {labels}");
                return Err(RuleFailure::new(format!("cannot record series: {cause}")));
            }
        }
        let (limit, found) = (self.limit, samples.len());
        if limit > 0 && found > limit {
            let message = format!("limit of {limit} series (limit) exceeded ({found})");
            return Err(RuleFailure::new(message + "; raise it or narrow the expression"));
        }
        Ok(samples.into_iter().collect())
    }

    /// Notices and samples of the alerts after they were updated.
    fn finish_alerts(
        &mut self,
        index: usize,
        settings: &AlertSettings,
        table: &mut AlertTable,
        updated: Result<(), RuleFailure>,
    ) -> Result<Vec<(LabelSet, StepValue)>, RuleFailure> {
        let mut failure = updated.err();
        if let Some(failure) = failure.as_mut().filter(|failure| !failure.is_partial) {
            if settings.missing_data == MissingData::Resolve {
                return Err(RuleFailure::new(std::mem::take(&mut failure.cause)));
            }
            table.hold(self.time_ns, self.interval_ns);
        }
        let resend_delay_ns = self.inputs.resend_delay_ns;
        let notices = table.take_due_notices(self.time_ns, resend_delay_ns, self.interval_ns);
        self.result.notices.extend(notices.into_iter().map(|notice| (index, notice)));
        let samples = alert_samples(table);
        match failure {
            None => Ok(samples),
            Some(failure) => Err(RuleFailure { samples: Some(samples), ..failure }),
        }
    }

    fn update_alerts(
        &mut self,
        rule: &Rule,
        settings: &AlertSettings,
        table: &mut AlertTable,
    ) -> Result<(), RuleFailure> {
        let result = self.query(&rule.expression)?;
        let presence: Option<BTreeSet<LabelSet>> = match &settings.missing_data {
            MissingData::Resolve => None,
            MissingData::Hold { presence } => {
                let found = self.query(presence)?;
                Some(found.into_iter().map(|sample| sample.labels.with(NAME, "")).collect())
            }
        };
        let elements = result.iter().map(|sample| self.element(rule, settings, sample)).collect();
        let is_absent =
            |series: &LabelSet| presence.as_ref().is_some_and(|present| !present.contains(series));
        let evaluation = AlertEvaluation {
            settings,
            elements,
            hold: &|series| is_absent(series).then_some(HoldCause::NoData),
            row_time: None,
            limit: self.limit,
            time_ns: self.time_ns,
            interval_ns: self.interval_ns,
        };
        table.evaluate(evaluation).map_err(|error| RuleFailure::new(error.to_string()))
    }

    fn element(
        &mut self,
        rule: &Rule,
        settings: &AlertSettings,
        sample: &RuleSample,
    ) -> AlertElement {
        let IterationInputs { evaluator, templates, .. } = *self.inputs;
        let query = CycleQuery { evaluator, overlay: &self.overlay };
        let (alert, time_ns) = (&rule.name, self.time_ns);
        let element = ElementTemplates { templates, alert, sample, time_ns, query };
        let warnings = &mut self.result.warnings;
        let mut expand = |text: &str| element.expand(text, warnings);
        let series = sample.labels.with(NAME, "");
        let labels = rule
            .labels
            .iter()
            .fold(series.clone(), |labels, (name, text)| labels.with(name, &expand(text)))
            .with(ALERT_NAME, &rule.name);
        let annotations = settings.annotations.iter();
        let annotations: LabelMap =
            model::sort::map(annotations.map(|(name, text)| (name.clone(), expand(text))));
        AlertElement { labels, annotations, series, value: sample.number(), matched: None }
    }

    /// Adds a sample to the overlay and to the result. Returns whether it has no other value.
    fn write(&mut self, labels: &LabelSet, value: StepValue) -> bool {
        let time_ns = self.written_at_ns;
        if !self.overlay.push(labels, time_ns, value.clone()) {
            return self.overlay.value(labels, time_ns) == Some(&value);
        }
        self.result.writes.push(RuleWrite { labels: labels.clone(), time_ns, value });
        true
    }

    /// Marks a series stale, unless another rule wrote it in this iteration.
    fn mark_stale(&mut self, labels: LabelSet) {
        self.write(&labels, StepValue::Number(f64::from_bits(STALE_BITS)));
    }
}

/// Failed evaluation of a rule.
struct RuleFailure {
    cause: String,
    /// Samples to be written in spite of it.
    samples: Option<Vec<(LabelSet, StepValue)>>,
    /// Whether the other streams were evaluated.
    is_partial: bool,
}

impl RuleFailure {
    fn new(cause: String) -> RuleFailure {
        RuleFailure { cause, samples: None, is_partial: false }
    }
}

/// `ALERTS` and `ALERTS_FOR_STATE` of the pending and firing alerts.
fn alert_samples(table: &AlertTable) -> Vec<(LabelSet, StepValue)> {
    const SECOND_NS: i64 = 1_000_000_000;
    let active = table.alerts().filter(|(_, alert)| alert.state != AlertState::Inactive);
    active
        .flat_map(|(labels, alert)| {
            let state = labels.with(NAME, ALERTS).with(ALERT_STATE, alert.state.text());
            let since_s = alert.active_at_ns.div_euclid(SECOND_NS) as f64;
            [
                (state, StepValue::Number(1.0)),
                (labels.with(NAME, ALERTS_FOR_STATE), StepValue::Number(since_s)),
            ]
        })
        .collect()
}
