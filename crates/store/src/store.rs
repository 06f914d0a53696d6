//! Store handle: ingest, views, maintenance.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use disk::Disk;
use journal::{Ack, BatchIdentity, Journal, Level, StartPosition, Subscriber};
use model::{Batch, Selector, SeriesId, SeriesRef};

use crate::backend::{Storage, StorageReader};
use crate::change::StoreChange;
use crate::error::{Error, Result};
use crate::index::{Cardinality, NewSeries, SeriesIndex, SeriesNumber};
use crate::inner::{SUBSCRIBER, StoreInner, StoreState};
use crate::local_backend::LocalBackend;
use crate::manifest::{Manifest, RetentionRule};
use crate::manifest_file::ManifestFile;
use crate::mutex::lock;
use crate::options::Options;
use crate::quarantine::Quarantine;
use crate::retention::DeletionResult;
use crate::stat::StoreStat;
use crate::view::ReadView;

/// A time-series store. One process has it open at a time; it may be used from many threads.
pub struct Store {
    inner: Arc<StoreInner>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("storage", &self.inner.storage).finish_non_exhaustive()
    }
}

impl Store {
    /// Makes a store in a folder, with its journal in the folder `journal` below it.
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, settings: &journal::Settings) -> Result<()> {
        let manifest_file = ManifestFile::open(Arc::clone(disk), dir)?;
        let storage = LocalBackend::new(Arc::clone(disk), dir);
        // Parts without a manifest are what is left of one that was damaged: nothing may be made
        // over them.
        if ManifestFile::exists(&**disk, dir)? || !storage.part_numbers()?.is_empty() {
            return Err(Error::AlreadyExists { dir: dir.to_owned() });
        }
        let journal = Store::create_journal(disk, &dir.join("journal"), settings)?;
        let manifest =
            Manifest { generation: 1, journal: Some(journal), next_part: 1, ..Manifest::default() };
        manifest_file.replace(&manifest.write())
    }

    /// Opens a store, whatever happened to it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Store> {
        let storage = Arc::new(LocalBackend::new(Arc::clone(&disk), dir));
        Store::open_with_storage(disk, dir, storage, options)
    }

    /// Opens a store whose parts and series lie in another storage than its folder, which has its
    /// manifest, its journal and its quarantine. It is created as any other.
    pub fn open_with_storage(
        disk: Arc<dyn Disk>,
        dir: &Path,
        storage: Arc<dyn Storage>,
        options: &Options,
    ) -> Result<Store> {
        if !ManifestFile::exists(&*disk, dir)? {
            return Err(Error::NotFound { dir: dir.to_owned() });
        }
        let manifest_file = ManifestFile::open(Arc::clone(&disk), dir)?;
        let mut notes = Vec::new();
        let (mut manifest, are_alike) = open_manifest(&manifest_file, dir, &mut notes)?;
        for number in storage.part_numbers()? {
            if are_alike && !manifest.parts.contains_key(&number) {
                storage.remove_part(number)?;
            }
        }
        let (index, deleted) = SeriesIndex::load(&*storage, &manifest, options.limits, &mut notes)?;
        // Of damaged forms that are in no part either nothing is left; the next new ones take their
        // numbers.
        manifest.series = manifest.series.min(index.len() as u64);

        let supervisor = options.journal.supervisor.clone();
        let quarantine = Quarantine::open(Arc::clone(&disk), dir, supervisor)?;
        let journal = Journal::open(disk, &dir.join("journal"), &options.journal)?;
        let subscriber = open_subscriber(&journal, &manifest, dir, &mut notes)?;
        let producers = manifest.producers.clone();
        let forms = index.len() as u64;
        let state = StoreState {
            manifest: Arc::new(manifest),
            previous_manifests: Vec::new(),
            unreferenced_parts: Vec::new(),
            active_head: Arc::default(),
            sealing_head: None,
            open: HashMap::new(),
            warnings: notes,
            failure: None,
        };
        let inner = Arc::new(StoreInner {
            dir: dir.to_owned(),
            storage,
            manifest_file,
            journal,
            index: Arc::new(RwLock::new(index)),
            stored_keys: AtomicU64::new(forms),
            keys_lock: Mutex::default(),
            admission: RwLock::default(),
            deleted_keys: Mutex::default(),
            feed: Mutex::new(subscriber),
            is_feed_interrupted: AtomicBool::new(false),
            quarantine: Mutex::new(quarantine),
            producers: Mutex::new(producers),
            evicted_sequences: AtomicU64::new(0),
            head_bytes: AtomicUsize::new(0),
            last_append_time: AtomicI64::new(i64::MIN),
            unread_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            work: Mutex::new(()),
            options: options.clone(),
            stop: AtomicBool::new(false),
            deferred_work: Mutex::default(),
            wake: (Mutex::new(false), Condvar::new()),
        });
        inner.retain_keys(deleted)?;
        // On a full disk nothing can be sealed, and what was acknowledged is wanted all the same.
        if let Err(error) = inner.drain_journal() {
            inner.add_warning(format!("opening: {error}"));
            inner.catch_up()?;
        }
        let thread = match options.has_background_thread {
            true => Some(spawn_thread(&inner)?),
            false => None,
        };
        Ok(Store { inner, thread })
    }

    /// Takes a batch in, and answers when it has reached the level. With an identity, a repeat is
    /// recognised and counted once, also after a restart. Series that are named by id only must be
    /// known; if one that is new is beyond a limit, nothing of the batch is taken.
    pub fn ingest(
        &self,
        identity: Option<BatchIdentity>,
        batch: &Batch,
        level: Level,
    ) -> Result<Ack> {
        let producer = identity.map(|identity| identity.producer);
        let mut new = NewSeries::default();
        for entry in batch.read() {
            let entry = entry?;
            if let SeriesRef::Key(form) = entry.series
                && entry.starts_group
            {
                self.inner.check_batch(form, producer, &mut new)?;
            }
        }
        self.inner.ingest(identity, batch, level)
    }

    /// Takes a batch in whose new series were admitted ([`Store::admit`]): as [`Store::ingest`],
    /// beyond any limit.
    pub fn ingest_checked(
        &self,
        identity: Option<BatchIdentity>,
        batch: &Batch,
        level: Level,
    ) -> Result<Ack> {
        self.inner.ingest(identity, batch, level)
    }

    /// Whether a batch of that identity would be a repeat.
    pub fn has_taken(&self, identity: BatchIdentity) -> Result<bool> {
        self.inner.has_taken(identity)
    }

    /// Whether a series of that form is known, or may be taken in as one of `producer`. `batch` has
    /// the new series that came before it in the same batch, and then it too. Batches that are
    /// appended at the same time do not see one another's new series: together they may be that
    /// much beyond a limit.
    pub fn check_batch(&self, form: &[u8], producer: u64, batch: &mut NewSeries) -> Result<()> {
        self.inner.check_batch(form, Some(producer), batch)
    }

    /// Reads what the journal has that is not in the head yet.
    pub fn catch_up(&self) -> Result<()> {
        self.inner.catch_up()
    }

    /// Whether there is a store in a folder, though parts of it may be damaged or missing.
    pub fn exists(disk: &Arc<dyn Disk>, dir: &Path) -> Result<bool> {
        ManifestFile::exists(&**disk, dir)
    }

    /// What can be read now: all that was acknowledged before.
    pub fn view(&self) -> Result<ReadView> {
        self.inner.catch_up()?;
        Ok(ReadView::new(Arc::clone(&self.inner)))
    }

    /// Does what is due: feeds, seals, rolls up, puts together, drops what is kept no longer. Says
    /// whether anything changed on disk.
    pub fn maintain(&self) -> Result<bool> {
        self.inner.maintain()
    }

    /// Brings everything in memory into parts.
    pub fn seal(&self) -> Result<()> {
        let _work = lock(&self.inner.work);
        self.inner.seal().map(|_| ())
    }

    /// Replaces the rules by which rows are kept. The first rule that names a row's resolution and
    /// matches its series counts; without one it is kept for ever.
    pub fn set_retention(&self, keep: Vec<RetentionRule>) -> Result<()> {
        let _work = lock(&self.inner.work);
        if let Some(rule) = keep.iter().find(|rule| rule.duration.is_some_and(|ns| ns <= 0)) {
            let found = format!("{} ns", rule.duration.unwrap_or_default());
            return Err(Error::InvalidSetting {
                name: "a duration",
                found,
                expected: "more than nothing",
            });
        }
        StoreChange::new(&self.inner)?.commit(|manifest| manifest.retention = keep)
    }

    /// Deletes rows of matching series that ended within `[from, to)`, at every resolution.
    pub fn delete(
        &self,
        selector: &Selector,
        range: std::ops::Range<i64>,
    ) -> Result<DeletionResult> {
        let _work = lock(&self.inner.work);
        self.inner.seal()?;
        let series = self.inner.index().select(selector);
        let deleted = self.inner.delete(selector, range);
        // While it went on it looked at parts of before.
        self.inner.remove_unreferenced();
        let mut deleted = deleted?;
        deleted.series = self.inner.forget_empty_series(series)?;
        Ok(deleted)
    }

    /// What there is how many of.
    pub fn cardinality(&self, top: usize) -> Result<Cardinality> {
        self.inner.catch_up()?;
        Ok(self.inner.index().cardinality(top))
    }

    /// What it is like now.
    pub fn stat(&self) -> Result<StoreStat> {
        self.inner.stat()
    }

    pub(crate) fn inner(&self) -> &StoreInner {
        &self.inner
    }

    /// The journal that feeds it.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// Bytes of memory that rows in no part take, and about those that they will take which are
    /// only in the journal. Costs nothing to ask.
    pub fn head_and_pending_bytes(&self) -> usize {
        let unread = self.inner.unread_bytes.load(Ordering::Relaxed);
        self.inner.head_bytes.load(Ordering::Relaxed).saturating_add(unread)
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The canonical form of a series, if the store knows it.
    pub fn key(&self, id: &model::SeriesId) -> Option<Vec<u8>> {
        let find = || {
            let index = self.inner.index();
            let found = index.number(id).map(|number| index.key(number).to_owned());
            drop(index);
            found.or_else(|| lock(&self.inner.deleted_keys).key(id))
        };
        // It may have been acknowledged and not been read yet. If that fails, it says so elsewhere.
        find().or_else(|| self.inner.catch_up().ok().and_then(|()| find()))
    }
}

