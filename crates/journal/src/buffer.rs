//! Pre-commit buffer: ring of entries in shared memory that survives the process. An append is
//! complete, visible to every process and safe from `kill -9` when its entry is in the ring; the
//! owner of the flusher lease moves entries from the ring to the segments.
//!
//! The buffer consists of 64-bit words accessed as atomics. Words of the header, by index:
//!
//! ```text
//!   0  magic and version             16  generation of the published mark; parity selects the slot
//!   1  length of the ring in words   24  published mark, slot 0: ring word, position, segment, offset
//!   2  sets of the producer table    32  published mark, slot 1; each slot with a checksum
//!   3  journal id, low               40  durable position; 41 sync in progress; 42 durable position
//!   4  journal id, high                  requested; 43 lease requested
//!   5  machine boot id, low; 6 high  48  state: fail-stop, full
//!   8  tail: ring words appended     56  sleepers: readers, flusher
//!   9  position of the next record   64  first retained position
//! ```
//! The producer table starts at word 512, followed by the ring. Ring words are numbered from the
//! creation of the ring; their index is the number modulo the ring's length, a power of two.
//!
//! Appends are serialised by a lock in the first futex word, which holds the slot of its owner. The
//! owner may be killed at any instruction: a waiter detects this by the owner's lock file, takes
//! the lock over and repairs the unfinished append. The repair is small: an entry counts from the
//! single store of `tail` on, and the next position and the producer table follow from the entries.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

// Paths, because `loom/` includes this file from elsewhere.
#[path = "buffer/append_lock.rs"]
mod append_lock;
#[path = "buffer/flush_mark.rs"]
mod flush_mark;
#[path = "buffer/wake.rs"]
mod wake;

use crate::ring::Ring;
use crate::sequence_table::{PRODUCERS_PER_SET, SET_WORDS, SequenceTable};
use crate::sync::{Memory, Ordering};

use Ordering::{Acquire, Relaxed, Release, SeqCst};

pub(crate) use append_lock::{AppendLockGuard, AppendOutcome, ProcessLiveness};
pub(crate) use flush_mark::FlushMark;

/// Version of the header words.
const MAGIC: u64 = u64::from_le_bytes(*b"tdJbuf\x01\0");

mod word {
    pub(super) const MAGIC: usize = 0;
    pub(super) const RING: usize = 1;
    pub(super) const SETS: usize = 2;
    pub(super) const ID_LOW: usize = 3;
    pub(super) const ID_HIGH: usize = 4;
    pub(super) const BOOT_LOW: usize = 5;
    pub(super) const BOOT_HIGH: usize = 6;
    pub(super) const TAIL: usize = 8;
    pub(super) const NEXT: usize = 9;
    pub(super) const GENERATION: usize = 16;
    pub(super) const MARKS: usize = 24;
    pub(super) const DURABLE: usize = 40;
    pub(super) const SYNCING: usize = 41;
    pub(super) const DURABLE_REQUESTED: usize = 42;
    pub(super) const LEASE_REQUESTED: usize = 43;
    pub(super) const STATE: usize = 48;
    pub(super) const SLEEPERS: usize = 56;
    pub(super) const FIRST: usize = 64;
}

/// Words of the header: a page. Fewer under loom, which keeps a history of each.
const HEADER_WORDS: usize = if cfg!(loom) { 72 } else { 512 };
/// Wake words (futexes).
const LOCK: usize = 0;
const READERS: usize = 1;
const SPACE: usize = 2;
const WORK: usize = 3;
const DURABLE: usize = 4;

/// Bits of `word::STATE`.
pub(crate) const FAIL_STOP: u64 = 1;
pub(crate) const FULL: u64 = 2;

/// Persistent buffer state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferHeader {
    /// Everything up to here is in segments and durable.
    pub(crate) mark: FlushMark,
    /// End of the entries that follow `mark.ring`.
    pub(crate) tail: u64,
    /// Lower bound of the next position.
    pub(crate) next: u64,
    /// First retained position.
    pub(crate) first: u64,
    /// Boot id of the machine; all ones if unknown.
    pub(crate) boot: u128,
}

/// Ring words are numbered from the creation of the ring and masked to an index: their arithmetic
/// wraps. Positions saturate: a journal at the last position rejects appends.
pub(crate) struct Buffer {
    memory: Memory,
    /// A power of two.
    ring_words: usize,
    sets: usize,
    /// Index of the ring's first word, after the header and the producer table.
    ring_start: usize,
    salt: u32,
}

/// Sizes of the buffer's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferLayout {
    ring_words: usize,
    sets: usize,
}

impl BufferLayout {
    pub(crate) fn new(buffer_bytes: u64, dedup_producers: u32) -> BufferLayout {
        // Four slots per producer: overflow of a set of eight is then rare (1 in 5,000 sets).
        let paths = (dedup_producers as usize).saturating_mul(4);
        let sets = paths.div_ceil(PRODUCERS_PER_SET).next_power_of_two();
        BufferLayout { ring_words: (buffer_bytes / 8) as usize, sets }
    }

