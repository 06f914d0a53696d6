//! The books of a journal: a subscriber of its own reads what is durable and counts it, for each producer.
//!
//! The book is written with the position it has come to, and only then is the subscriber moved there. So whatever
//! happens, the journal still has what the book on disk does not; and as only durable records are counted, the
//! book never has what the journal has not. Locks, in the order in which they are taken: `reading`,
//! `book`, `recent`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use journal::{Clock, Item, Level, Start, Subscriber, Supervisor};
use model::Gap;

use crate::book::{Book, Counted};
use crate::book_file::{BookFile, Found};
use crate::error::{Error, Result};
use crate::home::Home;
use crate::recent_batches::{BatchSums, RecentBatches};

/// The subscriber, and the name of the book.
const NAME: &str = "books";
/// The folder of books, in the journal's.
const FOLDER: &str = "books";
/// Bytes that are counted and not written at the most, about: a segment of usual size.
const UNSAVED_BYTES_MAX: u64 = 16 << 20;
/// What a gap says that is found after an end that was none in order.
pub(crate) const KILLED: &str =
    "topdeck was killed; what came without acknowledgement (StatsD, UDP) between is lost";

#[derive(Debug)]
pub(crate) struct Books {
    file: BookFile,
    clock: Times,
    reading: Mutex<Subscriber>,
    book: Mutex<Book>,
    /// What the latest batches in it had, where a store may come to miss one.
    recent: Option<Mutex<RecentBatches>>,
    /// As it was when this process began, with all that earlier ones had appended.
    before: Book,
    /// What the process before this one may have lost, until that is in the journal.
    killed: Mutex<Option<Gap>>,
    /// Sources run that lose what they have when they are killed.
    is_lossy: AtomicBool,
    has_new_names: AtomicBool,
    /// Whoever counted last has not ended in order: what the subscriber gave may not be counted.
    is_broken: AtomicBool,
    supervisor: Supervisor,
    /// Bytes that were counted since the book was written: the journal has to keep them.
    unsaved_bytes: AtomicU64,
    /// What was found damaged.
    notes: Vec<String>,
}

/// Where times come from.
struct Times(Clock);

impl std::fmt::Debug for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of a journal's books.
pub(crate) fn folder(home: &Home) -> PathBuf {
    home.journal().dir().join(FOLDER)
}

