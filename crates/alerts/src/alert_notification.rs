//! Notification of an alert: what contacts are told.

use std::collections::BTreeMap;

use hist::Bracket;
use notify::{AlertImpact, Notification, NotificationKey, NotifiedState};
use query::LabelSet;
use render::time::{duration_text, format_time, precise_time_text};
use rules::{
    Alert, AlertAcknowledgement, AlertClearance, AlertState, EvaluatedGroup, EvaluatedRule, Rule,
};

use crate::alert_selection::alert_labels;
use crate::forecast_text::forecast_text;
use crate::received_alerts::ReceivedAlert;
use crate::series_change_alerts::is_series_change;

/// Criterion of an alert from outside: only its source knows it.
const RECEIVED_CRITERION: &str = "received over /api/v2/alerts";
/// Note of an alert from outside that was not received again.
const SILENT_NOTE: &str = "Check that its source still runs and reaches topdeck: the alert ended \
    because its time was over.";
/// Severity of an alert without a known value of the label `severity`.
const SEVERITY_DEFAULT: u8 = 2;
/// Note of an alert whose rule is gone.
const ENDED_NOTE: &str = "The alert ended without a result of its rule: topdeck no longer \
    evaluates the rule, or the alert limit of its group was exceeded.";

/// Notification of the newest state of an alert, without what it affected; `None` while it is
/// pending.
pub(crate) fn notification(
    group: &EvaluatedGroup,
    rule: &EvaluatedRule,
    labels: &LabelSet,
    alert: &Alert,
) -> Option<Notification> {
    let acknowledgement = alert.acknowledgements.current();
    let (state, at_ns) = match (alert.state, acknowledgement) {
        (AlertState::Pending, _) => return None,
        (AlertState::Firing, None) => match alert.unknown_reported_at_ns {
            Some(at_ns) => (NotifiedState::Unknown, Some(at_ns)),
            None => (NotifiedState::Firing, alert.fired_at_ns),
        },
        (AlertState::Firing, Some(ack)) => (NotifiedState::Acknowledged, Some(ack.at_ns)),
        (AlertState::Inactive, _) => (NotifiedState::Resolved, alert.resolved_at_ns),
    };
    let own = rule.rule();
    let forecast = forecast_text(own, alert);
    let mut criterion = condition_text(own, alert);
    match own.alert_settings().map_or(0, |settings| settings.delays_ns(&alert.series).0) {
        0 => {}
        for_ns => criterion.extend([" for ", &duration_text(for_ns)]),
    }
    criterion.extend(forecast.iter().flat_map(|forecast| [": ", forecast]));
    // The times of a forecast are in its sentence.
    let matched = alert.matched.as_ref().filter(|_| forecast.is_none());
    let at_ns = at_ns.max(alert.severity_changed_at_ns);
    let value =
        alert.matched.as_ref().map_or_else(|| Bracket::exact(alert.value), |matched| matched.value);
    let alert_id = alert_id(group, labels, alert);
    Some(Notification {
        key: NotificationKey { alert_id, transition: alert.transition, reminder: 0 },
        state,
        severity: alert_severity(alert.severity(), labels.get("severity")),
        name: own.name.clone(),
        labels: alert_labels(labels),
        annotations: own_annotations(&alert.annotations),
        since_ns: alert.fired_at_ns.unwrap_or(alert.active_at_ns),
        at_ns: at_ns.unwrap_or(alert.active_at_ns),
        criterion,
        impact: AlertImpact::default(),
        unit: matched.map_or_else(String::new, |matched| matched.unit.clone()),
        threshold: matched.and_then(|matched| matched.threshold),
        value: (forecast.is_none() && value.estimate.is_finite()).then_some(value),
        link: None,
        notes: notes(&alert.annotations, acknowledgement),
        // The notifier names the other alerts of the message's group.
        also_firing: Vec::new(),
        picture: None,
    })
}

