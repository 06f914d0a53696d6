//! Names of the series of alerts, as in Prometheus.

/// Whether a metric, as UTF-8, is one of those of alerts.
pub fn is_alert_series(name: &[u8]) -> bool {
    name == ALERTS.as_bytes() || name == ALERTS_FOR_STATE.as_bytes()
}

/// Metric of active alerts.
pub(crate) const ALERTS: &str = "ALERTS";
/// Metric whose value is the start of an active alert in seconds.
pub(crate) const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";
/// Label with the name of the alert.
pub(crate) const ALERT_NAME: &str = "alertname";
/// Label with the state in [`ALERTS`].
pub(crate) const ALERT_STATE: &str = "alertstate";
