//! Byte-level primitives of the codecs; errors carry the offset.

use crate::error::DecodeError;

/// Cursor over input bytes.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> ByteReader<'a> {
    /// A reader at the first byte.
    pub fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { bytes, offset: 0 }
    }

    /// Number of bytes read.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len().wrapping_sub(self.offset)
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The remaining bytes, without consuming them.
    pub fn peek(&self) -> &'a [u8] {
        &self.bytes[self.offset..]
    }

    /// Skips `len` bytes, which must be available.
    pub fn skip(&mut self, len: usize) {
        debug_assert!(len <= self.remaining());
        self.offset = self.offset.wrapping_add(len);
    }

    /// The next `len` bytes.
    pub fn read_bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let taken = self.bytes[self.offset..]
            .get(..len)
            .ok_or(DecodeError::Truncated { offset: self.offset, field })?;
        self.offset = self.offset.wrapping_add(len);
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let offset = self.offset;
        self.read_bytes(N, field)?
            .first_chunk()
            .copied()
            .ok_or(DecodeError::Truncated { offset, field })
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        let &byte = self
            .bytes
            .get(self.offset)
            .ok_or(DecodeError::Truncated { offset: self.offset, field })?;
        self.offset = self.offset.wrapping_add(1);
        Ok(byte)
    }

    /// Reads a big-endian `u16`.
    pub fn u16_be(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Reads a big-endian `u32`.
    pub fn u32_be(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// Reads a big-endian `i64`.
    pub fn i64_be(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// Reads a little-endian `f64`.
    pub fn f64_le(&mut self, field: &'static str) -> Result<f64, DecodeError> {
        self.array(field).map(f64::from_le_bytes)
    }

    /// Reads an unsigned LEB128 number of at most ten bytes.
    #[inline]
    pub fn varint(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let Some(word) = self.bytes.get(self.offset..).and_then(|rest| rest.first_chunk::<8>())
        else {
            return self.varint_by_bytes(field);
        };
        // All bytes at once: the first byte without its high bit set is the last byte of the
        // number.
        let word = u64::from_le_bytes(*word);
        let ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            return self.varint_by_bytes(field);
        }
        self.offset =
            self.offset.wrapping_add((ends.trailing_zeros() as usize / 8).wrapping_add(1));
        let payload = word & (ends ^ ends.wrapping_sub(1)) & 0x7f7f_7f7f_7f7f_7f7f;
        // Merges groups of 7 bits into groups of 14, then 28, then one number.
        let pairs = (payload & 0x007f_007f_007f_007f) | (payload & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        Ok((fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4)
    }

    fn varint_by_bytes(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let start = self.offset;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid {
            offset: start,
            field,
            found: "a number of more than 64 bits".into(),
            expected: "a LEB128 number of at most 64 bits",
        })
    }

    /// Reads a zigzag-encoded signed number (0, −1, 1, −2, …).
    #[inline]
    pub fn zigzag(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.varint(field).map(unzigzag)
    }

    /// Error for the last field read, which starts at `offset` and has an invalid value.
    pub fn invalid_error(
        offset: usize,
        field: &'static str,
        found: impl ToString,
        expected: &'static str,
    ) -> DecodeError {
        DecodeError::Invalid { offset, field, found: found.to_string(), expected }
    }

    /// Rejects bytes after the end.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Self::invalid_error(
            self.offset,
            "end",
            format_args!("{} more bytes", self.remaining()),
            "none",
        ))
    }
}

/// Appends an unsigned LEB128 number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number in zigzag encoding, which keeps small numbers of either sign short.
pub fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Zigzag encoding: 0, −1, 1, −2, … become 0, 1, 2, 3, …
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ ((value & 1) as i64).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: u64) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        put_zigzag(&mut out, value as i64);
        let mut reader = ByteReader::new(&out);
        assert_eq!(reader.varint("n"), Ok(value));
        assert_eq!(reader.zigzag("n"), Ok(value as i64));
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
    }

    #[test]
    fn numbers_round_trip() {
        for shift in 0..64 {
            check((1 << shift) - 1);
            check(1 << shift);
        }
        check(u64::MAX);
    }

    #[test]
    fn wrong_lengths_are_rejected() {
        let over = [0xff; 9].iter().copied().chain([2]).collect::<Vec<u8>>();
        assert!(matches!(
            ByteReader::new(&over).varint("n"),
            Err(DecodeError::Invalid { offset: 0, .. })
        ));
        assert!(matches!(
            ByteReader::new(&[0x80]).varint("n"),
            Err(DecodeError::Truncated { offset: 1, .. })
        ));
    }
}
