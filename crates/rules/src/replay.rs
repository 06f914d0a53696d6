//! Replay: what rules would have done over stored data, on a simulated clock.
//!
//! The groups are those that a node evaluates, at the times at which it would have evaluated them.
//! Samples that they record, `ALERTS` and `ALERTS_FOR_STATE` are seen by later evaluations in place
//! of stored ones. Evaluation begins before the range, by the longest `for` and `keep_firing_for`
//! of a group, so that a condition that held before the range is not a new one.
//!
//! Differences from a node that was running: data that arrived late counts from its own time on,
//! and nobody was down.

mod alert_trace;
mod data_check;
mod own_excess;
mod threshold;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use query::{NAME, QueryContext, Settings, Source, promql};

use self::alert_trace::RuleTrace;
pub use self::alert_trace::{ReplayState, ReplayTransition, ReplayedAlert};
pub use self::threshold::{RuleThreshold, ThresholdExcess};
use crate::alert_templates::AlertTemplates;
use crate::evaluator::{OverlayEvaluator, RuleQueryError, RuleSample};
use crate::group::{EvaluatedGroup, IterationInputs, IterationResult, RuleHealth};
use crate::overlay::{OverlaySource, ReplacedSamples, SampleOverlay, SourceEvaluator};
use crate::own::is_absence_series;
use crate::rule_file::Rule;

/// Memory of a sample that later evaluations can see.
const SAMPLE_BYTES: u64 = 128;
/// Maximum number of alerts of a rule.
const ALERTS_MAX: usize = 10_000;

/// What a replay needs from outside.
pub struct ReplayInputs<'a> {
    /// Opens the stored samples, once per query.
    pub open_source: &'a dyn Fn() -> Box<dyn Source + 'a>,
    /// Settings of queries.
    pub settings: &'a Settings,
    /// Enabled PromQL features.
    pub options: promql::Options,
    /// Cancels the replay, and accounts for its memory.
    pub context: &'a dyn QueryContext,
    /// Expands templates.
    pub templates: &'a AlertTemplates,
    /// Maximum number of evaluations of rules.
    pub evaluations_max: u64,
    /// Called after each evaluation of a group with the evaluations of rules, done and in all.
    pub progress: &'a dyn Fn(u64, u64),
}

/// What the rules would have done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleReplay {
    /// Rules in the order of the groups.
    pub rules: Vec<ReplayedRule>,
    /// Number of evaluations of rules.
    pub evaluations: u64,
}

/// Rule with its alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedRule {
    /// Name of the group.
    pub group: String,
    /// Rule.
    pub rule: Rule,
    /// Evaluations in the range.
    pub evaluations: u64,
    /// Evaluations in the range that failed.
    pub failures: u64,
    /// Time and cause of the first failure.
    pub first_failure: Option<(i64, String)>,
    /// Selectors of the expression that have no data in the range.
    pub without_data: Vec<String>,
    /// Alerts that were active in the range.
    pub alerts: Vec<ReplayedAlert>,
    /// Values above the threshold of the expression while its alerts fired. `None` if it names no
    /// threshold of a distribution, or if the values cannot be counted.
    pub above: Option<ThresholdExcess>,
}

impl ReplayedRule {
    /// Alerts of its condition, without that of absent streams of an own rule.
    pub fn condition_alerts(&self) -> impl Iterator<Item = &ReplayedAlert> {
        self.alerts.iter().filter(|alert| !is_absence_series(&alert.series))
    }

    /// The alert of absent streams of an own rule.
    pub fn absence(&self) -> Option<&ReplayedAlert> {
        self.alerts.iter().find(|alert| is_absence_series(&alert.series))
    }

    /// How often alerts of its condition began to fire in the range.
    pub fn fired(&self) -> u64 {
        self.condition_alerts().map(|alert| alert.fired).sum()
    }

    /// How long they fired, summed over the alerts.
    pub fn firing_ns(&self) -> i64 {
        self.condition_alerts().fold(0, |sum, alert| sum.saturating_add(alert.firing_ns))
    }
}

/// Why there is no replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleReplayError {
    /// Too long, or too many rules.
    #[error(
        "limit of {limit} evaluations exceeded ({found}); shorten the range, or replay fewer rules"
    )]
    Evaluations {
        /// Limit.
        limit: u64,
        /// Evaluations of the request.
        found: u64,
    },
    /// Too many alerts.
    #[error("rule {rule:?}: limit of {ALERTS_MAX} alerts exceeded; narrow its expression")]
    Alerts {
        /// Name of the rule.
        rule: String,
    },
    /// Cancelled by the context.
    #[error("cannot replay rules: cancelled")]
    Cancelled,
    /// No memory for the samples that the rules record.
    #[error("cannot replay rules: {0}")]
    Memory(String),
    /// The store cannot be read.
    #[error("cannot replay rules: {0}")]
    Source(String),
}

/// Group with its clock.
struct ReplayedGroup {
    group: EvaluatedGroup,
    next_ns: i64,
    traces: Vec<RuleTrace>,
}

