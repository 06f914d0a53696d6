//! Two sites that evaluate the same rules: what this one delivered, for the other one, and what the
//! other one delivered, which is not repeated here.
//!
//! A delivery of the other site is recognized by its key, or by contact, labels and state of the
//! alert and a time of the change of state that differs by at most 2 minutes: own rules are
//! evaluated when rows arrive, which is another time at each site. The end of an alert may have
//! another number there: each site numbers it by its own evaluation.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{AttemptVerdict, DeliveryLog, DeliveryRecord, Result};
use crate::fingerprint::label_fingerprint;
use crate::notification::{Notification, NotificationKey, NotifiedState};

/// Deliveries that are remembered of each site; above it the oldest are forgotten.
const DELIVERIES_MAX: usize = 10_000;
/// Largest difference between the times of a change of state at both sites.
const SHIFT_MAX_NS: u64 = 120 * 1_000_000_000;

/// Least time between the begin of an alert and that it is known again, in milliseconds: it is
/// reported unknown after 30 s, and the time of a row may differ from that of its evaluation.
const KNOWN_AGAIN_MIN_MS: u64 = 25_000;

const DELIVERED_ELSEWHERE: &str = "the other site delivered it";
/// Note of the end of an alert that a contact never heard of.
pub(super) const ENDED_UNDELIVERED: &str = "the alert ended before the contact was told of it";

/// A notification that a site delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteDelivery {
    /// Number in the order of the site's deliveries since it started, from 1.
    pub number: u64,
    /// Name of the contact.
    pub contact: String,
    /// Key of the notification.
    pub key: NotificationKey,
    /// Fingerprint of the labels of the alert.
    pub fingerprint: String,
    /// State that was notified.
    pub state: NotifiedState,
    /// Time of the change of state, in nanoseconds since the Unix epoch.
    pub at_ns: i64,
}

/// The newest deliveries of this site.
#[derive(Debug, Default)]
pub(super) struct RecentDeliveries {
    deliveries: VecDeque<SiteDelivery>,
    count: u64,
}

impl RecentDeliveries {
    pub(super) fn add(&mut self, contact: &str, notification: &Notification) {
        if self.deliveries.len() == DELIVERIES_MAX {
            self.deliveries.pop_front();
        }
        self.count += 1;
        self.deliveries.push_back(SiteDelivery {
            number: self.count,
            contact: contact.to_owned(),
            key: notification.key.clone(),
            fingerprint: fingerprint(notification),
            state: notification.state,
            at_ns: notification.at_ns,
        });
    }

    fn after(&self, number: u64, count_max: usize) -> Vec<SiteDelivery> {
        let newer = self.deliveries.iter().filter(|delivery| delivery.number > number);
        newer.take(count_max).cloned().collect()
    }
}

/// What the other site delivered, and what this site has not had to deliver yet.
#[derive(Clone, Debug, Default)]
pub struct OtherSiteDeliveries {
    /// By contact and fingerprint.
    by_alert: HashMap<(String, String), Vec<SiteDelivery>>,
    /// Contacts and fingerprints, oldest first; some may be gone.
    order: VecDeque<(String, String)>,
    /// Contacts and keys of all that were added, with their order: a site that restarts tells of
    /// them again.
    seen: HashSet<(String, NotificationKey)>,
    seen_order: VecDeque<(String, NotificationKey)>,
}

impl OtherSiteDeliveries {
    /// Adds a delivery, newer than those before; one that was added before is ignored.
    pub fn add(&mut self, delivery: SiteDelivery) {
        let key = (delivery.contact.clone(), delivery.key.clone());
        if !self.seen.insert(key.clone()) {
            return;
        }
        self.seen_order.push_back(key);
        if self.seen_order.len() > 2 * DELIVERIES_MAX
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        if self.order.len() == DELIVERIES_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(of_alert) = self.by_alert.get_mut(&oldest)
        {
            of_alert.remove(0);
            if of_alert.is_empty() {
                self.by_alert.remove(&oldest);
            }
        }
        let alert = (delivery.contact.clone(), delivery.fingerprint.clone());
        self.order.push_back(alert.clone());
        self.by_alert.entry(alert).or_default().push(delivery);
    }

