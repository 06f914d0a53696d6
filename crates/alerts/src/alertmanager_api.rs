//! Alertmanager's API, version 2 (`api/v2/openapi.yaml` of Alertmanager 0.35): alerts, groups,
//! receivers and status. `alertmanager_silences.rs` has silences.

use std::collections::BTreeMap;

use jiff::Timestamp;
use notify::AlertLabels;
use role::json::Json::{self, List, Null, Object};
use role::{
    Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec, WriteMethod, WriteRequest,
    WriteRouteSpec, WriteScope,
};
use serde::Deserialize;

use crate::alertmanager_view::{AlertmanagerFilter, FiringAlert};
use crate::json_body::{parse_time, read_body, text};
use crate::prometheus_api::map_json;
use crate::published_alerts::{PublishedAlerts, PublishedState};
use crate::received_alerts::{RESOLVE_TIMEOUT_NS, ReceivedAlertsError, SubmittedAlert};
use crate::worker_control::WorkerControl;

/// Largest alert: labels, annotations and URL in bytes.
const ALERT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of mistakes that an error names.
const ERRORS_MAX: usize = 10;

const FILTERS: &[Parameter] = &[
    Parameter::text("filter", "matcher of labels, such as severity=\"page\"; all match").many(),
    Parameter::flag("active", "whether alerts that are not suppressed are listed; default: true"),
    Parameter::flag("silenced", "whether silenced alerts are listed; default: true"),
    Parameter::flag("inhibited", "whether inhibited alerts are listed; default: true"),
    Parameter::flag("unprocessed", "accepted and ignored: all alerts are processed"),
    Parameter::flag("muted", "of groups: whether muted ones are listed; default: true"),
    Parameter::text("receiver", "regular expression of the receiver"),
];

/// Alerts that fire.
pub(crate) static ALERTS: RouteSpec = RouteSpec {
    name: "alertmanager_alerts",
    path: "/api/v2/alerts",
    about: "Alertmanager API: alerts that fire, of rules and received.",
    parameters: FILTERS,
    format: RouteFormat::Json,
};

/// Groups.
pub(crate) static GROUPS: RouteSpec = RouteSpec {
    name: "alertmanager_groups",
    path: "/api/v2/alerts/groups",
    about: "Alertmanager API: alerts that fire, as the routes group them.",
    parameters: FILTERS,
    format: RouteFormat::Json,
};