/// The manifest, made whole if its copies differ, and whether they are alike now.
fn open_manifest(
    manifest_file: &ManifestFile,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<(Manifest, bool)> {
    let found = manifest_file.read()?.ok_or_else(|| Error::NotFound { dir: dir.to_owned() })?;
    let (bytes, mut are_alike) = found;
    let manifest = Manifest::open(&bytes, dir)?;
    if !are_alike {
        // A crash came between them, or one is damaged. Both say the same before parts go that one
        // still names: it may be the only one some day.
        let written = manifest_file.replace(&bytes);
        are_alike = written.is_ok();
        notes.push(match written {
            Ok(()) => "the copies of the manifest differed; both are the newer one now".to_owned(),
            Err(error) => format!("one copy of the manifest is damaged or old: {error}"),
        });
    }
    Ok((manifest, are_alike))
}

/// The subscriber that feeds the store, at the manifest's position or later.
fn open_subscriber(
    journal: &Journal,
    manifest: &Manifest,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<Subscriber> {
    let found = journal.stat()?.id;
    // Of its own checkpoint the store says itself what became of it.
    let of_journal = journal.recovery_report().damaged_files.iter();
    notes.extend(of_journal.filter(|note| !note.starts_with("checkpoint ")).cloned());
    if let Some(expected) = manifest.journal.filter(|&expected| expected != found) {
        return Err(Error::WrongJournal { dir: dir.join("journal"), found, expected });
    }
    let mut subscriber = match journal.subscribe(SUBSCRIBER) {
        // What it says is in the manifest too, which is never ahead of it.
        Err(
            lost @ (journal::Error::NoCheckpoint { .. } | journal::Error::CheckpointCorrupt { .. }),
        ) => {
            let start = StartPosition::At(manifest.position);
            match lost {
                journal::Error::NoCheckpoint { .. } => {
                    journal.add_subscriber(SUBSCRIBER, start, true)?
                }
                _ => journal.set_checkpoint(SUBSCRIBER, start)?,
            };
            notes.push(format!(
                "{lost}; it was made anew from the manifest, at position {}",
                manifest.position
            ));
            journal.subscribe(SUBSCRIBER)?
        }
        found => found?,
    };
    if subscriber.position() < manifest.position {
        subscriber.seek(manifest.position)?;
    }
    Ok(subscriber)
}

/// Starts the thread that keeps the store in order.
fn spawn_thread(inner: &Arc<StoreInner>) -> Result<JoinHandle<()>> {
    let thread = inner.supervisor().thread("store");
    let dir = inner.dir().to_owned();
    let inner = Arc::clone(inner);
    let run = move || {
        let is_stopping = || inner.stop.load(Ordering::Relaxed);
        let _ = thread.run(is_stopping, || inner.run());
    };
    let spawned = std::thread::Builder::new().name("store".to_owned()).spawn(run);
    spawned.map_err(|source| Error::Io { path: dir, action: "start a thread for it", source })
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        self.inner.wake();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: what it met stands in the notes.
            let _ = thread.join();
        }
    }
}

