//! An open journal, shared by its handles in this process: appends, group commit and the flush
//! thread.
//!
//! The *writer lease* is a file lock: one process at a time holds it, and only that process writes
//! segments and fsyncs. The others append to the shared buffer and ask it for durability, or for
//! the lease.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use std::{io, thread};

use disk::{Disk, IoContext, OpenMode, Region};

use crate::buffer::{AppendOutcome, Buffer, BufferLayout, FAIL_STOP, FULL};
use crate::error::{Error, Result};
use crate::flusher::{DirectAppend, FlushOutcome, SegmentFlusher};
use crate::frame;
use crate::level::{Ack, BatchIdentity, Level};
use crate::mapped_journal::{MappedJournal, StoredSettings};
use crate::options::Options;
use crate::paths::Paths;
use crate::recovery::RecoveryReport;
use crate::ring::AppendRequest;
use crate::segment::is_no_space;

/// An open journal.
pub(crate) struct OpenJournal {
    pub(crate) mapped: MappedJournal,
    pub(crate) flusher: Mutex<SegmentFlusher>,
    /// Held by the thread that fsyncs. Locked before `flusher`, never after.
    pub(crate) group_commit: Mutex<CommitGroup>,
    /// Number of appends that requested `disk`.
    pub(crate) sync_requests: AtomicU64,
    /// Another process held the writer lease at the last attempt.
    pub(crate) is_lease_elsewhere: AtomicBool,
    pub(crate) options: Options,
    pub(crate) stop: AtomicBool,
    pub(crate) recovery: RecoveryReport,
}

/// Last group commit; determines how long the next one gathers.
#[derive(Debug, Default)]
pub(crate) struct CommitGroup {
    /// `OpenJournal::sync_requests` when the group began.
    pub(crate) sync_requests: u64,
    /// Number of appends it served.
    size: u64,
    /// Duration of its fsync.
    sync_time: Duration,
}

/// Maps the buffer; creates the file, or enlarges it. It is never shrunk, which would cause
/// SIGBUS in processes that map it.
pub(crate) fn map(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
) -> Result<Buffer> {
    let path = paths.buffer();
    let size = BufferLayout::new(
        stored_settings.settings.buffer_bytes,
        stored_settings.settings.dedup_producers,
    );
    let bytes = size.file_bytes();
    let file = disk.open(&path, OpenMode::Create).io_context("open", &path)?;
    let short = file.len().io_context("get the length of", &path)? < bytes;
    // Also for a sparse copy: a store to an unallocated page of a full disk kills the process.
    let segment_bytes = stored_settings.settings.segment_bytes;
    let reserved = file.allocate(bytes).map_err(|error| match is_no_space(&error) {
        true => io::Error::new(error.kind(), needed_space(&error, bytes, segment_bytes)),
        false => error,
    });
    reserved.io_context("reserve space for", &path)?;
    if short {
        file.sync().io_context("fsync", &path)?;
        disk.sync_dir(&paths.dir).io_context("fsync directory", &paths.dir)?;
    }
    let memory: Region = file.map(bytes).io_context("map", &path)?;
    Ok(Buffer::new(memory, size, stored_settings.id))
}

/// The error of a full disk, with how much space is needed.
fn needed_space(error: &io::Error, bytes: u64, segment_bytes: u64) -> String {
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    format!(
        "{error}; it needs {}, and each file of the journal up to {}: free this space",
        megabytes(bytes),
        megabytes(segment_bytes)
    )
}

/// Guard of the flusher; releases the lease on demand.
pub(crate) struct FlusherGuard<'a> {
    inner: &'a OpenJournal,
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
            self.flusher.release_lease(&self.inner.mapped);
        }
    }
}

