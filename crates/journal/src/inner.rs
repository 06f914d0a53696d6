//! State shared by the handles of an open journal: appends, group commit and the flush thread.

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

use disk::{Disk, IoContext, OpenMode, Region};

use crate::buffer::{AppendOutcome, Buffer, BufferLayout, FAIL_STOP, FULL};
use crate::error::{Error, Result};
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
    /// Held by the thread that fsyncs. Locked before `flusher`, never after.
    pub(crate) group_commit: Mutex<CommitGroup>,
    /// Number of appends that requested `disk`.
    pub(crate) sync_requests: AtomicU64,
    /// Another process held the lease at the last attempt.
    pub(crate) is_lease_elsewhere: AtomicBool,
    pub(crate) options: Options,
    pub(crate) stop: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// Last group commit; determines how long the next one gathers.
#[derive(Debug, Default)]
pub(crate) struct CommitGroup {
    /// `arrived` at its start.
    pub(crate) sync_requests: u64,
    /// Number of appends it served.
    size: u64,
    /// Duration of its fsync.
    sync_time: Duration,
}

/// Maps the buffer; creates or recreates the file if its size is wrong. Only shrinking a mapped
/// file would harm other processes, and a process that maps it has it at the right size.
pub(crate) fn map(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
) -> Result<Buffer> {
    let path = paths.buffer();
    let size = BufferLayout::new(
        stored_settings.settings.buffer_bytes,
        stored_settings.settings.producers_max,
    );
    let bytes = size.file_bytes();
    let file = disk.open(&path, OpenMode::Create).io_context("open", &path)?;
    let short = file.len().io_context("get the length of", &path)? < bytes;
    // Also for a sparse copy: a store to an unallocated page of a full disk kills the process.
    file.allocate(bytes).io_context("reserve space for", &path)?;
    if short {
        file.sync().io_context("fsync", &path)?;
        disk.sync_dir(&paths.dir).io_context("fsync directory", &paths.dir)?;
    }
    let memory: Region = file.map(bytes).io_context("map", &path)?;
    Ok(Buffer::new(memory, size, stored_settings.id))
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
    /// A handle without a thread cannot react to lease requests: it does not keep the lease.
    fn drop(&mut self) {
        if !self.inner.options.has_background_thread || self.inner.stop.load(Ordering::SeqCst) {
            self.flusher.release_lease(&self.inner.shared);
        }
    }
}

