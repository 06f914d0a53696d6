//! An open journal: appending, acknowledging, and the thread that writes in the background.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use disk::{Disk, Mode, Region};

use crate::buffer::{Append, Appended, Buffer, FULL, POISONED, Size};
use crate::checkpoint::{self, Checkpoint, Held, Kind};
use crate::error::{Doing, Error, Full, Result};
use crate::flusher::{Flushed, Flusher, Passed};
use crate::frame;
use crate::level::{Ack, Identity, Level, Marks};
use crate::opening::{self, Opened};
use crate::places::Places;
use crate::presence::{Opening, Presence};
use crate::reader::{Reader, Start};
use crate::settings::{Limits, Settings};
use crate::store::{Born, Clock, Store, wall_clock};
use crate::subscriber::Subscriber;
use crate::supervisor::Supervisor;

/// How a journal is opened; what is chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// No other process may have it open: `false` by default.
    pub alone: bool,
    /// A thread of its own writes what is appended to segments and does what else is due: `true` by default.
    /// Without it, only appends that find the buffer full, `flush` and the level `disk` write.
    pub background: bool,
    /// How long records may wait in the buffer for company before they are written to a segment: 10 ms by
    /// default. In the buffer they are visible to all and survive the process already.
    pub flush_every: Duration,
    /// After how long what was appended at a lower level is made durable all the same: 1 s by default;
    /// `None` leaves it to the kernel.
    pub sync_every: Option<Duration>,
    /// How long an append waits for `disk`, or for room in the buffer: 10 s by default. One of those who wait
    /// for `disk` synchronises for all, and waits for the system as long as that takes.
    pub wait_max: Duration,
    /// How often a reader that waits looks by itself: 500 ms by default. Appenders wake it, but one
    /// may be killed between its entry and waking anybody.
    pub recheck_every: Duration,
    /// Where times come from: [`wall_clock`] by default.
    pub clock: Clock,
    /// Settings for a journal whose file of settings is lost: opening makes it anew from the
    /// segments. `None` by default, as who does not know them leaves it to [`crate::repair`].
    pub settings: Option<Settings>,
    /// What runs threads again that panic: those of this journal, and of whoever stands on it. One
    /// of its own by default.
    pub supervisor: Supervisor,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            alone: false,
            background: true,
            flush_every: Duration::from_millis(10),
            sync_every: Some(Duration::from_secs(1)),
            wait_max: Duration::from_secs(10),
            recheck_every: Duration::from_millis(500),
            clock: wall_clock(),
            settings: None,
            supervisor: Supervisor::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("alone", &self.alone)
            .field("flush_every", &self.flush_every)
            .finish_non_exhaustive()
    }
}

/// An open journal. All methods may be called from any thread.
pub struct Journal {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

/// A journal in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Its number, made at random when it was created.
    pub id: u128,
    /// When that was, in nanoseconds since the Unix epoch.
    pub created: i64,
    /// What it was created with.
    pub settings: Settings,
    /// How far it has come.
    pub marks: Marks,
    /// How many segments there are.
    pub segments: usize,
    /// The bytes they take on disk, those reserved included.
    pub segment_bytes: u64,
    /// Bytes in the buffer that are in no segment yet.
    pub buffered_bytes: u64,
    /// Subscribers and marks.
    pub checkpoints: Vec<Checkpoint>,
    /// Those whose copies are both damaged.
    pub damaged_checkpoints: Vec<String>,
    /// Gaps that somebody may still meet.
    pub gaps: Vec<crate::Gap>,
    /// A write or sync has failed; nothing is acknowledged.
    pub poisoned: bool,
    /// No segment could be begun; appends are refused until there is room.
    pub full: Option<Full>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    flusher: Mutex<Flusher>,
    /// Held by the one who synchronises. Taken before `flusher`, never the other way round.
    syncing: Mutex<Group>,
    /// How many appends have asked for `disk`.
    arrived: AtomicU64,
    /// Another process had the flusher's role when this one asked last.
    elsewhere: AtomicBool,
    pub(crate) options: Options,
    stop: AtomicBool,
    opened: Opened,
}

/// The last group commit, from which the next one learns how long to wait for company.
#[derive(Debug, Default)]
struct Group {
    /// `arrived` when it began.
    arrived: u64,
    /// How many appends it was for.
    size: u64,
    /// How long its sync took.
    took: Duration,
}

