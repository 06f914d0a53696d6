//! Evaluation of an own rule in an iteration: findings of its streams to alerts.

use std::collections::BTreeSet;
use std::sync::Arc;

use hist::Bracket;
use query::{LabelSet, StepValue};

use super::{GroupIteration, RuleFailure};
use crate::alert_table::{
    AlertElement, AlertEvaluation, AlertState, AlertTable, CriterionMatch, HoldCause,
};
use crate::evaluator::RuleSample;
use crate::other_rules::OtherRuleStates;
use crate::own::{
    AbsentStream, FindingCache, OwnCondition, OwnInputs, QuerySelectors, RuleAbsence,
    StreamArrivals, StreamElement, StreamFindings, absence_series, evaluate_own, is_absence_series,
};
use crate::rule_file::{AlertSettings, Rule};

/// State of an own rule besides its alerts.
pub(super) struct OwnStreams<'a> {
    pub(super) own: &'a OwnCondition,
    pub(super) clocks: &'a mut Arc<StreamArrivals>,
    pub(super) findings: &'a mut Arc<FindingCache>,
    pub(super) selectors: &'a mut QuerySelectors,
    pub(super) stream_count: &'a mut usize,
    /// Last evaluation before a restart, if this is the first one after it.
    pub(super) stopped_at_ns: Option<i64>,
    pub(super) states: &'a OtherRuleStates,
}

impl GroupIteration<'_> {
    /// Evaluates an own rule. Streams that the parent holds keep their states.
    pub(super) fn update_own(
        &mut self,
        rule: &Rule,
        settings: &AlertSettings,
        streams: OwnStreams<'_>,
        table: &mut AlertTable,
    ) -> Result<(), RuleFailure> {
        let OwnStreams { own, clocks, findings: cache, selectors, .. } = streams;
        let OwnStreams { stream_count, stopped_at_ns, states, .. } = streams;
        let active = table.alerts().filter(|(_, alert)| alert.state != AlertState::Inactive);
        let absence = table
            .alerts()
            .map(|(_, alert)| alert)
            .find(|alert| alert.state != AlertState::Inactive && is_absence_series(&alert.series));
        // The streams of an absence before the restart were silent before it.
        let watched_from_ns = stopped_at_ns.map_or(self.written_at_ns, |stopped_ns| {
            let silence_ns = own.absence.as_ref().map_or(0, RuleAbsence::silence_ns);
            absence.map_or(stopped_ns, |alert| {
                alert.began_ns.min(alert.active_at_ns.saturating_sub(silence_ns))
            })
        });
        let watched_from_ns = Arc::make_mut(clocks).watched_from_ns(watched_from_ns);
        let watched: BTreeSet<LabelSet> = active.map(|(_, alert)| alert.series.clone()).collect();
        let own_inputs = OwnInputs {
            expression: &rule.expression,
            time_ns: self.written_at_ns,
            interval_ns: self.interval_ns,
            watched_from_ns,
            clock: self.clock,
            watched: &watched,
            operands: &states.operands,
            shared: &self.shared,
        };
        let mut findings = StreamFindings::default();
        let evaluator = self.inputs.evaluator;
        let read = evaluator.with_source(&rule.expression, &mut |source| {
            findings = evaluate_own(own, source, clocks, cache, selectors, &own_inputs)?;
            Ok(())
        });
        read.map_err(|error| RuleFailure::new(error.0))?;
        *stream_count = findings.stream_count;
        let is_held = |labels: &LabelSet| states.is_held(labels);
        let free = findings.elements.into_iter().filter(|element| !is_held(&element.labels));
        let mut elements: Vec<AlertElement> = free
            .map(|StreamElement { labels, matched }| {
                let value = StepValue::Number(matched.value.estimate);
                let element = self.element(rule, settings, &RuleSample { labels, value });
                AlertElement { matched: Some(matched), ..element }
            })
            .collect();
        let absent = &findings.absence;
        let free: Vec<&AbsentStream> =
            absent.streams.iter().filter(|stream| !is_held(&stream.labels)).collect();
        elements.extend(self.absence_element(rule, settings, own, &free, absent.watched));
        let evaluation = AlertEvaluation {
            settings,
            elements,
            hold: &|series| match is_absence_series(series) {
                true if !absent.streams.is_empty() => Some(HoldCause::Parent),
                true => absent.is_uncertain.then_some(HoldCause::NoData),
                false if is_held(series) => Some(HoldCause::Parent),
                false => findings.unknown.contains(series).then_some(HoldCause::NoData),
            },
            row_time: Some(&|series| findings.row_times.get(series).copied()),
            limit: self.limit,
            time_ns: self.time_ns,
            interval_ns: self.interval_ns,
        };
        table.evaluate(evaluation).map_err(|error| RuleFailure::new(error.to_string()))?;
        match findings.failure {
            None => Ok(()),
            Some(cause) => Err(RuleFailure { cause, samples: None, is_partial: true }),
        }
    }

    /// The alert of absent streams: one, however many they are. Its texts are those of the first.
    fn absence_element(
        &mut self,
        rule: &Rule,
        settings: &AlertSettings,
        own: &OwnCondition,
        absent: &[&AbsentStream],
        watched: usize,
    ) -> Option<AlertElement> {
        let (absence, first) = (own.absence.as_ref()?, *absent.first()?);
        let count = absent.len();
        let value = StepValue::Number(count as f64);
        let sample = |labels: LabelSet| RuleSample { labels, value: value.clone() };
        let example = self.element(rule, settings, &sample(first.labels.clone()));
        let element = self.element(rule, settings, &sample(absence_series()));
        let mut annotations = example.annotations;
        let what = if own.has_selector() { "streams" } else { "metrics of the query" };
        let text = format!("{count} of {watched} {what} have no data, such as {}", first.text());
        annotations.insert("absent".to_owned(), text);
        let matched = CriterionMatch {
            criterion: own.criteria.len(),
            severity: absence.severity,
            value: Bracket::exact(count as f64),
            threshold: None,
            unit: String::new(),
        };
        Some(AlertElement { annotations, matched: Some(matched), ..element })
    }
}
