//! Readiness as a file descriptor, for event loops: an eventfd and a thread that waits on their
//! behalf.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};

use crate::level::Level;
use crate::open_journal::OpenJournal;

/// No position is waited for.
const IDLE: u64 = u64::MAX;

pub(crate) struct Readiness {
    shared: Arc<ReadinessShared>,
    inner: Arc<OpenJournal>,
    thread: Option<JoinHandle<()>>,
}

struct ReadinessShared {
    fd: OwnedFd,
    /// Position beyond which a record is waited for.
    position: AtomicU64,
    stop: AtomicBool,
}

impl Readiness {
    pub(crate) fn start(
        inner: Arc<OpenJournal>,
        level: Level,
        buffered: bool,
    ) -> io::Result<Readiness> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(ReadinessShared {
            fd,
            position: AtomicU64::new(IDLE),
            stop: AtomicBool::new(false),
        });
        let (of_thread, journal) = (Arc::clone(&shared), Arc::clone(&inner));
        let supervised = inner.options.supervisor.thread("journal-ready");
        let is_stopping = {
            let shared = Arc::clone(&shared);
            move || shared.stop.load(Ordering::SeqCst)
        };
        let supervisor = inner.options.supervisor.clone();
        let run = move || {
            supervisor.failpoint("journal-ready");
            let buffer = &journal.mapped.buffer;
            let readable = || match (level, buffered) {
                (Level::Disk, _) => buffer.durable(),
                (_, true) => buffer.end().1,
                (_, false) => buffer.mark().position,
            };
            while !of_thread.stop.load(Ordering::SeqCst) {
                let position = of_thread.position.load(Ordering::SeqCst);
                if position == IDLE {
                    thread::park();
                } else if readable() > position {
                    of_thread.position.store(IDLE, Ordering::SeqCst);
                    // Fails only if 2^64 - 2 events are unread.
                    let _ = rustix::io::write(&of_thread.fd, &1u64.to_ne_bytes());
                } else {
                    let longest = Some(journal.options.recheck_interval);
                    buffer.sleep_reader(longest, &mut || {
                        of_thread.stop.load(Ordering::SeqCst) || readable() > position
                    });
                }
            }
        };
        let thread = thread::Builder::new().name("journal-ready".to_owned());
        let thread = thread.spawn(move || {
            let _ = supervised.run(is_stopping, run);
        })?;
        Ok(Readiness { shared, inner, thread: Some(thread) })
    }

    /// Waits for records at or after a position.
    pub(crate) fn arm(&self, position: u64) {
        self.shared.position.store(position, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl Drop for Readiness {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.inner.mapped.buffer.wake_all();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
