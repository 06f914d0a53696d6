//! Store handle: ingest, views, maintenance.
//!
//! Locks, in the order in which they are taken: `work` (who changes parts), `admission` (who appends
//! to the journal shares it, who deletes series has it alone), `feed` (who reads the journal),
//! `state`, a head, the index, `producers` (whose batches were read), `quarantine`. Only who has
//! `feed` changes the producers, so that with it the position and they are of one moment; an
//! acknowledgement looks at them without it, and waits for nobody who reads.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::Disk;
use journal::supervisor::catch_panic;
use journal::{
    Ack, BatchIdentity, Journal, Level, StartPosition, Subscriber, Supervisor, WallClock,
};
use model::{Batch, Gap, Selector, Series, SeriesId, SeriesRef};

use crate::backend::{Backend, Part};
use crate::change::StoreChange;
use crate::check::ScrubCursor;
use crate::deleted_series::DeletedSeriesKeys;
use crate::error::{Error, Result};
use crate::head::Head;
use crate::index::{Cardinality, CardinalityLimits, NewSeries, SeriesIndex, SeriesNumber};
use crate::local_backend::LocalBackend;
use crate::manifest::{Manifest, PartInfo, ProducerTable, RetentionRule};
use crate::quarantine::{ATTEMPTS_MAX, Quarantine};
use crate::resolution::MINUTE;
use crate::seal::SealingHead;
use crate::view::ReadView;

/// The journal's subscriber that feeds the store.
pub(crate) const SUBSCRIBER: &str = "store";
/// Parts that are kept open at the most: each is a file.
const OPEN_MAX: usize = 256;

/// How a store is opened; what is chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// Rows in memory take about this many bytes at the most before they are sealed: 128 MiB by default.
    /// Sealed early, they are in smaller chunks, which take more room until they are put together.
    pub head_bytes_max: usize,
    /// How long after the end of a partition rows are waited for before it is sealed or rolled up: ten minutes
    /// by default, in nanoseconds. What comes later is right too, and costs more.
    pub late_grace: i64,
    /// How many series, and values of a label, are taken.
    pub limits: CardinalityLimits,
    /// How many bytes of parts the thread looks at in a second, over and over: 1 MiB by default, none if 0.
    /// What it finds damaged stands in the notes of [`Stat`].
    pub scrub_bytes_per_second: u64,
    /// A thread of its own feeds the store and keeps it in order: `true` by default. Otherwise whoever has it
    /// calls [`Store::maintain`].
    pub has_background_thread: bool,
    /// How the journal is opened.
    pub journal: journal::Options,
    /// Where times come from.
    pub clock: WallClock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            head_bytes_max: 128 << 20,
            late_grace: 10 * MINUTE,
            limits: CardinalityLimits::default(),
            scrub_bytes_per_second: 1 << 20,
            has_background_thread: true,
            journal: journal::Options { is_exclusive: true, ..journal::Options::default() },
            clock: journal::wall_clock(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("head_bytes_max", &self.head_bytes_max)
            .finish_non_exhaustive()
    }
}

/// A time-series store. One process has it open at a time; it may be used from many threads.
pub struct Store {
    inner: Arc<StoreInner>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("backend", &self.inner.backend).finish_non_exhaustive()
    }
}

/// What a store is like at one moment.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Series that are known.
    pub series: u64,
    /// Bytes of memory that knowing them takes.
    pub index_bytes: u64,
    /// Rows that are only in memory and in the journal.
    pub head_rows: u64,
    /// Bytes of memory that they take.
    pub head_bytes: u64,
    /// Parts.
    pub parts: Vec<PartInfo>,
    /// What is known to be missing.
    pub gaps: Vec<Gap>,
    /// How long rows are kept.
    pub retention: Vec<RetentionRule>,
    /// What opening found damaged, and what the last maintenance met.
    pub warnings: Vec<String>,
    /// Last sequences of producers that were forgotten because there were too many, since it was
    /// opened. A retry of those counts again.
    pub evicted_sequences: u64,
    /// The journal.
    pub journal: journal::JournalStat,
}

