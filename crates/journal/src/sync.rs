//! Atomics of the buffer, replaced by loom's in model checking (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Memory of the buffer.
#[cfg(not(loom))]
pub(crate) type Memory = disk::Region;

/// loom's stand-in for shared memory. A wait without timeout blocks, so that a lost wake-up is a
/// deadlock, which loom reports; a wait with timeout always times out.
#[cfg(loom)]
pub(crate) struct Memory {
    wakes: Vec<AtomicU32>,
    words: Vec<AtomicU64>,
    waiting: loom::sync::Mutex<()>,
    changed: loom::sync::Condvar,
}

#[cfg(loom)]
impl Memory {
    pub(crate) fn new(words: usize) -> Memory {
        Memory {
            wakes: (0..8).map(|_| AtomicU32::new(0)).collect(),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            waiting: loom::sync::Mutex::new(()),
            changed: loom::sync::Condvar::new(),
        }
    }

    pub(crate) fn futex_word(&self, index: usize) -> &AtomicU32 {
        &self.wakes[index]
    }

    pub(crate) fn wait(
        &self,
        index: usize,
        expected: u32,
        timeout: Option<std::time::Duration>,
    ) -> bool {
        if timeout.is_some() {
            loom::thread::yield_now();
            return true;
        }
        let mut waiting = self.waiting.lock().unwrap();
        while self.wakes[index].load(Ordering::SeqCst) == expected {
            waiting = self.changed.wait(waiting).unwrap();
        }
        false
    }

    pub(crate) fn wake(&self, _index: usize, _count: u32) {
        let _waiting = self.waiting.lock().unwrap();
        self.changed.notify_all();
    }
}

#[cfg(loom)]
impl std::ops::Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.words
    }
}
