//! Ring of entries in shared memory: encoding, decoding and recovery of entries.
//!
//! ```text
//! word 0       checksum (32 bits), length of the body with two flag bits
//! word 1       position of its first record
//! word 2       append time
//! 3 words      producer, epoch, sequence of a batch with an identity
//! 1 word       number of records, if the body holds several with their lengths
//! …            the body, padded to a word
//! ```
//!
//! Ring words are numbered from the creation of the ring: their arithmetic wraps, and their index
//! is the number modulo the ring's length, a power of two. Positions saturate. This module does not
//! order accesses between processes; [`crate::buffer`] does.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::level::BatchIdentity;
use crate::sync::{AtomicU64, Ordering, fence};

use Ordering::{Relaxed, Release};

/// Flag bits in the length of an entry.
const HAS_IDENTITY: u32 = 1 << 30;
const PACKED: u32 = 1 << 31;
const LENGTH: u32 = HAS_IDENTITY - 1;

/// Words of an entry without options.
const ENTRY_WORDS: usize = crate::layout::ENTRY_BYTES / 8;
/// Maximum words of an entry before its body.
const HEAD_WORDS_MAX: usize = ENTRY_WORDS + 4;

/// Batch to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendRequest<'a> {
    pub(crate) identity: Option<BatchIdentity>,
    pub(crate) records: u32,
    /// A record; or, if `packed`, records with their lengths, as in a batch of a frame.
    pub(crate) body: &'a [u8],
    pub(crate) is_packed: bool,
    pub(crate) time: i64,
}

impl AppendRequest<'_> {
    pub(crate) fn words(&self) -> usize {
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
    /// Length in the ring.
    pub(crate) words: u64,
}

impl RingEntry {
    /// Position after its last record; [`Ring::entry`] checked that it exists.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.records))
    }
}

/// The words of a ring.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    /// The length is a power of two.
    pub(crate) words: &'a [AtomicU64],
    /// Distinguishes this journal's entries from all others.
    pub(crate) salt: u32,
}

impl<'a> Ring<'a> {
    /// Writes an entry, which becomes visible with the store of the tail. The caller checked the
    /// space.
    pub(crate) fn write_entry(&self, at: u64, first: u64, append: &AppendRequest<'_>) {
        // A reader of one of these words also sees the mark that freed it; pairs with the fence in
        // `mark`.
        fence(Release);
        let mut head = [0; HEAD_WORDS_MAX];
        let words = head_words(append.identity.is_some(), append.is_packed);
        let mut length = append.body.len() as u32;
        if let Some(identity) = append.identity {
            length |= HAS_IDENTITY;
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
            self.word(at.wrapping_add(i as u64)).store(word, Relaxed);
        }
        self.copy_in(at.wrapping_add(words as u64), append.body);
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
    pub(crate) fn word(&self, at: u64) -> &'a AtomicU64 {
        &self.words[self.ring_index(at)]
    }

    /// Index of a ring word.
    #[inline]
    pub(crate) fn ring_index(&self, at: u64) -> usize {
        at as usize & self.words.len().wrapping_sub(1)
    }

    /// `count` words from `at` on, in up to two pieces.
    #[inline]
    fn pieces(&self, at: u64, count: usize) -> (&'a [AtomicU64], &'a [AtomicU64]) {
        let start = self.ring_index(at);
        let straight = count.min(self.words.len().wrapping_sub(start));
        (&self.words[start..][..straight], &self.words[..count.wrapping_sub(straight)])
    }

