//! The atomics of the buffer, which become loom's when the model is checked (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// The memory the buffer lives in.
#[cfg(not(loom))]
pub(crate) type Memory = disk::Region;

/// loom's stand-in for shared memory: the same words, and waits that yield.
#[cfg(loom)]
pub(crate) struct Memory {
    wakes: Vec<AtomicU32>,
    words: Vec<AtomicU64>,
}

#[cfg(loom)]
impl Memory {
    pub(crate) fn new(words: usize) -> Memory {
        Memory {
            wakes: (0..8).map(|_| AtomicU32::new(0)).collect(),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn wake_word(&self, index: usize) -> &AtomicU32 {
        &self.wakes[index]
    }

    pub(crate) fn wait(
        &self,
        _index: usize,
        _seen: u32,
        _timeout: Option<std::time::Duration>,
    ) -> bool {
        loom::thread::yield_now();
        false
    }

    pub(crate) fn wake(&self, _index: usize, _count: u32) {}

    pub(crate) fn survives_the_process(&self) -> bool {
        true
    }
}

#[cfg(loom)]
impl std::ops::Deref for Memory {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.words
    }
}
