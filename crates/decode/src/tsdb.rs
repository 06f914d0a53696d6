//! Decoder of Prometheus' database: the files of a block.
//!
//! A block is a directory with an `index` ([`IndexSections`], [`SymbolTable`], [`IndexSeries`]),
//! chunk files (`chunks/000001`, …, [`BlockChunk`]) and deletions (`tombstones`, [`Tombstones`]).
//! Its samples become the same rows as those of a remote write request ([`BlockRowWriter`]): one
//! rule for kinds, units and histograms.
//!
//! The index has version 2, which Prometheus 2 and 3 write. Chunks contain numbers (XOR) or native
//! histograms, with integer or float counts. The encodings with start timestamps (XOR2,
//! histogramST, floathistogramST), which are off by default, are rejected. Checksums are CRC-32C.
//! Positions of errors are offsets in the file.
//!
//! Sources: prometheus v0.315.0, `tsdb/docs/format/index.md`, `chunks.md`, `tombstones.md`,
//! `tsdb/chunkenc`.

mod block_chunk;
mod block_index;
mod block_row_writer;
mod chunk_bits;
mod histogram_chunk;
mod number_chunk;
#[cfg(test)]
mod tests;
mod tombstones;

pub use block_chunk::{BlockChunk, check_segment_header, chunk_size};
pub use block_index::{
    ChunkReference, INDEX_CONTENTS_BYTES, INDEX_HEADER_BYTES, IndexSections, IndexSeries,
    SERIES_ALIGNMENT, SymbolTable, series_size,
};
pub use block_row_writer::BlockRowWriter;
pub use tombstones::{DeletedRanges, Tombstones};

use crate::input_error::{InputError, InputPosition};

/// Length of a checksum in bytes.
const CHECKSUM_BYTES: usize = 4;

fn invalid(offset: u64, expected: &'static str, found: impl Into<String>) -> InputError {
    InputError::new(InputPosition::Byte(offset), expected, found)
}

/// Checks the checksum that follows some bytes.
fn check_checksum(bytes: &[u8], checksum: [u8; 4], offset: u64) -> Result<(), InputError> {
    let (computed, stored) = (crc32c::crc32c(bytes), u32::from_be_bytes(checksum));
    match computed == stored {
        true => Ok(()),
        false => Err(invalid(
            offset,
            "bytes that match their checksum",
            format!("checksum {computed:08x}, stored {stored:08x}"),
        )),
    }
}

/// Reader of bytes with their offset in a file.
#[derive(Clone)]
struct ByteCursor<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> ByteCursor<'a> {
    fn new(bytes: &'a [u8], offset: u64) -> ByteCursor<'a> {
        ByteCursor { bytes, offset }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], InputError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            let found = format!("the end after {} of {length} bytes", self.bytes.len());
            return Err(invalid(self.offset, "more bytes", found));
        };
        self.bytes = rest;
        self.offset = self.offset.saturating_add(length as u64);
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], InputError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn uvarint(&mut self) -> Result<u64, InputError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid(self.offset, "a varint of at most 10 bytes", "a longer one"))
    }

    fn varint(&mut self) -> Result<i64, InputError> {
        Ok(unzigzag(self.uvarint()?))
    }

    /// A length or a count that must fit into the remaining bytes, at least a byte each.
    fn count(&mut self) -> Result<usize, InputError> {
        let offset = self.offset;
        let count = self.uvarint()?;
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.bytes.len())
            .ok_or_else(|| invalid(offset, "a length within the section", format!("{count}")))
    }
}

/// Go's signed varints.
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ (value & 1).wrapping_neg() as i64
}
