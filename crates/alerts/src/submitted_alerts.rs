//! What the notifier was given: only changes are submitted.

use std::collections::{BTreeMap, BTreeSet};

use journal::supervisor::catch_panic;
use notify::{AlertImpact, Notification, NotificationKey, NotifiedState, RoutedNotification};
use rules::{Alert, EvaluatedGroup, Rule, RuleHealth};

use crate::alert_evidence::AlertEvidence;
use crate::alert_notification::{alert_id, ended, notification};

/// Newest submitted notification of each alert.
#[derive(Debug, Default)]
pub(crate) struct SubmittedAlerts {
    /// By file and name of the group.
    groups: BTreeMap<(String, String), SubmittedGroup>,
    /// Alerts whose messages could not be composed since the last call of
    /// [`SubmittedAlerts::take_panics`].
    panics: Vec<String>,
}

#[derive(Debug, Default)]
struct SubmittedGroup {
    /// By identity of the alert.
    known: BTreeMap<String, RoutedNotification>,
    /// What the alerts of notifications affected that were found and not submitted: it is not read
    /// again with each attempt.
    impacts: BTreeMap<NotificationKey, AlertImpact>,
}

impl SubmittedAlerts {
    /// What the notifier does not know of a group: alerts that fire or resolved, and the end of
    /// those that are gone. An alert is not gone while its rule fails. Resolved alerts that are
    /// gone are forgotten. `evidence` reads what an alert of the rule at a position affected, and
    /// its picture; an acknowledgement, which somebody waits for, has what the message before it
    /// says.
    pub(crate) fn changes(
        &mut self,
        group: &EvaluatedGroup,
        now_ns: i64,
        evidence: &mut dyn FnMut(usize, &Alert) -> AlertEvidence,
        link: &dyn Fn(&Rule, &Alert) -> Option<String>,
    ) -> Vec<RoutedNotification> {
        let SubmittedAlerts { groups, panics } = self;
        let SubmittedGroup { known, impacts } = groups.entry(key(group)).or_default();
        let read = std::mem::take(impacts);
        let (mut found, mut present) = (Vec::new(), BTreeSet::new());
        for (index, rule) in group.rules().iter().enumerate() {
            for (labels, alert) in rule.alerts().alerts() {
                let id = alert_id(group, labels, alert);
                // A panic of one message is a bug that costs no other one.
                let mut failed = |what: &str, message: String| {
                    let name = &rule.rule().name;
                    panics.push(format!("{what} of alert {name:?} {labels}: {message}"));
                };
                let newest = catch_panic(|| notification(group, rule, labels, alert));
                let newest = newest.unwrap_or_else(|message| {
                    failed("the message", message);
                    None
                });
                let before = known.get(&id).map(|before| &before.notification);
                let is_new =
                    |newest: &Notification| before.is_none_or(|before| before.key < newest.key);
                present.insert(id);
                let Some(newest) = newest.filter(is_new) else { continue };
                let without_picture = |impact| AlertEvidence { impact, picture: None };
                let AlertEvidence { impact, picture } = match (newest.state, before) {
                    (NotifiedState::Acknowledged, Some(before)) => without_picture(before.impact),
                    _ => match read.get(&newest.key) {
                        Some(known) => without_picture(*known),
                        None => catch_panic(|| evidence(index, alert)).unwrap_or_else(|message| {
                            failed("the numbers", message);
                            AlertEvidence::default()
                        }),
                    },
                };
                impacts.insert(newest.key.clone(), impact);
                let link = catch_panic(|| link(rule.rule(), alert)).unwrap_or_else(|message| {
                    failed("the link", message);
                    None
                });
                let newest = Notification { impact, picture, link, ..newest };
                found.push(match alert.severity() {
                    Some(_) => RoutedNotification::with_criterion_severity(newest),
                    None => RoutedNotification::from(newest),
                });
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
        let gone = gone.filter(|before| !failing.contains(before.notification.name.as_str()));
        found.extend(gone.map(|before| ended_routed(before, now_ns)));
        found
    }

    /// What panicked, and of which alerts.
    pub(crate) fn take_panics(&mut self) -> Vec<String> {
        std::mem::take(&mut self.panics)
    }

    /// The end of all alerts of groups that are gone.
    pub(crate) fn ends_of_removed<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a EvaluatedGroup>,
        now_ns: i64,
    ) -> Vec<((String, String), RoutedNotification)> {
        let present: BTreeSet<_> = groups.map(key).collect();
        self.groups.retain(|key, group| present.contains(key) || group.known.values().any(is_open));
        let removed = self.groups.iter().filter(|(key, _)| !present.contains(*key));
        let ends = removed.flat_map(|(key, group)| {
            let open = group.known.values().filter(|before| is_open(before));
            open.map(|before| (key.clone(), ended_routed(before, now_ns)))
        });
        ends.collect()
    }

    /// Records that a notification was submitted. Its picture is not kept: there may be many.
    pub(crate) fn record(&mut self, group: (String, String), mut submitted: RoutedNotification) {
        submitted.notification.picture = None;
        let SubmittedGroup { known, impacts } = self.groups.entry(group).or_default();
        let key = submitted.notification.key.clone();
        impacts.remove(&key);
        known.insert(key.alert_id, submitted);
    }
}

fn is_open(submitted: &RoutedNotification) -> bool {
    submitted.notification.state != NotifiedState::Resolved
}

/// The end of an alert, for those who were told of it.
fn ended_routed(before: &RoutedNotification, now_ns: i64) -> RoutedNotification {
    let notification = ended(&before.notification, now_ns);
    RoutedNotification { notification, labels: before.labels.clone() }
}

fn key(group: &EvaluatedGroup) -> (String, String) {
    (group.file().to_owned(), group.name().to_owned())
}

#[cfg(test)]
mod tests {
    use query::LabelSet;
    use rules::{AcknowledgementChange, AlertAcknowledgement};

