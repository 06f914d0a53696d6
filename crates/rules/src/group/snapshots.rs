//! State of a group that outlives it: across a restart, and across a reload of its file.

use std::collections::HashMap;
use std::sync::Arc;

use super::{EvaluatedGroup, EvaluatedRule};
use crate::own::{EvaluationClock, OwnCondition};
use crate::rule_file::LabelMap;
use crate::rule_snapshot::{GroupSnapshot, RuleSnapshot};

impl EvaluatedGroup {
    /// State to be stored.
    pub fn snapshot(&self) -> GroupSnapshot {
        let rule = |rule: &EvaluatedRule| RuleSnapshot {
            name: rule.rule.name.clone(),
            labels: rule.rule.labels.clone(),
            table: rule.table.clone(),
            written: rule.written.clone(),
        };
        GroupSnapshot {
            file: self.group.file.clone(),
            name: self.group.name.clone(),
            last_evaluation_ns: self.last_evaluation_ns.or(self.restored_evaluation_ns),
            missed_iterations: self.missed_iterations,
            clock_steps: self.clock.steps(),
            rules: self.rules.iter().map(rule).collect(),
        }
    }

    /// Takes over the state of the group before a restart. The clocks of `for` and
    /// `keep_firing_for` exclude the time in which nobody evaluated the group.
    pub fn restore(&mut self, mut snapshot: GroupSnapshot) {
        for rule in &mut snapshot.rules {
            rule.table.stopped_at_ns = snapshot.last_evaluation_ns;
        }
        self.restored_evaluation_ns = snapshot.last_evaluation_ns;
        self.clock = EvaluationClock::new(snapshot.last_evaluation_ns, snapshot.clock_steps);
        self.missed_iterations = snapshot.missed_iterations;
        self.adopt(snapshot.rules);
    }

    /// Takes over the state of the group before its file was reloaded.
    pub fn reload(&mut self, before: &EvaluatedGroup) {
        let snapshot = before.snapshot();
        self.missed_iterations = snapshot.missed_iterations;
        self.last_evaluation_ns = before.last_evaluation_ns;
        self.restored_evaluation_ns = before.restored_evaluation_ns;
        self.clock = before.clock;
        self.stale_series = before.stale_series.clone();
        self.adopt(snapshot.rules);
        let known: HashMap<&str, &EvaluatedRule> =
            before.rules.iter().map(|rule| (rule.rule.name.as_str(), rule)).collect();
        for rule in &mut self.rules {
            let (Some(own), Some(before)) =
                (rule.rule.condition(), known.get(rule.rule.name.as_str()))
            else {
                continue;
            };
            // Streams of another selector are others, though they may have the same labels.
            let is_same =
                |of: &Arc<OwnCondition>| of.selector() == own.selector() && of.by == own.by;
            if before.rule.condition().is_some_and(is_same) {
                rule.clocks = Arc::clone(&before.clocks);
            }
        }
    }

    /// Matches rules by name and labels; among equal ones the first with the first. Series of the
    /// others become stale.
    fn adopt(&mut self, rules: Vec<RuleSnapshot>) {
        let mut by_key: HashMap<(String, LabelMap), Vec<RuleSnapshot>> = HashMap::new();
        for rule in rules.into_iter().rev() {
            by_key.entry((rule.name.clone(), rule.labels.clone())).or_default().push(rule);
        }
        for rule in &mut self.rules {
            let key = (rule.rule.name.clone(), rule.rule.labels.clone());
            if let Some(before) = by_key.get_mut(&key).and_then(Vec::pop) {
                rule.written = before.written;
                if rule.rule.alert_settings().is_some() {
                    rule.table = before.table;
                }
            }
        }
        let left = by_key.into_values().flatten();
        self.stale_series.extend(left.flat_map(|rule| rule.written));
    }
}