pub(crate) struct StoreInner {
    dir: PathBuf,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) journal: Journal,
    pub(crate) index: Arc<RwLock<SeriesIndex>>,
    /// Forms that the file of series has.
    stored_keys: AtomicU64,
    /// Held while more are appended.
    keys_lock: Mutex<()>,
    /// Between the look at the index and the append: a series that a batch names by number must not go meanwhile.
    pub(crate) admission: RwLock<()>,
    /// Deleted series that batches in the journal may still name by number.
    pub(crate) deleted_keys: Mutex<DeletedSeriesKeys>,
    pub(crate) feed: Mutex<Subscriber>,
    /// Whoever read the journal last has not ended in order: the head may have half of a record.
    pub(crate) is_feed_interrupted: AtomicBool,
    /// Inputs that are left out.
    pub(crate) quarantine: Mutex<Quarantine>,
    /// Which batches were read of the journal.
    pub(crate) producers: Mutex<ProducerTable>,
    /// Sequences that were forgotten because there were too many.
    pub(crate) evicted_sequences: AtomicU64,
    /// Bytes of memory that rows in heads take, as of the last record read.
    pub(crate) head_bytes: AtomicUsize,
    /// When the batch that was read last was appended; the smallest number before there is one.
    pub(crate) last_append_time: AtomicI64,
    /// Bytes of batches that were appended and are not read yet, about.
    pub(crate) unread_bytes: AtomicUsize,
    state: Mutex<StoreState>,
    pub(crate) work: Mutex<()>,
    pub(crate) options: Options,
    stop: AtomicBool,
    /// Work of maintenance that panicked, and when it is tried again.
    deferred_work: Mutex<HashMap<String, WorkBackoff>>,
    /// Told when there is something to do.
    wake: (Mutex<bool>, Condvar),
}

/// Backoff of maintenance work that panicked.
#[derive(Clone, Copy)]
struct WorkBackoff {
    /// When it began, in nanoseconds since the Unix epoch.
    since: i64,
    wait: Duration,
    panics: u32,
}

impl WorkBackoff {
    /// Whether it is over. A clock that was set back ends it.
    fn has_elapsed(self, now: i64) -> bool {
        let wait = i64::try_from(self.wait.as_nanos()).unwrap_or(i64::MAX);
        !(0..wait).contains(&now.saturating_sub(self.since))
    }
}

pub(crate) struct StoreState {
    pub(crate) manifest: Arc<Manifest>,
    /// Manifests that a view may still hold, with their generations.
    previous_manifests: Vec<(u64, Weak<Manifest>)>,
    /// Parts that the manifest does not name any more, and the generation that took them away.
    unreferenced_parts: Vec<(u64, u64)>,
    pub(crate) active_head: Arc<RwLock<Head>>,
    pub(crate) sealing_head: Option<SealingHead>,
    open: HashMap<u64, Arc<dyn Part>>,
    warnings: Vec<String>,
    failure: Option<String>,
}

impl StoreState {
    /// What opening found damaged, and what maintenance met.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The heads, the older first.
    pub(crate) fn heads(&self) -> Vec<Arc<RwLock<Head>>> {
        let sealing = self.sealing_head.as_ref().map(|sealing| Arc::clone(&sealing.head));
        sealing.into_iter().chain([Arc::clone(&self.active_head)]).collect()
    }
}

