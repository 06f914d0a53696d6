//! What a site has acknowledged: its book, which the audit holds to the journal's, and which leads the reading.
//!
//! The book is written with the position it has come to, and only then does the site's subscriber move there. So
//! reading goes on where the book ends, whatever happened in between; if the process is killed, what was acknowledged
//! since the book was written is sent again, and the site knows it. That is at most [`SAVE_BYTES`] or what came in
//! [`SAVE_AFTER`], for which a parcel does not cost a synchronisation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{Book, BookFile, Found, Hop, Intake};

use crate::error::Result;
use crate::load::{Account, Part};

/// After how long what was acknowledged is written.
pub(crate) const SAVE_AFTER: Duration = Duration::from_secs(1);
/// Bytes that are acknowledged and not written at the most, about: the journal keeps them.
pub(crate) const SAVE_BYTES: u64 = 32 << 20;

/// The book of a site.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: BookFile,
    open: Mutex<Open>,
    /// Everything before this may be at the site though it did not say so: an answer was lost.
    unanswered: AtomicU64,
    /// What was found wrong with the book.
    pub(crate) note: Option<String>,
}

#[derive(Debug)]
struct Open {
    book: Book,
    unsaved_bytes: u64,
    /// When something came that is not written yet.
    unsaved: Option<Instant>,
}

impl Hop for Ledger {
    fn book(&self) -> Book {
        self.open().book.clone()
    }
}

impl Ledger {
    /// Opens the book of a hop whose subscriber is at `position`; a new one if that is new, or the book is not its.
    pub(crate) fn open_book(
        intake: &Intake,
        hop: &str,
        position: u64,
        is_new: bool,
    ) -> Result<Ledger> {
        let file = intake.book_file(hop)?;
        let journal = intake.home().journal();
        let (id, end) = (journal.id(), journal.marks().end);
        let (book, why) = match file.load()? {
            _ if is_new => (None, None),
            Found::Nothing => (None, None),
            Found::Damaged(why) => (None, Some(format!("it is damaged: {why}"))),
            Found::Book(book) if book.journal() != id => {
                (None, Some("it is of another journal".to_owned()))
            }
            Found::Book(book) if !(position..=end).contains(&book.position()) => {
                let at = book.position();
                (
                    None,
                    Some(format!(
                        "it ends at position {at}, which is not from {position} to {end}"
                    )),
                )
            }
            Found::Book(book) => (Some(*book), None),
        };
        let note = why.map(|why| format!("its book is begun anew at position {position}: {why}"));
        let book = book.unwrap_or_else(|| Book::new(id, position, intake.now()));
        // Also where the file is newer than the subscriber: that is to be moved.
        let open = Mutex::new(Open { book, unsaved_bytes: 0, unsaved: Some(Instant::now()) });
        Ok(Ledger { file, open, unanswered: AtomicU64::new(0), note })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The site has everything before it durably.
    pub(crate) fn position(&self) -> u64 {
        self.open().book.position()
    }

    /// The site may have everything before it.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Something goes out to a site that may take it and not say so.
    pub(crate) fn send(&self, last: u64) {
        self.unanswered.fetch_max(last, Ordering::Relaxed);
    }

    /// The site has these.
    pub(crate) fn add<'a>(&self, parts: impl Iterator<Item = &'a Part>) {
        let mut open = self.open();
        for part in parts {
            match &part.account {
                Account::Record(counted) => open.book.add_counted(counted),
                Account::Gap(gap) => open.book.miss(gap),
            }
            open.unsaved_bytes += part.bytes;
        }
        open.unsaved.get_or_insert_with(Instant::now);
    }

    /// Whether it is time to write it.
    pub(crate) fn is_due(&self) -> bool {
        let open = self.open();
        open.unsaved.is_some_and(|since| since.elapsed() >= SAVE_AFTER)
            || open.unsaved_bytes >= SAVE_BYTES
    }

    /// Writes the book, durably, if there is something new in it; up to which position it is.
    pub(crate) fn save(&self, now: i64) -> Result<u64> {
        let mut open = self.open();
        if open.unsaved.is_none() {
            return Ok(open.book.position());
        }
        let mut book = open.book.clone();
        // Whatever comes while it is being written is new again.
        (open.unsaved, open.unsaved_bytes) = (None, 0);
        drop(open);
        let saved = self.file.save_at(&mut book, now);
        if saved.is_err() {
            self.open().unsaved.get_or_insert_with(Instant::now);
        }
        Ok(saved.map(|()| book.position())?)
    }
}
