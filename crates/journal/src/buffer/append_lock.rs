//! Append lock of the buffer, and appends under it. A waiter takes the lock over from a dead owner.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

use super::{Buffer, FAIL_STOP, FlushMark, LOCK, word};
use crate::level::BatchIdentity;
use crate::ring::AppendRequest;
use crate::sync::Ordering;

use Ordering::{Acquire, Relaxed, Release};

/// Bit of the lock word: another process waits.
pub(super) const CONTENDED: u32 = 1 << 31;

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// First position of the batch.
    At(u64),
    /// Duplicate; end of the last accepted batch.
    Duplicate(u64),
    /// No space now.
    NoSpace,
    /// Larger than the ring: must be written directly to a segment.
    TooLarge,
    /// Rejected by these state bits.
    Rejected(u64),
}

/// Liveness check for the process that owns a slot.
pub(crate) trait ProcessLiveness {
    /// Calls `then` if the process is dead; the slot cannot be reused during the call.
    fn with_dead(&self, slot: u32, then: &mut dyn FnMut());
}

impl Buffer {
    /// Takes the append lock for the process with this slot; `None` if the owner is alive and keeps
    /// it for about `longest`: it is stopped.
    pub(crate) fn lock(
        &self,
        slot: u32,
        alive: &dyn ProcessLiveness,
        longest: Duration,
    ) -> Option<AppendLockGuard<'_>> {
        let me = lock_owner(slot);
        let word = self.memory.futex_word(LOCK);
        // Acquire pairs with the Release of `AppendLockGuard::drop`: the previous owner's writes
        // are visible.
        if word.compare_exchange(0, me, Acquire, Relaxed).is_err()
            && !self.lock_slow_path(me, alive, longest)
        {
            return None;
        }
        Some(AppendLockGuard { buffer: self })
    }

    #[cold]
    fn lock_slow_path(&self, me: u32, alive: &dyn ProcessLiveness, longest: Duration) -> bool {
        const WAIT_SLICE: Duration = Duration::from_millis(2);
        const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };
        let word = self.memory.futex_word(LOCK);
        let mut spins = 0_u32;
        let mut waited = Duration::ZERO;
        loop {
            let owner = word.load(Relaxed);
            if owner == 0 {
                // With the bit set, because others may sleep.
                if word.compare_exchange(0, me | CONTENDED, Acquire, Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if spins < SPINS {
                spins = spins.saturating_add(1);
                std::hint::spin_loop();
                continue;
            }
            if owner & CONTENDED == 0
                && word.compare_exchange(owner, owner | CONTENDED, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            let lock_word = owner | CONTENDED;
            // A running owner needs less than a microsecond.
            if !self.memory.wait(LOCK, lock_word, Some(WAIT_SLICE)) {
                continue;
            }
            waited = waited.saturating_add(WAIT_SLICE);
            let holder = lock_word & !CONTENDED;
            let mut is_locked = false;
            if holder != me {
                // Acquire as in `lock`: the dead owner's last stores precede its end. A process
                // that gets the slot later sees that it does not own the lock. A lock word without
                // owner maps to an unused slot: shared memory was corrupted.
                alive.with_dead(holder.wrapping_sub(1), &mut || {
                    let took = word.compare_exchange(lock_word, me | CONTENDED, Acquire, Relaxed);
                    is_locked = took.is_ok();
                });
            }
            if is_locked {
                self.recover_ring();
                return true;
            }
            if waited >= longest {
                return false;
            }
        }
    }

    /// Called when a process takes a slot: if the lock names this slot, its previous user died with
    /// the lock.
    pub(crate) fn begin_slot(&self, slot: u32) {
        let word = self.memory.futex_word(LOCK);
        let owner = word.load(Acquire);
        if owner & !CONTENDED == lock_owner(slot) {
            self.recover_ring();
            word.store(0, Release);
            self.memory.wake(LOCK, u32::MAX);
        }
    }

    /// Recomputes the next position and the producer table from the entries. The caller holds the
    /// lock or is alone.
    pub(super) fn recover_ring(&self) {
        let mark = self.mark();
        let tail = self.memory[word::TAIL].load(Acquire);
        let mut next = self.memory[word::NEXT].load(Relaxed).max(mark.position);
        let (ring, mut at) = (self.ring(), mark.ring);
        let mut scratch = Vec::new();
        while at < tail {
            let Some(entry) = ring.entry(at, tail, &mut scratch) else {
                at = at.wrapping_add(1);
                continue;
            };
            let end = entry.end();
            next = next.max(end);
            if let Some(identity) = entry.identity {
                self.sequences().record(identity, end);
            }
            at = at.wrapping_add(entry.words);
        }
        self.memory[word::NEXT].store(next, Release);
    }
}

/// Lock word while the process with this slot owns the lock.
fn lock_owner(slot: u32) -> u32 {
    slot.wrapping_add(1)
}

/// Guard of the append lock.
pub(crate) struct AppendLockGuard<'a> {
    buffer: &'a Buffer,
}