    use super::*;
    use crate::test_group::{evaluate, test_group};

    const NOW_NS: i64 = 1_767_600_000_000_000_000;

    /// Group with an alert that fires.
    fn firing() -> EvaluatedGroup {
        let text = "groups:\n- name: g\n  rules:\n  - alert: Down\n    expr: vector(1)\n";
        let mut group = test_group("rules.yml", text);
        evaluate(&mut group, NOW_NS);
        group
    }

    /// States that the notifier does not know, with the numbers of their requests. `reads` counts
    /// the numbers that were read, of which each is another one.
    fn changes(
        submitted: &mut SubmittedAlerts,
        group: &EvaluatedGroup,
        reads: &mut u64,
    ) -> Vec<RoutedNotification> {
        let mut evidence = |_: usize, _: &Alert| {
            *reads += 1;
            let impact = AlertImpact { requests: Some(*reads), users: None };
            AlertEvidence { impact, picture: None }
        };
        submitted.changes(group, NOW_NS, &mut evidence, &|_, _| None)
    }

    #[track_caller]
    fn check(found: &[RoutedNotification], expected: (NotifiedState, u64)) {
        let found = found.iter().map(|one| &one.notification);
        let found: Vec<_> = found.map(|one| (one.state, one.impact.requests)).collect();
        assert_eq!(found, [(expected.0, Some(expected.1))]);
    }

    #[test]
    fn numbers_of_a_notification_that_cannot_be_submitted_are_read_once() {
        let (mut submitted, group, mut reads) = (SubmittedAlerts::default(), firing(), 0);
        for _ in 0..3 {
            check(&changes(&mut submitted, &group, &mut reads), (NotifiedState::Firing, 1));
        }
        let found = changes(&mut submitted, &group, &mut reads).remove(0);
        submitted.record(key(&group), found);
        assert_eq!(changes(&mut submitted, &group, &mut reads), []);
        assert_eq!(reads, 1);
    }

    #[test]
    fn numbers_that_panic_are_left_out_and_reported() {
        let (mut submitted, group) = (SubmittedAlerts::default(), firing());
        let mut evidence = |_: usize, _: &Alert| panic!("no numbers");
        let found = submitted.changes(&group, NOW_NS, &mut evidence, &|_, _| panic!("no link"));
        let found: Vec<_> =
            found.iter().map(|one| (one.notification.state, one.notification.impact)).collect();
        assert_eq!(found, [(NotifiedState::Firing, AlertImpact::default())]);
        let expected = ["numbers", "link"]
            .map(|what| format!("the {what} of alert \"Down\" {{alertname=\"Down\"}}: no {what}"));
        assert_eq!(submitted.take_panics(), expected);
        assert_eq!(submitted.take_panics(), [""; 0]);
    }

    #[test]
    fn an_acknowledgement_has_the_numbers_of_the_message_before() {
        let (mut submitted, mut group, mut reads) = (SubmittedAlerts::default(), firing(), 0);
        let found = changes(&mut submitted, &group, &mut reads).remove(0);
        submitted.record(key(&group), found);
        let set = AcknowledgementChange::Set(AlertAcknowledgement {
            at_ns: NOW_NS,
            until_ns: NOW_NS + 1,
            by: "ann".to_owned(),
            note: String::new(),
            origin: None,
        });
        let labels = LabelSet::new([("alertname", "Down")]);
        assert!(group.change_acknowledgements(0, &labels, &set));
        let found = changes(&mut submitted, &group, &mut reads);
        check(&found, (NotifiedState::Acknowledged, 1));
        submitted.record(key(&group), found.into_iter().next().expect("one"));
        // It fires again, which is a message with new numbers.
        let all = AcknowledgementChange::RemoveAll;
        assert!(group.change_acknowledgements(0, &labels, &all));
        check(&changes(&mut submitted, &group, &mut reads), (NotifiedState::Firing, 2));
    }
}
