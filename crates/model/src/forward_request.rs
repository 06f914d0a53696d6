//! Forward request: batches sent from one journal to another.
//!
//! ```text
//! offset  size  field
//!      0     8  magic     "tdparcel"
//!      8     4  version   1; readers reject any other
//!     12    16  journal   ID of the journal that the batches are from
//!     28     4  count     number of entries; each:
//!            8  sequence  greater than that of the entry before
//!            4  length    of the batch
//!            4  crc       CRC-32C of sequence, length and batch
//!               batch     as in `batch.rs`, with canonical keys and without IDs
//!            4  crc       CRC-32C of everything before
//! ```
//! Numbers are little-endian. A record's sequence is its position in the journal plus 1, so the
//! receiver recognises a repeat by journal and sequence across restarts of both sides.
//! `docs/formats/forward.md` is the specification of format and protocol.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::error::{Error, Result};
use crate::series::SeriesId;
use crate::wire::WireReader;

const MAGIC: [u8; 8] = *b"tdparcel";
/// The only version that is written and read.
const VERSION: u32 = 1;
const JOURNAL_AT: usize = 12;
const COUNT_AT: usize = 28;
const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 16;
const CRC_BYTES: usize = 4;

/// Maximum size of a forward request, in bytes.
pub const FORWARD_REQUEST_BYTES_MAX: usize = 32 << 20;

/// Writer of a forward request.
#[derive(Clone, Debug)]
pub struct ForwardRequestWriter {
    out: Vec<u8>,
    count: u32,
    last: Option<u64>,
}

impl ForwardRequestWriter {
    /// Starts a request with batches of this journal.
    pub fn new(journal: u128) -> ForwardRequestWriter {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&journal.to_le_bytes());
        out.extend_from_slice(&[0; HEAD_BYTES - COUNT_AT]);
        ForwardRequestWriter { out, count: 0, last: None }
    }

    /// Adds a batch.
    ///
    /// # Panics
    ///
    /// If its sequence is not above that of the batch before, or a batch has more than 4 GiB.
    pub fn push(&mut self, sequence: u64, batch: &[u8]) {
        assert!(self.last < Some(sequence), "BUG: {sequence} after {:?}", self.last);
        let length = u32::try_from(batch.len());
        assert!(length.is_ok(), "BUG: a batch of {} bytes, more than 4 GiB", batch.len());
        let length = length.unwrap_or(u32::MAX);
        let (sequence_bytes, length_bytes) = (sequence.to_le_bytes(), length.to_le_bytes());
        self.out.extend_from_slice(&sequence_bytes);
        self.out.extend_from_slice(&length_bytes);
        self.out.extend_from_slice(&entry_crc(&sequence_bytes, &length_bytes, batch).to_le_bytes());
        self.out.extend_from_slice(batch);
        self.count = self.count.saturating_add(1);
        self.last = Some(sequence);
    }

    /// Size of the finished request, in bytes.
    pub fn bytes(&self) -> usize {
        self.out.len().saturating_add(CRC_BYTES)
    }

    /// Size of the finished request after one more batch of `batch` bytes.
    pub fn bytes_with(&self, batch: usize) -> usize {
        self.bytes().saturating_add(ENTRY_BYTES).saturating_add(batch)
    }

    /// Number of batches.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has no batch.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded request.
    pub fn finish(mut self) -> Vec<u8> {
        self.out[COUNT_AT..HEAD_BYTES].copy_from_slice(&self.count.to_le_bytes());
        let crc = crc32c::crc32c(&self.out);
        self.out.extend_from_slice(&crc.to_le_bytes());
        self.out
    }
}

fn entry_crc(sequence: &[u8], length: &[u8], batch: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(sequence), length);
    crc32c::crc32c_append(crc, batch)
}

/// Decoded forward request; its batches are not validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardRequest<'a> {
    /// ID of the journal that the batches are from.
    pub journal: u128,
    /// Ascending sequences, each with its batch.
    pub entries: Vec<(u64, &'a [u8])>,
}

