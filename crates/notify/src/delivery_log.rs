//! Durable log of deliveries: which notification is due at which contact, and what became of it.
//!
//! A delivery is durable before it is attempted, an attempt before its first byte leaves, and its
//! outcome afterwards. An attempt without an outcome may have reached the receiver: where the
//! receiver recognizes a repeat it is repeated, elsewhere it is repeated once, marked as a repeat.
//!
//! Notifications of an alert reach a contact in the order of their keys: a notification waits for
//! the one before it, and one that is not newer than the newest known is a duplicate. Format:
//! `docs/formats/deliveries.md`.

mod alert_ends;
mod contact_deliveries;
mod replay;
mod site_deliveries;
mod state;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, File, FileError, IoContext, OpenMode, replace_file};
use net::ExponentialBackoff;

use crate::contact_settings::ConfiguredContact;
use crate::delivery_policy::{AttemptVerdict, DeliveryPolicy, UNKNOWN_OUTCOMES_MAX};
use crate::delivery_record::DeliveryRecord;
use crate::delivery_result::{DeliveryError, DeliveryReceipt};
use crate::notification::{Notification, NotificationKey};
pub use contact_deliveries::PendingNotification;
pub use site_deliveries::{OtherSiteDeliveries, SiteDelivery};
use state::DeliveryState;

/// Name of the file.
const FILE_NAME: &str = "deliveries";
/// Name of the file whose lock belongs to the process that uses the directory.
const LOCK_NAME: &str = "deliveries.lock";
/// Length of a record above which its notification is shortened.
const RECORD_BYTES_MAX: usize = 256 << 10;
/// Notifications are added without their pictures once the file has more than its size limit
/// divided by this.
const PICTURES_DIVISOR: u64 = 4;
/// Maximum length of a note, in characters.
const NOTE_CHARS_MAX: usize = 500;

/// Limits of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Maximum number of unfinished deliveries: 10,000 by default.
    pub pending_max: usize,
    /// Maximum size of the file: 64 MiB by default.
    pub bytes_max: u64,
    /// Number of pairs of contact and alert whose newest notification is remembered: 65,536 by
    /// default. Duplicates of forgotten ones are not recognized.
    pub remembered_max: usize,
    /// Size below which the file is not compacted: 1 MiB by default.
    pub compact_bytes_min: u64,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits {
            pending_max: 10_000,
            bytes_max: 64 << 20,
            remembered_max: 65_536,
            compact_bytes_min: 1 << 20,
        }
    }
}

/// Error of the log of deliveries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliveryLogError {
    /// The file system is at fault. The next operation writes the file anew.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file was written by a later version.
    #[error("cannot read {}: version {found:?}, this topdeck reads version 1", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its first line.
        found: String,
    },
    /// Another process uses the directory.
    #[error("cannot use {}: another process uses it; stop that process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// Too many deliveries are unfinished.
    #[error(
        "cannot queue notification {key}: pending deliveries limit ({limit}) reached; \
         remove a contact that is unreachable"
    )]
    PendingLimit {
        /// Key of the notification.
        key: NotificationKey,
        /// The limit.
        limit: usize,
    },
    /// The file is full of unfinished deliveries.
    #[error(
        "cannot write the log of deliveries: size limit ({limit} bytes) reached; \
         remove a contact that is unreachable"
    )]
    SizeLimit {
        /// The limit.
        limit: u64,
    },
}

type Result<T, E = DeliveryLogError> = std::result::Result<T, E>;

/// State of the log in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Unfinished deliveries.
    pub pending: usize,
    /// Remembered pairs of contact and alert.
    pub remembered: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Damaged lines found at start; the deliveries of these lines are lost.
    pub damaged_lines: u64,
}

/// The newest notification of an alert to a contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewestDelivery {
    pub(crate) key: NotificationKey,
    /// Time at which it was due; of a finished one, its end.
    pub(crate) at_ns: i64,
    /// `None` while it is unfinished.
    pub(crate) verdict: Option<AttemptVerdict>,
}

