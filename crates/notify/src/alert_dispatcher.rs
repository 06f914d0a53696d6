//! Dispatcher: from the states of alerts to deliveries in the log.
//!
//! It holds the newest notification of each alert in memory and no clock, thread or file of its
//! own. What contacts were told is in the log, which recognizes duplicates: after a crash the
//! source of the alerts submits their states again, and only what is new is sent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::delivery::lock_log;
use crate::delivery_log::{DeliveryLog, DeliveryLogError};
use crate::delivery_policy::AttemptVerdict;
use crate::notification::{Notification, NotificationKey, NotifiedState};
use crate::receiver_table::{EscalationPolicy, EscalationStep, ReceiverTable};
use crate::routed_notification::RoutedNotification;
use crate::routing::{
    AlertGroups, AlertLabels, GroupNotification, GroupReason, RoutedAlert, RoutingTree,
};
use crate::silence::SilenceSet;

/// Maximum number of other alerts that a notification names.
const OTHERS_MAX: usize = 100;

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
    is_untold: bool,
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

/// What one run of the dispatcher needs.
struct DispatchRun<'a> {
    receivers: &'a ReceiverTable,
    log: &'a Mutex<DeliveryLog>,
    now_ns: i64,
    hold: DeliveryHold,
    /// Who is on call, by rotation and time: a calendar takes time to say it, and many alerts ask.
    on_call: RefCell<BTreeMap<(String, i64), Option<String>>>,
    /// Names of the alerts that fire, each with its number of alerts.
    firing: BTreeMap<String, usize>,
    report: DispatchReport,
}

/// Result of one run.
#[derive(Debug, Default)]
pub(crate) struct DispatchReport {
    /// Number of notifications that were added to the log.
    pub(crate) told: usize,
    pub(crate) warnings: Vec<String>,
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

