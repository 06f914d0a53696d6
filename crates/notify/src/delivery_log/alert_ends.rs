//! Ends of alerts that wait for the next look at their group: durable, because their source forgets
//! them some minutes later, by a clock that may step.

use super::{DeliveryLog, DeliveryRecord, RECORD_BYTES_MAX, Result};
use crate::notification::Notification;

impl DeliveryLog {
    /// Notes the end of an alert, unless each of the contacts that know the alert will get it
    /// anyway. It is durable after [`DeliveryLog::sync`]. Its picture is not kept.
    pub(crate) fn note_end<'a>(
        &mut self,
        mut contacts: impl Iterator<Item = &'a str>,
        notification: &Notification,
        now_ns: i64,
    ) -> Result<()> {
        let key = &notification.key;
        let is_noted =
            self.state.ends.get(&key.alert_id).is_some_and(|end| end.notification.key >= *key);
        if is_noted || !contacts.any(|contact| self.state.lacks(contact, key)) {
            return Ok(());
        }
        let mut notification = Box::new(Notification { picture: None, ..notification.clone() });
        let record = |notification| DeliveryRecord::Ended { at_ns: now_ns, notification };
        if record(notification.clone()).encode().len() > RECORD_BYTES_MAX {
            notification.shorten();
        }
        self.defers_sync = true;
        let written = self.write(record(notification));
        self.defers_sync = false;
        written
    }

    /// Forgets the end of an alert: its group has sent it.
    pub(crate) fn forget_end(&mut self, alert_id: &str) {
        self.state.ends.remove(alert_id);
    }

    /// Ends that contacts still have to be told after a start.
    pub(crate) fn pending_ends(&self) -> Vec<Notification> {
        self.state.ends.values().map(|end| (*end.notification).clone()).collect()
    }
}
