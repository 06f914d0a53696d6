//! `/v1/alerts` and `/v1/light`: active alerts with their next change and reason, and one color.
//! Alerts from outside are in the list, too.

use std::time::Duration;

use notify::{ActiveSilences, AlertLabels};
use render::time::{duration_text, precise_time_text};
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::{integer, number};
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};
use rules::{
    Alert, AlertAcknowledgement, AlertAcknowledgements, AlertSettings, AlertState, Rule, RuleHealth,
};

use crate::alert_events::light_parts;
use crate::alert_filter::{AlertFilter, MATCHER, SEVERITY, TEXT};
use crate::alert_notification::{alert_severity, condition_text};
use crate::alert_selection::{alert_labels, fingerprint, rule_alert_labels};
use crate::forecast_text::forecast_text;
use crate::prometheus_api::{label_json, map_json};
use crate::published_alerts::{ActiveAlert, PublishedAlerts, PublishedState};
use crate::received_alerts::ReceivedAlert;

/// Longest wait of a request.
const WAIT_MAX_S: u64 = 60;

/// Active alerts.
pub(crate) static ALERTS: RouteSpec = RouteSpec {
    name: "alerts",
    path: "/v1/alerts",
    about: "Pending and firing alerts with the time of their next change and the reason of their \
            state; with Accept: text/event-stream, changes as they happen.",
    parameters: &[
        Parameter::text(
            "state",
            "pending, firing, unknown, acknowledged, silenced or maintenance; default: all",
        ),
        TEXT,
        MATCHER,
        SEVERITY,
        Parameter::integer("wait", "seconds to wait for a change, at most 60; default: 0"),
        Parameter::integer("since", "revision of the response before; waits for another one"),
    ],
    format: RouteFormat::Json,
};

/// Status light.
pub(crate) static LIGHT: RouteSpec = RouteSpec {
    name: "light",
    path: "/v1/light",
    about: "Status light: green, amber N or red N.",
    parameters: &[],
    format: RouteFormat::Text,
};

/// Waits for a change of alerts, if the request asks for it.
pub(crate) fn wait(
    published: &PublishedAlerts,
    query: &RouteQuery,
) -> impl Future<Output = ()> + use<> {
    let seconds = query.integer("wait", 0, WAIT_MAX_S).unwrap_or(0);
    let since = query.integer("since", published.revision(), u64::MAX);
    // The handler reports invalid parameters.
    let seconds = if since.is_ok() { seconds } else { 0 };
    let change = published.changed_since(since.unwrap_or(0));
    async move {
        if seconds > 0 {
            // The time ends the wait, too.
            let _ = tokio::time::timeout(Duration::from_secs(seconds), change).await;
        }
    }
}

/// Response of `/v1/light`.
pub(crate) fn light(state: &PublishedState) -> Json {
    Text(state.light().to_string())
}

/// Response of `/v1/alerts`.
pub(crate) fn alerts(published: &PublishedAlerts, query: &RouteQuery) -> Result<Json, RouteError> {
    query.integer("wait", 0, WAIT_MAX_S)?;
    query.integer("since", 0, u64::MAX)?;
    let filter = AlertFilter::read(query)?;
    let is_wanted: fn(&ListedAlert) -> bool = match query.get("state") {
        None => |_| true,
        Some("pending") => |alert| alert.state == AlertState::Pending,
        Some("firing") => |alert| alert.state == AlertState::Firing,
        Some("unknown") => |alert| alert.is_unknown,
        Some("acknowledged") => |alert| alert.is_acknowledged,
        Some("silenced") => |alert| alert.is_silenced,
        Some("maintenance") => |alert| alert.is_in_maintenance,
        Some(other) => {
            let expected = "pending, firing, unknown, acknowledged, silenced or maintenance";
            return Err(RouteError::Parameter {
                name: "state".to_owned(),
                found: other.to_owned(),
                expected: expected.to_owned(),
            });
        }
    };
    // Before the state: a change in between makes the next request return at once.
    let revision = published.revision();
    let state = published.read();
    let silences = state.silences.active(state.now_ns);
    let own = state.active_alerts().filter(|active| is_selected_rule(&filter, *active));
    let own = own.map(|active| ListedAlert::of_rule(active, &silences));
    let received = state.firing_received().filter(|alert| is_selected_received(&filter, alert));
    let received = received.map(|alert| ListedAlert::received(alert, &silences));
    let active = own.chain(received).filter(is_wanted);
    // First the rules that are not evaluated at all.
    let warnings = state.problems.iter().chain(state.unmatched_warnings.iter());
    let (color, count) = light_parts(state.light());
    Ok(Object(vec![
        ("schema", integer(1)),
        ("revision", integer(revision)),
        ("light", Text(color.to_owned())),
        ("light_count", integer(count as u64)),
        ("alerts", List(active.map(|alert| Object(alert.fields)).collect())),
        ("warnings", List(warnings.map(|problem| Text(problem.to_string())).collect())),
    ]))
}