    pub(crate) fn words(self) -> usize {
        self.ring_start().saturating_add(self.ring_words)
    }

    fn ring_start(self) -> usize {
        HEADER_WORDS.saturating_add(self.sets.saturating_mul(SET_WORDS))
    }

    /// Length of the file.
    #[cfg(not(loom))]
    pub(crate) fn file_bytes(self) -> u64 {
        (disk::FUTEX_BYTES as u64).saturating_add((self.words() as u64).saturating_mul(8))
    }
}

impl Buffer {
    pub(crate) fn new(memory: Memory, size: BufferLayout, journal_id: u128) -> Buffer {
        assert!(
            memory.len() >= size.words(),
            "BUG: {} words for a buffer of {}",
            memory.len(),
            size.words()
        );
        Buffer {
            memory,
            ring_words: size.ring_words,
            sets: size.sets,
            ring_start: size.ring_start(),
            salt: crc32c::crc32c(&journal_id.to_le_bytes()),
        }
    }

    /// Whether the header has this size and journal id.
    pub(crate) fn is_same_journal(&self, journal_id: u128) -> bool {
        let expected = self.identification(journal_id);
        (0..expected.len()).all(|i| self.memory[i].load(Acquire) == expected[i])
    }

    fn identification(&self, journal_id: u128) -> [u64; 5] {
        [
            MAGIC,
            self.ring_words as u64,
            self.sets as u64,
            journal_id as u64,
            (journal_id >> 64) as u64,
        ]
    }

    /// Initialises the header while no other process has the buffer open: the ring holds entries
    /// from `mark.ring` to `tail`, nobody sleeps and the lock is free.
    pub(crate) fn reset(&self, journal_id: u128, begin: &BufferHeader) {
        let BufferHeader { mark, tail, next, first, boot } = *begin;
        let store = |index: usize, value: u64| self.memory[index].store(value, SeqCst);
        self.identify(journal_id);
        for wake in [LOCK, READERS, SPACE, WORK, DURABLE] {
            self.memory.futex_word(wake).store(0, SeqCst);
        }
        store(word::BOOT_LOW, boot as u64);
        store(word::BOOT_HIGH, (boot >> 64) as u64);
        store(word::TAIL, tail);
        store(word::NEXT, next);
        store(word::DURABLE, mark.position);
        store(word::DURABLE_REQUESTED, 0);
        store(word::LEASE_REQUESTED, 0);
        store(word::SYNCING, 0);
        store(word::STATE, 0);
        store(word::SLEEPERS, 0);
        store(word::FIRST, first);
        for index in HEADER_WORDS..self.ring_start {
            self.memory[index].store(0, Relaxed);
        }
        // Both slots, so that no older mark is read as the newest.
        self.store_mark(mark);
        self.store_mark(mark);
        self.recover_ring();
    }

    /// Whether the buffer was last used since the machine booted: then nothing in memory is lost.
    pub(crate) fn is_from_this_boot(&self, boot: Option<u128>) -> bool {
        let [low, high] = [word::BOOT_LOW, word::BOOT_HIGH].map(|i| self.memory[i].load(Acquire));
        boot == Some(u128::from(low) | u128::from(high) << 64)
    }

    /// Marks a sync as in progress while no other process has the buffer open: if it fails or the
    /// process dies, the next opening rewrites everything that is not known to be durable. An
    /// invalid header is replaced by one without known state.
    pub(crate) fn begin_opening(&self, journal_id: u128) {
        if !self.is_same_journal(journal_id) || self.latest_valid_mark().is_none() {
            self.memory[word::DURABLE].store(0, SeqCst);
            self.memory[word::STATE].store(0, SeqCst);
            self.store_mark(FlushMark::default());
            self.store_mark(FlushMark::default());
            self.identify(journal_id);
        }
        self.set_syncing(true);
    }

    fn identify(&self, journal_id: u128) {
        for (index, value) in self.identification(journal_id).into_iter().enumerate() {
            self.memory[[word::MAGIC, word::RING, word::SETS, word::ID_LOW, word::ID_HIGH][index]]
                .store(value, SeqCst);
        }
    }

    /// Capacity in bytes, for messages.
    pub(crate) fn ring_bytes(&self) -> u64 {
        (self.ring_words as u64).saturating_mul(8)
    }

    // ---- entries ----

