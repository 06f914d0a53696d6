//! Group commit: one thread syncs the journal for all waiting senders.
//!
//! The outcome is published under one lock, `request`, so that a waiter that checks and then waits
//! cannot miss it. The thread ends when it is stopped, or when the journal permanently stops
//! acknowledging; present and future waiters then get an error. After a panic the thread is
//! restarted and waiters keep waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::log::LogLevel;
use journal::{FullReason, Level};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::meter::LatencyHistogram;
use crate::settings::Settings;
use crate::space_monitor::SpaceMonitor;
use crate::write_target::WriteTarget;

/// Retry interval of the thread after a failure for lack of space.
const RETRY: Duration = Duration::from_millis(200);
/// Duration of one wait; the condition is then checked again.
const WAIT: Duration = Duration::from_secs(60);
/// How long a request waits for space: the store frees some when it has written a part, and the
/// size limit of the journal ends when a subscriber catches up. A retry after it may count twice.
const SPACE_PATIENCE: Duration = Duration::from_secs(10);
/// Retry delay for senders when too many bytes wait for the disk.
const RETRY_AFTER_BACKLOG: Duration = Duration::from_secs(1);

/// Durable position of the journal, or its failure.
#[derive(Clone, Debug)]
struct DurableState {
    position: u64,
    failure: Option<String>,
    /// Appended batches wait for space.
    shortage: Option<FullReason>,
}

