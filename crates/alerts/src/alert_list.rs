//! `/v1/alerts` and `/v1/light`: active alerts with their next deadline and reason, and one color.

use std::time::Duration;

use render::time::{duration_text, precise_time_text};
use role::json::Json::{self, Integer, List, Null, Object, Text};
use role::json::{integer, number};
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};
use rules::{Alert, AlertSettings, AlertState, RuleHealth};

use crate::alert_board::{ActiveAlert, AlertBoard, BoardState, StatusLight};
use crate::prometheus_api::{label_json, map_json};

/// Longest wait of a request.
const WAIT_MAX_S: u64 = 60;

/// Active alerts.
pub(crate) static ALERTS: RouteSpec = RouteSpec {
    name: "alerts",
    path: "/v1/alerts",
    about: "Pending and firing alerts with their next deadline and the reason of their state.",
    parameters: &[
        Parameter::text("state", "pending, firing, unknown or acknowledged; default: all"),
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
pub(crate) fn wait(board: &AlertBoard, query: &RouteQuery) -> impl Future<Output = ()> + use<> {
    let seconds = query.count("wait", 0, WAIT_MAX_S).unwrap_or(0);
    let since = query.count("since", board.revision(), u64::MAX);
    // The handler reports invalid parameters.
    let seconds = if since.is_ok() { seconds } else { 0 };
    let change = board.changed_since(since.unwrap_or(0));
    async move {
        if seconds > 0 {
            // The time ends the wait, too.
            let _ = tokio::time::timeout(Duration::from_secs(seconds), change).await;
        }
    }
}

/// Response of `/v1/light`.
pub(crate) fn light(state: &BoardState) -> Json {
    Text(state.light().to_string())
}

/// Response of `/v1/alerts`.
pub(crate) fn alerts(board: &AlertBoard, query: &RouteQuery) -> Result<Json, RouteError> {
    query.count("wait", 0, WAIT_MAX_S)?;
    query.count("since", 0, u64::MAX)?;
    let is_wanted: fn(&Alert) -> bool = match query.get("state") {
        None => |_| true,
        Some("pending") => |alert| alert.state == AlertState::Pending,
        Some("firing") => |alert| alert.state == AlertState::Firing,
        Some("unknown") => Alert::is_unknown,
        Some("acknowledged") => |alert| alert.acknowledgement.is_some(),
        Some(other) => {
            let expected = "pending, firing, unknown or acknowledged";
            return Err(RouteError::Parameter {
                name: "state".to_owned(),
                found: other.to_owned(),
                expected: expected.to_owned(),
            });
        }
    };
    // Before the state: a change in between makes the next request return at once.
    let revision = board.revision();
    let state = board.read();
    let active = state.active_alerts().filter(|active| is_wanted(active.alert));
    let (color, count) = match state.light() {
        StatusLight::Green => ("green", 0),
        StatusLight::Amber(count) => ("amber", count),
        StatusLight::Red(count) => ("red", count),
    };
    Ok(Object(vec![
        ("schema", integer(1)),
        ("revision", integer(revision)),
        ("light", Text(color.to_owned())),
        ("light_count", integer(count as u64)),
        ("alerts", List(active.map(alert_json).collect())),
    ]))
}

fn alert_json(active: ActiveAlert<'_>) -> Json {
    let ActiveAlert { report, rule, labels, alert } = active;
    let time = |time: Option<i64>| time.map_or(Null, |time| Integer(time.into()));
    let text = |text: &str| Text(text.to_owned());
    let own = rule.rule();
    let next = own.alert_settings().and_then(|settings| next_change(alert, settings));
    let next = next.map_or(Null, |(at_ns, state)| {
        Object(vec![("at_ns", Integer(at_ns.into())), ("state", text(state))])
    });
    let acknowledgement = alert.acknowledgement.as_ref().map_or(Null, |ack| {
        Object(vec![
            ("at_ns", Integer(ack.at_ns.into())),
            ("until_ns", Integer(ack.until_ns.into())),
            ("by", text(&ack.by)),
            ("note", text(&ack.note)),
        ])
    });
    Object(vec![
        ("name", text(&own.name)),
        ("state", text(alert.state.text())),
        ("labels", label_json(labels)),
        ("annotations", map_json(&alert.annotations)),
        ("value", number(alert.value)),
        ("since_ns", Integer(alert.active_at_ns.into())),
        ("fired_ns", time(alert.fired_at_ns)),
        ("unknown_since_ns", time(alert.unknown_since_ns)),
        ("next", next),
        ("why", Text(reason(active))),
        ("is_flapping", Json::Bool(rule.alerts().flap_counter(labels).is_flapping())),
        ("acknowledgement", acknowledgement),
        ("group", text(report.group.name())),
        ("file", text(report.group.file())),
        ("line", integer(own.position.line as u64)),
        ("query", text(&own.expression)),
    ])
}

/// When the state changes next if the result of the query stays as it is, and to which state.
fn next_change(alert: &Alert, settings: &AlertSettings) -> Option<(i64, &'static str)> {
    if alert.is_unknown() {
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