/// Notification of the newest state of an alert from outside.
pub(crate) fn received_notification(alert: &ReceivedAlert) -> Notification {
    let acknowledgement = alert.acknowledgements.current();
    let (state, at_ns) = match (alert.is_firing, acknowledgement) {
        (true, None) => (NotifiedState::Firing, alert.began_ns),
        (true, Some(ack)) => (NotifiedState::Acknowledged, ack.at_ns),
        (false, _) => (NotifiedState::Resolved, alert.ends_ns),
    };
    let label = |name: &str| alert.labels.get(name).map_or("", String::as_str);
    let name = match label("alertname") {
        "" => "alert without a name",
        name => name,
    };
    let link = Some(&alert.generator_url).filter(|url| url.starts_with("http")).cloned();
    let (criterion, notes) = match silent_since(alert) {
        Some(since) => (
            format!("{RECEIVED_CRITERION}, but not since {since}; nobody said that it is resolved"),
            Some(SILENT_NOTE.to_owned()),
        ),
        None => (RECEIVED_CRITERION.to_owned(), notes(&alert.annotations, acknowledgement)),
    };
    Notification {
        key: NotificationKey {
            alert_id: received_alert_id(alert),
            transition: alert.transition,
            reminder: 0,
        },
        state,
        severity: severity(label("severity")),
        name: name.to_owned(),
        labels: alert.labels.clone(),
        annotations: own_annotations(&alert.annotations),
        since_ns: alert.starts_ns,
        at_ns,
        criterion,
        impact: AlertImpact::default(),
        unit: String::new(),
        threshold: None,
        value: None,
        link,
        notes,
        also_firing: Vec::new(),
        picture: None,
    }
}

/// When an alert from outside was last received, if it ended because it was not received again:
/// nobody said that its condition does not hold.
fn silent_since(alert: &ReceivedAlert) -> Option<String> {
    let is_cleared = AlertClearance::of(&alert.annotations, 0).is_some();
    let has_other_end = is_cleared || is_series_change(&alert.labels);
    let is_silent = !alert.is_firing && !has_other_end && alert.ended_by_itself();
    is_silent.then(|| format_time(alert.updated_ns))
}

/// Annotations of the rule.
fn own_annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut own = annotations.clone();
    AlertClearance::remove(&mut own);
    own
}

/// What to do, and who works on it, or who ended it.
fn notes(
    annotations: &BTreeMap<String, String>,
    acknowledgement: Option<&AlertAcknowledgement>,
) -> Option<String> {
    let texts = ["note", "runbook_url"].map(|name| annotations.get(name).map(String::as_str));
    let texts: Vec<&str> = texts.into_iter().flatten().collect();
    let runbook = (!texts.is_empty()).then(|| texts.join("\n"));
    if let Some(clearance) = AlertClearance::of(annotations, 0) {
        let (by, note) = (clearance.author(), clearance.note);
        let note = if note.is_empty() { note } else { format!(": {note}") };
        return Some(format!("Cleared by {by}{note}. It fires again if its condition holds."));
    }
    let Some(acknowledgement) = acknowledgement else { return runbook };
    let until = precise_time_text(acknowledgement.until_ns);
    let mut text = format!("Acknowledged by {} until {until}", acknowledgement.author());
    if !acknowledgement.note.is_empty() {
        text.extend([": ", acknowledgement.note.as_str()]);
    }
    text.extend(runbook.iter().flat_map(|runbook| ["\n", runbook.as_str()]));
    Some(text)
}

/// The criterion that holds, or the expression of a rule of Prometheus.
pub(crate) fn condition_text(rule: &Rule, alert: &Alert) -> String {
    match (rule.condition(), &alert.matched) {
        (Some(own), Some(matched)) => own.criterion_text(matched.criterion),
        _ => rule.expression.clone(),
    }
}

/// End of an alert that is gone.
pub(crate) fn ended(firing: &Notification, now_ns: i64) -> Notification {
    let key = NotificationKey { transition: firing.key.transition + 1, ..firing.key.clone() };
    Notification {
        key,
        state: NotifiedState::Resolved,
        at_ns: now_ns,
        // Nobody counted since.
        impact: AlertImpact::default(),
        notes: Some(ENDED_NOTE.to_owned()),
        ..firing.clone()
    }
}