impl StoreInner {
    /// Whether a batch is contained already, or will be when the journal was read.
    fn has_taken(&self, identity: BatchIdentity) -> Result<bool> {
        Ok(lock(&self.producers).contains(identity) || self.journal.has_accepted(identity)?)
    }

    fn ingest(&self, identity: Option<BatchIdentity>, batch: &Batch, level: Level) -> Result<Ack> {
        self.check_running()?;
        let _admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
        self.check_known_series(batch)?;
        let heard = identity.is_some_and(|identity| lock(&self.producers).contains(identity));
        if heard {
            let end = self.journal.watermarks().end;
            let level = self.journal.flush(level).map(|_| level)?;
            return Ok(Ack { positions: end..end, level, is_duplicate: true });
        }
        let ack = self.journal.append_batch(identity, &[batch.bytes()], level)?;
        if !ack.is_duplicate {
            self.unread_bytes.fetch_add(batch.bytes().len(), Ordering::Relaxed);
        }
        self.wake();
        Ok(ack)
    }

    fn check_batch(&self, form: &[u8], producer: Option<u64>, batch: &mut NewSeries) -> Result<()> {
        if !batch.is_current && self.index().number(&SeriesId::from_canonical_key(form)).is_none() {
            // What was acknowledged and not read yet counts: otherwise limits hold nothing back
            // while nobody asks.
            self.catch_up()?;
            batch.is_current = true;
        }
        self.index().check_insert(form, producer, batch)?;
        Ok(())
    }

