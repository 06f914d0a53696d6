//! Changes of state for the history: what differs from the states recorded before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notify::AlertLabels;
use query::LabelSet;
use rules::{Alert, AlertAcknowledgement, AlertClearance, AlertState, EvaluatedGroup};

use crate::alert_notification::{alert_id, alert_severity, received_alert_id};
use crate::alert_selection::alert_labels;
use crate::history_entry::{HistoryEntry, HistoryEvent};
use crate::received_alerts::ReceivedAlert;
use crate::site_acknowledgements::EXPIRY_STEP_NS;

/// File and name of a group.
type RuleGroupKey = (String, String);

/// States as last recorded.
#[derive(Debug, Default)]
pub(crate) struct HistoryRecorder {
    groups: BTreeMap<RuleGroupKey, BTreeMap<LabelSet, RecordedAlert>>,
    received: BTreeMap<AlertLabels, RecordedAlert>,
}

/// An active alert as recorded.
#[derive(Clone, Debug, PartialEq)]
struct RecordedAlert {
    id: String,
    is_received: bool,
    name: String,
    labels: AlertLabels,
    is_firing: bool,
    severity: u8,
    value: Option<f64>,
    active_ns: i64,
    fired_ns: Option<i64>,
    severity_changed_ns: Option<i64>,
    unknown_since_ns: Option<i64>,
    acknowledgement: Option<AlertAcknowledgement>,
}

impl HistoryRecorder {
    /// Changes of a group since it was last recorded.
    pub(crate) fn of_group(&mut self, group: &EvaluatedGroup, now_ns: i64) -> Vec<HistoryEntry> {
        let key = (group.file().to_owned(), group.name().to_owned());
        let mut active = BTreeMap::new();
        for rule in group.rules() {
            let alerts = rule.alerts().alerts();
            for (labels, alert) in alerts.filter(|(_, alert)| alert.state != AlertState::Inactive) {
                let name = &rule.rule().name;
                let recorded = RecordedAlert::of_rule(group, name, labels, alert);
                active.insert(labels.clone(), recorded);
            }
        }
        let before = self.groups.insert(key, active.clone()).unwrap_or_default();
        let mut entries = changes(&before, &active, now_ns);
        for rule in group.rules() {
            for (labels, alert) in rule.alerts().alerts() {
                let (at_ns, annotations) = (alert.resolved_at_ns, &alert.annotations);
                let clearance = at_ns.and_then(|at_ns| AlertClearance::of(annotations, at_ns));
                add_clearance(&mut entries, clearance, || alert_id(group, labels, alert));
            }
        }
        entries
    }

    /// Ends of the alerts of groups that are gone.
    pub(crate) fn of_removed<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a EvaluatedGroup>,
        now_ns: i64,
    ) -> Vec<HistoryEntry> {
        let known: BTreeSet<RuleGroupKey> =
            groups.map(|group| (group.file().to_owned(), group.name().to_owned())).collect();
        let mut entries = Vec::new();
        self.groups.retain(|key, alerts| {
            let is_known = known.contains(key);
            if !is_known {
                entries.extend(changes(alerts, &BTreeMap::new(), now_ns));
            }
            is_known
        });
        entries
    }

    /// Changes of the alerts from outside.
    pub(crate) fn of_received(
        &mut self,
        alerts: &[Arc<ReceivedAlert>],
        now_ns: i64,
    ) -> Vec<HistoryEntry> {
        let firing = alerts.iter().filter(|alert| alert.is_firing);
        let active: BTreeMap<AlertLabels, RecordedAlert> = model::sort::map(
            firing.map(|alert| (alert.labels.clone(), RecordedAlert::received(alert))),
        );
        let before = std::mem::replace(&mut self.received, active.clone());
        let mut entries = changes(&before, &active, now_ns);
        for alert in alerts.iter().filter(|alert| !alert.is_firing) {
            let clearance = AlertClearance::of(&alert.annotations, alert.ends_ns);
            add_clearance(&mut entries, clearance, || received_alert_id(alert));
        }
        entries
    }
}

/// Adds who cleared an alert to its end, if that is among the changes.
fn add_clearance(
    entries: &mut [HistoryEntry],
    clearance: Option<AlertClearance>,
    alert_id: impl FnOnce() -> String,
) {
    let Some(clearance) = clearance else { return };
    let (id, by, note) = (alert_id(), clearance.author(), clearance.note);
    let is_end =
        |entry: &&mut HistoryEntry| entry.event == HistoryEvent::Resolved && entry.alert_id == id;
    for entry in entries.iter_mut().filter(is_end) {
        (entry.by, entry.note) = (by.clone(), note.clone());
    }
}