/// Attempt of a delivery that may begin: it is durable that it does.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryAttempt {
    pub(crate) id: u64,
    /// The notification.
    pub(crate) notification: Arc<Notification>,
    /// Identity at the receiver of the message on an earlier state of the alert.
    pub(crate) previous: Option<String>,
    /// Whether the receiver may already have it and cannot recognize a repeat.
    pub(crate) may_be_duplicate: bool,
    is_idempotent: bool,
    /// Number of attempts, with this one.
    pub(crate) attempts: u32,
    unknown_outcomes: u32,
    due_ns: i64,
    has_failed_over: bool,
}

/// What followed an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptOutcome {
    pub(crate) verdict: AttemptVerdict,
    pub(crate) failover: Option<String>,
    pub(crate) note: String,
}

/// Log of deliveries. One process at a time uses a directory.
#[derive(Debug)]
pub struct DeliveryLog {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn File>,
    limits: LogLimits,
    state: DeliveryState,
    bytes: u64,
    /// Size after the last compaction.
    compacted_bytes: u64,
    /// After an error it is not known what the file contains.
    needs_rewrite: bool,
    damaged_lines: u64,
    /// Whether appended records wait for [`DeliveryLog::sync`].
    defers_sync: bool,
    needs_sync: bool,
    /// Deliveries that were due up to this time may have been made by another site.
    shared_until_ns: i64,
    lock: Box<dyn File>,
}

