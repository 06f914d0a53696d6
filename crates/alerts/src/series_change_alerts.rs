//! Alerts of changes of series: the built-in rule `SeriesChanged`. An alert fires from the change
//! until somebody accepts it, or for as long as the change counts as open.
//!
//! They are those of a source beside the rules, so they are stored, routed, acknowledged and
//! silenced as those that other programs send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use notify::AlertLabels;
use rules::SeriesSetChange;

use crate::received_alerts::{ReceivedAlert, ReceivedAlerts, ReceivedAlertsError, SubmittedAlert};

/// Name of the alerts.
const ALERT_NAME: &str = "SeriesChanged";
/// Label with the id of the change.
const CHANGE_LABEL: &str = "change";

/// Maximum number of alerts that fire: they share a table with the alerts of other programs.
pub(crate) const FIRING_MAX: usize = 200;

/// Labels of the severities 1 to 5.
const SEVERITIES: [&str; 5] = ["critical", "error", "warning", "info", "none"];

/// Severity of the alerts, 1 to 5; 0: there are none. It changes with the settings.
#[derive(Debug, Default)]
pub(crate) struct ChangeSeverity(AtomicU8);

impl ChangeSeverity {
    pub(crate) fn set(&self, severity: Option<u8>) {
        // Relaxed: nothing else depends on it.
        self.0.store(severity.unwrap_or(0), Ordering::Relaxed);
    }

    /// Label `severity` of the alerts.
    fn label(&self) -> Option<&'static str> {
        let position = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        SEVERITIES.get(usize::from(position)).copied()
    }
}

/// Whether labels are those of such an alert.
pub(crate) fn is_series_change(labels: &AlertLabels) -> bool {
    labels.get("alertname").is_some_and(|name| name == ALERT_NAME)
}

/// Raises and ends the alerts.
pub(crate) struct SeriesChangeAlerts {
    pub(crate) received: Arc<ReceivedAlerts>,
    /// Called after each change of a state.
    pub(crate) on_change: Box<dyn Fn() + Send>,
}

impl SeriesChangeAlerts {
    /// Alerts that fire.
    fn firing(&self) -> Vec<Arc<ReceivedAlert>> {
        let mut alerts = self.received.alerts();
        alerts.retain(|alert| alert.is_firing && is_series_change(&alert.labels));
        alerts
    }

    /// Time of the earliest change whose alert fires.
    pub(crate) fn earliest_ns(&self) -> Option<i64> {
        self.firing().iter().map(|alert| alert.starts_ns).min()
    }

    /// Raises the alert of a change that counts as open until a time. Returns whether there is one,
    /// or none is wanted: there may be too many.
    pub(crate) fn raise(
        &self,
        change: &SeriesSetChange,
        severity: &ChangeSeverity,
        open_until_ns: i64,
        now_ns: i64,
    ) -> Result<bool, ReceivedAlertsError> {
        let Some(severity) = severity.label() else { return Ok(true) };
        if self.firing().len() >= FIRING_MAX {
            return Ok(false);
        }
        let id = change.id();
        let texts = |pairs: [(&str, String); 2]| -> BTreeMap<String, String> {
            model::sort::map(pairs.map(|(name, text)| (name.to_owned(), text)))
        };
        let mut labels = texts([("source", change.source.clone()), (CHANGE_LABEL, id.clone())]);
        labels.insert("alertname".to_owned(), ALERT_NAME.to_owned());
        labels.insert("severity".to_owned(), severity.to_owned());
        let summary = format!("source {}: {}", change.source, change.text);
        let accept = format!("If it is expected, accept it: topdeck changes --accept {id}");
        self.put(
            SubmittedAlert {
                labels,
                annotations: texts([("summary", summary), ("note", accept)]),
                starts_ns: change.time_ns,
                ends_ns: open_until_ns,
                is_timeout: false,
                generator_url: String::new(),
            },
            now_ns,
        )?;
        Ok(true)
    }

    /// Ends the alerts of changes that somebody accepted. `changes` are all that are not too old.
    pub(crate) fn end_accepted(
        &self,
        changes: &[SeriesSetChange],
        now_ns: i64,
    ) -> Result<(), ReceivedAlertsError> {
        let firing = self.firing();
        if firing.is_empty() {
            return Ok(());
        }
        let accepted = changes.iter().filter(|change| change.acceptance.is_some());
        let accepted: BTreeSet<String> = accepted.map(SeriesSetChange::id).collect();
        for alert in firing {
            if alert.labels.get(CHANGE_LABEL).is_some_and(|id| accepted.contains(id)) {
                let end = SubmittedAlert {
                    labels: alert.labels.clone(),
                    annotations: alert.annotations.clone(),
                    starts_ns: alert.starts_ns,
                    ends_ns: now_ns,
                    is_timeout: false,
                    generator_url: alert.generator_url.clone(),
                };
                self.put(end, now_ns)?;
            }
        }
        Ok(())
    }

    fn put(&self, alert: SubmittedAlert, now_ns: i64) -> Result<(), ReceivedAlertsError> {
        if self.received.put(vec![alert], now_ns)? {
            (self.on_change)();
        }
        Ok(())
    }
}
