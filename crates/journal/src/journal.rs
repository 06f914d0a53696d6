//! Journal handle: append, acknowledge, background thread.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use disk::{Disk, OpenMode, Region};

use crate::buffer::{AppendOutcome, AppendRequest, Buffer, BufferLayout, FAIL_STOP, FULL};
use crate::checkpoint::{self, Checkpoint, CheckpointKind, LockedCheckpoint};
use crate::error::{Error, FullReason, IoContext, Result};
use crate::flusher::{DirectAppend, FlushOutcome, SegmentFlusher};
use crate::frame;
use crate::handle_locks::{HandleLocks, OpenLock};
use crate::level::{Ack, BatchIdentity, Level, Watermarks};
use crate::paths::Paths;
use crate::reader::{JournalReader, StartPosition};
use crate::recovery::{self, RecoveryReport};
use crate::settings::{Limits, Settings};
use crate::shared::{JournalShared, StoredSettings, WallClock, wall_clock};
use crate::subscriber::Subscriber;
use crate::supervisor::Supervisor;

/// How a journal is opened; what is chosen anew each time.
#[derive(Clone)]
pub struct Options {
    /// No other process may have it open: `false` by default.
    pub is_exclusive: bool,
    /// A thread of its own writes what is appended to segments and does what else is due: `true` by default.
    /// Without it, only appends that find the buffer full, `flush` and the level `disk` write.
    pub has_background_thread: bool,
    /// How long records may wait in the buffer for company before they are written to a segment: 10 ms by
    /// default. In the buffer they are visible to all and survive the process already.
    pub flush_interval: Duration,
    /// After how long what was appended at a lower level is made durable all the same: 1 s by default;
    /// `None` leaves it to the kernel.
    pub sync_interval: Option<Duration>,
    /// How long an append waits for `disk`, or for room in the buffer: 10 s by default. One of those who wait
    /// for `disk` synchronises for all, and waits for the system as long as that takes.
    pub append_timeout: Duration,
    /// How often a reader that waits looks by itself: 500 ms by default. Appenders wake it, but one
    /// may be killed between its entry and waking anybody.
    pub recheck_interval: Duration,
    /// Where times come from: [`wall_clock`] by default.
    pub clock: WallClock,
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
            is_exclusive: false,
            has_background_thread: true,
            flush_interval: Duration::from_millis(10),
            sync_interval: Some(Duration::from_secs(1)),
            append_timeout: Duration::from_secs(10),
            recheck_interval: Duration::from_millis(500),
            clock: wall_clock(),
            settings: None,
            supervisor: Supervisor::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("alone", &self.is_exclusive)
            .field("flush_every", &self.flush_interval)
            .finish_non_exhaustive()
    }
}

/// An open journal. All methods may be called from any thread.
pub struct Journal {
    inner: Arc<JournalInner>,
    thread: Option<JoinHandle<()>>,
}

/// Statistics of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStat {
    /// Its number, made at random when it was created.
    pub id: u128,
    /// When that was, in nanoseconds since the Unix epoch.
    pub created: i64,
    /// What it was created with.
    pub settings: Settings,
    /// How far it has come.
    pub watermarks: Watermarks,
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
    pub is_failed: bool,
    /// No segment could be begun; appends are refused until there is room.
    pub full_reason: Option<FullReason>,
}

pub(crate) struct JournalInner {
    pub(crate) shared: JournalShared,
    flusher: Mutex<SegmentFlusher>,
    /// Held by the one who synchronises. Taken before `flusher`, never the other way round.
    group_commit: Mutex<CommitGroup>,
    /// How many appends have asked for `disk`.
    sync_requests: AtomicU64,
    /// Another process had the flusher's role when this one asked last.
    is_lease_elsewhere: AtomicBool,
    pub(crate) options: Options,
    stop: AtomicBool,
    recovery: RecoveryReport,
}

