//! Pre-commit buffer: ring of entries in shared memory that survives the process. An append is
//! complete, visible to every process and safe from `kill -9` when its entry is in the ring;
//! whoever has the flusher's role moves entries from the ring to the segments.
//!
//! Everything here is 64-bit words accessed as atomics. Words of the header, by index:
//!
//! ```text
//!   0  magic and version                    16  generation of the published mark: its parity names the slot
//!   1  ring's length in words               24  published mark, slot 0: ring word, position, segment, offset
//!   2  sets of the table of producers       32  published mark, slot 1; each with a checksum
//!   3  journal id, low                      40  durable; 41 a sync is under way; 42 wanted durable; 43 role wanted
//!   4  journal id, high                     48  state: poisoned, full
//!   5  the machine's boot, low; 6 high
//!   8  tail: ring words appended            56  who sleeps: readers, flusher
//!   9  position of the next record          64  first position kept
//! ```
//! The table of producers follows at word 512, the ring after it. Ring words are numbered from the
//! beginning of time; their place is the number modulo the ring's length, which is a power of two.
//!
//! Appends take turns by a lock in the first wake word, which holds the slot of its owner. Its
//! owner may be killed at any instruction: whoever waits sees by the owner's lock file that it is
//! dead, takes the lock over and puts right what the dead one may have left half done. That is
//! little: an entry counts from the one store of `tail` on, and the next position and the table
//! follow from the entries.

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

/// Version of what the words mean.
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

/// Words of the header: a page; loom keeps a history of each.
const HEADER_WORDS: usize = if cfg!(loom) { 72 } else { 512 };
/// Wake words.
const LOCK: usize = 0;
const READERS: usize = 1;
const SPACE: usize = 2;
const WORK: usize = 3;
const DURABLE: usize = 4;

/// Bits of `word::STATE`.
pub(crate) const FAIL_STOP: u64 = 1;
pub(crate) const FULL: u64 = 2;

/// Bits of `word::ASLEEP`.
const READERS_ASLEEP: u64 = 1;
/// The flusher waits for any append.
const FLUSHER_IDLE: u64 = 2;
/// The flusher lets a batch gather and is to be woken when there is one.
const FLUSHER_RESTING: u64 = 4;
/// An append waits for room.
const APPENDER_ASLEEP: u64 = 8;

/// The bit of the lock word that says that someone waits.
const CONTENDED: u32 = 1 << 31;

/// Flush position: up to where ring entries are in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushMark {
    /// The ring word up to which entries are in segments; their room is free.
    pub(crate) ring: u64,
    /// The position of the first record that is not in a segment.
    pub(crate) position: u64,
    /// First position of the segment being written.
    pub(crate) segment: u64,
    /// Where in it the next frame will begin.
    pub(crate) offset: u64,
}

impl FlushMark {
    fn words(self) -> [u64; 4] {
        [self.ring, self.position, self.segment, self.offset]
    }

    /// Tells at opening whether a mark in a file is what was stored there.
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
    /// All up to here is in segments and durable.
    pub(crate) mark: FlushMark,
    /// The end of the entries that follow `mark.ring`.
    pub(crate) tail: u64,
    /// The least next position.
    pub(crate) next: u64,
    /// The first position kept.
    pub(crate) first: u64,
    /// The machine's boot; all ones when it is not known.
    pub(crate) boot: u128,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    /// Its first position.
    At(u64),
    /// It is a repeat; what was accepted last ends here.
    Duplicate(u64),
    /// There is no room now.
    NoSpace,
    /// It can never have room: it must go straight to a segment.
    TooLarge,
    /// The state forbids it.
    Rejected(u64),
}

/// Liveness check for the process that owns a slot.
pub(crate) trait ProcessLiveness {
    /// Calls back if it is dead; as long as that takes, nobody else gets the slot.
    fn with_dead(&self, slot: u32, then: &mut dyn FnMut());
}

/// Ring words are counted from the beginning of time, and their place is what the mask leaves: sums
/// of them wrap. Positions saturate: a journal that has come to the last one rejects appends.
pub(crate) struct Buffer {
    memory: Memory,
    /// A power of two.
    ring_words: usize,
    sets: usize,
    /// Where in the memory the ring begins: behind the header and the table of producers.
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
        // Four places per producer: then it is rare (1 in 5,000 sets) that a set of eight is too
        // small for the producers that fall into it.
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

    /// The length of the file.
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

    /// Whether the header is one of this size and journal.
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

