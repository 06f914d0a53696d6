//! A store: fed by its journal, read through views, kept in order by maintenance.
//!
//! Locks, in the order in which they are taken: `work` (who changes parts), `feed` (who reads the journal),
//! `state`, a head, the index, `producers` (whose batches were read). Only who has `feed` changes the producers, so
//! that with it the position and they are of one moment; an acknowledgement looks at them without it, and waits for
//! nobody who reads.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use disk::Disk;
use journal::{Ack, Clock, Identity, Item, Journal, Level, Subscriber};
use model::{Batch, BatchReader, Gap, Selector, Series, SeriesRef};

use crate::backend::{Backend, Part};
use crate::change::Change;
use crate::check::Round;
use crate::error::{Error, Result};
use crate::head::Head;
use crate::index::{Cardinality, Index, Limits};
use crate::local::Local;
use crate::manifest::{Keep, Manifest, PartInfo, Producers};
use crate::resolution::{MINUTE, Resolution};
use crate::view::View;

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
    pub grace: i64,
    /// How many series, and values of a label, are taken.
    pub limits: Limits,
    /// How many bytes of parts the thread looks at in a second, over and over: 1 MiB by default, none if 0.
    /// What it finds damaged stands in the notes of [`Stat`].
    pub scrub_bytes_per_second: u64,
    /// A thread of its own feeds the store and keeps it in order: `true` by default. Otherwise whoever has it
    /// calls [`Store::maintain`].
    pub background: bool,
    /// How the journal is opened.
    pub journal: journal::Options,
    /// Where times come from.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            head_bytes_max: 128 << 20,
            grace: 10 * MINUTE,
            limits: Limits::default(),
            scrub_bytes_per_second: 1 << 20,
            background: true,
            journal: journal::Options { alone: true, ..journal::Options::default() },
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
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("backend", &self.inner.backend).finish_non_exhaustive()
    }
}

/// What a store is like at one moment.
#[derive(Clone, Debug)]
pub struct Stat {
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
    pub keep: Vec<Keep>,
    /// What opening found damaged, and what the last maintenance met.
    pub notes: Vec<String>,
    /// The journal.
    pub journal: journal::Stat,
}

pub(crate) struct Inner {
    dir: PathBuf,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) journal: Journal,
    pub(crate) index: Arc<RwLock<Index>>,
    feed: Mutex<Subscriber>,
    /// Which batches were read of the journal.
    producers: Mutex<Producers>,
    /// Bytes of memory that rows in heads take, as of the last record read.
    head_bytes: AtomicUsize,
    /// When the batch that was read last was appended; the smallest number before there is one.
    seen: AtomicI64,
    /// Bytes of batches that were appended and are not read yet, about.
    unread_bytes: AtomicUsize,
    state: Mutex<State>,
    pub(crate) work: Mutex<()>,
    pub(crate) options: Options,
    stop: AtomicBool,
    /// Told when there is something to do.
    wake: (Mutex<bool>, Condvar),
}

pub(crate) struct State {
    pub(crate) manifest: Arc<Manifest>,
    /// Manifests that a view may still hold, with their generations.
    past: Vec<(u64, Weak<Manifest>)>,
    /// Parts that the manifest does not name any more, and the generation that took them away.
    dead: Vec<(u64, u64)>,
    pub(crate) active: Arc<RwLock<Head>>,
    sealing: Option<Sealing>,
    open: HashMap<u64, Arc<dyn Part>>,
    notes: Vec<String>,
    stopped: Option<String>,
}

/// What sealing came to.
#[derive(Clone, Copy, Debug)]
struct Sealed {
    /// Something on disk is other than it was.
    changed: bool,
    /// Nothing of what was read is left.
    whole: bool,
}

/// A head that takes no more rows, and what the journal had given when it was closed.
#[derive(Clone)]
struct Sealing {
    head: Arc<RwLock<Head>>,
    position: u64,
    producers: Producers,
}

impl State {
    /// What opening found damaged, and what maintenance met.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The heads, the older first.
    pub(crate) fn heads(&self) -> Vec<Arc<RwLock<Head>>> {
        let sealing = self.sealing.as_ref().map(|sealing| Arc::clone(&sealing.head));
        sealing.into_iter().chain([Arc::clone(&self.active)]).collect()
    }
}

