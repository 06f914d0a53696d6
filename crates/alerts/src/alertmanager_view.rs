//! Alerts as clients of Alertmanager see them: those that fire, of rules and from outside, with
//! their suppression.

use std::collections::BTreeMap;

use notify::{AlertLabels, AlertMatcher, InhibitionIndex};
use regex::Regex;
use role::json::Json::{self, List, Object};
use role::{RouteError, RouteQuery};
use rules::AlertState;

use crate::alert_selection::{alert_labels, fingerprint, rule_alert_labels};
use crate::json_body::{parse_matchers, rfc3339, text};
use crate::prometheus_api::map_json;
use crate::published_alerts::PublishedState;

/// An alert that fires.
pub(crate) struct FiringAlert {
    pub(crate) labels: AlertLabels,
    fingerprint: String,
    annotations: BTreeMap<String, String>,
    starts_ns: i64,
    updated_ns: i64,
    ends_ns: i64,
    generator_url: String,
    silenced_by: Vec<String>,
    inhibited_by: Vec<String>,
}

impl FiringAlert {
    /// All alerts that fire, by fingerprint; of several with one fingerprint, the first.
    pub(crate) fn all(state: &PublishedState) -> Vec<FiringAlert> {
        let mut alerts: BTreeMap<String, FiringAlert> = BTreeMap::new();
        for alert in rule_alerts(state).chain(received_alerts(state)) {
            alerts.entry(alert.fingerprint.clone()).or_insert(alert);
        }
        let mut alerts: Vec<FiringAlert> = alerts.into_values().collect();
        let silences = state.silences.active(state.now_ns);
        let silenced = |alert: &FiringAlert| -> Vec<String> {
            silences.silencing(&alert.labels).map(str::to_owned).collect()
        };
        let suppressions: Vec<(Vec<String>, Vec<String>)> = {
            let sources = alerts.iter().map(|alert| &alert.labels);
            let inhibition = InhibitionIndex::new(&state.routes.tree, sources);
            let inhibited = |alert: &FiringAlert| {
                let source = inhibition.inhibiting_source(&alert.labels);
                source.map(|number| alerts[number].fingerprint.clone()).into_iter().collect()
            };
            alerts.iter().map(|alert| (silenced(alert), inhibited(alert))).collect()
        };
        for (alert, suppression) in alerts.iter_mut().zip(suppressions) {
            (alert.silenced_by, alert.inhibited_by) = suppression;
        }
        alerts
    }

    /// JSON (`gettableAlert` of Alertmanager's OpenAPI document).
    pub(crate) fn to_json(&self, receivers: &[String], muted_by: &[String]) -> Json {
        let is_suppressed =
            [&self.silenced_by, &self.inhibited_by].iter().any(|ids| !ids.is_empty());
        let state = if is_suppressed || !muted_by.is_empty() { "suppressed" } else { "active" };
        let texts = |ids: &[String]| List(ids.iter().map(|id| text(&**id)).collect());
        let receiver = |name: &String| Object(vec![("name", text(&**name))]);
        let mut fields = vec![
            ("annotations", map_json(&self.annotations)),
            ("endsAt", rfc3339(self.ends_ns)),
            ("fingerprint", text(&*self.fingerprint)),
            ("receivers", List(receivers.iter().map(receiver).collect())),
            ("startsAt", rfc3339(self.starts_ns)),
            (
                "status",
                Object(vec![
                    ("inhibitedBy", texts(&self.inhibited_by)),
                    ("mutedBy", texts(muted_by)),
                    ("silencedBy", texts(&self.silenced_by)),
                    ("state", text(state)),
                ]),
            ),
            ("updatedAt", rfc3339(self.updated_ns)),
        ];
        if !self.generator_url.is_empty() {
            fields.push(("generatorURL", text(&*self.generator_url)));
        }
        fields.push(("labels", map_json(&self.labels)));
        Object(fields)
    }
}

