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
//! The table of producers follows at word 512, the ring after it. Ring words are numbered from the beginning
//! of time; their place is the number modulo the ring's length, which is a power of two.
//!
//! Appends take turns by a lock in the first wake word, which holds the slot of its owner. Its owner may be
//! killed at any instruction: whoever waits sees by the owner's lock file that it is dead, takes the lock over
//! and puts right what the dead one may have left half done. That is little: an entry counts from the one
//! store of `tail` on, and the next position and the table follow from the entries.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::time::Duration;

use crate::level::BatchIdentity;
use crate::origin::producer_origin;
use crate::sync::{AtomicU64, Memory, Ordering, fence};

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
/// Producers that share a set of the table: one more evicts, of the origin that has most of them,
/// the one that was silent longest.
const PRODUCERS_PER_SET: usize = 8;
/// Words of an entry of the table: producer, boot, sequence, end position plus one (0: free).
const PRODUCER_WORDS: usize = 4;
/// Words of a set.
const SET_WORDS: usize = PRODUCERS_PER_SET * PRODUCER_WORDS;

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

/// Bits of the length in an entry.
const TAGGED: u32 = 1 << 30;
const PACKED: u32 = 1 << 31;
const LENGTH: u32 = TAGGED - 1;

/// Words of an entry without its options.
const ENTRY_WORDS: usize = crate::layout::ENTRY_BYTES / 8;
/// Words of an entry before its body, with all options.
const HEAD_WORDS_MAX: usize = ENTRY_WORDS + 4;

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

/// Batch to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendRequest<'a> {
    pub(crate) identity: Option<BatchIdentity>,
    pub(crate) records: u32,
    /// A record; or, if `packed`, records with their lengths, as in a frame's group.
    pub(crate) body: &'a [u8],
    pub(crate) is_packed: bool,
    pub(crate) time: i64,
}

impl AppendRequest<'_> {
    fn words(&self) -> usize {
        head_words(self.identity.is_some(), self.is_packed)
            .saturating_add(self.body.len().div_ceil(8))
    }
}

/// Words of an entry before its body: at most [`HEAD_WORDS_MAX`].
#[inline]
fn head_words(is_tagged: bool, is_packed: bool) -> usize {
    let identity: usize = if is_tagged { 3 } else { 0 };
    ENTRY_WORDS.wrapping_add(identity).wrapping_add(usize::from(is_packed))
}

/// Header of a ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingEntry {
    pub(crate) first: u64,
    pub(crate) records: u32,
    pub(crate) identity: Option<BatchIdentity>,
    pub(crate) is_packed: bool,
    pub(crate) time: i64,
    /// Its length in the ring.
    pub(crate) words: u64,
}

impl RingEntry {
    /// The position behind its last record; [`Buffer::entry`] saw that there is one.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.records))
    }
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

