//! Messages that are compressed.

/// Larger messages are not decompressed. They are not measured: the outcome is unknown.
const COMPRESSED_BYTES_MAX: u64 = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// Allocations above this are freed after use.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// Original operation code, size and compressor.
const HEADER_BYTES: usize = 9;

/// Collects a compressed message.
#[derive(Default)]
pub(super) struct CompressedMessage {
    compressed: Vec<u8>,
    message: Vec<u8>,
    is_too_large: bool,
}

impl CompressedMessage {
    pub(super) fn start(&mut self, bytes: u64) {
        self.is_too_large = bytes > COMPRESSED_BYTES_MAX;
        self.compressed.clear();
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.is_too_large {
            self.compressed.extend_from_slice(bytes);
        }
    }

    /// Operation code and body; `None` if it is too large or damaged.
    pub(super) fn decompress(&mut self) -> Option<(i32, &[u8])> {
        if self.is_too_large {
            return None;
        }
        let (&[o0, o1, o2, o3, s0, s1, s2, s3, compressor], body) =
            self.compressed.split_first_chunk::<HEADER_BYTES>()?;
        let opcode = i32::from_le_bytes([o0, o1, o2, o3]);
        let size = usize::try_from(i32::from_le_bytes([s0, s1, s2, s3])).ok()?;
        if size > MESSAGE_BYTES_MAX {
            return None;
        }
        self.message.resize(size, 0);
        let written = match compressor {
            0 => {
                self.message.clear();
                self.message.extend_from_slice(body);
                body.len()
            }
            1 => snap::raw::Decoder::new().decompress(body, &mut self.message).ok()?,
            2 => {
                let mut zlib = flate2::Decompress::new(true);
                let finish = flate2::FlushDecompress::Finish;
                zlib.decompress(body, &mut self.message, finish).ok()?;
                usize::try_from(zlib.total_out()).ok()?
            }
            3 => zstd::bulk::decompress_to_buffer(body, &mut self.message).ok()?,
            _ => return None,
        };
        Some((opcode, self.message.get(..written)?))
    }

    /// Ends the use of the message.
    pub(super) fn finish(&mut self) {
        for buffer in [&mut self.compressed, &mut self.message] {
            buffer.clear();
            buffer.shrink_to(RETAINED_BYTES_MAX);
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.compressed.capacity() + self.message.capacity()
    }
}