impl Journal {
    /// Makes a journal in a folder, which is created if it is missing. `id` must be random: it tells this
    /// journal's bytes from those of all others.
    pub fn create(
        disk: &dyn Disk,
        dir: &Path,
        id: u128,
        now: i64,
        settings: &Settings,
    ) -> Result<()> {
        settings.check()?;
        let places = Places::new(dir);
        // Those above it that are missing too, and the one that is there, need a sync each.
        let above: Vec<&Path> =
            dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        let missing = above.iter().take_while(|above| {
            matches!(disk.list(above), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
        });
        let changed = missing.count() + 1;
        for folder in [&places.dir, &places.segments(), &places.checkpoints(), &places.locks()] {
            disk.create_dir(folder).doing("create it", folder)?;
        }
        let _turn = Opening::begin(disk, &places)?;
        match Born::read(disk, &places) {
            Err(Error::Missing { .. }) => {}
            Ok(_) | Err(Error::Settings { .. }) => {
                return Err(Error::Exists { dir: dir.to_owned() });
            }
            Err(error) => return Err(error),
        }
        let born = Born { id, created: now, settings: *settings };
        map(disk, &places, &born)?;
        // On a full disk none could be made, and a power cut takes those that were made later.
        Presence::prepare(disk, &places)?;
        for folder in [places.segments(), places.checkpoints(), places.locks()] {
            disk.sync_dir(&folder).doing("make its names durable", &folder)?;
        }
        // Last, for it is what makes the folder a journal.
        born.create(disk, &places)?;
        for folder in above.into_iter().take(changed) {
            disk.sync_dir(folder).doing("make the new folder in it durable", folder)?;
        }
        Ok(())
    }

    /// Opens a journal. That succeeds after any crash; [`Journal::opened`] says what was found.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Journal> {
        let places = Places::new(dir);
        let (born, wounded, is_lost) = match (Born::read(&*disk, &places), options.settings) {
            (Ok((born, wounded)), _) => (born, wounded, false),
            (Err(error @ Error::Settings { .. }), Some(settings)) => {
                settings.check()?;
                let born = Born::of_segments(&*disk, &places, settings)?;
                (born.ok_or(error)?, false, true)
            }
            (Err(error), _) => return Err(error),
        };
        for folder in [places.segments(), places.checkpoints(), places.locks()] {
            disk.create_dir(&folder).doing("create it", &folder)?;
        }
        let turn = Opening::begin(&*disk, &places)?;
        let presence = Presence::begin(&*disk, &places, options.alone, &turn)?;
        let buffer = map(&*disk, &places, &born)?;
        let mut opened = Opened::default();
        if presence.first {
            opened = opening::recover(&*disk, &places, &born, &buffer)?;
        } else if !buffer.is_ours(born.id) {
            return Err(Error::Busy { dir: dir.to_owned(), alone: false });
        }
        if wounded || is_lost {
            // What is sound of it is written twice again.
            if presence.first {
                born.create(&*disk, &places)?;
            }
            opened.damaged_files.push(match is_lost {
                false => "journal: one copy of the settings was damaged".to_owned(),
                true => "journal: the settings were lost, and are made anew from the segments"
                    .to_owned(),
            });
        }
        buffer.begin_slot(presence.slot);
        let store = Store {
            disk,
            places,
            born,
            buffer,
            presence,
            clock: Arc::clone(&options.clock),
            wait_max: options.wait_max,
            supervisor: options.supervisor.clone(),
        };
        let mut flusher = Flusher::new(&store)?;
        if options.background {
            flusher.take_role(&store)?;
        }
        drop(turn);
        let inner = Arc::new(Inner {
            store,
            flusher: Mutex::new(flusher),
            syncing: Mutex::new(Group::default()),
            arrived: AtomicU64::new(0),
            elsewhere: AtomicBool::new(false),
            options: options.clone(),
            stop: AtomicBool::new(false),
            opened,
        });
        let thread = match options.background {
            true => {
                let inner = Arc::clone(&inner);
                let thread = options.supervisor.thread("journal");
                let run = move || {
                    let is_stopping = || inner.stop.load(Ordering::SeqCst);
                    let _ = thread.run(is_stopping, || inner.run());
                };
                let spawned = thread::Builder::new().name("journal".to_owned()).spawn(run);
                Some(spawned.doing("start a thread for it", dir)?)
            }
            false => None,
        };
        Ok(Journal { inner, thread })
    }