fn is_selected_rule(filter: &AlertFilter, active: ActiveAlert<'_>) -> bool {
    let ActiveAlert { rule, labels, alert, .. } = active;
    let severity = alert_severity(alert.severity(), labels.get("severity"));
    let own = [rule.rule().name.as_str(), &rule.rule().expression];
    let acknowledgement = acknowledgement_texts(&alert.acknowledgements);
    let others = alert.annotations.values().chain(&acknowledgement).map(String::as_str);
    let texts: Vec<&str> = own.into_iter().chain(others).collect();
    filter.accepts(&rule_alert_labels(labels, alert), severity, &texts)
}

fn is_selected_received(filter: &AlertFilter, alert: &ReceivedAlert) -> bool {
    let severity = alert.labels.get("severity").map_or("", String::as_str);
    let acknowledgement = acknowledgement_texts(&alert.acknowledgements);
    let texts = alert.annotations.values().chain(&acknowledgement).map(String::as_str);
    filter.accepts(&alert.labels, alert_severity(None, severity), &texts.collect::<Vec<_>>())
}

/// Who acknowledged, and the note.
fn acknowledgement_texts(acknowledgements: &AlertAcknowledgements) -> Vec<String> {
    let texts = |ack: &AlertAcknowledgement| [ack.author(), ack.note.clone()];
    acknowledgements.current().into_iter().flat_map(texts).collect()
}

/// Warnings of rules that select nothing.
pub(crate) fn unmatched_warnings_json(state: &PublishedState) -> Json {
    List(state.unmatched_warnings.iter().map(|problem| Text(problem.to_string())).collect())
}

/// An alert with what selects it.
struct ListedAlert {
    state: AlertState,
    is_unknown: bool,
    is_acknowledged: bool,
    is_silenced: bool,
    is_in_maintenance: bool,
    fields: Vec<(&'static str, Json)>,
}

impl ListedAlert {
    fn of_rule(active: ActiveAlert<'_>, silences: &ActiveSilences<'_>) -> ListedAlert {
        let labels = alert_labels(active.labels);
        let routed = rule_alert_labels(active.labels, active.alert);
        let mut fields = rule_alert_fields(active);
        fields.extend(common_fields(&labels, &routed, silences));
        ListedAlert {
            state: active.alert.state,
            is_unknown: active.alert.is_unknown(),
            is_acknowledged: active.alert.acknowledgements.current().is_some(),
            is_silenced: silences.is_silenced(&routed),
            is_in_maintenance: silences.is_in_maintenance(&routed),
            fields,
        }
    }