    /// Prepares the header, when nobody else has the buffer: the ring holds what lies from
    /// `mark.ring` to `tail`, and nobody sleeps or has the lock.
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
        // Both slots, so that nothing older is taken for the newest.
        self.store_mark(mark);
        self.store_mark(mark);
        self.recover_ring();
    }

    /// Whether it was used since the machine started: then nothing that was in memory is gone.
    pub(crate) fn is_from_this_boot(&self, boot: Option<u128>) -> bool {
        let [low, high] = [word::BOOT_LOW, word::BOOT_HIGH].map(|i| self.memory[i].load(Acquire));
        boot == Some(u128::from(low) | u128::from(high) << 64)
    }

    /// Says, when nobody else has the buffer, that a sync is under way: if it fails, or the process
    /// dies, the next one writes again what is not known to be durable. A header that is not ours
    /// becomes ours, with nothing known.
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

    /// The capacity in bytes, for telling people.
    pub(crate) fn ring_bytes(&self) -> u64 {
        (self.ring_words as u64).saturating_mul(8)
    }

    // ----
    // appending -------------------------------------------------------------------------------------

    /// Takes the append lock for the process with this slot; `None` when its owner is neither dead
    /// nor gets on for about as long as `longest`: somebody has stopped it.
    pub(crate) fn lock(
        &self,
        slot: u32,
        alive: &dyn ProcessLiveness,
        longest: Duration,
    ) -> Option<AppendLockGuard<'_>> {
        let me = lock_owner(slot);
        let word = self.memory.wake_word(LOCK);
        // Acquire pairs with the Release of `Turn::drop`: what the owner before wrote is seen.
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
                // With the bit, for there may be others who sleep.
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
            // An owner that is alive needs less than a microsecond, unless it is not running.
            if !self.memory.wait(LOCK, seen, Some(WAIT_SLICE)) {
                continue;
            }
            waited = waited.saturating_add(WAIT_SLICE);
            let holder = seen & !CONTENDED;
            let mut taken = false;
            if holder != me {
                // Acquire as in `lock`: the dead owner's last stores came before its end, and so
                // before this. Whoever gets the slot next finds the lock not to be its own. No
                // owner at all is nobody's slot: memory that all processes can write was damaged.
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

    /// A process begins to use a slot: the lock is not its, so if it says so, the slot's last user
    /// died with it.
    pub(crate) fn begin_slot(&self, slot: u32) {
        let word = self.memory.wake_word(LOCK);
        let owner = word.load(Acquire);
        if owner & !CONTENDED == lock_owner(slot) {
            self.recover_ring();
            word.store(0, Release);
            self.memory.wake(LOCK, u32::MAX);
        }
    }

    /// Finds the next position and the table of producers from the entries. The caller has the
    /// lock, or is alone.
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

    /// The last sequences accepted.
    #[inline]
    pub(crate) fn sequences(&self) -> SequenceTable<'_> {
        SequenceTable { words: &self.memory[HEADER_WORDS..self.ring_start] }
    }

    /// Where the entries behind a mark lie in the ring, if the header is right about it: see
    /// [`Ring::entries_between`].
    pub(crate) fn entries_after(&self, mark: FlushMark) -> Option<Option<(u64, u64)>> {
        let tail = self.memory[word::TAIL].load(Acquire);
        self.ring().entries_between(mark.ring, tail, mark.position)
    }

    /// The flusher's processor has the cache lines that come next. Without a word ahead of time,
    /// the release of the lock waits for each of them: 200 ns an append instead of 65 (two
    /// processors, 100 B records).
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

    /// The end of what is appended, in ring words, and a position: all entries before it lie below
    /// that end.
    pub(crate) fn end(&self) -> (u64, u64) {
        // In this order: the position is stored after the tail. Acquire pairs with the Release in
        // `Turn::append`: entries below `tail` are complete.
        let next = self.memory[word::NEXT].load(Acquire);
        (self.memory[word::TAIL].load(Acquire), next)
    }

    // ---- the published
    // mark ----------------------------------------------------------------------------

    /// How far the flusher has come.
    pub(crate) fn mark(&self) -> FlushMark {
        loop {
            let generation = self.memory[word::GENERATION].load(Acquire);
            let slot = mark_slot(generation);
            let [ring, position, segment, offset] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Relaxed));
            // The slot is written again two generations later: then what was read may be torn. The
            // fence keeps the loads above before the check; it pairs with the one in `store_mark`.
            fence(Acquire);
            let now = self.memory[word::GENERATION].load(Relaxed);
            if now == generation {
                return FlushMark { ring, position, segment, offset };
            }
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// The newest mark that is as it was stored, for opening, when nobody else has the buffer.
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
        // Stores to the slot must not come before the generation that made it the idle one.
        fence(Release);
        for (i, value) in mark.words().into_iter().chain([mark.check()]).enumerate() {
            self.memory[slot.wrapping_add(i)].store(value, Relaxed);
        }
        // One store makes all four count, at whatever instruction the process may be killed.
        self.memory[word::GENERATION].store(generation, Release);
    }

    /// Publishes how far the flusher has come, which frees the ring up to there. Only the flusher
    /// calls it. It takes a turn so that what the owner of the lock may have left undone is done
    /// while the entries are still in the ring: the caller gives its own.
    pub(crate) fn publish(&self, mark: FlushMark, turn: AppendLockGuard<'_>) {
        self.store_mark(mark);
        drop(turn);
        self.wake_for_space();
        self.wake_readers();
    }

    /// Wakes readers after a batch that did not go through the ring.
    pub(crate) fn wake_readers_of_direct(&self) {
        self.wake_readers();
    }

    // ---- durable, first,
    // state -------------------------------------------------------------------------

    pub(crate) fn durable(&self) -> u64 {
        self.memory[word::DURABLE].load(Acquire)
    }

    /// Notes what is durable. Those who wait are woken by `wake_durable`.
    pub(crate) fn set_durable(&self, position: u64) {
        self.memory[word::DURABLE].fetch_max(position, SeqCst);
    }

    /// Wakes those who wait for something to be durable.
    pub(crate) fn wake_durable(&self) {
        self.bump(DURABLE);
        self.wake_readers();
    }

    /// Asks for everything below a position to be made durable.
    pub(crate) fn request_durable(&self, position: u64) {
        if self.memory[word::DURABLE_REQUESTED].fetch_max(position, SeqCst) < position {
            self.wake_flusher();
        }
    }

    /// Whether somebody waits for more to be durable.
    pub(crate) fn is_durable_requested(&self) -> bool {
        self.memory[word::DURABLE_REQUESTED].load(SeqCst) > self.durable()
    }

    /// Asks whoever has the flusher's role to give it up.
    pub(crate) fn request_lease(&self) {
        self.memory[word::LEASE_REQUESTED].store(1, SeqCst);
        self.wake_flusher();
    }

    /// Whether somebody asked for the role since this was called last. For whoever has it.
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

    /// Sets bits of the state and wakes whoever may wait in vain now.
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

    // ---- sleeping and
    // waking ---------------------------------------------------------------------------

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

    /// Wakes whom an append concerns. The fence and the one in `sleep` see to it that either the
    /// sleeper finds the entry or the appender finds the sleeper.
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

    /// A quarter of the ring is worth a frame: then there is room for as much again while it is
    /// written, and for what comes until the flusher runs.
    fn gather_words(&self) -> u64 {
        self.ring_words as u64 / 4
    }

    /// Whether there is enough for a frame.
    pub(crate) fn has_full_frame(&self) -> bool {
        self.end().0.saturating_sub(self.mark().ring) >= self.gather_words()
    }

    /// Bytes of entries that are in no segment.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end().0.saturating_sub(self.mark().ring).saturating_mul(8)
    }

    /// Wakes the flusher of whichever process has the role.
    pub(crate) fn wake_flusher(&self) {
        self.memory[word::SLEEPERS].fetch_and(!(FLUSHER_IDLE | FLUSHER_RESTING), SeqCst);
        self.bump(WORK);
    }

    /// Sleeps until readers are woken, unless `ready`.
    pub(crate) fn sleep_reader(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.sleep(READERS, READERS_ASLEEP, timeout, ready);
    }

    /// Sleeps until there is work: any when `idle`, a frame's worth when not.
    pub(crate) fn sleep_flusher(
        &self,
        idle: bool,
        timeout: Option<Duration>,
        ready: &mut dyn FnMut() -> bool,
    ) {
        let bit = if idle { FLUSHER_IDLE } else { FLUSHER_RESTING };
        self.sleep(WORK, bit, timeout, ready);
    }

    /// Waits for work that another process does. An append does not end it.
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

    /// A number that changes when the durable position or the state does.
    pub(crate) fn durable_changes(&self) -> u32 {
        self.memory.wake_word(DURABLE).load(SeqCst)
    }

    pub(crate) fn wait_durable(&self, seen: u32, timeout: Duration) {
        self.memory.wait(DURABLE, seen, Some(timeout));
    }

    /// A number that changes when there is more room.
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

    /// Counts a change and wakes those who sleep, if any: with a small ring this is done for every
    /// few hundred appends.
    fn wake_for_space(&self) {
        self.memory.wake_word(SPACE).fetch_add(1, SeqCst);
        fence(SeqCst);
        if self.memory[word::SLEEPERS].load(Relaxed) & APPENDER_ASLEEP != 0 {
            self.memory[word::SLEEPERS].fetch_and(!APPENDER_ASLEEP, SeqCst);
            self.memory.wake(SPACE, u32::MAX);
        }
    }

    /// Wakes the flusher and the readers of this process so that they see that they are to stop.
    pub(crate) fn wake_all(&self) {
        self.bump(WORK);
        self.bump(READERS);
    }
}