    /// The entries.
    #[inline]
    pub(crate) fn ring(&self) -> Ring<'_> {
        Ring { words: &self.memory[self.ring_start..][..self.ring_words], salt: self.salt }
    }

    /// The last accepted sequences.
    #[inline]
    pub(crate) fn sequences(&self) -> SequenceTable<'_> {
        SequenceTable { words: &self.memory[HEADER_WORDS..self.ring_start] }
    }

    /// Ring words of the entries after a mark, if the header is consistent: see
    /// [`Ring::entries_between`].
    pub(crate) fn entries_after(&self, mark: FlushMark) -> Option<Option<(u64, u64)>> {
        let tail = self.memory[word::TAIL].load(Acquire);
        self.ring().entries_between(mark.ring, tail, mark.position)
    }

    /// The next cache lines belong to the flusher's CPU. Without the prefetch of a word the lock's
    /// release waits for each of them: 200 ns an append instead of 65 (two CPUs, 100 B records).
    #[inline]
    fn prefetch(&self, at: u64, words: usize) {
        #[cfg(not(loom))]
        {
            const AHEAD: u64 = 128;
            const LINE: usize = 8;
            for ahead in (0..words.min(AHEAD as usize)).step_by(LINE) {
                let ahead = at.wrapping_add(AHEAD).wrapping_add(ahead as u64);
                let index = self.ring().ring_index(ahead);
                self.memory.prefetch_for_write(self.ring_start.wrapping_add(index));
            }
        }
        #[cfg(loom)]
        let _ = (at, words);
    }

    /// End of the appended entries in ring words, and a position that is above all of them.
    pub(crate) fn end(&self) -> (u64, u64) {
        // In this order: the position is stored after the tail. Acquire pairs with the Release in
        // `AppendLockGuard::append`: entries below `tail` are complete.
        let next = self.memory[word::NEXT].load(Acquire);
        (self.memory[word::TAIL].load(Acquire), next)
    }

    // ---- the published mark ----

    /// Publishes the flush mark, which frees the ring up to it. Only the flusher calls it. It takes
    /// the append lock, so that the unfinished work of a dead owner is recovered while its entries
    /// are still in the ring: the caller passes the guard.
    pub(crate) fn publish(&self, mark: FlushMark, guard: AppendLockGuard<'_>) {
        self.store_mark(mark);
        drop(guard);
        self.wake_for_space();
        self.wake_readers();
    }

    /// Wakes readers after a batch that bypassed the ring.
    pub(crate) fn wake_readers_of_direct(&self) {
        self.wake_readers();
    }

    // ---- durable, first, state ----

    pub(crate) fn durable(&self) -> u64 {
        self.memory[word::DURABLE].load(Acquire)
    }

    /// Stores the durable position. `wake_durable` wakes the waiters.
    pub(crate) fn set_durable(&self, position: u64) {
        self.memory[word::DURABLE].fetch_max(position, SeqCst);
    }

    /// Wakes waiters for durability.
    pub(crate) fn wake_durable(&self) {
        self.bump(DURABLE);
        self.wake_readers();
    }

    /// Requests that everything below a position is made durable.
    pub(crate) fn request_durable(&self, position: u64) {
        if self.memory[word::DURABLE_REQUESTED].fetch_max(position, SeqCst) < position {
            self.wake_flusher();
        }
    }

    /// Whether more durability is requested.
    pub(crate) fn is_durable_requested(&self) -> bool {
        self.memory[word::DURABLE_REQUESTED].load(SeqCst) > self.durable()
    }

    /// Asks the owner of the flusher lease to release it.
    pub(crate) fn request_lease(&self) {
        self.memory[word::LEASE_REQUESTED].store(1, SeqCst);
        self.wake_flusher();
    }

    /// Whether the lease was requested since the last call. Called by the owner.
    pub(crate) fn take_lease_request(&self) -> bool {
        self.memory[word::LEASE_REQUESTED].load(Relaxed) != 0
            && self.memory[word::LEASE_REQUESTED].swap(0, SeqCst) != 0
    }

    pub(crate) fn is_syncing(&self) -> bool {
        self.memory[word::SYNCING].load(SeqCst) != 0
    }

    pub(crate) fn set_syncing(&self, syncing: bool) {
        self.memory[word::SYNCING].store(u64::from(syncing), SeqCst);
    }

    pub(crate) fn first(&self) -> u64 {
        self.memory[word::FIRST].load(Acquire)
    }

    pub(crate) fn set_first(&self, position: u64) {
        self.memory[word::FIRST].store(position, Release);
    }

    pub(crate) fn state(&self) -> u64 {
        self.memory[word::STATE].load(Acquire)
    }

    /// Sets state bits and wakes waiters that the new state concerns.
    pub(crate) fn set_state(&self, bits: u64) {
        if self.memory[word::STATE].fetch_or(bits, SeqCst) & bits != bits {
            self.bump(SPACE);
            self.bump(DURABLE);
        }
    }

    pub(crate) fn clear_state(&self, bits: u64) {
        if self.state() & bits != 0 {
            self.memory[word::STATE].fetch_and(!bits, SeqCst);
            self.bump(SPACE);
        }
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
