//! Sleeping and waking of the buffer's readers, flusher and appenders, across processes.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

use super::{Buffer, DURABLE, READERS, SPACE, WORK, word};
use crate::sync::{Ordering, fence};

use Ordering::{Relaxed, SeqCst};

/// Bits of `word::SLEEPERS`.
const READERS_ASLEEP: u64 = 1;
/// The flusher waits for any append.
const FLUSHER_IDLE: u64 = 2;
/// The flusher waits for a full frame.
const FLUSHER_RESTING: u64 = 4;
/// An append waits for space.
const APPENDER_ASLEEP: u64 = 8;

impl Buffer {
    pub(super) fn bump(&self, index: usize) {
        self.memory.futex_word(index).fetch_add(1, SeqCst);
        self.memory.wake(index, u32::MAX);
    }

    pub(super) fn wake_readers(&self) {
        fence(SeqCst);
        if self.memory[word::SLEEPERS].load(Relaxed) & READERS_ASLEEP != 0 {
            self.memory[word::SLEEPERS].fetch_and(!READERS_ASLEEP, SeqCst);
            self.bump(READERS);
        }
    }

    /// Wakes those that wait for an append. The fence and the one in `sleep` guarantee that either
    /// the sleeper sees the entry or the appender sees the sleeper.
    #[inline]
    pub(crate) fn wake_after_append(&self, tail: u64) {
        fence(SeqCst);
        let asleep = self.memory[word::SLEEPERS].load(Relaxed);
        if asleep != 0 {
            self.wake_asleep(asleep, tail);
        }
    }

    #[cold]
    fn wake_asleep(&self, asleep: u64, tail: u64) {
        if asleep & READERS_ASLEEP != 0 {
            self.wake_readers();
        }
        let gathered = tail.saturating_sub(self.mark().ring) >= self.gather_words();
        if asleep & FLUSHER_IDLE != 0 || (asleep & FLUSHER_RESTING != 0 && gathered) {
            self.wake_flusher();
        }
    }

    /// A frame is written at a quarter of the ring: that leaves space for appends while the frame
    /// is written and until the flusher runs.
    fn gather_words(&self) -> u64 {
        self.ring_words as u64 / 4
    }

    /// Whether a full frame is buffered.
    pub(crate) fn has_full_frame(&self) -> bool {
        self.end().0.saturating_sub(self.mark().ring) >= self.gather_words()
    }

    /// Bytes of entries that are in no segment.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end().0.saturating_sub(self.mark().ring).saturating_mul(8)
    }

    /// Wakes the flusher of the process that owns the lease.
    pub(crate) fn wake_flusher(&self) {
        self.memory[word::SLEEPERS].fetch_and(!(FLUSHER_IDLE | FLUSHER_RESTING), SeqCst);
        self.bump(WORK);
    }

    /// Sleeps until readers are woken, unless `ready`.
    pub(crate) fn sleep_reader(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.sleep(READERS, READERS_ASLEEP, timeout, ready);
    }

    /// Sleeps until there is work: any append if `idle`, else a full frame.
    pub(crate) fn sleep_flusher(
        &self,
        idle: bool,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        let bit = if idle { FLUSHER_IDLE } else { FLUSHER_RESTING };
        self.sleep(WORK, bit, timeout, ready);
    }

    /// Waits for work of another process. Appends do not wake it.
    pub(crate) fn wait_for_flusher(&self, timeout: Duration) {
        let wake_count = self.memory.futex_word(WORK).load(SeqCst);
        self.memory.wait(WORK, wake_count, Some(timeout));
    }

    fn sleep(
        &self,
        index: usize,
        bit: u64,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        let wake_count = self.memory.futex_word(index).load(SeqCst);
        self.memory[word::SLEEPERS].fetch_or(bit, SeqCst);
        fence(SeqCst);
        if !ready() {
            self.memory.wait(index, wake_count, timeout);
        }
    }

    /// Counter that changes with the durable position or the state.
    pub(crate) fn durable_changes(&self) -> u32 {
        self.memory.futex_word(DURABLE).load(SeqCst)
    }

    pub(crate) fn wait_durable(&self, expected: u32, timeout: Duration) {
        self.memory.wait(DURABLE, expected, Some(timeout));
    }

    /// Counter that changes when space is freed.
    pub(crate) fn space_changes(&self) -> u32 {
        self.memory.futex_word(SPACE).load(SeqCst)
    }

    pub(crate) fn wait_space(&self, expected: u32, timeout: Duration) {
        self.memory[word::SLEEPERS].fetch_or(APPENDER_ASLEEP, SeqCst);
        fence(SeqCst);
        if self.space_changes() == expected {
            self.memory.wait(SPACE, expected, Some(timeout));
        }
    }

    /// Increments the counter and wakes sleepers, if any: with a small ring this runs every few
    /// hundred appends.
    pub(super) fn wake_for_space(&self) {
        self.memory.futex_word(SPACE).fetch_add(1, SeqCst);
        fence(SeqCst);
        if self.memory[word::SLEEPERS].load(Relaxed) & APPENDER_ASLEEP != 0 {
            self.memory[word::SLEEPERS].fetch_and(!APPENDER_ASLEEP, SeqCst);
            self.memory.wake(SPACE, u32::MAX);
        }
    }

    /// Wakes the flusher and the readers of this process, so that they see the stop flag.
    pub(crate) fn wake_all(&self) {
        self.bump(WORK);
        self.bump(READERS);
    }
}