/// Ring words are counted from the beginning of time, and their place is what the mask leaves: sums of them
/// wrap. Positions saturate: a journal that has come to the last one rejects appends.
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
        // Four places per producer: then it is rare (1 in 5,000 sets) that a set of eight is too small for
        // the producers that fall into it.
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

    /// Prepares the header, when nobody else has the buffer: the ring holds what lies from `mark.ring` to
    /// `tail`, and nobody sleeps or has the lock.
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

    /// Says, when nobody else has the buffer, that a sync is under way: if it fails, or the process dies, the
    /// next one writes again what is not known to be durable. A header that is not ours becomes ours, with
    /// nothing known.
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

    // ---- appending -------------------------------------------------------------------------------------

    /// Takes the append lock for the process with this slot; `None` when its owner is neither dead nor gets
    /// on for about as long as `longest`: somebody has stopped it.
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
                // Acquire as in `lock`: the dead owner's last stores came before its end, and so before this.
                // Whoever gets the slot next finds the lock not to be its own.
                // No owner at all is nobody's slot: memory that all processes can write was damaged.
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

    /// A process begins to use a slot: the lock is not its, so if it says so, the slot's last user died
    /// with it.
    pub(crate) fn begin_slot(&self, slot: u32) {
        let word = self.memory.wake_word(LOCK);
        let owner = word.load(Acquire);
        if owner & !CONTENDED == lock_owner(slot) {
            self.recover_ring();
            word.store(0, Release);
            self.memory.wake(LOCK, u32::MAX);
        }
    }

    /// Finds the next position and the table of producers from the entries. The caller has the lock, or is
    /// alone.
    fn recover_ring(&self) {
        let mark = self.mark();
        let tail = self.memory[word::TAIL].load(Acquire);
        let mut next = self.memory[word::NEXT].load(Relaxed).max(mark.position);
        let mut at = mark.ring;
        let mut scratch = Vec::new();
        while at < tail {
            let Some(entry) = self.entry(at, tail, &mut scratch) else {
                at = at.wrapping_add(1);
                continue;
            };
            let end = entry.end();
            next = next.max(end);
            if let Some(identity) = entry.identity {
                self.record_sequence(identity, end);
            }
            at = at.wrapping_add(entry.words);
        }
        self.memory[word::NEXT].store(next, Release);
    }

    fn write_entry(&self, at: u64, first: u64, append: &AppendRequest<'_>) {
        // Whoever reads one of these words sees the mark that freed them, too; pairs with the fence in `mark`.
        fence(Release);
        let mut head = [0; HEAD_WORDS_MAX];
        let words = head_words(append.identity.is_some(), append.is_packed);
        let mut length = append.body.len() as u32;
        if let Some(identity) = append.identity {
            length |= TAGGED;
            head[ENTRY_WORDS] = identity.producer;
            head[ENTRY_WORDS + 1] = identity.epoch;
            head[ENTRY_WORDS + 2] = identity.sequence;
        }
        if append.is_packed {
            length |= PACKED;
            head[words.wrapping_sub(1)] = u64::from(append.records);
        }
        head[1] = first;
        head[2] = append.time.cast_unsigned();
        let crc = self.entry_crc(length, &head[1..words], append.body);
        head[0] = u64::from(crc) | u64::from(length) << 32;
        for (i, &word) in head[..words].iter().enumerate() {
            self.ring(at.wrapping_add(i as u64)).store(word, Relaxed);
        }
        self.copy_in(at.wrapping_add(words as u64), append.body);
        self.prefetch(at, append.words());
    }

    /// The flusher's processor has the cache lines that come next. Without a word ahead of time, the release
    /// of the lock waits for each of them: 200 ns an append instead of 65 (two processors, 100 B records).
    #[inline]
    fn prefetch(&self, at: u64, words: usize) {
        #[cfg(not(loom))]
        {
            const AHEAD: u64 = 128;
            const LINE: usize = 8;
            for ahead in (0..words.min(AHEAD as usize)).step_by(LINE) {
                let place = self.ring_index(at.wrapping_add(AHEAD).wrapping_add(ahead as u64));
                self.memory.prefetch_for_write(self.ring_start.wrapping_add(place));
            }
        }
        #[cfg(loom)]
        let _ = (at, words);
    }

    fn entry_crc(&self, length: u32, head: &[u64], body: &[u8]) -> u32 {
        let mut bytes = [0; 8 * HEAD_WORDS_MAX];
        let len = head.len().wrapping_mul(8).wrapping_add(4);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        for (chunk, word) in bytes[4..].chunks_exact_mut(8).zip(head) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        crc32c::crc32c_append(crc32c::crc32c_append(self.salt, &bytes[..len]), body)
    }

    #[inline]
    fn ring(&self, at: u64) -> &AtomicU64 {
        &self.words()[self.ring_index(at)]
    }

    /// The place in the ring of a ring word.
    #[inline]
    fn ring_index(&self, at: u64) -> usize {
        at as usize & self.ring_words.wrapping_sub(1)
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &self.memory[self.ring_start..][..self.ring_words]
    }

    /// The words from `at` on, `count` of them, in the two pieces that a ring has.
    #[inline]
    fn pieces(&self, at: u64, count: usize) -> (&[AtomicU64], &[AtomicU64]) {
        let words = self.words();
        let start = self.ring_index(at);
        let straight = count.min(words.len().wrapping_sub(start));
        (&words[start..][..straight], &words[..count.wrapping_sub(straight)])
    }

    fn copy_in(&self, at: u64, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<8>();
        let (a, b) = self.pieces(at, whole.len());
        for (word, chunk) in a.iter().chain(b).zip(whole) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let at = at.wrapping_add(whole.len() as u64);
            self.ring(at).store(u64::from_le_bytes(last), Relaxed);
        }
    }

    /// Puts `len` bytes behind what is in `out`.
    #[inline]
    fn copy_out(&self, at: u64, len: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let words = len.div_ceil(8);
        out.resize(start.saturating_add(words.saturating_mul(8)), 0);
        let (a, b) = self.pieces(at, words);
        let (chunks, _) = out[start..].as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(a.iter().chain(b)) {
            *chunk = word.load(Relaxed).to_le_bytes();
        }
        out.truncate(start.saturating_add(len));
    }

    // ---- reading the ring ------------------------------------------------------------------------------

    /// Reads the entry that begins at a ring word and ends at `end` at the latest, its body behind what is
    /// in `out`; `None`, and `out` as before, when the words are no entry.
    pub(crate) fn entry(&self, at: u64, end: u64, out: &mut Vec<u8>) -> Option<RingEntry> {
        // Whatever a damaged header says is the end: nothing is longer than the ring.
        let room = end.checked_sub(at)?.min(self.ring_words as u64);
        if room < ENTRY_WORDS as u64 {
            return None;
        }
        let word0 = self.ring(at).load(Relaxed);
        let (crc, length) = (word0 as u32, (word0 >> 32) as u32);
        let body_len = (length & LENGTH) as usize;
        let tagged = length & TAGGED != 0;
        let packed = length & PACKED != 0;
        let head_words = head_words(tagged, packed);
        let words = head_words.wrapping_add(body_len.div_ceil(8)) as u64;
        if words > room {
            return None;
        }
        let mut head = [0; HEAD_WORDS_MAX];
        for (i, value) in head[..head_words].iter_mut().enumerate().skip(1) {
            *value = self.ring(at.wrapping_add(i as u64)).load(Relaxed);
        }
        let before = out.len();
        self.copy_out(at.wrapping_add(head_words as u64), body_len, out);
        let records = if packed { head[head_words.wrapping_sub(1)] } else { 1 };
        let sound = self.entry_crc(length, &head[1..head_words], &out[before..]) == crc
            && records > 0
            && u32::try_from(records).is_ok()
            && head[1].checked_add(records).is_some();
        if !sound {
            out.truncate(before);
            return None;
        }
        let identity =
            tagged.then(|| BatchIdentity { producer: head[3], epoch: head[4], sequence: head[5] });
        let time = head[2].cast_signed();
        Some(RingEntry {
            first: head[1],
            records: records as u32,
            identity,
            is_packed: packed,
            time,
            words,
        })
    }

    /// Where in the ring entries lie that begin at `position` or later, wherever the header says that the
    /// ring begins and ends: the first's word and the end of the last, in word numbers of one lap, the
    /// positions rising. For opening after a crash, when nobody else has the buffer.
    ///
    /// A power cut may leave pages of several laps, whose entries do not follow each other, and parts of
    /// entries: all but what was found is erased, and counted in words. Otherwise it could turn up again between
    /// others, or whole with the next power cut, in the place of what was appended since.
    pub(crate) fn find_entries(&self, position: u64, seen: u64) -> (Option<(u64, u64)>, u64) {
        let lap = self.ring_words as u64;
        // Positions go on from what anybody has seen, and a record takes a byte of the ring at least.
        let most = position.max(seen).saturating_add(lap.saturating_mul(8));
        // What looks like an entry is checked whole. Records made to look so must not keep a journal from opening.
        let mut words_left = lap.saturating_mul(64);
        let mut found: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut scratch = Vec::new();
        for at in lap..lap.saturating_mul(2) {
            // Cheap to rule out: the second word of an entry is its position.
            if !(position..=most).contains(&self.ring(at.wrapping_add(1)).load(Relaxed)) {
                continue;
            }
            let length = (self.ring(at).load(Relaxed) >> 32) as u32 & LENGTH;
            let words = u64::from(length) / 8;
            if words > lap / 2 || words_left < words {
                continue;
            }
            words_left = words_left.saturating_sub(words);
            scratch.clear();
            if let Some(entry) = self.entry(at, at.saturating_add(lap), &mut scratch) {
                found.push((entry.first, at, entry.words, entry.end()));
            }
        }
        found.sort_unstable();
        let Some(&(_, begin, ..)) = found.first() else { return (None, self.erase(0, 0..lap)) };
        // From the first on they lie in the order of their positions, at most once around.
        let distance = |at: u64| at.wrapping_sub(begin) & lap.wrapping_sub(1);
        let (mut end, mut next, mut erased) = (0_u64, position, 0_u64);
        for (first, at, words, after) in found {
            let from = distance(at);
            if from < end || from.saturating_add(words) > lap || first < next {
                continue;
            }
            erased = erased.saturating_add(self.erase(begin, end..from));
            (end, next) = (from.saturating_add(words), after);
        }
        erased = erased.saturating_add(self.erase(begin, end..lap));
        (Some((begin, begin.saturating_add(end))), erased)
    }

    /// Where the entries behind a mark lie, as `find_entries` says it, if the header is right about it: they
    /// follow each other up to the tail, and no other follows there. Unless the machine stopped it is, and
    /// nothing else in the ring will be taken for an entry.
    pub(crate) fn entries_after(&self, mark: FlushMark) -> Option<Option<(u64, u64)>> {
        let lap = self.ring_words as u64;
        let tail = self.memory[word::TAIL].load(Acquire);
        let used = tail.checked_sub(mark.ring).filter(|&used| used <= lap)?;
        let mut scratch = Vec::new();
        let (mut at, mut next) = (mark.ring, mark.position);
        while at < tail {
            scratch.clear();
            let entry = self.entry(at, tail, &mut scratch).filter(|entry| entry.first >= next)?;
            (at, next) = (at.saturating_add(entry.words), entry.end());
        }
        scratch.clear();
        let behind = self.entry(tail, mark.ring.saturating_add(lap), &mut scratch);
        if behind.is_some_and(|entry| entry.first >= next) {
            return None;
        }
        let begin = lap | mark.ring & lap.wrapping_sub(1);
        Some((used > 0).then(|| (begin, begin.saturating_add(used))))
    }

    /// Makes words zero that lie so far behind `begin`; how many were not.
    fn erase(&self, begin: u64, behind: std::ops::Range<u64>) -> u64 {
        let words = behind.map(|behind| self.ring(begin.wrapping_add(behind)));
        let used = words.filter(|word| word.load(Relaxed) != 0);
        used.map(|word| word.store(0, Relaxed)).count() as u64
    }

    /// The end of what is appended, in ring words, and a position: all entries before it lie below that end.
    pub(crate) fn end(&self) -> (u64, u64) {
        // In this order: the position is stored after the tail. Acquire pairs with the Release in
        // `Turn::append`: entries below `tail` are complete.
        let next = self.memory[word::NEXT].load(Acquire);
        (self.memory[word::TAIL].load(Acquire), next)
    }

    // ---- the published mark ----------------------------------------------------------------------------

    /// How far the flusher has come.
    pub(crate) fn mark(&self) -> FlushMark {
        loop {
            let generation = self.memory[word::GENERATION].load(Acquire);
            let slot = mark_slot(generation);
            let [ring, position, segment, offset] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Relaxed));
            // The slot is written again two generations later: then what was read may be torn. The fence
            // keeps the loads above before the check; it pairs with the one in `store_mark`.
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

    /// Publishes how far the flusher has come, which frees the ring up to there. Only the flusher calls it.
    /// It takes a turn so that what the owner of the lock may have left undone is done while the entries
    /// are still in the ring: the caller gives its own.
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

    // ---- durable, first, state -------------------------------------------------------------------------

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

    // ---- producers -------------------------------------------------------------------------------------

    fn set_of(&self, producer: u64, boot: u64) -> usize {
        // Multiplicative hashing, of whose result the top bits depend on all bits; producers may be numbered by
        // hand, or in their upper half, and boots are often times. The constants are odd and have no pattern.
        let mixed =
            producer.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ boot.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The product of two 64-bit numbers, and a set that there is.
        let set = (u128::from(mixed).wrapping_mul(self.sets as u128) >> 64) as usize;
        HEADER_WORDS.wrapping_add(set.wrapping_mul(SET_WORDS))
    }

    /// The last sequence accepted from a producer's boot, and the end of that batch. The caller has the lock.
    fn last(&self, producer: u64, boot: u64) -> Option<(u64, u64)> {
        let set = self.set_of(producer, boot);
        let entries = self.memory[set..][..SET_WORDS].as_chunks::<PRODUCER_WORDS>().0;
        entries.iter().find_map(|entry| {
            let [p, b, sequence, end] = entry.each_ref().map(|word| word.load(Relaxed));
            (p == producer && b == boot).then_some((sequence, end.checked_sub(1)?))
        })
    }

    /// Notes what was accepted. Never goes back. The caller has the lock.
    pub(crate) fn record_sequence(&self, identity: BatchIdentity, end: u64) {
        let set = self.set_of(identity.producer, identity.epoch);
        // Of each place its origin and when it was used; 0 if it is free.
        let end_plus_one = end.saturating_add(1);
        let mut ways = [(0, 0); PRODUCERS_PER_SET];
        let entries = self.memory[set..][..SET_WORDS].as_chunks::<PRODUCER_WORDS>().0;
        for (way, entry) in ways.iter_mut().zip(entries) {
            let [producer, boot, sequence, used] = entry.each_ref().map(|word| word.load(Relaxed));
            if used != 0 && producer == identity.producer && boot == identity.epoch {
                if sequence <= identity.sequence {
                    entry[2].store(identity.sequence, Relaxed);
                    entry[3].store(end_plus_one, Relaxed);
                }
                return;
            }
            *way = (producer_origin(producer), used);
        }
        let Some(way) = victim(&ways, identity.origin(), end_plus_one) else { return };
        // Free while it is being written, so that a crash leaves no mixture.
        let entry = &entries[way];
        entry[3].store(0, Relaxed);
        let values = [identity.producer, identity.epoch, identity.sequence, end_plus_one];
        // Release: in this order for whoever takes over.
        entry.iter().zip(values).for_each(|(word, value)| word.store(value, Release));
    }

    // ---- sleeping and waking ---------------------------------------------------------------------------

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

    /// Wakes whom an append concerns. The fence and the one in `sleep` see to it that either the sleeper
    /// finds the entry or the appender finds the sleeper.
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

    /// A quarter of the ring is worth a frame: then there is room for as much again while it is written,
    /// and for what comes until the flusher runs.
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

    /// Counts a change and wakes those who sleep, if any: with a small ring this is done for every few hundred
    /// appends.
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
    /// Puts an entry at the end of the ring, unless it is a repeat, there is no room or the state forbids.
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
        buffer.write_entry(tail, first, append);
        let tail = tail.wrapping_add(words as u64);
        // Release: the entry's words are there for whoever sees it counted. From here on it is appended.
        memory[word::TAIL].store(tail, Release);
        memory[word::NEXT].store(end, Release);
        if let Some(identity) = append.identity {
            buffer.record_sequence(identity, end);
        }
        (AppendOutcome::At(first), tail)
    }

    /// The end of what was accepted last, if this is not newer.
    pub(crate) fn duplicate_end(&self, identity: Option<BatchIdentity>) -> Option<u64> {
        let identity = identity?;
        let (last, end) = self.buffer.last(identity.producer, identity.epoch)?;
        (identity.sequence <= last).then_some(end)
    }

    /// Whether the ring is empty: then a batch may go straight to a segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.memory[word::TAIL].load(Relaxed) == self.buffer.mark().ring
    }

    /// With the ring empty, what was lost at its end counts as flushed: only its positions are left of it.
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
        // The mark first: from here on it is appended, and whoever takes over finds the next position in it.
        self.buffer.store_mark(mark);
        self.buffer.memory[word::NEXT].store(mark.position, Release);
        if let Some(identity) = identity {
            self.buffer.record_sequence(identity, mark.position);
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

/// The place in a set that an entry of an origin gets: a free one or, of the origin that has most
/// with the new entry, the one that was silent longest. `None` if all that it could have are newer,
/// which happens only to what is noted late, at opening.
fn victim(ways: &[(u64, u64); PRODUCERS_PER_SET], origin: u64, used: u64) -> Option<usize> {
    if let Some(free) = ways.iter().position(|way| way.1 == 0) {
        return Some(free);
    }
    let count = |of: u64| {
        let stored = ways.iter().filter(|way| way.0 == of).count();
        stored.saturating_add(usize::from(of == origin))
    };
    // Of two that have as many, the new entry's own loses, then the one silent longest.
    let rank = |&way: &usize| {
        let (of, last) = ways[way];
        (std::cmp::Reverse(count(of)), of != origin, last)
    };
    let way = (0..PRODUCERS_PER_SET).min_by_key(rank)?;
    let (of, last) = ways[way];
    (last <= used || count(of) > count(origin)).then_some(way)
}

#[cfg(test)]
mod tests {
    //! The same scenarios run under loom, which tries all interleavings, and on real threads.

    use super::*;

    #[cfg(loom)]
    use loom::{sync::Arc, thread};
    #[cfg(not(loom))]
    use std::{sync::Arc, thread};

    const ID: u128 = 5;

    struct DeadProcess;
    impl ProcessLiveness for DeadProcess {
        fn with_dead(&self, _slot: u32, then: &mut dyn FnMut()) {
            then();
        }
    }

    struct LiveProcess;
    impl ProcessLiveness for LiveProcess {
        fn with_dead(&self, _slot: u32, _then: &mut dyn FnMut()) {}
    }

    fn lock<'a>(buffer: &'a Buffer, slot: u32, alive: &dyn ProcessLiveness) -> AppendLockGuard<'a> {
        buffer.lock(slot, alive, Duration::MAX).expect("nobody has stopped the owner")
    }

    /// A buffer with room for a few entries of a word.
    fn buffer(entries: usize) -> Buffer {
        let size = BufferLayout { ring_words: (entries * 4).next_power_of_two(), sets: 1 };
        #[cfg(loom)]
        let memory = Memory::new(size.words());
        #[cfg(not(loom))]
        let memory = Memory::heap(size.file_bytes()).unwrap();
        let buffer = Buffer::new(memory, size, ID);
        let mark = FlushMark { ring: 0, position: 0, segment: 0, offset: 64 };
        buffer.reset(ID, &BufferHeader { mark, tail: 0, next: 0, first: 0, boot: 1 });
        buffer
    }

    fn append(body: &[u8], sequence: Option<u64>) -> AppendRequest<'_> {
        let identity = sequence.map(|sequence| BatchIdentity { producer: 1, epoch: 1, sequence });
        AppendRequest { identity, records: 1, body, is_packed: false, time: 0 }
    }

    fn put(buffer: &Buffer, slot: u32, body: u8) -> u64 {
        let (appended, tail) = lock(buffer, slot, &LiveProcess).append(&append(&[body], None));
        buffer.wake_after_append(tail);
        match appended {
            AppendOutcome::At(first) => first,
            other => panic!("{other:?}"),
        }
    }

    /// Takes one entry out of the ring, as the flusher does.
    fn take_entry(buffer: &Buffer) -> Option<(u64, u8)> {
        let mark = buffer.mark();
        let (tail, _) = buffer.end();
        let mut body = Vec::new();
        if mark.ring == tail {
            return None;
        }
        let entry =
            buffer.entry(mark.ring, tail, &mut body).expect("an entry below the tail is whole");
        let mark = FlushMark { ring: mark.ring + entry.words, position: entry.first + 1, ..mark };
        buffer.publish(mark, lock(buffer, 9, &LiveProcess));
        Some((entry.first, body[0]))
    }

    #[track_caller]
    fn model(scenario: impl Fn() + Sync + Send + 'static) {
        #[cfg(loom)]
        loom::model(scenario);
        #[cfg(not(loom))]
        for _ in 0..200 {
            scenario();
        }
    }

    #[test]
    fn loom_appenders_get_distinct_positions() {
        model(|| {
            let buffer = Arc::new(buffer(4));
            let other = Arc::clone(&buffer);
            let appender = thread::spawn(move || put(&other, 0, 10));
            let mine = put(&buffer, 1, 11);
            let early = take_entry(&buffer);
            let theirs = appender.join().unwrap();
            assert_eq!(mine + theirs, 1);
            let mut all: Vec<_> = early.into_iter().collect();
            while let Some(entry) = take_entry(&buffer) {
                all.push(entry);
            }
            let mut expected = [(mine, 11), (theirs, 10)];
            expected.sort_unstable();
            assert_eq!(all, expected);
        });
    }

    #[test]
    fn loom_ring_reader_detects_overwrite() {
        model(|| {
            let buffer = Arc::new(buffer(2));
            put(&buffer, 0, 10);
            let other = Arc::clone(&buffer);
            // Frees the entry and writes over its words.
            let writer = thread::spawn(move || {
                assert_eq!(take_entry(&other), Some((0, 10)));
                put(&other, 0, 11);
                put(&other, 0, 12);
            });
            let mark = buffer.mark();
            let (tail, _) = buffer.end();
            let mut body = Vec::new();
            let read = buffer.entry(mark.ring, tail, &mut body);
            if buffer.mark() == mark {
                // Nothing was freed while it was read: what was below the tail is there.
                if mark.ring < tail {
                    let entry = read.expect("it has not moved on");
                    assert_eq!(u64::from(body[0]), entry.first + 10);
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_mark_is_never_torn() {
        model(|| {
            let buffer = Arc::new(buffer(2));
            let all = |i| FlushMark { ring: i, position: i, segment: i, offset: i };
            buffer.store_mark(all(0));
            let other = Arc::clone(&buffer);
            let flusher = thread::spawn(move || (1..4).for_each(|i| other.store_mark(all(i))));
            let mark = buffer.mark();
            assert_eq!(mark, all(mark.ring));
            flusher.join().unwrap();
        });
    }

    #[test]
    fn loom_a_sleeping_reader_is_woken() {
        model(|| {
            let buffer = Arc::new(buffer(2));
            let other = Arc::clone(&buffer);
            let reader = thread::spawn(move || {
                while other.end().1 == 0 {
                    other.sleep_reader(None, &mut || other.end().1 > 0);
                }
            });
            put(&buffer, 0, 10);
            reader.join().unwrap();
        });
    }

    #[test]
    fn loom_an_idle_flusher_is_woken() {
        model(|| {
            let buffer = Arc::new(buffer(2));
            let other = Arc::clone(&buffer);
            let flusher = thread::spawn(move || {
                loop {
                    if let Some(entry) = take_entry(&other) {
                        break entry;
                    }
                    other.sleep_flusher(true, None, &mut || other.end().0 > 0);
                }
            });
            put(&buffer, 0, 10);
            assert_eq!(flusher.join().unwrap(), (0, 10));
        });
    }

    #[test]
    fn loom_dead_owners_lock_is_taken_once() {
        model(|| {
            let buffer = Arc::new(buffer(4));
            // Dies with the lock, having put its entry and not noted anything else.
            let turn = lock(&buffer, 7, &LiveProcess);
            let (appended, _) = turn.append(&append(&[10], Some(3)));
            assert_eq!(appended, AppendOutcome::At(0));
            std::mem::forget(turn);
            buffer.memory[word::NEXT].store(0, SeqCst);
            for at in HEADER_WORDS..HEADER_WORDS + PRODUCERS_PER_SET * PRODUCER_WORDS {
                buffer.memory[at].store(0, SeqCst);
            }
            // Only the dead one is dead: the two who wait take turns.
            struct ProcessSeven;
            impl ProcessLiveness for ProcessSeven {
                fn with_dead(&self, slot: u32, then: &mut dyn FnMut()) {
                    if slot == 7 {
                        then();
                    }
                }
            }
            let other = Arc::clone(&buffer);
            let waiter = thread::spawn(move || {
                lock(&other, 1, &ProcessSeven).append(&append(&[11], None)).0
            });
            let mine = lock(&buffer, 2, &ProcessSeven).append(&append(&[12], Some(3))).0;
            assert_eq!(mine, AppendOutcome::Duplicate(1), "the dead one's batch is known");
            assert_eq!(waiter.join().unwrap(), AppendOutcome::At(1));
            assert_eq!(take_entry(&buffer), Some((0, 10)));
            assert_eq!(take_entry(&buffer), Some((1, 11)));
        });
    }

    #[test]
    fn lock_of_a_reused_slot_is_free() {
        let buffer = buffer(4);
        std::mem::forget(lock(&buffer, 3, &DeadProcess));
        buffer.begin_slot(3);
        assert_eq!(put(&buffer, 0, 1), 0);
    }

    #[cfg(not(loom))]
    mod ring_tests {
        use super::*;

        fn drain_entries(buffer: &Buffer) -> Vec<(u64, u8)> {
            std::iter::from_fn(|| take_entry(buffer)).collect()
        }

        #[test]
        fn miri_entries_go_around_the_ring() {
            let buffer = buffer(4);
            for i in 0..20 {
                assert_eq!(put(&buffer, 0, i as u8), i);
                assert_eq!(take_entry(&buffer), Some((i, i as u8)));
            }
            let body = [7; 30];
            let (first, _) = lock(&buffer, 0, &LiveProcess).append(&append(&body[..17], Some(1)));
            assert_eq!(first, AppendOutcome::TooLarge, "more than half the ring");
        }

        #[test]
        fn full_ring_accepts_again_after_a_flush() {
            let buffer = buffer(4);
            let try_put = |body| lock(&buffer, 0, &LiveProcess).append(&append(&[body], None)).0;
            assert!((0..4).all(|i| try_put(i) == AppendOutcome::At(u64::from(i))));
            assert_eq!(try_put(9), AppendOutcome::NoSpace);
            assert_eq!(take_entry(&buffer), Some((0, 0)));
            assert_eq!(try_put(9), AppendOutcome::At(4));
            assert_eq!(drain_entries(&buffer), [(1, 1), (2, 2), (3, 3), (4, 9)]);
        }

        /// The header is memory that all processes can write.
        #[test]
        fn a_damaged_header_rejects_appends_and_overflows_nothing() {
            let buffer = buffer(4);
            let try_put = || lock(&buffer, 0, &LiveProcess).append(&append(b"x", None)).0;
            buffer.memory[word::NEXT].store(u64::MAX, SeqCst);
            assert_eq!(try_put(), AppendOutcome::Rejected(FAIL_STOP), "no positions are left");
            assert_eq!(buffer.end().0, 0, "nothing was written");
            buffer.memory[word::NEXT].store(0, SeqCst);
            assert_eq!(try_put(), AppendOutcome::At(0));
            buffer.store_mark(FlushMark { ring: 100, ..FlushMark::default() });
            assert_eq!(try_put(), AppendOutcome::NoSpace, "the tail lies before the mark");
            assert_eq!((buffer.used_bytes(), buffer.entries_after(buffer.mark())), (0, None));
        }

        #[test]
        fn a_damaged_lock_word_without_an_owner_is_taken_over() {
            let buffer = buffer(4);
            buffer.memory.wake_word(LOCK).store(CONTENDED, SeqCst);
            drop(lock(&buffer, 0, &DeadProcess));
            assert_eq!(buffer.memory.wake_word(LOCK).load(SeqCst), 0);
        }

        #[test]
        fn a_flood_of_one_origin_leaves_the_producers_of_others() {
            let (flood, other) = (7, 8);
            let mut ways = [(0, 0); PRODUCERS_PER_SET];
            // The other was silent for longer than all of the flood.
            for (used, of) in [other, other].into_iter().chain([flood; 100]).enumerate() {
                let used = used as u64 + 1;
                ways[victim(&ways, of, used).unwrap()] = (of, used);
            }
            let count = |of| ways.iter().filter(|way| way.0 == of).count();
            assert_eq!((count(other), count(flood)), (2, PRODUCERS_PER_SET - 2));
            assert!(ways.contains(&(flood, 102)), "the latest of the flood");
            assert_eq!(victim(&ways, flood, 50), None, "noted late, all of it are newer");
            let late = victim(&ways, other, 50).expect("the flood has more");
            assert_eq!(ways[late].0, flood);
        }

        #[test]
        fn duplicate_is_detected_until_eviction() {
            let buffer = buffer(16);
            let put = |producer, sequence| {
                let identity = Some(BatchIdentity { producer, epoch: 1, sequence });
                let append =
                    AppendRequest { identity, records: 1, body: b"x", is_packed: false, time: 0 };
                lock(&buffer, 0, &LiveProcess).append(&append).0
            };
            assert_eq!(put(1, 5), AppendOutcome::At(0));
            assert_eq!(put(1, 5), AppendOutcome::Duplicate(1));
            assert_eq!(put(1, 4), AppendOutcome::Duplicate(1));
            assert_eq!(put(1, 6), AppendOutcome::At(1));
            // Seven more fit beside it; the eighth takes the place of the one silent longest.
            for producer in 2..10 {
                assert!(matches!(put(producer, 0), AppendOutcome::At(_)));
                while take_entry(&buffer).is_some() {}
            }
            assert!(matches!(put(9, 0), AppendOutcome::Duplicate(_)));
            assert!(matches!(put(1, 6), AppendOutcome::At(_)), "forgotten");
        }

        #[test]
        fn entries_are_found_at_the_header_offset() {
            let buffer = buffer(8);
            for i in 0..13 {
                put(&buffer, 0, i);
                if i < 9 {
                    take_entry(&buffer);
                }
            }
            let (begin, end) = buffer.find_entries(9, 0).0.unwrap();
            assert_eq!(end - begin, 4 * 4);
            // One is damaged: those around it are found.
            buffer.ring(begin + 4 + 3).fetch_xor(1 << 1, SeqCst);
            assert_eq!(
                buffer.find_entries(9, 0),
                (Some((begin, end)), 3),
                "the damaged one is erased"
            );
            let mut body = Vec::new();
            assert_eq!(buffer.entry(begin + 4, end, &mut body), None);
            assert!(body.is_empty());
            assert_eq!(buffer.find_entries(13, 0), (None, 3 * 3));
            assert_eq!(buffer.find_entries(0, 0), (None, 0));
        }

        #[test]
        fn any_flipped_bit_of_an_entry_is_detected() {
            let buffer = buffer(8);
            let (appended, tail) =
                lock(&buffer, 0, &LiveProcess).append(&append(b"0123456789", Some(7)));
            assert_eq!(appended, AppendOutcome::At(0));
            let read = || buffer.entry(0, tail, &mut Vec::new());
            assert!(read().is_some());
            // Beyond the body, the last word is padding.
            for bit in (0..tail * 64).filter(|bit| bit / 64 + 1 < tail || bit % 64 < 16) {
                buffer.ring(bit / 64).fetch_xor(1 << (bit % 64), SeqCst);
                assert_eq!(read(), None, "bit {bit}");
                buffer.ring(bit / 64).fetch_xor(1 << (bit % 64), SeqCst);
            }
        }
    }
}
