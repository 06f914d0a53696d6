//! Canonical keys of all series, with ids and producers.
//!
//! A deleted series keeps its number and id with an empty key: 24 bytes until the store is
//! reopened.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::SeriesId;

use super::producer_sets::ProducerSet;
use super::producer_table::ProducerNumber;
use super::table::capacity_bytes;

/// Series per chunk: about 150 KB of keys. A growing chunk wastes little, and full chunks are never
/// moved.
const CHUNK_SERIES: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct SeriesKeys {
    chunks: Vec<KeyChunk>,
    len: u32,
    deleted: u32,
}

#[derive(Debug, Default)]
struct KeyChunk {
    bytes: Vec<u8>,
    /// End of each key in `bytes`: at most 16 MiB.
    ends: Vec<u32>,
    ids: Vec<SeriesId>,
    producers: Vec<ProducerNumber>,
    /// Other producers.
    others: Vec<ProducerSet>,
}

/// Text inside the key of a series.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyText {
    number: u32,
    offset: u16,
    len: u16,
}

/// Offsets and lengths of texts fit `u16`.
const _: () = assert!(model::CANONICAL_KEY_BYTES_MAX <= u16::MAX as usize);

impl KeyText {
    /// Location of `part` in `canonical_key`, the current or future key of series `number`.
    pub(super) fn locate(number: u32, canonical_key: &[u8], part: &[u8]) -> KeyText {
        let offset = part.as_ptr().addr().wrapping_sub(canonical_key.as_ptr().addr());
        let end = offset.checked_add(part.len());
        assert!(
            end.is_some_and(|end| end <= canonical_key.len()),
            "BUG: a text at {offset} is not in this key"
        );
        KeyText { number, offset: offset as u16, len: part.len() as u16 }
    }

    /// The series whose key contains the text.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl SeriesKeys {
    /// Appends a series; its number is the previous count.
    pub(super) fn push(
        &mut self,
        canonical_key: &[u8],
        id: SeriesId,
        producer_number: ProducerNumber,
    ) -> u32 {
        let is_chunk_full = (self.len as usize).is_multiple_of(CHUNK_SERIES);
        if is_chunk_full && let Some(full) = self.chunks.last_mut() {
            full.bytes.shrink_to_fit();
        }
        let chunk = match self.chunks.pop_if(|_| !is_chunk_full) {
            Some(chunk) => self.chunks.push_mut(chunk),
            None => self.chunks.push_mut(KeyChunk::default()),
        };
        chunk.bytes.extend_from_slice(canonical_key);
        chunk.ends.push(chunk.bytes.len() as u32);
        chunk.ids.push(id);
        chunk.producers.push(producer_number);
        chunk.others.push(ProducerSet::default());
        let number = self.len;
        // The index holds at most 2^32 − 1 series.
        self.len = number.saturating_add(1);
        number
    }

    /// Number of assigned numbers, including deleted series.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Number of deleted series.
    pub(super) fn deleted(&self) -> u32 {
        self.deleted
    }

    /// Whether the series of a number is live.
    pub(super) fn is_live(&self, number: u32) -> bool {
        !self.key(number).is_empty()
    }

    pub(super) fn producer_number(&self, number: u32) -> ProducerNumber {
        let (chunk, at) = self.chunk_of(number);
        chunk.producers[at]
    }

    pub(super) fn other_producers(&self, number: u32) -> ProducerSet {
        let (chunk, at) = self.chunk_of(number);
        chunk.others[at]
    }

    pub(super) fn set_other_producers(&mut self, number: u32, producers: ProducerSet) {
        let at = number as usize % CHUNK_SERIES;
        self.chunks[(number >> CHUNK_BITS) as usize].others[at] = producers;
    }

    /// Clears the keys of live series, ascending by number. No text may be located in them any
    /// more.
    pub(super) fn delete(&mut self, numbers: &[u32]) {
        for of_chunk in numbers.chunk_by(|a, b| a >> CHUNK_BITS == b >> CHUNK_BITS) {
            let chunk = &mut self.chunks[(of_chunk[0] >> CHUNK_BITS) as usize];
            let mut gone = of_chunk.iter().map(|number| *number as usize % CHUNK_SERIES).peekable();
            let (mut bytes, mut start) = (Vec::with_capacity(chunk.bytes.len()), 0);
            for (at, end) in chunk.ends.iter_mut().enumerate() {
                let canonical_key = &chunk.bytes[start..*end as usize];
                start = *end as usize;
                if gone.next_if_eq(&at).is_none() {
                    bytes.extend_from_slice(canonical_key);
                }
                *end = bytes.len() as u32;
            }
            bytes.shrink_to_fit();
            chunk.bytes = bytes;
            self.deleted = self.deleted.saturating_add(of_chunk.len() as u32);
        }
    }

    pub(super) fn key(&self, number: u32) -> &[u8] {
        let (chunk, at) = self.chunk_of(number);
        let start = at.checked_sub(1).map_or(0, |before| chunk.ends[before]);
        &chunk.bytes[start as usize..chunk.ends[at] as usize]
    }

    pub(super) fn id(&self, number: u32) -> SeriesId {
        let (chunk, at) = self.chunk_of(number);
        chunk.ids[at]
    }

    pub(super) fn text(&self, text: KeyText) -> &str {
        let bytes = &self.key(text.number)[usize::from(text.offset)..][..usize::from(text.len)];
        // Validated at insertion.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Whether a text equals `bytes`.
    pub(super) fn is(&self, text: KeyText, bytes: &[u8]) -> bool {
        usize::from(text.len) == bytes.len()
            && self.key(text.number)[usize::from(text.offset)..].starts_with(bytes)
    }

    /// Whether a text begins with `bytes`.
    pub(super) fn begins(&self, text: KeyText, bytes: &[u8]) -> bool {
        usize::from(text.len) >= bytes.len()
            && self.key(text.number)[usize::from(text.offset)..].starts_with(bytes)
    }

    fn chunk_of(&self, number: u32) -> (&KeyChunk, usize) {
        (&self.chunks[(number >> CHUNK_BITS) as usize], number as usize % CHUNK_SERIES)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let in_chunk = |chunk: &KeyChunk| -> usize {
            let KeyChunk { bytes, ends, ids, producers, others } = chunk;
            let all = [
                capacity_bytes(bytes),
                capacity_bytes(ends),
                capacity_bytes(ids),
                capacity_bytes(producers),
                capacity_bytes(others),
            ];
            all.iter().sum()
        };
        self.chunks.iter().map(in_chunk).chain([capacity_bytes(&self.chunks)]).sum()
    }
}
