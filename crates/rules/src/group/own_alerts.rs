//! Evaluation of an own rule in an iteration: findings of its streams to alerts.

use std::collections::BTreeSet;
use std::sync::Arc;

use query::{LabelSet, StepValue};

use super::{GroupIteration, RuleFailure};
use crate::alert_table::{AlertElement, AlertEvaluation, AlertState, AlertTable, HoldCause};
use crate::evaluator::RuleSample;
use crate::other_rules::OtherRuleStates;
use crate::own::{
    FindingCache, OwnCondition, OwnInputs, StreamClocks, StreamElement, StreamFindings,
    evaluate_own,
};
use crate::rule_file::{AlertSettings, Rule};

/// State of an own rule besides its alerts.
pub(super) struct OwnStreams<'a> {
    pub(super) own: &'a OwnCondition,
    pub(super) clocks: &'a mut Arc<StreamClocks>,
    pub(super) findings: &'a mut Arc<FindingCache>,
    pub(super) stream_count: &'a mut usize,
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
        let OwnStreams { own, clocks, findings: cache, stream_count, states } = streams;
        let active = table.alerts().filter(|(_, alert)| alert.state != AlertState::Inactive);
        let watched: BTreeSet<LabelSet> = active.map(|(_, alert)| alert.series.clone()).collect();
        let own_inputs = OwnInputs {
            expression: &rule.expression,
            time_ns: self.written_at_ns,
            interval_ns: self.interval_ns,
            watched: &watched,
            operands: &states.operands,
            shared: &self.shared,
        };
        let mut findings = StreamFindings::default();
        let evaluator = self.inputs.evaluator;
        let read = evaluator.with_source(&rule.expression, &mut |source| {
            findings = evaluate_own(own, source, clocks, cache, &own_inputs)?;
            Ok(())
        });
        read.map_err(|error| RuleFailure::new(error.0))?;
        *stream_count = findings.stream_count;
        let is_held = |labels: &LabelSet| states.is_held(labels);
        let free = findings.elements.into_iter().filter(|element| !is_held(&element.labels));
        let elements = free
            .map(|StreamElement { labels, hit }| {
                let value = StepValue::Number(hit.value.estimate);
                let element = self.element(rule, settings, &RuleSample { labels, value });
                AlertElement { hit: Some(hit), ..element }
            })
            .collect();
        let evaluation = AlertEvaluation {
            settings,
            elements,
            hold: &|series| match is_held(series) {
                true => Some(HoldCause::Parent),
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
}