/// Notes a batch; whether it is new.
fn hear(producers: &mut Producers, identity: Identity, position: u64) -> bool {
    let is_new = !producers.have_heard(identity);
    if is_new {
        producers.hear(identity, position);
    }
    is_new
}

/// A lock whose owner panicked is taken all the same: what it guards is changed in single steps.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Makes a store in a folder, with its journal in the folder `journal` below it.
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, settings: &journal::Settings) -> Result<()> {
        let backend = Local::open(Arc::clone(disk), dir)?;
        // Parts without a manifest are what is left of one that was damaged: nothing may be made over them.
        if Local::is_store(&**disk, dir)? || !backend.parts()?.is_empty() {
            return Err(Error::Exists { dir: dir.to_owned() });
        }
        let journal = Store::create_journal(disk, &dir.join("journal"), settings)?;
        let manifest =
            Manifest { generation: 1, journal: Some(journal), next_part: 1, ..Manifest::default() };
        backend.set_manifest(&manifest.write())
    }

    /// Opens a store, whatever happened to it.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Store> {
        if !Local::is_store(&*disk, dir)? {
            return Err(Error::Missing { dir: dir.to_owned() });
        }
        let backend: Arc<dyn Backend> = Arc::new(Local::open(Arc::clone(&disk), dir)?);
        let mut notes = Vec::new();
        let found = backend.manifest()?.ok_or_else(|| Error::Missing { dir: dir.to_owned() })?;
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
        let index = load_index(&*backend, &manifest, options.limits, &mut notes)?;
        // Of damaged forms that are in no part either nothing is left; the next new ones take their numbers.
        manifest.series = manifest.series.min(index.len() as u64);

        let path = dir.join("journal");
        let journal = Journal::open(disk, &path, &options.journal)?;
        let found = journal.stat()?.id;
        if let Some(expected) = manifest.journal.filter(|&expected| expected != found) {
            return Err(Error::OtherJournal { dir: path, found, expected });
        }
        let mut subscriber = journal.subscribe(SUBSCRIBER)?;
        if subscriber.position() < manifest.position {
            subscriber.seek(manifest.position)?;
        }
        let producers = manifest.producers.clone();
        let state = State {
            manifest: Arc::new(manifest),
            past: Vec::new(),
            dead: Vec::new(),
            active: Arc::default(),
            sealing: None,
            open: HashMap::new(),
            notes,
            stopped: None,
        };
        let inner = Arc::new(Inner {
            dir: dir.to_owned(),
            backend,
            journal,
            index: Arc::new(RwLock::new(index)),
            feed: Mutex::new(subscriber),
            producers: Mutex::new(producers),
            head_bytes: AtomicUsize::new(0),
            seen: AtomicI64::new(i64::MIN),
            unread_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            work: Mutex::new(()),
            options: options.clone(),
            stop: AtomicBool::new(false),
            wake: (Mutex::new(false), Condvar::new()),
        });
        // On a full disk nothing can be sealed, and what was acknowledged is wanted all the same.
        if let Err(error) = inner.read_all() {
            inner.note(format!("opening: {error}"));
            inner.catch_up()?;
        }
        let thread = match options.background {
            true => {
                let inner = Arc::clone(&inner);
                let spawned = std::thread::Builder::new()
                    .name("store".to_owned())
                    .spawn(move || inner.run())
                    .map_err(|source| Error::Io {
                        path: dir.to_owned(),
                        doing: "start a thread for it",
                        source,
                    })?;
                Some(spawned)
            }
            false => None,
        };
        Ok(Store { inner, thread })
    }

    /// Takes a batch in, and answers when it has reached the level. With an identity, a repeat is recognised and
    /// counted once, also after a restart. Series that are named by id only must be known.
    pub fn ingest(&self, identity: Option<Identity>, batch: &Batch, level: Level) -> Result<Ack> {
        self.inner.ingest(identity, batch, level)
    }

    /// Reads what the journal has that is not in the head yet.
    pub fn catch_up(&self) -> Result<()> {
        self.inner.catch_up()
    }

    /// What can be read now: all that was acknowledged before.
    pub fn view(&self) -> Result<View> {
        self.inner.catch_up()?;
        Ok(View::new(Arc::clone(&self.inner)))
    }

    /// Does what is due: feeds, seals, rolls up, puts together, drops what is kept no longer. Says whether
    /// anything changed on disk.
    pub fn maintain(&self) -> Result<bool> {
        self.inner.maintain()
    }

    /// Brings everything in memory into parts.
    pub fn seal(&self) -> Result<()> {
        let _work = locked(&self.inner.work);
        self.inner.seal().map(|_| ())
    }

    /// Replaces the rules by which rows are kept. The first rule that names a row's resolution and matches its
    /// series counts; without one it is kept for ever.
    pub fn set_keep(&self, keep: Vec<Keep>) -> Result<()> {
        let _work = locked(&self.inner.work);
        if let Some(rule) = keep.iter().find(|rule| rule.duration.is_some_and(|ns| ns <= 0)) {
            let found = format!("{} ns", rule.duration.unwrap_or_default());
            return Err(Error::Setting {
                name: "a duration",
                found,
                expected: "more than nothing",
            });
        }
        Change::new(&self.inner)?.commit(|manifest| manifest.keep = keep)
    }

    /// Deletes rows of matching series that ended within `[from, to)`, at every resolution.
    pub fn delete(&self, selector: &Selector, range: std::ops::Range<i64>) -> Result<Deleted> {
        let _work = locked(&self.inner.work);
        self.inner.seal()?;
        let deleted = self.inner.delete(selector, range);
        // While it went on it looked at parts of before.
        self.inner.sweep();
        deleted
    }

    /// What there is how many of.
    pub fn cardinality(&self, top: usize) -> Result<Cardinality> {
        self.inner.catch_up()?;
        Ok(self.inner.index().cardinality(top))
    }

    /// What it is like now.
    pub fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// The journal that feeds it.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// Bytes of memory that rows in no part take, and about those that they will take which are only in the journal.
    /// Costs nothing to ask.
    pub fn held_bytes(&self) -> usize {
        let unread = self.inner.unread_bytes.load(Ordering::Relaxed);
        self.inner.head_bytes.load(Ordering::Relaxed).saturating_add(unread)
    }

    /// How it was opened.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// The canonical form of a series, if the store knows it.
    pub fn form(&self, id: &model::SeriesId) -> Option<Vec<u8>> {
        let find = || {
            let index = self.inner.index();
            index.number(id).map(|number| index.form(number).to_owned())
        };
        // It may have been acknowledged and not been read yet. If that fails, it says so elsewhere.
        find().or_else(|| self.inner.catch_up().ok().and_then(|()| find()))
    }

    /// How far the journal was read, after reading all of it that there is, and what of it could not be taken in:
    /// a gap for each record, as long as gaps are not joined.
    pub fn fed(&self) -> Result<Fed> {
        self.inner.catch_up()?;
        let feed = locked(&self.inner.feed);
        let state = self.inner.state();
        let mut refused = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            refused.extend(head.gaps.iter().cloned());
        }
        refused.retain(|gap| gap.reason.starts_with(REFUSED));
        Ok(Fed { position: feed.position(), sealed: state.manifest.position, refused })
    }
}

