//! What contacts wait for, and what they got last.

use super::DeliveryLog;
use crate::delivery::AttemptReport;
use crate::notification::{NotificationKey, NotifiedState};

/// An unfinished delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingNotification {
    /// Name of the contact.
    pub contact: String,
    /// Key of the notification.
    pub key: NotificationKey,
    /// Name of the alert.
    pub alert: String,
    /// State of the alert that the notification tells.
    pub state: NotifiedState,
    /// Time at which it was due.
    pub due_ns: i64,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the next attempt.
    pub next_ns: i64,
    /// Whether the failover contact receives it, too.
    pub has_failed_over: bool,
    /// Error of the last attempt; may be empty.
    pub note: String,
}

impl DeliveryLog {
    /// Unfinished deliveries of a contact, and when the oldest was due.
    pub(crate) fn pending_of(&self, contact: &str) -> (usize, Option<i64>) {
        self.state.pending_of(contact)
    }

    /// The oldest unfinished deliveries.
    pub(crate) fn pending(&self, count_max: usize) -> Vec<PendingNotification> {
        self.state.pending_notifications().take(count_max).collect()
    }

    /// The last attempts at finished deliveries of a contact, oldest first.
    pub(crate) fn last_attempts(&self, contact: &str, count_max: usize) -> Vec<AttemptReport> {
        self.state.last_attempts(contact, count_max)
    }
}