/// Evaluates groups over a range, both ends included.
pub fn replay_groups(
    groups: Vec<EvaluatedGroup>,
    range: &Range<i64>,
    inputs: &ReplayInputs<'_>,
) -> Result<RuleReplay, RuleReplayError> {
    let mut groups: Vec<ReplayedGroup> =
        groups.into_iter().map(|group| ReplayedGroup::new(group, range)).collect();
    let counts = groups.iter().map(|group| group.evaluations_until(range.end));
    let total = counts.fold(0, u64::saturating_add);
    if total > inputs.evaluations_max {
        return Err(RuleReplayError::Evaluations { limit: inputs.evaluations_max, found: total });
    }
    let replaced = replaced_samples(&groups);
    let reads = RecordedReads::of(&groups, &replaced);
    let mut history = SampleOverlay::default();
    let mut memory = ReservedMemory { context: inputs.context, bytes: 0 };
    let mut done = 0;
    // In the order of time; groups of the same time in the order of the file.
    while let Some(group) = groups.iter_mut().min_by_key(|group| group.next_ns)
        && group.next_ns <= range.end
    {
        if inputs.context.is_cancelled() {
            return Err(RuleReplayError::Cancelled);
        }
        let evaluator = ReplayEvaluator { inputs, history: &history, replaced: &replaced };
        let result = group.step(range, inputs.templates, &evaluator)?;
        done += group.traces.len() as u64;
        for write in result.writes.into_iter().filter(|write| reads.contains(write.labels.name())) {
            memory.reserve(SAMPLE_BYTES)?;
            history.push(&write.labels, write.time_ns, write.value);
        }
        (inputs.progress)(done, total);
    }
    let mut replay = RuleReplay { rules: Vec::new(), evaluations: done };
    for group in groups {
        group.finish(range, inputs, &replaced, &mut replay.rules)?;
    }
    Ok(replay)
}

impl ReplayedGroup {
    fn new(group: EvaluatedGroup, range: &Range<i64>) -> ReplayedGroup {
        let settings = group.rules().iter().filter_map(|rule| rule.rule().alert_settings());
        let longest =
            settings.map(|settings| settings.for_ns.saturating_add(settings.keep_firing_for_ns));
        let warm_up_ns = longest.max().unwrap_or(0).saturating_add(group.interval_ns());
        let from_ns = range.start.saturating_sub(warm_up_ns);
        let scheduled_ns = group.scheduled_time_before(from_ns);
        let next_ns = match scheduled_ns < from_ns {
            true => scheduled_ns.saturating_add(group.interval_ns()),
            false => scheduled_ns,
        };
        let traces = group.rules().iter().map(|_| RuleTrace::default()).collect();
        ReplayedGroup { group, next_ns, traces }
    }

    /// Evaluations of rules that are left.
    fn evaluations_until(&self, end_ns: i64) -> u64 {
        if self.next_ns > end_ns {
            return 0;
        }
        let intervals = end_ns.saturating_sub(self.next_ns) / self.group.interval_ns();
        let times = u64::try_from(intervals).unwrap_or(0) + 1;
        times.saturating_mul(self.traces.len() as u64)
    }

    /// Evaluates the group at its next time.
    fn step(
        &mut self,
        range: &Range<i64>,
        templates: &AlertTemplates,
        evaluator: &dyn OverlayEvaluator,
    ) -> Result<IterationResult, RuleReplayError> {
        let time_ns = self.next_ns;
        self.next_ns = time_ns.saturating_add(self.group.interval_ns());
        // Nobody is notified.
        let inputs = IterationInputs { evaluator, templates, resend_delay_ns: i64::MAX };
        let result = self.group.evaluate(time_ns, &inputs);
        for (rule, trace) in self.group.rules().iter().zip(&mut self.traces) {
            trace.record(rule.alerts(), time_ns, range.start);
            if trace.alert_count() > ALERTS_MAX {
                return Err(RuleReplayError::Alerts { rule: rule.rule().name.clone() });
            }
            if time_ns >= range.start {
                let failure = match rule.health() {
                    RuleHealth::Err(cause) => Some(cause.as_str()),
                    RuleHealth::Ok | RuleHealth::Unknown => None,
                };
                trace.count_evaluation(time_ns, failure);
            }
        }
        Ok(result)
    }

    fn finish(
        self,
        range: &Range<i64>,
        inputs: &ReplayInputs<'_>,
        replaced: &ReplacedSamples,
        into: &mut Vec<ReplayedRule>,
    ) -> Result<(), RuleReplayError> {
        for (rule, trace) in self.group.rules().iter().zip(self.traces) {
            let own = rule.rule();
            let without_data = data_check::selectors_without_data(own, range, inputs, replaced)?;
            let (evaluations, failures) = (trace.evaluations, trace.failures);
            let (first_failure, alerts) = (trace.first_failure.clone(), trace.finish(range.end));
            into.push(ReplayedRule {
                group: self.group.name().to_owned(),
                rule: own.clone(),
                evaluations,
                failures,
                first_failure,
                without_data,
                above: threshold::count_above(own, &alerts, inputs),
                alerts,
            });
            if inputs.context.is_cancelled() {
                return Err(RuleReplayError::Cancelled);
            }
        }
        Ok(())
    }
}