    /// Uses other settings for the same alerts.
    pub(crate) fn reconfigure(
        &mut self,
        receivers: ReceiverTable,
        routing: RoutingTree,
        now_ns: i64,
    ) {
        let before = std::mem::replace(self, AlertDispatcher::new(receivers, routing));
        self.set_silences(before.silences);
        for (_, alert) in before.alerts {
            let TrackedAlert { notification, labels, .. } = alert;
            self.submit(RoutedNotification { notification, labels }, now_ns);
        }
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
        let is_untold = match notification.state {
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
        let tracked = TrackedAlert { notification, labels, bytes, escalations, is_untold };
        self.alerts.insert(id, tracked);
    }

    /// Writes all deliveries that are due now to the log. After an error, which the log reports,
    /// the rest is due again.
    pub(crate) fn run(
        &mut self,
        log: &Mutex<DeliveryLog>,
        now_ns: i64,
        hold: DeliveryHold,
    ) -> Result<DispatchReport> {
        // A rest of an earlier call, if it failed.
        lock_log(log).sync()?;
        let AlertDispatcher { receivers, groups, alerts, .. } = self;
        let report = DispatchReport::default();
        let on_call = RefCell::default();
        let firing = firing_names(alerts);
        let mut run = DispatchRun { receivers, log, now_ns, hold, on_call, firing, report };
        for alert in alerts.values_mut().filter(|alert| alert.is_untold) {
            for contact in run.knowing_contacts(&alert.notification) {
                run.tell(&contact, &alert.notification)?;
            }
            alert.is_untold = false;
        }
        groups.flush_due(now_ns, |group| run.send_group(alerts, group))?;
        for alert in alerts.values_mut() {
            run.escalate(alert, groups)?;
        }
        let report = run.report;
        lock_log(log).sync()?;
        self.forget_resolved();
        Ok(report)
    }

    /// Time at which [`AlertDispatcher::run`] has something to do, if nothing is submitted before.
    pub(crate) fn next_due_ns(&self) -> Option<i64> {
        if self.alerts.values().any(|alert| alert.is_untold) {
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

    fn forget_resolved(&mut self) {
        let waiting = self.groups.resolved_ids();
        let bytes = &mut self.bytes;
        self.alerts.retain(|id, alert| {
            let is_resolved = alert.notification.state == NotifiedState::Resolved;
            let is_needed = !is_resolved || alert.is_untold || waiting.contains(id.as_str());
            if !is_needed {
                *bytes = bytes.saturating_sub(alert.bytes);
            }
            is_needed
        });
    }
}

impl DispatchRun<'_> {
    /// Returns the time at which the receiver was last told. If nobody is on call it was never
    /// told: the group is looked at again until somebody is.
    fn send_group(
        &mut self,
        alerts: &mut BTreeMap<String, TrackedAlert>,
        group: &GroupNotification,
    ) -> Result<i64> {
        let (mut told_ns, mut is_anybody_on_call) = (i64::MIN, true);
        for id in group.firing.iter().chain(&group.resolved) {
            let Some(alert) = alerts.get_mut(id) else { continue };
            let notification = alert.notification.clone();
            let needs_attention = notification.needs_attention();
            if needs_attention && group.reason == GroupReason::RepeatInterval {
                is_anybody_on_call &= self.remind(alert, group, &notification)?;
                told_ns = self.now_ns;
                continue;
            }
            let mut contacts = self.knowing_contacts(&notification);
            let escalation = self.receivers.escalation(&group.receiver);
            if needs_attention && let Some(policy) = escalation {
                is_anybody_on_call &= self.is_anybody_on_duty(policy);
                let first_ns = self.told_times(&notification).into_iter().min();
                let base_ns = first_ns.unwrap_or(self.now_ns);
                let progress = EscalationProgress { base_ns, next: 0 };
                alert.escalations.entry(group.receiver.clone()).or_insert(progress);
            } else if needs_attention {
                let receiver = &group.receiver;
                let on_call = self.contacts_of(receiver, &notification.key, self.now_ns);
                if on_call.is_empty() {
                    is_anybody_on_call = false;
                    self.report.warnings.push(format!(
                        "rotation {receiver:?} of {}: nobody is on call; the next contact on \
                         call is notified",
                        notification.key
                    ));
                }
                contacts.extend(on_call);
            }
            for contact in contacts {
                if self.tell(&contact, &notification)? {
                    told_ns = self.now_ns;
                }
            }
            told_ns =
                told_ns.max(self.told_times(&notification).into_iter().max().unwrap_or(told_ns));
        }
        Ok(match is_anybody_on_call {
            false => i64::MIN,
            true if told_ns == i64::MIN => self.now_ns,
            true => told_ns,
        })
    }

    /// Repeats the state of an alert to those who are in charge of it now; whether there are any.
    fn remind(
        &mut self,
        alert: &TrackedAlert,
        group: &GroupNotification,
        notification: &Notification,
    ) -> Result<bool> {
        let receiver = &group.receiver;
        let contacts: BTreeSet<String> = match self.receivers.escalation(receiver) {
            Some(policy) => {
                let reached = alert.escalations.get(receiver).map_or(0, |progress| progress.next);
                let steps = policy.steps.iter().take(reached);
                let receivers = steps.flat_map(|step| &step.receivers);
                receivers.flat_map(|one| self.on_duty(one)).collect()
            }
            None => self.on_duty(receiver).into_iter().collect(),
        };
        for contact in &contacts {
            let newest = lock_log(self.log).newest(contact, &notification.key.alert_id);
            let transition = notification.key.transition;
            let newest = newest.filter(|newest| newest.key.transition == transition);
            let mut reminder = notification.clone();
            match newest {
                // It does not have the state yet.
                Some(newest) if newest.verdict.is_none() => continue,
                Some(newest)
                    if newest.verdict == Some(AttemptVerdict::Delivered)
                        && newest.at_ns > group.repeats_before_ns =>
                {
                    continue;
                }
                Some(newest) => reminder.key.reminder = newest.key.reminder.saturating_add(1),
                None => {}
            }
            reminder.at_ns = self.now_ns;
            self.tell(contact, &reminder)?;
        }
        Ok(!contacts.is_empty())
    }

    /// Makes the steps of an alert's escalations that are due.
    fn escalate(&mut self, alert: &mut TrackedAlert, groups: &AlertGroups) -> Result<()> {
        let TrackedAlert { notification, labels, escalations, .. } = alert;
        if !notification.needs_attention() {
            return Ok(());
        }
        for (name, EscalationProgress { base_ns, next }) in escalations.iter_mut() {
            let Some(policy) = self.receivers.escalation(name) else { continue };
            while let Some(step) = policy.steps.get(*next) {
                let due_ns = base_ns.saturating_add(nanos(step.after));
                let before = next.checked_sub(1).and_then(|before| policy.steps.get(before));
                let is_early = due_ns > self.now_ns;
                let is_skipped =
                    before.is_some_and(|before| !self.is_reachable(before, &notification.key));
                if is_early && !is_skipped {
                    break;
                }
                let audible = groups.audible_receivers(labels, self.now_ns);
                if !audible.contains(name) {
                    break;
                }
                let at_ns = due_ns.min(self.now_ns);
                let contacts = self.contacts_of_step(step, &notification.key, at_ns);
                for contact in &contacts {
                    self.tell(contact, notification)?;
                }
                if is_early {
                    self.warn_skipped(policy, *next, &notification.key);
                }
                *next += 1;
                if contacts.is_empty() && *next == policy.steps.len() {
                    self.report.warnings.push(format!(
                        "escalation {name:?} of {}: nobody of step {next} is on call, and no step \
                         follows",
                        notification.key
                    ));
                }
            }
        }
        Ok(())
    }

    fn warn_skipped(&mut self, policy: &EscalationPolicy, next: usize, key: &NotificationKey) {
        let EscalationPolicy { name, steps } = policy;
        let before = next.checked_sub(1).and_then(|before| steps.get(before));
        let contacts = before.map(|step| self.told_contacts(step, &key.alert_id));
        let cause = match contacts.is_none_or(|contacts| contacts.is_empty()) {
            true => format!("nobody of step {next} is on call"),
            false => format!("no contact of step {next} is reachable"),
        };
        self.report.warnings.push(format!(
            "escalation {name:?} of {key}: {cause}; step {} is made at once",
            next + 1
        ));
    }

    /// Whether a contact of a step has a notification of the alert, may still get it, or has a
    /// failover. While deliveries are held nobody knows, and nobody was tried before they were
    /// released.
    fn is_reachable(&self, step: &EscalationStep, key: &NotificationKey) -> bool {
        let DeliveryHold::ReleasedAt(released_ns) = self.hold else { return true };
        self.told_contacts(step, &key.alert_id).into_iter().any(|name| {
            let Some(contact) = self.receivers.contact(&name) else { return false };
            let log = lock_log(self.log);
            let newest = log.newest(&name, &key.alert_id);
            let age_max_ns = nanos(contact.policy.failover_after);
            contact.policy.failover.is_some()
                || newest.is_some_and(|newest| match newest.verdict {
                    Some(verdict) => verdict == AttemptVerdict::Delivered,
                    None => newest.at_ns.max(released_ns).saturating_add(age_max_ns) > self.now_ns,
                })
        })
    }

    fn contacts_of_step(
        &self,
        step: &EscalationStep,
        key: &NotificationKey,
        at_ns: i64,
    ) -> Vec<String> {
        step.receivers.iter().flat_map(|one| self.contacts_of(one, key, at_ns)).collect()
    }

    /// Contacts of a step that was made: of any state of the alert, since its group may not have
    /// sent the newest one yet.
    fn told_contacts(&self, step: &EscalationStep, alert_id: &str) -> Vec<String> {
        let log = lock_log(self.log);
        let knows = |name: &str| log.knows_alert(name, alert_id);
        let contacts = |one: &String| self.contacts_known(one, self.now_ns, knows);
        step.receivers.iter().flat_map(contacts).collect()
    }

    fn contacts_of(&self, receiver: &str, key: &NotificationKey, at_ns: i64) -> Vec<String> {
        let log = lock_log(self.log);
        self.contacts_known(receiver, at_ns, |name| log.is_known(name, key))
    }

    fn contacts_known(
        &self,
        receiver: &str,
        at_ns: i64,
        knows: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        self.receivers.contacts_of(receiver, knows, |rotation| {
            let mut on_call = self.on_call.borrow_mut();
            let known = on_call.entry((rotation.name.clone(), at_ns));
            known.or_insert_with(|| rotation.contact_at(at_ns).map(str::to_owned)).clone()
        })
    }

    fn is_anybody_on_duty(&self, policy: &EscalationPolicy) -> bool {
        let mut receivers = policy.steps.iter().flat_map(|step| &step.receivers);
        receivers.any(|one| !self.on_duty(one).is_empty())
    }

    fn on_duty(&self, receiver: &str) -> Vec<String> {
        self.contacts_known(receiver, self.now_ns, |_| false)
    }

    /// Contacts that were told of the alert, or will be.
    fn knowing_contacts(&self, notification: &Notification) -> BTreeSet<String> {
        let log = lock_log(self.log);
        let names = self.receivers.contacts().iter().map(|contact| &contact.name);
        let knowing = names.filter(|name| log.knows_alert(name, &notification.key.alert_id));
        knowing.cloned().collect()
    }

    /// Times at which contacts were told of this state of the alert, or are to be.
    fn told_times(&self, notification: &Notification) -> Vec<i64> {
        let log = lock_log(self.log);
        let NotificationKey { alert_id, transition, .. } = &notification.key;
        let contacts = self.receivers.contacts().iter();
        let newest = contacts.filter_map(|contact| log.newest(&contact.name, alert_id));
        let of_state = newest.filter(|one| one.key.transition == *transition);
        of_state.map(|one| one.at_ns).collect()
    }

    /// Names of the other alerts that fire: its own name, if several of its alerts do.
    fn others(&self, notification: &Notification) -> Vec<String> {
        let is_firing = notification.state != NotifiedState::Resolved;
        let is_other = |(name, alerts): &(&String, &usize)| {
            **name != notification.name || **alerts > usize::from(is_firing)
        };
        let others = self.firing.iter().filter(is_other).map(|(name, _)| name.clone());
        others.take(OTHERS_MAX).collect()
    }

    fn tell(&mut self, contact: &str, notification: &Notification) -> Result<bool> {
        let chain = self.receivers.failover_chain(contact);
        let mut contacts = chain.iter().filter_map(|name| self.receivers.contact(name));
        let mut notification = notification.clone();
        if !contacts.any(|contact| contact.contact.shows_pictures()) {
            notification.picture = None;
        }
        notification.also_firing = self.others(&notification);
        let is_new = lock_log(self.log).enqueue_deferred(&chain, &notification, self.now_ns)?;
        self.report.told += usize::from(is_new);
        Ok(is_new)
    }
}

/// Names of the alerts that fire, acknowledged ones too, each with its number of alerts.
fn firing_names(alerts: &BTreeMap<String, TrackedAlert>) -> BTreeMap<String, usize> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for TrackedAlert { notification, .. } in alerts.values() {
        if notification.state == NotifiedState::Resolved {
            continue;
        }
        match names.get_mut(&notification.name) {
            Some(alerts) => *alerts += 1,
            None => {
                names.insert(notification.name.clone(), 1);
            }
        }
    }
    names
}

fn nanos(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