impl Books {
    /// Opens the books, and counts all that the journal has.
    pub(crate) fn open(home: &Home, clock: Clock) -> Result<Books> {
        let journal = home.journal();
        let file = BookFile::new(journal.disk().clone(), &folder(home), NAME)?;
        let is_new = match journal.add_subscriber(NAME, Start::Begin, true) {
            Ok(_) => true,
            Err(journal::Error::CheckpointExists { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let mut subscriber = journal.subscribe(NAME)?;
        subscriber.set_level(Level::Disk);
        let mut notes = Vec::new();
        // What is still only in memory came before this process: it is made durable to be counted so.
        match journal.flush(Level::Disk) {
            Ok(_) => {}
            Err(error) => match Error::from(error) {
                Error::Full { why, .. } => notes.push(format!("the books may lag: {why}")),
                error => return Err(error),
            },
        }
        let now = clock();
        let book = match is_new {
            true => Book::new(journal.id(), subscriber.position(), now),
            false => found(&file, journal.id(), &mut subscriber, now, &mut notes)?,
        };
        let killed = (book.is_lossy && !book.is_closed).then(|| Gap {
            start: book.saved.min(now),
            end: now,
            producer: None,
            lost: None,
            reason: KILLED.to_owned(),
        });
        let recent = home.store().map(|_| {
            let disk = journal.disk().clone();
            let mut recent = RecentBatches::open(disk, folder(home), journal.id());
            // It is written before the book, which may count other records there after a power cut.
            recent.keep_counted(book.first()..book.position());
            Mutex::new(recent)
        });
        let mut books = Books {
            recent,
            file,
            clock: Times(clock),
            reading: Mutex::new(subscriber),
            before: book.clone(),
            book: Mutex::new(book),
            killed: Mutex::new(killed),
            is_lossy: AtomicBool::new(false),
            has_new_names: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            supervisor: home.supervisor().clone(),
            unsaved_bytes: AtomicU64::new(0),
            notes,
        };
        books.read_on()?;
        {
            let mut book = locked(&books.book);
            // What was told of the process before is told again until it is in the journal.
            (book.is_closed, book.is_lossy) = (false, locked(&books.killed).is_some());
        }
        books.before = books.book();
        // On a full disk, questions are answered all the same, and sites fetch what makes room again.
        if let Err(error) = books.save(false) {
            books.notes.push(format!("the books could not be written: {error}"));
            books.has_new_names.store(true, Ordering::Relaxed);
        }
        Ok(books)
    }

    /// Counts what has become durable since the last time; whether there was anything.
    pub(crate) fn read_on(&self) -> Result<bool> {
        let mut reading = locked(&self.reading);
        let begun = reading.position();
        if self.is_broken.swap(true, Ordering::Relaxed) {
            // What is counted already is passed over.
            reading.seek(locked(&self.book).position())?;
        }
        let counted = self.count(&mut reading);
        self.is_broken.store(false, Ordering::Relaxed);
        counted?;
        Ok(reading.position() != begun)
    }

    fn count(&self, reading: &mut Subscriber) -> Result<()> {
        while let Some(item) = reading.next()? {
            let mut book = locked(&self.book);
            match item {
                Item::Batch(batch) => {
                    for record in batch.records() {
                        self.supervisor
                            .fault_point(format_args!("books record {}", record.position));
                        let (position, identity) = (record.position, record.identity);
                        if position >= book.position() {
                            let counted = Counted::of(position, identity, record.bytes);
                            let batch = book.add_batch(&counted);
                            if let (Some(batch), Some(recent)) = (batch, &self.recent) {
                                locked(recent).add(batch);
                            }
                        }
                        self.unsaved_bytes.fetch_add(record.bytes.len() as u64, Ordering::Relaxed);
                    }
                }
                Item::Gap(gap) => book.miss(&gap),
            }
        }
        Ok(())
    }

    /// Writes the book, and lets the journal go what is in it.
    pub(crate) fn save(&self, is_closed: bool) -> Result<()> {
        let mut reading = locked(&self.reading);
        self.has_new_names.store(false, Ordering::Relaxed);
        self.unsaved_bytes.store(0, Ordering::Relaxed);
        let book = {
            let killed = locked(&self.killed);
            let mut book = locked(&self.book);
            book.is_closed = is_closed && killed.is_none();
            book.saved = killed.as_ref().map_or_else(|| (self.clock.0)(), |gap| gap.start);
            book.clone()
        };
        if let Some(recent) = &self.recent {
            locked(recent).save().map_err(|error| {
                Error::Broken(format!("cannot write what the latest batches had: {error}"))
            })?;
        }
        self.file.save(&book)?;
        // If the power takes this back, reading begins earlier, and what is counted already is passed over.
        let position = book.position().min(reading.position());
        reading.commit(position, Level::Process)?;
        Ok(())
    }

    pub(crate) fn name(&self, producer: u64, name: &str) {
        if locked(&self.book).name(producer, name) {
            self.has_new_names.store(true, Ordering::Relaxed);
        }
    }

    /// What a producer is called: its name, or its number where nobody has told one.
    pub(crate) fn name_of(&self, producer: u64) -> String {
        let book = locked(&self.book);
        let name = book.entries().get(&producer).map(|entry| entry.name.as_str());
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("{name:?}"),
            None => format!("{producer:016x}"),
        }
    }

    /// Whether the book should be written soon: a name was told, which only the book has, or the journal keeps
    /// very much for it.
    pub(crate) fn is_save_due(&self) -> bool {
        self.has_new_names.load(Ordering::Relaxed)
            || self.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_BYTES_MAX
    }

    /// From now on something is lost when the process is killed; durable on return.
    pub(crate) fn mark_lossy(&self) -> Result<()> {
        self.is_lossy.store(true, Ordering::Relaxed);
        let was_lossy = std::mem::replace(&mut locked(&self.book).is_lossy, true);
        if !was_lossy && let Err(error) = self.save(false) {
            // Tried again with the next names; until then a kill leaves no gap.
            self.has_new_names.store(true, Ordering::Relaxed);
            return Err(error);
        }
        Ok(())
    }

    /// What the process before this one may have lost, if it was killed.
    pub(crate) fn killed(&self) -> Option<Gap> {
        locked(&self.killed).clone()
    }

    /// The gap is in the journal.
    pub(crate) fn settle_killed(&self) {
        *locked(&self.killed) = None;
        locked(&self.book).is_lossy = self.is_lossy.load(Ordering::Relaxed);
    }

    /// The last sequence of a producer's boot that is counted.
    pub(crate) fn last_sequence(&self, producer: u64, boot: u64) -> Option<u64> {
        locked(&self.book).last_sequence(producer, boot)
    }

    /// What the batches at these positions had, by producer; `None` if one of them is not known.
    pub(crate) fn sums(&self, positions: &Range<u64>) -> Option<BTreeMap<u64, BatchSums>> {
        locked(self.recent.as_ref()?).sums(positions)
    }

    /// Keeps what is known of batches that were found damaged.
    pub(crate) fn keep_damaged(&self, damaged: Vec<Range<u64>>) {
        if let Some(recent) = &self.recent {
            locked(recent).keep(damaged);
        }
    }

    pub(crate) fn book(&self) -> Book {
        locked(&self.book).clone()
    }

    pub(crate) fn before(&self) -> &Book {
        &self.before
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// The book on disk, with the subscriber where it goes on; a new one if there is none.
fn found(
    file: &BookFile,
    journal: u128,
    subscriber: &mut Subscriber,
    now: i64,
    notes: &mut Vec<String>,
) -> Result<Book> {
    let at = subscriber.position();
    let anew = |why: String, notes: &mut Vec<String>| {
        notes.push(format!("the books are begun anew at position {at} of the journal: {why}"));
        Book::new(journal, at, now)
    };
    let book = match file.load()? {
        Found::Nothing if at == 0 => Book::new(journal, 0, now),
        Found::Nothing => anew("there are none, and what they had counted is gone".into(), notes),
        Found::Damaged(why) => anew(format!("they are damaged: {why}"), notes),
        Found::Book(book) if book.journal != journal => {
            anew("they are of another journal".to_owned(), notes)
        }
        Found::Book(book) => *book,
    };
    match subscriber.seek(book.position) {
        Ok(()) => Ok(book),
        // What the journal has dropped since is told as missing when it is read on from there.
        Err(journal::Error::Position { found, first, .. }) if found < first => Ok(book),
        Err(journal::Error::Position { found, end, .. }) => Ok(anew(
            format!("they had come to position {found}, and the journal ends at {end}"),
            notes,
        )),
        Err(error) => Err(error.into()),
    }
}