fn changes<K: Ord>(
    before: &BTreeMap<K, RecordedAlert>,
    after: &BTreeMap<K, RecordedAlert>,
    now_ns: i64,
) -> Vec<HistoryEntry> {
    // An alert that fired and began anew has another id.
    let goes_on = |key: &K, alert: &RecordedAlert| {
        after.get(key).is_some_and(|after| !alert.is_firing || after.id == alert.id)
    };
    let ended = before.iter().filter(|(key, alert)| !goes_on(key, alert));
    let mut entries: Vec<HistoryEntry> = ended.map(|(_, alert)| alert.end(now_ns)).collect();
    for (key, alert) in after {
        let before = before.get(key).filter(|before| goes_on(key, before));
        alert.push_changes(before, now_ns, &mut entries);
    }
    entries
}

impl RecordedAlert {
    fn of_rule(
        group: &EvaluatedGroup,
        name: &str,
        labels: &LabelSet,
        alert: &Alert,
    ) -> RecordedAlert {
        RecordedAlert {
            id: alert_id(group, labels, alert),
            is_received: false,
            name: name.to_owned(),
            labels: alert_labels(labels),
            is_firing: alert.state == AlertState::Firing,
            severity: alert_severity(alert.severity(), labels.get("severity")),
            value: Some(alert.value).filter(|value| value.is_finite()),
            active_ns: alert.active_at_ns,
            fired_ns: alert.fired_at_ns,
            severity_changed_ns: alert.severity_changed_at_ns,
            unknown_since_ns: alert.unknown_since_ns,
            acknowledgement: alert.acknowledgements.current().cloned(),
        }
    }

    fn received(alert: &ReceivedAlert) -> RecordedAlert {
        let label = |name: &str| alert.labels.get(name).map_or("", String::as_str);
        RecordedAlert {
            id: received_alert_id(alert),
            is_received: true,
            name: label("alertname").to_owned(),
            labels: alert.labels.clone(),
            is_firing: true,
            severity: alert_severity(None, label("severity")),
            value: None,
            active_ns: alert.starts_ns,
            fired_ns: Some(alert.began_ns),
            severity_changed_ns: None,
            unknown_since_ns: None,
            acknowledgement: alert.acknowledgements.current().cloned(),
        }
    }

    fn entry(&self, event: HistoryEvent, time_ns: i64) -> HistoryEntry {
        HistoryEntry {
            number: 0,
            time_ns,
            event,
            is_received: self.is_received,
            alert_id: self.id.clone(),
            severity: self.severity,
            value: self.value,
            since_ns: self.fired_ns.unwrap_or(self.active_ns),
            until_ns: None,
            name: self.name.clone(),
            by: String::new(),
            note: String::new(),
            labels: self.labels.clone(),
        }
    }

    fn end(&self, now_ns: i64) -> HistoryEntry {
        let event = if self.is_firing { HistoryEvent::Resolved } else { HistoryEvent::Ended };
        self.entry(event, now_ns)
    }

    fn push_changes(
        &self,
        before: Option<&RecordedAlert>,
        now_ns: i64,
        entries: &mut Vec<HistoryEntry>,
    ) {
        match (before, self.is_firing) {
            (None, false) => entries.push(self.entry(HistoryEvent::Pending, self.active_ns)),
            (None | Some(RecordedAlert { is_firing: false, .. }), true) => {
                let fired_ns = self.fired_ns.unwrap_or(now_ns);
                entries.push(self.entry(HistoryEvent::Firing, fired_ns));
            }
            // `for` was raised.
            (Some(RecordedAlert { is_firing: true, .. }), false) => {
                entries.push(self.entry(HistoryEvent::Pending, now_ns));
            }
            (Some(before), true) if before.severity != self.severity => {
                let changed_ns = self.severity_changed_ns.unwrap_or(now_ns);
                entries.push(self.entry(HistoryEvent::Severity, changed_ns));
            }
            (Some(_), _) => {}
        }
        match (before.and_then(|before| before.unknown_since_ns), self.unknown_since_ns) {
            (None, Some(since_ns)) => entries.push(self.entry(HistoryEvent::Unknown, since_ns)),
            (Some(_), None) => entries.push(self.entry(HistoryEvent::Known, now_ns)),
            _ => {}
        }
        let acknowledged = before.and_then(|before| before.acknowledgement.as_ref());
        match (acknowledged, &self.acknowledgement) {
            (Some(before), Some(now)) if before == now || is_moved_by_clock(before, now) => {}
            (_, Some(now)) => {
                // The same person that moves the expiry is no new time.
                let time_ns = if acknowledged.is_some() { now_ns } else { now.at_ns };
                let (by, note, until_ns) = (now.author(), now.note.clone(), Some(now.until_ns));
                let entry = self.entry(HistoryEvent::Acknowledged, time_ns);
                entries.push(HistoryEntry { until_ns, by, note, ..entry });
            }
            (Some(before), None) => {
                let by = before.author();
                let entry = self.entry(HistoryEvent::Unacknowledged, now_ns);
                entries.push(HistoryEntry { by, ..entry });
            }
            (None, None) => {}
        }
    }
}

