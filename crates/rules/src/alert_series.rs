//! Names of the series of alerts, as in Prometheus.

/// Metric of active alerts.
pub(crate) const ALERTS: &str = "ALERTS";
/// Metric whose value is the start of an active alert in seconds.
pub(crate) const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";
/// Label with the name of the alert.
pub(crate) const ALERT_NAME: &str = "alertname";
/// Label with the state in [`ALERTS`].
pub(crate) const ALERT_STATE: &str = "alertstate";
