//! Dispatcher: from the states of alerts to deliveries in the log.
//!
//! A panic costs the message that it composes, or what is due now of one alert: the rest is sent,
//! and what panicked is not tried again until the alert is due again.
//!
//! It holds the newest notification of each alert in memory and no clock, thread or file of its
//! own. What contacts were told is in the log, which recognizes duplicates: after a crash the
//! source of the alerts submits their states again, and only what is new is sent. Ends that a group
//! sends later are in the log, too, because the source forgets alerts that ended.

mod dispatch_run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;

use journal::Supervisor;
use journal::supervisor::catch_panic;

use crate::delivery::lock_log;
use crate::delivery_log::{DeliveryLog, DeliveryLogError};
use crate::notification::{Notification, NotifiedState};
use crate::receiver_table::ReceiverTable;
use crate::routed_notification::RoutedNotification;
use crate::routing::{AlertGroups, AlertLabels, RoutedAlert, RoutingTree};
use crate::silence::SilenceSet;
use dispatch_run::DispatchRun;

type Result<T, E = DeliveryLogError> = std::result::Result<T, E>;

/// All alerts that are not resolved, or whose end is not sent yet.
#[derive(Debug)]
pub(crate) struct AlertDispatcher {
    receivers: ReceiverTable,
    groups: AlertGroups,
    alerts: BTreeMap<String, TrackedAlert>,
    bytes: usize,
    silences: SilenceSet,
}

#[derive(Debug)]
struct TrackedAlert {
    notification: Notification,
    /// Labels of the routes.
    labels: AlertLabels,
    bytes: usize,
    /// By name of the escalation, from the time at which a group sent the alert to it.
    escalations: BTreeMap<String, EscalationProgress>,
    /// Whether the contacts that know the alert have to hear of its new state at once.
    is_unqueued: bool,
    /// Whether the log has its end, which a group sends later.
    is_end_noted: bool,
}

/// Steps of an escalation that were made.
#[derive(Clone, Copy, Debug)]
struct EscalationProgress {
    /// Time from which the steps count.
    base_ns: i64,
    /// Index of the next step.
    next: usize,
}

/// Whether another site makes the deliveries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeliveryHold {
    /// It does: what is due here waits.
    Held,
    /// It does not, since this time; `i64::MIN` if it never did.
    ReleasedAt(i64),
}

/// Result of one run.
#[derive(Debug, Default)]
pub(crate) struct DispatchReport {
    /// Number of notifications that were added to the log.
    pub(crate) queued: usize,
    pub(crate) warnings: Vec<String>,
    /// Panics, each with what it cost.
    pub(crate) panics: Vec<String>,
}

impl AlertDispatcher {
    pub(crate) fn new(receivers: ReceiverTable, routing: RoutingTree) -> AlertDispatcher {
        let (groups, alerts) = (AlertGroups::new(routing), BTreeMap::new());
        let silences = SilenceSet::default();
        AlertDispatcher { receivers, groups, alerts, bytes: 0, silences }
    }

    /// Uses other silences from now on.
    pub(crate) fn set_silences(&mut self, silences: SilenceSet) {
        self.groups.set_silences(silences.clone());
        self.silences = silences;
    }

    /// Uses other settings for the same alerts. Returns panics, each of which costs one alert.
    pub(crate) fn reconfigure(
        &mut self,
        receivers: ReceiverTable,
        routing: RoutingTree,
        now_ns: i64,
        supervisor: &Supervisor,
    ) -> Vec<String> {
        let before = std::mem::replace(self, AlertDispatcher::new(receivers, routing));
        self.set_silences(before.silences);
        let mut panics = Vec::new();
        for (_, alert) in before.alerts {
            let TrackedAlert { notification, labels, .. } = alert;
            let key = notification.key.clone();
            let submitted = catch_panic(|| {
                supervisor.failpoint(format_args!("notify reload {key}"));
                self.submit(RoutedNotification { notification, labels }, now_ns);
            });
            if let Err(panic) = submitted {
                panics.push(format!("alert {key} is not routed: {panic}"));
            }
        }
        panics
    }

    /// Number of alerts.
    pub(crate) fn alert_count(&self) -> usize {
        self.alerts.len()
    }

