//! Ring of entries in shared memory: the bytes of entries, written, read and found again.
//!
//! ```text
//! word 0       checksum (32 bits), length of the body with two bits for the options
//! word 1       position of its first record
//! word 2       when it was appended
//! 3 words      producer, epoch, sequence of a batch with an identity
//! 1 word       records, if the body holds several with their lengths
//! …            the body, padded to a word
//! ```
//! Ring words are numbered from the beginning of time: sums of them wrap, and their place is the
//! number modulo the ring's length, which is a power of two. Positions saturate. Nothing here keeps
//! order between processes: that is the business of [`crate::buffer`].

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::level::BatchIdentity;
use crate::sync::{AtomicU64, Ordering, fence};

use Ordering::{Relaxed, Release};

/// Bits of the length in an entry.
const TAGGED: u32 = 1 << 30;
const PACKED: u32 = 1 << 31;
const LENGTH: u32 = TAGGED - 1;

/// Words of an entry without its options.
const ENTRY_WORDS: usize = crate::layout::ENTRY_BYTES / 8;
/// Words of an entry before its body, with all options.
const HEAD_WORDS_MAX: usize = ENTRY_WORDS + 4;

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
    /// Its length in the ring.
    pub(crate) words: u64,
}

impl RingEntry {
    /// The position behind its last record; [`Ring::entry`] saw that there is one.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.records))
    }
}

/// The ring's words.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a> {
    /// As many as a power of two.
    pub(crate) words: &'a [AtomicU64],
    /// Tells this journal's entries from those of all others.
    pub(crate) salt: u32,
}

impl<'a> Ring<'a> {
    /// Writes an entry, which counts from the store of the tail on. The caller saw that it has
    /// room.
    pub(crate) fn write_entry(&self, at: u64, first: u64, append: &AppendRequest<'_>) {
        // Whoever reads one of these words sees the mark that freed them, too; pairs with the fence
        // in `mark`.
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

    /// The place in the ring of a ring word.
    #[inline]
    pub(crate) fn ring_index(&self, at: u64) -> usize {
        at as usize & self.words.len().wrapping_sub(1)
    }

    /// The words from `at` on, `count` of them, in the two pieces that a ring has.
    #[inline]
    fn pieces(&self, at: u64, count: usize) -> (&'a [AtomicU64], &'a [AtomicU64]) {
        let start = self.ring_index(at);
        let straight = count.min(self.words.len().wrapping_sub(start));
        (&self.words[start..][..straight], &self.words[..count.wrapping_sub(straight)])
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
            self.word(at).store(u64::from_le_bytes(last), Relaxed);
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

    // ----
    // reading ---------------------------------------------------------------------------------------

    /// Reads the entry that begins at a ring word and ends at `end` at the latest, its body behind
    /// what is in `out`; `None`, and `out` as before, when the words are no entry.
    pub(crate) fn entry(&self, at: u64, end: u64, out: &mut Vec<u8>) -> Option<RingEntry> {
        // Whatever a damaged header says is the end: nothing is longer than the ring.
        let room = end.checked_sub(at)?.min(self.words.len() as u64);
        if room < ENTRY_WORDS as u64 {
            return None;
        }
        let word0 = self.word(at).load(Relaxed);
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
            *value = self.word(at.wrapping_add(i as u64)).load(Relaxed);
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

    /// Where in the ring entries lie that begin at `position` or later, wherever the header says
    /// that the ring begins and ends: the first's word and the end of the last, in word numbers of
    /// one lap, the positions rising. For opening after a crash, when nobody else has the buffer.
    ///
    /// A power cut may leave pages of several laps, whose entries do not follow each other, and
    /// parts of entries: all but what was found is erased, and counted in words. Otherwise it could
    /// turn up again between others, or whole with the next power cut, in the place of what was
    /// appended since.
    pub(crate) fn find_entries(&self, position: u64, seen: u64) -> (Option<(u64, u64)>, u64) {
        let lap = self.words.len() as u64;
        // Positions go on from what anybody has seen, and a record takes a byte of the ring at
        // least.
        let most = position.max(seen).saturating_add(lap.saturating_mul(8));
        // What looks like an entry is checked whole. Records made to look so must not keep a
        // journal from opening.
        let mut words_left = lap.saturating_mul(64);
        let mut found: Vec<(u64, u64, u64, u64)> = Vec::new();
        let mut scratch = Vec::new();
        for at in lap..lap.saturating_mul(2) {
            // Cheap to rule out: the second word of an entry is its position.
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

    /// Where the entries between two ring words lie, as `find_entries` says it, if the header is
    /// right about it: they follow each other up to the tail, and no other follows there. Unless
    /// the machine stopped it is, and nothing else in the ring will be taken for an entry.
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

    /// Makes words zero that lie so far behind `begin`; how many were not.
    fn erase(&self, begin: u64, behind: std::ops::Range<u64>) -> u64 {
        let words = behind.map(|behind| self.word(begin.wrapping_add(behind)));
        let used = words.filter(|word| word.load(Relaxed) != 0);
        used.map(|word| word.store(0, Relaxed)).count() as u64
    }
}