/// What the lock word says while the process with this slot has the lock.
fn lock_owner(slot: u32) -> u32 {
    slot.wrapping_add(1)
}

/// Where the mark of a generation begins.
#[inline]
fn mark_slot(generation: u64) -> usize {
    if generation.is_multiple_of(2) { word::MARKS } else { word::MARKS + 8 }
}

/// Guard of the append lock.
pub(crate) struct AppendLockGuard<'a> {
    buffer: &'a Buffer,
}

impl AppendLockGuard<'_> {
    /// Puts an entry at the end of the ring, unless it is a repeat, there is no room or the state
    /// forbids.
    #[inline]
    pub(crate) fn append(&self, append: &AppendRequest<'_>) -> (AppendOutcome, u64) {
        let buffer = self.buffer;
        let memory = &buffer.memory;
        let tail = memory[word::TAIL].load(Relaxed);
        let state = memory[word::STATE].load(Acquire);
        if let Some(repeated) = self.duplicate_end(append.identity) {
            // A repeat needs no room; whether it is durable is another question.
            return (AppendOutcome::Duplicate(repeated), tail);
        }
        if state != 0 {
            return (AppendOutcome::Rejected(state), tail);
        }
        let words = append.words();
        if words > buffer.ring_words / 2 {
            return (AppendOutcome::TooLarge, tail);
        }
        // A tail before the mark, of a damaged header, leaves no room.
        let used = tail.wrapping_sub(buffer.mark().ring);
        if used.saturating_add(words as u64) > buffer.ring_words as u64 {
            return (AppendOutcome::NoSpace, tail);
        }
        let first = memory[word::NEXT].load(Relaxed);
        let Some(end) = first.checked_add(u64::from(append.records)) else {
            // There are no more positions: the header is damaged.
            return (AppendOutcome::Rejected(FAIL_STOP), tail);
        };
        buffer.ring().write_entry(tail, first, append);
        buffer.prefetch(tail, words);
        let tail = tail.wrapping_add(words as u64);
        // Release: the entry's words are there for whoever sees it counted. From here on it is
        // appended.
        memory[word::TAIL].store(tail, Release);
        memory[word::NEXT].store(end, Release);
        if let Some(identity) = append.identity {
            buffer.sequences().record(identity, end);
        }
        (AppendOutcome::At(first), tail)
    }

    /// The end of what was accepted last, if this is not newer.
    pub(crate) fn duplicate_end(&self, identity: Option<BatchIdentity>) -> Option<u64> {
        let identity = identity?;
        let (last, end) = self.buffer.sequences().last(identity.producer, identity.epoch)?;
        (identity.sequence <= last).then_some(end)
    }

    /// Whether the ring is empty: then a batch may go straight to a segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.memory[word::TAIL].load(Relaxed) == self.buffer.mark().ring
    }

    /// With the ring empty, what was lost at its end counts as flushed: only its positions are left
    /// of it.
    pub(crate) fn discard_lost(&self) {
        let mark = self.buffer.mark();
        let next = self.buffer.memory[word::NEXT].load(Relaxed);
        if self.is_empty() && next > mark.position {
            self.buffer.store_mark(FlushMark { position: next, ..mark });
        }
    }

    /// Counts a batch that the caller wrote straight to a segment, the ring being empty.
    pub(crate) fn commit_direct(&self, identity: Option<BatchIdentity>, mark: FlushMark) {
        debug_assert!(self.is_empty(), "BUG: a batch passed entries in the ring");
        // The mark first: from here on it is appended, and whoever takes over finds the next
        // position in it.
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
