//! Byte stream of an encoded HdrHistogram, plain or inflated piece by piece.
//!
//! Decompression keeps one window of 16 KiB, so the claimed size of a stream costs nothing until it
//! is read, and the reader stops at the end of the counts array. Offsets count the bytes returned:
//! those after decompression if the input is compressed.

use flate2::{Decompress, FlushDecompress, Status};
use hist::DecodeError;
use hist::codec::bytes::{ByteReader, unzigzag, zigzag};

use crate::leb9::{leb9, put_leb9};

const WINDOW_BYTES: usize = 16 * 1024;

/// Byte stream, plain or inflated.
pub(super) struct HdrStream<'a> {
    source: StreamSource<'a>,
    offset: usize,
}

enum StreamSource<'a> {
    Plain(std::slice::Iter<'a, u8>),
    Deflated(Inflater<'a>),
}

struct Inflater<'a> {
    state: Decompress,
    compressed: &'a [u8],
    window: Vec<u8>,
    /// Read position in the window.
    read: usize,
    is_finished: bool,
}

impl<'a> HdrStream<'a> {
    pub(super) fn plain(bytes: &'a [u8]) -> HdrStream<'a> {
        HdrStream { source: StreamSource::Plain(bytes.iter()), offset: 0 }
    }

    /// Reads a zlib stream, which must end at the end of `compressed`.
    pub(super) fn inflate(compressed: &'a [u8]) -> HdrStream<'a> {
        let inflate = Inflater {
            state: Decompress::new(true),
            compressed,
            window: Vec::with_capacity(WINDOW_BYTES),
            read: 0,
            is_finished: false,
        };
        HdrStream { source: StreamSource::Deflated(inflate), offset: 0 }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// The next byte; `None` after the last.
    #[inline]
    fn next(&mut self) -> Result<Option<u8>, DecodeError> {
        let byte = match &mut self.source {
            StreamSource::Plain(bytes) => bytes.next().copied(),
            StreamSource::Deflated(inflate) => inflate.next(self.offset)?,
        };
        self.offset = self.offset.wrapping_add(usize::from(byte.is_some()));
        Ok(byte)
    }

    /// The next `N` bytes, or `None` at the end.
    fn array_or_end<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<Option<[u8; N]>, DecodeError> {
        let offset = self.offset;
        let mut array = [0; N];
        for (at, slot) in array.iter_mut().enumerate() {
            match self.next()? {
                Some(byte) => *slot = byte,
                None if at == 0 => return Ok(None),
                None => return Err(DecodeError::Truncated { offset, field }),
            }
        }
        Ok(Some(array))
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let offset = self.offset;
        self.array_or_end(field)?.ok_or(DecodeError::Truncated { offset, field })
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    pub(super) fn f64(&mut self, field: &'static str) -> Result<f64, DecodeError> {
        self.array(field).map(f64::from_be_bytes)
    }

    /// A signed word of 2, 4 or 8 bytes; `None` at the end.
    pub(super) fn word(
        &mut self,
        size: usize,
        field: &'static str,
    ) -> Result<Option<i64>, DecodeError> {
        Ok(match size {
            2 => self.array_or_end(field)?.map(|bytes| i16::from_be_bytes(bytes).into()),
            4 => self.array_or_end(field)?.map(|bytes| i32::from_be_bytes(bytes).into()),
            _ => self.array_or_end(field)?.map(i64::from_be_bytes),
        })
    }

    /// A signed number in ZigZag LEB128-64b9B.
    #[inline]
    pub(super) fn leb(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        let offset = self.offset;
        let truncated = || DecodeError::Truncated { offset, field };
        leb9(|| self.next()?.ok_or_else(truncated)).map(unzigzag)
    }

    /// Rejects bytes after the end, and a zlib stream whose checksum is missing or wrong.
    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        let offset = self.offset;
        if self.next()?.is_some() {
            return Err(ByteReader::invalid_error(
                offset,
                "end",
                "more bytes",
                "nothing after the histogram",
            ));
        }
        match &self.source {
            StreamSource::Deflated(Inflater { compressed, .. }) if !compressed.is_empty() => {
                Err(ByteReader::invalid_error(
                    offset,
                    "end",
                    format_args!("{} more bytes after the zlib stream", compressed.len()),
                    "nothing after the histogram",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Inflater<'_> {
    /// The next byte; `offset` is its offset in the inflated bytes.
    #[inline]
    fn next(&mut self, offset: usize) -> Result<Option<u8>, DecodeError> {
        if self.read == self.window.len() {
            self.fill(offset)?;
        }
        let byte = self.window.get(self.read).copied();
        self.read = self.read.wrapping_add(usize::from(byte.is_some()));
        Ok(byte)
    }

    /// Inflates until the window has bytes or the stream has ended.
    fn fill(&mut self, offset: usize) -> Result<(), DecodeError> {
        self.read = 0;
        self.window.clear();
        while self.window.is_empty() && !self.is_finished {
            let before = self.state.total_in();
            let status = self
                .state
                .decompress_vec(self.compressed, &mut self.window, FlushDecompress::None)
                .map_err(|_| {
                    ByteReader::invalid_error(
                        offset,
                        "zlib stream",
                        "damaged",
                        "a whole zlib stream",
                    )
                })?;
            let consumed = self.state.total_in().wrapping_sub(before) as usize;
            self.compressed = &self.compressed[consumed..];
            self.is_finished = status == Status::StreamEnd;
            if !self.is_finished && consumed == 0 && self.window.is_empty() {
                return Err(DecodeError::Truncated { offset, field: "zlib stream" });
            }
        }
        Ok(())
    }
}

/// Appends a number in ZigZag LEB128-64b9B.
pub(super) fn put_leb(out: &mut Vec<u8>, value: i64) {
    put_leb9(out, zigzag(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: i64, expected_len: usize) {
        let mut out = Vec::new();
        put_leb(&mut out, value);
        assert_eq!(out.len(), expected_len, "{value}");
        let mut stream = HdrStream::plain(&out);
        assert_eq!(stream.leb("n"), Ok(value));
        assert_eq!(stream.finish(), Ok(()));
    }

    #[test]
    fn numbers_round_trip_in_at_most_nine_bytes() {
        check(0, 1);
        check(-1, 1);
        check(63, 1);
        check(-64, 1);
        check(64, 2);
        check(-65, 2);
        check((1 << 55) - 1, 8);
        check(1 << 55, 9);
        check(i64::MAX, 9);
        check(i64::MIN, 9);
    }

    #[test]
    fn a_zlib_stream_must_be_whole() {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&[7; 100_000]).unwrap();
        let compressed = encoder.finish().unwrap();
        let read = |bytes: &[u8]| {
            let mut stream = HdrStream::inflate(bytes);
            while stream.next()?.is_some() {}
            stream.finish().map(|()| stream.offset())
        };
        assert_eq!(read(&compressed), Ok(100_000));
        for len in 0..compressed.len() {
            assert!(read(&compressed[..len]).is_err(), "cut to {len}");
        }
        let longer = [&compressed[..], &[0]].concat();
        assert!(matches!(read(&longer), Err(DecodeError::Invalid { field: "end", .. })));
    }
}
