//! Ledger reader: a journal subscriber that counts durable records per producer.
//!
//! The book is written with the position it has come to, and only then is the subscriber moved
//! there. So whatever happens, the journal still has what the book on disk does not; and as only
//! durable records are counted, the book never has what the journal has not. Locks, in the order in
//! which they are taken: `reading`, `book`, `recent`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use journal::{Level, ReadItem, StartPosition, Subscriber, Supervisor, WallClock};
use model::Gap;

use crate::error::{Error, Result};
use crate::ledger::{CountedRecord, Ledger};
use crate::ledger_file::{LedgerFile, LedgerLoad};
use crate::recent_batches::{BatchSums, RecentBatches};
use crate::write_target::WriteTarget;

/// The subscriber, and the name of the book.
const SUBSCRIBER_NAME: &str = "books";
/// The folder of books, in the journal's.
const FOLDER: &str = "books";
/// Bytes that are counted and not written at the most, about: a segment of usual size.
const UNSAVED_BYTES_MAX: u64 = 16 << 20;
/// What a gap says that is found after an end that was none in order.
pub(crate) const UNCLEAN_SHUTDOWN_NOTE: &str =
    "topdeck was killed; what came without acknowledgement (StatsD, UDP) between is lost";

#[derive(Debug)]
pub(crate) struct LedgerReader {
    file: LedgerFile,
    clock: LedgerClock,
    subscriber: Mutex<Subscriber>,
    ledger: Mutex<Ledger>,
    /// What the latest batches in it had, where a store may come to miss one.
    recent: Option<Mutex<RecentBatches>>,
    /// As it was when this process began, with all that earlier ones had appended.
    previous: Ledger,
    /// What the process before this one may have lost, until that is in the journal.
    unclean_shutdown: Mutex<Option<Gap>>,
    /// Sources run that lose what they have when they are killed.
    is_volatile: AtomicBool,
    has_new_names: AtomicBool,
    /// Whoever counted last has not ended in order: what the subscriber gave may not be counted.
    has_failed: AtomicBool,
    supervisor: Supervisor,
    /// Bytes that were counted since the book was written: the journal has to keep them.
    unsaved_bytes: AtomicU64,
    /// What was found damaged.
    warnings: Vec<String>,
}

/// Clock of the ledger.
struct LedgerClock(WallClock);

impl std::fmt::Debug for LedgerClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of a journal's books.
pub(crate) fn ledger_dir(home: &WriteTarget) -> PathBuf {
    home.journal().dir().join(FOLDER)
}

