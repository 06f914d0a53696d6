//! Alerts of a rule beside the expected ones.
//!
//! Of a rule of Prometheus, labels and annotations of firing alerts are compared, as in promtool.
//! State, severity, value and whether it is unknown are compared if the test names them, and so are
//! the annotations of an own rule.

use std::fmt::Write as _;

use decode::{Quantity, Unit};
use hist::Bracket;
use query::LabelSet;

use crate::alert_table::{Alert, AlertState};
use crate::rule_file::LabelMap;

/// Label with the name of the alert, which expectations leave out.
const ALERT_NAME: &str = "alertname";

/// Alert that a test expects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExpectedAlert {
    /// Without the name.
    pub(crate) labels: LabelMap,
    pub(crate) annotations: Option<LabelMap>,
    pub(crate) state: AlertState,
    pub(crate) severity: Option<u8>,
    pub(crate) value: Option<Quantity>,
    pub(crate) is_unknown: Option<bool>,
}

impl ExpectedAlert {
    fn labels(&self, name: &str) -> LabelSet {
        LabelSet::new(self.labels.clone()).with(ALERT_NAME, name)
    }

    fn agrees(&self, name: &str, (labels, found): (&LabelSet, &Alert), is_fuzzy: bool) -> bool {
        let annotations = match (&self.annotations, &found.matched) {
            (None, Some(_)) => true,
            (None, None) => found.annotations.is_empty(),
            (Some(annotations), _) => *annotations == found.annotations,
        };
        *labels == self.labels(name)
            && annotations
            && self.state == found.state
            && self.severity.is_none_or(|severity| found.severity() == Some(severity))
            && self.is_unknown.is_none_or(|is_unknown| found.is_unknown() == is_unknown)
            && self.value.as_ref().is_none_or(|value| is_value(value, found, is_fuzzy))
    }
}

/// Whether a value is the one that was measured, or within its bounds.
fn is_value(expected: &Quantity, found: &Alert, is_fuzzy: bool) -> bool {
    let (Bracket { lower, upper, .. }, unit) = match &found.matched {
        Some(found) => (found.value, found.unit.as_str()),
        None => (Bracket::exact(found.value), ""),
    };
    let (lower, upper) = match is_fuzzy {
        true => (lower.next_down(), upper.next_up()),
        false => (lower, upper),
    };
    let expected = expected.value_in(Unit::parse(unit).as_ref());
    expected.is_some_and(|expected| (lower..=upper).contains(&expected))
}

/// What was found and what was expected, if they differ. Pending alerts count if one is expected.
pub(super) fn compare_alerts<'a>(
    name: &str,
    found: impl Iterator<Item = (&'a LabelSet, &'a Alert)>,
    expected: &[ExpectedAlert],
    is_fuzzy: bool,
) -> Option<AlertDifference> {
    let least = expected.iter().map(|alert| alert.state).min().unwrap_or(AlertState::Firing);
    let mut found: Vec<(&LabelSet, &Alert)> =
        found.filter(|(_, alert)| alert.state >= least).collect();
    let mut wanted: Vec<&ExpectedAlert> = expected.iter().collect();
    model::sort::by(&mut found, |a, b| (a.0, &a.1.annotations).cmp(&(b.0, &b.1.annotations)));
    model::sort::by(&mut wanted, |a, b| {
        (a.labels(name), &a.annotations).cmp(&(b.labels(name), &b.annotations))
    });
    let agrees = |(found, wanted): (&(&LabelSet, &Alert), &&ExpectedAlert)| {
        wanted.agrees(name, *found, is_fuzzy)
    };
    if found.len() == wanted.len() && found.iter().zip(&wanted).all(agrees) {
        return None;
    }
    let is_empty = found.is_empty();
    let found = join(found.into_iter().map(|(labels, alert)| show_found(labels, alert)));
    let wanted = join(wanted.into_iter().map(|alert| show_expected(name, alert)));
    Some(AlertDifference { is_empty, text: format!("found {found}, expected {wanted}") })
}

/// Difference of the alerts of a rule from the expected ones.
pub(super) struct AlertDifference {
    /// Whether no alert was found.
    pub(super) is_empty: bool,
    pub(super) text: String,
}

fn show_found(labels: &LabelSet, alert: &Alert) -> String {
    let mut text = show_labels(labels, &alert.annotations);
    let Some(found) = &alert.matched else {
        if alert.state != AlertState::Firing {
            _ = write!(text, " ({})", alert.state.text());
        }
        return text;
    };
    let Bracket { lower, estimate, upper } = found.value;
    // Writing to a string does not fail.
    _ = write!(text, " ({}, severity {}, value {estimate}", alert.state.text(), found.severity);
    if !found.unit.is_empty() {
        _ = write!(text, " {}", found.unit);
    }
    if !found.value.is_exact() {
        _ = write!(text, " [{lower}, {upper}]");
    }
    text.push_str(if alert.is_unknown() { ", unknown)" } else { ")" });
    text
}

fn show_expected(name: &str, alert: &ExpectedAlert) -> String {
    let none = LabelMap::new();
    let mut text = show_labels(&alert.labels(name), alert.annotations.as_ref().unwrap_or(&none));
    let state = (alert.state != AlertState::Firing).then(|| alert.state.text().to_owned());
    let named = [
        state,
        alert.severity.map(|severity| format!("severity {severity}")),
        alert.value.as_ref().map(|value| format!("value {value}")),
        alert.is_unknown.map(|is_unknown| if is_unknown { "unknown" } else { "known" }.to_owned()),
    ];
    let named: Vec<String> = named.into_iter().flatten().collect();
    if !named.is_empty() {
        _ = write!(text, " ({})", named.join(", "));
    }
    text
}

fn show_labels(labels: &LabelSet, annotations: &LabelMap) -> String {
    annotations.iter().fold(labels.to_string(), |mut text, (name, value)| {
        _ = write!(text, " {name}={value:?}");
        text
    })
}

fn join(shown: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = shown.collect();
    shown.sort_unstable();
    shown.dedup();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}
