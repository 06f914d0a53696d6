//! Status of a notifier: contacts with their last deliveries, alerts, errors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::contact_worker::ContactWorker;
use crate::delivery::AttemptReport;
use crate::delivery_log::{LogSummary, PendingNotification};
use crate::delivery_policy::AttemptVerdict;
use crate::notification::NotificationKey;

/// Number of attempts that are shown per contact.
pub(super) const REPORTS_MAX: usize = 20;
/// Number of warnings that are shown.
const WARNINGS_MAX: usize = 50;
/// Number of unfinished deliveries that are shown.
pub(super) const PENDING_MAX: usize = 100;
/// Number of undelivered notifications that are shown.
const UNDELIVERED_MAX: usize = 1000;

/// Warning or error with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedText {
    /// Time, in nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// Text.
    pub text: String,
}

/// Status of a contact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactStatus {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: &'static str,
    /// Host and port of the receiver, unless they are in the file of a secret.
    pub host: Option<String>,
    /// Its failover contact.
    pub failover: Option<String>,
    /// Unfinished deliveries.
    pub pending: usize,
    /// Time at which the oldest of them was due.
    pub oldest_due_ns: Option<i64>,
    /// Delivered notifications since the start; of a heartbeat, beats.
    pub delivered: u64,
    /// Failed attempts since the start.
    pub failed: u64,
    /// Time of the last delivery.
    pub delivered_ns: Option<i64>,
    /// Time of the first failure after the last delivery.
    pub failing_since_ns: Option<i64>,
    /// The last attempts, oldest first, those before the start without retries; none of a
    /// heartbeat.
    pub attempts: Vec<AttemptReport>,
    /// Error of the last attempt, if it failed.
    pub last_error: Option<TimedText>,
}

/// Newest notification of an alert that a contact did not get and will not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndeliveredNotification {
    /// Name of the contact.
    pub contact: String,
    /// Key of the notification.
    pub key: NotificationKey,
    /// Cause.
    pub reason: String,
}

impl From<(&str, &NotificationKey, &str)> for UndeliveredNotification {
    fn from((contact, key, reason): (&str, &NotificationKey, &str)) -> UndeliveredNotification {
        let (contact, reason) = (contact.to_owned(), reason.to_owned());
        UndeliveredNotification { contact, key: key.clone(), reason }
    }
}

/// Status of a notifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifierStatus {
    /// Contacts in the order of the settings.
    pub contacts: Vec<ContactStatus>,
    /// Alerts that are not resolved, or whose end is not sent yet.
    pub alerts: usize,
    /// Groups of alerts.
    pub groups: usize,
    /// Time at which a group or a step is due next.
    pub next_due_ns: Option<i64>,
    /// State of the log.
    pub log: LogSummary,
    /// Whether another site makes the deliveries.
    pub is_held: bool,
    /// The oldest unfinished deliveries, at most 100.
    pub pending: Vec<PendingNotification>,
    /// What was not delivered, at most 1,000.
    pub undelivered: Vec<UndeliveredNotification>,
    /// Why nothing is written to the log at the moment, such as a full disk; it is retried.
    pub error: Option<TimedText>,
    /// The last 50 warnings, oldest first.
    pub warnings: Vec<TimedText>,
}

/// The part of the status that is not in the log.
#[derive(Debug, Default)]
pub(super) struct StatusBoard {
    contacts: BTreeMap<String, ContactBoard>,
    order: Vec<String>,
    alerts: usize,
    groups: usize,
    alert_bytes: usize,
    next_due_ns: Option<i64>,
    routed_ns: Option<i64>,
    /// By thread: the router, or a contact.
    errors: BTreeMap<String, TimedText>,
    warnings: VecDeque<TimedText>,
}

#[derive(Debug, Default)]
struct ContactBoard {
    kind: &'static str,
    host: Option<String>,
    failover: Option<String>,
    delivered: u64,
    failed: u64,
    delivered_ns: Option<i64>,
    failing_since_ns: Option<i64>,
    attempts: VecDeque<AttemptReport>,
    last_error: Option<TimedText>,
}

const ROUTER: &str = "";

impl StatusBoard {
    pub(super) fn set_contacts(&mut self, workers: &[Arc<ContactWorker>]) {
        let mut before = std::mem::take(&mut self.contacts);
        self.order = workers.iter().map(|worker| worker.name().to_owned()).collect();
        for worker in workers {
            let mut board = before.remove(worker.name()).unwrap_or_default();
            board.kind = worker.kind();
            board.host = worker.host();
            board.failover = worker.failover();
            self.contacts.insert(worker.name().to_owned(), board);
        }
        self.errors.retain(|name, _| self.contacts.contains_key(name));
    }