/// Whether only the expiry of an acknowledgement of the primary site moved, because that is bounded
/// by the clock of this site: nobody did anything.
fn is_moved_by_clock(before: &AlertAcknowledgement, now: &AlertAcknowledgement) -> bool {
    let is_same = AlertAcknowledgement { until_ns: now.until_ns, ..before.clone() } == *now;
    let moved_ns = before.until_ns.abs_diff(now.until_ns);
    now.origin.is_some() && is_same && moved_ns <= 2 * EXPIRY_STEP_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert() -> RecordedAlert {
        RecordedAlert {
            id: "a".to_owned(),
            is_received: false,
            name: "Down".to_owned(),
            labels: AlertLabels::new(),
            is_firing: false,
            severity: 2,
            value: Some(1.0),
            active_ns: 10,
            fired_ns: None,
            severity_changed_ns: None,
            unknown_since_ns: None,
            acknowledgement: None,
        }
    }

    fn firing() -> RecordedAlert {
        RecordedAlert { is_firing: true, fired_ns: Some(20), ..alert() }
    }

    fn acknowledged(until_ns: i64) -> RecordedAlert {
        let (by, note) = ("ann".to_owned(), "on it".to_owned());
        let acknowledgement = AlertAcknowledgement { at_ns: 30, until_ns, by, note, origin: None };
        RecordedAlert { acknowledgement: Some(acknowledgement), ..firing() }
    }

    /// Events with their times, at the time 100.
    #[track_caller]
    fn check(
        before: Option<RecordedAlert>,
        after: Option<RecordedAlert>,
        expected: &[(&str, i64)],
    ) {
        let map = |alert: Option<RecordedAlert>| -> BTreeMap<u8, RecordedAlert> {
            alert.map(|alert| (1, alert)).into_iter().collect()
        };
        let entries = changes(&map(before), &map(after), 100);
        let found: Vec<(&str, i64)> =
            entries.iter().map(|entry| (entry.event.name(), entry.time_ns)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn each_change_of_state_is_an_event() {
        check(None, Some(alert()), &[("pending", 10)]);
        check(Some(alert()), Some(alert()), &[]);
        check(Some(alert()), Some(firing()), &[("firing", 20)]);
        check(None, Some(firing()), &[("firing", 20)]);
        check(Some(alert()), None, &[("ended", 100)]);
        check(Some(firing()), None, &[("resolved", 100)]);
        check(Some(firing()), Some(alert()), &[("pending", 100)]);
        let worse = RecordedAlert { severity: 1, severity_changed_ns: Some(90), ..firing() };
        check(Some(firing()), Some(worse), &[("severity", 90)]);
        let unknown = RecordedAlert { unknown_since_ns: Some(50), ..firing() };
        check(Some(firing()), Some(unknown.clone()), &[("unknown", 50)]);
        check(Some(unknown), Some(firing()), &[("known", 100)]);
    }

    #[test]
    fn acknowledgements_are_events() {
        check(Some(firing()), Some(acknowledged(200)), &[("acknowledged", 30)]);
        check(Some(acknowledged(200)), Some(acknowledged(200)), &[]);
        check(Some(acknowledged(200)), Some(acknowledged(300)), &[("acknowledged", 100)]);
        check(Some(acknowledged(200)), Some(firing()), &[("unacknowledged", 100)]);
        check(None, Some(acknowledged(200)), &[("firing", 20), ("acknowledged", 30)]);
    }

    /// The clock of the primary site is ahead: at this one, the expiry moves each minute.
    #[test]
    fn an_expiry_that_the_clock_moves_is_no_event() {
        let step = 60_000_000_000;
        let mirrored = |until_ns: i64| {
            let mut alert = acknowledged(until_ns);
            let made = alert.acknowledgement.as_mut().expect("it has one");
            made.origin = Some("http://north".to_owned());
            alert
        };
        check(Some(mirrored(200)), Some(mirrored(200 + step)), &[]);
        check(Some(mirrored(200)), Some(mirrored(200 + 10 * step)), &[("acknowledged", 100)]);
        check(Some(acknowledged(200)), Some(acknowledged(200 + step)), &[("acknowledged", 100)]);
        check(Some(mirrored(200)), Some(acknowledged(200)), &[("acknowledged", 100)]);
    }

    #[test]
    fn an_alert_that_began_anew_has_ended_before() {
        let anew = RecordedAlert { id: "b".to_owned(), fired_ns: Some(95), ..firing() };
        check(Some(firing()), Some(anew.clone()), &[("resolved", 100), ("firing", 95)]);
        // A restart moves the time since when the condition holds.
        let moved = RecordedAlert { id: "b".to_owned(), active_ns: 15, ..alert() };
        check(Some(alert()), Some(moved), &[]);
    }
}