impl<'a> ForwardRequest<'a> {
    /// Decodes a request.
    pub fn decode(bytes: &'a [u8]) -> Result<ForwardRequest<'a>> {
        let mut reader = WireReader::new(bytes);
        let invalid = |offset, field, found: String, expected| {
            Err(Error::Invalid { offset, field, found, expected })
        };
        let magic: [u8; 8] = reader.array("magic")?;
        if magic != MAGIC {
            return invalid(
                0,
                "magic",
                format!("{magic:02x?}"),
                "\"tdparcel\", the magic of a forward request",
            );
        }
        let version = reader.u32("version")?;
        if version != VERSION {
            return invalid(8, "version", version.to_string(), "1, the version this program reads");
        }
        // Checked before any length is trusted.
        let Some((body, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(Error::Truncated { offset: bytes.len(), field: "crc" });
        };
        let (found, counted) = (u32::from_le_bytes(*crc), crc32c::crc32c(body));
        if found != counted {
            let found = format!("{found:#010x} where the bytes have {counted:#010x}");
            return invalid(body.len(), "crc", found, "the checksum of all bytes before");
        }
        let mut reader = WireReader::new(body);
        reader.read_bytes(JOURNAL_AT, "magic and version")?;
        let journal = u128::from_le_bytes(reader.array("journal")?);
        let mut request = ForwardRequest { journal, entries: Vec::new() };
        let count = reader.u32("count")?;
        for _ in 0..count {
            request.read_entry(&mut reader)?;
        }
        reader.finish()?;
        Ok(request)
    }

    /// Producer and epoch of the batches at the receiver: constant for a journal.
    pub fn producer_and_epoch(&self) -> (u64, u64) {
        let hash = u128::from_le_bytes(SeriesId::from_canonical_key(&self.journal.to_le_bytes()).0);
        (hash as u64, (hash >> 64) as u64)
    }

    fn read_entry(&mut self, reader: &mut WireReader<'a>) -> Result<()> {
        let invalid =
            |offset, field, found, expected| Err(Error::Invalid { offset, field, found, expected });
        let offset = reader.offset();
        let sequence_bytes: [u8; 8] = reader.array("sequence")?;
        let length_bytes: [u8; 4] = reader.array("length")?;
        let crc = reader.u32("entry's crc")?;
        let length = usize::try_from(u32::from_le_bytes(length_bytes)).unwrap_or(usize::MAX);
        let batch = reader.read_bytes(length, "batch")?;
        let counted = entry_crc(&sequence_bytes, &length_bytes, batch);
        if crc != counted {
            let found = format!("{crc:#010x} where the bytes have {counted:#010x}");
            return invalid(
                offset.saturating_add(12),
                "entry's crc",
                found,
                "the checksum of the entry",
            );
        }
        let sequence = u64::from_le_bytes(sequence_bytes);
        if self.entries.last().is_some_and(|&(last, _)| last >= sequence) {
            let found = sequence.to_string();
            return invalid(offset, "sequence", found, "more than that of the entry before");
        }
        self.entries.push((sequence, batch));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        let mut writer = ForwardRequestWriter::new(7);
        writer.push(1, b"one");
        assert_eq!(writer.bytes_with(4), writer.bytes() + ENTRY_BYTES + 4);
        writer.push(5, b"");
        writer.push(u64::MAX, b"last");
        let size = writer.bytes();
        let bytes = writer.finish();
        assert_eq!(bytes.len(), size);
        bytes
    }

    /// Recomputes the last checksum.
    fn with_valid_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - CRC_BYTES);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn forward_requests_round_trip() {
        let bytes = example();
        let request = ForwardRequest::decode(&bytes).unwrap();
        assert_eq!(request.journal, 7);
        assert_eq!(request.entries, [(1, &b"one"[..]), (5, b""), (u64::MAX, b"last")]);
        let none = ForwardRequestWriter::new(1).finish();
        assert!(ForwardRequest::decode(&none).unwrap().entries.is_empty());
    }

    #[test]
    fn any_flipped_bit_or_missing_byte_is_detected() {
        let bytes = example();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ForwardRequest::decode(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(ForwardRequest::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn fields_are_checked_even_with_a_valid_crc() {
        #[track_caller]
        fn check(at: usize, byte: u8, expected: &str) {
            let mut bytes = example();
            bytes[at] = byte;
            let error = ForwardRequest::decode(&with_valid_crc(bytes)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        check(COUNT_AT, 2, "end at byte 67");
        check(COUNT_AT, 4, "sequence at byte 87");
        check(COUNT_AT + 3, 255, "sequence at byte 87");
        check(HEAD_BYTES, 2, "entry's crc");
        check(HEAD_BYTES + 8, 255, "batch");
        check(HEAD_BYTES + ENTRY_BYTES, b'x', "entry's crc");
        let mut twice = ForwardRequestWriter::new(7);
        twice.push(3, b"a");
        twice.last = Some(1);
        twice.push(3, b"b");
        let error = ForwardRequest::decode(&twice.finish()).unwrap_err().to_string();
        assert_eq!(error, "sequence at byte 49 is 3, expected more than that of the entry before");
    }
}
