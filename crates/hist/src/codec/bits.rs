//! Bit streams, least significant bit first.

use crate::codec::bytes::ByteReader;
use crate::error::DecodeError;

/// Appends bits.
#[derive(Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    /// Appends the low `bits` bits of `value`, at most 64.
    #[inline]
    pub(crate) fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits == 64 || value >> bits == 0);
        self.pending |= value << self.pending_bits;
        let bit_count = self.pending_bits.wrapping_add(bits);
        if bit_count < u64::BITS {
            self.pending_bits = bit_count;
            return;
        }
        self.bytes.extend(self.pending.to_le_bytes());
        self.pending_bits = bit_count.wrapping_sub(u64::BITS);
        self.pending = value.checked_shr(bits.wrapping_sub(self.pending_bits)).unwrap_or(0);
    }

    /// Appends a number in Rice code: the part above `low_bits` in unary, the low bits unchanged. A
    /// part too large for unary is written as 64 bits after [`UNARY_MAX`] ones.
    pub(crate) fn put_rice(&mut self, value: u64, low_bits: u32) {
        let high = value >> low_bits;
        if high < UNARY_MAX {
            self.put((1u64 << high).wrapping_sub(1), (high as u32).wrapping_add(1));
            self.put(value & low_mask(low_bits), low_bits);
        } else {
            self.put(low_mask(UNARY_MAX as u32), UNARY_MAX as u32);
            self.put(value, 64);
        }
    }

    /// Number of bits written.
    pub(crate) fn bits(&self) -> u64 {
        (self.bytes.len() as u64).wrapping_mul(8).wrapping_add(u64::from(self.pending_bits))
    }

    /// Appends all bits of another writer.
    pub(crate) fn append(&mut self, other: BitWriter) {
        let (words, _) = other.bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.put(u64::from_le_bytes(*word), 64));
        self.put(other.pending, other.pending_bits);
    }

    /// Returns the bytes; the last byte is padded with zeros.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let byte_count = self.pending_bits.div_ceil(8) as usize;
        self.bytes.extend(&self.pending.to_le_bytes()[..byte_count]);
        self.bytes
    }
}

/// Number of ones that mark a number written as 64 bits.
const UNARY_MAX: u64 = 24;

fn low_mask(bits: u32) -> u64 {
    (1u64 << bits).wrapping_sub(1)
}

/// Approximately the number of low bits that makes the Rice code of these numbers shortest.
pub(crate) fn rice_low_bits(values: impl Iterator<Item = u64>) -> u32 {
    let (mut total, mut count) = (0u128, 0u128);
    for value in values {
        total = total.wrapping_add(u128::from(value));
        count = count.wrapping_add(1);
    }
    // The best divisor of a geometric distribution is about its mean times ln 2.
    let divisor = total.wrapping_mul(11).checked_div(count.wrapping_mul(16)).unwrap_or(0);
    divisor.checked_ilog2().unwrap_or(0).min(62)
}

