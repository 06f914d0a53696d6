//! Acknowledged progress of a remote, persisted as a ledger.
//!
//! The ledger is written with its position, and only then the remote's subscriber advances. Reading
//! therefore always resumes at the ledger's position. If the process is killed, records
//! acknowledged since the last write are sent again, and the remote deduplicates them. At most
//! [`SAVE_BYTES`] or the records of [`SAVE_AFTER`] are affected, which saves an fsync per request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{DownstreamStage, Intake, Ledger, LedgerFile, LedgerLoad};

use crate::encoded_request::{LedgerUpdate, RequestEntry};
use crate::error::Result;

/// Delay until acknowledged progress is written.
pub(crate) const SAVE_AFTER: Duration = Duration::from_secs(1);
/// Approximate limit of acknowledged bytes that are not written; the journal retains them.
pub(crate) const SAVE_BYTES: u64 = 32 << 20;

/// Acknowledged progress of a remote.
#[derive(Debug)]
pub(crate) struct RemoteProgress {
    file: LedgerFile,
    pending: Mutex<UnsavedLedger>,
    /// Everything before this position may be at the remote without an acknowledgement: a response
    /// was lost.
    unacknowledged: AtomicU64,
    /// Problem found when the ledger was opened.
    pub(crate) warning: Option<String>,
}

#[derive(Debug)]
struct UnsavedLedger {
    ledger: Ledger,
    unsaved_bytes: u64,
    /// Time of the first unwritten change.
    unsaved_since: Option<Instant>,
}

impl DownstreamStage for RemoteProgress {
    fn ledger(&self) -> Ledger {
        self.lock().ledger.clone()
    }
}

impl RemoteProgress {
    /// Opens the ledger of a stage whose subscriber is at `position`. Creates a new ledger if the
    /// subscriber is new or the ledger is not its own.
    pub(crate) fn open(
        intake: &Intake,
        stage: &str,
        position: u64,
        is_new: bool,
    ) -> Result<RemoteProgress> {
        let file = intake.ledger_file(stage)?;
        let journal = intake.write_target().journal();
        let (id, end) = (journal.id(), journal.watermarks().end);
        let (ledger, reason) = match file.load()? {
            _ if is_new => (None, None),
            LedgerLoad::Missing => (None, None),
            LedgerLoad::Damaged(reason) => (None, Some(format!("ledger is damaged: {reason}"))),
            LedgerLoad::Ledger(ledger) if ledger.journal() != id => {
                (None, Some("ledger belongs to another journal".to_owned()))
            }
            LedgerLoad::Ledger(ledger) if !(position..=end).contains(&ledger.position()) => {
                let at = ledger.position();
                (None, Some(format!("ledger position {at} is not within {position} to {end}")))
            }
            LedgerLoad::Ledger(ledger) => (Some(*ledger), None),
        };
        let note =
            reason.map(|reason| format!("ledger restarted at position {position}: {reason}"));
        let ledger = ledger.unwrap_or_else(|| Ledger::new(id, position, intake.now()));
        // Also if the ledger is ahead of the subscriber, which is then to be advanced.
        let open = Mutex::new(UnsavedLedger {
            ledger,
            unsaved_bytes: 0,
            unsaved_since: Some(Instant::now()),
        });
        Ok(RemoteProgress { file, pending: open, unacknowledged: AtomicU64::new(0), warning: note })
    }

    fn lock(&self) -> MutexGuard<'_, UnsavedLedger> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The remote has everything before this position durably.
    pub(crate) fn position(&self) -> u64 {
        self.lock().ledger.position()
    }

    /// The remote may have everything before this position.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged.load(Ordering::Relaxed)
    }

    /// Records that a request is sent, which the remote may accept without a response arriving.
    pub(crate) fn set_sent(&self, last: u64) {
        self.unacknowledged.fetch_max(last, Ordering::Relaxed);
    }

    /// Adds acknowledged entries.
    pub(crate) fn add<'a>(&self, entries: impl Iterator<Item = &'a RequestEntry>) {
        let mut open = self.lock();
        for entry in entries {
            match &entry.ledger_update {
                LedgerUpdate::Record(counted) => open.ledger.add_counted(counted),
                LedgerUpdate::Gap(gap) => open.ledger.add_missing(gap),
            }
            open.unsaved_bytes += entry.bytes;
        }
        open.unsaved_since.get_or_insert_with(Instant::now);
    }

    /// Whether the ledger should be written now.
    pub(crate) fn should_save(&self) -> bool {
        let open = self.lock();
        open.unsaved_since.is_some_and(|since| since.elapsed() >= SAVE_AFTER)
            || open.unsaved_bytes >= SAVE_BYTES
    }

    /// Writes the ledger durably if it has changed; returns its position.
    pub(crate) fn save(&self, now: i64) -> Result<u64> {
        let mut open = self.lock();
        if open.unsaved_since.is_none() {
            return Ok(open.ledger.position());
        }
        let mut ledger = open.ledger.clone();
        // Changes during the write are marked as new.
        (open.unsaved_since, open.unsaved_bytes) = (None, 0);
        drop(open);
        let saved = self.file.save_at(&mut ledger, now);
        if saved.is_err() {
            self.lock().unsaved_since.get_or_insert_with(Instant::now);
        }
        Ok(saved.map(|()| ledger.position())?)
    }
}
