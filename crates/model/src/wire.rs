//! Wire primitives of layers 1 and 2.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::bytes::unzigzag;

use crate::error::{Error, Result};

pub use hist::codec::bytes::{put_varint, put_zigzag};

/// Bytes of the longest LEB128 number of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reader of the wire format.
#[derive(Clone, Debug)]
pub struct WireReader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> WireReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: bytes, offset: 0 }
    }

    /// Offset of the next byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of remaining bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether no bytes remain.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    #[inline]
    pub fn read_bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(Error::Truncated { offset: self.offset, field });
        };
        self.advance(len, rest);
        Ok(bytes)
    }

    /// The next bytes as an array.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(Error::Truncated { offset: self.offset, field });
        };
        self.advance(N, rest);
        Ok(*taken)
    }

    fn advance(&mut self, len: usize, rest: &'a [u8]) {
        // At most the length of the input.
        self.offset = self.offset.saturating_add(len);
        self.rest = rest;
    }

    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// Eight bytes, as a signed number.
    pub fn i64(&mut self, field: &'static str) -> Result<i64> {
        self.array(field).map(i64::from_le_bytes)
    }

    /// A double.
    pub fn f64(&mut self, field: &'static str) -> Result<f64> {
        self.array(field).map(f64::from_le_bytes)
    }

    /// A LEB128 number of at most ten bytes.
    #[inline]
    pub fn varint(&mut self, field: &'static str) -> Result<u64> {
        // Most numbers are small.
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.advance(1, rest);
            return Ok(u64::from(*byte));
        }
        self.long_varint(field)
    }

    fn long_varint(&mut self, field: &'static str) -> Result<u64> {
        let mut value = 0u64;
        let mut shifts = (0..64).step_by(7);
        for (at, &byte) in self.rest.iter().enumerate() {
            let Some(shift) = shifts.next() else { break };
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part.unbounded_shl(shift);
            if byte < 0x80 {
                let len = at.saturating_add(1);
                self.advance(len, self.rest.get(len..).unwrap_or_default());
                return Ok(value);
            }
        }
        if self.remaining() < VARINT_BYTES_MAX {
            let offset = self.offset.saturating_add(self.remaining());
            return Err(Error::Truncated { offset, field });
        }
        Err(Error::Invalid {
            offset: self.offset,
            field,
            found: "a number of more than 64 bits".to_owned(),
            expected: "a LEB128 number of at most 64 bits",
        })
    }

    /// A zigzag-encoded number.
    #[inline]
    pub fn zigzag(&mut self, field: &'static str) -> Result<i64> {
        self.varint(field).map(unzigzag)
    }

    /// A number of items of at least `bytes_min` bytes each. It is limited by the remaining input,
    /// so that allocations are proportional to the input.
    pub fn count(&mut self, bytes_min: usize, field: &'static str) -> Result<usize> {
        let offset = self.offset;
        let count = self.varint(field)?;
        let max = self.remaining().checked_div(bytes_min).unwrap_or(self.remaining());
        let fits = usize::try_from(count).ok().filter(|&count| count <= max);
        fits.ok_or_else(|| Error::Invalid {
            offset,
            field,
            found: count.to_string(),
            expected: "as many as there are bytes for",
        })
    }

    /// A length and that many bytes.
    #[inline]
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8]> {
        let len = self.varint(field)?;
        self.read_bytes(usize::try_from(len).unwrap_or(usize::MAX), field)
    }

    /// A length and UTF-8 text.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str> {
        let offset = self.offset;
        let bytes = self.bytes(field)?;
        std::str::from_utf8(bytes).map_err(|error| Error::Invalid {
            offset,
            field,
            found: format!("no UTF-8 after {} bytes", error.valid_up_to()),
            expected: "UTF-8",
        })
    }

    /// Rejects trailing bytes.
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid {
            offset: self.offset,
            field: "end",
            found: format!("{} more bytes", self.remaining()),
            expected: "nothing after the last field",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 300, u64::MAX >> 1, u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX];
        numbers.iter().for_each(|&n| put_varint(&mut out, n));
        signed.iter().for_each(|&n| put_zigzag(&mut out, n));
        put_bytes(&mut out, "héé".as_bytes());
        let mut reader = WireReader::new(&out);
        assert_eq!(numbers.map(|_| reader.varint("n").unwrap()), numbers);
        assert_eq!(signed.map(|_| reader.zigzag("n").unwrap()), signed);
        assert_eq!(reader.text("text"), Ok("héé"));
        assert_eq!(reader.finish(), Ok(()));
        assert!(reader.u8("more").is_err());
    }

    #[test]
    fn overlong_numbers_are_rejected() {
        assert!(WireReader::new(&[0xff; 11]).varint("n").is_err());
        assert!(
            WireReader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2])
                .varint("n")
                .is_err()
        );
        for len in 1..10 {
            let truncated = crate::Error::Truncated { offset: len, field: "n" };
            assert_eq!(WireReader::new(&[0x80; 10][..len]).varint("n"), Err(truncated));
        }
        assert!(WireReader::new(&[200, 1, 0]).count(1, "n").is_err());
        assert!(WireReader::new(&[5, 1]).bytes("n").is_err());
        assert!(WireReader::new(&[1, 0xff]).text("n").is_err());
    }
}