#[derive(Debug)]
pub(crate) struct GroupCommit {
    shared: Arc<CommitState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct CommitState {
    target: WriteTarget,
    sync_latency: LatencyHistogram,
    /// Bytes of batches being appended or waiting for the disk.
    in_flight: AtomicU64,
    request: Mutex<SyncRequest>,
    wake: Condvar,
    durable: watch::Sender<DurableState>,
    /// Wakes waiters without a runtime.
    done: Condvar,
    /// Whether a commit thread exists; otherwise the waiter syncs.
    has_thread: bool,
    space: Arc<SpaceMonitor>,
    settings: Settings,
}

#[derive(Debug)]
struct SyncRequest {
    position: u64,
    stop: bool,
    /// End positions of batches in flight, ascending, with their bytes.
    in_flight: VecDeque<(u64, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GroupCommit {
    pub(crate) fn start(
        target: WriteTarget,
        timer: LatencyHistogram,
        space: Arc<SpaceMonitor>,
        settings: Settings,
    ) -> std::io::Result<GroupCommit> {
        let has_thread = settings.background;
        let position = target.journal().watermarks().durable;
        let (durable, _) = watch::channel(DurableState { position, failure: None, shortage: None });
        let shared = Arc::new(CommitState {
            target,
            sync_latency: timer,
            in_flight: AtomicU64::new(0),
            request: Mutex::new(SyncRequest { position, stop: false, in_flight: VecDeque::new() }),
            wake: Condvar::new(),
            durable,
            done: Condvar::new(),
            has_thread,
            space,
            settings,
        });
        let thread = match has_thread {
            true => {
                let shared = Arc::clone(&shared);
                let supervised = shared.target.supervisor().thread("commit");
                let work = move || {
                    let _ending = ShutdownGuard(&shared);
                    let is_stopping = || lock(&shared.request).stop;
                    let _ = supervised.run(is_stopping, || run_committer(&shared));
                };
                let thread = std::thread::Builder::new().name("commit".to_owned());
                Some(thread.spawn(work)?)
            }
            false => None,
        };
        Ok(GroupCommit { shared, thread: Mutex::new(thread) })
    }

    /// Bytes of accepted batches that wait for the disk.
    pub(crate) fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Reserves bytes for a batch, until [`GroupCommit::release`] or until the batch is settled. A
    /// single batch is always admitted.
    pub(crate) fn reserve(&self, bytes: u64, max: u64) -> Result<()> {
        let before = self.shared.in_flight.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || before.saturating_add(bytes) <= max {
            return Ok(());
        }
        self.release(bytes);
        let reason = format!(
            "limit of bytes waiting for the disk ({max}) reached: {before} bytes in flight; the \
             disk is too slow"
        );
        Err(Error::Full { reason, retry_after: RETRY_AFTER_BACKLOG })
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.shared.in_flight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A pending acknowledgement for the batch that ends at `position`, with `bytes` reserved.
    pub(crate) fn pending_ack(
        &self,
        position: u64,
        bytes: u64,
        level: Level,
        repeated: bool,
    ) -> PendingAck {
        let waits = level == Level::Disk;
        let mut request = lock(&self.shared.request);
        let (durable_position, is_broken) = {
            let durable = self.shared.durable.borrow();
            (durable.position, durable.failure.is_some())
        };
        if !waits || position <= durable_position || is_broken {
            self.release(bytes);
        } else {
            // Appends are ordered, and reach this line in nearly the same order.
            let at = request.in_flight.partition_point(|&(end, _)| end <= position);
            request.in_flight.insert(at, (position, bytes));
            if request.position < position {
                request.position = position;
                self.shared.wake.notify_one();
            }
        }
        drop(request);
        let durable = self.shared.durable.subscribe();
        PendingAck {
            position,
            needs_sync: waits,
            is_duplicate: repeated,
            durable,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Ends the thread when all requested positions are durable or have failed.
    pub(crate) fn stop(&self) {
        lock(&self.shared.request).stop = true;
        self.shared.wake.notify_one();
        match lock(&self.thread).take() {
            // The supervisor reports a panic.
            Some(thread) => drop(thread.join()),
            None if !self.shared.has_thread => {
                let _ending = ShutdownGuard(&self.shared);
                if self.shared.has_request() {
                    self.shared.flush();
                }
            }
            None => {}
        }
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Fails all waiters when the committer ends.
struct ShutdownGuard<'a>(&'a CommitState);

impl Drop for ShutdownGuard<'_> {
    fn drop(&mut self) {
        let position = self.0.durable.borrow().position;
        self.0.publish(position, Some("topdeck is shutting down".to_owned()), None);
    }
}

fn run_committer(shared: &CommitState) {
    loop {
        shared.target.supervisor().failpoint("commit");
        {
            let mut request = lock(&shared.request);
            while request.position <= shared.durable.borrow().position && !request.stop {
                request = shared.wake.wait(request).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if !shared.has_request() {
            return;
        }
        match shared.flush() {
            SyncOutcome::Done => {}
            SyncOutcome::Failed => return,
            SyncOutcome::Retry => {
                // A stop may have been requested during the flush.
                let request = lock(&shared.request);
                drop(shared.wake.wait_timeout_while(request, RETRY, |request| !request.stop));
            }
        }
    }
}

enum SyncOutcome {
    /// All appended records are durable.
    Done,
    /// Temporary failure: the journal keeps the records and waits for space or file descriptors.
    Retry,
    /// Permanent failure.
    Failed,
}

impl CommitState {
    fn has_request(&self) -> bool {
        let request = lock(&self.request);
        request.position > self.durable.borrow().position
    }

    /// Flushes the journal and publishes the durable position.
    fn flush(&self) -> SyncOutcome {
        let began = Instant::now();
        let flushed = self.target.journal().flush(Level::Disk);
        // Also after an error: a full journal still makes its existing records durable.
        let position = self.target.journal().watermarks().durable;
        self.sync_latency.record(began.elapsed());
        let is_last = lock(&self.request).stop || self.space.has_given_up();
        let shortage = match &flushed {
            Err(journal::Error::Full(reason)) => Some(reason.clone()),
            _ => None,
        };
        let (outcome, broken) = match flushed {
            Ok(_) => (SyncOutcome::Done, None),
            Err(error @ journal::Error::FailStop) => (SyncOutcome::Failed, Some(error.to_string())),
            Err(error) if is_last => {
                self.log_abandoned(&error);
                (SyncOutcome::Failed, Some(error.to_string()))
            }
            // The next call of the journal says whether the failure is permanent.
            Err(_) => (SyncOutcome::Retry, None),
        };
        self.publish(position, broken, shortage);
        outcome
    }

    /// Says what a stop gives up.
    fn log_abandoned(&self, error: &journal::Error) {
        let request = lock(&self.request);
        let batches = request.in_flight.len();
        let bytes: u64 = request.in_flight.iter().map(|(_, bytes)| bytes).sum();
        drop(request);
        let line = format!(
            "the stop gave up {batches} batches ({bytes} bytes) that wait for the disk: {error}; \
             their senders got no acknowledgement; the next start stores them if there is space"
        );
        (self.settings.log)(LogLevel::Error, &line);
    }

    fn publish(&self, position: u64, broken: Option<String>, shortage: Option<FullReason>) {
        let mut request = lock(&self.request);
        let is_broken = broken.is_some();
        let mut settled = 0;
        while let Some(&(end, bytes)) = request.in_flight.front()
            && (end <= position || is_broken)
        {
            settled += bytes;
            request.in_flight.pop_front();
        }
        self.in_flight.fetch_sub(settled, Ordering::Relaxed);
        self.durable.send_if_modified(|durable| {
            let is_new = position > durable.position || (is_broken && durable.failure.is_none());
            durable.position = durable.position.max(position);
            durable.failure = durable.failure.take().or(broken);
            durable.shortage = shortage;
            // Each retry wakes the requests, which wait for a limited time.
            is_new || durable.shortage.is_some()
        });
        self.done.notify_all();
        drop(request);
    }
}

/// Pending acknowledgement of an appended batch; acknowledge the sender once it is durable.
#[derive(Debug)]
#[must_use = "acknowledge the sender only when the batch is durable"]
pub struct PendingAck {
    position: u64,
    needs_sync: bool,
    is_duplicate: bool,
    durable: watch::Receiver<DurableState>,
    shared: Arc<CommitState>,
}

impl PendingAck {
    /// Whether the batch is a duplicate.
    pub fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// Journal position after the batch.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn outcome(&self, durable: &DurableState) -> Option<Result<()>> {
        if !self.needs_sync || durable.position >= self.position {
            return Some(Ok(()));
        }
        durable.failure.as_ref().map(|reason| Err(Error::JournalFailed(reason.clone())))
    }

    /// Waits until the batch is durable at its level.
    pub fn wait_durable(&self) -> Result<()> {
        loop {
            if let Some(outcome) = self.wait_durable_timeout(WAIT) {
                return outcome;
            }
        }
    }

    /// Like [`PendingAck::wait_durable`] with a timeout; `None` after the timeout.
    pub(crate) fn wait_durable_timeout(&self, time: Duration) -> Option<Result<()>> {
        let until = Instant::now() + time;
        loop {
            let request = lock(&self.shared.request);
            let durable = self.shared.durable.borrow().clone();
            let outcome = self.outcome(&durable);
            let remaining = until.saturating_duration_since(Instant::now());
            if outcome.is_some() || remaining.is_zero() {
                return outcome;
            }
            if self.shared.has_thread {
                drop(self.shared.done.wait_timeout(request, remaining));
                continue;
            }
            drop(request);
            if let SyncOutcome::Retry = self.shared.flush() {
                std::thread::sleep(RETRY.min(remaining));
            }
        }
    }

    /// Like [`PendingAck::wait_durable`], async, for senders that keep the data and retry: without
    /// space, [`Error::WaitsForSpace`] after a limited time, while the batch keeps its place.
    pub async fn until_durable(mut self) -> Result<()> {
        // Of this request: an earlier one may have found no space.
        let began = Instant::now();
        loop {
            let durable = self.durable.borrow_and_update().clone();
            if let Some(outcome) = self.outcome(&durable) {
                return outcome;
            }
            if let Some(reason) = durable.shortage
                && began.elapsed() >= SPACE_PATIENCE
            {
                let reason = journal::Error::Full(reason).to_string();
                return Err(Error::waits_for_space(reason));
            }
            if !self.shared.has_thread {
                return self.wait_durable();
            }
            if self.durable.changed().await.is_err() {
                return Err(Error::JournalFailed("topdeck is shutting down".to_owned()));
            }
        }
    }
}