/// What the rules of all groups write.
fn replaced_samples(groups: &[ReplayedGroup]) -> ReplacedSamples {
    let mut replaced = ReplacedSamples {
        from_ns: groups.iter().map(|group| group.next_ns).min().unwrap_or(i64::MAX),
        ..ReplacedSamples::default()
    };
    for rule in groups.iter().flat_map(|group| group.group.rules()) {
        let own = rule.rule();
        let names = match own.alert_settings() {
            Some(_) => &mut replaced.alerts,
            None => &mut replaced.metrics,
        };
        names.insert(own.name.clone());
    }
    replaced
}

/// Which recorded metrics are read. The samples of the others need not be kept.
struct RecordedReads {
    /// Texts of all expressions and templates.
    texts: Vec<String>,
    /// Whether a selector has no plain name, so that it can read any metric.
    reads_all: bool,
    known: std::cell::RefCell<BTreeMap<String, bool>>,
}

impl RecordedReads {
    fn of(groups: &[ReplayedGroup], replaced: &ReplacedSamples) -> RecordedReads {
        let rules = || groups.iter().flat_map(|group| group.group.rules()).map(|rule| rule.rule());
        let mut texts = Vec::new();
        for rule in rules() {
            texts.push(rule.expression.clone());
            texts.extend(rule.labels.values().cloned());
            let annotations = rule.alert_settings().map(|settings| settings.annotations.values());
            texts.extend(annotations.into_iter().flatten().cloned());
        }
        let selectors = rules().flat_map(|rule| data_check::selectors(&rule.expression));
        // A query in a template is found by its text only.
        let reads_all = selectors.into_iter().any(|selector| selector.name.is_empty())
            || texts.iter().any(|text| text.contains(NAME) || text.contains("query"));
        let is_empty = replaced.metrics.is_empty() && replaced.alerts.is_empty();
        RecordedReads { texts, reads_all: reads_all && !is_empty, known: Default::default() }
    }

    fn contains(&self, metric: &str) -> bool {
        if self.reads_all {
            return true;
        }
        let mut known = self.known.borrow_mut();
        let found = || self.texts.iter().any(|text| text.contains(metric));
        *known.entry(metric.to_owned()).or_insert_with(found)
    }
}

/// Memory that is released with the replay.
struct ReservedMemory<'a> {
    context: &'a dyn QueryContext,
    bytes: u64,
}

impl ReservedMemory<'_> {
    fn reserve(&mut self, bytes: u64) -> Result<(), RuleReplayError> {
        // Counts as reserved even after an error.
        self.bytes += bytes;
        let reserved = self.context.reserve_memory(bytes);
        reserved.map_err(|error| RuleReplayError::Memory(error.to_string()))
    }
}

impl Drop for ReservedMemory<'_> {
    fn drop(&mut self) {
        self.context.release_memory(self.bytes);
    }
}

/// Context of one query of many: a query leaves the memory of its result reserved, which is small
/// and dropped before the next one.
struct QueryMemory<'a> {
    context: &'a dyn QueryContext,
    reserved: AtomicU64,
}

impl<'a> QueryMemory<'a> {
    fn new(context: &'a dyn QueryContext) -> QueryMemory<'a> {
        QueryMemory { context, reserved: AtomicU64::new(0) }
    }
}

// Relaxed: the counter guards no other memory.
impl QueryContext for QueryMemory<'_> {
    fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    fn reserve_memory(&self, bytes: u64) -> query::Result<()> {
        // Counts as reserved even after an error.
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.context.reserve_memory(bytes)
    }

    fn release_memory(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        self.context.release_memory(bytes);
    }
}

impl Drop for QueryMemory<'_> {
    fn drop(&mut self) {
        self.context.release_memory(*self.reserved.get_mut());
    }
}

/// Evaluator over stored samples and those of the iterations before.
struct ReplayEvaluator<'a, 'b> {
    inputs: &'a ReplayInputs<'b>,
    history: &'a SampleOverlay,
    replaced: &'a ReplacedSamples,
}

impl OverlayEvaluator for ReplayEvaluator<'_, '_> {
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError> {
        let mut found = Vec::new();
        self.with_source(expression, &mut |evaluator| {
            found = evaluator.instant_over(overlay, expression, time_ns)?;
            Ok(())
        })?;
        Ok(found)
    }

    fn with_source(
        &self,
        _expression: &str,
        read: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError> {
        let stored = (self.inputs.open_source)();
        let source = OverlaySource::history(&*stored, self.history, self.replaced);
        let memory = QueryMemory::new(self.inputs.context);
        let evaluator = SourceEvaluator {
            source: &source,
            settings: self.inputs.settings,
            options: self.inputs.options,
            context: &memory,
        };
        read(&evaluator)
    }
}
