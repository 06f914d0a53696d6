//! State of the log of deliveries: a function of its records.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::site_deliveries::{ENDED_UNDELIVERED, RecentDeliveries};
use super::{DeliveryAttempt, NewestDelivery, PendingNotification, nanos};
use crate::delivery::AttemptReport;
use crate::delivery_policy::AttemptVerdict;
use crate::delivery_record::{DELIVERY_LOG_VERSION, DeliveryRecord};
use crate::delivery_result::DeliveryError;
use crate::notification::{Notification, NotificationKey, NotifiedState};

/// All unfinished deliveries, and the newest finished one of each contact and alert.
#[derive(Debug, Default)]
pub(super) struct DeliveryState {
    pending: BTreeMap<u64, PendingDelivery>,
    /// Ids of unfinished deliveries by contact and key.
    keys: BTreeMap<(String, NotificationKey), u64>,
    /// By contact and alert.
    finished: BTreeMap<(String, String), FinishedDelivery>,
    /// Ends of alerts that contacts are to be told later, by alert.
    pub(super) ends: BTreeMap<String, PendingEnd>,
    /// What was delivered since the file was last written anew.
    recent: RecentDeliveries,
    id_max: u64,
}

#[derive(Debug)]
struct PendingDelivery {
    contact: String,
    notification: Arc<Notification>,
    due_ns: i64,
    next_ns: i64,
    attempts: u32,
    unknown_outcomes: u32,
    has_failed_over: bool,
    /// The contact that received it instead, since the file was last written anew.
    failover: Option<String>,
    /// Begin of the attempt without an outcome, and whether it is idempotent.
    in_flight: Option<(i64, bool)>,
    note: String,
}

/// End of an alert that contacts are to be told later.
#[derive(Debug)]
pub(super) struct PendingEnd {
    pub(super) at_ns: i64,
    pub(super) notification: Arc<Notification>,
}

#[derive(Debug)]
struct FinishedDelivery {
    key: NotificationKey,
    at_ns: i64,
    verdict: AttemptVerdict,
    message_id: Option<String>,
    note: String,
    /// What a compaction of the file does not keep.
    details: Option<FinishedDetails>,
}

#[derive(Debug)]
struct FinishedDetails {
    alert: String,
    state: NotifiedState,
    attempts: u32,
    failover: Option<String>,
}

impl DeliveryState {
    pub(super) fn apply(&mut self, record: DeliveryRecord) {
        match record {
            DeliveryRecord::Due { id, at_ns, contact, notification } => {
                self.add(id, contact, notification.into(), at_ns);
            }
            DeliveryRecord::Attempt { id, at_ns, is_idempotent } => {
                if let Some(delivery) = self.pending.get_mut(&id) {
                    delivery.interrupt();
                    delivery.attempts += 1;
                    delivery.in_flight = Some((at_ns, is_idempotent));
                }
            }
            DeliveryRecord::Outcome {
                id,
                at_ns,
                verdict,
                is_unknown,
                next_ns,
                failover,
                message_id,
                note,
            } => {
                let Some(delivery) = self.pending.get_mut(&id) else { return };
                delivery.in_flight = None;
                delivery.unknown_outcomes += u32::from(is_unknown);
                delivery.next_ns = next_ns;
                delivery.note.clone_from(&note);
                if let Some((id, contact)) = failover {
                    delivery.has_failed_over = true;
                    delivery.failover = Some(contact.clone());
                    let notification = Arc::clone(&delivery.notification);
                    self.id_max = self.id_max.max(id);
                    if !self.is_notified(&contact, &notification.key) {
                        self.add(id, contact, notification, at_ns);
                    }
                }
                if verdict != AttemptVerdict::Retry {
                    self.finish(id, at_ns, verdict, message_id, note);
                }
            }
            DeliveryRecord::Progress {
                id,
                attempts,
                unknown_outcomes,
                next_ns,
                has_failed_over,
                note,
            } => {
                if let Some(delivery) = self.pending.get_mut(&id) {
                    (delivery.attempts, delivery.unknown_outcomes) = (attempts, unknown_outcomes);
                    (delivery.next_ns, delivery.has_failed_over) = (next_ns, has_failed_over);
                    delivery.note = note;
                }
            }
            DeliveryRecord::Finished { contact, key, at_ns, verdict, message_id, note } => {
                let at = (contact, key.alert_id.clone());
                let details = None;
                let finished = FinishedDelivery { key, at_ns, verdict, message_id, note, details };
                self.finished.insert(at, finished);
            }
            DeliveryRecord::Ended { at_ns, notification } => {
                let (id, notification) = (notification.key.alert_id.clone(), notification.into());
                self.ends.insert(id, PendingEnd { at_ns, notification });
            }
        }
    }