/// A lock whose owner panicked is taken all the same: what it guards is changed in single steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Makes a store in a folder, with its journal in the folder `journal` below it.
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, settings: &journal::Settings) -> Result<()> {
        let backend = LocalBackend::open(Arc::clone(disk), dir)?;
        // Parts without a manifest are what is left of one that was damaged: nothing may be made over them.
        if LocalBackend::is_store(&**disk, dir)? || !backend.parts()?.is_empty() {
            return Err(Error::AlreadyExists { dir: dir.to_owned() });
        }
        let journal = Store::create_journal(disk, &dir.join("journal"), settings)?;
        let manifest =
            Manifest { generation: 1, journal: Some(journal), next_part: 1, ..Manifest::default() };
        backend.set_manifest(&manifest.write())
    }

    /// Opens a store, whatever happened to it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Store> {
        if !LocalBackend::is_store(&*disk, dir)? {
            return Err(Error::NotFound { dir: dir.to_owned() });
        }
        let backend: Arc<dyn Backend> = Arc::new(LocalBackend::open(Arc::clone(&disk), dir)?);
        let mut notes = Vec::new();
        let found = backend.manifest()?.ok_or_else(|| Error::NotFound { dir: dir.to_owned() })?;
        let (bytes, mut are_alike) = found;
        let mut manifest = Manifest::open(&bytes, dir)?;
        if !are_alike {
            // A crash came between them, or one is damaged. Both say the same before parts go that one still
            // names: it may be the only one some day.
            let written = backend.set_manifest(&bytes);
            are_alike = written.is_ok();
            notes.push(match written {
                Ok(()) => {
                    "the copies of the manifest differed; both are the newer one now".to_owned()
                }
                Err(error) => format!("one copy of the manifest is damaged or old: {error}"),
            });
        }
        for number in backend.parts()? {
            if are_alike && !manifest.parts.contains_key(&number) {
                backend.remove(number)?;
            }
        }
        let (index, deleted) = SeriesIndex::load(&*backend, &manifest, options.limits, &mut notes)?;
        // Of damaged forms that are in no part either nothing is left; the next new ones take their numbers.
        manifest.series = manifest.series.min(index.len() as u64);

        let path = dir.join("journal");
        let supervisor = options.journal.supervisor.clone();
        let quarantine = Quarantine::open(Arc::clone(&disk), dir, supervisor)?;
        let journal = Journal::open(disk, &path, &options.journal)?;
        let found = journal.stat()?.id;
        // Of its own checkpoint the store says itself what became of it.
        let of_journal = journal.recovery_report().damaged_files.iter();
        notes.extend(of_journal.filter(|note| !note.starts_with("checkpoint ")).cloned());
        if let Some(expected) = manifest.journal.filter(|&expected| expected != found) {
            return Err(Error::WrongJournal { dir: path, found, expected });
        }
        let mut subscriber = match journal.subscribe(SUBSCRIBER) {
            // What it says is in the manifest too, which is never ahead of it.
            Err(
                lost @ (journal::Error::NoCheckpoint { .. }
                | journal::Error::CheckpointCorrupt { .. }),
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
            backend,
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
            true => {
                let inner = Arc::clone(&inner);
                let thread = inner.supervisor().thread("store");
                let run = move || {
                    let is_stopping = || inner.stop.load(Ordering::Relaxed);
                    let _ = thread.run(is_stopping, || inner.run());
                };
                let spawned = std::thread::Builder::new()
                    .name("store".to_owned())
                    .spawn(run)
                    .map_err(|source| Error::Io {
                        path: dir.to_owned(),
                        action: "start a thread for it",
                        source,
                    })?;
                Some(spawned)
            }
            false => None,
        };
        Ok(Store { inner, thread })
    }

    /// Takes a batch in, and answers when it has reached the level. With an identity, a repeat is recognised and
    /// counted once, also after a restart. Series that are named by id only must be known; if one that is new is
    /// beyond a limit, nothing of the batch is taken.
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

    /// Takes a batch in whose new series were admitted ([`Store::admit`]): as [`Store::ingest`], beyond any limit.
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

    /// Whether a series of that form is known, or may be taken in as one of `producer`. `batch` has the new series that
    /// came before it in the same batch, and then it too. Batches that are appended at the same time do not see one
    /// another's new series: together they may be that much beyond a limit.
    pub fn check_batch(&self, form: &[u8], producer: u64, batch: &mut NewSeries) -> Result<()> {
        self.inner.check_batch(form, Some(producer), batch)
    }

    /// Reads what the journal has that is not in the head yet.
    pub fn catch_up(&self) -> Result<()> {
        self.inner.catch_up()
    }

    /// Whether there is a store in a folder, though parts of it may be damaged or missing.
    pub fn exists(disk: &Arc<dyn Disk>, dir: &Path) -> Result<bool> {
        LocalBackend::is_store(&**disk, dir)
    }

    /// What can be read now: all that was acknowledged before.
    pub fn view(&self) -> Result<ReadView> {
        self.inner.catch_up()?;
        Ok(ReadView::new(Arc::clone(&self.inner)))
    }

    /// Does what is due: feeds, seals, rolls up, puts together, drops what is kept no longer. Says whether
    /// anything changed on disk.
    pub fn maintain(&self) -> Result<bool> {
        self.inner.maintain()
    }

    /// Brings everything in memory into parts.
    pub fn seal(&self) -> Result<()> {
        let _work = lock(&self.inner.work);
        self.inner.seal().map(|_| ())
    }

    /// Replaces the rules by which rows are kept. The first rule that names a row's resolution and matches its
    /// series counts; without one it is kept for ever.
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

    /// Bytes of memory that rows in no part take, and about those that they will take which are only in the journal.
    /// Costs nothing to ask.
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

