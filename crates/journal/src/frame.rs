//! Frame format of segments. A frame is a header and an optionally compressed body. A body is a
//! sequence of batches; a batch is one append: an optional identity and its records.
//!
//! Both checksums are salted with the journal id and the segment's first position, so that bytes of
//! another journal, or a record that contains a frame, never validate as a frame of this segment.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use crate::compression;
use crate::layout::{FRAME, FRAME_ALIGN, FRAME_BYTES, FRAME_MAGIC, FieldTable, field};
use crate::level::BatchIdentity;
use crate::settings::Compression;

/// Initial value of the checksums of a segment.
pub(crate) fn salt(journal_id: u128, first_position: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&journal_id.to_le_bytes()), &first_position.to_le_bytes())
}

/// Frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) first: u64,
    pub(crate) records: u32,
    pub(crate) stored_bytes: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
    pub(crate) compression: Compression,
    body_crc: u32,
}

impl FrameHeader {
    /// Parses a header; `None` if the bytes are not a header of this segment. `bytes` has at least
    /// [`FRAME_BYTES`].
    pub(crate) fn parse(bytes: &[u8], salt: u32) -> Option<FrameHeader> {
        let bytes = &bytes[..FRAME_BYTES];
        let fields = FieldTable::read_only(&FRAME, bytes);
        if fields.bytes("magic") != FRAME_MAGIC || fields.u32("header_crc") != head_crc(bytes, salt)
        {
            return None;
        }
        let head = FrameHeader {
            first: fields.u64("first_position"),
            records: fields.u32("records"),
            stored_bytes: fields.u32("stored_bytes"),
            raw_bytes: fields.u32("raw_bytes"),
            time_min: fields.i64("time_min"),
            time_max: fields.i64("time_max"),
            compression: compression::compression_from_number(fields.u8("compression"))?,
            body_crc: fields.u32("body_crc"),
        };
        // A record takes at least the byte of its length, so a frame has at most as many records as
        // raw bytes.
        let is_valid = head.records > 0
            && head.records < head.raw_bytes
            && head.stored_bytes <= head.raw_bytes
            && head.first.checked_add(u64::from(head.records)).is_some();
        is_valid.then_some(head)
    }

    /// Positions of the records.
    pub(crate) fn positions(&self) -> Range<u64> {
        // `parse` checked that they fit.
        self.first..self.first.saturating_add(self.records.into())
    }

    /// Length of header, body and padding.
    pub(crate) fn frame_bytes(&self) -> u64 {
        // Both are below 2^32.
        let bytes = u64::from(self.stored_bytes).saturating_add(FRAME_BYTES as u64);
        bytes.checked_next_multiple_of(FRAME_ALIGN).unwrap_or(u64::MAX)
    }

    /// Validates the bytes after the header: body and padding, so that every byte is checked.
    pub(crate) fn is_body_valid(&self, padded: &[u8], salt: u32) -> bool {
        FRAME_BYTES.saturating_add(padded.len()) as u64 == self.frame_bytes()
            && crc32c::crc32c_append(salt, padded) == self.body_crc
    }
}

fn head_crc(bytes: &[u8], salt: u32) -> u32 {
    crc32c::crc32c_append(salt, &bytes[field(&FRAME, "header_crc").end..FRAME_BYTES])
}

/// Input of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameBody {
    pub(crate) first: u64,
    pub(crate) records: u32,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
}

impl FrameBody {
    /// Position after its last record.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.records))
    }
}

/// Appends a frame to `out`, whose length is a multiple of [`FRAME_ALIGN`] before and after.
pub(crate) fn encode_frame(
    out: &mut Vec<u8>,
    content: FrameBody,
    raw: &[u8],
    compressor: &mut compression::Compressor,
    salt: u32,
) {
    let (compression, stored) = compressor.compress(raw);
    let at = out.len();
    out.resize(at.saturating_add(FRAME_BYTES), 0);
    out.extend_from_slice(stored);
    out.resize(out.len().next_multiple_of(FRAME_ALIGN as usize), 0);
    let (head, padded) = out[at..].split_at_mut(FRAME_BYTES);
    let mut fields = FieldTable::into(&FRAME, head);
    fields.put("magic", &FRAME_MAGIC);
    fields.put("body_crc", &crc32c::crc32c_append(salt, padded).to_le_bytes());
    let size = |bytes: &[u8]| {
        let size = u32::try_from(bytes.len());
        assert!(size.is_ok(), "BUG: a frame of {} bytes, beyond 4 GiB", bytes.len());
        size.unwrap_or(u32::MAX).to_le_bytes()
    };
    fields.put("stored_bytes", &size(stored));
    fields.put("raw_bytes", &size(raw));
    fields.put("records", &content.records.to_le_bytes());
    fields.put("first_position", &content.first.to_le_bytes());
    fields.put("time_min", &content.time_min.to_le_bytes());
    fields.put("time_max", &content.time_max.to_le_bytes());
    fields.put("compression", &[compression::compression_number(compression)]);
    let crc = head_crc(head, salt);
    head[field(&FRAME, "header_crc")].copy_from_slice(&crc.to_le_bytes());
}