    fn copy_in(&self, at: u64, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let (a, b) = self.pieces(at, words.len());
        for (word, chunk) in a.iter().chain(b).zip(words) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            let at = at.wrapping_add(words.len() as u64);
            self.word(at).store(u64::from_le_bytes(last), Relaxed);
        }
    }

    /// Appends `len` bytes to `out`.
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

    // ---- reading ----

    /// Reads the entry at a ring word that ends at or before `end`, appending its body to `out`;
    /// `None`, with `out` unchanged, if the words are no entry.
    pub(crate) fn entry(&self, at: u64, end: u64, out: &mut Vec<u8>) -> Option<RingEntry> {
        // A corrupt header may report any end: nothing is longer than the ring.
        let room = end.checked_sub(at)?.min(self.words.len() as u64);
        if room < ENTRY_WORDS as u64 {
            return None;
        }
        let word0 = self.word(at).load(Relaxed);
        let (crc, length) = (word0 as u32, (word0 >> 32) as u32);
        let body_len = (length & LENGTH) as usize;
        let has_identity = length & HAS_IDENTITY != 0;
        let packed = length & PACKED != 0;
        let head_words = head_words(has_identity, packed);
        let words = head_words.wrapping_add(body_len.div_ceil(8)) as u64;
        if words > room {
            return None;
        }
        let mut head = [0; HEAD_WORDS_MAX];
        for (i, value) in head[..head_words].iter_mut().enumerate().skip(1) {
            *value = self.word(at.wrapping_add(i as u64)).load(Relaxed);
        }
        let before = out.len();
        self.copy_out(at.wrapping_add(head_words as u64), body_len, out);
        let records = if packed { head[head_words.wrapping_sub(1)] } else { 1 };
        let is_valid = self.entry_crc(length, &head[1..head_words], &out[before..]) == crc
            && records > 0
            && u32::try_from(records).is_ok()
            && head[1].checked_add(records).is_some();
        if !is_valid {
            out.truncate(before);
            return None;
        }
        let identity = has_identity.then(|| BatchIdentity {
            producer: head[3],
            epoch: head[4],
            sequence: head[5],
        });
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

    /// Finds the entries from `position` on, independent of the header, and erases everything else.
    /// Returns the ring words of the entries (the first word and the end of the last, numbered
    /// within one lap, with ascending positions) and the number of erased words. For opening after
    /// a crash, while no other process has opened the buffer.
    ///
    /// A power loss may leave pages of several laps, whose entries do not follow each other, and
    /// partial entries. Everything except the entries found is erased, and counted in words.
    /// Otherwise it could reappear between other entries, or replace newer appends after the next
    /// power loss.
    pub(crate) fn recover_entries(
        &self,
        position: u64,
        reader_position: u64,
    ) -> (Option<(u64, u64)>, u64) {
        let lap = self.words.len() as u64;
        // Positions continue from the last seen one, and a record takes at least one byte of the
        // ring.
        let most = position.max(reader_position).saturating_add(lap.saturating_mul(8));
        // Every candidate is checked in full. The budget bounds the time to open a journal with
        // records crafted to look like entries.
        let mut words_left = lap.saturating_mul(64);
        let mut found: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut scratch = Vec::new();
        for at in lap..lap.saturating_mul(2) {
            // Cheap filter: the second word of an entry is its position.
            if !(position..=most).contains(&self.word(at.wrapping_add(1)).load(Relaxed)) {
                continue;
            }
            let length = (self.word(at).load(Relaxed) >> 32) as u32 & LENGTH;
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
        // From the first entry on, they are ordered by position and span at most one lap.
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

    /// Ring words of the entries between two ring words, as `recover_entries` returns them, if the
    /// header is consistent: they follow each other up to the tail, and no entry follows. This
    /// holds unless the machine stopped, and then nothing else in the ring can be mistaken for an
    /// entry.
    pub(crate) fn entries_between(
        &self,
        begin: u64,
        tail: u64,
        position: u64,
    ) -> Option<Option<(u64, u64)>> {
        let lap = self.words.len() as u64;
        let used = tail.checked_sub(begin).filter(|&used| used <= lap)?;
        let mut scratch = Vec::new();
        let (mut at, mut next) = (begin, position);
        while at < tail {
            scratch.clear();
            let entry = self.entry(at, tail, &mut scratch).filter(|entry| entry.first >= next)?;
            (at, next) = (at.saturating_add(entry.words), entry.end());
        }
        scratch.clear();
        let behind = self.entry(tail, begin.saturating_add(lap), &mut scratch);
        if behind.is_some_and(|entry| entry.first >= next) {
            return None;
        }
        let first = lap | begin & lap.wrapping_sub(1);
        Some((used > 0).then(|| (first, first.saturating_add(used))))
    }

    /// Zeroes the words at these distances from `begin`; returns how many were nonzero.
    fn erase(&self, begin: u64, behind: std::ops::Range<u64>) -> u64 {
        let words = behind.map(|behind| self.word(begin.wrapping_add(behind)));
        let used = words.filter(|word| word.load(Relaxed) != 0);
        used.map(|word| word.store(0, Relaxed)).count() as u64
    }
}