thread_local! {
    /// Scratch buffer for the records of a batch.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl OpenJournal {
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
        flusher.drop_lease_state(&self.mapped);
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
                let end = self.mapped.buffer.end().1;
                (end..end, false)
            }
            [record] => self.append_to_buffer(identity, 1, record, false)?,
            many => SCRATCH.with_borrow_mut(|body| {
                body.clear();
                encode_records(body, many);
                let count = u32::try_from(many.len()).map_err(|_| self.too_large(u64::MAX))?;
                self.append_to_buffer(identity, count, body, true)
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
        Error::TooLarge { found, max: self.mapped.stored_settings.settings.batch_bytes_max() }
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
        if size > self.mapped.stored_settings.settings.batch_bytes_max() {
            return Err(self.too_large(size));
        }
        let time = self.mapped.now();
        let append = AppendRequest { identity, records, body, is_packed: packed, time };
        let mut waiting: Option<(Instant, u32)> = None;
        let mut retried = false;
        loop {
            let (appended, tail) = self.mapped.lock_append()?.append(&append);
            match appended {
                AppendOutcome::At(first) => {
                    self.mapped.buffer.wake_after_append(tail);
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
                    self.flusher().drain(&self.mapped)?;
                }
                AppendOutcome::Rejected(_) => return Err(self.mapped.full_reason()?.into()),
            }
        }
    }

    /// Waits for space in the buffer, or flushes. The first call only samples the change counter,
    /// so that no change is missed between check and wait.
    fn wait_for_space(&self, waiting: Option<(Instant, u32)>) -> Result<(Instant, u32)> {
        let changes = self.mapped.buffer.space_changes();
        let Some((since, wake_count)) = waiting else { return Ok((Instant::now(), changes)) };
        if let Some(mut flusher) = self.try_flusher()
            && flusher.drain(&self.mapped)? == FlushOutcome::Drained
        {
            return Ok((since, changes));
        }
        let waited = since.elapsed();
        if waited >= self.options.append_timeout {
            return Err(Error::AppendTimeout { waited });
        }
        // Usually a frame write in progress, which is shorter than sleeping and waking.
        let buffer = &self.mapped.buffer;
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
        let mut scratch = Vec::new();
        let body = if append.is_packed {
            append.body
        } else {
            scratch.reserve(append.body.len().saturating_add(10));
            frame::put_varint(&mut scratch, append.body.len() as u64);
            scratch.extend_from_slice(append.body);
            &scratch
        };
        let since = Instant::now();
        loop {
            match self.flusher().write_direct(
                &self.mapped,
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
            self.mapped.buffer.request_lease();
            if since.elapsed() >= self.options.append_timeout {
                return Err(Error::NotWriter { max: self.mapped.buffer.ring_bytes() / 2 });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- durability ----

    /// Waits until everything below a position is durable; returns the level reached at the
    /// timeout.
    fn reach_disk(&self, position: u64) -> Result<Level> {
        let buffer = &self.mapped.buffer;
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
            match self.try_lock_group_commit().map(|group| self.sync(group)) {
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
        let buffer = &self.mapped.buffer;
        let (_, end) = buffer.end();
        let since = Instant::now();
        loop {
            let wake_count = buffer.durable_changes();
            if buffer.state() & FAIL_STOP != 0 {
                return Err(Error::FailStop);
            }
            // In every iteration: the lease owner may end.
            let flushed = match level {
                Level::Disk => self.sync(self.lock_group_commit())?,
                Level::Process | Level::Memory => self.flusher().drain(&self.mapped)?,
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

    pub(crate) fn lock_group_commit(&self) -> MutexGuard<'_, CommitGroup> {
        self.group_commit.lock().unwrap_or_else(|poisoned| self.recover_group_commit(poisoned))
    }

    /// Group commit, if no thread runs one.
    fn try_lock_group_commit(&self) -> Option<MutexGuard<'_, CommitGroup>> {
        match self.group_commit.try_lock() {
            Ok(group) => Some(group),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.recover_group_commit(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Group commit after a panic: its unsynced files are lost. The flusher finds them again.
    fn recover_group_commit<'a>(
        &'a self,
        poisoned: PoisonError<MutexGuard<'a, CommitGroup>>,
    ) -> MutexGuard<'a, CommitGroup> {
        self.group_commit.clear_poison();
        self.flusher().drop_lease_state(&self.mapped);
        poisoned.into_inner()
    }

    /// Drains the buffer and makes everything durable for all waiters. They are woken after the
    /// group lock is released, so that a waiter that was not served can lead the next group.
    pub(crate) fn sync(&self, mut group: MutexGuard<'_, CommitGroup>) -> Result<FlushOutcome> {
        self.gather_group(&mut group);
        let before = self.mapped.buffer.durable();
        let synced = self.sync_now(&mut group);
        self.is_lease_elsewhere
            .store(matches!(synced, Ok(FlushOutcome::NotOwner)), Ordering::Relaxed);
        drop(group);
        // If nothing changed, waiters would only wake and wait again.
        if self.mapped.buffer.durable() != before || self.mapped.buffer.state() & FAIL_STOP != 0 {
            self.mapped.buffer.wake_durable();
        }
        synced
    }

    /// Waits for as many appends as the last group had, whose threads are about to append again:
    /// splitting them into two groups would cost two fsyncs instead of one. Waits at most half the
    /// duration of an fsync, and not at all for a single producer.
    fn gather_group(&self, group: &mut CommitGroup) {
        const GATHER_MAX: Duration = Duration::from_millis(1);
        let since = Instant::now();
        let longest = group.sync_time.checked_div(2).unwrap_or_default().min(GATHER_MAX);
        let mut requests = self.sync_requests.load(Ordering::Relaxed);
        // Wrapping counter, compared by difference.
        while requests.wrapping_sub(group.sync_requests) < group.size && since.elapsed() < longest {
            thread::yield_now();
            requests = self.sync_requests.load(Ordering::Relaxed);
        }
        (group.size, group.sync_requests) = (requests.wrapping_sub(group.sync_requests), requests);
    }

    fn sync_now(&self, group: &mut CommitGroup) -> Result<FlushOutcome> {
        let (drained, unsynced) = {
            let mut flusher = self.flusher();
            match flusher.drain(&self.mapped) {
                Ok(FlushOutcome::NotOwner) => return Ok(FlushOutcome::NotOwner),
                // A full journal still makes its content durable.
                drained @ (Ok(FlushOutcome::Drained) | Err(Error::Full(_))) => {
                    (drained, flusher.pending_sync(&self.mapped))
                }
                Err(error) => return Err(error),
            }
        };
        let since = Instant::now();
        self.options.supervisor.failpoint("journal sync");
        match unsynced.sync(&self.mapped) {
            Ok(up_to) if self.mapped.buffer.state() & FAIL_STOP == 0 => {
                group.sync_time = since.elapsed();
                self.mapped.buffer.set_durable(up_to);
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
                self.mapped.buffer.set_state(FAIL_STOP);
                Err(error)
            }
        }
    }

    /// Called after a commit or the removal of a checkpoint: segments may be deletable.
    pub(crate) fn release_up_to(&self, position: u64) {
        if let Some(mut flusher) = self.try_flusher() {
            let full = self.mapped.buffer.state() & FULL != 0;
            if full || flusher.can_free(position) {
                // Retried when space is needed; errors are reported then.
                let _ = flusher.free(&self.mapped);
                if full {
                    let _ = flusher.drain(&self.mapped);
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
        let buffer = &self.mapped.buffer;
        let stopped = || self.stop.load(Ordering::SeqCst);
        let gather_time =
            self.options.flush_interval.min(self.options.sync_interval.unwrap_or(TICK)).min(TICK);
        let mut last_sync = Instant::now();
        let mut last_free = Instant::now();
        let (mut is_gathered, mut is_busy) = (false, false);
        while !stopped() {
            self.options.supervisor.failpoint("journal");
            // A full journal is pending work too: it must retry when space is freed, even if the
            // buffer is empty and rejects appends.
            let pending = || buffer.mark().ring < buffer.end().0 || buffer.state() & FULL != 0;
            if self.flusher().holds_lease()
                && buffer.take_lease_request()
                && self.flusher().release_lease(&self.mapped)
            {
                thread::sleep(LEASE_POLL);
            }
            if buffer.is_durable_requested() {
                is_gathered = false;
                let result = self.sync(self.lock_group_commit());
                last_sync = Instant::now();
                match result {
                    Ok(FlushOutcome::Drained) => continue,
                    Ok(FlushOutcome::NotOwner) => buffer.wait_for_flusher(LEASE_POLL),
                    Err(_) => thread::sleep(LEASE_POLL),
                }
                continue;
            }
            if pending() && !is_gathered {
                // Lets more records join; a full frame ends the wait early.
                is_gathered = true;
                // Under load the next frame is full before this thread would wake again.
                if is_busy {
                    spin(|| buffer.has_full_frame());
                }
                is_busy = false;
                buffer.sleep_flusher(false, Some(gather_time), &mut || {
                    stopped() || buffer.is_durable_requested() || buffer.has_full_frame()
                });
                continue;
            }
            is_gathered = false;
            if pending() {
                is_busy = buffer.has_full_frame();
                match self.flusher().drain(&self.mapped) {
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
            if self.options.sync_interval.is_some_and(|every| last_sync.elapsed() >= every)
                && buffer.durable() < buffer.mark().position
                && buffer.state() & FAIL_STOP == 0
            {
                let _ = self.sync(self.lock_group_commit());
                last_sync = Instant::now();
            }
            if last_free.elapsed() >= TICK {
                last_free = Instant::now();
                let _ = self.flusher().free(&self.mapped);
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

/// Records with their lengths, as in a batch of a frame.
fn encode_records(body: &mut Vec<u8>, records: &[&[u8]]) {
    for record in records {
        frame::put_varint(body, record.len() as u64);
        body.extend_from_slice(record);
    }
}
