//! What the notifier was given: only changes are submitted.

use std::collections::{BTreeMap, BTreeSet};

use notify::{Notification, NotifiedState};
use rules::{EvaluatedGroup, RuleHealth};

use crate::alert_impact::ImpactReader;
use crate::alert_notification::{alert_id, ended, notification};

/// Newest submitted notification of each alert.
#[derive(Debug, Default)]
pub(crate) struct SubmittedAlerts {
    /// By file and name of the group, then by identity of the alert.
    groups: BTreeMap<(String, String), BTreeMap<String, Notification>>,
}

impl SubmittedAlerts {
    /// What the notifier does not know of a group: alerts that fire or resolved, and the end of
    /// those that are gone. An alert is not gone while its rule fails. Resolved alerts that are
    /// gone are forgotten.
    pub(crate) fn changes(
        &mut self,
        group: &EvaluatedGroup,
        now_ns: i64,
        impacts: &ImpactReader<'_>,
    ) -> Vec<Notification> {
        let known = self.groups.entry(key(group)).or_default();
        let (mut found, mut present) = (Vec::new(), BTreeSet::new());
        for rule in group.rules() {
            for (labels, alert) in rule.alerts().alerts() {
                let id = alert_id(group, labels, alert);
                let newest = notification(group, rule, labels, alert);
                let is_new = |newest: &Notification| {
                    known.get(&id).is_none_or(|before| before.key < newest.key)
                };
                found.extend(newest.filter(is_new).map(|newest| Notification {
                    impact: impacts.impact(group, rule.rule(), alert),
                    ..newest
                }));
                present.insert(id);
            }
        }
        let failing: BTreeSet<&str> = group
            .rules()
            .iter()
            .filter(|rule| matches!(rule.health(), RuleHealth::Err(_)))
            .map(|rule| rule.rule().name.as_str())
            .collect();
        known.retain(|id, before| present.contains(id) || is_open(before));
        let gone = known.iter().filter(|(id, _)| !present.contains(*id)).map(|(_, before)| before);
        let gone = gone.filter(|before| !failing.contains(before.name.as_str()));
        found.extend(gone.map(|before| ended(before, now_ns)));
        found
    }

    /// The end of all alerts of groups that are gone.
    pub(crate) fn ends_of_removed<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a EvaluatedGroup>,
        now_ns: i64,
    ) -> Vec<((String, String), Notification)> {
        let present: BTreeSet<_> = groups.map(key).collect();
        self.groups.retain(|key, known| present.contains(key) || known.values().any(is_open));
        let removed = self.groups.iter().filter(|(key, _)| !present.contains(*key));
        let ends = removed.flat_map(|(key, known)| {
            let open = known.values().filter(|before| is_open(before));
            open.map(|before| (key.clone(), ended(before, now_ns)))
        });
        ends.collect()
    }

    /// Records that a notification was submitted.
    pub(crate) fn record(&mut self, group: (String, String), notification: Notification) {
        let known = self.groups.entry(group).or_default();
        known.insert(notification.key.alert_id.clone(), notification);
    }
}

fn is_open(notification: &Notification) -> bool {
    notification.state != NotifiedState::Resolved
}

fn key(group: &EvaluatedGroup) -> (String, String) {
    (group.file().to_owned(), group.name().to_owned())
}