fn rule_alerts(state: &PublishedState) -> impl Iterator<Item = FiringAlert> {
    let firing = state.active_alerts().filter(|active| active.alert.state == AlertState::Firing);
    firing.map(|active| {
        let alert = active.alert;
        let starts_ns = alert.fired_at_ns.unwrap_or(alert.active_at_ns);
        let updated_ns = alert.last_sent_at_ns.unwrap_or(starts_ns);
        let external_url = &state.routes.external_url;
        FiringAlert {
            fingerprint: fingerprint(&alert_labels(active.labels)),
            labels: rule_alert_labels(active.labels, alert),
            annotations: alert.annotations.clone(),
            starts_ns,
            updated_ns,
            ends_ns: alert.valid_until_ns.unwrap_or(updated_ns).max(state.now_ns),
            generator_url: match external_url.as_str() {
                "" => String::new(),
                url => format!("{}/#/alerts", url.trim_end_matches('/')),
            },
            silenced_by: Vec::new(),
            inhibited_by: Vec::new(),
        }
    })
}

fn received_alerts(state: &PublishedState) -> impl Iterator<Item = FiringAlert> {
    state.firing_received().map(|alert| FiringAlert {
        labels: alert.labels.clone(),
        fingerprint: fingerprint(&alert.labels),
        annotations: alert.annotations.clone(),
        starts_ns: alert.starts_ns,
        updated_ns: alert.updated_ns,
        ends_ns: alert.ends_ns,
        generator_url: alert.generator_url.clone(),
        silenced_by: Vec::new(),
        inhibited_by: Vec::new(),
    })
}

/// Parameters of `/api/v2/alerts` and `/api/v2/alerts/groups`.
pub(crate) struct AlertmanagerFilter {
    matchers: Vec<AlertMatcher>,
    includes_active: bool,
    includes_silenced: bool,
    includes_inhibited: bool,
    includes_muted: bool,
    receiver: Option<Regex>,
}

impl AlertmanagerFilter {
    pub(crate) fn read(query: &RouteQuery) -> Result<AlertmanagerFilter, RouteError> {
        let receiver = query.get("receiver").map(|pattern| {
            Regex::new(&format!("^(?:{pattern})$"))
                .map_err(|_| invalid("receiver", pattern, "a regular expression"))
        });
        // All alerts are processed.
        read_flag(query, "unprocessed")?;
        Ok(AlertmanagerFilter {
            matchers: parse_matchers(query.all("filter").filter(|text| !text.is_empty()))?,
            includes_active: read_flag(query, "active")?,
            includes_silenced: read_flag(query, "silenced")?,
            includes_inhibited: read_flag(query, "inhibited")?,
            includes_muted: read_flag(query, "muted")?,
            receiver: receiver.transpose()?,
        })
    }

    /// Whether an alert is wanted.
    pub(crate) fn accepts(&self, alert: &FiringAlert) -> bool {
        let (is_silenced, is_inhibited) =
            (!alert.silenced_by.is_empty(), !alert.inhibited_by.is_empty());
        (self.includes_active || is_silenced || is_inhibited)
            && (self.includes_silenced || !is_silenced)
            && (self.includes_inhibited || !is_inhibited)
            && self.matchers.iter().all(|matcher| matcher.matches(&alert.labels))
    }

    /// Whether one of the receivers is wanted. Without a filter, no receiver is needed.
    pub(crate) fn accepts_receivers(&self, receivers: &[String]) -> bool {
        let accepts = |pattern: &Regex| receivers.iter().any(|name| pattern.is_match(name));
        self.receiver.as_ref().is_none_or(accepts)
    }

    /// Whether groups that time intervals mute are wanted.
    pub(crate) fn includes_muted(&self) -> bool {
        self.includes_muted
    }
}

fn read_flag(query: &RouteQuery, name: &str) -> Result<bool, RouteError> {
    match query.get(name) {
        None | Some("true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(invalid(name, other, "true or false")),
    }
}

fn invalid(name: &str, found: &str, expected: &str) -> RouteError {
    let (name, found, expected) = (name.to_owned(), found.to_owned(), expected.to_owned());
    RouteError::Parameter { name, found, expected }
}
