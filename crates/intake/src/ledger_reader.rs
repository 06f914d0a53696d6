//! Ledger reader: a journal subscriber that counts durable records per producer.
//!
//! The ledger is written with its position, and only then the subscriber is moved to this position.
//! So the journal always retains records that the ledger on disk does not count; and as only
//! durable records are counted, the ledger never counts a record that the journal loses. Lock
//! order: `subscriber`, `volatile_sources`, `ledger`, `recent`.

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
use crate::volatile_sources::{UncleanShutdown, VolatileSources};
use crate::write_target::WriteTarget;

/// Name of the subscriber and of its ledger.
const SUBSCRIBER_NAME: &str = "ledger";
/// The same in earlier versions.
const OLD_SUBSCRIBER_NAME: &str = "books";
/// Directory of the ledgers, in the journal's directory.
const DIR: &str = "ledgers";
/// Maximum bytes that are counted and not yet written, about one segment of the usual size.
const UNSAVED_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug)]
pub(crate) struct LedgerReader {
    file: LedgerFile,
    clock: LedgerClock,
    subscriber: Mutex<Subscriber>,
    ledger: Mutex<Ledger>,
    /// Counts of recent batches, if a store may lose some of them.
    recent: Option<Mutex<RecentBatches>>,
    /// The ledger at the start of this process, with all records of earlier processes.
    previous: Ledger,
    /// What a kill loses, and what the previous process may have lost.
    volatile_sources: Mutex<VolatileSources>,
    /// Interval of the possible loss of the previous process, for the log.
    last_stop: Option<Gap>,
    has_new_names: AtomicBool,
    /// Whether the last read failed: records that the subscriber returned may be uncounted.
    has_failed: AtomicBool,
    supervisor: Supervisor,
    /// Bytes counted since the last checkpoint: the journal has to retain them.
    unsaved_bytes: AtomicU64,
    /// Damage found on opening.
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

/// Directory of a journal's ledgers.
pub(crate) fn ledger_dir(home: &WriteTarget) -> PathBuf {
    home.journal().dir().join(DIR)
}

impl LedgerReader {
    /// Opens the ledger and counts all records of the journal.
    pub(crate) fn open(home: &WriteTarget, clock: WallClock) -> Result<LedgerReader> {
        let journal = home.journal();
        let file = LedgerFile::new(journal.disk().clone(), &ledger_dir(home), SUBSCRIBER_NAME)?;
        rename_old_ledger(home, &file)?;
        let is_new = match journal.add_subscriber(SUBSCRIBER_NAME, StartPosition::First, true) {
            Ok(_) => true,
            Err(journal::Error::CheckpointExists { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        let mut subscriber = journal.subscribe(SUBSCRIBER_NAME)?;
        subscriber.set_level(Level::Disk);
        let mut notes = Vec::new();
        // Records that are only in memory precede this process: they are made durable, so that they
        // are counted as such.
        match journal.flush(Level::Disk) {
            Ok(_) => {}
            Err(error) => match Error::from(error) {
                Error::Full { reason, .. } => notes.push(format!("the ledger may lag: {reason}")),
                error => return Err(error),
            },
        }
        let now = clock();
        let ledger = match is_new {
            true => Ledger::new(journal.id(), subscriber.position(), now),
            false => load_ledger(&file, journal.id(), &mut subscriber, now, &mut notes)?,
        };
        let volatile_sources = VolatileSources::after(&ledger, now);
        let recent = home.store().map(|_| {
            let disk = journal.disk().clone();
            let mut recent = RecentBatches::open(disk, ledger_dir(home), journal.id());
            // This file is written before the ledger, which may have other records at these
            // positions after a power failure.
            recent.keep_counted(ledger.first()..ledger.position());
            Mutex::new(recent)
        });
        let mut reader = LedgerReader {
            recent,
            file,
            clock: LedgerClock(clock),
            subscriber: Mutex::new(subscriber),
            previous: ledger.clone(),
            ledger: Mutex::new(ledger),
            last_stop: volatile_sources.unclean_shutdown().and_then(UncleanShutdown::summary),
            volatile_sources: Mutex::new(volatile_sources),
            has_new_names: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            supervisor: home.supervisor().clone(),
            unsaved_bytes: AtomicU64::new(0),
            warnings: notes,
        };
        reader.read_new()?;
        lock(&reader.ledger).is_closed = false;
        reader.previous = reader.ledger();
        // On a full disk, queries still work, and remotes still fetch records, which frees space.
        if let Err(error) = reader.save(false) {
            reader.warnings.push(format!("cannot write the ledger: {error}"));
            reader.has_new_names.store(true, Ordering::Relaxed);
        }
        Ok(reader)
    }

    /// Counts newly durable records; returns whether there were any.
    pub(crate) fn read_new(&self) -> Result<bool> {
        let mut reading = lock(&self.subscriber);
        let start = reading.position();
        if self.has_failed.swap(true, Ordering::Relaxed) {
            // Skips counted records.
            reading.seek(lock(&self.ledger).position())?;
        }
        let counted = self.count(&mut reading);
        self.has_failed.store(false, Ordering::Relaxed);
        counted?;
        Ok(reading.position() != start)
    }

    fn count(&self, reading: &mut Subscriber) -> Result<()> {
        while let Some(item) = reading.next()? {
            let mut ledger = lock(&self.ledger);
            match item {
                ReadItem::Batch(batch) => {
                    for record in batch.records() {
                        self.supervisor
                            .failpoint(format_args!("ledger record {}", record.position));
                        let (position, identity) = (record.position, record.identity);
                        if position >= ledger.position() {
                            let counted =
                                CountedRecord::from_record(position, identity, record.bytes);
                            let batch = ledger.add_batch(&counted);
                            if let (Some(batch), Some(recent)) = (batch, &self.recent) {
                                lock(recent).add(batch);
                            }
                        }
                        self.unsaved_bytes.fetch_add(record.bytes.len() as u64, Ordering::Relaxed);
                    }
                }
                ReadItem::Gap(gap) => ledger.add_missing(&gap),
            }
        }
        Ok(())
    }

    /// Writes the ledger, and releases its records in the journal.
    pub(crate) fn save(&self, is_closed: bool) -> Result<()> {
        let mut reading = lock(&self.subscriber);
        self.has_new_names.store(false, Ordering::Relaxed);
        self.unsaved_bytes.store(0, Ordering::Relaxed);
        let ledger = {
            let mut sources = lock(&self.volatile_sources);
            let mut ledger = lock(&self.ledger);
            ledger.is_closed = is_closed && sources.unclean_shutdown().is_none();
            let durable = ledger.position();
            sources.write_to(&mut ledger, durable, (self.clock.0)());
            ledger.clone()
        };
        if let Some(recent) = &self.recent {
            lock(recent).save().map_err(|error| {
                Error::JournalFailed(format!("cannot write recent.batches: {error}"))
            })?;
        }
        self.file.save(&ledger)?;
        // If a power failure reverts this, reading resumes earlier and skips counted records.
        let position = ledger.position().min(reading.position());
        reading.commit(position, Level::Process)?;
        Ok(())
    }

    pub(crate) fn set_name(&self, producer: u64, name: &str) {
        if lock(&self.ledger).set_name(producer, name) {
            self.has_new_names.store(true, Ordering::Relaxed);
        }
    }

    /// Name of a producer in quotes, or its number if the name is unknown.
    pub(crate) fn producer_name(&self, producer: u64) -> String {
        self.known_name(producer)
            .map_or_else(|| format!("{producer:016x}"), |name| format!("{name:?}"))
    }

    /// Name of a producer, if known.
    pub(crate) fn known_name(&self, producer: u64) -> Option<String> {
        let ledger = lock(&self.ledger);
        let name = ledger.entries().get(&producer).map(|entry| entry.name.clone());
        name.filter(|name| !name.is_empty())
    }

    /// Whether a checkpoint is due: a new name is only in the ledger, or the journal retains many
    /// bytes for it.
    pub(crate) fn is_save_due(&self) -> bool {
        self.has_new_names.load(Ordering::Relaxed)
            || self.unsaved_bytes.load(Ordering::Relaxed) > UNSAVED_BYTES_MAX
    }

    /// Records that sources start whose data a kill loses; durable on return. Until all of them
    /// have started, their producers are not known.
    pub(crate) fn begin_volatile_start(&self) -> Result<()> {
        let is_new = lock(&self.volatile_sources).begin_start();
        if is_new && let Err(error) = self.save(false) {
            // Retried with the next names; until then a kill leaves no gap.
            self.has_new_names.store(true, Ordering::Relaxed);
            return Err(error);
        }
        Ok(())
    }

    /// Records that all sources have started; `producer` is one of theirs. The ledger is written
    /// with the next names.
    pub(crate) fn finish_volatile_start(&self, producer: u64) {
        lock(&self.volatile_sources).finish_start(producer);
        self.has_new_names.store(true, Ordering::Relaxed);
    }

    pub(crate) fn add_volatile_producer(&self, producer: u64) {
        lock(&self.volatile_sources).add(producer);
    }

    /// Records that a source has stopped; its batches end before a position.
    pub(crate) fn remove_volatile_producer(&self, producer: u64, end: u64) {
        lock(&self.volatile_sources).remove(producer, end);
    }

    /// The possible loss of the previous process, if it was killed: one gap for each producer.
    pub(crate) fn unclean_shutdown_gaps(&self) -> Vec<Gap> {
        let sources = lock(&self.volatile_sources);
        sources.unclean_shutdown().map(|lost| lost.gaps.clone()).unwrap_or_default()
    }

    /// The possible loss that this process found at its start.
    pub(crate) fn unclean_stop(&self) -> Option<&Gap> {
        self.last_stop.as_ref()
    }

    /// Called when the gaps are in the journal.
    pub(crate) fn clear_unclean_shutdown(&self) {
        lock(&self.volatile_sources).clear_unclean_shutdown();
    }

    /// Last counted sequence of a producer epoch.
    pub(crate) fn last_sequence(&self, producer: u64, epoch: u64) -> Option<u64> {
        lock(&self.ledger).last_sequence(producer, epoch)
    }

    /// Counts of the batches at these positions, by producer; `None` if any of them is unknown.
    pub(crate) fn sums(&self, positions: &Range<u64>) -> Option<BTreeMap<u64, BatchSums>> {
        lock(self.recent.as_ref()?).sums(positions)
    }

    /// Keeps the counts of damaged batches.
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

/// Renames the ledger and the subscriber of an earlier version. The subscriber is last: if it has
/// its new name, the ledger has it too.
fn rename_old_ledger(home: &WriteTarget, file: &LedgerFile) -> Result<()> {
    let journal = home.journal();
    let subscriber = |name: &str| match journal.checkpoint(name) {
        Ok(checkpoint) => Ok(Some(checkpoint)),
        Err(journal::Error::NoCheckpoint { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    if subscriber(SUBSCRIBER_NAME)?.is_some() || subscriber(OLD_SUBSCRIBER_NAME)?.is_none() {
        return Ok(());
    }
    if file.load()? == LedgerLoad::Missing {
        let disk = journal.disk().clone();
        LedgerFile::new(disk, &ledger_dir(home), OLD_SUBSCRIBER_NAME)?.rename(file)?;
    }
    Ok(journal.rename_checkpoint(OLD_SUBSCRIBER_NAME, SUBSCRIBER_NAME)?)
}

/// Loads the ledger, with the subscriber at its position; a new one if there is none.
fn load_ledger(
    file: &LedgerFile,
    journal: u128,
    subscriber: &mut Subscriber,
    now: i64,
    notes: &mut Vec<String>,
) -> Result<Ledger> {
    let at = subscriber.position();
    let anew = |reason: String, notes: &mut Vec<String>| {
        notes.push(format!("new ledger from position {at} of the journal: {reason}"));
        Ledger::new(journal, at, now)
    };
    let ledger = match file.load()? {
        LedgerLoad::Missing if at == 0 => Ledger::new(journal, 0, now),
        LedgerLoad::Missing => {
            anew("the ledger is missing, and the records it counted are deleted".into(), notes)
        }
        LedgerLoad::Damaged(reason) => anew(format!("the ledger is damaged: {reason}"), notes),
        LedgerLoad::Ledger(ledger) if ledger.journal != journal => {
            anew("the ledger is of another journal".to_owned(), notes)
        }
        LedgerLoad::Ledger(ledger) => *ledger,
    };
    match subscriber.seek(ledger.position) {
        Ok(()) => Ok(ledger),
        // Records that the journal has dropped since are reported as missing when reading
        // continues.
        Err(journal::Error::PositionOutOfRange { found, first, .. }) if found < first => Ok(ledger),
        Err(journal::Error::PositionOutOfRange { found, end, .. }) => {
            Ok(anew(format!("the ledger ends at position {found}, the journal at {end}"), notes))
        }
        Err(error) => Err(error.into()),
    }
}
