//! Compression of frames.
//!
//! LZ4 in its block format and Zstandard, both from libraries. A frame that compression does not make
//! smaller is stored as it is, and says so, so that it never costs more than it saves.

use std::io;

use crate::settings::Codec;

/// The number of a codec in files.
pub(crate) fn number(codec: Codec) -> u8 {
    match codec {
        Codec::None => 0,
        Codec::Lz4 => 1,
        Codec::Zstd => 2,
    }
}

/// The codec with a number.
pub(crate) fn numbered(number: u8) -> Option<Codec> {
    [Codec::None, Codec::Lz4, Codec::Zstd].into_iter().find(|&codec| self::number(codec) == number)
}

/// Level 1 keeps pace with a writer, and higher levels gain little on small frames.
const ZSTD_LEVEL: i32 = 1;

/// Compresses frames one after the other.
pub(crate) struct Compressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(codec: Codec) -> io::Result<Compressor> {
        let zstd = match codec {
            Codec::Zstd => Some(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
            Codec::None | Codec::Lz4 => None,
        };
        Ok(Compressor { codec, zstd, out: Vec::new() })
    }

    /// The bytes to store and how they are compressed.
    pub(crate) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (Codec, &'a [u8]) {
        let size = match (self.codec, &mut self.zstd) {
            (Codec::Lz4, _) => {
                let most = lz4_flex::block::get_maximum_output_size(raw.len());
                self.out.resize(most.max(self.out.len()), 0);
                lz4_flex::block::compress_into(raw, &mut self.out).ok()
            }
            (Codec::Zstd, Some(zstd)) => {
                let most = zstd::zstd_safe::compress_bound(raw.len());
                self.out.resize(most.max(self.out.len()), 0);
                zstd.compress_to_buffer(raw, &mut self.out[..]).ok()
            }
            _ => None,
        };
        match size {
            Some(size) if size < raw.len() => (self.codec, &self.out[..size]),
            _ => (Codec::None, raw),
        }
    }
}

/// Restores frames one after the other.
#[derive(Default)]
pub(crate) struct Decompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// Fills `raw`, whose length is what the frame said; false when the bytes are no such thing.
    pub(crate) fn decompress(&mut self, codec: Codec, stored: &[u8], raw: &mut [u8]) -> bool {
        let size = match codec {
            Codec::None => {
                let same = stored.len() == raw.len();
                if same {
                    raw.copy_from_slice(stored);
                }
                return same;
            }
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, raw).ok(),
            Codec::Zstd => {
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
    fn check(codec: Codec, raw: &[u8], expected: Codec) {
        let mut compressor = Compressor::new(codec).unwrap();
        let (used, stored) = compressor.compress(raw);
        assert_eq!(used, expected);
        let mut again = vec![0; raw.len()];
        assert!(Decompressor::default().decompress(used, stored, &mut again));
        assert_eq!(again, raw);
    }

    #[test]
    fn what_shrinks_is_compressed_and_comes_back() {
        let text = b"host042 api.request 12.83 ".repeat(100);
        check(Codec::Lz4, &text, Codec::Lz4);
        check(Codec::Zstd, &text, Codec::Zstd);
        check(Codec::None, &text, Codec::None);
    }

    #[test]
    fn what_does_not_shrink_is_stored_as_it_is() {
        let noise: Vec<u8> =
            (0..100u32).flat_map(|i| crc32c::crc32c(&i.to_le_bytes()).to_le_bytes()).collect();
        for codec in [Codec::Lz4, Codec::Zstd] {
            check(codec, &noise, Codec::None);
            check(codec, b"", Codec::None);
        }
    }

    #[test]
    fn a_wrong_length_is_seen() {
        let text = [7; 1000];
        for codec in [Codec::Lz4, Codec::Zstd] {
            let mut compressor = Compressor::new(codec).unwrap();
            let (used, stored) = compressor.compress(&text);
            for wrong in [0, 999, 1001] {
                assert!(
                    !Decompressor::default().decompress(used, stored, &mut vec![0; wrong]),
                    "{codec:?} {wrong}"
                );
            }
        }
    }
}