/// Last group commit; determines how long the next one gathers.
#[derive(Debug, Default)]
struct CommitGroup {
    /// `arrived` when it began.
    sync_requests: u64,
    /// How many appends it was for.
    size: u64,
    /// How long its sync took.
    sync_time: Duration,
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
        let places = Paths::new(dir);
        // Those above it that are missing too, and the one that is there, need a sync each.
        let above: Vec<&Path> =
            dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        let missing = above.iter().take_while(|above| {
            matches!(disk.list(above), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
        });
        let changed = missing.count().saturating_add(1);
        for folder in [&places.dir, &places.segments(), &places.checkpoints(), &places.locks()] {
            disk.create_dir(folder).io_context("create it", folder)?;
        }
        let _turn = OpenLock::begin(disk, &places)?;
        match StoredSettings::read(disk, &places) {
            Err(Error::NotFound { .. }) => {}
            Ok(_) | Err(Error::SettingsLost { .. }) => {
                return Err(Error::AlreadyExists { dir: dir.to_owned() });
            }
            Err(error) => return Err(error),
        }
        let born = StoredSettings { id, created: now, settings: *settings };
        map(disk, &places, &born)?;
        // On a full disk none could be made, and a power cut takes those that were made later.
        HandleLocks::prepare(disk, &places)?;
        for folder in [places.segments(), places.checkpoints(), places.locks()] {
            disk.sync_dir(&folder).io_context("make its names durable", &folder)?;
        }
        // Last, for it is what makes the folder a journal.
        born.create(disk, &places)?;
        for folder in above.into_iter().take(changed) {
            disk.sync_dir(folder).io_context("make the new folder in it durable", folder)?;
        }
        Ok(())
    }

