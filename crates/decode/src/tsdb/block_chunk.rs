//! Chunks of a block and the files that contain them.
//!
//! ```text
//! offset  size  field
//!      0     4  magic    85 BD 40 DD
//!      4     1  version  1
//!      5     3  zeros
//!      8        chunks: length of the data (varint), encoding (1), data, checksum of both (4)
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::{ByteCursor, CHECKSUM_BYTES, check_checksum, invalid};
use crate::input_error::InputError;

const MAGIC: [u8; 4] = [0x85, 0xbd, 0x40, 0xdd];
const VERSION: u8 = 1;
/// Largest data of a chunk: Prometheus cuts chunks at 1 KiB or 120 samples, and a sample of a
/// histogram with all buckets has less than 1 MiB.
const DATA_BYTES_MAX: u64 = 128 << 20;

/// Encoding of the samples of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ChunkEncoding {
    Numbers,
    Histograms,
    FloatHistograms,
}

/// A chunk whose checksum matches.
pub struct BlockChunk<'a> {
    pub(super) encoding: ChunkEncoding,
    pub(super) data: &'a [u8],
    /// Offset of the data in the file.
    pub(super) offset: u64,
}

/// Checks the first 8 bytes of a chunk file.
pub fn check_segment_header(bytes: &[u8]) -> Result<(), InputError> {
    let mut cursor = ByteCursor::new(bytes, 0);
    let magic: [u8; 4] = cursor.array()?;
    if magic != MAGIC {
        return Err(invalid(0, "85bd40dd, a chunk file", format!("{magic:02x?}")));
    }
    match cursor.array()? {
        [VERSION] => Ok(()),
        [version] => Err(invalid(4, "version 1 of a chunk file", format!("{version}"))),
    }
}

/// Size in bytes of the chunk that starts with these bytes, at this offset of its file.
pub fn chunk_size(head: &[u8], offset: u64) -> Result<usize, InputError> {
    let mut cursor = ByteCursor::new(head, offset);
    let length = cursor.uvarint()?;
    if length > DATA_BYTES_MAX {
        return Err(invalid(offset, "a chunk of at most 128 MiB", format!("{length} bytes")));
    }
    let prefix = cursor.offset.saturating_sub(offset) as usize;
    Ok(prefix.saturating_add(1).saturating_add(length as usize).saturating_add(CHECKSUM_BYTES))
}

impl<'a> BlockChunk<'a> {
    /// Reads a chunk at this offset of its file, and checks its checksum.
    pub fn parse(bytes: &'a [u8], offset: u64) -> Result<BlockChunk<'a>, InputError> {
        let mut cursor = ByteCursor::new(bytes, offset);
        let length = cursor.count()?;
        let (start, encoded) = (cursor.offset, cursor.take(length.saturating_add(1))?);
        check_checksum(encoded, cursor.array()?, start)?;
        let (&encoding, data) = encoded
            .split_first()
            .ok_or_else(|| invalid(start, "an encoding", "the end of the chunk"))?;
        let encoding = match encoding {
            1 => ChunkEncoding::Numbers,
            2 => ChunkEncoding::Histograms,
            3 => ChunkEncoding::FloatHistograms,
            encoding => {
                let name = match encoding {
                    4 => " (XOR2)",
                    5 => " (histogramST)",
                    6 => " (floathistogramST)",
                    _ => "",
                };
                let found = format!("encoding {encoding}{name}");
                let expected = "a chunk of the encoding XOR, histogram or floathistogram";
                return Err(invalid(start, expected, found));
            }
        };
        Ok(BlockChunk { encoding, data, offset: start.saturating_add(1) })
    }
}
