//! Selection of alerts: by fingerprint, or by matchers of their labels.

use notify::{AlertLabels, AlertMatcher, label_fingerprint, routing_labels};
use query::LabelSet;
use role::RouteError;
use rules::Alert;

use crate::json_body::{bad_request, parse_matchers};

/// Which alerts a request means.
#[derive(Clone, Debug)]
pub(crate) enum AlertSelection {
    /// The one with this fingerprint.
    Fingerprint(String),
    /// Those that all of these match.
    Matchers(Vec<AlertMatcher>),
}

impl AlertSelection {
    /// Reads a selection; exactly one of both is needed.
    pub(crate) fn new(
        fingerprint: Option<String>,
        matchers: &[String],
    ) -> Result<AlertSelection, RouteError> {
        let matchers = parse_matchers(matchers.iter().map(String::as_str))?;
        let is_hex =
            |text: &String| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match fingerprint {
            Some(_) if !matchers.is_empty() => {
                Err(bad_request("expected fingerprint or matchers, found both"))
            }
            Some(text) if is_hex(&text) => {
                Ok(AlertSelection::Fingerprint(text.to_ascii_lowercase()))
            }
            Some(text) => {
                let expected = "16 hexadecimal digits as in /v1/alerts";
                Err(bad_request(format!("fingerprint: found {text:?}, expected {expected}")))
            }
            None if matchers.iter().all(|matcher| matcher.matches(&AlertLabels::new())) => {
                let what = "cannot select alerts: no matcher, or all match alerts without these \
                            labels; add fingerprint, or a matcher such as severity=\"page\"";
                Err(bad_request(what))
            }
            None => Ok(AlertSelection::Matchers(matchers)),
        }
    }

    /// Whether an alert of a rule is selected; matchers see the severity of its criterion.
    pub(crate) fn contains_rule_alert(&self, labels: &LabelSet, alert: &Alert) -> bool {
        match self {
            AlertSelection::Fingerprint(_) => self.contains(&alert_labels(labels)),
            AlertSelection::Matchers(_) => self.contains(&rule_alert_labels(labels, alert)),
        }
    }

    /// Whether an alert with these labels is selected.
    pub(crate) fn contains(&self, labels: &AlertLabels) -> bool {
        match self {
            AlertSelection::Fingerprint(wanted) => fingerprint(labels) == *wanted,
            AlertSelection::Matchers(matchers) => {
                matchers.iter().all(|matcher| matcher.matches(labels))
            }
        }
    }
}

/// Fingerprint of an alert, as Prometheus computes it.
pub(crate) fn fingerprint(labels: &AlertLabels) -> String {
    label_fingerprint(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// Labels by which an alert of a rule is selected, routed, silenced and inhibited.
pub(crate) fn rule_alert_labels(labels: &LabelSet, alert: &Alert) -> AlertLabels {
    routing_labels(alert_labels(labels), alert.severity())
}

/// Labels of an alert of a rule, which identify it.
pub(crate) fn alert_labels(labels: &LabelSet) -> AlertLabels {
    model::sort::map(labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())))
}