/// Receivers.
pub(crate) static RECEIVERS: RouteSpec = RouteSpec {
    name: "alertmanager_receivers",
    path: "/api/v2/receivers",
    about: "Alertmanager API: names of contacts, rotations and escalations.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// Status.
pub(crate) static STATUS: RouteSpec = RouteSpec {
    name: "alertmanager_status",
    path: "/api/v2/status",
    about: "Alertmanager API: version and uptime.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// Alerts from outside.
pub(crate) static POST_ALERTS: WriteRouteSpec = WriteRouteSpec {
    scope: WriteScope::Alerts,
    method: WriteMethod::Post,
    path: "/api/v2/alerts",
    about: "Alertmanager API: receives alerts, which are sent as those of rules are.",
    parameters: &[],
    body: Some(
        "[{\"labels\": {…}, \"annotations\": {…}, \"startsAt\": time, \"endsAt\": time, \
         \"generatorURL\": …}]; without an end, an alert ends 5 minutes after it was last received",
    ),
    response: "empty; the alerts are stored durably",
};

const EXAMPLE: &str = "a list such as [{\"labels\": {\"alertname\": \"Down\"}}]";

/// `postableAlert`; fields of later versions are ignored.
#[derive(Debug, Deserialize)]
struct PostableAlert {
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(rename = "startsAt")]
    starts_at: Option<String>,
    #[serde(rename = "endsAt")]
    ends_at: Option<String>,
    #[serde(rename = "generatorURL", default)]
    generator_url: String,
}

impl PostableAlert {
    fn into_submitted(self, now_ns: i64) -> Result<SubmittedAlert, String> {
        let time = |name: &str, value: Option<&str>| match value {
            None | Some("") => Ok(None),
            Some(value) => parse_time(name, value).map_err(|error| match error {
                RouteError::BadRequest(what) => what,
                other => format!("{other:?}"),
            }),
        };
        let starts = time("startsAt", self.starts_at.as_deref())?;
        let ends = time("endsAt", self.ends_at.as_deref())?;
        let starts_ns = starts.or(ends).unwrap_or(now_ns);
        let is_timeout = ends.is_none();
        let ends_ns = ends.unwrap_or(now_ns.saturating_add(RESOLVE_TIMEOUT_NS));
        let mut labels: AlertLabels = self.labels;
        labels.retain(|_, value| !value.is_empty());
        if labels.is_empty() {
            return Err("an alert has no labels, expected at least one".to_owned());
        }
        if labels.keys().chain(self.annotations.keys()).any(String::is_empty) {
            return Err("a label or annotation has an empty name, expected a name".to_owned());
        }
        if starts_ns > ends_ns {
            return Err("startsAt is after endsAt, expected a time before it".to_owned());
        }
        let pairs = labels.iter().chain(&self.annotations);
        let size: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        let size = size + self.generator_url.len();
        if size > ALERT_BYTES_MAX {
            return Err(format!(
                "limit of {ALERT_BYTES_MAX} bytes of an alert exceeded ({size}); shorten its \
                 annotations"
            ));
        }
        let (annotations, generator_url) = (self.annotations, self.generator_url);
        Ok(SubmittedAlert { labels, annotations, starts_ns, ends_ns, is_timeout, generator_url })
    }
}

/// Receives alerts. Valid ones are stored even if others are not, as in Alertmanager.
pub(crate) fn post_alerts(
    published: &PublishedAlerts,
    control: &WorkerControl,
    request: &WriteRequest,
) -> Result<Json, RouteError> {
    let posted: Vec<PostableAlert> = read_body(&request.body, EXAMPLE)?;
    let now_ns = published.now_ns();
    let (mut valid, mut errors) = (Vec::new(), Vec::new());
    for (at, alert) in posted.into_iter().enumerate() {
        match alert.into_submitted(now_ns) {
            Ok(alert) => valid.push(alert),
            Err(what) => errors.push(format!("alert {}: {what}", at + 1)),
        }
    }
    let stored = published.received_alerts().put(valid, now_ns);
    // Also after an error: some may be stored.
    control.wake();
    match stored {
        Ok(true) => published.advance_revision(),
        Ok(false) => {}
        Err(error @ (ReceivedAlertsError::Count | ReceivedAlertsError::Size)) => {
            published.advance_revision();
            return Err(RouteError::Limit(error.to_string()));
        }
        Err(error) => return Err(RouteError::Unavailable(error.to_string())),
    }
    if errors.is_empty() {
        return Ok(Null);
    }
    let more = errors.len().saturating_sub(ERRORS_MAX);
    errors.truncate(ERRORS_MAX);
    if more > 0 {
        errors.push(format!("{more} more"));
    }
    Err(RouteError::BadRequest(errors.join("; ")))
}

/// Response of `/api/v2/alerts`.
pub(crate) fn alerts(state: &PublishedState, query: &RouteQuery) -> Result<Json, RouteError> {
    let filter = AlertmanagerFilter::read(query)?;
    let mut found = Vec::new();
    for alert in FiringAlert::all(state).iter().filter(|alert| filter.accepts(alert)) {
        let receivers = receivers_of(state, &alert.labels);
        if filter.accepts_receivers(&receivers) {
            found.push(alert.to_json(&receivers, &[]));
        }
    }
    Ok(List(found))
}

/// Response of `/api/v2/alerts/groups`. Without routes there are no groups.
pub(crate) fn groups(state: &PublishedState, query: &RouteQuery) -> Result<Json, RouteError> {
    let filter = AlertmanagerFilter::read(query)?;
    let mut groups: BTreeMap<_, Vec<Json>> = BTreeMap::new();
    for alert in FiringAlert::all(state).iter().filter(|alert| filter.accepts(alert)) {
        if state.routes.tree.root.receiver.is_none() {
            break;
        }
        let receivers = receivers_of(state, &alert.labels);
        for place in state.routes.tree.group_places(&alert.labels, state.now_ns) {
            let is_wanted = filter.accepts_receivers(std::slice::from_ref(&place.receiver))
                && (filter.includes_muted() || place.muted_by.is_empty());
            if is_wanted {
                let json = alert.to_json(&receivers, &place.muted_by);
                groups.entry(place).or_default().push(json);
            }
        }
    }
    let groups = groups.into_iter().map(|(place, alerts)| {
        Object(vec![
            ("alerts", List(alerts)),
            ("labels", map_json(&place.labels)),
            ("receiver", Object(vec![("name", text(place.receiver))])),
            // Routes have no labels.
            ("routeLabels", Json::Map(Vec::new())),
        ])
    });
    Ok(List(groups.collect()))
}

/// Names of the receivers of an alert; none without routes.
fn receivers_of(state: &PublishedState, labels: &AlertLabels) -> Vec<String> {
    match state.routes.tree.root.receiver {
        Some(_) => state.routes.tree.receivers(labels),
        None => Vec::new(),
    }
}

/// Response of `/api/v2/receivers`.
pub(crate) fn receivers(state: &PublishedState) -> Json {
    let receiver = |name: &String| Object(vec![("name", text(&**name))]);
    List(state.routes.receivers.iter().map(receiver).collect())
}

/// Response of `/api/v2/status`.
pub(crate) fn status(started_ns: i64) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let uptime = Timestamp::from_nanosecond(started_ns.into()).unwrap_or_default();
    let unknown = || text("");
    Object(vec![
        ("cluster", Object(vec![("peers", List(Vec::new())), ("status", text("disabled"))])),
        ("config", Object(vec![("original", text("# topdeck: see its settings file\n"))])),
        ("uptime", text(uptime.to_string())),
        (
            "versionInfo",
            Object(vec![
                ("branch", unknown()),
                ("buildDate", unknown()),
                ("buildUser", unknown()),
                ("goVersion", unknown()),
                ("revision", unknown()),
                ("version", text(format!("topdeck {version}"))),
            ]),
        ),
    ])
}

#[cfg(test)]
mod tests;
