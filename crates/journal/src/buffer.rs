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
//! Appends are serialised by a lock in the first wake word, which holds the slot of its owner. The
//! owner may be killed at any instruction: a waiter detects this by the owner's lock file, takes the
//! lock over and repairs the unfinished append. The repair is small: an entry counts from the single
//! store of `tail` on, and the next position and the producer table follow from the entries.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

use crate::level::BatchIdentity;
use crate::ring::{AppendRequest, Ring};
use crate::sequence_table::{PRODUCERS_PER_SET, SET_WORDS, SequenceTable};
use crate::sync::{Memory, Ordering, fence};

use Ordering::{Acquire, Relaxed, Release, SeqCst};

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

/// Bits of `word::SLEEPERS`.
const READERS_ASLEEP: u64 = 1;
/// The flusher waits for any append.
const FLUSHER_IDLE: u64 = 2;
/// The flusher waits for a full frame.
const FLUSHER_RESTING: u64 = 4;
/// An append waits for space.
const APPENDER_ASLEEP: u64 = 8;

/// Bit of the lock word: another process waits.
const CONTENDED: u32 = 1 << 31;

/// Flush mark: up to where ring entries are in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushMark {
    /// Ring word up to which entries are in segments; their space is free.
    pub(crate) ring: u64,
    /// Position of the first record that is not in a segment.
    pub(crate) position: u64,
    /// First position of the segment being written.
    pub(crate) segment: u64,
    /// Offset of the next frame in it.
    pub(crate) offset: u64,
}

impl FlushMark {
    fn words(self) -> [u64; 4] {
        [self.ring, self.position, self.segment, self.offset]
    }

