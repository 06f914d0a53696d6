//! An open journal as its handles share it: appends, group commit and the thread that flushes.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use disk::{Disk, OpenMode, Region};

use crate::buffer::{AppendOutcome, Buffer, BufferLayout, FAIL_STOP, FULL};
use crate::error::{Error, IoContext, Result};
use crate::flusher::{DirectAppend, FlushOutcome, SegmentFlusher};
use crate::frame;
use crate::level::{Ack, BatchIdentity, Level};
use crate::options::Options;
use crate::paths::Paths;
use crate::recovery::RecoveryReport;
use crate::ring::AppendRequest;
use crate::shared::{JournalShared, StoredSettings};

/// State of an open journal.
pub(crate) struct JournalInner {
    pub(crate) shared: JournalShared,
    pub(crate) flusher: Mutex<SegmentFlusher>,
    /// Held by the one who synchronises. Taken before `flusher`, never the other way round.
    pub(crate) group_commit: Mutex<CommitGroup>,
    /// How many appends have asked for `disk`.
    pub(crate) sync_requests: AtomicU64,
    /// Another process had the flusher's role when this one asked last.
    pub(crate) is_lease_elsewhere: AtomicBool,
    pub(crate) options: Options,
    pub(crate) stop: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// Last group commit; determines how long the next one gathers.
#[derive(Debug, Default)]
pub(crate) struct CommitGroup {
    /// `arrived` when it began.
    pub(crate) sync_requests: u64,
    /// How many appends it was for.
    size: u64,
    /// How long its sync took.
    sync_time: Duration,
}

/// Maps the buffer, which is made, or made anew, when its file is not of the right size. Only
/// shrinking a file that others map would harm them, and whoever maps it has it at its right size.
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
pub(crate) struct FlusherGuard<'a> {
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
    pub(crate) fn flusher(&self) -> FlusherGuard<'_> {
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

    pub(crate) fn try_flusher(&self) -> Option<FlusherGuard<'_>> {
        let flusher = match self.flusher.try_lock() {
            Ok(flusher) => flusher,
            Err(TryLockError::Poisoned(poisoned)) => self.recover_flusher(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(FlusherGuard { inner: self, flusher })
    }

    // ----
    // appending -------------------------------------------------------------------------------------

    pub(crate) fn append(
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

    pub(crate) fn too_large(&self, found: u64) -> Error {
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

    /// Waits for room in the buffer, or makes some. The first call only notes what a change is told
    /// by, so that none is missed between a look and the wait.
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

    // ----
    // durability ------------------------------------------------------------------------------------

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

    pub(crate) fn group(&self) -> MutexGuard<'_, CommitGroup> {
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

    /// Drains the buffer and makes everything durable, for all who wait. They are woken after the
    /// group is released: whoever is not served yet finds that it can lead the next one.
    pub(crate) fn sync(&self, mut group: MutexGuard<'_, CommitGroup>) -> Result<FlushOutcome> {
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

    /// Waits for as many appends as the last group had, whose threads are on their way back: two
    /// half groups cost two syncs. At most half as long as a sync takes, and not at all for a
    /// single producer.
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

    // ---- the
    // thread ------------------------------------------------------------------------------------

    pub(crate) fn run(&self) {
        /// How often it looks whether something is due though nobody woke it: a role to take over,
        /// age.
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
            // To be full is something to do, too: it is over when there is room, though nothing
            // waits in the buffer, where nothing is taken meanwhile.
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
                // Under load the next frame's worth is there sooner than this thread would be awake
                // again.
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
