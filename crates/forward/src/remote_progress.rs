//! Acknowledged progress of a remote, persisted as a ledger.
//!
//! The book is written with the position it has come to, and only then does the site's subscriber
//! move there. So reading goes on where the book ends, whatever happened in between; if the process
//! is killed, what was acknowledged since the book was written is sent again, and the site knows
//! it. That is at most [`SAVE_BYTES`] or what came in [`SAVE_AFTER`], for which a parcel does not
//! cost a synchronisation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{DownstreamHop, Intake, Ledger, LedgerFile, LedgerLoad};

use crate::encoded_request::{LedgerUpdate, RequestEntry};
use crate::error::Result;

/// After how long what was acknowledged is written.
pub(crate) const SAVE_AFTER: Duration = Duration::from_secs(1);
/// Bytes that are acknowledged and not written at the most, about: the journal keeps them.
pub(crate) const SAVE_BYTES: u64 = 32 << 20;

/// Acknowledged progress of a remote.
#[derive(Debug)]
pub(crate) struct RemoteProgress {
    file: LedgerFile,
    pending: Mutex<PendingAck>,
    /// Everything before this may be at the site though it did not say so: an answer was lost.
    unacknowledged: AtomicU64,
    /// What was found wrong with the book.
    pub(crate) warning: Option<String>,
}

#[derive(Debug)]
struct PendingAck {
    ledger: Ledger,
    unsaved_bytes: u64,
    /// When something came that is not written yet.
    unsaved_since: Option<Instant>,
}

impl DownstreamHop for RemoteProgress {
    fn ledger(&self) -> Ledger {
        self.lock().ledger.clone()
    }
}

impl RemoteProgress {
    /// Opens the book of a hop whose subscriber is at `position`; a new one if that is new, or the
    /// book is not its.
    pub(crate) fn open(
        intake: &Intake,
        hop: &str,
        position: u64,
        is_new: bool,
    ) -> Result<RemoteProgress> {
        let file = intake.ledger_file(hop)?;
        let journal = intake.target().journal();
        let (id, end) = (journal.id(), journal.watermarks().end);
        let (book, why) = match file.load()? {
            _ if is_new => (None, None),
            LedgerLoad::Missing => (None, None),
            LedgerLoad::Damaged(why) => (None, Some(format!("it is damaged: {why}"))),
            LedgerLoad::Ledger(book) if book.journal() != id => {
                (None, Some("it is of another journal".to_owned()))
            }
            LedgerLoad::Ledger(book) if !(position..=end).contains(&book.position()) => {
                let at = book.position();
                (
                    None,
                    Some(format!(
                        "it ends at position {at}, which is not from {position} to {end}"
                    )),
                )
            }
            LedgerLoad::Ledger(book) => (Some(*book), None),
        };
        let note = why.map(|why| format!("its book is begun anew at position {position}: {why}"));
        let book = book.unwrap_or_else(|| Ledger::new(id, position, intake.now()));
        // Also where the file is newer than the subscriber: that is to be moved.
        let open = Mutex::new(PendingAck {
            ledger: book,
            unsaved_bytes: 0,
            unsaved_since: Some(Instant::now()),
        });
        Ok(RemoteProgress { file, pending: open, unacknowledged: AtomicU64::new(0), warning: note })
    }

    fn lock(&self) -> MutexGuard<'_, PendingAck> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The site has everything before it durably.
    pub(crate) fn position(&self) -> u64 {
        self.lock().ledger.position()
    }

    /// The site may have everything before it.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged.load(Ordering::Relaxed)
    }

    /// Something goes out to a site that may take it and not say so.
    pub(crate) fn set_sent(&self, last: u64) {
        self.unacknowledged.fetch_max(last, Ordering::Relaxed);
    }

    /// The site has these.
    pub(crate) fn add<'a>(&self, parts: impl Iterator<Item = &'a RequestEntry>) {
        let mut open = self.lock();
        for part in parts {
            match &part.ledger_update {
                LedgerUpdate::Record(counted) => open.ledger.add_counted(counted),
                LedgerUpdate::Gap(gap) => open.ledger.add_missing(gap),
            }
            open.unsaved_bytes += part.bytes;
        }
        open.unsaved_since.get_or_insert_with(Instant::now);
    }

    /// Whether it is time to write it.
    pub(crate) fn should_save(&self) -> bool {
        let open = self.lock();
        open.unsaved_since.is_some_and(|since| since.elapsed() >= SAVE_AFTER)
            || open.unsaved_bytes >= SAVE_BYTES
    }

    /// Writes the book, durably, if there is something new in it; up to which position it is.
    pub(crate) fn save(&self, now: i64) -> Result<u64> {
        let mut open = self.lock();
        if open.unsaved_since.is_none() {
            return Ok(open.ledger.position());
        }
        let mut book = open.ledger.clone();
        // Whatever comes while it is being written is new again.
        (open.unsaved_since, open.unsaved_bytes) = (None, 0);
        drop(open);
        let saved = self.file.save_at(&mut book, now);
        if saved.is_err() {
            self.lock().unsaved_since.get_or_insert_with(Instant::now);
        }
        Ok(saved.map(|()| book.position())?)
    }
}