    /// What opening found and did.
    pub fn opened(&self) -> &Opened {
        &self.inner.opened
    }

    /// Appends a record and waits until it has reached the level.
    pub fn append(&self, record: &[u8], level: Level) -> Result<Ack> {
        self.inner.append(None, &[record], level)
    }

    /// Appends records, all or none, next to each other. With an identity, a repeat is recognised and not
    /// appended again, also after a restart. An empty batch appends nothing and is not remembered.
    pub fn append_batch(
        &self,
        identity: Option<Identity>,
        records: &[&[u8]],
        level: Level,
    ) -> Result<Ack> {
        self.inner.append(identity, records, level)
    }

    /// Whether a batch would be a repeat.
    pub fn has_accepted(&self, identity: Identity) -> Result<bool> {
        Ok(self.inner.store.turn()?.repeated(Some(identity)).is_some())
    }

    /// Brings all that is appended to a level; `process` means into segments here.
    pub fn flush(&self, level: Level) -> Result<Marks> {
        self.inner.flush(level)?;
        Ok(self.marks())
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.inner.store.places.dir
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.store.disk
    }

    /// What runs threads again that panic, as it was opened.
    pub fn supervisor(&self) -> &Supervisor {
        &self.inner.options.supervisor
    }

    /// Its number, as in [`Stat`].
    pub fn id(&self) -> u128 {
        self.inner.store.born.id
    }

    /// How far it has come.
    pub fn marks(&self) -> Marks {
        let buffer = &self.inner.store.buffer;
        let durable = buffer.durable();
        let flushed = buffer.mark().position;
        Marks { first: buffer.first(), durable, flushed, end: buffer.end().1.max(flushed) }
    }

    /// A reader without a name: nothing is kept for it, and what it missed it is told as a gap.
    pub fn reader(&self, start: Start) -> Result<Reader> {
        Reader::new(Arc::clone(&self.inner), self.find(start)?)
    }

    /// Makes a subscriber; `holds` as in [`Checkpoint`].
    pub fn add_subscriber(&self, name: &str, start: Start, holds: bool) -> Result<Checkpoint> {
        self.add(name, start, Kind::Subscriber, holds)
    }

    /// Opens a subscriber to read from where it is. One reader at a time can have it.
    pub fn subscribe(&self, name: &str) -> Result<Subscriber> {
        let store = &self.inner.store;
        // Nobody removes it while it is opened.
        let turn = Opening::begin(&*store.disk, &store.places)?;
        let held = Held::open(&*store.disk, &store.places, name)?;
        drop(turn);
        let reader = Reader::new(Arc::clone(&self.inner), held.get().position)?;
        Ok(Subscriber::new(reader, held))
    }

    /// Makes a mark.
    pub fn add_mark(&self, name: &str, start: Start, holds: bool) -> Result<Checkpoint> {
        self.add(name, start, Kind::Mark, holds)
    }

    fn add(&self, name: &str, start: Start, kind: Kind, holds: bool) -> Result<Checkpoint> {
        let store = &self.inner.store;
        let (disk, places) = (&*store.disk, &store.places);
        // Two who make the same name take turns.
        let _turn = Opening::begin(disk, places)?;
        match checkpoint::read(disk, places, name) {
            Err(Error::NoCheckpoint { .. }) => {}
            Ok(_) | Err(Error::Checkpoint { .. }) => {
                return Err(Error::CheckpointExists { name: name.to_owned() });
            }
            Err(error) => return Err(error),
        }
        let position = self.find(start)?;
        let checkpoint = Checkpoint {
            name: name.to_owned(),
            position,
            moved: store.now(),
            kind,
            holds,
            damaged: false,
        };
        checkpoint::create(disk, places, &checkpoint)?;
        Ok(checkpoint)
    }

    /// A subscriber's or mark's state.
    pub fn checkpoint(&self, name: &str) -> Result<Checkpoint> {
        let store = &self.inner.store;
        checkpoint::read(&*store.disk, &store.places, name)
    }

