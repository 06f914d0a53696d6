//! Ends of alerts: kept until the notifier has them durably. Alerts that ended are forgotten some
//! minutes later by the wall clock, which may step, and after a reload.

use std::time::Duration;

use notify::{Notification, NotifiedState};

use super::RuleWorker;

/// How long an evaluation waits for the notifier, once until that has written its log again: it
/// does not stop because the disk is full.
const ROUTING_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known of the ends that were submitted.
#[derive(Debug, Default)]
pub(super) struct SubmittedEnds {
    /// Whether one may not be durable yet.
    are_open: bool,
    has_timed_out: bool,
}

impl SubmittedEnds {
    /// Notes a notification that was submitted.
    pub(super) fn note(&mut self, submitted: &Notification) {
        self.are_open |= submitted.state == NotifiedState::Resolved;
    }
}

impl RuleWorker {
    /// Waits until the ends that were submitted are durable. Called before alerts that ended may be
    /// forgotten.
    pub(super) fn await_resolved_notifications(&mut self) {
        let ends = &mut self.resolved_notifications;
        if !ends.are_open {
            return;
        }
        let timeout = if ends.has_timed_out { Duration::ZERO } else { ROUTING_TIMEOUT };
        ends.are_open = !self.notifier.wait_until_routed(timeout);
        ends.has_timed_out = ends.are_open;
    }
}