    /// Opens a journal. That succeeds after any crash; [`Journal::opened`] says what was found.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Journal> {
        let places = Paths::new(dir);
        let (born, wounded, is_lost) =
            match (StoredSettings::read(&*disk, &places), options.settings) {
                (Ok((born, wounded)), _) => (born, wounded, false),
                (Err(error @ Error::SettingsLost { .. }), Some(settings)) => {
                    settings.check()?;
                    let born = StoredSettings::from_segments(&*disk, &places, settings)?;
                    (born.ok_or(error)?, false, true)
                }
                (Err(error), _) => return Err(error),
            };
        for folder in [places.segments(), places.checkpoints(), places.locks()] {
            disk.create_dir(&folder).io_context("create it", &folder)?;
        }
        let turn = OpenLock::begin(&*disk, &places)?;
        let presence = HandleLocks::begin(&*disk, &places, options.is_exclusive, &turn)?;
        let buffer = map(&*disk, &places, &born)?;
        let mut opened = RecoveryReport::default();
        if presence.is_first {
            opened = recovery::recover(&*disk, &places, &born, &buffer)?;
        } else if !buffer.is_same_journal(born.id) {
            return Err(Error::InUse { dir: dir.to_owned(), is_exclusive: false });
        }
        if wounded || is_lost {
            // What is sound of it is written twice again.
            if presence.is_first {
                born.create(&*disk, &places)?;
            }
            opened.damaged_files.push(match is_lost {
                false => "journal: one copy of the settings was damaged".to_owned(),
                true => "journal: the settings were lost, and are made anew from the segments"
                    .to_owned(),
            });
        }
        buffer.begin_slot(presence.slot);
        let store = JournalShared {
            disk,
            paths: places,
            stored_settings: born,
            buffer,
            handle_locks: presence,
            clock: Arc::clone(&options.clock),
            append_timeout: options.append_timeout,
            supervisor: options.supervisor.clone(),
        };
        let mut flusher = SegmentFlusher::new(&store)?;
        if options.has_background_thread {
            flusher.acquire_lease(&store)?;
        }
        drop(turn);
        let inner = Arc::new(JournalInner {
            shared: store,
            flusher: Mutex::new(flusher),
            group_commit: Mutex::new(CommitGroup::default()),
            sync_requests: AtomicU64::new(0),
            is_lease_elsewhere: AtomicBool::new(false),
            options: options.clone(),
            stop: AtomicBool::new(false),
            recovery: opened,
        });
        let thread = match options.has_background_thread {
            true => {
                let inner = Arc::clone(&inner);
                let thread = options.supervisor.thread("journal");
                let run = move || {
                    let is_stopping = || inner.stop.load(Ordering::SeqCst);
                    let _ = thread.run(is_stopping, || inner.run());
                };
                let spawned = thread::Builder::new().name("journal".to_owned()).spawn(run);
                Some(spawned.io_context("start a thread for it", dir)?)
            }
            false => None,
        };
        Ok(Journal { inner, thread })
    }

    /// What opening found and did.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// Appends a record and waits until it has reached the level.
    pub fn append(&self, record: &[u8], level: Level) -> Result<Ack> {
        self.inner.append(None, &[record], level)
    }

    /// Appends records, all or none, next to each other. With an identity, a repeat is recognised and not
    /// appended again, also after a restart. An empty batch appends nothing and is not remembered.
    pub fn append_batch(
        &self,
        identity: Option<BatchIdentity>,
        records: &[&[u8]],
        level: Level,
    ) -> Result<Ack> {
        self.inner.append(identity, records, level)
    }

    /// Whether a batch would be a repeat.
    pub fn has_accepted(&self, identity: BatchIdentity) -> Result<bool> {
        Ok(self.inner.shared.lock_append()?.duplicate_end(Some(identity)).is_some())
    }

    /// Brings all that is appended to a level; `process` means into segments here.
    pub fn flush(&self, level: Level) -> Result<Watermarks> {
        self.inner.flush(level)?;
        Ok(self.watermarks())
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.inner.shared.paths.dir
    }

    /// The disk it is on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.shared.disk
    }

    /// What runs threads again that panic, as it was opened.
    pub fn supervisor(&self) -> &Supervisor {
        &self.inner.options.supervisor
    }

    /// Its number, as in [`Stat`].
    pub fn id(&self) -> u128 {
        self.inner.shared.stored_settings.id
    }

    /// How far it has come.
    pub fn watermarks(&self) -> Watermarks {
        let buffer = &self.inner.shared.buffer;
        let durable = buffer.durable();
        let flushed = buffer.mark().position;
        Watermarks { first: buffer.first(), durable, flushed, end: buffer.end().1.max(flushed) }
    }

    /// A reader without a name: nothing is kept for it, and what it missed it is told as a gap.
    pub fn reader(&self, start: StartPosition) -> Result<JournalReader> {
        JournalReader::new(Arc::clone(&self.inner), self.find(start)?)
    }

    /// Makes a subscriber; `holds` as in [`Checkpoint`].
    pub fn add_subscriber(
        &self,
        name: &str,
        start: StartPosition,
        holds: bool,
    ) -> Result<Checkpoint> {
        self.add(name, start, CheckpointKind::Subscriber, holds)
    }

    /// Opens a subscriber to read from where it is. One reader at a time can have it.
    pub fn subscribe(&self, name: &str) -> Result<Subscriber> {
        let store = &self.inner.shared;
        // Nobody removes it while it is opened.
        let turn = OpenLock::begin(&*store.disk, &store.paths)?;
        let held = LockedCheckpoint::open(&*store.disk, &store.paths, name)?;
        drop(turn);
        let reader = JournalReader::new(Arc::clone(&self.inner), held.get().position)?;
        Ok(Subscriber::new(reader, held))
    }

    /// Makes a mark.
    pub fn add_bookmark(
        &self,
        name: &str,
        start: StartPosition,
        holds: bool,
    ) -> Result<Checkpoint> {
        self.add(name, start, CheckpointKind::Bookmark, holds)
    }

    fn add(
        &self,
        name: &str,
        start: StartPosition,
        kind: CheckpointKind,
        holds: bool,
    ) -> Result<Checkpoint> {
        let store = &self.inner.shared;
        let (disk, places) = (&*store.disk, &store.paths);
        // Two who make the same name take turns.
        let _turn = OpenLock::begin(disk, places)?;
        match checkpoint::read(disk, places, name) {
            Err(Error::NoCheckpoint { .. }) => {}
            Ok(_) | Err(Error::CheckpointCorrupt { .. }) => {
                return Err(Error::CheckpointExists { name: name.to_owned() });
            }
            Err(error) => return Err(error),
        }
        let position = self.find(start)?;
        let checkpoint = Checkpoint {
            name: name.to_owned(),
            position,
            committed_at: store.now(),
            kind,
            blocks_deletion: holds,
            is_degraded: false,
        };
        checkpoint::create(disk, places, &checkpoint)?;
        Ok(checkpoint)
    }

    /// A subscriber's or mark's state.
    pub fn checkpoint(&self, name: &str) -> Result<Checkpoint> {
        let store = &self.inner.shared;
        checkpoint::read(&*store.disk, &store.paths, name)
    }

    /// Moves a subscriber that nobody is reading with, or a mark, forward or back; durable on return.
    pub fn set_checkpoint(&self, name: &str, start: StartPosition) -> Result<Checkpoint> {
        let store = &self.inner.shared;
        let position = self.find(start)?;
        let turn = OpenLock::begin(&*store.disk, &store.paths)?;
        match LockedCheckpoint::open(&*store.disk, &store.paths, name) {
            Ok(mut held) => held.set(position, store.now(), true)?,
            // Nothing is known of it but the name: it is a subscriber, and holds, which loses nothing.
            Err(Error::CheckpointCorrupt { .. }) => {
                let moved = store.now();
                let kind = CheckpointKind::Subscriber;
                let name = name.to_owned();
                let checkpoint = Checkpoint {
                    name,
                    position,
                    committed_at: moved,
                    kind,
                    blocks_deletion: true,
                    is_degraded: false,
                };
                checkpoint::create(&*store.disk, &store.paths, &checkpoint)?;
            }
            Err(error) => return Err(error),
        }
        drop(turn);
        self.inner.release_up_to(position);
        self.checkpoint(name)
    }

    /// Removes a subscriber that nobody is reading with, or a mark.
    pub fn remove_checkpoint(&self, name: &str) -> Result<()> {
        let store = &self.inner.shared;
        let turn = OpenLock::begin(&*store.disk, &store.paths)?;
        let held = match LockedCheckpoint::open(&*store.disk, &store.paths, name) {
            Ok(held) => Some(held),
            Err(Error::CheckpointCorrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        checkpoint::remove(&*store.disk, &store.paths, name)?;
        drop((held, turn));
        self.inner.release_up_to(u64::MAX);
        Ok(())
    }

    /// Changes the limits for those who open the journal from now on; whoever has it open, this handle too, goes
    /// on with the old ones until then.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        let store = &self.inner.shared;
        limits.check(store.stored_settings.settings.segment_bytes)?;
        let settings = Settings { limits, ..store.stored_settings.settings };
        let born = StoredSettings { settings, ..store.stored_settings };
        born.create(&*store.disk, &store.paths)
    }

    /// Whether it takes no more; [`Journal::stat`] says why.
    pub fn is_full(&self) -> bool {
        self.inner.shared.buffer.state() & FULL != 0
    }

    /// Whether segments that a reader at `position` has not passed take more than half of what all may.
    pub fn uses_half_of_limit(&self, position: u64) -> Result<bool> {
        let store = &self.inner.shared;
        let Some(max) = store.stored_settings.settings.limits.bytes_max else { return Ok(false) };
        let firsts = crate::segment::list(&*store.disk, &store.paths)?;
        let passed = firsts.iter().skip(1).filter(|&&first| first <= position).count() as u64;
        let ahead = (firsts.len() as u64).saturating_sub(passed);
        Ok(ahead.saturating_mul(store.stored_settings.settings.segment_bytes) > max / 2)
    }

    /// The journal in numbers.
    pub fn stat(&self) -> Result<JournalStat> {
        let store = &self.inner.shared;
        let (disk, places) = (&*store.disk, &store.paths);
        let (checkpoints, damaged_checkpoints) = checkpoint::list(disk, places)?;
        let state = store.buffer.state();
        Ok(JournalStat {
            id: store.stored_settings.id,
            created: store.stored_settings.created,
            settings: store.stored_settings.settings,
            watermarks: self.watermarks(),
            segments: crate::segment::list(disk, places)?.len(),
            segment_bytes: store.segment_bytes()?,
            buffered_bytes: store.buffer.used_bytes(),
            checkpoints,
            damaged_checkpoints,
            gaps: crate::gap::GapSet::load(disk, places)?.0.iter().cloned().collect(),
            is_failed: state & FAIL_STOP != 0,
            full_reason: (state & FULL != 0).then(|| store.full_reason()).transpose()?,
        })
    }

    /// A position in numbers.
    fn find(&self, start: StartPosition) -> Result<u64> {
        let Watermarks { first, end, .. } = self.watermarks();
        match start {
            StartPosition::First => Ok(first),
            StartPosition::End => Ok(end),
            StartPosition::At(position) if (first..=end).contains(&position) => Ok(position),
            StartPosition::At(found) => Err(Error::PositionOutOfRange { found, first, end }),
        }
    }

    /// Stops the thread, brings everything into segments and makes it durable. Dropping a journal does the
    /// same but for the last, and without a word when it fails.
    pub fn close(mut self) -> Result<Watermarks> {
        self.stop();
        self.inner.flush(Level::Disk)?;
        Ok(self.watermarks())
    }

    fn stop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            self.inner.shared.buffer.wake_all();
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
        let _ = flusher.drain(&self.inner.shared);
        flusher.truncate_reservation();
        flusher.release_lease(&self.inner.shared);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("store", &self.inner.shared)
            .field("marks", &self.watermarks())
            .finish()
    }
}