    /// Moves a subscriber that nobody is reading with, or a mark, forward or back; durable on return.
    pub fn set_checkpoint(&self, name: &str, start: Start) -> Result<Checkpoint> {
        let store = &self.inner.store;
        let position = self.find(start)?;
        let turn = Opening::begin(&*store.disk, &store.places)?;
        match Held::open(&*store.disk, &store.places, name) {
            Ok(mut held) => held.set(position, store.now(), true)?,
            // Nothing is known of it but the name: it is a subscriber, and holds, which loses nothing.
            Err(Error::Checkpoint { .. }) => {
                let moved = store.now();
                let kind = Kind::Subscriber;
                let name = name.to_owned();
                let checkpoint =
                    Checkpoint { name, position, moved, kind, holds: true, damaged: false };
                checkpoint::create(&*store.disk, &store.places, &checkpoint)?;
            }
            Err(error) => return Err(error),
        }
        drop(turn);
        self.inner.passed(position);
        self.checkpoint(name)
    }

    /// Removes a subscriber that nobody is reading with, or a mark.
    pub fn remove_checkpoint(&self, name: &str) -> Result<()> {
        let store = &self.inner.store;
        let turn = Opening::begin(&*store.disk, &store.places)?;
        let held = match Held::open(&*store.disk, &store.places, name) {
            Ok(held) => Some(held),
            Err(Error::Checkpoint { .. }) => None,
            Err(error) => return Err(error),
        };
        checkpoint::remove(&*store.disk, &store.places, name)?;
        drop((held, turn));
        self.inner.passed(u64::MAX);
        Ok(())
    }

    /// Changes the limits for those who open the journal from now on; whoever has it open, this handle too, goes
    /// on with the old ones until then.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        let store = &self.inner.store;
        limits.check(store.born.settings.segment_bytes)?;
        let settings = Settings { limits, ..store.born.settings };
        let born = Born { settings, ..store.born };
        born.create(&*store.disk, &store.places)
    }

    /// Whether it takes no more; [`Journal::stat`] says why.
    pub fn is_full(&self) -> bool {
        self.inner.store.buffer.state() & FULL != 0
    }

    /// Whether segments that a reader at `position` has not passed take more than half of what all may.
    pub fn takes_half(&self, position: u64) -> Result<bool> {
        let store = &self.inner.store;
        let Some(max) = store.born.settings.limits.bytes_max else { return Ok(false) };
        let firsts = crate::segment::list(&*store.disk, &store.places)?;
        let passed = firsts.iter().skip(1).filter(|&&first| first <= position).count() as u64;
        let ahead = firsts.len() as u64 - passed.min(firsts.len() as u64);
        Ok(ahead.saturating_mul(store.born.settings.segment_bytes) > max / 2)
    }

    /// The journal in numbers.
    pub fn stat(&self) -> Result<Stat> {
        let store = &self.inner.store;
        let (disk, places) = (&*store.disk, &store.places);
        let (checkpoints, damaged_checkpoints) = checkpoint::list(disk, places)?;
        let state = store.buffer.state();
        Ok(Stat {
            id: store.born.id,
            created: store.born.created,
            settings: store.born.settings,
            marks: self.marks(),
            segments: crate::segment::list(disk, places)?.len(),
            segment_bytes: store.segment_bytes()?,
            buffered_bytes: (store.buffer.end().0.saturating_sub(store.buffer.mark().ring)) * 8,
            checkpoints,
            damaged_checkpoints,
            gaps: crate::gap::Gaps::load(disk, places)?.0.iter().cloned().collect(),
            poisoned: state & POISONED != 0,
            full: (state & FULL != 0).then(|| store.why_full()).transpose()?,
        })
    }

    /// A position in numbers.
    fn find(&self, start: Start) -> Result<u64> {
        let Marks { first, end, .. } = self.marks();
        match start {
            Start::Begin => Ok(first),
            Start::End => Ok(end),
            Start::At(position) if (first..=end).contains(&position) => Ok(position),
            Start::At(found) => Err(Error::Position { found, first, end }),
        }
    }

    /// Stops the thread, brings everything into segments and makes it durable. Dropping a journal does the
    /// same but for the last, and without a word when it fails.
    pub fn close(mut self) -> Result<Marks> {
        self.stop();
        self.inner.flush(Level::Disk)?;
        Ok(self.marks())
    }

    fn stop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            self.inner.store.buffer.wake_all();
            // It does not panic, and if it did, there is nothing of it to mend.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
        let mut flusher = self.inner.flusher();
        // What cannot be written stays in the buffer, whose contents outlive this process.
        let _ = flusher.drain(&self.inner.store);
        flusher.trim();
        flusher.give_up_role(&self.inner.store);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("store", &self.inner.store)
            .field("marks", &self.marks())
            .finish()
    }
}