impl LedgerReader {
    /// Opens the books, and counts all that the journal has.
    pub(crate) fn open(home: &WriteTarget, clock: WallClock) -> Result<LedgerReader> {
        let journal = home.journal();
        let file = LedgerFile::new(journal.disk().clone(), &ledger_dir(home), SUBSCRIBER_NAME)?;
        let is_new = match journal.add_subscriber(SUBSCRIBER_NAME, StartPosition::First, true) {
            Ok(_) => true,
            Err(journal::Error::CheckpointExists { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let mut subscriber = journal.subscribe(SUBSCRIBER_NAME)?;
        subscriber.set_level(Level::Disk);
        let mut notes = Vec::new();
        // What is still only in memory came before this process: it is made durable to be counted
        // so.
        match journal.flush(Level::Disk) {
            Ok(_) => {}
            Err(error) => match Error::from(error) {
                Error::Full { reason: why, .. } => notes.push(format!("the books may lag: {why}")),
                error => return Err(error),
            },
        }
        let now = clock();
        let book = match is_new {
            true => Ledger::new(journal.id(), subscriber.position(), now),
            false => load_ledger(&file, journal.id(), &mut subscriber, now, &mut notes)?,
        };
        let killed = (book.is_volatile && !book.is_closed).then(|| Gap {
            start: book.saved_at.min(now),
            end: now,
            producer: None,
            lost: None,
            reason: UNCLEAN_SHUTDOWN_NOTE.to_owned(),
        });
        let recent = home.store().map(|_| {
            let disk = journal.disk().clone();
            let mut recent = RecentBatches::open(disk, ledger_dir(home), journal.id());
            // It is written before the book, which may count other records there after a power cut.
            recent.keep_counted(book.first()..book.position());
            Mutex::new(recent)
        });
        let mut books = LedgerReader {
            recent,
            file,
            clock: LedgerClock(clock),
            subscriber: Mutex::new(subscriber),
            previous: book.clone(),
            ledger: Mutex::new(book),
            unclean_shutdown: Mutex::new(killed),
            is_volatile: AtomicBool::new(false),
            has_new_names: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            supervisor: home.supervisor().clone(),
            unsaved_bytes: AtomicU64::new(0),
            warnings: notes,
        };
        books.read_new()?;
        {
            let mut book = lock(&books.ledger);
            // What was told of the process before is told again until it is in the journal.
            (book.is_closed, book.is_volatile) = (false, lock(&books.unclean_shutdown).is_some());
        }
        books.previous = books.ledger();
        // On a full disk, questions are answered all the same, and sites fetch what makes room
        // again.
        if let Err(error) = books.save(false) {
            books.warnings.push(format!("the books could not be written: {error}"));
            books.has_new_names.store(true, Ordering::Relaxed);
        }
        Ok(books)
    }

    /// Counts what has become durable since the last time; whether there was anything.
    pub(crate) fn read_new(&self) -> Result<bool> {
        let mut reading = lock(&self.subscriber);
        let begun = reading.position();
        if self.has_failed.swap(true, Ordering::Relaxed) {
            // What is counted already is passed over.
            reading.seek(lock(&self.ledger).position())?;
        }
        let counted = self.count(&mut reading);
        self.has_failed.store(false, Ordering::Relaxed);
        counted?;
        Ok(reading.position() != begun)
    }

    fn count(&self, reading: &mut Subscriber) -> Result<()> {
        while let Some(item) = reading.next()? {
            let mut book = lock(&self.ledger);
            match item {
                ReadItem::Batch(batch) => {
                    for record in batch.records() {
                        self.supervisor
                            .fault_point(format_args!("books record {}", record.position));
                        let (position, identity) = (record.position, record.identity);
                        if position >= book.position() {
                            let counted =
                                CountedRecord::from_record(position, identity, record.bytes);
                            let batch = book.add_batch(&counted);
                            if let (Some(batch), Some(recent)) = (batch, &self.recent) {
                                lock(recent).add(batch);
                            }
                        }
                        self.unsaved_bytes.fetch_add(record.bytes.len() as u64, Ordering::Relaxed);
                    }
                }
                ReadItem::Gap(gap) => book.add_missing(&gap),
            }
        }
        Ok(())
    }

    /// Writes the book, and lets the journal go what is in it.
    pub(crate) fn save(&self, is_closed: bool) -> Result<()> {
        let mut reading = lock(&self.subscriber);
        self.has_new_names.store(false, Ordering::Relaxed);
        self.unsaved_bytes.store(0, Ordering::Relaxed);
        let book = {
            let killed = lock(&self.unclean_shutdown);
            let mut book = lock(&self.ledger);
            book.is_closed = is_closed && killed.is_none();
            book.saved_at = killed.as_ref().map_or_else(|| (self.clock.0)(), |gap| gap.start);
            book.clone()
        };
        if let Some(recent) = &self.recent {
            lock(recent).save().map_err(|error| {
                Error::JournalFailed(format!("cannot write what the latest batches had: {error}"))
            })?;
        }
        self.file.save(&book)?;
        // If the power takes this back, reading begins earlier, and what is counted already is
        // passed over.
        let position = book.position().min(reading.position());
        reading.commit(position, Level::Process)?;
        Ok(())
    }

    pub(crate) fn set_name(&self, producer: u64, name: &str) {
        if lock(&self.ledger).set_name(producer, name) {
            self.has_new_names.store(true, Ordering::Relaxed);
        }
    }

    /// What a producer is called: its name, or its number where nobody has told one.
    pub(crate) fn producer_name(&self, producer: u64) -> String {
        let book = lock(&self.ledger);
        let name = book.entries().get(&producer).map(|entry| entry.name.as_str());
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("{name:?}"),
            None => format!("{producer:016x}"),
        }
    }

    /// Whether the book should be written soon: a name was told, which only the book has, or the
    /// journal keeps very much for it.
    pub(crate) fn is_save_due(&self) -> bool {
        self.has_new_names.load(Ordering::Relaxed)
            || self.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_BYTES_MAX
    }

    /// From now on something is lost when the process is killed; durable on return.
    pub(crate) fn declare_volatile(&self) -> Result<()> {
        self.is_volatile.store(true, Ordering::Relaxed);
        let was_lossy = std::mem::replace(&mut lock(&self.ledger).is_volatile, true);
        if !was_lossy && let Err(error) = self.save(false) {
            // Tried again with the next names; until then a kill leaves no gap.
            self.has_new_names.store(true, Ordering::Relaxed);
            return Err(error);
        }
        Ok(())
    }

    /// What the process before this one may have lost, if it was killed.
    pub(crate) fn unclean_shutdown_gap(&self) -> Option<Gap> {
        lock(&self.unclean_shutdown).clone()
    }

    /// The gap is in the journal.
    pub(crate) fn clear_unclean_shutdown(&self) {
        *lock(&self.unclean_shutdown) = None;
        lock(&self.ledger).is_volatile = self.is_volatile.load(Ordering::Relaxed);
    }

    /// The last sequence of a producer's boot that is counted.
    pub(crate) fn last_sequence(&self, producer: u64, boot: u64) -> Option<u64> {
        lock(&self.ledger).last_sequence(producer, boot)
    }

    /// What the batches at these positions had, by producer; `None` if one of them is not known.
    pub(crate) fn sums(&self, positions: &Range<u64>) -> Option<BTreeMap<u64, BatchSums>> {
        lock(self.recent.as_ref()?).sums(positions)
    }

    /// Keeps what is known of batches that were found damaged.
    pub(crate) fn keep_damaged(&self, damaged: Vec<Range<u64>>) {
        if let Some(recent) = &self.recent {
            lock(recent).keep(damaged);
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        lock(&self.ledger).clone()
    }

    pub(crate) fn previous(&self) -> &Ledger {
        &self.previous
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The book on disk, with the subscriber where it goes on; a new one if there is none.
fn load_ledger(
    file: &LedgerFile,
    journal: u128,
    subscriber: &mut Subscriber,
    now: i64,
    notes: &mut Vec<String>,
) -> Result<Ledger> {
    let at = subscriber.position();
    let anew = |why: String, notes: &mut Vec<String>| {
        notes.push(format!("the books are begun anew at position {at} of the journal: {why}"));
        Ledger::new(journal, at, now)
    };
    let book = match file.load()? {
        LedgerLoad::Missing if at == 0 => Ledger::new(journal, 0, now),
        LedgerLoad::Missing => {
            anew("there are none, and what they had counted is gone".into(), notes)
        }
        LedgerLoad::Damaged(why) => anew(format!("they are damaged: {why}"), notes),
        LedgerLoad::Ledger(book) if book.journal != journal => {
            anew("they are of another journal".to_owned(), notes)
        }
        LedgerLoad::Ledger(book) => *book,
    };
    match subscriber.seek(book.position) {
        Ok(()) => Ok(book),
        // What the journal has dropped since is told as missing when it is read on from there.
        Err(journal::Error::PositionOutOfRange { found, first, .. }) if found < first => Ok(book),
        Err(journal::Error::PositionOutOfRange { found, end, .. }) => Ok(anew(
            format!("they had come to position {found}, and the journal ends at {end}"),
            notes,
        )),
        Err(error) => Err(error.into()),
    }
}