/// Result of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionResult {
    /// Rows as they came that are gone.
    pub rows: u64,
    /// Rows of rollups that are gone although the rows they were made of had gone before.
    pub rollup_rows: u64,
    /// Rows of rollups that stay, because they reach beyond the range and what they were made of is gone.
    pub retained_rows: u64,
    /// Series of which nothing is left: they count for no limit any more.
    pub series: u64,
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
    pub(crate) fn state(&self) -> MutexGuard<'_, StoreState> {
        lock(&self.state)
    }

    /// The store's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, SeriesIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.options.journal.supervisor
    }

    pub(crate) fn now(&self) -> i64 {
        (self.options.clock)()
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match &self.state().failure {
            Some(why) => Err(Error::FailStop { reason: why.clone() }),
            None => Ok(()),
        }
    }

    /// An error once the store is being closed: long work ends here, and nothing of it has begun to
    /// count.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Closing),
            false => Ok(()),
        }
    }

    pub(crate) fn fail_stop(&self, why: &str) {
        self.state().failure.get_or_insert_with(|| why.to_owned());
    }

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
            // What was acknowledged and not read yet counts: otherwise limits hold nothing back while nobody asks.
            self.catch_up()?;
            batch.is_current = true;
        }
        self.index().check_insert(form, producer, batch)?;
        Ok(())
    }

    /// Whether all series are known that a batch names by number, and its values are of their kinds.
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

    /// Appends forms of series to their file that are not there yet; how many there are then. They
    /// survive the process, and a power cut too if that is asked for.
    pub(crate) fn append_keys(&self, durably: bool) -> Result<u64> {
        let _turn = lock(&self.keys_lock);
        let kept = self.stored_keys.load(Ordering::Relaxed);
        let series: Vec<(Option<u64>, Vec<u8>)> = {
            let index = self.index();
            let new = (kept..index.len() as u64).map(|number| SeriesNumber(number as u32));
            new.map(|number| (index.producer(number), index.key(number).to_owned())).collect()
        };
        self.backend.add_series(&series, durably)?;
        let kept = kept.saturating_add(series.len() as u64);
        self.stored_keys.store(kept, Ordering::Relaxed);
        Ok(kept)
    }

    /// An open part.
    pub(crate) fn part(&self, number: u64) -> Result<Arc<dyn Part>> {
        if let Some(part) = self.state().open.get(&number) {
            return Ok(Arc::clone(part));
        }
        let part = self.backend.open(number)?;
        let mut state = self.state();
        if state.open.len() >= OPEN_MAX {
            state.open.clear();
        }
        state.open.insert(number, Arc::clone(&part));
        Ok(part)
    }

    /// Makes a manifest the one that counts, and buries parts that it does not name.
    pub(crate) fn replace_manifest(&self, manifest: Manifest, removed: &[u64]) {
        let mut state = self.state();
        if state.sealing_head.as_ref().is_some_and(|sealing| sealing.position <= manifest.position)
        {
            state.sealing_head = None;
        }
        let generation = manifest.generation;
        let before = std::mem::replace(&mut state.manifest, Arc::new(manifest));
        state.previous_manifests.push((before.generation, Arc::downgrade(&before)));
        state.unreferenced_parts.extend(removed.iter().map(|&number| (generation, number)));
    }

    /// Removes parts that no view can ask for any more.
    pub(crate) fn remove_unreferenced(&self) {
        let removable: Vec<u64> = {
            let mut state = self.state();
            state.previous_manifests.retain(|(_, manifest)| manifest.strong_count() > 0);
            let oldest = state
                .previous_manifests
                .iter()
                .map(|&(generation, _)| generation)
                .min()
                .unwrap_or(u64::MAX);
            let dead = std::mem::take(&mut state.unreferenced_parts);
            let (removable, dead): (Vec<_>, Vec<_>) =
                dead.into_iter().partition(|&(generation, _)| generation <= oldest);
            state.unreferenced_parts = dead;
            removable.iter().for_each(|(_, number)| drop(state.open.remove(number)));
            removable.into_iter().map(|(_, number)| number).collect()
        };
        for number in removable {
            // No manifest names it: the next start removes it, if this does not.
            if let Err(error) = self.backend.remove(number) {
                self.add_warning(error.to_string());
            }
        }
    }

    fn maintain(&self) -> Result<bool> {
        let _work = lock(&self.work);
        self.check_running()?;
        let mut changed = self.drain_journal()?;
        let is_due = self.is_seal_due();
        if is_due || self.is_journal_nearly_full()? {
            self.catch_up()?;
            match self.seal_read() {
                // A day is rolled up when all that there is of it is sealed.
                Ok(sealed) if is_due && !sealed.is_complete => return Ok(true),
                Ok(sealed) => changed |= sealed.is_changed,
                // It is full on account of somebody else, and nothing is due.
                Err(Error::Journal(journal::Error::Full(_))) if !is_due => {}
                Err(error) => return Err(error),
            }
        }
        // What stands in the way of one, such as a part that cannot be read, is no reason to leave the others.
        let done = [self.run_due_rollups(), self.compact_parts(), self.drop_expired()];
        self.remove_unreferenced();
        if matches!(done[2], Ok(true)) {
            self.run_guarded("taking out series without rows", || {
                let all = self.index().select(&Selector::All);
                self.forget_empty_series(all).map(|series| series > 0)
            })?;
        }
        self.release_keys()?;
        for done in done {
            changed |= done?;
        }
        Ok(changed)
    }

    fn stat(&self) -> Result<StoreStat> {
        self.catch_up()?;
        let (series, index_bytes) = {
            let index = self.index();
            (index.live() as u64, index.memory_bytes() as u64)
        };
        let journal = self.journal.stat()?;
        let state = self.state();
        let (mut head_rows, mut head_bytes) = (0_u64, 0_u64);
        let mut gaps = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            head_rows = head_rows.saturating_add(head.rows());
            head_bytes = head_bytes.saturating_add(head.bytes() as u64);
            gaps.extend(head.gaps.iter().cloned());
        }
        Ok(StoreStat {
            series,
            index_bytes,
            head_rows,
            head_bytes,
            parts: state.manifest.parts.values().cloned().collect(),
            gaps,
            retention: state.manifest.retention.clone(),
            warnings: state.warnings.clone(),
            evicted_sequences: self.evicted_sequences.load(Ordering::Relaxed),
            journal,
        })
    }

    pub(crate) fn add_warning(&self, note: String) {
        const WARNINGS_MAX: usize = 64;
        let mut state = self.state();
        if !state.warnings.contains(&note) {
            if state.warnings.len() == WARNINGS_MAX {
                state.warnings.remove(0);
            }
            state.warnings.push(note);
        }
    }

    fn wake(&self) {
        *lock(&self.wake.0) = true;
        self.wake.1.notify_one();
    }

    /// Does a piece of maintenance, named for people. If it panics, that is an error like others,
    /// and whatever it was about is left alone for a minute, then for twice as long each time: what
    /// cannot be worked on must not keep the rest from being kept in order. Says `false` if it is
    /// left alone. From the third panic on it is told as quarantined, until it succeeds.
    pub(crate) fn run_guarded(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        const WAIT: Duration = Duration::from_secs(60);
        const WAIT_MAX: Duration = Duration::from_secs(3600);
        let (supervisor, now) = (self.supervisor(), self.supervisor().now());
        let rest = lock(&self.deferred_work).get(name).copied();
        if rest.is_some_and(|rest| !rest.has_elapsed(now)) {
            return Ok(false);
        }
        let work = || {
            supervisor.fault_point(format_args!("store {name}"));
            work()
        };
        match catch_panic(work) {
            Ok(done) => {
                if lock(&self.deferred_work).remove(name).is_some() {
                    supervisor.release(name);
                }
                done
            }
            Err(message) => {
                let wait = rest.map_or(WAIT, |rest| rest.wait.saturating_mul(2).min(WAIT_MAX));
                let panics = rest.map_or(0, |rest| rest.panics).saturating_add(1);
                let rest = WorkBackoff { since: now, wait, panics };
                lock(&self.deferred_work).insert(name.to_owned(), rest);
                if panics >= ATTEMPTS_MAX {
                    supervisor.quarantine(name, &*message);
                }
                let seconds = wait.as_secs();
                Err(Error::MaintenancePanicked { action: name.to_owned(), message, seconds })
            }
        }
    }

    /// What the thread does.
    fn run(&self) {
        const PAUSE: Duration = Duration::from_millis(100);
        const IDLE_PAUSE: Duration = Duration::from_secs(1);
        let (mut round, mut looked) = (ScrubCursor::default(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            self.supervisor().fault_point("store");
            if let Err(error) = self.maintain() {
                if matches!(error, Error::Closing) {
                    return;
                }
                self.add_warning(format!("maintenance: {error}"));
                if self.check_running().is_err() {
                    return;
                }
            }
            let now = Instant::now();
            let elapsed = now.duration_since(looked);
            looked = now;
            self.scrub_step_or_skip(&mut round, elapsed);
            // Not at every batch: the head is read by whoever asks, this only keeps it from falling far behind.
            std::thread::sleep(PAUSE);
            let woken = lock(&self.wake.0);
            let waited = self.wake.1.wait_timeout_while(woken, IDLE_PAUSE, |woken| !*woken);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        }
    }
}

/// A series by its place in the index, for views.
#[derive(Clone, Debug)]
pub struct SeriesEntryRef {
    pub(crate) number: crate::index::SeriesNumber,
    /// What it is.
    pub series: Series,
}

#[cfg(test)]
mod tests {
    use sim::SimDisk;

    use super::*;

    #[test]
    fn panicking_work_is_deferred() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
        let store = Store::open(disk, Path::new("/store"), &Options::default()).unwrap();
        let panics =
            || store.inner().run_guarded("rolling up day 7", || panic!("a count overflows"));
        let error = panics().unwrap_err().to_string();
        let expected = "rolling up day 7 met a defect of topdeck and is tried again in 60 s; please report it: \
                        a count overflows";
        assert_eq!(error, expected);
        assert!(!panics().unwrap(), "it is left alone");
        assert!(store.inner().run_guarded("rolling up day 8", || Ok(true)).unwrap());
        assert!(!store.inner().deferred_work.lock().unwrap().contains_key("rolling up day 8"));
    }

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