    /// Checksum by which opening validates a mark read from the file.
    fn check(self) -> u64 {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        u64::from(crc32c::crc32c(&bytes)) | 1 << 32
    }
}

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
    pub(crate) fn new(buffer_bytes: u64, producers_max: u32) -> BufferLayout {
        // Four slots per producer: overflow of a set of eight is then rare (1 in 5,000 sets).
        let places = (producers_max as usize).saturating_mul(4);
        let sets = places.div_ceil(PRODUCERS_PER_SET).next_power_of_two();
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
        (disk::WAKE_BYTES as u64).saturating_add((self.words() as u64).saturating_mul(8))
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
            self.memory.wake_word(wake).store(0, SeqCst);
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

    // ---- appending ----

    /// Takes the append lock for the process with this slot; `None` if the owner is alive and keeps
    /// it for about `longest`: it is stopped.
    pub(crate) fn lock(
        &self,
        slot: u32,
        alive: &dyn ProcessLiveness,
        longest: Duration,
    ) -> Option<AppendLockGuard<'_>> {
        let me = lock_owner(slot);
        let word = self.memory.wake_word(LOCK);
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
        let word = self.memory.wake_word(LOCK);
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
            let seen = owner | CONTENDED;
            // A running owner needs less than a microsecond.
            if !self.memory.wait(LOCK, seen, Some(WAIT_SLICE)) {
                continue;
            }
            waited = waited.saturating_add(WAIT_SLICE);
            let holder = seen & !CONTENDED;
            let mut taken = false;
            if holder != me {
                // Acquire as in `lock`: the dead owner's last stores precede its end. A process
                // that gets the slot later sees that it does not own the lock. A lock word without
                // owner maps to an unused slot: shared memory was corrupted.
                alive.with_dead(holder.wrapping_sub(1), &mut || {
                    let took = word.compare_exchange(seen, me | CONTENDED, Acquire, Relaxed);
                    taken = took.is_ok();
                });
            }
            if taken {
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
        let word = self.memory.wake_word(LOCK);
        let owner = word.load(Acquire);
        if owner & !CONTENDED == lock_owner(slot) {
            self.recover_ring();
            word.store(0, Release);
            self.memory.wake(LOCK, u32::MAX);
        }
    }

    /// Recomputes the next position and the producer table from the entries. The caller holds the
    /// lock or is alone.
    fn recover_ring(&self) {
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
                let place = self.ring().ring_index(ahead);
                self.memory.prefetch_for_write(self.ring_start.wrapping_add(place));
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

    /// The published flush mark.
    pub(crate) fn mark(&self) -> FlushMark {
        loop {
            let generation = self.memory[word::GENERATION].load(Acquire);
            let slot = mark_slot(generation);
            let [ring, position, segment, offset] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Relaxed));
            // The slot is rewritten two generations later: then the values read may be torn. The
            // fence orders the loads above before the check; it pairs with the one in `store_mark`.
            fence(Acquire);
            let now = self.memory[word::GENERATION].load(Relaxed);
            if now == generation {
                return FlushMark { ring, position, segment, offset };
            }
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// The newest valid mark, for opening, while no other process has the buffer open.
    pub(crate) fn latest_valid_mark(&self) -> Option<FlushMark> {
        let slots = [0, 1].map(mark_slot).into_iter().filter_map(|slot| {
            let [ring, position, segment, offset, check] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Acquire));
            let mark = FlushMark { ring, position, segment, offset };
            (mark.check() == check).then_some(mark)
        });
        slots.max_by_key(|mark| mark.position)
    }

    fn store_mark(&self, mark: FlushMark) {
        let generation = self.memory[word::GENERATION].load(Relaxed).wrapping_add(1);
        let slot = mark_slot(generation);
        // Stores to the slot must not precede the generation that made it the idle one.
        fence(Release);
        for (i, value) in mark.words().into_iter().chain([mark.check()]).enumerate() {
            self.memory[slot.wrapping_add(i)].store(value, Relaxed);
        }
        // One store publishes all four words, so a kill at any instruction leaves a valid mark.
        self.memory[word::GENERATION].store(generation, Release);
    }

    /// Publishes the flush mark, which frees the ring up to it. Only the flusher calls it. It takes
    /// the append lock, so that the unfinished work of a dead owner is recovered while its entries
    /// are still in the ring: the caller passes the guard.
    pub(crate) fn publish(&self, mark: FlushMark, turn: AppendLockGuard<'_>) {
        self.store_mark(mark);
        drop(turn);
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

    // ---- sleeping and waking ----

    fn bump(&self, index: usize) {
        self.memory.wake_word(index).fetch_add(1, SeqCst);
        self.memory.wake(index, u32::MAX);
    }

    fn wake_readers(&self) {
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
        let seen = self.memory.wake_word(WORK).load(SeqCst);
        self.memory.wait(WORK, seen, Some(timeout));
    }

    fn sleep(
        &self,
        index: usize,
        bit: u64,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        let seen = self.memory.wake_word(index).load(SeqCst);
        self.memory[word::SLEEPERS].fetch_or(bit, SeqCst);
        fence(SeqCst);
        if !ready() {
            self.memory.wait(index, seen, timeout);
        }
    }

    /// Counter that changes with the durable position or the state.
    pub(crate) fn durable_changes(&self) -> u32 {
        self.memory.wake_word(DURABLE).load(SeqCst)
    }

    pub(crate) fn wait_durable(&self, seen: u32, timeout: Duration) {
        self.memory.wait(DURABLE, seen, Some(timeout));
    }

    /// Counter that changes when space is freed.
    pub(crate) fn space_changes(&self) -> u32 {
        self.memory.wake_word(SPACE).load(SeqCst)
    }

    pub(crate) fn wait_space(&self, seen: u32, timeout: Duration) {
        self.memory[word::SLEEPERS].fetch_or(APPENDER_ASLEEP, SeqCst);
        fence(SeqCst);
        if self.space_changes() == seen {
            self.memory.wait(SPACE, seen, Some(timeout));
        }
    }

    /// Increments the counter and wakes sleepers, if any: with a small ring this runs every few
    /// hundred appends.
    fn wake_for_space(&self) {
        self.memory.wake_word(SPACE).fetch_add(1, SeqCst);
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

/// Lock word while the process with this slot owns the lock.
fn lock_owner(slot: u32) -> u32 {
    slot.wrapping_add(1)
}

/// Index of the mark slot of a generation.
#[inline]
fn mark_slot(generation: u64) -> usize {
    if generation.is_multiple_of(2) { word::MARKS } else { word::MARKS + 8 }
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
        let owner = self.buffer.memory.wake_word(LOCK).swap(0, Release);
        if owner & CONTENDED != 0 {
            self.buffer.memory.wake(LOCK, 1);
        }
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
