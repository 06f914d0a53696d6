//! Bodies that are compressed, in versions 3 and 4.

use super::stream_table::CqlCompression;

/// Larger bodies are not decompressed: their statements and numbers of rows are unknown.
const COMPRESSED_BYTES_MAX: u64 = 64 << 10;
const BODY_BYTES_MAX: usize = 128 << 10;

/// Allocations above this are freed after use.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// Collects a compressed body.
#[derive(Default)]
pub(super) struct CompressedBody {
    compressed: Vec<u8>,
    body: Vec<u8>,
    is_too_large: bool,
}

impl CompressedBody {
    pub(super) fn start(&mut self, bytes: u64) {
        self.is_too_large = bytes > COMPRESSED_BYTES_MAX;
        self.compressed.clear();
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_too_large {
            self.compressed.extend_from_slice(bytes);
        }
    }

    /// The body; `None` if it is too large or damaged. If STARTUP was not captured, the compression
    /// is the one that fits.
    pub(super) fn decompress(&mut self, compression: Option<CqlCompression>) -> Option<&[u8]> {
        if self.is_too_large {
            return None;
        }
        let size = match compression {
            Some(CqlCompression::Lz4) => self.decompress_lz4(),
            Some(CqlCompression::Snappy) => self.decompress_snappy(),
            None => self.decompress_lz4().or_else(|| self.decompress_snappy()),
        };
        self.body.get(..size?)
    }

    /// Returns the size of the body.
    fn decompress_lz4(&mut self) -> Option<usize> {
        let (size, block) = self.compressed.split_first_chunk::<4>()?;
        let size = u32::from_be_bytes(*size) as usize;
        if size > BODY_BYTES_MAX {
            return None;
        }
        self.body.resize(size, 0);
        let decompressed = lz4_flex::block::decompress_into(block, &mut self.body).ok()?;
        (decompressed == size).then_some(size)
    }

    /// Returns the size of the body.
    fn decompress_snappy(&mut self) -> Option<usize> {
        let size = snap::raw::decompress_len(&self.compressed).ok()?;
        if size > BODY_BYTES_MAX {
            return None;
        }
        self.body.resize(size, 0);
        snap::raw::Decoder::new().decompress(&self.compressed, &mut self.body).ok()
    }

    /// Ends the use of the body.
    pub(super) fn finish(&mut self) {
        for buffer in [&mut self.compressed, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(RETAINED_BYTES_MAX);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.compressed.capacity() + self.body.capacity()
    }
}
