//! One run of the dispatcher: what is due now.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use journal::Supervisor;
use journal::supervisor::catch_panic;

use super::{DeliveryHold, DispatchReport, EscalationProgress, Result, TrackedAlert, nanos};
use crate::delivery::lock_log;
use crate::delivery_log::DeliveryLog;
use crate::delivery_policy::AttemptVerdict;
use crate::notification::{Notification, NotificationKey, NotifiedState};
use crate::receiver_table::{EscalationPolicy, EscalationStep, ReceiverTable};
use crate::routing::{AlertGroups, GroupNotification, GroupReason};

/// Maximum number of other alerts that a notification names.
const OTHERS_MAX: usize = 100;

/// What one run of the dispatcher needs.
pub(super) struct DispatchRun<'a> {
    receivers: &'a ReceiverTable,
    log: &'a Mutex<DeliveryLog>,
    now_ns: i64,
    hold: DeliveryHold,
    /// Who is on call, by rotation and time: a calendar takes time to say it, and many alerts ask.
    on_call: RefCell<BTreeMap<(String, i64), Option<String>>>,
    /// Names of the alerts that fire, each with its number of alerts.
    firing: BTreeMap<String, usize>,
    /// For failpoints.
    supervisor: &'a Supervisor,
    report: DispatchReport,
}

/// What a run does of an alert, for failpoints and reports of panics.
#[derive(Clone, Copy, Debug)]
enum DispatchStep {
    /// The new state goes to the contacts that have a notification of the alert.
    State,
    /// A group sends it.
    Group,
    /// An escalation sends it.
    Escalation,
}

impl DispatchStep {
    fn name(self) -> &'static str {
        match self {
            DispatchStep::State => "state",
            DispatchStep::Group => "group",
            DispatchStep::Escalation => "escalation",
        }
    }
}

/// What a group sent of an alert.
struct GroupOutcome {
    /// When a message to the receiver was last queued; `i64::MIN` if none was.
    queued_ns: i64,
    is_anybody_on_call: bool,
}