impl AppendLockGuard<'_> {
    /// Appends an entry to the ring, unless it is a duplicate, there is no space or the state
    /// forbids it.
    #[inline]
    pub(crate) fn append(&self, append: &AppendRequest<'_>) -> (AppendOutcome, u64) {
        let buffer = self.buffer;
        let memory = &buffer.memory;
        let tail = memory[word::TAIL].load(Relaxed);
        let state = memory[word::STATE].load(Acquire);
        if let Some(repeated) = self.duplicate_end(append.identity) {
            // A duplicate needs no space; its durability is checked separately.
            return (AppendOutcome::Duplicate(repeated), tail);
        }
        if state != 0 {
            return (AppendOutcome::Rejected(state), tail);
        }
        let words = append.words();
        if words > buffer.ring_words / 2 {
            return (AppendOutcome::TooLarge, tail);
        }
        // A tail before the mark means a corrupt header: no space.
        let used = tail.wrapping_sub(buffer.mark().ring);
        if used.saturating_add(words as u64) > buffer.ring_words as u64 {
            return (AppendOutcome::NoSpace, tail);
        }
        let first = memory[word::NEXT].load(Relaxed);
        let Some(end) = first.checked_add(u64::from(append.records)) else {
            // Positions are exhausted: the header is corrupt.
            return (AppendOutcome::Rejected(FAIL_STOP), tail);
        };
        buffer.ring().write_entry(tail, first, append);
        buffer.prefetch(tail, words);
        let tail = tail.wrapping_add(words as u64);
        // Release: a process that sees the tail sees the entry's words. This store appends the
        // entry.
        memory[word::TAIL].store(tail, Release);
        memory[word::NEXT].store(end, Release);
        if let Some(identity) = append.identity {
            buffer.sequences().record(identity, end);
        }
        (AppendOutcome::At(first), tail)
    }

    /// Sequence of the last accepted batch of a producer epoch.
    pub(crate) fn last_sequence(&self, producer: u64, epoch: u64) -> Option<u64> {
        self.buffer.sequences().last(producer, epoch).map(|(sequence, _)| sequence)
    }

    /// End of the last accepted batch, if this batch is not newer.
    pub(crate) fn duplicate_end(&self, identity: Option<BatchIdentity>) -> Option<u64> {
        let identity = identity?;
        let (last, end) = self.buffer.sequences().last(identity.producer, identity.epoch)?;
        (identity.sequence <= last).then_some(end)
    }

    /// Whether the ring is empty: a batch can then be written directly to a segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.memory[word::TAIL].load(Relaxed) == self.buffer.mark().ring
    }

    /// With an empty ring, records lost at its end count as flushed: only their positions remain.
    pub(crate) fn discard_lost(&self) {
        let mark = self.buffer.mark();
        let next = self.buffer.memory[word::NEXT].load(Relaxed);
        if self.is_empty() && next > mark.position {
            self.buffer.store_mark(FlushMark { position: next, ..mark });
        }
    }

    /// Commits a batch that the caller wrote directly to a segment while the ring was empty.
    pub(crate) fn commit_direct(&self, identity: Option<BatchIdentity>, mark: FlushMark) {
        debug_assert!(self.is_empty(), "BUG: a batch passed entries in the ring");
        // The mark first: it appends the batch, and a successor after a crash takes the next
        // position from it.
        self.buffer.store_mark(mark);
        self.buffer.memory[word::NEXT].store(mark.position, Release);
        if let Some(identity) = identity {
            self.buffer.sequences().record(identity, mark.position);
        }
    }
}

impl Drop for AppendLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next owner.
        let owner = self.buffer.memory.futex_word(LOCK).swap(0, Release);
        if owner & CONTENDED != 0 {
            self.buffer.memory.wake(LOCK, 1);
        }
    }
}