/// Maps the buffer, which is made, or made anew, when its file is not of the right size. Only shrinking a
/// file that others map would harm them, and whoever maps it has it at its right size.
pub(crate) fn map(disk: &dyn Disk, places: &Paths, born: &StoredSettings) -> Result<Buffer> {
    let path = places.buffer();
    let size = BufferLayout::new(born.settings.buffer_bytes, born.settings.producers_max);
    let bytes = size.file_bytes();
    let file = disk.open(&path, OpenMode::Create).io_context("open it", &path)?;
    let short = file.len().io_context("ask for its length", &path)? < bytes;
    // Also one that was copied with holes: a store to a page without room kills the process.
    file.allocate(bytes).io_context("reserve space for it", &path)?;
    if short {
        file.sync().io_context("make it durable", &path)?;
        disk.sync_dir(&places.dir).io_context("make a new name in it durable", &places.dir)?;
    }
    let memory: Region = file.map(bytes).io_context("map it into memory", &path)?;
    Ok(Buffer::new(memory, size, born.id))
}

/// Guard of the flusher; releases the lease on demand.
struct FlusherGuard<'a> {
    inner: &'a JournalInner,
    flusher: MutexGuard<'a, SegmentFlusher>,
}

impl Deref for FlusherGuard<'_> {
    type Target = SegmentFlusher;

    fn deref(&self) -> &SegmentFlusher {
        &self.flusher
    }
}