    /// Whether all series are known that a batch names by number, and its values are of their
    /// kinds.
    fn check_known_series(&self, batch: &Batch) -> Result<()> {
        let mut is_current = false;
        let mut named: Option<SeriesNumber> = None;
        let mut index = self.index();
        for entry in batch.read() {
            let entry = entry?;
            let SeriesRef::Id(id) = entry.series else { continue };
            if !entry.starts_group {
                continue;
            }
            let mut number = index.number(&id);
            if number.is_none() && !is_current {
                is_current = true;
                drop(index);
                self.catch_up()?;
                index = self.index();
                number = index.number(&id);
            }
            let number = number.ok_or(Error::UnknownSeries { id })?;
            named = named.max(Some(number));
            let kind = index.kind(number);
            if !entry.has_kind(kind) {
                let (series, kind) = (index.series(number).to_string(), kind.name());
                let found = "another kind of value";
                return Err(model::Error::Kind { series, kind, found }.into());
            }
        }
        drop(index);
        // From here on the form is in one record of the journal only, until rows are sealed: if
        // that is damaged, nobody would know whose all the others are. Where there is no room for
        // it, that risk is taken. Relaxed: of a number that is stored here its form was appended
        // before, by whoever stored it.
        let kept = self.stored_keys.load(Ordering::Relaxed);
        if named.is_some_and(|number| u64::from(number.0) >= kept) {
            let _ = self.append_keys(false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use journal::WallClock;
    use model::Series;
    use sim::SimDisk;

    use super::*;

    #[test]
    fn close_interrupts_a_rollup() {
        use crate::resolution::DAY;

        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let clock: WallClock = Arc::new(|| 9 * DAY);
        let options = Options { has_background_thread: false, clock, ..Options::default() };
        let store = Store::open(Arc::clone(&disk), Path::new("/store"), &options).unwrap();
        let series = Series::new("load", model::SeriesKind::Gauge).validate().unwrap();
        let mut batch = model::BatchWriter::default();
        batch.series(&series);
        let value = model::SampleValue::Number(1.0);
        batch.sample(&model::Sample { start: DAY, end: DAY, value }).unwrap();
        let _ack = store.ingest(None, &batch.finish(), Level::Disk).unwrap();
        store.seal().unwrap();
        let before = disk.list(Path::new("/store/parts")).unwrap();
        store.inner().stop.store(true, Ordering::Relaxed);
        assert!(matches!(store.maintain(), Err(Error::Closing)));
        assert_eq!(disk.list(Path::new("/store/parts")).unwrap(), before, "what was begun is gone");
        drop(store);
        let store = Store::open(disk, Path::new("/store"), &options).unwrap();
        assert!(store.maintain().unwrap());
        assert_eq!(store.stat().unwrap().parts.len(), 4, "a day of one row has three rollups");
    }
}