    /// Number of the router's alerts and their approximate size.
    pub(super) fn alerts_in_memory(&self) -> (usize, usize) {
        (self.alerts, self.alert_bytes)
    }

    /// Time of the router's last round without an error.
    pub(super) fn routed_ns(&self) -> Option<i64> {
        self.routed_ns
    }

    /// Records a round of the router; returns whether its error is new.
    pub(super) fn routed(
        &mut self,
        (alerts, groups, alert_bytes): (usize, usize, usize),
        next_due_ns: Option<i64>,
        error: Option<&str>,
        now_ns: i64,
    ) -> bool {
        (self.alerts, self.groups, self.alert_bytes) = (alerts, groups, alert_bytes);
        self.next_due_ns = next_due_ns.filter(|&next_ns| next_ns != i64::MIN);
        if error.is_none() {
            self.routed_ns = Some(now_ns);
        }
        self.set_error(ROUTER, error, now_ns)
    }

    /// Records whether a contact's thread could use the log; returns whether the error is new.
    pub(super) fn set_error(&mut self, thread: &str, error: Option<&str>, at_ns: i64) -> bool {
        let Some(error) = error else {
            self.errors.remove(thread);
            return false;
        };
        let is_new = self.errors.values().all(|known| known.text != error);
        let text = error.to_owned();
        self.errors.entry(thread.to_owned()).or_insert(TimedText { at_ns, text });
        is_new
    }

    pub(super) fn add_warning(&mut self, warning: TimedText) {
        if self.warnings.len() == WARNINGS_MAX {
            self.warnings.pop_front();
        }
        self.warnings.push_back(warning);
    }

    /// Records an attempt.
    pub(super) fn add_report(&mut self, report: AttemptReport) {
        let Some(board) = self.contacts.get_mut(&report.contact) else { return };
        board.count_attempt(report.verdict == AttemptVerdict::Delivered);
        board.add_report(report);
    }

    /// Records an attempt before the start.
    pub(super) fn add_earlier_report(&mut self, report: AttemptReport) {
        if let Some(board) = self.contacts.get_mut(&report.contact) {
            board.add_report(report);
        }
    }

    /// Records a heartbeat.
    pub(super) fn add_beat(&mut self, contact: &str, at_ns: i64, failure: Option<String>) {
        if let Some(board) = self.contacts.get_mut(contact) {
            board.count_attempt(failure.is_none());
            board.finish_attempt(at_ns, failure);
        }
    }

    /// `pending` are unfinished deliveries and their oldest time, in the order of the contacts.
    pub(super) fn status(
        &self,
        log: LogSummary,
        mut undelivered: Vec<UndeliveredNotification>,
        pending: &[(usize, Option<i64>)],
    ) -> NotifierStatus {
        undelivered.truncate(UNDELIVERED_MAX);
        let contact = |(at, name): (usize, &String)| {
            let board = self.contacts.get(name)?;
            let (pending, oldest_due_ns) = pending.get(at).copied().unwrap_or_default();
            Some(ContactStatus {
                name: name.clone(),
                kind: board.kind,
                host: board.host.clone(),
                failover: board.failover.clone(),
                pending,
                oldest_due_ns,
                delivered: board.delivered,
                failed: board.failed,
                delivered_ns: board.delivered_ns,
                failing_since_ns: board.failing_since_ns,
                attempts: board.attempts.iter().cloned().collect(),
                last_error: board.last_error.clone(),
            })
        };
        NotifierStatus {
            contacts: self.order.iter().enumerate().filter_map(contact).collect(),
            alerts: self.alerts,
            groups: self.groups,
            next_due_ns: self.next_due_ns,
            log,
            is_held: false,
            pending: Vec::new(),
            undelivered,
            error: self.errors.values().next().cloned(),
            warnings: self.warnings.iter().cloned().collect(),
        }
    }
}

impl ContactBoard {
    fn count_attempt(&mut self, is_delivered: bool) {
        match is_delivered {
            true => self.delivered += 1,
            false => self.failed += 1,
        }
    }

    fn add_report(&mut self, report: AttemptReport) {
        let failure = (report.verdict != AttemptVerdict::Delivered).then(|| report.note.clone());
        self.finish_attempt(report.at_ns, failure);
        if self.attempts.len() == REPORTS_MAX {
            self.attempts.pop_front();
        }
        self.attempts.push_back(report);
    }

    fn finish_attempt(&mut self, at_ns: i64, failure: Option<String>) {
        match failure {
            None => {
                self.delivered_ns = Some(at_ns);
                (self.failing_since_ns, self.last_error) = (None, None);
            }
            Some(text) => {
                self.failing_since_ns.get_or_insert(at_ns);
                self.last_error = Some(TimedText { at_ns, text });
            }
        }
    }
}