impl DerefMut for FlusherGuard<'_> {
    fn deref_mut(&mut self) -> &mut SegmentFlusher {
        &mut self.flusher
    }
}

impl Drop for FlusherGuard<'_> {
    /// Without a thread nobody here hears that others want something written: the role is not kept.
    fn drop(&mut self) {
        if !self.inner.options.has_background_thread || self.inner.stop.load(Ordering::SeqCst) {
            self.flusher.release_lease(&self.inner.shared);
        }
    }
}

thread_local! {
    /// Where the records of a batch are put together.
    static GROUP: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl JournalInner {
    fn flusher(&self) -> FlusherGuard<'_> {
        let flusher = self.flusher.lock().unwrap_or_else(|poisoned| self.recover_flusher(poisoned));
        FlusherGuard { inner: self, flusher }
    }

    /// The flusher of somebody who panicked while using it: what it knows may be half changed, and
    /// it begins anew at what is published, as after a process that died.
    fn recover_flusher<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, SegmentFlusher>>,
    ) -> MutexGuard<'a, SegmentFlusher> {
        self.flusher.clear_poison();
        let mut flusher = poisoned.into_inner();
        flusher.drop_lease_state(&self.shared);
        flusher
    }

    fn try_flusher(&self) -> Option<FlusherGuard<'_>> {
        let flusher = match self.flusher.try_lock() {
            Ok(flusher) => flusher,
            Err(TryLockError::Poisoned(poisoned)) => self.recover_flusher(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(FlusherGuard { inner: self, flusher })
    }

    // ---- appending -------------------------------------------------------------------------------------

    fn append(
        &self,
        identity: Option<BatchIdentity>,
        records: &[&[u8]],
        level: Level,
    ) -> Result<Ack> {
        let (positions, repeated) = match records {
            [] => {
                let end = self.shared.buffer.end().1;
                (end..end, false)
            }
            [record] => self.append_to_buffer(identity, 1, record, false)?,
            many => GROUP.with_borrow_mut(|group| {
                group.clear();
                encode_records(group, many);
                let count = u32::try_from(many.len()).map_err(|_| self.too_large(u64::MAX))?;
                self.append_to_buffer(identity, count, group, true)
            })?,
        };
        let level = match level {
            Level::Disk => self.reach_disk(positions.end)?,
            // The buffer is the kernel's memory, not this process's.
            Level::Process | Level::Memory => Level::Process,
        };
        Ok(Ack { positions, level, is_duplicate: repeated })
    }

    fn too_large(&self, found: u64) -> Error {
        Error::TooLarge { found, max: self.shared.stored_settings.settings.batch_bytes_max() }
    }

    /// Puts a batch into the buffer: its positions, or where the one it repeats ended.
    fn append_to_buffer(
        &self,
        identity: Option<BatchIdentity>,
        records: u32,
        body: &[u8],
        packed: bool,
    ) -> Result<(std::ops::Range<u64>, bool)> {
        let size = body.len() as u64;
        if size > self.shared.stored_settings.settings.batch_bytes_max() {
            return Err(self.too_large(size));
        }
        let time = self.shared.now();
        let append = AppendRequest { identity, records, body, is_packed: packed, time };
        let mut waiting: Option<(Instant, u32)> = None;
        let mut retried = false;
        loop {
            let (appended, tail) = self.shared.lock_append()?.append(&append);
            match appended {
                AppendOutcome::At(first) => {
                    self.shared.buffer.wake_after_append(tail);
                    return Ok((first..first.saturating_add(records.into()), false));
                }
                AppendOutcome::Duplicate(end) => return Ok((end..end, true)),
                AppendOutcome::TooLarge => return self.append_direct(&append),
                AppendOutcome::NoSpace => waiting = Some(self.wait_for_space(waiting)?),
                AppendOutcome::Rejected(state) if state & FAIL_STOP != 0 => {
                    return Err(Error::Poisoned);
                }
                // There may be room now: a subscriber has moved on, somebody deleted files.
                AppendOutcome::Rejected(_) if !retried => {
                    retried = true;
                    self.flusher().drain(&self.shared)?;
                }
                AppendOutcome::Rejected(_) => return Err(self.shared.full_reason()?.into()),
            }
        }
    }

    /// Waits for room in the buffer, or makes some. The first call only notes what a change is told by, so
    /// that none is missed between a look and the wait.
    fn wait_for_space(&self, waiting: Option<(Instant, u32)>) -> Result<(Instant, u32)> {
        let changes = self.shared.buffer.space_changes();
        let Some((since, seen)) = waiting else { return Ok((Instant::now(), changes)) };
        if let Some(mut flusher) = self.try_flusher()
            && flusher.drain(&self.shared)? == FlushOutcome::Drained
        {
            return Ok((since, changes));
        }
        let waited = since.elapsed();
        if waited >= self.options.append_timeout {
            return Err(Error::AppendTimeout { waited });
        }
        // It is most often a frame under way, which takes less than falling asleep and waking up.
        let buffer = &self.shared.buffer;
        spin(|| buffer.space_changes() != seen);
        buffer.wake_flusher();
        // In pieces: the process that empties the buffer may die.
        let left = self.options.append_timeout.saturating_sub(waited);
        let piece = left.min(Duration::from_millis(50));
        buffer.wait_space(seen, piece);
        Ok((since, buffer.space_changes()))
    }

    /// Brings a batch that is larger than the buffer straight to a segment.
    fn append_direct(&self, append: &AppendRequest<'_>) -> Result<(std::ops::Range<u64>, bool)> {
        let mut group = Vec::new();
        let body = if append.is_packed {
            append.body
        } else {
            group.reserve(append.body.len().saturating_add(10));
            frame::put_varint(&mut group, append.body.len() as u64);
            group.extend_from_slice(append.body);
            &group
        };
        let since = Instant::now();
        loop {
            match self.flusher().write_direct(
                &self.shared,
                append.identity,
                append.records,
                body,
            )? {
                DirectAppend::At(first) => {
                    let end = first.saturating_add(append.records.into());
                    return Ok((first..end, false));
                }
                DirectAppend::Duplicate(end) => return Ok((end..end, true)),
                DirectAppend::NotOwner => {}
            }
            // Only one process writes segments. It is asked to let this one.
            self.shared.buffer.request_lease();
            if since.elapsed() >= self.options.append_timeout {
                return Err(Error::NotWriter { max: self.shared.buffer.ring_bytes() / 2 });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- durability ------------------------------------------------------------------------------------

    /// Waits until everything below a position is durable; the level reached when the time is over.
    fn reach_disk(&self, position: u64) -> Result<Level> {
        let buffer = &self.shared.buffer;
        self.sync_requests.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        loop {
            let seen = buffer.durable_changes();
            if buffer.state() & FAIL_STOP != 0 {
                return Err(Error::Poisoned);
            }
            if buffer.durable() >= position {
                return Ok(Level::Disk);
            }
            let waited = since.elapsed();
            if waited >= self.options.append_timeout {
                return Ok(Level::Process);
            }
            // Whoever comes first synchronises for all; there is no need to wake a thread for it.
            match self.try_group().map(|group| self.sync(group)) {
                Some(Ok(FlushOutcome::Drained)) => continue,
                // The process that has the role is told what is wanted.
                Some(Ok(FlushOutcome::NotOwner)) => buffer.request_durable(position),
                None if self.is_lease_elsewhere.load(Ordering::Relaxed) => {
                    buffer.request_durable(position)
                }
                None => {}
                // There may be room, or others get on, before the time is over.
                Some(Err(Error::Full(_) | Error::AppendTimeout { .. })) => {}
                Some(Err(error)) => return Err(error),
            }
            let left = self.options.append_timeout.saturating_sub(waited);
            buffer.wait_durable(seen, left.min(Duration::from_millis(50)));
        }
    }

    pub(crate) fn flush(&self, level: Level) -> Result<()> {
        let buffer = &self.shared.buffer;
        let (_, end) = buffer.end();
        let since = Instant::now();
        loop {
            let seen = buffer.durable_changes();
            if buffer.state() & FAIL_STOP != 0 {
                return Err(Error::Poisoned);
            }
            // Each time around: the process that has the role may end.
            let flushed = match level {
                Level::Disk => self.sync(self.group())?,
                Level::Process | Level::Memory => self.flusher().drain(&self.shared)?,
            };
            let reached =
                if level == Level::Disk { buffer.durable() } else { buffer.mark().position };
            if flushed == FlushOutcome::Drained || reached >= end {
                return Ok(());
            }
            let waited = since.elapsed();
            if waited >= self.options.append_timeout {
                return Err(Error::AppendTimeout { waited });
            }
            // Another process writes: it is asked.
            buffer.request_durable(end);
            buffer.wait_durable(seen, Duration::from_millis(10));
        }
    }

    fn group(&self) -> MutexGuard<'_, CommitGroup> {
        self.group_commit.lock().unwrap_or_else(|poisoned| self.recover_group(poisoned))
    }

    /// The same, if nobody has it.
    fn try_group(&self) -> Option<MutexGuard<'_, CommitGroup>> {
        match self.group_commit.try_lock() {
            Ok(group) => Some(group),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.recover_group(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What whoever panicked was about to synchronise only they knew. The flusher finds it again.
    fn recover_group<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, CommitGroup>>,
    ) -> MutexGuard<'a, CommitGroup> {
        self.group_commit.clear_poison();
        self.flusher().drop_lease_state(&self.shared);
        poisoned.into_inner()
    }

    /// Drains the buffer and makes everything durable, for all who wait. They are woken after the group is
    /// released: whoever is not served yet finds that it can lead the next one.
    fn sync(&self, mut group: MutexGuard<'_, CommitGroup>) -> Result<FlushOutcome> {
        self.wait_for_group(&mut group);
        let before = self.shared.buffer.durable();
        let synced = self.sync_now(&mut group);
        self.is_lease_elsewhere
            .store(matches!(synced, Ok(FlushOutcome::NotOwner)), Ordering::Relaxed);
        drop(group);
        // When nothing has changed, whoever waits would only look, and wait again.
        if self.shared.buffer.durable() != before || self.shared.buffer.state() & FAIL_STOP != 0 {
            self.shared.buffer.wake_durable();
        }
        synced
    }

    /// Waits for as many appends as the last group had, whose threads are on their way back: two half groups
    /// cost two syncs. At most half as long as a sync takes, and not at all for a single producer.
    fn wait_for_group(&self, group: &mut CommitGroup) {
        const GATHER_MAX: Duration = Duration::from_millis(1);
        let since = Instant::now();
        let longest = group.sync_time.checked_div(2).unwrap_or_default().min(GATHER_MAX);
        let mut arrived = self.sync_requests.load(Ordering::Relaxed);
        // A count that wraps, and differences of it.
        while arrived.wrapping_sub(group.sync_requests) < group.size && since.elapsed() < longest {
            thread::yield_now();
            arrived = self.sync_requests.load(Ordering::Relaxed);
        }
        (group.size, group.sync_requests) = (arrived.wrapping_sub(group.sync_requests), arrived);
    }

    fn sync_now(&self, group: &mut CommitGroup) -> Result<FlushOutcome> {
        let (drained, unsynced) = {
            let mut flusher = self.flusher();
            match flusher.drain(&self.shared) {
                Ok(FlushOutcome::NotOwner) => return Ok(FlushOutcome::NotOwner),
                // A journal that is full still makes durable what it has.
                drained @ (Ok(FlushOutcome::Drained) | Err(Error::Full(_))) => {
                    (drained, flusher.pending_sync(&self.shared))
                }
                Err(error) => return Err(error),
            }
        };
        let since = Instant::now();
        self.options.supervisor.fault_point("journal sync");
        match unsynced.sync(&self.shared) {
            Ok(upto) if self.shared.buffer.state() & FAIL_STOP == 0 => {
                group.sync_time = since.elapsed();
                self.shared.buffer.set_durable(upto);
                drained
            }
            Ok(_) => Err(Error::Poisoned),
            // Nothing was asked of the disk, so nothing is lost.
            Err(error) if error.is_shortage() => {
                self.flusher().requeue_unsynced(unsynced);
                Err(error)
            }
            Err(error) => {
                // What the kernel could not write it may have thrown away: no later sync tells.
                self.shared.buffer.set_state(FAIL_STOP);
                Err(error)
            }
        }
    }

    /// Somebody has read up to a position, or removed a checkpoint: segments may be free.
    pub(crate) fn release_up_to(&self, position: u64) {
        if let Some(mut flusher) = self.try_flusher() {
            let full = self.shared.buffer.state() & FULL != 0;
            if full || flusher.can_free(position) {
                // It is tried again when there is need; errors are told then.
                let _ = flusher.free(&self.shared);
                if full {
                    let _ = flusher.drain(&self.shared);
                }
            }
        }
    }

    // ---- the thread ------------------------------------------------------------------------------------

    fn run(&self) {
        /// How often it looks whether something is due though nobody woke it: a role to take over, age.
        const TICK: Duration = Duration::from_secs(1);
        /// How often it looks whether the role is free while there is work that nobody does.
        const LEASE_POLL: Duration = Duration::from_millis(50);
        let buffer = &self.shared.buffer;
        let stopped = || self.stop.load(Ordering::SeqCst);
        let gather_for =
            self.options.flush_interval.min(self.options.sync_interval.unwrap_or(TICK)).min(TICK);
        let mut synced = Instant::now();
        let mut freed = Instant::now();
        let (mut rested, mut busy) = (false, false);
        while !stopped() {
            self.options.supervisor.fault_point("journal");
            // To be full is something to do, too: it is over when there is room, though nothing waits in the
            // buffer, where nothing is taken meanwhile.
            let pending = || buffer.mark().ring < buffer.end().0 || buffer.state() & FULL != 0;
            if self.flusher().holds_lease()
                && buffer.take_lease_request()
                && self.flusher().release_lease(&self.shared)
            {
                thread::sleep(LEASE_POLL);
            }
            if buffer.is_durable_requested() {
                rested = false;
                let result = self.sync(self.group());
                synced = Instant::now();
                match result {
                    Ok(FlushOutcome::Drained) => continue,
                    Ok(FlushOutcome::NotOwner) => buffer.wait_for_flusher(LEASE_POLL),
                    Err(_) => thread::sleep(LEASE_POLL),
                }
                continue;
            }
            if pending() && !rested {
                // Company for the first record; woken early when there is a frame's worth.
                rested = true;
                // Under load the next frame's worth is there sooner than this thread would be awake again.
                if busy {
                    spin(|| buffer.has_full_frame());
                }
                busy = false;
                buffer.sleep_flusher(false, Some(gather_for), &mut || {
                    stopped() || buffer.is_durable_requested() || buffer.has_full_frame()
                });
                continue;
            }
            rested = false;
            if pending() {
                busy = buffer.has_full_frame();
                match self.flusher().drain(&self.shared) {
                    Ok(FlushOutcome::Drained) => {}
                    Ok(FlushOutcome::NotOwner) => buffer.wait_for_flusher(LEASE_POLL),
                    // Full, or poisoned: appends say so. It is tried again.
                    Err(_) => thread::sleep(LEASE_POLL),
                }
            }
            if self.options.sync_interval.is_some_and(|every| synced.elapsed() >= every)
                && buffer.durable() < buffer.mark().position
                && buffer.state() & FAIL_STOP == 0
            {
                let _ = self.sync(self.group());
                synced = Instant::now();
            }
            if freed.elapsed() >= TICK {
                freed = Instant::now();
                let _ = self.flusher().free(&self.shared);
            }
            if !pending() {
                buffer.sleep_flusher(true, Some(TICK), &mut || {
                    stopped() || pending() || buffer.is_durable_requested()
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
fn encode_records(group: &mut Vec<u8>, records: &[&[u8]]) {
    for record in records {
        frame::put_varint(group, record.len() as u64);
        group.extend_from_slice(record);
    }
}
