//! One synchronisation for all who wait: a thread of its own makes the journal durable as long as somebody waits.
//!
//! What has become of it is told under one lock, `wanted`, so that nobody who looks and then waits
//! misses it. The thread ends when it is stopped, or when the journal acknowledges nothing any
//! more; in each case whoever waits then, or comes later, is told so. After a panic it is run
//! again, and those who wait go on waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::Level;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::home::Home;
use crate::meter::Timer;

/// How long the thread waits before it tries again what failed for want of room.
const RETRY: Duration = Duration::from_millis(200);
/// How long is waited at once; then it is looked at again.
const WAIT: Duration = Duration::from_secs(60);
/// After how long a sender is asked to try again when too much waits for the disk.
const AFTER_CROWD: Duration = Duration::from_secs(1);

/// How far the journal is durable, or why it never will be.
#[derive(Clone, Debug)]
struct Reached {
    position: u64,
    broken: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Commit {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    home: Home,
    timer: Timer,
    /// Bytes of batches that are being appended or wait for the disk.
    in_flight: AtomicU64,
    wanted: Mutex<Wanted>,
    wake: Condvar,
    reached: watch::Sender<Reached>,
    /// For those who wait without a runtime.
    done: Condvar,
    /// There is a thread; otherwise whoever waits does its work.
    has_thread: bool,
}

#[derive(Debug)]
struct Wanted {
    position: u64,
    stop: bool,
    /// Where batches in flight end, rising, and their bytes.
    flying: VecDeque<(u64, u64)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commit {
    pub(crate) fn start(home: Home, timer: Timer, has_thread: bool) -> std::io::Result<Commit> {
        let position = home.journal().marks().durable;
        let (reached, _) = watch::channel(Reached { position, broken: None });
        let shared = Arc::new(Shared {
            home,
            timer,
            in_flight: AtomicU64::new(0),
            wanted: Mutex::new(Wanted { position, stop: false, flying: VecDeque::new() }),
            wake: Condvar::new(),
            reached,
            done: Condvar::new(),
            has_thread,
        });
        let thread = match has_thread {
            true => {
                let shared = Arc::clone(&shared);
                let supervised = shared.home.supervisor().thread("commit");
                let work = move || {
                    let _ending = Ending(&shared);
                    let is_stopping = || locked(&shared.wanted).stop;
                    let _ = supervised.run(is_stopping, || run(&shared));
                };
                let thread = std::thread::Builder::new().name("commit".to_owned());
                Some(thread.spawn(work)?)
            }
            false => None,
        };
        Ok(Commit { shared, thread: Mutex::new(thread) })
    }

    /// Bytes of batches that were taken and wait for the disk.
    pub(crate) fn in_flight(&self) -> u64 {
        self.shared.in_flight.load(Ordering::Relaxed)
    }

    /// Takes room for a batch, which is given back by [`Commit::release`], or when it is settled. One batch always
    /// finds room.
    pub(crate) fn reserve(&self, bytes: u64, max: u64) -> Result<()> {
        let before = self.shared.in_flight.fetch_add(bytes, Ordering::Relaxed);
        if before == 0 || before.saturating_add(bytes) <= max {
            return Ok(());
        }
        self.release(bytes);
        let why = format!(
            "batches of {before} bytes wait for the disk, {max} are the most: it does not keep up"
        );
        Err(Error::Full { why, after: AFTER_CROWD })
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.shared.in_flight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A receipt for what ends at `position`, of which `bytes` were reserved.
    pub(crate) fn receipt(
        &self,
        position: u64,
        bytes: u64,
        level: Level,
        repeated: bool,
    ) -> Receipt {
        let waits = level == Level::Disk;
        let mut wanted = locked(&self.shared.wanted);
        let (reached, is_broken) = {
            let reached = self.shared.reached.borrow();
            (reached.position, reached.broken.is_some())
        };
        if !waits || position <= reached || is_broken {
            self.release(bytes);
        } else {
            // Appends come in order, and here in about that order.
            let at = wanted.flying.partition_point(|&(end, _)| end <= position);
            wanted.flying.insert(at, (position, bytes));
            if wanted.position < position {
                wanted.position = position;
                self.shared.wake.notify_one();
            }
        }
        drop(wanted);
        let reached = self.shared.reached.subscribe();
        Receipt { position, waits, repeated, reached, shared: Arc::clone(&self.shared) }
    }

    /// Ends the thread when all that was asked for is durable, or cannot become so.
    pub(crate) fn stop(&self) {
        locked(&self.shared.wanted).stop = true;
        self.shared.wake.notify_one();
        match locked(&self.thread).take() {
            // A panic is told by the supervisor.
            Some(thread) => drop(thread.join()),
            None if !self.shared.has_thread => {
                let _ending = Ending(&self.shared);
                if self.shared.is_wanted() {
                    self.shared.flush();
                }
            }
            None => {}
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells whoever waits that nobody works for them any more.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let position = self.0.reached.borrow().position;
        self.0.tell(position, Some("topdeck has stopped taking batches".to_owned()));
    }
}

fn run(shared: &Shared) {
    loop {
        shared.home.supervisor().fault_point("commit");
        {
            let mut wanted = locked(&shared.wanted);
            while wanted.position <= shared.reached.borrow().position && !wanted.stop {
                wanted = shared.wake.wait(wanted).unwrap_or_else(PoisonError::into_inner);
            }
        }
        if !shared.is_wanted() {
            return;
        }
        match shared.flush() {
            Flushed::Done => {}
            Flushed::Broken => return,
            Flushed::Later => {
                // In the meantime somebody may want it to stop.
                let wanted = locked(&shared.wanted);
                drop(shared.wake.wait_timeout_while(wanted, RETRY, |wanted| !wanted.stop));
            }
        }
    }
}

enum Flushed {
    /// All that there was.
    Done,
    /// Not now: the journal keeps it and waits for room, or for files.
    Later,
    /// Never.
    Broken,
}

impl Shared {
    fn is_wanted(&self) -> bool {
        let wanted = locked(&self.wanted);
        wanted.position > self.reached.borrow().position
    }

    /// Makes durable what there is, and tells.
    fn flush(&self) -> Flushed {
        let began = Instant::now();
        let flushed = self.home.journal().flush(Level::Disk);
        // Also where it was refused: of a journal that is full, what it has is durable.
        let position = self.home.journal().marks().durable;
        self.timer.record(began.elapsed());
        let is_last = locked(&self.wanted).stop;
        let (outcome, broken) = match flushed {
            Ok(_) => (Flushed::Done, None),
            Err(error @ journal::Error::Poisoned) => (Flushed::Broken, Some(error.to_string())),
            Err(error) if is_last => (Flushed::Broken, Some(error.to_string())),
            // Whether it is the end the journal says the next time.
            Err(_) => (Flushed::Later, None),
        };
        self.tell(position, broken);
        outcome
    }

    fn tell(&self, position: u64, broken: Option<String>) {
        let mut wanted = locked(&self.wanted);
        let is_broken = broken.is_some();
        let mut settled = 0;
        while let Some(&(end, bytes)) = wanted.flying.front()
            && (end <= position || is_broken)
        {
            settled += bytes;
            wanted.flying.pop_front();
        }
        self.in_flight.fetch_sub(settled, Ordering::Relaxed);
        self.reached.send_if_modified(|reached| {
            let is_new = position > reached.position || (is_broken && reached.broken.is_none());
            reached.position = reached.position.max(position);
            reached.broken = reached.broken.take().or(broken);
            is_new
        });
        self.done.notify_all();
        drop(wanted);
    }
}

/// What a batch got: it is in the journal, and its sender may be told once it is settled.
#[derive(Debug)]
#[must_use = "the sender may be told only when the batch is settled"]
pub struct Receipt {
    position: u64,
    waits: bool,
    repeated: bool,
    reached: watch::Receiver<Reached>,
    shared: Arc<Shared>,
}

impl Receipt {
    /// The batch had been taken before.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// The journal's position behind the batch.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn outcome(&self, reached: &Reached) -> Option<Result<()>> {
        if !self.waits || reached.position >= self.position {
            return Some(Ok(()));
        }
        reached.broken.as_ref().map(|why| Err(Error::Broken(why.clone())))
    }

    /// Waits until the batch has reached its level.
    pub fn wait(&self) -> Result<()> {
        loop {
            if let Some(outcome) = self.wait_for(WAIT) {
                return outcome;
            }
        }
    }

    /// The same, but no longer than that; nothing if it has not reached it by then.
    pub fn wait_for(&self, time: Duration) -> Option<Result<()>> {
        let until = Instant::now() + time;
        loop {
            let wanted = locked(&self.shared.wanted);
            let reached = self.shared.reached.borrow().clone();
            let outcome = self.outcome(&reached);
            let left = until.saturating_duration_since(Instant::now());
            if outcome.is_some() || left.is_zero() {
                return outcome;
            }
            if self.shared.has_thread {
                drop(self.shared.done.wait_timeout(wanted, left));
                continue;
            }
            drop(wanted);
            if let Flushed::Later = self.shared.flush() {
                std::thread::sleep(RETRY.min(left));
            }
        }
    }

    /// The same, for those who have a runtime.
    pub async fn settled(mut self) -> Result<()> {
        loop {
            let reached = self.reached.borrow_and_update().clone();
            if let Some(outcome) = self.outcome(&reached) {
                return outcome;
            }
            if !self.shared.has_thread {
                return self.wait();
            }
            if self.reached.changed().await.is_err() {
                return Err(Error::Broken("topdeck has stopped taking batches".to_owned()));
            }
        }
    }
}
