//! States of other rules of the group, as an own rule reads them: those of its parent, and of the
//! operands of its formula.

use std::collections::{BTreeMap, HashMap};

use query::LabelSet;

use crate::alert_table::{Alert, AlertState};
use crate::group::{EvaluatedRule, RuleHealth};
use crate::own::{OperandState, is_absence_series};

/// Severity at which a parent holds its children.
const HOLDING_SEVERITY: u8 = 1;

/// Positions of the rules that others read, by name.
pub(crate) struct RuleNames(HashMap<String, usize>);

/// What one rule reads of others.
#[derive(Default)]
pub(crate) struct OtherRuleStates {
    pub(crate) operands: BTreeMap<String, OperandState>,
    /// Labels of the series for which the parent fires at severity 1.
    holding: Vec<LabelSet>,
}

impl RuleNames {
    pub(crate) fn new(rules: &[EvaluatedRule]) -> RuleNames {
        let own = rules.iter().filter_map(|rule| rule.rule().condition());
        let read: Vec<&str> = own.flat_map(|own| own.dependencies()).collect();
        if read.is_empty() {
            return RuleNames(HashMap::new());
        }
        let positions = rules.iter().enumerate();
        RuleNames(positions.map(|(at, rule)| (rule.rule().name.clone(), at)).collect())
    }

    /// States of the rules that a rule reads.
    pub(crate) fn states_for(&self, rules: &[EvaluatedRule], index: usize) -> OtherRuleStates {
        let mut states = OtherRuleStates::default();
        let Some(own) = rules[index].rule().condition() else { return states };
        let find = |name: &str| self.0.get(name).map(|at| &rules[*at]);
        if let Some(parent) = own.parent.as_deref().and_then(find) {
            let holds = |alert: &&Alert| {
                alert.state == AlertState::Firing && alert.severity() == Some(HOLDING_SEVERITY)
            };
            states.holding =
                stream_alerts(parent).filter(holds).map(|alert| alert.series.clone()).collect();
        }
        for name in own.operands() {
            states.operands.extend(find(name).map(|rule| (name.to_owned(), operand(rule))));
        }
        states
    }
}

/// Alerts of a rule without that of absent streams: it says nothing about the condition.
fn stream_alerts(rule: &EvaluatedRule) -> impl Iterator<Item = &Alert> {
    let alerts = rule.alerts().alerts().map(|(_, alert)| alert);
    alerts.filter(|alert| !is_absence_series(&alert.series))
}

fn operand(rule: &EvaluatedRule) -> OperandState {
    let labels = |is_wanted: &dyn Fn(&Alert) -> bool| {
        stream_alerts(rule)
            .filter(|alert| is_wanted(alert))
            .map(|alert| alert.series.clone())
            .collect()
    };
    OperandState {
        firing: labels(&|alert| alert.state == AlertState::Firing && !alert.is_unknown()),
        unknown: labels(&|alert| alert.state != AlertState::Inactive && alert.is_unknown()),
        changed_ms: rule.alerts().transitions,
        is_failing: matches!(rule.health(), RuleHealth::Err(_)),
    }
}

impl OtherRuleStates {
    /// Whether the parent fires at severity 1 for a stream: all labels that both have are equal.
    pub(crate) fn is_held(&self, labels: &LabelSet) -> bool {
        let agrees = |parent: &LabelSet| {
            parent.iter().all(|(name, value)| ["", value].contains(&labels.get(name)))
        };
        self.holding.iter().any(agrees)
    }
}