/// Maps the buffer, which is made, or made anew, when its file is not of the right size. Only shrinking a
/// file that others map would harm them, and whoever maps it has it at its right size.
pub(crate) fn map(disk: &dyn Disk, places: &Places, born: &Born) -> Result<Buffer> {
    let path = places.buffer();
    let size = Size::new(born.settings.buffer_bytes, born.settings.producers_max);
    let bytes = size.file_bytes();
    let file = disk.open(&path, Mode::Create).doing("open it", &path)?;
    let short = file.len().doing("ask for its length", &path)? < bytes;
    // Also one that was copied with holes: a store to a page without room kills the process.
    file.allocate(bytes).doing("reserve space for it", &path)?;
    if short {
        file.sync().doing("make it durable", &path)?;
        disk.sync_dir(&places.dir).doing("make a new name in it durable", &places.dir)?;
    }
    let memory: Region = file.map(bytes).doing("map it into memory", &path)?;
    Ok(Buffer::new(memory, size, born.id))
}

/// The flusher, for as long as it is used.
struct Flushing<'a> {
    inner: &'a Inner,
    flusher: MutexGuard<'a, Flusher>,
}

impl Deref for Flushing<'_> {
    type Target = Flusher;

    fn deref(&self) -> &Flusher {
        &self.flusher
    }
}

impl DerefMut for Flushing<'_> {
    fn deref_mut(&mut self) -> &mut Flusher {
        &mut self.flusher
    }
}

impl Drop for Flushing<'_> {
    /// Without a thread nobody here hears that others want something written: the role is not kept.
    fn drop(&mut self) {
        if !self.inner.options.background || self.inner.stop.load(Ordering::SeqCst) {
            self.flusher.give_up_role(&self.inner.store);
        }
    }
}