    fn add(&mut self, id: u64, contact: String, notification: Arc<Notification>, at_ns: i64) {
        self.id_max = self.id_max.max(id);
        self.keys.insert((contact.clone(), notification.key.clone()), id);
        let delivery = PendingDelivery {
            contact,
            notification,
            due_ns: at_ns,
            next_ns: at_ns,
            attempts: 0,
            unknown_outcomes: 0,
            has_failed_over: false,
            failover: None,
            in_flight: None,
            note: String::new(),
        };
        self.pending.insert(id, delivery);
    }

    fn finish(
        &mut self,
        id: u64,
        at_ns: i64,
        verdict: AttemptVerdict,
        message_id: Option<String>,
        note: String,
    ) {
        let Some(delivery) = self.pending.remove(&id) else { return };
        if verdict == AttemptVerdict::Delivered {
            self.recent.add(&delivery.contact, &delivery.notification);
        }
        let key = delivery.notification.key.clone();
        self.keys.remove(&(delivery.contact.clone(), key.clone()));
        let at = (delivery.contact, key.alert_id.clone());
        // A message of an earlier state stays the one to update.
        let earlier = self.finished.remove(&at).and_then(|earlier| earlier.message_id);
        let message_id = message_id.or(earlier);
        let details = Some(FinishedDetails {
            alert: delivery.notification.name.clone(),
            state: delivery.notification.state,
            attempts: delivery.attempts,
            failover: delivery.failover,
        });
        let finished = FinishedDelivery { key, at_ns, verdict, message_id, note, details };
        self.finished.insert(at, finished);
    }

    /// The attempts under way, of a contact or of all, were interrupted.
    pub(super) fn interrupt_attempts(&mut self, contact: Option<&str>) {
        let deliveries = self.pending.values_mut();
        let is_meant =
            |delivery: &&mut PendingDelivery| contact.is_none_or(|name| delivery.contact == name);
        deliveries.filter(is_meant).for_each(PendingDelivery::interrupt);
    }

    /// Whether the contact has or will get this notification, or a newer one of the alert.
    pub(super) fn is_notified(&self, contact: &str, key: &NotificationKey) -> bool {
        let last = NotificationKey {
            alert_id: key.alert_id.clone(),
            transition: u64::MAX,
            reminder: u32::MAX,
        };
        let range = (contact.to_owned(), key.clone())..=(contact.to_owned(), last);
        let at = (contact.to_owned(), key.alert_id.clone());
        self.keys.range(range).next().is_some()
            || self.finished.get(&at).is_some_and(|finished| finished.key >= *key)
    }

    /// Whether the contact has or will get any notification of the alert.
    pub(super) fn is_notified_of_alert(&self, contact: &str, alert_id: &str) -> bool {
        let alert_id = alert_id.to_owned();
        self.is_notified(contact, &NotificationKey { alert_id, transition: 0, reminder: 0 })
    }

    /// Whether the contact has or will get a notification of the alert, but not this one.
    pub(super) fn lacks(&self, contact: &str, key: &NotificationKey) -> bool {
        self.is_notified_of_alert(contact, &key.alert_id) && !self.is_notified(contact, key)
    }

    /// Forgets the ends that nobody lacks.
    pub(super) fn forget_notified_ends(&mut self) {
        let finished = self.finished.keys().map(|(contact, _)| contact);
        let pending = self.pending.values().map(|delivery| &delivery.contact);
        let contacts: BTreeSet<String> = finished.chain(pending).cloned().collect();
        let mut ends = std::mem::take(&mut self.ends);
        ends.retain(|_, end| {
            contacts.iter().any(|contact| self.lacks(contact, &end.notification.key))
        });
        self.ends = ends;
    }

    pub(super) fn newest(&self, contact: &str, alert_id: &str) -> Option<NewestDelivery> {
        let bound = |transition, reminder| {
            let alert_id = alert_id.to_owned();
            (contact.to_owned(), NotificationKey { alert_id, transition, reminder })
        };
        let mut keys = self.keys.range(bound(0, 0)..=bound(u64::MAX, u32::MAX));
        if let Some(((_, key), id)) = keys.next_back() {
            let due_ns = self.pending.get(id).map_or(0, |delivery| delivery.due_ns);
            return Some(NewestDelivery { key: key.clone(), at_ns: due_ns, verdict: None });
        }
        let finished = self.finished.get(&(contact.to_owned(), alert_id.to_owned()))?;
        let FinishedDelivery { key, at_ns, verdict, .. } = finished;
        Some(NewestDelivery { key: key.clone(), at_ns: *at_ns, verdict: Some(*verdict) })
    }