thread_local! {
    /// Scratch buffer for the records of a batch.
    static GROUP: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl JournalInner {
    pub(crate) fn flusher(&self) -> FlusherGuard<'_> {
        let flusher = self.flusher.lock().unwrap_or_else(|poisoned| self.recover_flusher(poisoned));
        FlusherGuard { inner: self, flusher }
    }

    /// Flusher state after a panic of its user: it may be inconsistent, so it is reloaded from the
    /// published state, as after a process death.
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

    // ---- appending ----

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
            // The buffer is kernel memory, not this process's.
            Level::Process | Level::Memory => Level::Process,
        };
        Ok(Ack { positions, level, is_duplicate: repeated })
    }

    pub(crate) fn too_large(&self, found: u64) -> Error {
        Error::TooLarge { found, max: self.shared.stored_settings.settings.batch_bytes_max() }
    }

    /// Appends a batch to the buffer; returns its positions, or the end of the batch it duplicates.
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
                    return Err(Error::FailStop);
                }
                // Space may be free now: a subscriber advanced, or files were deleted.
                AppendOutcome::Rejected(_) if !retried => {
                    retried = true;
                    self.flusher().drain(&self.shared)?;
                }
                AppendOutcome::Rejected(_) => return Err(self.shared.full_reason()?.into()),
            }
        }
    }

    /// Waits for space in the buffer, or flushes. The first call only samples the change counter,
    /// so that no change is missed between check and wait.
    fn wait_for_space(&self, waiting: Option<(Instant, u32)>) -> Result<(Instant, u32)> {
        let changes = self.shared.buffer.space_changes();
        let Some((since, wake_count)) = waiting else { return Ok((Instant::now(), changes)) };
        if let Some(mut flusher) = self.try_flusher()
            && flusher.drain(&self.shared)? == FlushOutcome::Drained
        {
            return Ok((since, changes));
        }
        let waited = since.elapsed();
        if waited >= self.options.append_timeout {
            return Err(Error::AppendTimeout { waited });
        }
        // Usually a frame write in progress, which is shorter than sleeping and waking.
        let buffer = &self.shared.buffer;
        spin(|| buffer.space_changes() != wake_count);
        buffer.wake_flusher();
        // In slices: the process that flushes may die.
        let remaining = self.options.append_timeout.saturating_sub(waited);
        let piece = remaining.min(Duration::from_millis(50));
        buffer.wait_space(wake_count, piece);
        Ok((since, buffer.space_changes()))
    }

    /// Writes a batch that is larger than the buffer directly to a segment.
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
            // Only one process writes segments: request the lease.
            self.shared.buffer.request_lease();
            if since.elapsed() >= self.options.append_timeout {
                return Err(Error::NotWriter { max: self.shared.buffer.ring_bytes() / 2 });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- durability ----

    /// Waits until everything below a position is durable; returns the level reached at the
    /// timeout.
    fn reach_disk(&self, position: u64) -> Result<Level> {
        let buffer = &self.shared.buffer;
        self.sync_requests.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        loop {
            let wake_count = buffer.durable_changes();
            if buffer.state() & FAIL_STOP != 0 {
                return Err(Error::FailStop);
            }
            if buffer.durable() >= position {
                return Ok(Level::Disk);
            }
            let waited = since.elapsed();
            if waited >= self.options.append_timeout {
                return Ok(Level::Process);
            }
            // The first waiter fsyncs for all; no other thread is woken for it.
            match self.try_group().map(|group| self.sync(group)) {
                Some(Ok(FlushOutcome::Drained)) => continue,
                // Tells the lease owner what to make durable.
                Some(Ok(FlushOutcome::NotOwner)) => buffer.request_durable(position),
                None if self.is_lease_elsewhere.load(Ordering::Relaxed) => {
                    buffer.request_durable(position)
                }
                None => {}
                // Space may become free, or others may progress, before the timeout.
                Some(Err(Error::Full(_) | Error::AppendTimeout { .. })) => {}
                Some(Err(error)) => return Err(error),
            }
            let remaining = self.options.append_timeout.saturating_sub(waited);
            buffer.wait_durable(wake_count, remaining.min(Duration::from_millis(50)));
        }
    }

    pub(crate) fn flush(&self, level: Level) -> Result<()> {
        let buffer = &self.shared.buffer;
        let (_, end) = buffer.end();
        let since = Instant::now();
        loop {
            let wake_count = buffer.durable_changes();
            if buffer.state() & FAIL_STOP != 0 {
                return Err(Error::FailStop);
            }
            // In every iteration: the lease owner may end.
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
            // Another process writes: request it.
            buffer.request_durable(end);
            buffer.wait_durable(wake_count, Duration::from_millis(10));
        }
    }

    pub(crate) fn group(&self) -> MutexGuard<'_, CommitGroup> {
        self.group_commit.lock().unwrap_or_else(|poisoned| self.recover_group(poisoned))
    }

    /// Group commit, if no thread runs one.
    fn try_group(&self) -> Option<MutexGuard<'_, CommitGroup>> {
        match self.group_commit.try_lock() {
            Ok(group) => Some(group),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.recover_group(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Group commit after a panic: its unsynced files are lost. The flusher finds them again.
    fn recover_group<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, CommitGroup>>,
    ) -> MutexGuard<'a, CommitGroup> {
        self.group_commit.clear_poison();
        self.flusher().drop_lease_state(&self.shared);
        poisoned.into_inner()
    }

    /// Drains the buffer and makes everything durable for all waiters. They are woken after the
    /// group lock is released, so that a waiter that was not served can lead the next group.
    pub(crate) fn sync(&self, mut group: MutexGuard<'_, CommitGroup>) -> Result<FlushOutcome> {
        self.wait_for_group(&mut group);
        let before = self.shared.buffer.durable();
        let synced = self.sync_now(&mut group);
        self.is_lease_elsewhere
            .store(matches!(synced, Ok(FlushOutcome::NotOwner)), Ordering::Relaxed);
        drop(group);
        // If nothing changed, waiters would only wake and wait again.
        if self.shared.buffer.durable() != before || self.shared.buffer.state() & FAIL_STOP != 0 {
            self.shared.buffer.wake_durable();
        }
        synced
    }

    /// Waits for as many appends as the last group had, whose threads are about to append again:
    /// two half groups cost two fsyncs. Waits at most half the duration of an fsync, and not at all
    /// for a single producer.
    fn wait_for_group(&self, group: &mut CommitGroup) {
        const GATHER_MAX: Duration = Duration::from_millis(1);
        let since = Instant::now();
        let longest = group.sync_time.checked_div(2).unwrap_or_default().min(GATHER_MAX);
        let mut arrived = self.sync_requests.load(Ordering::Relaxed);
        // Wrapping counter, compared by difference.
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
                // A full journal still makes its content durable.
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
            Ok(_) => Err(Error::FailStop),
            // The disk was not involved, so nothing is lost.
            Err(error) if error.is_shortage() => {
                self.flusher().requeue_unsynced(unsynced);
                Err(error)
            }
            Err(error) => {
                // The kernel may have dropped pages it could not write, and no later fsync reports
                // it.
                self.shared.buffer.set_state(FAIL_STOP);
                Err(error)
            }
        }
    }

    /// Called after a commit or the removal of a checkpoint: segments may be deletable.
    pub(crate) fn release_up_to(&self, position: u64) {
        if let Some(mut flusher) = self.try_flusher() {
            let full = self.shared.buffer.state() & FULL != 0;
            if full || flusher.can_free(position) {
                // Retried when space is needed; errors are reported then.
                let _ = flusher.free(&self.shared);
                if full {
                    let _ = flusher.drain(&self.shared);
                }
            }
        }
    }

    // ---- the thread ----

    pub(crate) fn run(&self) {
        /// Interval of checks without a wake-up: lease to take over, age limit.
        const TICK: Duration = Duration::from_secs(1);
        /// Interval of checks for a free lease while work is pending.
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
            // A full journal is pending work too: it must retry when space is freed, even if the
            // buffer is empty and rejects appends.
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
                // Lets more records join; a full frame ends the wait early.
                rested = true;
                // Under load the next frame is full before this thread would wake again.
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
                    // Everything is written, and there is no space for more.
                    Ok(FlushOutcome::Drained) if buffer.state() & FULL != 0 => {
                        thread::sleep(LEASE_POLL);
                    }
                    Ok(FlushOutcome::Drained) => {}
                    Ok(FlushOutcome::NotOwner) => buffer.wait_for_flusher(LEASE_POLL),
                    // Full or fail-stopped: appends report it. Retry.
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

/// Spins for about the time of a sleep and wake-up.
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