thread_local! {
    /// Where the records of a batch are put together.
    static GROUP: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Inner {
    fn flusher(&self) -> Flushing<'_> {
        let flusher = self.flusher.lock().unwrap_or_else(|poisoned| self.distrust(poisoned));
        Flushing { inner: self, flusher }
    }

    /// The flusher of somebody who panicked while using it: what it knows may be half changed, and
    /// it begins anew at what is published, as after a process that died.
    fn distrust<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, Flusher>>,
    ) -> MutexGuard<'a, Flusher> {
        self.flusher.clear_poison();
        let mut flusher = poisoned.into_inner();
        flusher.forget(&self.store);
        flusher
    }

    fn try_flusher(&self) -> Option<Flushing<'_>> {
        let flusher = match self.flusher.try_lock() {
            Ok(flusher) => flusher,
            Err(TryLockError::Poisoned(poisoned)) => self.distrust(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Flushing { inner: self, flusher })
    }

    // ---- appending -------------------------------------------------------------------------------------

    fn append(&self, identity: Option<Identity>, records: &[&[u8]], level: Level) -> Result<Ack> {
        let (positions, repeated) = match records {
            [] => {
                let end = self.store.buffer.end().1;
                (end..end, false)
            }
            [record] => self.put(identity, 1, record, false)?,
            many => GROUP.with_borrow_mut(|group| {
                group.clear();
                pack(group, many);
                let count = u32::try_from(many.len()).map_err(|_| self.too_large(u64::MAX))?;
                self.put(identity, count, group, true)
            })?,
        };
        let level = match level {
            Level::Disk => self.reach_disk(positions.end)?,
            // The buffer is the kernel's memory, not this process's.
            Level::Process | Level::Memory => Level::Process,
        };
        Ok(Ack { positions, level, repeated })
    }

    fn too_large(&self, found: u64) -> Error {
        Error::TooLarge { found, max: self.store.born.settings.batch_bytes_max() }
    }

    /// Puts a batch into the buffer: its positions, or where the one it repeats ended.
    fn put(
        &self,
        identity: Option<Identity>,
        records: u32,
        body: &[u8],
        packed: bool,
    ) -> Result<(std::ops::Range<u64>, bool)> {
        let size = body.len() as u64;
        if size > self.store.born.settings.batch_bytes_max() {
            return Err(self.too_large(size));
        }
        let time = self.store.now();
        let append = Append { identity, records, body, packed, time };
        let mut waiting: Option<(Instant, u32)> = None;
        let mut retried = false;
        loop {
            let (appended, tail) = self.store.turn()?.append(&append);
            match appended {
                Appended::At(first) => {
                    self.store.buffer.wake_after_append(tail);
                    return Ok((first..first + u64::from(records), false));
                }
                Appended::Repeated(end) => return Ok((end..end, true)),
                Appended::TooLarge => return self.pass(&append),
                Appended::NoRoom => waiting = Some(self.wait_for_room(waiting)?),
                Appended::Refused(state) if state & POISONED != 0 => return Err(Error::Poisoned),
                // There may be room now: a subscriber has moved on, somebody deleted files.
                Appended::Refused(_) if !retried => {
                    retried = true;
                    self.flusher().drain(&self.store)?;
                }
                Appended::Refused(_) => return Err(self.store.why_full()?.into()),
            }
        }
    }

    /// Waits for room in the buffer, or makes some. The first call only notes what a change is told by, so
    /// that none is missed between a look and the wait.
    fn wait_for_room(&self, waiting: Option<(Instant, u32)>) -> Result<(Instant, u32)> {
        let changes = self.store.buffer.space_changes();
        let Some((since, seen)) = waiting else { return Ok((Instant::now(), changes)) };
        if let Some(mut flusher) = self.try_flusher()
            && flusher.drain(&self.store)? == Flushed::All
        {
            return Ok((since, changes));
        }
        let waited = since.elapsed();
        if waited >= self.options.wait_max {
            return Err(Error::Stalled { waited });
        }
        // It is most often a frame under way, which takes less than falling asleep and waking up.
        let buffer = &self.store.buffer;
        spin(|| buffer.space_changes() != seen);
        buffer.wake_flusher();
        // In pieces: the process that empties the buffer may die.
        let piece = (self.options.wait_max - waited).min(Duration::from_millis(50));
        buffer.wait_space(seen, piece);
        Ok((since, buffer.space_changes()))
    }

    /// Brings a batch that is larger than the buffer straight to a segment.
    fn pass(&self, append: &Append<'_>) -> Result<(std::ops::Range<u64>, bool)> {
        let mut group = Vec::new();
        let body = if append.packed {
            append.body
        } else {
            group.reserve(append.body.len() + 10);
            frame::put_varint(&mut group, append.body.len() as u64);
            group.extend_from_slice(append.body);
            &group
        };
        let since = Instant::now();
        loop {
            match self.flusher().pass(&self.store, append.identity, append.records, body)? {
                Passed::At(first) => return Ok((first..first + u64::from(append.records), false)),
                Passed::Repeated(end) => return Ok((end..end, true)),
                Passed::Elsewhere => {}
            }
            // Only one process writes segments. It is asked to let this one.
            self.store.buffer.want_role();
            if since.elapsed() >= self.options.wait_max {
                return Err(Error::Elsewhere { max: self.store.buffer.ring_bytes() / 2 });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- durability ------------------------------------------------------------------------------------

    /// Waits until everything below a position is durable; the level reached when the time is over.
    fn reach_disk(&self, position: u64) -> Result<Level> {
        let buffer = &self.store.buffer;
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        loop {
            let seen = buffer.durable_changes();
            if buffer.state() & POISONED != 0 {
                return Err(Error::Poisoned);
            }
            if buffer.durable() >= position {
                return Ok(Level::Disk);
            }
            let waited = since.elapsed();
            if waited >= self.options.wait_max {
                return Ok(Level::Process);
            }
            // Whoever comes first synchronises for all; there is no need to wake a thread for it.
            match self.try_group().map(|group| self.sync(group)) {
                Some(Ok(Flushed::All)) => continue,
                // The process that has the role is told what is wanted.
                Some(Ok(Flushed::Elsewhere)) => buffer.want_durable(position),
                None if self.elsewhere.load(Ordering::Relaxed) => buffer.want_durable(position),
                None => {}
                // There may be room, or others get on, before the time is over.
                Some(Err(Error::Full(_) | Error::Stalled { .. })) => {}
                Some(Err(error)) => return Err(error),
            }
            buffer.wait_durable(
                seen,
                (self.options.wait_max - waited).min(Duration::from_millis(50)),
            );
        }
    }

    pub(crate) fn flush(&self, level: Level) -> Result<()> {
        let buffer = &self.store.buffer;
        let (_, end) = buffer.end();
        let since = Instant::now();
        loop {
            let seen = buffer.durable_changes();
            if buffer.state() & POISONED != 0 {
                return Err(Error::Poisoned);
            }
            // Each time around: the process that has the role may end.
            let flushed = match level {
                Level::Disk => self.sync(self.group())?,
                Level::Process | Level::Memory => self.flusher().drain(&self.store)?,
            };
            let reached =
                if level == Level::Disk { buffer.durable() } else { buffer.mark().position };
            if flushed == Flushed::All || reached >= end {
                return Ok(());
            }
            let waited = since.elapsed();
            if waited >= self.options.wait_max {
                return Err(Error::Stalled { waited });
            }
            // Another process writes: it is asked.
            buffer.want_durable(end);
            buffer.wait_durable(seen, Duration::from_millis(10));
        }
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        self.syncing.lock().unwrap_or_else(|poisoned| self.regroup(poisoned))
    }

    /// The same, if nobody has it.
    fn try_group(&self) -> Option<MutexGuard<'_, Group>> {
        match self.syncing.try_lock() {
            Ok(group) => Some(group),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.regroup(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What whoever panicked was about to synchronise only they knew. The flusher finds it again.
    fn regroup<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, Group>>,
    ) -> MutexGuard<'a, Group> {
        self.syncing.clear_poison();
        self.flusher().forget(&self.store);
        poisoned.into_inner()
    }

    /// Drains the buffer and makes everything durable, for all who wait. They are woken after the group is
    /// released: whoever is not served yet finds that it can lead the next one.
    fn sync(&self, mut group: MutexGuard<'_, Group>) -> Result<Flushed> {
        self.gather(&mut group);
        let before = self.store.buffer.durable();
        let synced = self.sync_now(&mut group);
        self.elsewhere.store(matches!(synced, Ok(Flushed::Elsewhere)), Ordering::Relaxed);
        drop(group);
        // When nothing has changed, whoever waits would only look, and wait again.
        if self.store.buffer.durable() != before || self.store.buffer.state() & POISONED != 0 {
            self.store.buffer.wake_durable();
        }
        synced
    }

    /// Waits for as many appends as the last group had, whose threads are on their way back: two half groups
    /// cost two syncs. At most half as long as a sync takes, and not at all for a single producer.
    fn gather(&self, group: &mut Group) {
        const LONGEST: Duration = Duration::from_millis(1);
        let since = Instant::now();
        let longest = (group.took / 2).min(LONGEST);
        let mut arrived = self.arrived.load(Ordering::Relaxed);
        while arrived - group.arrived < group.size && since.elapsed() < longest {
            thread::yield_now();
            arrived = self.arrived.load(Ordering::Relaxed);
        }
        (group.size, group.arrived) = (arrived - group.arrived, arrived);
    }

    fn sync_now(&self, group: &mut Group) -> Result<Flushed> {
        let (drained, unsynced) = {
            let mut flusher = self.flusher();
            match flusher.drain(&self.store) {
                Ok(Flushed::Elsewhere) => return Ok(Flushed::Elsewhere),
                // A journal that is full still makes durable what it has.
                drained @ (Ok(Flushed::All) | Err(Error::Full(_))) => {
                    (drained, flusher.unsynced(&self.store))
                }
                Err(error) => return Err(error),
            }
        };
        let since = Instant::now();
        self.options.supervisor.fault_point("journal sync");
        match unsynced.sync(&self.store) {
            Ok(upto) if self.store.buffer.state() & POISONED == 0 => {
                group.took = since.elapsed();
                self.store.buffer.set_durable(upto);
                drained
            }
            Ok(_) => Err(Error::Poisoned),
            // Nothing was asked of the disk, so nothing is lost.
            Err(error) if error.is_shortage() => {
                self.flusher().put_back(unsynced);
                Err(error)
            }
            Err(error) => {
                // What the kernel could not write it may have thrown away: no later sync tells.
                self.store.buffer.set_state(POISONED);
                Err(error)
            }
        }
    }

    /// Somebody has read up to a position, or removed a checkpoint: segments may be free.
    pub(crate) fn passed(&self, position: u64) {
        if let Some(mut flusher) = self.try_flusher() {
            let full = self.store.buffer.state() & FULL != 0;
            if full || flusher.may_free(position) {
                // It is tried again when there is need; errors are told then.
                let _ = flusher.free(&self.store);
                if full {
                    let _ = flusher.drain(&self.store);
                }
            }
        }
    }

    // ---- the thread ------------------------------------------------------------------------------------

    fn run(&self) {
        /// How often it looks whether something is due though nobody woke it: a role to take over, age.
        const TICK: Duration = Duration::from_secs(1);
        /// How often it looks whether the role is free while there is work that nobody does.
        const ELSEWHERE: Duration = Duration::from_millis(50);
        let buffer = &self.store.buffer;
        let stopped = || self.stop.load(Ordering::SeqCst);
        let gather_for =
            self.options.flush_every.min(self.options.sync_every.unwrap_or(TICK)).min(TICK);
        let mut synced = Instant::now();
        let mut freed = Instant::now();
        let (mut rested, mut busy) = (false, false);
        while !stopped() {
            self.options.supervisor.fault_point("journal");
            // To be full is something to do, too: it is over when there is room, though nothing waits in the
            // buffer, where nothing is taken meanwhile.
            let pending = || buffer.mark().ring < buffer.end().0 || buffer.state() & FULL != 0;
            if self.flusher().has_role()
                && buffer.role_wanted()
                && self.flusher().give_up_role(&self.store)
            {
                thread::sleep(ELSEWHERE);
            }
            if buffer.durable_wanted() {
                rested = false;
                let result = self.sync(self.group());
                synced = Instant::now();
                match result {
                    Ok(Flushed::All) => continue,
                    Ok(Flushed::Elsewhere) => buffer.sleep_elsewhere(ELSEWHERE),
                    Err(_) => thread::sleep(ELSEWHERE),
                }
                continue;
            }
            if pending() && !rested {
                // Company for the first record; woken early when there is a frame's worth.
                rested = true;
                // Under load the next frame's worth is there sooner than this thread would be awake again.
                if busy {
                    spin(|| buffer.is_gathered());
                }
                busy = false;
                buffer.sleep_flusher(false, Some(gather_for), &mut || {
                    stopped() || buffer.durable_wanted() || buffer.is_gathered()
                });
                continue;
            }
            rested = false;
            if pending() {
                busy = buffer.is_gathered();
                match self.flusher().drain(&self.store) {
                    Ok(Flushed::All) => {}
                    Ok(Flushed::Elsewhere) => buffer.sleep_elsewhere(ELSEWHERE),
                    // Full, or poisoned: appends say so. It is tried again.
                    Err(_) => thread::sleep(ELSEWHERE),
                }
            }
            if self.options.sync_every.is_some_and(|every| synced.elapsed() >= every)
                && buffer.durable() < buffer.mark().position
                && buffer.state() & POISONED == 0
            {
                let _ = self.sync(self.group());
                synced = Instant::now();
            }
            if freed.elapsed() >= TICK {
                freed = Instant::now();
                let _ = self.flusher().free(&self.store);
            }
            if !pending() {
                buffer.sleep_flusher(true, Some(TICK), &mut || {
                    stopped() || pending() || buffer.durable_wanted()
                });
            }
        }
    }
}

/// Looks again and again for the time that falling asleep and being woken would take.
fn spin(mut done: impl FnMut() -> bool) {
    const TIME: Duration = Duration::from_micros(20);
    let since = Instant::now();
    while !done() && since.elapsed() < TIME {
        std::hint::spin_loop();
    }
}

/// Records with their lengths, as in a frame's group.
fn pack(group: &mut Vec<u8>, records: &[&[u8]]) {
    for record in records {
        frame::put_varint(group, record.len() as u64);
        group.extend_from_slice(record);
    }
}