/// What a store has of its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// All records before this position were read.
    pub position: u64,
    /// All records before this one are in parts.
    pub sealed: u64,
    /// What could not be taken in.
    pub refused: Vec<Gap>,
}

/// What the reason begins with of a gap that is a record which could not be taken in.
const REFUSED: &str = "a record that came from the journal was not taken in";

/// What a deletion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Rows as they came that are gone.
    pub rows: u64,
    /// Rows of rollups that are gone although the rows they were made of had gone before.
    pub rollup_rows: u64,
    /// Rows of rollups that stay, because they reach beyond the range and what they were made of is gone.
    pub kept: u64,
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

fn load_index(
    backend: &dyn Backend,
    manifest: &Manifest,
    limits: Limits,
    notes: &mut Vec<String>,
) -> Result<Index> {
    let mut index = Index::new(limits);
    let mut refused = Vec::new();
    let mut add = |form: &[u8]| {
        if let Err(error) = index.insert(form) {
            refused.push(format!("a series' form: {error}"));
        }
    };
    let damaged = backend.series(&mut add)?;
    if damaged > 0 || (index.len() as u64) < manifest.series {
        notes.push(format!(
            "{} forms of series of {} are damaged; parts have them too",
            manifest.series.saturating_sub(index.len() as u64),
            manifest.series
        ));
        let known = index.len();
        for &number in manifest.parts.keys() {
            let mut forms = Vec::new();
            let read = backend
                .open(number)
                .and_then(|part| part.forms(&mut |form| forms.push(form.to_owned())));
            if let Err(error) = read {
                notes.push(error.to_string());
            }
            for form in forms {
                if let Err(error) = index.insert(&form) {
                    refused.push(format!("a series' form: {error}"));
                }
            }
        }
        let found: Vec<Vec<u8>> = (known..index.len())
            .map(|at| index.form(crate::index::Number(at as u32)).to_owned())
            .collect();
        backend.add_series(&found)?;
    }
    notes.extend(refused);
    Ok(index)
}

