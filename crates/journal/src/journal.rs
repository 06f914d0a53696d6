//! Journal handle: append, acknowledgement, background thread.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use disk::{Disk, IoContext};

use crate::buffer::{FAIL_STOP, FULL};
use crate::checkpoint::{self, Checkpoint, CheckpointKind, LockedCheckpoint};
use crate::error::{Error, FullReason, Result};
use crate::flusher::SegmentFlusher;
use crate::handle_locks::{HandleLocks, OpenLock};
use crate::level::{Ack, BatchIdentity, Level, Watermarks};
use crate::mapped_journal::{MappedJournal, StoredSettings};
use crate::open_journal::{CommitGroup, OpenJournal, map};
use crate::options::Options;
use crate::paths::Paths;
use crate::reader::{JournalReader, StartPosition};
use crate::recovery::{self, RecoveryReport};
use crate::settings::{Limits, Settings};
use crate::subscriber::Subscriber;
use crate::supervisor::Supervisor;

/// An open journal. All methods may be called from any thread.
pub struct Journal {
    inner: Arc<OpenJournal>,
    thread: Option<JoinHandle<()>>,
}

/// Statistics of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStat {
    /// Random id, set at creation.
    pub id: u128,
    /// Creation time, in nanoseconds since the Unix epoch.
    pub created: i64,
    /// Settings at creation.
    pub settings: Settings,
    /// Watermarks.
    pub watermarks: Watermarks,
    /// Number of segments.
    pub segments: usize,
    /// Bytes they take on disk, including reserved ones.
    pub segment_bytes: u64,
    /// Bytes in the buffer that are in no segment yet.
    pub buffered_bytes: u64,
    /// Checkpoints, including those of subscribers.
    pub checkpoints: Vec<Checkpoint>,
    /// Checkpoints with two corrupt copies.
    pub damaged_checkpoints: Vec<String>,
    /// Gaps that a reader may still meet.
    pub gaps: Vec<crate::RecordGap>,
    /// Fail-stop: a write or fsync failed; nothing is acknowledged.
    pub is_failed: bool,
    /// No segment could be created; appends are refused until there is space.
    pub full_reason: Option<FullReason>,
}

impl Journal {
    /// Creates a journal in a directory, which is created if missing. `id` must be random: it
    /// distinguishes this journal's bytes from those of all others.
    pub fn create(
        disk: &dyn Disk,
        dir: &Path,
        id: u128,
        now: i64,
        settings: &Settings,
    ) -> Result<()> {
        settings.check()?;
        let paths = Paths::new(dir);
        // Every new directory, and the first existing parent, needs an fsync.
        let above: Vec<&Path> =
            dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        let missing = above.iter().take_while(|above| {
            matches!(disk.list(above), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
        });
        let changed = missing.count().saturating_add(1);
        for directory in [&paths.dir, &paths.segments(), &paths.checkpoints(), &paths.locks()] {
            disk.create_dir(directory).io_context("create", directory)?;
        }
        let _guard = OpenLock::begin(disk, &paths)?;
        match StoredSettings::read(disk, &paths) {
            Err(Error::NotFound { .. }) => {}
            Ok(_) | Err(Error::SettingsLost { .. }) => {
                return Err(Error::AlreadyExists { dir: dir.to_owned() });
            }
            Err(error) => return Err(error),
        }
        let stored_settings = StoredSettings { id, created: now, settings: *settings };
        map(disk, &paths, &stored_settings)?;
        // On a full disk they could not be created later, and a power loss removes files created
        // later.
        HandleLocks::prepare(disk, &paths)?;
        for directory in [paths.segments(), paths.checkpoints(), paths.locks()] {
            disk.sync_dir(&directory).io_context("fsync directory", &directory)?;
        }
        // Last, because this file makes the directory a journal.
        stored_settings.create(disk, &paths)?;
        for directory in above.into_iter().take(changed) {
            disk.sync_dir(directory).io_context("fsync parent directory of", directory)?;
        }
        Ok(())
    }

    /// Opens a journal and recovers it from any crash; [`Journal::recovery_report`] has the result.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, options: &Options) -> Result<Journal> {
        let paths = Paths::new(dir);
        let (stored_settings, is_degraded, is_lost) =
            match (StoredSettings::read(&*disk, &paths), options.settings) {
                (Ok((stored_settings, is_degraded)), _) => (stored_settings, is_degraded, false),
                (Err(error @ Error::SettingsLost { .. }), Some(settings)) => {
                    settings.check()?;
                    let stored_settings = StoredSettings::from_segments(&*disk, &paths, settings)?;
                    (stored_settings.ok_or(error)?, false, true)
                }
                (Err(error), _) => return Err(error),
            };
        for directory in [paths.segments(), paths.checkpoints(), paths.locks()] {
            disk.create_dir(&directory).io_context("create", &directory)?;
        }
        let guard = OpenLock::begin(&*disk, &paths)?;
        let handle_locks = HandleLocks::begin(&*disk, &paths, options.is_exclusive, &guard)?;
        let buffer = map(&*disk, &paths, &stored_settings)?;
        let mut opened = RecoveryReport::default();
        if handle_locks.is_first {
            opened = recovery::recover(&*disk, &paths, &stored_settings, &buffer)?;
        } else if !buffer.is_same_journal(stored_settings.id) {
            return Err(Error::InUse { dir: dir.to_owned(), is_exclusive: false });
        }
        if is_degraded || is_lost {
            // Restores the second copy.
            if handle_locks.is_first {
                stored_settings.create(&*disk, &paths)?;
            }
            opened.damaged_files.push(match is_lost {
                false => "journal: settings degraded, one superblock copy was corrupt".to_owned(),
                true => "journal: settings lost, rebuilt from the segments".to_owned(),
            });
        }
        buffer.begin_slot(handle_locks.slot);
        let mapped = MappedJournal {
            disk,
            paths,
            stored_settings,
            buffer,
            handle_locks,
            clock: Arc::clone(&options.clock),
            append_timeout: options.append_timeout,
            supervisor: options.supervisor.clone(),
        };
        let mut flusher = SegmentFlusher::new(&mapped)?;
        if options.has_background_thread {
            flusher.acquire_lease(&mapped)?;
        }
        drop(guard);
        let inner = Arc::new(OpenJournal {
            mapped,
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
                Some(spawned.io_context("start a thread for", dir)?)
            }
            false => None,
        };
        Ok(Journal { inner, thread })
    }

