//! What changes by time alone: acknowledgements expire, alerts from outside end, silences begin and
//! end.

use std::time::{Duration, Instant};

use intake::LogLevel;

use super::{RuleWorker, SAVE_INTERVAL, WAIT_MAX};

impl RuleWorker {
    /// Makes the changes that are due.
    pub(super) fn apply_due_changes(&mut self) {
        self.forget_primary();
        let now_ns = self.intake.now();
        let mut is_changed = false;
        for at in 0..self.groups.len() {
            if self.groups[at].group.expire_acknowledgements(now_ns) {
                is_changed = true;
                self.append_group_history(at);
                self.save_states();
                self.publish_snapshot(at);
                self.enqueue_notifications(at);
            }
        }
        self.await_resolved_notifications();
        match self.received.apply_due_changes(now_ns) {
            Ok(has_changed) => {
                is_changed |= has_changed;
                self.enqueue_received_notifications();
            }
            Err(error) => self.log_received_error(Some(error.to_string())),
        }
        self.append_received_history();
        if self.received_saved_at.is_none_or(|at| at.elapsed() >= SAVE_INTERVAL) {
            self.save_received_states();
        }
        let silences = self.silences.snapshot();
        let active: Vec<String> = silences.active(now_ns).ids().map(str::to_owned).collect();
        if active != self.active_silences {
            self.active_silences = active;
            is_changed = true;
        }
        if is_changed {
            self.published.advance_revision();
        }
    }

    /// Time until something may change; `None` if nothing does by itself.
    pub(super) fn time_to_change(&self) -> Option<Duration> {
        let now_ns = self.intake.now();
        let expiries = self.groups.iter().filter_map(|scheduled| scheduled.group.next_expiry_ns());
        let deadlines = expiries.chain(self.received.next_deadline_ns());
        let silences = self.silences.snapshot();
        // Recurrences have no list of changes.
        let next_look = (!silences.as_slice().is_empty()).then_some(WAIT_MAX);
        let wait = |at_ns: i64| {
            let wait_ns = at_ns.saturating_sub(now_ns).max(0).unsigned_abs();
            Duration::from_nanos(wait_ns).min(WAIT_MAX)
        };
        deadlines.map(wait).chain(next_look).min()
    }

    /// Submits the states of alerts from outside that the notifier does not know.
    pub(super) fn enqueue_received_notifications(&mut self) {
        let version = self.received.state_version();
        if !self.notifier.is_running() || self.submitted_version == Some(version) {
            return;
        }
        // A request may be about to write its alerts.
        let (alerts, version) = match self.received.durable_alerts() {
            Ok(durable) => durable,
            Err(error) => return self.log_received_error(Some(error.to_string())),
        };
        let mut error = None;
        for notification in self.submitted_received_alerts.changes(&alerts, self.intake.now()) {
            match self.notifier.submit(notification.clone()) {
                Ok(()) => {
                    self.resolved_notifications.note(&notification);
                    self.submitted_received_alerts.record(notification);
                }
                Err(cause) => error = Some(format!("alerts are not sent: {cause}")),
            }
        }
        self.submitted_version = error.is_none().then_some(version);
        self.log_received_error(error);
    }

    /// Stores alerts from outside of which only the end is another one: each repetition of an alert
    /// that fires puts it off.
    pub(super) fn save_received_states(&mut self) {
        self.received_saved_at = Some(Instant::now());
        if let Err(error) = self.received.write_all() {
            self.log_received_error(Some(error.to_string()));
        }
    }

    /// Logs an error when its cause changes.
    pub(super) fn log_received_error(&mut self, error: Option<String>) {
        if let Some(error) =
            error.as_ref().filter(|error| self.received_error.as_ref() != Some(error))
        {
            (self.log)(LogLevel::Error, error);
        }
        self.received_error = error;
    }
}