impl DeliveryLog {
    /// Opens the log of a directory, which it creates in an existing one. Damaged lines are removed
    /// and counted.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, limits: LogLimits) -> Result<DeliveryLog> {
        disk.create_dir(dir).io_context("create", dir)?;
        if let Some(parent) = dir.parent() {
            disk.sync_dir(parent).io_context("fsync directory", parent)?;
        }
        let lock_path = dir.join(LOCK_NAME);
        let lock = disk.open(&lock_path, OpenMode::Create).io_context("open", &lock_path)?;
        if !lock.try_lock().io_context("lock", &lock_path)? {
            return Err(DeliveryLogError::Locked { dir: dir.to_owned() });
        }
        let path = dir.join(FILE_NAME);
        let found = replay::read_log(&*disk, &path)?;
        if found.needs_rewrite {
            let bytes = found.state.encode(limits.remembered_max);
            replace_file(&*disk, &path, bytes.as_bytes())?;
        }
        let file = disk.open(&path, OpenMode::Write).io_context("open", &path)?;
        let bytes = file.len().io_context("get the length of", &path)?;
        let mut log = DeliveryLog {
            disk,
            path,
            file,
            limits,
            state: found.state,
            bytes,
            compacted_bytes: 0,
            needs_rewrite: false,
            damaged_lines: found.damaged_lines,
            defers_sync: false,
            needs_sync: false,
            shared_until_ns: i64::MIN,
            lock,
        };
        log.state.interrupt_attempts(None);
        log.state.forget_notified_ends();
        log.compact_if_large()?;
        Ok(log)
    }

    /// Adds a delivery, durably. Returns `false` for a duplicate.
    ///
    /// The first of `contacts` receives the notification. The others are its failover contacts:
    /// one that already knows the alert receives it too, so that what it was told does not stay
    /// open.
    pub fn enqueue(
        &mut self,
        contacts: &[&str],
        notification: &Notification,
        now_ns: i64,
    ) -> Result<bool> {
        let mut is_new = false;
        for (at, contact) in contacts.iter().enumerate() {
            let key = &notification.key;
            let is_meant = at == 0 || self.state.is_notified_of_alert(contact, &key.alert_id);
            if is_meant && !self.state.is_notified(contact, key) {
                self.add_delivery(contact, notification, now_ns)?;
                is_new = true;
            }
        }
        Ok(is_new)
    }

    /// As [`DeliveryLog::enqueue`], but durable after [`DeliveryLog::sync`], or before an attempt
    /// begins: many deliveries need one fsync.
    pub(crate) fn enqueue_deferred(
        &mut self,
        contacts: &[&str],
        notification: &Notification,
        now_ns: i64,
    ) -> Result<bool> {
        self.defers_sync = true;
        let result = self.enqueue(contacts, notification, now_ns);
        self.defers_sync = false;
        result
    }

    /// Makes everything durable. After an error the file is written anew by the next operation.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.needs_rewrite {
            return self.compact();
        }
        if self.needs_sync {
            if let Err(error) = self.file.sync().io_context("fsync", &self.path) {
                self.needs_rewrite = true;
                return Err(error.into());
            }
            self.needs_sync = false;
        }
        Ok(())
    }

    /// Releases the lock of the directory; nothing is written afterwards.
    pub(crate) fn release(&mut self) {
        // The lock ends with the process at the latest.
        let _ = self.lock.unlock();
    }

    fn add_delivery(
        &mut self,
        contact: &str,
        notification: &Notification,
        now_ns: i64,
    ) -> Result<()> {
        if self.state.pending_count() >= self.limits.pending_max {
            let (key, limit) = (notification.key.clone(), self.limits.pending_max);
            return Err(DeliveryLogError::PendingLimit { key, limit });
        }
        let mut notification = notification.clone();
        // Pictures leave room for messages.
        let is_large = self.bytes > self.limits.bytes_max / PICTURES_DIVISOR;
        if is_large || notification.sendable_picture().is_none() {
            notification.picture = None;
        }
        let (id, contact) = (self.state.next_id(), contact.to_owned());
        let due = |notification: &Notification| DeliveryRecord::Due {
            id,
            at_ns: now_ns,
            contact: contact.clone(),
            notification: Box::new(notification.clone()),
        };
        let mut record = due(&notification);
        if record.encode().len() > RECORD_BYTES_MAX {
            notification.shorten();
            record = due(&notification);
        }
        self.write(record)
    }

    /// Time at which the next attempt to a contact is due, if there is one; it may be in the past.
    pub fn next_due_ns(&self, contact: &str) -> Option<i64> {
        self.state.next_due_ns(contact)
    }

    /// Begins the next attempt that is due at a contact, durably. `None` if there is none. A
    /// contact has one attempt at a time: if the one before was not finished, its outcome is
    /// unknown.
    pub(crate) fn begin_attempt(
        &mut self,
        contact: &ConfiguredContact,
        now_ns: i64,
    ) -> Result<Option<DeliveryAttempt>> {
        self.state.interrupt_attempts(Some(&contact.name));
        loop {
            let Some(mut attempt) =
                self.state.next_attempt(&contact.name, contact.policy.delay_max(), now_ns)
            else {
                return Ok(None);
            };
            if attempt.unknown_outcomes >= UNKNOWN_OUTCOMES_MAX {
                // The repeat was interrupted by a crash.
                let note = "the outcome of the repeat is unknown".to_owned();
                let (verdict, policy) = (AttemptVerdict::GivenUp, &contact.policy);
                self.finish(&attempt, verdict, None, note, policy, now_ns)?;
                continue;
            }
            let previous = attempt.previous.as_deref();
            attempt.is_idempotent = contact.contact.is_idempotent(&attempt.notification, previous);
            let may_repeat = attempt.unknown_outcomes > 0 || attempt.due_ns <= self.shared_until_ns;
            attempt.may_be_duplicate = !attempt.is_idempotent && may_repeat;
            let (id, is_idempotent) = (attempt.id, attempt.is_idempotent);
            self.write(DeliveryRecord::Attempt { id, at_ns: now_ns, is_idempotent })?;
            attempt.attempts += 1;
            return Ok(Some(attempt));
        }
    }

    /// Writes the outcome of an attempt, durably, together with the delivery to the failover
    /// contact if that is due.
    pub(crate) fn finish_attempt(
        &mut self,
        mut attempt: DeliveryAttempt,
        result: &std::result::Result<DeliveryReceipt, DeliveryError>,
        policy: &DeliveryPolicy,
        now_ns: i64,
    ) -> Result<AttemptOutcome> {
        let mut retry_after = None;
        let mut message_id = None;
        let note = match result {
            Ok(receipt) => {
                message_id.clone_from(&receipt.message_id);
                let cuts = receipt.cuts.iter().map(ToString::to_string);
                cuts.chain(receipt.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
            }
            Err(error) => {
                if let DeliveryError::Temporary { retry_after: after, may_have_arrived, .. } = error
                {
                    retry_after = *after;
                    let is_unknown = *may_have_arrived && !attempt.is_idempotent;
                    attempt.unknown_outcomes += u32::from(is_unknown);
                }
                self.state.remove_rejected_picture(attempt.id, error);
                error.to_string()
            }
        };
        let age = attempt.age(now_ns);
        let verdict = policy.verdict(result, age, attempt.attempts, attempt.unknown_outcomes);
        let message = MessageOutcome { message_id, retry_after };
        self.finish(&attempt, verdict, Some(message), note, policy, now_ns)
    }

    /// Whether a contact has or will get any notification of an alert.
    pub(crate) fn is_notified_of_alert(&self, contact: &str, alert_id: &str) -> bool {
        self.state.is_notified_of_alert(contact, alert_id)
    }

    /// Whether a contact has or will get a notification, or a newer one of the alert.
    pub(crate) fn is_notified(&self, contact: &str, key: &NotificationKey) -> bool {
        self.state.is_notified(contact, key)
    }

    /// The newest notification of an alert to a contact.
    pub(crate) fn newest(&self, contact: &str, alert_id: &str) -> Option<NewestDelivery> {
        self.state.newest(contact, alert_id)
    }

    /// Gives up the deliveries to contacts that are no longer configured; returns their number.
    pub(crate) fn give_up_all_except(
        &mut self,
        contacts: &[ConfiguredContact],
        now_ns: i64,
    ) -> Result<usize> {
        let is_configured = |name: &str| contacts.iter().any(|contact| contact.name == name);
        let ids: Vec<u64> = self.state.pending_ids(|name| !is_configured(name)).collect();
        for &id in &ids {
            self.write(DeliveryRecord::Outcome {
                id,
                at_ns: now_ns,
                verdict: AttemptVerdict::GivenUp,
                is_unknown: false,
                next_ns: 0,
                failover: None,
                message_id: None,
                note: "the contact is no longer configured".to_owned(),
            })?;
        }
        Ok(ids.len())
    }

    /// State in numbers.
    pub fn summary(&self) -> LogSummary {
        LogSummary {
            pending: self.state.pending_count(),
            remembered: self.state.remembered_count(),
            bytes: self.bytes,
            damaged_lines: self.damaged_lines,
        }
    }

    /// The newest finished notification of each contact and alert that was not delivered: contact,
    /// key and reason.
    pub fn undelivered(&self) -> impl Iterator<Item = (&str, &NotificationKey, &str)> {
        self.state.undelivered()
    }

    fn finish(
        &mut self,
        attempt: &DeliveryAttempt,
        verdict: AttemptVerdict,
        message: Option<MessageOutcome>,
        note: String,
        policy: &DeliveryPolicy,
        now_ns: i64,
    ) -> Result<AttemptOutcome> {
        let age = attempt.age(now_ns);
        let failover = policy.failover_for(verdict, age).filter(|_| !attempt.has_failed_over);
        let known = self.state.unknown_outcomes(attempt.id);
        let message = message.unwrap_or_default();
        let next_ns = match verdict {
            AttemptVerdict::Retry => {
                let has_failed_over = attempt.has_failed_over || failover.is_some();
                next_attempt_ns(attempt, message.retry_after, policy, has_failed_over, now_ns)
            }
            _ => 0,
        };
        let note: String = note.chars().take(NOTE_CHARS_MAX).collect();
        self.write(DeliveryRecord::Outcome {
            id: attempt.id,
            at_ns: now_ns,
            verdict,
            is_unknown: attempt.unknown_outcomes > known,
            next_ns,
            failover: failover.map(|contact| (self.state.next_id(), contact.to_owned())),
            message_id: message.message_id,
            note: note.clone(),
        })?;
        Ok(AttemptOutcome { verdict, failover: failover.map(str::to_owned), note })
    }

    /// Appends a record durably, then applies it. An outcome is applied even if it cannot be
    /// written, because it is known: the next operation writes the file anew.
    fn write(&mut self, record: DeliveryRecord) -> Result<()> {
        let line = record.encode();
        // Deliveries that are due leave room for the records of their attempts.
        let bytes_max = match record {
            DeliveryRecord::Due { .. } | DeliveryRecord::Ended { .. } => {
                self.limits.bytes_max / 4 * 3
            }
            _ => self.limits.bytes_max,
        };
        match self.append(&line, bytes_max) {
            Ok(()) => {
                self.state.apply(record);
                self.compact_if_large()
            }
            Err(error) => {
                if matches!(record, DeliveryRecord::Outcome { .. }) {
                    self.needs_rewrite = true;
                    self.state.apply(record);
                }
                Err(error)
            }
        }
    }

    fn append(&mut self, line: &str, bytes_max: u64) -> Result<()> {
        let length = line.len() as u64;
        if self.needs_rewrite || self.bytes + length > bytes_max {
            self.compact()?;
        }
        if self.bytes + length > bytes_max {
            return Err(DeliveryLogError::SizeLimit { limit: self.limits.bytes_max });
        }
        let written = self
            .file
            .write_all_at(line.as_bytes(), self.bytes)
            .io_context("write", &self.path)
            .and_then(|()| match self.defers_sync {
                true => Ok(()),
                false => self.file.sync().io_context("fsync", &self.path),
            });
        if let Err(error) = written {
            self.needs_rewrite = true;
            return Err(error.into());
        }
        self.needs_sync = self.defers_sync;
        self.bytes += length;
        Ok(())
    }

    fn compact_if_large(&mut self) -> Result<()> {
        let is_large = self.bytes > self.limits.compact_bytes_min.max(2 * self.compacted_bytes);
        let is_crowded = self.state.remembered_count() > 2 * self.limits.remembered_max;
        if !is_large && !is_crowded {
            return Ok(());
        }
        // The record is durable already: an error here is reported by the next operation.
        match self.compact() {
            Err(DeliveryLogError::File(_)) => Ok(()),
            done => done,
        }
    }

    /// Replaces the file by one that has only what is still needed.
    fn compact(&mut self) -> Result<()> {
        self.needs_rewrite = true;
        self.state.forget_oldest(self.limits.remembered_max);
        let bytes = self.state.encode(self.limits.remembered_max);
        replace_file(&*self.disk, &self.path, bytes.as_bytes())?;
        self.file = self.disk.open(&self.path, OpenMode::Write).io_context("open", &self.path)?;
        self.bytes = bytes.len() as u64;
        self.compacted_bytes = self.bytes;
        (self.needs_rewrite, self.needs_sync) = (false, false);
        Ok(())
    }
}