    /// Ids of the unfinished deliveries to some contacts.
    pub(super) fn pending_ids(&self, is_meant: impl Fn(&str) -> bool) -> impl Iterator<Item = u64> {
        let pending = self.pending.iter();
        pending.filter(move |(_, delivery)| is_meant(&delivery.contact)).map(|(id, _)| *id)
    }

    pub(super) fn pending_of(&self, contact: &str) -> (usize, Option<i64>) {
        let of_contact = self.pending.values().filter(|delivery| delivery.contact == contact);
        (of_contact.clone().count(), of_contact.map(|delivery| delivery.due_ns).min())
    }

    /// Unfinished deliveries, oldest first.
    pub(super) fn pending_notifications(&self) -> impl Iterator<Item = PendingNotification> {
        self.pending.values().map(|delivery| PendingNotification {
            contact: delivery.contact.clone(),
            key: delivery.notification.key.clone(),
            alert: delivery.notification.name.clone(),
            state: delivery.notification.state,
            due_ns: delivery.due_ns,
            attempts: delivery.attempts,
            next_ns: delivery.next_ns,
            has_failed_over: delivery.has_failed_over,
            note: delivery.note.clone(),
        })
    }

    /// The last finished deliveries of a contact, oldest first.
    pub(super) fn last_attempts(&self, contact: &str, count_max: usize) -> Vec<AttemptReport> {
        let start = (contact.to_owned(), String::new());
        let of_contact = self.finished.range(start..).take_while(|((name, _), _)| name == contact);
        // The end of an alert that was never told is no attempt.
        let of_contact = of_contact.filter(|(_, delivery)| delivery.note != ENDED_UNDELIVERED);
        let mut newest: Vec<&FinishedDelivery> = of_contact.map(|(_, delivery)| delivery).collect();
        model::sort::by_key(&mut newest, |delivery| delivery.at_ns);
        let earlier = newest.len().saturating_sub(count_max);
        let report = |delivery: &&FinishedDelivery| {
            let details = delivery.details.as_ref();
            AttemptReport {
                contact: contact.to_owned(),
                at_ns: delivery.at_ns,
                key: delivery.key.clone(),
                alert: details.map(|details| details.alert.clone()).unwrap_or_default(),
                state: details.map(|details| details.state),
                verdict: delivery.verdict,
                attempts: details.map(|details| details.attempts),
                latency: None,
                may_be_duplicate: false,
                failover: details.and_then(|details| details.failover.clone()),
                note: delivery.note.clone(),
                panic: None,
            }
        };
        newest[earlier..].iter().map(report).collect()
    }