/// Starts a batch in a body.
pub(crate) fn encode_batch_header(
    raw: &mut Vec<u8>,
    identity: Option<BatchIdentity>,
    records: u32,
) {
    put_varint(raw, u64::from(records) << 1 | u64::from(identity.is_some()));
    if let Some(identity) = identity {
        raw.extend_from_slice(&identity.producer.to_le_bytes());
        raw.extend_from_slice(&identity.epoch.to_le_bytes());
        put_varint(raw, identity.sequence);
    }
}

/// Maximum bytes that `encode_batch_header` appends.
pub(crate) const BATCH_HEADER_BYTES_MAX: usize = 10 + 16 + 10;

/// LEB128: seven bits a byte, lowest first, top bit set in all but the last.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        // The tenth byte carries one bit of the 64.
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*head))
}

/// Record as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Position.
    pub position: u64,
    /// Identity of its batch, if any.
    pub identity: Option<BatchIdentity>,
    /// Content.
    pub bytes: &'a [u8],
}

/// Records of a body, in order.
#[derive(Clone, Debug)]
pub(crate) struct RecordIter<'a> {
    rest: &'a [u8],
    position: u64,
    /// Records left in the current batch.
    batch_records_left: u64,
    identity: Option<BatchIdentity>,
    /// The bytes are not valid writer output.
    is_corrupt: bool,
}

impl<'a> RecordIter<'a> {
    pub(crate) fn new(raw: &'a [u8], first: u64) -> RecordIter<'a> {
        RecordIter {
            rest: raw,
            position: first,
            batch_records_left: 0,
            identity: None,
            is_corrupt: false,
        }
    }

    /// Whether the body is exactly `records` records in complete batches.
    pub(crate) fn contains_exactly(mut self, records: u64) -> bool {
        let end = self.position.checked_add(records);
        for _ in self.by_ref() {}
        !self.is_corrupt && self.batch_records_left == 0 && Some(self.position) == end
    }

    fn next_record(&mut self) -> Option<Option<Record<'a>>> {
        if self.batch_records_left == 0 {
            if self.rest.is_empty() {
                return Some(None);
            }
            let head = take_varint(&mut self.rest)?;
            // Writers produce no empty batches.
            self.batch_records_left = Some(head >> 1).filter(|&records| records > 0)?;
            self.identity = match head & 1 {
                0 => None,
                _ => Some(BatchIdentity {
                    producer: take_u64(&mut self.rest)?,
                    epoch: take_u64(&mut self.rest)?,
                    sequence: take_varint(&mut self.rest)?,
                }),
            };
        }
        let len = usize::try_from(take_varint(&mut self.rest)?).ok()?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        let record = Record { position: self.position, identity: self.identity, bytes };
        self.rest = rest;
        self.batch_records_left = self.batch_records_left.saturating_sub(1);
        self.position = self.position.checked_add(1)?;
        Some(Some(record))
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        match self.next_record() {
            Some(record) => record,
            None => {
                self.is_corrupt = true;
                self.rest = &[];
                self.batch_records_left = 0;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Compressor;

    const ID: BatchIdentity = BatchIdentity { producer: 7, epoch: u64::MAX, sequence: 300 };

    fn body() -> Vec<u8> {
        let mut raw = Vec::new();
        encode_batch_header(&mut raw, None, 1);
        put_varint(&mut raw, 3);
        raw.extend_from_slice(b"one");
        encode_batch_header(&mut raw, Some(ID), 2);
        put_varint(&mut raw, 0);
        put_varint(&mut raw, 200);
        raw.extend_from_slice(&[5; 200]);
        raw
    }

    fn frame(salt: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let content = FrameBody { first: 40, records: 3, time_min: -1, time_max: 9 };
        encode_frame(
            &mut out,
            content,
            &body(),
            &mut Compressor::new(Compression::None).unwrap(),
            salt,
        );
        out
    }

    #[test]
    fn records_round_trip_with_their_identity() {
        let raw = body();
        let records: Vec<_> = RecordIter::new(&raw, 40).collect();
        let lens: Vec<_> =
            records.iter().map(|r| (r.position, r.identity, r.bytes.len())).collect();
        assert_eq!(lens, [(40, None, 3), (41, Some(ID), 0), (42, Some(ID), 200)]);
        assert!(RecordIter::new(&raw, 40).contains_exactly(3));
        assert!(!RecordIter::new(&raw, 40).contains_exactly(2));
        for cut in 1..raw.len() {
            assert!(!RecordIter::new(&raw[..cut], 40).contains_exactly(3), "{cut}");
        }
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let bytes = frame(1);
        let is_valid = |bytes: &[u8]| {
            FrameHeader::parse(bytes, 1).is_some_and(|head| {
                let padded = bytes.get(FRAME_BYTES..head.frame_bytes() as usize);
                padded.is_some_and(|padded| head.is_body_valid(padded, 1))
            })
        };
        assert!(is_valid(&bytes));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_valid(&flipped), "bit {bit}");
        }
    }

    #[test]
    fn frame_of_another_segment_is_rejected() {
        assert!(FrameHeader::parse(&frame(1), 1).is_some());
        assert!(FrameHeader::parse(&frame(1), 2).is_none());
        assert_ne!(salt(1, 0), salt(1, 1));
        assert_ne!(salt(1, 0), salt(2, 0));
    }

    #[test]
    fn numbers_beyond_64_bits_are_rejected() {
        assert_eq!(
            take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]),
            Some(u64::MAX)
        );
        assert_eq!(
            take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]),
            None
        );
        assert_eq!(take_varint(&mut &[0x80][..]), None);
    }
}