    /// Result of recovery at opening.
    pub fn recovery_report(&self) -> &RecoveryReport {
        &self.inner.recovery
    }

    /// Appends a record and waits until it has reached the level.
    pub fn append(&self, record: &[u8], level: Level) -> Result<Ack> {
        self.inner.append(None, &[record], level)
    }

    /// Appends records atomically and contiguously. With an identity, a duplicate is recognised and
    /// not appended again, also after a restart. An empty batch appends nothing and is not
    /// recorded.
    pub fn append_batch(
        &self,
        identity: Option<BatchIdentity>,
        records: &[&[u8]],
        level: Level,
    ) -> Result<Ack> {
        self.inner.append(identity, records, level)
    }

    /// Whether a batch would be a duplicate.
    pub fn has_accepted(&self, identity: BatchIdentity) -> Result<bool> {
        Ok(self.inner.mapped.lock_append()?.duplicate_end(Some(identity)).is_some())
    }

    /// Sequence of the last accepted batch of a producer epoch: later ones are no duplicates.
    pub fn last_sequence(&self, producer: u64, epoch: u64) -> Result<Option<u64>> {
        Ok(self.inner.mapped.lock_append()?.last_sequence(producer, epoch))
    }

    /// Brings everything appended to a level; `process` means written to segments here.
    pub fn flush(&self, level: Level) -> Result<Watermarks> {
        self.inner.flush(level)?;
        Ok(self.watermarks())
    }

    /// Directory.
    pub fn dir(&self) -> &Path {
        &self.inner.mapped.paths.dir
    }