/// Identity of an alert while it exists, the same at all sites that got the same rows. An alert
/// that begins anew is another one, also if the stored states were lost: receivers then see a new
/// alert rather than none.
pub(crate) fn alert_id(group: &EvaluatedGroup, labels: &LabelSet, alert: &Alert) -> String {
    let (file, name, since_ns) = (group.file(), group.name(), alert.began_ns);
    let identity = format!("{file}\0{name}\0{since_ns}\0{labels}");
    identity_hash(&identity)
}

/// The same of an alert from outside.
pub(crate) fn received_alert_id(alert: &ReceivedAlert) -> String {
    let mut identity = format!("received\0{}", alert.began_ns);
    for (name, value) in &alert.labels {
        // With lengths, because a text may have any character.
        identity.push_str(&format!("\0{}\0{name}\0{}\0{value}", name.len(), value.len()));
    }
    identity_hash(&identity)
}

fn identity_hash(identity: &str) -> String {
    format!("{:032x}", u128::from_be_bytes(model::blake3_128(identity.as_bytes())))
}

/// Severity of a criterion, else of the label `severity`.
pub(crate) fn alert_severity(criterion: Option<u8>, label: &str) -> u8 {
    criterion.unwrap_or_else(|| severity(label))
}

/// 1 (worst) to 5 from the label `severity`: a number, or a word that Prometheus' users write.
fn severity(text: &str) -> u8 {
    match text {
        "critical" | "page" => 1,
        "error" | "high" => 2,
        "warning" | "warn" => 3,
        "info" => 4,
        "none" => 5,
        _ => text.parse().ok().filter(|n| (1..=5).contains(n)).unwrap_or(SEVERITY_DEFAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: i64 = 60 * 1_000_000_000;
    /// 2023-11-14 22:13:20 UTC.
    const RECEIVED_NS: i64 = 1_700_000_000_000_000_000;

    #[test]
    fn an_alert_that_is_not_received_any_more_ends_with_a_warning() {
        // Ends 30 s, 1 min and 4 min after it was last received; the first one was resolved.
        let ended = |after_ns: i64, is_timeout: bool| ReceivedAlert {
            updated_ns: RECEIVED_NS,
            ends_ns: RECEIVED_NS + after_ns,
            is_timeout,
            ..ReceivedAlert::default()
        };
        for (after_ns, is_timeout, is_told) in [
            (MINUTE_NS / 2, false, false),
            (MINUTE_NS, false, true),
            (4 * MINUTE_NS, false, true),
            (MINUTE_NS / 2, true, true),
        ] {
            let mut alert = ended(after_ns, is_timeout);
            let sent = received_notification(&alert);
            let criterion = match is_told {
                true => {
                    "received over /api/v2/alerts, but not since 2023-11-14 22:13:20Z; nobody \
                     said that it is resolved"
                }
                false => RECEIVED_CRITERION,
            };
            let notes = is_told.then_some(SILENT_NOTE);
            assert_eq!((sent.criterion.as_str(), sent.notes.as_deref()), (criterion, notes));
            alert.is_firing = true;
            assert_eq!(received_notification(&alert).criterion, RECEIVED_CRITERION);
            alert.is_firing = false;
            let by = "ann".to_owned();
            let clearance = AlertClearance { at_ns: 0, by, note: String::new(), origin: None };
            clearance.annotate(&mut alert.annotations);
            let sent = received_notification(&alert);
            assert_eq!(sent.criterion, RECEIVED_CRITERION);
            assert!(sent.notes.is_some_and(|notes| notes.starts_with("Cleared by ann")));
        }
        // A change of series is forgotten after a week.
        let labels = [("alertname", "SeriesChanged"), ("change", "1")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let change = ReceivedAlert { labels, ..ended(4 * MINUTE_NS, false) };
        assert_eq!(received_notification(&change).criterion, RECEIVED_CRITERION);
    }

    #[test]
    fn severities_are_numbers_or_the_words_of_prometheus_users() {
        let found = ["critical", "page", "2", "warning", "none", "", "6", "x"].map(severity);
        assert_eq!(found, [1, 1, 2, 3, 5, 2, 2, 2]);
    }
}