    /// Number of groups.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Approximate size of the alerts in memory.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the state of an alert; one that is not newer than the known one is ignored.
    pub(crate) fn submit(&mut self, submitted: RoutedNotification, now_ns: i64) {
        let bytes = submitted.size_bytes();
        let RoutedNotification { notification, labels } = submitted;
        let id = notification.key.alert_id.clone();
        let before = self.alerts.get(&id);
        if before.is_some_and(|before| before.notification.key >= notification.key) {
            return;
        }
        let is_reported = self.groups.update(
            &RoutedAlert {
                id: id.clone(),
                labels: labels.clone(),
                severity: notification.severity,
                since_ns: notification.since_ns,
                transition: notification.key.transition,
                is_resolved: notification.state == NotifiedState::Resolved,
            },
            now_ns,
        );
        let is_unqueued = match notification.state {
            NotifiedState::Acknowledged => true,
            // After a restart a group does not know what contacts were told.
            NotifiedState::Resolved => !is_reported,
            NotifiedState::Firing | NotifiedState::Unknown => false,
        };
        let before = self.alerts.remove(&id);
        let freed = before.as_ref().map_or(0, |alert| alert.bytes);
        self.bytes = self.bytes.saturating_sub(freed) + bytes;
        // An alert that nobody takes care of any more is escalated from the first step.
        let continued = before.filter(|before| {
            before.notification.needs_attention() && notification.needs_attention()
        });
        let mut escalations = BTreeMap::new();
        if let Some(before) = continued {
            escalations = before.escalations;
            if before.labels != labels {
                // One that the alert left begins with its first step if the alert returns.
                let receivers = self.groups.receivers(&labels);
                escalations.retain(|name, _| receivers.contains(name));
            }
        }
        let is_end_noted = false;
        let tracked =
            TrackedAlert { notification, labels, bytes, escalations, is_unqueued, is_end_noted };
        self.alerts.insert(id, tracked);
    }

    /// Writes all deliveries that are due now to the log, and the ends of alerts that are due
    /// later: afterwards the source may forget them. After an error, which the log reports, the
    /// rest is due again.
    pub(crate) fn run(
        &mut self,
        log: &Mutex<DeliveryLog>,
        now_ns: i64,
        hold: DeliveryHold,
        supervisor: &Supervisor,
    ) -> Result<DispatchReport> {
        // A rest of an earlier call, if it failed.
        lock_log(log).sync()?;
        let AlertDispatcher { receivers, groups, alerts, .. } = self;
        let mut run = DispatchRun::new(receivers, log, supervisor, alerts, now_ns, hold);
        for alert in alerts.values_mut().filter(|alert| alert.is_unqueued) {
            run.enqueue_state(&alert.notification)?;
            alert.is_unqueued = false;
        }
        groups.flush_due(now_ns, |group| run.send_group(alerts, group))?;
        for alert in alerts.values_mut() {
            run.escalate(alert, groups)?;
        }
        let waiting = groups.resolved_ids();
        for (id, alert) in alerts.iter_mut() {
            if waiting.contains(id.as_str()) && !alert.is_end_noted {
                run.note_end(&alert.notification)?;
                alert.is_end_noted = true;
            }
        }
        let mut report = run.into_report();
        report.panics.extend(groups.take_panics());
        lock_log(log).sync()?;
        self.forget_resolved(log);
        Ok(report)
    }

    /// Time at which [`AlertDispatcher::run`] has something to do, if nothing is submitted before.
    pub(crate) fn next_due_ns(&self) -> Option<i64> {
        if self.alerts.values().any(|alert| alert.is_unqueued) {
            return Some(i64::MIN);
        }
        let steps = self.alerts.values().filter(|alert| alert.notification.needs_attention());
        let steps = steps.flat_map(|alert| {
            let due = |(name, progress): (&String, &EscalationProgress)| {
                let step = self.receivers.escalation(name)?.steps.get(progress.next)?;
                Some(progress.base_ns.saturating_add(nanos(step.after)))
            };
            alert.escalations.iter().filter_map(due)
        });
        steps.chain(self.groups.next_due_ns()).min()
    }

    fn forget_resolved(&mut self, log: &Mutex<DeliveryLog>) {
        let waiting = self.groups.resolved_ids();
        let bytes = &mut self.bytes;
        self.alerts.retain(|id, alert| {
            let is_resolved = alert.notification.state == NotifiedState::Resolved;
            let is_needed = !is_resolved || alert.is_unqueued || waiting.contains(id.as_str());
            if !is_needed {
                *bytes = bytes.saturating_sub(alert.bytes);
                lock_log(log).forget_end(id);
            }
            is_needed
        });
    }
}

fn nanos(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
