//! Compression of frames.
//!
//! LZ4 (block format) and Zstandard, both from libraries. A frame that compression does not shrink
//! is stored uncompressed with compression 0, so compression never costs space.

use std::io;

use crate::settings::Compression;

/// Number of a compression in files.
pub(crate) fn compression_number(compression: Compression) -> u8 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    }
}

/// Codec by number.
pub(crate) fn compression_from_number(number: u8) -> Option<Compression> {
    [Compression::None, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .find(|&compression| self::compression_number(compression) == number)
}

/// Level 1 keeps up with a writer, and higher levels gain little on small frames.
const ZSTD_LEVEL: i32 = 1;

/// Compresses frames.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> io::Result<Compressor> {
        let zstd = match compression {
            Compression::Zstd => Some(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
            Compression::None | Compression::Lz4 => None,
        };
        Ok(Compressor { compression, zstd, out: Vec::new() })
    }

    /// Returns the bytes to store and their compression.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (Compression, &'a [u8]) {
        let size = match (self.compression, &mut self.zstd) {
            (Compression::Lz4, _) => {
                let most = lz4_flex::block::get_maximum_output_size(raw.len());
                self.out.resize(most.max(self.out.len()), 0);
                lz4_flex::block::compress_into(raw, &mut self.out).ok()
            }
            (Compression::Zstd, Some(zstd)) => {
                let most = zstd::zstd_safe::compress_bound(raw.len());
                self.out.resize(most.max(self.out.len()), 0);
                zstd.compress_to_buffer(raw, &mut self.out[..]).ok()
            }
            _ => None,
        };
        match size {
            Some(size) if size < raw.len() => (self.compression, &self.out[..size]),
            _ => (Compression::None, raw),
        }
    }
}

/// Decompresses frames.
#[derive(Default)]
pub(crate) struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// Fills `raw`, whose length comes from the frame header; false if the bytes are invalid.
    pub(crate) fn decompress(
        &mut self,
        compression: Compression,
        stored: &[u8],
        raw: &mut [u8],
    ) -> bool {
        let size = match compression {
            Compression::None => {
                let same = stored.len() == raw.len();
                if same {
                    raw.copy_from_slice(stored);
                }
                return same;
            }
            Compression::Lz4 => lz4_flex::block::decompress_into(stored, raw).ok(),
            Compression::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                self.zstd.as_mut().and_then(|zstd| zstd.decompress_to_buffer(stored, raw).ok())
            }
        };
        size == Some(raw.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(compression: Compression, raw: &[u8], expected: Compression) {
        let mut compressor = Compressor::new(compression).unwrap();
        let (used, stored) = compressor.compress(raw);
        assert_eq!(used, expected);
        let mut again = vec![0; raw.len()];
        assert!(Decompressor::default().decompress(used, stored, &mut again));
        assert_eq!(again, raw);
    }

    #[test]
    fn compressible_data_round_trips() {
        let text = b"host042 api.request 12.83 ".repeat(100);
        check(Compression::Lz4, &text, Compression::Lz4);
        check(Compression::Zstd, &text, Compression::Zstd);
        check(Compression::None, &text, Compression::None);
    }

    #[test]
    fn incompressible_data_is_stored_raw() {
        let noise: Vec<u8> =
            (0..100u32).flat_map(|i| crc32c::crc32c(&i.to_le_bytes()).to_le_bytes()).collect();
        for compression in [Compression::Lz4, Compression::Zstd] {
            check(compression, &noise, Compression::None);
            check(compression, b"", Compression::None);
        }
    }

    #[test]
    fn wrong_length_is_detected() {
        let text = [7; 1000];
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(compression).unwrap();
            let (used, stored) = compressor.compress(&text);
            for wrong in [0, 999, 1001] {
                assert!(
                    !Decompressor::default().decompress(used, stored, &mut vec![0; wrong]),
                    "{compression:?} {wrong}"
                );
            }
        }
    }
}
