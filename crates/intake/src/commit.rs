//! One synchronisation for all who wait: a thread of its own makes the journal durable as long as somebody waits.

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
    wanted: Mutex<Wanted>,
    wake: Condvar,
    reached: watch::Sender<Reached>,
    /// For those who wait without a runtime.
    done: Condvar,
}

#[derive(Debug)]
struct Wanted {
    position: u64,
    stop: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Commit {
    pub(crate) fn start(home: Home, timer: Timer) -> std::io::Result<Commit> {
        let position = home.journal().marks().durable;
        let (reached, _) = watch::channel(Reached { position, broken: None });
        let shared = Arc::new(Shared {
            wanted: Mutex::new(Wanted { position, stop: false }),
            wake: Condvar::new(),
            reached,
            done: Condvar::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("commit".to_owned())
                .spawn(move || run(&shared, &home, &timer))?
        };
        Ok(Commit { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A receipt for what ends at `position`.
    pub(crate) fn receipt(&self, position: u64, level: Level, repeated: bool) -> Receipt {
        let waits = level == Level::Disk;
        if waits {
            let mut wanted = locked(&self.shared.wanted);
            if wanted.position < position {
                wanted.position = position;
                self.shared.wake.notify_one();
            }
        }
        let reached = self.shared.reached.subscribe();
        Receipt { position, waits, repeated, reached, shared: Arc::clone(&self.shared) }
    }

    /// Ends the thread when all that was asked for is durable.
    pub(crate) fn stop(&self) {
        locked(&self.shared.wanted).stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = locked(&self.thread).take() {
            // It does not panic but for a bug, which it has told already.
            let _ = thread.join();
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared, home: &Home, timer: &Timer) {
    loop {
        let stop = {
            let mut wanted = locked(&shared.wanted);
            while wanted.position <= shared.reached.borrow().position && !wanted.stop {
                wanted = shared.wake.wait(wanted).unwrap_or_else(PoisonError::into_inner);
            }
            wanted.stop && wanted.position <= shared.reached.borrow().position
        };
        if stop {
            return;
        }
        let began = Instant::now();
        let (position, broken) = match home.journal().flush(Level::Disk) {
            Ok(marks) => (marks.durable, None),
            Err(error) => match Error::from(error) {
                // The journal waits for room: what was appended is kept, and becomes durable later.
                Error::Full { .. } if !locked(&shared.wanted).stop => {
                    std::thread::sleep(RETRY);
                    continue;
                }
                error => (shared.reached.borrow().position, Some(error.to_string())),
            },
        };
        timer.record(began.elapsed());
        let is_broken = broken.is_some();
        {
            let _held = locked(&shared.wanted);
            shared.reached.send_replace(Reached { position, broken });
            shared.done.notify_all();
        }
        if is_broken {
            return;
        }
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
        let mut wanted = locked(&self.shared.wanted);
        loop {
            let reached = self.shared.reached.borrow().clone();
            if let Some(outcome) = self.outcome(&reached) {
                return outcome;
            }
            wanted = self.shared.done.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, for those who have a runtime.
    pub async fn settled(mut self) -> Result<()> {
        loop {
            let reached = self.reached.borrow_and_update().clone();
            if let Some(outcome) = self.outcome(&reached) {
                return outcome;
            }
            if self.reached.changed().await.is_err() {
                return Err(Error::Broken("topdeck is stopping".to_owned()));
            }
        }
    }
}
