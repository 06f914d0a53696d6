//! Store handle: ingest, views, maintenance.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;

use disk::{Disk, IoContext};
use journal::{Ack, BatchIdentity, Journal, Level, StartPosition, Subscriber};
use model::selector::kind_name;
use model::{Batch, BatchSeries, Selector, SeriesId};

use crate::backend::{Storage, StorageReader};
use crate::change::StoreChange;
use crate::error::{Error, Result};
use crate::exemplars::{ExemplarFile, Reservoir};
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
use crate::traces::TraceStore;
use crate::view::ReadView;

/// Seed of the sampling of exemplars. It must not change: a file of exemplars was sampled with it.
const EXEMPLAR_SEED: u64 = 0x7464_6578_656d_706c;

/// Time-series store. One process can have it open at a time; it can be used from many threads.
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
    /// Creates a store in a directory, with its journal in subdirectory `journal`.
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, settings: &journal::Settings) -> Result<()> {
        let manifest_file = ManifestFile::open(Arc::clone(disk), dir)?;
        let storage = LocalBackend::new(Arc::clone(disk), dir);
        // Parts without a manifest are the rest of a damaged store: no new store may replace them.
        if ManifestFile::exists(&**disk, dir)? || !storage.part_numbers()?.is_empty() {
            return Err(Error::AlreadyExists { dir: dir.to_owned() });
        }
        let journal = Store::create_journal(disk, &dir.join("journal"), settings)?;
        let manifest =
            Manifest { generation: 1, journal: Some(journal), next_part: 1, ..Manifest::default() };
        manifest_file.replace(&manifest.write())
    }

    /// Opens a store and recovers it from any crash.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Store> {
        let storage = Arc::new(LocalBackend::new(Arc::clone(&disk), dir));
        Store::open_with_storage(disk, dir, storage, options)
    }

    /// Opens a store with parts and series in another storage than its directory, which holds the
    /// manifest, the journal and the quarantine. It is created like any other.
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
        // Corrupt keys that no part has either are lost; the next new series take their numbers.
        manifest.series = manifest.series.min(index.len() as u64);

        let supervisor = options.journal.supervisor.clone();
        let quarantine = Quarantine::open(Arc::clone(&disk), dir, supervisor)?;
        let exemplar_file = ExemplarFile::new(Arc::clone(&disk), dir);
        let mut exemplars = Reservoir::new(options.exemplars, EXEMPLAR_SEED);
        // The journal of a restored store is new.
        let is_restored = manifest.position == 0 && !manifest.parts.is_empty();
        let opened_at = (options.clock)();
        notes.extend(exemplar_file.read_into(&mut exemplars, (opened_at, is_restored)));
        let journal = Journal::open(Arc::clone(&disk), &dir.join("journal"), &options.journal)?;
        let kept = (options.traces, journal.id());
        let traces = TraceStore::open(disk, dir, kept, &mut notes);
        let subscriber = open_subscriber(&journal, &manifest, dir, &mut notes)?;
        let producers = manifest.producers.clone();
        let keys = index.len() as u64;
        let state = StoreState {
            manifest: Arc::new(manifest),
            previous_manifests: Vec::new(),
            unreferenced_parts: Vec::new(),
            active_head: Arc::default(),
            immutable_head: None,
            open: HashMap::new(),
            flushed_heads: HashMap::new(),
            warnings: notes,
            failure: None,
        };
        let inner = Arc::new(StoreInner {
            dir: dir.to_owned(),
            storage,
            manifest_file,
            journal,
            index: Arc::new(RwLock::new(index)),
            stored_keys: AtomicU64::new(keys),
            keys_lock: Mutex::default(),
            admission: RwLock::default(),
            deleted_keys: Mutex::default(),
            subscriber: Mutex::new(subscriber),
            is_reading_interrupted: AtomicBool::new(false),
            quarantine: Mutex::new(quarantine),
            exemplars: Mutex::new(exemplars),
            exemplar_file,
            traces: Mutex::new(traces),
            trace_parts: Mutex::new(()),
            producers: Mutex::new(producers),
            evicted_sequences: AtomicU64::new(0),
            head_bytes: AtomicUsize::new(0),
            flush_rate: AtomicU64::new(0),
            last_append_time: AtomicI64::new(i64::MIN),
            unread_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            work: Mutex::new(()),
            commit: Mutex::new(()),
            options: options.clone(),
            stop: AtomicBool::new(false),
            deferred_work: Mutex::default(),
            retention_checks: Mutex::default(),
            wake: (Mutex::new(false), Condvar::new()),
        });
        inner.retain_keys(deleted)?;
        // A full disk prevents flushing; acknowledged data must be readable anyway.
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

    /// Ingests a batch; returns when it has reached the durability level. With an identity, a retry
    /// is recognised and counted once, also after a restart. Series that are named by id only must
    /// be known. If a new series exceeds a limit, the whole batch is rejected.
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
            if let BatchSeries::Key(canonical_key) = entry.series
                && entry.starts_group
            {
                self.inner.check_batch(canonical_key, producer, &mut new)?;
            }
        }
        Ok(self.inner.ingest(identity, batch, level)?.0)
    }

    /// Ingests a batch whose new series were admitted with [`Store::check_batch`]: same as
    /// [`Store::ingest`] without limit checks. Returns whether its exemplars and traces are
    /// dropped, too, because the manifest does not say yet that the journal has some.
    pub fn ingest_checked(
        &self,
        identity: Option<BatchIdentity>,
        batch: &Batch,
        level: Level,
    ) -> Result<(Ack, bool)> {
        self.inner.ingest(identity, batch, level)
    }

    /// Whether a batch with this identity would be a duplicate.
    pub fn has_taken(&self, identity: BatchIdentity) -> Result<bool> {
        self.inner.has_taken(identity)
    }

    /// Sequence of the last batch of a producer epoch, contained or acknowledged: later ones are no
    /// duplicates.
    pub fn last_sequence(&self, producer: u64, epoch: u64) -> Result<Option<u64>> {
        let contained = lock(&self.inner.producers).last_sequence(producer, epoch);
        Ok(contained.max(self.inner.journal.last_sequence(producer, epoch)?))
    }

    /// Checks whether a series with this key is known or may be inserted for `producer`. `batch`
    /// holds the new series before it in the same batch, and afterwards this one. Concurrent
    /// batches do not see each other's new series and may together exceed a limit by that many.
    pub fn check_batch(
        &self,
        canonical_key: &[u8],
        producer: u64,
        batch: &mut NewSeries,
    ) -> Result<()> {
        self.inner.check_batch(canonical_key, Some(producer), batch)
    }

    /// Reads the rest of the journal into the head.
    pub fn catch_up(&self) -> Result<()> {
        self.inner.catch_up()
    }

    /// Whether a directory holds a store, even if parts of it are damaged or missing.
    pub fn exists(disk: &Arc<dyn Disk>, dir: &Path) -> Result<bool> {
        ManifestFile::exists(&**disk, dir)
    }

    /// Read view of everything acknowledged before.
    pub fn view(&self) -> Result<ReadView> {
        self.inner.catch_up()?;
        Ok(ReadView::new(Arc::clone(&self.inner)))
    }

    /// Runs due maintenance: reading the journal, flush, rollups, compaction, retention. Returns
    /// whether anything changed on disk.
    pub fn maintain(&self) -> Result<bool> {
        self.inner.maintain()
    }

    /// Flushes everything in memory to parts. Afterwards, earlier releases can open the store.
    pub fn flush(&self) -> Result<()> {
        let _work = lock(&self.inner.work);
        self.inner.flush()?;
        self.inner.clear_sections()
    }

    /// Replaces the retention rules. The first rule that names a row's resolution and matches its
    /// series applies; rows without a rule are retained forever.
    pub fn set_retention(&self, keep: Vec<RetentionRule>) -> Result<()> {
        let _work = lock(&self.inner.work);
        if let Some(rule) = keep.iter().find(|rule| rule.duration.is_some_and(|ns| ns <= 0)) {
            let found = format!("{} ns", rule.duration.unwrap_or_default());
            return Err(Error::InvalidSetting {
                name: "retention",
                found,
                expected: "more than 0",
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
        self.inner.flush()?;
        let series = self.inner.index().select(selector);
        self.delete_selected(series, range)
    }

    /// Deletes rows of series by id, as [`Self::delete`] does; unknown ids are skipped.
    pub fn delete_series(
        &self,
        ids: &BTreeSet<SeriesId>,
        range: std::ops::Range<i64>,
    ) -> Result<DeletionResult> {
        let _work = lock(&self.inner.work);
        self.inner.flush()?;
        let series = {
            let index = self.inner.index();
            ids.iter().filter_map(|id| index.number(id)).collect()
        };
        self.delete_selected(series, range)
    }

    /// The caller holds the mutex `work`, and has flushed.
    fn delete_selected(
        &self,
        series: Vec<SeriesNumber>,
        range: std::ops::Range<i64>,
    ) -> Result<DeletionResult> {
        let ids: BTreeSet<SeriesId> = {
            let index = self.inner.index();
            series.iter().map(|&number| index.id(number)).collect()
        };
        // If they cannot be deleted, nothing is, and the caller repeats it.
        self.inner.delete_exemplars(&|id| ids.contains(id), &range)?;
        let deleted = self.inner.delete(&ids, range);
        // Reads during the deletion opened earlier parts.
        self.inner.remove_unreferenced();
        let mut deleted = deleted?;
        deleted.series = self.inner.forget_empty_series(series)?;
        Ok(deleted)
    }

    /// Cardinality statistics.
    pub fn cardinality(&self, top: usize) -> Result<Cardinality> {
        self.inner.catch_up()?;
        Ok(self.inner.index().cardinality(top))
    }

    /// Current state.
    pub fn stat(&self) -> Result<StoreStat> {
        self.inner.stat()
    }

    pub(crate) fn inner(&self) -> &StoreInner {
        &self.inner
    }

    /// The journal that feeds the store.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// Memory of rows that are in no part, in bytes, plus an estimate for those that are only in
    /// the journal. Cheap.
    pub fn head_and_pending_bytes(&self) -> usize {
        let unread = self.inner.unread_bytes.load(Ordering::Relaxed);
        self.inner.head_bytes.load(Ordering::Relaxed).saturating_add(unread)
    }

    /// Bytes of rows in memory that the last flush wrote to disk per second; `None` before the
    /// first.
    pub fn flush_rate(&self) -> Option<u64> {
        Some(self.inner.flush_rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Options it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Canonical key of a series, if known.
    pub fn key(&self, id: &model::SeriesId) -> Option<Vec<u8>> {
        let find = || {
            let index = self.inner.index();
            let found = index.number(id).map(|number| index.key(number).to_owned());
            drop(index);
            found.or_else(|| lock(&self.inner.deleted_keys).key(id))
        };
        // The series may be acknowledged and not read yet. A failure is reported elsewhere.
        find().or_else(|| self.inner.catch_up().ok().and_then(|()| find()))
    }
}

/// Reads the manifest and repairs differing copies; returns whether the copies are now equal.
fn open_manifest(
    manifest_file: &ManifestFile,
    dir: &Path,
    notes: &mut Vec<String>,
) -> Result<(Manifest, bool)> {
    let found = manifest_file.read()?.ok_or_else(|| Error::NotFound { dir: dir.to_owned() })?;
    let (bytes, mut are_alike) = found;
    let manifest = Manifest::open(&bytes, dir)?;
    if !are_alike {
        // A crash came between the two writes, or one copy is damaged. Both copies must be equal
        // before parts are removed that only one of them names.
        let written = manifest_file.replace(&bytes);
        are_alike = written.is_ok();
        notes.push(match written {
            Ok(()) => "manifest copies differed; the newer was written to both".to_owned(),
            Err(error) => format!("one manifest copy is corrupt or old: {error}"),
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
    // The store reports damage of its own checkpoint itself.
    let of_journal = journal.recovery_report().damaged_files.iter();
    notes.extend(of_journal.filter(|note| !note.starts_with("checkpoint ")).cloned());
    if let Some(expected) = manifest.journal.filter(|&expected| expected != found) {
        return Err(Error::WrongJournal { dir: dir.join("journal"), found, expected });
    }
    let mut subscriber = match journal.subscribe(SUBSCRIBER) {
        // The manifest holds the position too and is never ahead of the checkpoint.
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
                "{lost}; recreated from the manifest at position {}",
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

/// Starts the maintenance thread.
fn spawn_thread(inner: &Arc<StoreInner>) -> Result<JoinHandle<()>> {
    let thread = inner.supervisor().thread("store");
    let dir = inner.dir().to_owned();
    let inner = Arc::clone(inner);
    let run = move || {
        let is_stopping = || inner.stop.load(Ordering::Relaxed);
        let _ = thread.run(is_stopping, || inner.run());
    };
    let spawned = std::thread::Builder::new().name("store".to_owned()).spawn(run);
    Ok(spawned.io_context("start a thread for", &dir)?)
}

impl Drop for Store {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        self.inner.wake();
        if let Some(thread) = self.thread.take() {
            // Its errors are in the warnings.
            let _ = thread.join();
        }
    }
}

impl StoreInner {
    /// Whether a batch is contained, or will be once the journal is read.
    fn has_taken(&self, identity: BatchIdentity) -> Result<bool> {
        Ok(lock(&self.producers).contains(identity) || self.journal.has_accepted(identity)?)
    }

    /// Returns whether exemplars and traces are dropped, too.
    fn ingest(
        &self,
        identity: Option<BatchIdentity>,
        batch: &Batch,
        level: Level,
    ) -> Result<(Ack, bool)> {
        self.check_running()?;
        let has_sections = batch.has_sections();
        let (_admission, batch) = self.admit(batch)?;
        let batch = &*batch;
        self.check_known_series(batch)?;
        let is_duplicate =
            identity.is_some_and(|identity| lock(&self.producers).contains(identity));
        if is_duplicate {
            let end = self.journal.watermarks().end;
            let level = self.journal.flush(level).map(|_| level)?;
            return Ok((Ack { positions: end..end, level, is_duplicate: true }, false));
        }
        let ack = self.journal.append_batch(identity, &[batch.bytes()], level)?;
        if !ack.is_duplicate {
            self.unread_bytes.fetch_add(batch.bytes().len(), Ordering::Relaxed);
        }
        self.wake();
        Ok((ack, has_sections && !batch.has_sections()))
    }

    fn check_batch(
        &self,
        canonical_key: &[u8],
        producer: Option<u64>,
        batch: &mut NewSeries,
    ) -> Result<()> {
        if !batch.is_current
            && self.index().number(&SeriesId::from_canonical_key(canonical_key)).is_none()
        {
            // Records acknowledged and not read yet count; otherwise the limits would have no
            // effect between reads.
            self.catch_up()?;
            batch.is_current = true;
        }
        self.index().check_insert(canonical_key, producer, batch)?;
        Ok(())
    }

    /// Checks that all series that a batch names by id are known, and that its values match their
    /// kinds.
    fn check_known_series(&self, batch: &Batch) -> Result<()> {
        let mut is_current = false;
        let mut named: Option<SeriesNumber> = None;
        let mut index = self.index();
        for entry in batch.read() {
            let entry = entry?;
            let BatchSeries::Id(id) = entry.series else { continue };
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
            if !entry.fits(kind) {
                let (series, kind) = (index.series(number).to_string(), kind_name(kind));
                let found = "another kind of value";
                return Err(model::Error::Kind { series, kind, found }.into());
            }
        }
        drop(index);
        // From here on the key is in one journal record only, until rows are flushed: if that
        // record is damaged, the series of all later rows is unknown. So the key is appended to the
        // series file, unless the disk is full. Relaxed: if a number is stored here, its writer
        // appended its key before.
        let key_count = self.stored_keys.load(Ordering::Relaxed);
        if named.is_some_and(|number| u64::from(number.0) >= key_count) {
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
        store.flush().unwrap();
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
