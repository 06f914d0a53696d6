//! Notification of an alert: what contacts are told.

use hist::Bracket;
use notify::{AlertImpact, Notification, NotificationKey, NotifiedState};
use query::LabelSet;
use render::time::duration_text;
use rules::{Alert, AlertState, EvaluatedGroup, EvaluatedRule};

/// Severity of an alert without a known value of the label `severity`.
const SEVERITY_DEFAULT: u8 = 2;
/// Note of an alert whose rule is gone.
const ENDED_NOTE: &str = "The alert ended without a result of its rule: topdeck no longer \
    evaluates the rule, or the alert limit of its group was exceeded.";

/// Notification of the newest state of an alert; `None` while it is pending.
pub(crate) fn notification(
    group: &EvaluatedGroup,
    rule: &EvaluatedRule,
    labels: &LabelSet,
    alert: &Alert,
) -> Option<Notification> {
    let (state, at_ns) = match alert.state {
        AlertState::Pending => return None,
        AlertState::Firing => (NotifiedState::Firing, alert.fired_at_ns),
        AlertState::Inactive => (NotifiedState::Resolved, alert.resolved_at_ns),
    };
    let own = rule.rule();
    let criterion = match own.alert_settings().map_or(0, |settings| settings.for_ns) {
        0 => own.expression.clone(),
        for_ns => format!("{} for {}", own.expression, duration_text(for_ns)),
    };
    let alert_id = alert_id(group, labels, alert);
    Some(Notification {
        key: NotificationKey { alert_id, transition: alert.transition, reminder: 0 },
        state,
        severity: severity(labels.get("severity")),
        name: own.name.clone(),
        labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        annotations: alert.annotations.clone(),
        since_ns: alert.fired_at_ns.unwrap_or(alert.active_at_ns),
        at_ns: at_ns.unwrap_or(alert.active_at_ns),
        criterion,
        impact: AlertImpact::default(),
        unit: String::new(),
        threshold: None,
        value: alert.value.is_finite().then(|| Bracket::exact(alert.value)),
        link: None,
        notes: alert.annotations.get("runbook_url").cloned(),
        // The notifier names the other alerts of the message's group.
        also_firing: Vec::new(),
        picture: None,
    })
}

/// End of an alert that is gone.
pub(crate) fn ended(firing: &Notification, now_ns: i64) -> Notification {
    let key = NotificationKey { transition: firing.key.transition + 1, ..firing.key.clone() };
    Notification {
        key,
        state: NotifiedState::Resolved,
        at_ns: now_ns,
        notes: Some(ENDED_NOTE.to_owned()),
        ..firing.clone()
    }
}

/// Identity of an alert while it exists. An alert that begins anew is another one, also if the
/// stored states were lost: receivers then see a new alert rather than none.
pub(crate) fn alert_id(group: &EvaluatedGroup, labels: &LabelSet, alert: &Alert) -> String {
    let (file, name, since_ns) = (group.file(), group.name(), alert.active_at_ns);
    let identity = format!("{file}\0{name}\0{since_ns}\0{labels}");
    format!("{:032x}", u128::from_be_bytes(model::blake3_128(identity.as_bytes())))
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

    #[test]
    fn severities_are_numbers_or_the_words_of_prometheus_users() {
        let found = ["critical", "page", "2", "warning", "none", "", "6", "x"].map(severity);
        assert_eq!(found, [1, 1, 2, 3, 5, 2, 2, 2]);
    }
}