    /// Unfinished deliveries with their ids and contacts, oldest first.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u64, &str, &Notification)> {
        let pending = self.pending.iter();
        pending.map(|(id, delivery)| (*id, &*delivery.contact, &*delivery.notification))
    }

    pub(super) fn recent(&self) -> &RecentDeliveries {
        &self.recent
    }

    /// Whether a contact got any notification of an alert.
    pub(super) fn has_delivered(&self, contact: &str, alert_id: &str) -> bool {
        let finished = self.finished.get(&(contact.to_owned(), alert_id.to_owned()));
        finished.is_some_and(|finished| finished.verdict == AttemptVerdict::Delivered)
    }

    pub(super) fn next_id(&self) -> u64 {
        self.id_max + 1
    }

    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn remembered_count(&self) -> usize {
        self.finished.len()
    }

    /// Removes the picture of a delivery whose receiver rejected it. After a kill it may be sent
    /// once more.
    pub(super) fn remove_rejected_picture(&mut self, id: u64, error: &DeliveryError) {
        if matches!(error, DeliveryError::Temporary { is_picture_rejected: true, .. })
            && let Some(delivery) = self.pending.get_mut(&id)
        {
            Arc::make_mut(&mut delivery.notification).picture = None;
        }
    }

    pub(super) fn unknown_outcomes(&self, id: u64) -> u32 {
        self.pending.get(&id).map_or(0, |delivery| delivery.unknown_outcomes)
    }

    pub(super) fn undelivered(&self) -> impl Iterator<Item = (&str, &NotificationKey, &str)> {
        let failed = |delivery: &&FinishedDelivery| {
            delivery.verdict != AttemptVerdict::Delivered && delivery.note != ENDED_UNDELIVERED
        };
        self.finished
            .iter()
            .filter(move |(_, delivery)| failed(delivery))
            .map(|((contact, _), delivery)| (&**contact, &delivery.key, &*delivery.note))
    }

    /// Deliveries of a contact that no earlier one of the same alert blocks, oldest first.
    fn unblocked(&self, contact: &str) -> impl Iterator<Item = (u64, &PendingDelivery)> {
        let mut alerts = HashSet::new();
        self.pending
            .iter()
            .filter(move |(_, delivery)| delivery.contact == contact)
            .filter(move |(_, delivery)| alerts.insert(&*delivery.notification.key.alert_id))
            .filter(|(_, delivery)| delivery.in_flight.is_none())
            .map(|(id, delivery)| (*id, delivery))
    }

    pub(super) fn next_due_ns(&self, contact: &str) -> Option<i64> {
        self.unblocked(contact).map(|(_, delivery)| delivery.next_ns).min()
    }

    /// The next attempt that is due. One that is further away than any delay was planned before the
    /// clock stepped back.
    pub(super) fn next_attempt(
        &self,
        contact: &str,
        delay_max: Duration,
        now_ns: i64,
    ) -> Option<DeliveryAttempt> {
        let latest_ns = now_ns.saturating_add(nanos(delay_max));
        let is_due = |delivery: &PendingDelivery| {
            let next_ns = delivery.next_ns;
            delivery.attempts == 0 || next_ns <= now_ns || next_ns > latest_ns
        };
        let (id, delivery) = self.unblocked(contact).find(|(_, delivery)| is_due(delivery))?;
        let at = (contact.to_owned(), delivery.notification.key.alert_id.clone());
        Some(DeliveryAttempt {
            id,
            notification: Arc::clone(&delivery.notification),
            previous: self.finished.get(&at).and_then(|finished| finished.message_id.clone()),
            may_be_duplicate: false,
            is_idempotent: false,
            attempts: delivery.attempts,
            unknown_outcomes: delivery.unknown_outcomes,
            due_ns: delivery.due_ns,
            has_failed_over: delivery.has_failed_over,
        })
    }

    /// Forgets the oldest finished notifications above the limit.
    pub(super) fn forget_oldest(&mut self, remembered_max: usize) {
        let Some(excess) = self.finished.len().checked_sub(remembered_max) else { return };
        let mut times: Vec<_> =
            self.finished.iter().map(|(at, delivery)| (delivery.at_ns, at.clone())).collect();
        model::sort::by(&mut times, Ord::cmp);
        for (_, at) in times.into_iter().take(excess) {
            self.finished.remove(&at);
        }
    }

    /// The file with only what is still needed.
    pub(super) fn encode(&self, remembered_max: usize) -> String {
        let mut text = format!("topdeck deliveries {DELIVERY_LOG_VERSION}\n");
        let mut newest: Vec<_> = self.finished.iter().collect();
        model::sort::by_key(&mut newest, |(_, delivery)| std::cmp::Reverse(delivery.at_ns));
        for ((contact, _), delivery) in newest.into_iter().take(remembered_max).rev() {
            let FinishedDelivery { key, at_ns, verdict, message_id, note, .. } = delivery;
            let record = DeliveryRecord::Finished {
                contact: contact.clone(),
                key: key.clone(),
                at_ns: *at_ns,
                verdict: *verdict,
                message_id: message_id.clone(),
                note: note.clone(),
            };
            text.push_str(&record.encode());
        }
        for (&id, delivery) in &self.pending {
            delivery.records(id).iter().for_each(|record| text.push_str(&record.encode()));
        }
        for PendingEnd { at_ns, notification } in self.ends.values() {
            let notification = Box::new((**notification).clone());
            text.push_str(&DeliveryRecord::Ended { at_ns: *at_ns, notification }.encode());
        }
        text
    }
}

impl PendingDelivery {
    fn interrupt(&mut self) {
        if let Some((_, false)) = self.in_flight.take() {
            self.unknown_outcomes += 1;
        }
    }

    fn records(&self, id: u64) -> Vec<DeliveryRecord> {
        let mut records = vec![DeliveryRecord::Due {
            id,
            at_ns: self.due_ns,
            contact: self.contact.clone(),
            notification: Box::new((*self.notification).clone()),
        }];
        if self.attempts > 0 {
            records.push(DeliveryRecord::Progress {
                id,
                attempts: self.attempts - u32::from(self.in_flight.is_some()),
                unknown_outcomes: self.unknown_outcomes,
                next_ns: self.next_ns,
                has_failed_over: self.has_failed_over,
                note: self.note.clone(),
            });
        }
        if let Some((at_ns, is_idempotent)) = self.in_flight {
            records.push(DeliveryRecord::Attempt { id, at_ns, is_idempotent });
        }
        records
    }
}