impl<'a> DispatchRun<'a> {
    pub(super) fn new(
        receivers: &'a ReceiverTable,
        log: &'a Mutex<DeliveryLog>,
        supervisor: &'a Supervisor,
        alerts: &BTreeMap<String, TrackedAlert>,
        now_ns: i64,
        hold: DeliveryHold,
    ) -> DispatchRun<'a> {
        let (on_call, firing) = (RefCell::default(), firing_names(alerts));
        let report = DispatchReport::default();
        DispatchRun { receivers, log, now_ns, hold, on_call, firing, supervisor, report }
    }

    pub(super) fn into_report(self) -> DispatchReport {
        self.report
    }

    /// Queues the new state for the contacts that have a notification of the alert.
    pub(super) fn enqueue_state(&mut self, notification: &Notification) -> Result<()> {
        let queued = self.catch_panic(DispatchStep::State, &notification.key, |run| {
            for contact in run.notified_contacts(notification) {
                run.enqueue(&contact, notification)?;
            }
            Ok(())
        });
        queued.unwrap_or(Ok(()))
    }

    /// Makes an end durable that a group sends later.
    pub(super) fn note_end(&self, notification: &Notification) -> Result<()> {
        let names = self.receivers.contacts().iter().map(|contact| contact.name.as_str());
        lock_log(self.log).note_end(names, notification, self.now_ns)
    }

    /// Does something of an alert. A panic is reported, and nothing is returned.
    fn catch_panic<T>(
        &mut self,
        step: DispatchStep,
        key: &NotificationKey,
        work: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let done = catch_panic(|| {
            self.supervisor.failpoint(format_args!("notify {} {key}", step.name()));
            work(self)
        });
        let report = |panic: String| format!("what was due of alert {key} is not sent: {panic}");
        done.map_err(|panic| self.report.panics.push(report(panic))).ok()
    }

    /// Returns the time at which a message to the receiver was last queued. If nobody is on call,
    /// none was: the group is looked at again until somebody is.
    pub(super) fn send_group(
        &mut self,
        alerts: &mut BTreeMap<String, TrackedAlert>,
        group: &GroupNotification,
    ) -> Result<i64> {
        self.supervisor.failpoint(format_args!("notify receiver {}", group.receiver));
        let (mut queued_ns, mut is_anybody_on_call) = (i64::MIN, true);
        for id in group.firing.iter().chain(&group.resolved) {
            let Some(alert) = alerts.get_mut(id) else { continue };
            let key = alert.notification.key.clone();
            let is_new = self.begin_escalation(alert, group);
            let sent = self.catch_panic(DispatchStep::Group, &key, |run| {
                run.send_of_group(alert, group, is_new)
            });
            let Some(outcome) = sent.transpose()? else { continue };
            queued_ns = queued_ns.max(outcome.queued_ns);
            is_anybody_on_call &= outcome.is_anybody_on_call;
        }
        Ok(match is_anybody_on_call {
            false => i64::MIN,
            true if queued_ns == i64::MIN => self.now_ns,
            true => queued_ns,
        })
    }

    /// Begins the escalation of an alert that its group sends. Returns whether it is new. Nothing
    /// precedes that can panic: the alert would never be escalated.
    fn begin_escalation(&self, alert: &mut TrackedAlert, group: &GroupNotification) -> bool {
        let is_due = alert.notification.needs_attention()
            && group.reason != GroupReason::RepeatInterval
            && self.receivers.escalation(&group.receiver).is_some();
        if !is_due || alert.escalations.contains_key(&group.receiver) {
            return false;
        }
        let progress = EscalationProgress { base_ns: self.now_ns, next: 0 };
        alert.escalations.insert(group.receiver.clone(), progress);
        true
    }

    /// Sends an alert to the receiver of its group; `is_new` is whether its escalation began now.
    fn send_of_group(
        &mut self,
        alert: &mut TrackedAlert,
        group: &GroupNotification,
        is_new: bool,
    ) -> Result<GroupOutcome> {
        let notification = alert.notification.clone();
        let needs_attention = notification.needs_attention();
        if needs_attention && group.reason == GroupReason::RepeatInterval {
            let is_anybody_on_call = self.remind(alert, group, &notification)?;
            return Ok(GroupOutcome { queued_ns: self.now_ns, is_anybody_on_call });
        }
        let (mut queued_ns, mut is_anybody_on_call) = (i64::MIN, true);
        let mut contacts = self.notified_contacts(&notification);
        let escalation = self.receivers.escalation(&group.receiver);
        if needs_attention && let Some(policy) = escalation {
            // One of before a restart goes on from its first message.
            let first_ns = self.queued_times(&notification).into_iter().min();
            let progress = alert.escalations.get_mut(&group.receiver).filter(|_| is_new);
            if let (Some(progress), Some(first_ns)) = (progress, first_ns) {
                progress.base_ns = first_ns;
            }
            is_anybody_on_call = self.has_anybody_on_call(policy);
        } else if needs_attention {
            let receiver = &group.receiver;
            let on_call = self.contacts_of(receiver, &notification.key, self.now_ns);
            if on_call.is_empty() {
                is_anybody_on_call = false;
                self.report.warnings.push(format!(
                    "rotation {receiver:?} of {}: nobody is on call; the next contact on call is \
                     notified",
                    notification.key
                ));
            }
            contacts.extend(on_call);
        }
        for contact in contacts {
            if self.enqueue(&contact, &notification)? {
                queued_ns = self.now_ns;
            }
        }
        let last_queued_ns = self.queued_times(&notification).into_iter().max();
        queued_ns = queued_ns.max(last_queued_ns.unwrap_or(queued_ns));
        Ok(GroupOutcome { queued_ns, is_anybody_on_call })
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
                receivers.flat_map(|one| self.current_contacts(one)).collect()
            }
            None => self.current_contacts(receiver).into_iter().collect(),
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
            self.enqueue(contact, &reminder)?;
        }
        Ok(!contacts.is_empty())
    }

    /// Makes the steps of an alert's escalations that are due.
    pub(super) fn escalate(
        &mut self,
        alert: &mut TrackedAlert,
        groups: &AlertGroups,
    ) -> Result<()> {
        let TrackedAlert { notification, labels, escalations, .. } = alert;
        if !notification.needs_attention() {
            return Ok(());
        }
        for (name, progress) in escalations.iter_mut() {
            let Some(policy) = self.receivers.escalation(name) else { continue };
            while let Some(step) = policy.steps.get(progress.next) {
                let due_ns = progress.base_ns.saturating_add(nanos(step.after));
                let (now_ns, next) = (self.now_ns, progress.next);
                let is_unmuted = || groups.unmuted_receivers(labels, now_ns).contains(name);
                let made = self.catch_panic(DispatchStep::Escalation, &notification.key, |run| {
                    run.make_step(policy, next, due_ns, &is_unmuted, notification)
                });
                // After a panic the next step follows at its time.
                if !made.unwrap_or(Ok(due_ns <= now_ns))? {
                    break;
                }
                progress.next += 1;
            }
        }
        Ok(())
    }

    /// Makes a step of an escalation, if it is due; returns whether it is.
    fn make_step(
        &mut self,
        policy: &EscalationPolicy,
        next: usize,
        due_ns: i64,
        is_unmuted: &dyn Fn() -> bool,
        notification: &Notification,
    ) -> Result<bool> {
        let (key, Some(step)) = (&notification.key, policy.steps.get(next)) else {
            return Ok(false);
        };
        let before = next.checked_sub(1).and_then(|before| policy.steps.get(before));
        let is_early = due_ns > self.now_ns;
        let is_skipped = before.is_some_and(|before| !self.is_reachable(before, key));
        if (is_early && !is_skipped) || !is_unmuted() {
            return Ok(false);
        }
        let contacts = self.contacts_of_step(step, key, due_ns.min(self.now_ns));
        for contact in &contacts {
            self.enqueue(contact, notification)?;
        }
        if is_early {
            self.warn_skipped(policy, next, key);
        }
        if contacts.is_empty() && next + 1 == policy.steps.len() {
            let (name, number) = (&policy.name, next + 1);
            self.report.warnings.push(format!(
                "escalation {name:?} of {key}: nobody of step {number} is on call, and no step \
                 follows"
            ));
        }
        Ok(true)
    }

    fn warn_skipped(&mut self, policy: &EscalationPolicy, next: usize, key: &NotificationKey) {
        let EscalationPolicy { name, steps } = policy;
        let before = next.checked_sub(1).and_then(|before| steps.get(before));
        let contacts = before.map(|step| self.notified_contacts_of_step(step, &key.alert_id));
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
    /// failover. While deliveries are held nobody is notified, and nobody was tried before
    /// they were released.
    fn is_reachable(&self, step: &EscalationStep, key: &NotificationKey) -> bool {
        let DeliveryHold::ReleasedAt(released_ns) = self.hold else { return true };
        self.notified_contacts_of_step(step, &key.alert_id).into_iter().any(|name| {
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
    fn notified_contacts_of_step(&self, step: &EscalationStep, alert_id: &str) -> Vec<String> {
        let log = lock_log(self.log);
        let is_notified = |name: &str| log.is_notified_of_alert(name, alert_id);
        let contacts = |one: &String| self.contacts_preferring(one, self.now_ns, is_notified);
        step.receivers.iter().flat_map(contacts).collect()
    }

    fn contacts_of(&self, receiver: &str, key: &NotificationKey, at_ns: i64) -> Vec<String> {
        let log = lock_log(self.log);
        self.contacts_preferring(receiver, at_ns, |name| log.is_notified(name, key))
    }

    /// Contacts of a receiver. Of the members of a rotation, those that `is_notified`, if any.
    fn contacts_preferring(
        &self,
        receiver: &str,
        at_ns: i64,
        is_notified: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        self.receivers.contacts_of(receiver, is_notified, |rotation| {
            let mut on_call = self.on_call.borrow_mut();
            let contact = on_call.entry((rotation.name.clone(), at_ns));
            contact.or_insert_with(|| rotation.contact_at(at_ns).map(str::to_owned)).clone()
        })
    }

    fn has_anybody_on_call(&self, policy: &EscalationPolicy) -> bool {
        self.supervisor.failpoint(format_args!("notify duty {}", policy.name));
        let mut receivers = policy.steps.iter().flat_map(|step| &step.receivers);
        receivers.any(|one| !self.current_contacts(one).is_empty())
    }

    /// Contacts of a receiver at present, whoever is notified.
    fn current_contacts(&self, receiver: &str) -> Vec<String> {
        self.contacts_preferring(receiver, self.now_ns, |_| false)
    }

    /// Contacts that have or will get a notification of the alert.
    fn notified_contacts(&self, notification: &Notification) -> BTreeSet<String> {
        let log = lock_log(self.log);
        let names = self.receivers.contacts().iter().map(|contact| &contact.name);
        let notified =
            names.filter(|name| log.is_notified_of_alert(name, &notification.key.alert_id));
        notified.cloned().collect()
    }

    /// Times at which messages with this state of the alert were queued.
    fn queued_times(&self, notification: &Notification) -> Vec<i64> {
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

    /// Adds a message to the queue; returns whether it is new. A panic costs this message.
    fn enqueue(&mut self, contact: &str, notification: &Notification) -> Result<bool> {
        let key = &notification.key;
        let queued = catch_panic(|| {
            self.supervisor.failpoint(format_args!("notify message {contact} {key}"));
            self.append(contact, notification)
        });
        let is_new = queued.unwrap_or_else(|panic| {
            let what = format!("the message to contact {contact:?} on alert {key} is not sent");
            self.report.panics.push(format!("{what}: {panic}"));
            Ok(false)
        })?;
        self.report.queued += usize::from(is_new);
        Ok(is_new)
    }

    fn append(&self, contact: &str, notification: &Notification) -> Result<bool> {
        let chain = self.receivers.failover_chain(contact);
        let mut contacts = chain.iter().filter_map(|name| self.receivers.contact(name));
        let mut notification = notification.clone();
        if !contacts.any(|contact| contact.contact.shows_pictures()) {
            notification.picture = None;
        }
        notification.also_firing = self.others(&notification);
        lock_log(self.log).enqueue_deferred(&chain, &notification, self.now_ns)
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
