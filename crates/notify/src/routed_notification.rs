//! A notification with the labels that its alert is routed by.

use crate::notification::Notification;
use crate::routing::AlertLabels;

/// Label that says how severe an alert is.
const SEVERITY_LABEL: &str = "severity";

/// Notification with the labels by which the alert is routed, silenced and inhibited.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedNotification {
    /// The notification.
    pub notification: Notification,
    /// Labels of the routes, silences and inhibitions.
    pub labels: AlertLabels,
}

impl RoutedNotification {
    /// A notification of an alert whose severity is that of a criterion: see [`routing_labels`].
    pub fn with_criterion_severity(notification: Notification) -> RoutedNotification {
        let labels = routing_labels(notification.labels.clone(), Some(notification.severity));
        RoutedNotification { notification, labels }
    }

    /// Approximate size in memory.
    pub(crate) fn size_bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(name, value)| name.len() + value.len());
        self.notification.size_bytes() + labels.sum::<usize>()
    }
}

impl From<Notification> for RoutedNotification {
    /// The alert is routed by its own labels.
    fn from(notification: Notification) -> RoutedNotification {
        let labels = notification.labels.clone();
        RoutedNotification { notification, labels }
    }
}

/// Labels by which an alert is routed, silenced, inhibited and selected: its own, and the severity
/// (1 to 5) of its criterion as `severity`, unless it has such a label. They change with the
/// severity, the alert stays the same.
pub fn routing_labels(mut labels: AlertLabels, criterion_severity: Option<u8>) -> AlertLabels {
    if let Some(severity) = criterion_severity {
        labels.entry(SEVERITY_LABEL.to_owned()).or_insert_with(|| severity.to_string());
    }
    labels
}
