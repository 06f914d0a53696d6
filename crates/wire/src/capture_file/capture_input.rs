//! Reading of exact numbers of bytes, with the position in the file.

use std::io::{self, Read};

/// Order of bytes in the numbers of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ByteOrder {
    #[default]
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The number at `offset`, or `None` behind the end of `bytes`.
    pub(super) fn u16_at(self, bytes: &[u8], offset: usize) -> Option<u16> {
        bytes.get(offset..)?.first_chunk().map(|found| self.u16(*found))
    }

    /// As [`Self::u16_at`], of four bytes.
    pub(super) fn u32_at(self, bytes: &[u8], offset: usize) -> Option<u32> {
        bytes.get(offset..)?.first_chunk().map(|found| self.u32(*found))
    }
}

/// Input with its position.
pub(super) struct CaptureInput<R> {
    input: R,
    offset: u64,
}

impl<R: Read> CaptureInput<R> {
    pub(super) fn new(input: R) -> CaptureInput<R> {
        CaptureInput { input, offset: 0 }
    }

    /// Number of bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `N` bytes, or `None` if the file ends before them. `offset` then is the end of the
    /// file.
    pub(super) fn array<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    filled += read;
                    self.offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(bytes))
    }

    /// Replaces `buffer` by the next `size` bytes. Returns whether the file has as many. Memory
    /// grows with the bytes that exist, not with `size`.
    pub(super) fn fill(&mut self, buffer: &mut Vec<u8>, size: u32) -> io::Result<bool> {
        buffer.clear();
        let read = (&mut self.input).take(u64::from(size)).read_to_end(buffer)?;
        self.offset += read as u64;
        Ok(read as u64 == u64::from(size))
    }
}