    /// Removes the delivery of a notification. Returns whether there is one.
    fn take(&mut self, contact: &str, notification: &Notification) -> bool {
        let alert = (contact.to_owned(), fingerprint(notification));
        let Some(of_alert) = self.by_alert.get_mut(&alert) else { return false };
        let shift_ns = |delivery: &SiteDelivery| {
            let is_reminder = notification.key.reminder > 0;
            // Of the same alert, another number is another change. But an alert ends once, and
            // evaluations number the lack of data.
            let is_numbered_by_site =
                matches!(notification.state, NotifiedState::Resolved | NotifiedState::Unknown);
            // That there are data again, as well.
            let is_known_again = notification.state == NotifiedState::Firing
                && known_again(&notification.key, notification.at_ns)
                && known_again(&delivery.key, delivery.at_ns);
            let may_be_same = delivery.key.alert_id != notification.key.alert_id
                || is_numbered_by_site
                || is_known_again;
            let is_same = may_be_same
                && delivery.state == notification.state
                && (delivery.key.reminder > 0) == is_reminder
                && delivery.at_ns.abs_diff(notification.at_ns) <= SHIFT_MAX_NS;
            match delivery.key == notification.key {
                true => Some(0),
                false => is_same.then(|| delivery.at_ns.abs_diff(notification.at_ns) + 1),
            }
        };
        let found = of_alert.iter().enumerate().filter_map(|(at, one)| Some((shift_ns(one)?, at)));
        let Some((_, at)) = found.min() else { return false };
        of_alert.remove(at);
        if of_alert.is_empty() {
            self.by_alert.remove(&alert);
        }
        if let Some(at) = self.order.iter().position(|known| *known == alert) {
            self.order.remove(at);
        }
        true
    }
}

/// Whether a firing alert was told again because there are data again: the number of a change of
/// state is its time in milliseconds, and the alert began to fire, or reached its severity, long
/// before.
fn known_again(key: &NotificationKey, at_ns: i64) -> bool {
    let changed_ms = u64::try_from(at_ns / 1_000_000).unwrap_or(u64::MAX);
    key.transition.saturating_sub(changed_ms) >= KNOWN_AGAIN_MIN_MS
}

impl DeliveryLog {
    /// Deliveries of this site after a number, oldest first.
    pub(crate) fn deliveries_after(&self, number: u64, count_max: usize) -> Vec<SiteDelivery> {
        self.state.recent().after(number, count_max)
    }

    /// Deliveries that were due up to a time may have been made by the other site: receivers that
    /// cannot recognize a repeat are told that it may be one.
    pub(crate) fn set_shared_until(&mut self, time_ns: i64) {
        self.shared_until_ns = time_ns;
    }

    /// Finishes the deliveries that the other site made, with those of older states of the same
    /// alerts, and returns their number. If it has answered without a gap since
    /// `answering_since_ns`, deliveries are finished too of alerts that began and ended since then,
    /// and of which the contact never heard.
    pub(crate) fn settle(
        &mut self,
        other: &mut OtherSiteDeliveries,
        answering_since_ns: i64,
        now_ns: i64,
    ) -> Result<u64> {
        // Newest delivery that the other site made, by contact and alert.
        let mut newest: HashMap<(&str, &str), u64> = HashMap::new();
        for (id, contact, notification) in self.state.pending() {
            if other.take(contact, notification) {
                newest.insert((contact, notification.key.alert_id.as_str()), id);
            }
        }
        // Whoever knows a newer state is not told an older one.
        let is_known = |(id, contact, notification): &(u64, &str, &Notification)| {
            let last = newest.get(&(*contact, notification.key.alert_id.as_str()));
            last.is_some_and(|last| id <= last)
        };
        let made: Vec<u64> = self.state.pending().filter(is_known).map(|(id, ..)| id).collect();
        let mut written = Ok(());
        for &id in &made {
            // What was taken cannot be found again: an error does not leave the others pending.
            let verdict = AttemptVerdict::Delivered;
            written = written.and(self.finish_unsent(id, verdict, DELIVERED_ELSEWHERE, now_ns));
        }
        written?;
        for id in self.ended_undelivered(answering_since_ns, now_ns) {
            self.finish_unsent(id, AttemptVerdict::GivenUp, ENDED_UNDELIVERED, now_ns)?;
        }
        Ok(made.len() as u64)
    }

