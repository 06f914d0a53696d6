//! What the notifier was given of alerts from outside: only changes are submitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use notify::{Notification, NotifiedState};

use crate::alert_notification::{ended, received_notification};
use crate::received_alerts::ReceivedAlert;

/// Newest submitted notification of each alert from outside.
#[derive(Debug, Default)]
pub(crate) struct SubmittedReceivedAlerts {
    notifications: BTreeMap<String, Notification>,
}

impl SubmittedReceivedAlerts {
    /// What the notifier does not know: new states, and the end of alerts that are gone because the
    /// same one began anew. Alerts that are gone and were resolved are forgotten.
    pub(crate) fn changes(
        &mut self,
        alerts: &[Arc<ReceivedAlert>],
        now_ns: i64,
    ) -> Vec<Notification> {
        let (mut found, mut present) = (Vec::new(), BTreeSet::new());
        for alert in alerts {
            let newest = received_notification(alert);
            present.insert(newest.key.alert_id.clone());
            let before = self.notifications.get(&newest.key.alert_id);
            if before.is_none_or(|before| before.key < newest.key) {
                found.push(newest);
            }
        }
        let is_open = |known: &Notification| known.state != NotifiedState::Resolved;
        self.notifications.retain(|id, known| present.contains(id) || is_open(known));
        let gone = self.notifications.iter().filter(|(id, _)| !present.contains(*id));
        found.extend(gone.map(|(_, known)| ended(known, now_ns)));
        found
    }

    /// Records that a notification was submitted.
    pub(crate) fn record(&mut self, notification: Notification) {
        self.notifications.insert(notification.key.alert_id.clone(), notification);
    }
}