/// Reads bits.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    at_bit: usize,
    /// Offset of the bytes in the whole input.
    offset: usize,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8], offset: usize) -> BitReader<'a> {
        BitReader { bytes, at_bit: 0, offset }
    }

    /// The next `bits` bits, at most 64.
    #[inline]
    pub(crate) fn get(&mut self, bits: u32, field: &'static str) -> Result<u64, DecodeError> {
        let (first, shift) = (self.at_bit / 8, self.at_bit % 8);
        let end = self.at_bit.wrapping_add(bits as usize);
        if end > self.bytes.len().wrapping_mul(8) {
            return Err(DecodeError::Truncated { offset: self.offset.wrapping_add(first), field });
        }
        if bits <= 56
            && let Some(word) = self.bytes.get(first..).and_then(|rest| rest.first_chunk::<8>())
        {
            self.at_bit = end;
            return Ok(u64::from_le_bytes(*word) >> shift & low_mask(bits));
        }
        let mut word = [0u8; 16];
        let window = &self.bytes[first..end.div_ceil(8)];
        word[..window.len()].copy_from_slice(window);
        self.at_bit = end;
        let value = (u128::from_le_bytes(word) >> shift) as u64;
        Ok(if bits == 64 { value } else { value & low_mask(bits) })
    }

    /// At least 25 bits from the current position; zeros past the end.
    fn peek(&self) -> u32 {
        let rest = self.bytes.get(self.at_bit / 8..).unwrap_or(&[]);
        let word = match rest.first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        (word >> (self.at_bit % 8)) as u32
    }

    /// Reads a number in Rice code.
    #[inline]
    pub(crate) fn get_rice(
        &mut self,
        low_bits: u32,
        field: &'static str,
    ) -> Result<u64, DecodeError> {
        // Usually one load contains the whole number.
        let rest = self.bytes.get(self.at_bit / 8..).and_then(|rest| rest.first_chunk::<8>());
        if let (Some(word), 0..=24) = (rest, low_bits) {
            let word = u64::from_le_bytes(*word) >> (self.at_bit % 8);
            let high = word.trailing_ones();
            if u64::from(high) < UNARY_MAX {
                self.at_bit =
                    self.at_bit.wrapping_add(high.wrapping_add(1).wrapping_add(low_bits) as usize);
                return Ok(
                    u64::from(high) << low_bits | word >> high.wrapping_add(1) & low_mask(low_bits)
                );
            }
        }
        self.get_rice_bitwise(low_bits, field)
    }

    #[inline(never)]
    fn get_rice_bitwise(&mut self, low_bits: u32, field: &'static str) -> Result<u64, DecodeError> {
        let high = u64::from(self.peek().trailing_ones()).min(UNARY_MAX);
        self.get(high.wrapping_add(1).min(UNARY_MAX) as u32, field)?;
        if high == UNARY_MAX {
            return self.get(64, field);
        }
        Ok(high << low_bits | self.get(low_bits, field)?)
    }

    /// Reads the parameter of the Rice code, which starts a column.
    pub(crate) fn get_rice_parameter(&mut self) -> Result<u32, DecodeError> {
        match self.get(6, "Rice parameter")? {
            63 => Err(ByteReader::invalid_error(0, "Rice parameter", 63, "at most 62")),
            low_bits => Ok(low_bits as u32),
        }
    }

    /// Rejects whole bytes after the end.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        let at = self.at_bit.div_ceil(8);
        if at == self.bytes.len() {
            return Ok(());
        }
        Err(DecodeError::Invalid {
            offset: self.offset.wrapping_add(at),
            field: "end of bits",
            found: format!("{} more bytes", self.bytes.len().wrapping_sub(at)),
            expected: "nothing after the last field",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_round_trip() {
        let numbers =
            [(1, 1), (0, 1), (5, 3), (u64::MAX, 64), (0, 0), (0x1234_5678, 31), (1 << 62, 63)];
        let mut writer = BitWriter::default();
        for (value, bits) in numbers {
            writer.put(value, bits);
        }
        for low_bits in [0, 5, 62] {
            for value in [0, 1, 31, 32, 1000, u64::MAX] {
                writer.put_rice(value, low_bits);
            }
        }
        let bytes = writer.finish();
        let mut reader = BitReader::new(&bytes, 0);
        for (value, bits) in numbers {
            assert_eq!(reader.get(bits, "n"), Ok(value));
        }
        for low_bits in [0, 5, 62] {
            for value in [0, 1, 31, 32, 1000, u64::MAX] {
                assert_eq!(reader.get_rice(low_bits, "n"), Ok(value));
            }
        }
        assert_eq!(reader.finish(), Ok(()));
        assert!(reader.get(8, "n").is_err());
    }

    #[test]
    fn the_divisor_follows_the_mean() {
        assert_eq!(rice_low_bits([0, 0].into_iter()), 0);
        assert_eq!(rice_low_bits([].into_iter()), 0);
        assert_eq!(rice_low_bits([1 << 20; 5].into_iter()), 19);
    }
}