    /// Deliveries, oldest first, of alerts that began after `since_ns` and ended so long ago that
    /// the other site has not told the contact of them.
    fn ended_undelivered(&self, since_ns: i64, now_ns: i64) -> Vec<u64> {
        let mut of_alerts: HashMap<(&str, &str), Vec<(u64, &Notification)>> = HashMap::new();
        for (id, contact, notification) in self.state.pending() {
            let alert = (contact, notification.key.alert_id.as_str());
            of_alerts.entry(alert).or_default().push((id, notification));
        }
        of_alerts.retain(|(contact, alert_id), deliveries| {
            let is_over = deliveries.last().is_some_and(|(_, newest)| {
                let is_old = newest.at_ns.abs_diff(now_ns) > SHIFT_MAX_NS;
                newest.state == NotifiedState::Resolved && is_old
            });
            let is_theirs = deliveries.first().is_some_and(|(_, oldest)| oldest.at_ns >= since_ns);
            is_over && is_theirs && !self.state.has_delivered(contact, alert_id)
        });
        let mut ids: Vec<u64> = of_alerts.into_values().flatten().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids
    }

    fn finish_unsent(
        &mut self,
        id: u64,
        verdict: AttemptVerdict,
        note: &str,
        now_ns: i64,
    ) -> Result<()> {
        self.write(DeliveryRecord::Outcome {
            id,
            at_ns: now_ns,
            verdict,
            is_unknown: false,
            next_ns: 0,
            failover: None,
            message_id: None,
            note: note.to_owned(),
        })
    }
}