    fn received(alert: &ReceivedAlert, silences: &ActiveSilences<'_>) -> ListedAlert {
        let mut fields = received_alert_fields(alert);
        fields.extend(common_fields(&alert.labels, &alert.labels, silences));
        ListedAlert {
            state: AlertState::Firing,
            is_unknown: false,
            is_acknowledged: alert.acknowledgements.current().is_some(),
            is_silenced: silences.is_silenced(&alert.labels),
            is_in_maintenance: silences.is_in_maintenance(&alert.labels),
            fields,
        }
    }
}

/// Silences match the labels by which the alert is routed.
fn common_fields(
    labels: &AlertLabels,
    routed: &AlertLabels,
    silences: &ActiveSilences<'_>,
) -> [(&'static str, Json); 3] {
    let silenced_by = silences.silencing(routed).map(|id| Text(id.to_owned())).collect();
    [
        ("fingerprint", Text(fingerprint(labels))),
        ("silenced_by", List(silenced_by)),
        ("is_in_maintenance", Json::Bool(silences.is_in_maintenance(routed))),
    ]
}

fn acknowledgement_json(acknowledgement: Option<&AlertAcknowledgement>) -> Json {
    acknowledgement.map_or(Null, |ack| {
        Object(vec![
            ("at_ns", Integer(ack.at_ns.into())),
            ("until_ns", Integer(ack.until_ns.into())),
            ("by", Text(ack.author())),
            ("origin", ack.origin.clone().map_or(Null, Text)),
            ("note", Text(ack.note.clone())),
        ])
    })
}

/// The same fields as of an alert of a rule; those that only rules have are empty.
fn received_alert_fields(alert: &ReceivedAlert) -> Vec<(&'static str, Json)> {
    let text = |text: &str| Text(text.to_owned());
    let (updated, ends) = (precise_time_text(alert.updated_ns), precise_time_text(alert.ends_ns));
    let why = match alert.is_timeout {
        true => format!("received at {updated}; ends at {ends}, unless it is received again"),
        false => format!("received at {updated}, and ends at {ends}"),
    };
    let next = Object(vec![
        ("at_ns", Integer(alert.ends_ns.into())),
        ("state", text(AlertState::Inactive.text())),
    ]);
    vec![
        ("name", text(alert.labels.get("alertname").map_or("", String::as_str))),
        ("source", text("received")),
        ("state", text(AlertState::Firing.text())),
        ("labels", map_json(&alert.labels)),
        ("annotations", map_json(&alert.annotations)),
        ("value", Null),
        ("since_ns", Integer(alert.starts_ns.into())),
        ("fired_ns", Integer(alert.began_ns.into())),
        ("unknown_since_ns", Null),
        ("next", next),
        ("why", Text(why)),
        ("is_flapping", Json::Bool(false)),
        ("acknowledgement", acknowledgement_json(alert.acknowledgements.current())),
        ("group", text("")),
        ("file", text("")),
        ("line", integer(0)),
        ("query", text("")),
        ("generator_url", text(&alert.generator_url)),
    ]
}

fn rule_alert_fields(active: ActiveAlert<'_>) -> Vec<(&'static str, Json)> {
    let ActiveAlert { report, rule, labels, alert } = active;
    let time = |time: Option<i64>| time.map_or(Null, |time| Integer(time.into()));
    let text = |text: &str| Text(text.to_owned());
    let own = rule.rule();
    let next = own.alert_settings().and_then(|settings| next_change(alert, settings));
    let next = next.map_or(Null, |(at_ns, state)| {
        Object(vec![("at_ns", Integer(at_ns.into())), ("state", text(state))])
    });
    vec![
        ("name", text(&own.name)),
        ("source", text("rule")),
        ("state", text(alert.state.text())),
        ("labels", label_json(labels)),
        ("annotations", map_json(&alert.annotations)),
        ("value", number(alert.value)),
        ("severity", alert.severity().map_or(Null, |severity| integer(severity.into()))),
        ("criterion", criterion_json(own, alert)),
        ("since_ns", Integer(alert.active_at_ns.into())),
        ("fired_ns", time(alert.fired_at_ns)),
        ("unknown_since_ns", time(alert.unknown_since_ns)),
        ("next", next),
        ("why", Text(reason(active))),
        ("is_flapping", Json::Bool(rule.alerts().flap_counter(labels).is_flapping())),
        ("acknowledgement", acknowledgement_json(alert.acknowledgements.current())),
        ("group", text(report.group.name())),
        ("file", text(report.group.file())),
        ("line", integer(own.position.line as u64)),
        ("query", text(&own.expression)),
    ]
}

/// Criterion of an own rule that holds, with what it measured.
fn criterion_json(rule: &Rule, alert: &Alert) -> Json {
    let Some(matched) = &alert.matched else { return Null };
    let mut fields = vec![
        ("text", Text(condition_text(rule, alert))),
        ("lower", number(matched.value.lower)),
        ("estimate", number(matched.value.estimate)),
        ("upper", number(matched.value.upper)),
        ("threshold", matched.threshold.map_or(Null, number)),
        ("unit", Text(matched.unit.clone())),
    ];
    let limit = rule.condition().and_then(|own| own.limit_text(matched.criterion));
    fields.extend(limit.map(|limit| ("limit", Text(limit))));
    fields.extend(forecast_text(rule, alert).map(|forecast| ("forecast", Text(forecast))));
    Object(fields)
}

/// When the state changes next if the result of the query stays as it is, and to which state.
fn next_change(alert: &Alert, settings: &AlertSettings) -> Option<(i64, &'static str)> {
    if alert.is_unknown() || alert.is_held {
        return None;
    }
    match (alert.state, alert.keep_firing_since_ns) {
        (AlertState::Pending, _) => {
            Some((alert.active_at_ns.saturating_add(settings.for_ns), "firing"))
        }
        (AlertState::Firing, Some(since_ns)) => {
            Some((since_ns.saturating_add(settings.keep_firing_for_ns), "inactive"))
        }
        _ => None,
    }
}

/// Why the alert is in its state, in a sentence.
fn reason(active: ActiveAlert<'_>) -> String {
    let ActiveAlert { rule, alert, .. } = active;
    let duration = |ns: i64| duration_text(ns);
    let settings = rule.rule().alert_settings().cloned().unwrap_or_default();
    let since = precise_time_text(alert.active_at_ns);
    if alert.is_held {
        let parent = rule.rule().condition().and_then(|own| own.parent()).unwrap_or_default();
        return format!("rule {parent:?} fires at severity 1, so the alert holds its state");
    }
    match (alert.unknown_since_ns, rule.health(), alert.state) {
        (Some(at_ns), RuleHealth::Err(cause), _) => {
            let at = precise_time_text(at_ns);
            format!("the query fails, so the alert holds its state since {at}: {cause}")
        }
        (Some(at_ns), _, _) => {
            let at = precise_time_text(at_ns);
            format!("there is no data, so the alert holds its state since {at}")
        }
        (None, RuleHealth::Err(cause), _) => {
            format!("the state is that of the last evaluation that succeeded: {cause}")
        }
        (None, _, AlertState::Pending) => {
            let hold = duration(settings.for_ns);
            format!("the condition holds since {since}; the alert fires once it held for {hold}")
        }
        (None, _, _) => match alert.keep_firing_since_ns {
            Some(at_ns) => {
                let (at, keep) = (precise_time_text(at_ns), duration(settings.keep_firing_for_ns));
                format!("the condition does not hold since {at}; the alert keeps firing for {keep}")
            }
            None => format!("the condition holds since {since}"),
        },
    }
}