    /// Disk.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.inner.mapped.disk
    }

    /// Supervisor given at opening.
    pub fn supervisor(&self) -> &Supervisor {
        &self.inner.options.supervisor
    }

    /// Id, as in [`JournalStat`].
    pub fn id(&self) -> u128 {
        self.inner.mapped.stored_settings.id
    }

    /// When it was created, in nanoseconds since the Unix epoch; 0 if that is unknown.
    pub fn created_at(&self) -> i64 {
        self.inner.mapped.stored_settings.created
    }

    /// Current watermarks.
    pub fn watermarks(&self) -> Watermarks {
        let buffer = &self.inner.mapped.buffer;
        let durable = buffer.durable();
        let flushed = buffer.mark().position;
        Watermarks { first: buffer.first(), durable, flushed, end: buffer.end().1.max(flushed) }
    }

    /// Anonymous reader: it pins no records and gets a gap for what it missed.
    pub fn reader(&self, start: StartPosition) -> Result<JournalReader> {
        JournalReader::new(Arc::clone(&self.inner), self.find(start)?)
    }

    /// Adds a subscriber; `pins_records` as in [`Checkpoint`].
    pub fn add_subscriber(
        &self,
        name: &str,
        start: StartPosition,
        pins_records: bool,
    ) -> Result<Checkpoint> {
        self.add(name, start, CheckpointKind::Subscriber, pins_records)
    }

    /// Opens a subscriber for reading from its position. One reader at a time can have it open.
    pub fn subscribe(&self, name: &str) -> Result<Subscriber> {
        let mapped = &self.inner.mapped;
        // Excludes a concurrent removal.
        let guard = OpenLock::begin(&*mapped.disk, &mapped.paths)?;
        let checkpoint = LockedCheckpoint::open(&*mapped.disk, &mapped.paths, name)?;
        drop(guard);
        let reader = JournalReader::new(Arc::clone(&self.inner), checkpoint.get().position)?;
        Ok(Subscriber::new(reader, checkpoint))
    }

    /// Adds a plain checkpoint.
    pub fn add_checkpoint(
        &self,
        name: &str,
        start: StartPosition,
        pins_records: bool,
    ) -> Result<Checkpoint> {
        self.add(name, start, CheckpointKind::Plain, pins_records)
    }

    fn add(
        &self,
        name: &str,
        start: StartPosition,
        kind: CheckpointKind,
        pins_records: bool,
    ) -> Result<Checkpoint> {
        let mapped = &self.inner.mapped;
        let (disk, paths) = (&*mapped.disk, &mapped.paths);
        // Serialises creation under the same name.
        let _guard = OpenLock::begin(disk, paths)?;
        match checkpoint::read(disk, paths, name) {
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
            committed_at: mapped.now(),
            kind,
            pins_records,
            is_degraded: false,
        };
        checkpoint::create(disk, paths, &checkpoint)?;
        Ok(checkpoint)
    }

    /// A checkpoint, which may be that of a subscriber.
    pub fn checkpoint(&self, name: &str) -> Result<Checkpoint> {
        let mapped = &self.inner.mapped;
        checkpoint::read(&*mapped.disk, &mapped.paths, name)
    }

    /// Moves a checkpoint in either direction; durable on
    /// return.
    pub fn set_checkpoint(&self, name: &str, start: StartPosition) -> Result<Checkpoint> {
        let mapped = &self.inner.mapped;
        let position = self.find(start)?;
        let guard = OpenLock::begin(&*mapped.disk, &mapped.paths)?;
        match LockedCheckpoint::open(&*mapped.disk, &mapped.paths, name) {
            Ok(mut held) => held.set(position, mapped.now(), true)?,
            // Only the name is known: assume a subscriber that pins records, which loses nothing.
            Err(Error::CheckpointCorrupt { .. }) => {
                let committed_at = mapped.now();
                let kind = CheckpointKind::Subscriber;
                let name = name.to_owned();
                let checkpoint = Checkpoint {
                    name,
                    position,
                    committed_at,
                    kind,
                    pins_records: true,
                    is_degraded: false,
                };
                checkpoint::create(&*mapped.disk, &mapped.paths, &checkpoint)?;
            }
            Err(error) => return Err(error),
        }
        drop(guard);
        self.inner.release_up_to(position);
        self.checkpoint(name)
    }

    /// Renames a checkpoint durably; a subscriber must have no open reader.
    pub fn rename_checkpoint(&self, name: &str, new_name: &str) -> Result<()> {
        let mapped = &self.inner.mapped;
        let (disk, paths) = (&*mapped.disk, &mapped.paths);
        let _guard = OpenLock::begin(disk, paths)?;
        let _lock = LockedCheckpoint::open(disk, paths, name)?;
        match checkpoint::read(disk, paths, new_name) {
            Err(Error::NoCheckpoint { .. }) => checkpoint::rename(disk, paths, name, new_name),
            Ok(_) | Err(Error::CheckpointCorrupt { .. }) => {
                Err(Error::CheckpointExists { name: new_name.to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a checkpoint; a subscriber must have no open reader.
    pub fn remove_checkpoint(&self, name: &str) -> Result<()> {
        let mapped = &self.inner.mapped;
        let guard = OpenLock::begin(&*mapped.disk, &mapped.paths)?;
        let locked = match LockedCheckpoint::open(&*mapped.disk, &mapped.paths, name) {
            Ok(locked) => Some(locked),
            Err(Error::CheckpointCorrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        checkpoint::remove(&*mapped.disk, &mapped.paths, name)?;
        drop((locked, guard));
        self.inner.release_up_to(u64::MAX);
        Ok(())
    }

    /// Changes the limits for handles opened from now on; open handles, including this one, keep
    /// the old limits.
    pub fn set_limits(&self, limits: Limits) -> Result<()> {
        let mapped = &self.inner.mapped;
        limits.check(mapped.stored_settings.settings.segment_bytes)?;
        let settings = Settings { limits, ..mapped.stored_settings.settings };
        let stored_settings = StoredSettings { settings, ..mapped.stored_settings };
        stored_settings.create(&*mapped.disk, &mapped.paths)
    }

    /// Creates the first segment of a new journal, so that a disk without space for it is known
    /// before the first append: the error is [`Error::Full`] then.
    pub fn reserve_first_segment(&self) -> Result<()> {
        self.inner.flusher().reserve_first_segment(&self.inner.mapped)
    }

    /// Whether the journal is full; [`Journal::stat`] has the reason.
    pub fn is_full(&self) -> bool {
        self.inner.mapped.buffer.state() & FULL != 0
    }

    /// Whether segments that a reader at `position` has not passed take more than half of the size
    /// limit.
    pub fn uses_half_of_limit(&self, position: u64) -> Result<bool> {
        let mapped = &self.inner.mapped;
        let Some(max) = mapped.stored_settings.settings.limits.bytes_max else { return Ok(false) };
        let firsts = crate::segment::list(&*mapped.disk, &mapped.paths)?;
        let passed = firsts.iter().skip(1).filter(|&&first| first <= position).count() as u64;
        let ahead = (firsts.len() as u64).saturating_sub(passed);
        Ok(ahead.saturating_mul(mapped.stored_settings.settings.segment_bytes) > max / 2)
    }

    /// Statistics of the journal.
    pub fn stat(&self) -> Result<JournalStat> {
        let mapped = &self.inner.mapped;
        let (disk, paths) = (&*mapped.disk, &mapped.paths);
        let (checkpoints, damaged_checkpoints) = checkpoint::list(disk, paths)?;
        let state = mapped.buffer.state();
        Ok(JournalStat {
            id: mapped.stored_settings.id,
            created: mapped.stored_settings.created,
            settings: mapped.stored_settings.settings,
            watermarks: self.watermarks(),
            segments: crate::segment::list(disk, paths)?.len(),
            segment_bytes: mapped.segment_bytes()?,
            buffered_bytes: mapped.buffer.used_bytes(),
            checkpoints,
            damaged_checkpoints,
            gaps: crate::gap::GapSet::load(disk, paths)?.0.iter().cloned().collect(),
            is_failed: state & FAIL_STOP != 0,
            full_reason: (state & FULL != 0).then(|| mapped.full_reason()).transpose()?,
        })
    }

    /// Resolves a start position.
    fn find(&self, start: StartPosition) -> Result<u64> {
        let Watermarks { first, end, .. } = self.watermarks();
        match start {
            StartPosition::First => Ok(first),
            StartPosition::End => Ok(end),
            StartPosition::At(position) if (first..=end).contains(&position) => Ok(position),
            StartPosition::At(found) => Err(Error::PositionOutOfRange { found, first, end }),
        }
    }

    /// Stops the thread, flushes everything to segments and makes it durable. Dropping a journal
    /// does the same without the fsync, and ignores errors.
    pub fn close(mut self) -> Result<Watermarks> {
        self.stop();
        self.inner.flush(Level::Disk)?;
        Ok(self.watermarks())
    }

    fn stop(&mut self) {
        self.inner.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            self.inner.mapped.buffer.wake_all();
            // The thread catches panics; there is nothing to recover.
            let _ = thread.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
        let mut flusher = self.inner.flusher();
        // Unwritten records stay in the buffer, which survives this process.
        let _ = flusher.drain(&self.inner.mapped);
        flusher.truncate_reservation();
        flusher.release_lease(&self.inner.mapped);
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("mapped", &self.inner.mapped)
            .field("marks", &self.watermarks())
            .finish()
    }
}