/// What a receiver said.
#[derive(Default)]
struct MessageOutcome {
    message_id: Option<String>,
    retry_after: Option<Duration>,
}

impl DeliveryAttempt {
    fn age(&self, now_ns: i64) -> Duration {
        let age = now_ns.saturating_sub(self.due_ns);
        Duration::from_nanos(u64::try_from(age).unwrap_or(0))
    }
}

/// Time of the next attempt: with back-off, but not after the failover is due, unless the receiver
/// asked for a delay.
fn next_attempt_ns(
    attempt: &DeliveryAttempt,
    retry_after: Option<Duration>,
    policy: &DeliveryPolicy,
    has_failed_over: bool,
    now_ns: i64,
) -> i64 {
    let mut backoff = ExponentialBackoff::new(policy.backoff());
    for _ in 1..attempt.attempts.min(20) {
        backoff.next_delay(None, false, 0);
    }
    // Deliveries that failed together are not repeated together.
    let seed = [attempt.id.to_le_bytes(), u64::from(attempt.attempts).to_le_bytes()].concat();
    let random = u64::from(crc32c::crc32c(&seed)) << 32;
    let delay = backoff.next_delay(retry_after, false, random);
    let next_ns = now_ns.saturating_add(nanos(delay));
    let failover_ns = attempt.due_ns.saturating_add(nanos(policy.failover_after));
    let is_before_failover = policy.failover.is_some() && !has_failed_over && retry_after.is_none();
    match is_before_failover && failover_ns > now_ns {
        true => next_ns.min(failover_ns),
        false => next_ns,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