impl Inner {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The store's folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn index(&self) -> std::sync::RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> i64 {
        (self.options.clock)()
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match &self.state().stopped {
            Some(why) => Err(Error::Stopped { why: why.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn stop_for(&self, why: &str) {
        self.state().stopped.get_or_insert_with(|| why.to_owned());
    }

    fn ingest(&self, identity: Option<Identity>, batch: &Batch, level: Level) -> Result<Ack> {
        self.check_running()?;
        self.admit(batch)?;
        let heard = identity.is_some_and(|identity| locked(&self.producers).have_heard(identity));
        if heard {
            let end = self.journal.marks().end;
            let level = self.journal.flush(level).map(|_| level)?;
            return Ok(Ack { positions: end..end, level, repeated: true });
        }
        let ack = self.journal.append_batch(identity, &[batch.bytes()], level)?;
        if !ack.repeated {
            self.unread_bytes.fetch_add(batch.bytes().len(), Ordering::Relaxed);
        }
        self.wake();
        Ok(ack)
    }

    /// Whether all series of a batch can be taken.
    fn admit(&self, batch: &Batch) -> Result<()> {
        let mut tried = false;
        let mut new: HashSet<&[u8]> = HashSet::new();
        let mut index = self.index();
        for entry in batch.read() {
            let entry = entry.expect("BUG: the batch was checked");
            if !entry.begins {
                continue;
            }
            let id = entry.series.id();
            let mut number = index.number(&id);
            if number.is_none() && !tried {
                // What was acknowledged and not read yet counts: otherwise limits hold nothing back while nobody
                // asks.
                tried = true;
                drop(index);
                self.catch_up()?;
                index = self.index();
                number = index.number(&id);
            }
            match entry.series {
                SeriesRef::Form(form) => {
                    if !new.contains(form) && index.admit(form, new.len() as u64)? {
                        new.insert(form);
                    }
                }
                SeriesRef::Id(id) => {
                    let number = number.ok_or(Error::UnknownSeries { id })?;
                    let kind = index.kind(number);
                    if !entry.is_of(kind) {
                        let (series, kind) = (index.series(number).to_string(), kind.name());
                        let found = "another kind of value";
                        return Err(model::Error::Kind { series, kind, found }.into());
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn catch_up(&self) -> Result<()> {
        self.read_on(usize::MAX).map(|_| ())
    }

    /// Reads the journal until there is no more, or rows in memory take so many bytes; whether there is more.
    fn read_on(&self, bytes_max: usize) -> Result<bool> {
        let mut feed = locked(&self.feed);
        let unread = self.unread_bytes.load(Ordering::Relaxed);
        while self.count_head_bytes() < bytes_max {
            let Some(item) = feed.next()? else {
                // What was appended meanwhile may have been read too: it counts as unread until the next time.
                self.unread_bytes.fetch_sub(unread, Ordering::Relaxed);
                return Ok(false);
            };
            let active = Arc::clone(&self.state().active);
            let mut head = active.write().unwrap_or_else(PoisonError::into_inner);
            self.take_in(&mut head, item, &mut |identity, position| {
                hear(&mut locked(&self.producers), identity, position)
            });
        }
        Ok(true)
    }

    /// Reads the journal until there is no more, sealing whenever rows in memory take as much as they may; whether
    /// anything was sealed. The caller has `work`.
    fn read_all(&self) -> Result<bool> {
        let mut sealed = false;
        while self.read_on(self.options.head_bytes_max.max(1))? {
            sealed |= self.seal_read()?.changed;
        }
        Ok(sealed)
    }

    /// Puts in the place of the head one with only what is durable in the journal, and the feed behind it. A journal
    /// without room for what it has in memory gives room when what it has on disk is sealed: the rows that leave the
    /// head here are read again by whoever reads on.
    fn go_back(&self, feed: &mut Subscriber) -> Result<()> {
        let manifest = Arc::clone(&self.state().manifest);
        let (mut head, mut producers) = (Head::default(), manifest.producers.clone());
        let read_to = feed.position();
        feed.seek(manifest.position)?;
        feed.set_level(Level::Disk);
        let read = loop {
            match feed.next() {
                Ok(Some(item)) => self.take_in(&mut head, item, &mut |identity, position| {
                    hear(&mut producers, identity, position)
                }),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        feed.set_level(Level::Memory);
        if let Err(error) = read {
            // The head is as it was.
            feed.seek(read_to)?;
            return Err(error.into());
        }
        let mut state = self.state();
        state.active = Arc::new(RwLock::new(head));
        *locked(&self.producers) = producers;
        Ok(())
    }

    fn count_head_bytes(&self) -> usize {
        let heads = self.state().heads();
        let bytes =
            |head: &Arc<RwLock<Head>>| head.read().unwrap_or_else(PoisonError::into_inner).bytes();
        let bytes = heads.iter().map(bytes).sum();
        self.head_bytes.store(bytes, Ordering::Relaxed);
        bytes
    }

    /// Takes an item in; `hear` says of a batch whether it is new.
    fn take_in(
        &self,
        head: &mut Head,
        item: Item<'_>,
        hear: &mut dyn FnMut(Identity, u64) -> bool,
    ) {
        match item {
            Item::Batch(batch) => {
                self.seen.store(batch.times().1, Ordering::Relaxed);
                for record in batch.records() {
                    if record.identity.is_some_and(|identity| !hear(identity, record.position)) {
                        continue;
                    }
                    if let Err((lost, error)) = self.apply(head, record.bytes) {
                        head.gaps.push(Gap {
                            start: batch.times().0,
                            end: batch.times().1,
                            producer: record.identity.map(|identity| identity.producer),
                            lost,
                            reason: format!("{REFUSED} (position {}): {error}", record.position),
                        });
                    }
                }
            }
            Item::Gap(gap) => {
                // If it is not known when that was, it was since the batch before it.
                let (start, end) = match &gap.time {
                    Some(time) => (*time.start(), *time.end()),
                    None => {
                        let (seen, now) = (self.seen.load(Ordering::Relaxed), self.now());
                        (if seen == i64::MIN { now } else { seen.min(now) }, now)
                    }
                };
                let reason =
                    format!("{} batches missing in the journal: {}", gap.records(), gap.reason);
                head.gaps.push(Gap { start, end, producer: None, lost: None, reason });
            }
        }
    }

    /// Takes rows in. Of series that cannot be taken the others are; how many samples were not, if that is known, and
    /// why the first was not.
    fn apply(&self, head: &mut Head, bytes: &[u8]) -> Result<(), (Option<u64>, Error)> {
        let unreadable = |error: model::Error| (None, error.into());
        let mut reader = BatchReader::new(bytes).map_err(unreadable)?;
        let (mut group, mut lost, mut why) = (None, 0, None);
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            if entry.begins {
                group = match self.number_of(&entry.series) {
                    Ok(group) => Some(group),
                    Err(error) => {
                        why.get_or_insert(error);
                        None
                    }
                };
            }
            match group {
                Some((number, kind)) => head.add(number, &entry, kind),
                None => lost += 1,
            }
        }
        head.gaps.extend(reader.gaps().iter().cloned());
        why.map_or(Ok(()), |why| Err((Some(lost), why)))
    }

    fn number_of(&self, series: &SeriesRef<'_>) -> Result<(crate::index::Number, model::Kind)> {
        let id = series.id();
        let index = self.index();
        let known = index.number(&id);
        let number = match (known, series) {
            (Some(number), _) => number,
            (None, SeriesRef::Id(id)) => return Err(Error::UnknownSeries { id: *id }),
            (None, SeriesRef::Form(form)) => {
                drop(index);
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                let number = index.insert(form)?;
                let kind = index.kind(number);
                return Ok((number, kind));
            }
        };
        let kind = index.kind(number);
        Ok((number, kind))
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
        if state.sealing.as_ref().is_some_and(|sealing| sealing.position <= manifest.position) {
            state.sealing = None;
        }
        let generation = manifest.generation;
        let before = std::mem::replace(&mut state.manifest, Arc::new(manifest));
        state.past.push((before.generation, Arc::downgrade(&before)));
        state.dead.extend(removed.iter().map(|&number| (generation, number)));
    }

    /// Removes parts that no view can ask for any more.
    pub(crate) fn sweep(&self) {
        let removable: Vec<u64> = {
            let mut state = self.state();
            state.past.retain(|(_, manifest)| manifest.strong_count() > 0);
            let oldest =
                state.past.iter().map(|&(generation, _)| generation).min().unwrap_or(u64::MAX);
            let dead = std::mem::take(&mut state.dead);
            let (removable, dead): (Vec<_>, Vec<_>) =
                dead.into_iter().partition(|&(generation, _)| generation <= oldest);
            state.dead = dead;
            removable.iter().for_each(|(_, number)| drop(state.open.remove(number)));
            removable.into_iter().map(|(_, number)| number).collect()
        };
        for number in removable {
            // No manifest names it: the next start removes it, if this does not.
            if let Err(error) = self.backend.remove(number) {
                self.note(error.to_string());
            }
        }
    }

    /// Seals the head, and one that could not be sealed before. The caller has `work`.
    pub(crate) fn seal(&self) -> Result<bool> {
        self.check_running()?;
        self.catch_up()?;
        let sealed = self.seal_read()?;
        if sealed.whole {
            return Ok(sealed.changed);
        }
        // That may have given the journal room for the rest.
        self.journal.flush(Level::Disk)?;
        self.catch_up()?;
        self.seal_read()?;
        Ok(true)
    }

    /// Seals what was read of the journal, and what could not be sealed before. Of a journal that is full, what is
    /// durable: it may be full because that is not sealed. The caller has `work`.
    fn seal_read(&self) -> Result<Sealed> {
        self.check_running()?;
        let changed = self.state().sealing.is_some();
        if changed {
            self.seal_closed()?;
        }
        // With nobody's way barred; what is read from here on is rare, and little.
        let full = self.make_durable()?;
        let whole = {
            let mut feed = locked(&self.feed);
            let mut full = full;
            if full.is_none() && feed.position() > self.journal.marks().durable {
                full = self.make_durable()?;
            }
            let is_ahead = feed.position() > self.journal.marks().durable;
            if is_ahead {
                self.go_back(&mut feed)?;
            }
            let mut state = self.state();
            let head = state.active.read().unwrap_or_else(PoisonError::into_inner);
            let position = feed.position();
            if head.is_empty() && position == state.manifest.position {
                return match full.filter(|_| is_ahead) {
                    Some(full) => Err(full.into()),
                    None => Ok(Sealed { changed, whole: true }),
                };
            }
            drop(head);
            let head = std::mem::take(&mut state.active);
            let producers = locked(&self.producers).clone();
            state.sealing = Some(Sealing { head, position, producers });
            !is_ahead
        };
        self.seal_closed()?;
        Ok(Sealed { changed: true, whole })
    }

    /// Makes durable what the journal has; the error of one that has no room for all of it.
    fn make_durable(&self) -> Result<Option<journal::Error>> {
        match self.journal.flush(Level::Disk) {
            Ok(_) => Ok(None),
            Err(full @ journal::Error::Full(_)) => Ok(Some(full)),
            // A journal that takes nothing more is met before a head is closed for it.
            Err(error) => Err(error.into()),
        }
    }

    /// What a part contains must never be given anew by the journal: it is durable when the head is closed.
    fn seal_closed(&self) -> Result<()> {
        let sealing = self.state().sealing.clone().expect("BUG: there is a closed head");
        let head = sealing.head.read().unwrap_or_else(PoisonError::into_inner);
        let mut change = Change::new(self)?;
        change.add_series()?;
        for start in head.partitions().collect::<Vec<_>>() {
            let range = start..start.saturating_add(Resolution::Base.partition());
            change.add_head(&head, &range)?;
        }
        let series = change.series();
        change.commit(|manifest| {
            manifest.position = sealing.position;
            manifest.producers = sealing.producers.clone();
            manifest.series = series;
            head.gaps.iter().for_each(|gap| manifest.add_gap(gap.clone()));
        })?;
        drop(head);
        locked(&self.feed).commit(sealing.position, Level::Disk)?;
        self.count_head_bytes();
        Ok(())
    }

    fn maintain(&self) -> Result<bool> {
        let _work = locked(&self.work);
        self.check_running()?;
        let mut changed = self.read_all()?;
        let is_due = self.is_seal_due();
        if is_due || self.is_journal_short()? {
            self.catch_up()?;
            match self.seal_read() {
                // A day is rolled up when all that there is of it is sealed.
                Ok(sealed) if is_due && !sealed.whole => return Ok(true),
                Ok(sealed) => changed |= sealed.changed,
                // It is full on account of somebody else, and nothing is due.
                Err(Error::Journal(journal::Error::Full(_))) if !is_due => {}
                Err(error) => return Err(error),
            }
        }
        // What stands in the way of one, such as a part that cannot be read, is no reason to leave the others.
        let done = [self.roll_due(), self.put_together(), self.drop_expired()];
        self.sweep();
        for done in done {
            changed |= done?;
        }
        Ok(changed)
    }

    /// Whether the journal is full, or soon may be, on account of what is only in memory here.
    fn is_journal_short(&self) -> Result<bool> {
        let position = self.state().manifest.position;
        Ok(self.journal.is_full() || self.journal.takes_half(position)?)
    }

    fn is_seal_due(&self) -> bool {
        let state = self.state();
        if state.sealing.is_some() {
            return true;
        }
        let head = state.active.read().unwrap_or_else(PoisonError::into_inner);
        let latest = self.now().saturating_sub(self.options.grace);
        let is_over = |start: i64| start.saturating_add(Resolution::Base.partition()) <= latest;
        head.bytes() >= self.options.head_bytes_max || head.partitions().any(is_over)
    }

    fn stat(&self) -> Result<Stat> {
        self.catch_up()?;
        let (series, index_bytes) = {
            let index = self.index();
            (index.len() as u64, index.memory_bytes() as u64)
        };
        let journal = self.journal.stat()?;
        let state = self.state();
        let (mut head_rows, mut head_bytes) = (0, 0);
        let mut gaps = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            head_rows += head.rows();
            head_bytes += head.bytes() as u64;
            gaps.extend(head.gaps.iter().cloned());
        }
        Ok(Stat {
            series,
            index_bytes,
            head_rows,
            head_bytes,
            parts: state.manifest.parts.values().cloned().collect(),
            gaps,
            keep: state.manifest.keep.clone(),
            notes: state.notes.clone(),
            journal,
        })
    }

    pub(crate) fn note(&self, note: String) {
        const NOTES_MAX: usize = 64;
        let mut state = self.state();
        if !state.notes.contains(&note) {
            if state.notes.len() == NOTES_MAX {
                state.notes.remove(0);
            }
            state.notes.push(note);
        }
    }

    fn wake(&self) {
        *locked(&self.wake.0) = true;
        self.wake.1.notify_one();
    }

    /// What the thread does.
    fn run(&self) {
        const PAUSE: Duration = Duration::from_millis(100);
        let (mut round, mut looked) = (Round::default(), Instant::now());
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.maintain() {
                self.note(format!("maintenance: {error}"));
                if self.check_running().is_err() {
                    return;
                }
            }
            let elapsed = looked.elapsed();
            looked += elapsed;
            self.look_on(&mut round, elapsed);
            // Not at every batch: the head is read by whoever asks, this only keeps it from falling far behind.
            std::thread::sleep(PAUSE);
            let woken = locked(&self.wake.0);
            let waited = self.wake.1.wait_timeout_while(woken, 10 * PAUSE, |woken| !*woken);
            *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
        }
    }
}

/// A series by its place in the index, for views.
#[derive(Clone, Debug)]
pub struct Found {
    pub(crate) number: crate::index::Number,
    /// What it is.
    pub series: Series,
}