fn fingerprint(notification: &Notification) -> String {
    let labels = notification.labels.iter();
    label_fingerprint(labels.map(|(name, value)| (name.as_str(), value.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::example_notification;

    const SECOND_NS: i64 = 1_000_000_000;

    fn delivery(number: u64, alert_id: &str, state: NotifiedState, at_ns: i64) -> SiteDelivery {
        let notification = example_notification();
        let key = NotificationKey { alert_id: alert_id.to_owned(), ..notification.key.clone() };
        let fingerprint = fingerprint(&notification);
        SiteDelivery { number, contact: "hook".to_owned(), key, fingerprint, state, at_ns }
    }

    /// Whether the delivery of another site is that of the example `shift_s` seconds later.
    #[track_caller]
    fn check(alert_id: &str, state: NotifiedState, shift_s: i64, expected: bool) {
        let notification = example_notification();
        let mut other = OtherSiteDeliveries::default();
        let at_ns = notification.at_ns + shift_s * SECOND_NS;
        other.add(delivery(1, alert_id, state, at_ns));
        assert!(!other.take("pager", &notification));
        assert_eq!(other.take("hook", &notification), expected);
        assert!(!expected || !other.take("hook", &notification), "once");
    }

    /// Whether the delivery of the same alert with another number of a state is that of a pending
    /// one; both numbers in milliseconds after the begin of the alert.
    #[track_caller]
    fn check_numbers(state: NotifiedState, pending_ms: i64, delivered_ms: i64, expected: bool) {
        let mut notification = example_notification();
        let number = |ms: i64| u64::try_from(notification.at_ns / 1_000_000 + ms).unwrap();
        let [pending, delivered] = [number(pending_ms), number(delivered_ms)];
        (notification.key.transition, notification.state) = (pending, state);
        let mut other = OtherSiteDeliveries::default();
        let mut made = delivery(1, "a1b2", state, notification.at_ns + SECOND_NS);
        made.key.transition = delivered;
        other.add(made);
        assert_eq!(other.take("hook", &notification), expected);
    }

    #[test]
    fn an_alert_that_is_known_again_is_told_by_one_site() {
        check_numbers(NotifiedState::Firing, 90_000, 93_000, true);
        // Another severity, which is another message.
        check_numbers(NotifiedState::Firing, 0, 20_000, false);
        check_numbers(NotifiedState::Firing, 20_000, 90_000, false);
        check_numbers(NotifiedState::Acknowledged, 20_000, 10_000, false);
    }

    #[test]
    fn a_delivery_of_the_other_site_is_recognized_once() {
        let id = example_notification().key.alert_id;
        check(&id, NotifiedState::Firing, 0, true);
        check(&id, NotifiedState::Firing, 1000, true);
        check("other", NotifiedState::Firing, 120, true);
        check("other", NotifiedState::Firing, -120, true);
        check("other", NotifiedState::Firing, 121, false);
        check("other", NotifiedState::Resolved, 0, false);
    }

    #[test]
    fn a_delivery_is_neither_that_of_another_change_nor_found_twice() {
        let notification = example_notification();
        let mut other = OtherSiteDeliveries::default();
        let mut change = delivery(1, &notification.key.alert_id, notification.state, 0);
        change.at_ns = notification.at_ns;
        change.key.transition += 1;
        other.add(change);
        assert!(!other.take("hook", &notification), "another change of the same alert");
        let made = delivery(2, "other", NotifiedState::Firing, notification.at_ns);
        other.add(made.clone());
        assert!(other.take("hook", &notification));
        // The other site restarted.
        other.add(SiteDelivery { number: 1, ..made });
        assert!(!other.take("hook", &notification));
    }

    #[test]
    fn the_end_of_an_alert_may_have_another_number() {
        let firing = example_notification();
        let mut resolved = Notification { state: NotifiedState::Resolved, ..firing.clone() };
        resolved.key.transition += 7;
        let mut other = OtherSiteDeliveries::default();
        let mut end = delivery(2, &firing.key.alert_id, NotifiedState::Resolved, firing.at_ns);
        end.key.transition += 500;
        other.add(delivery(1, &firing.key.alert_id, NotifiedState::Firing, firing.at_ns));
        other.add(SiteDelivery { at_ns: firing.at_ns + SECOND_NS, ..end });
        assert!(other.take("hook", &resolved));
        assert!(!other.take("hook", &resolved), "once");
        assert!(other.take("hook", &firing));
    }

    #[test]
    fn the_nearest_of_several_changes_is_taken() {
        let notification = example_notification();
        let mut other = OtherSiteDeliveries::default();
        for (number, shift_s) in [(1, -60), (2, 1), (3, 60)] {
            let at_ns = notification.at_ns + shift_s * SECOND_NS;
            let alert_id = format!("other {number}");
            other.add(delivery(number, &alert_id, NotifiedState::Firing, at_ns));
        }
        assert!(other.take("hook", &notification));
        let left: Vec<u64> = other.by_alert.values().flatten().map(|one| one.number).collect();
        assert_eq!(left, [1, 3]);
    }

    #[test]
    fn the_oldest_deliveries_are_forgotten() {
        let mut other = OtherSiteDeliveries::default();
        let mut recent = RecentDeliveries::default();
        for number in 1..=DELIVERIES_MAX as u64 + 1 {
            let alert_id = number.to_string();
            other.add(delivery(number, &alert_id, NotifiedState::Firing, number.cast_signed()));
            recent.add("hook", &example_notification());
        }
        let numbers: Vec<u64> = other.by_alert.values().flatten().map(|one| one.number).collect();
        assert_eq!((numbers.len(), numbers[0]), (DELIVERIES_MAX, 2));
        assert_eq!(recent.after(0, 1)[0].number, 2);
        assert_eq!(recent.after(DELIVERIES_MAX as u64, 9).len(), 1);
    }
}
