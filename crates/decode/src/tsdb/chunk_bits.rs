//! Bits of a chunk, most significant first, and the variable-length numbers in them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::invalid;
use crate::input_error::InputError;

/// Reader of bits.
pub(super) struct ChunkBits<'a> {
    bytes: &'a [u8],
    /// Next bit.
    position: usize,
    /// Offset of the bytes in the file.
    offset: u64,
}

/// Number whose changes are written as the bits that differ (XOR).
#[derive(Clone, Debug, Default)]
pub(super) struct XorNumber {
    pub(super) value: f64,
    leading: u32,
    trailing: u32,
}

/// Bits of the values of [`ChunkBits::varbit`], by the number of ones before them.
const VARBIT_BITS: [u32; 9] = [0, 3, 6, 9, 12, 18, 25, 56, 64];
/// The same of [`ChunkBits::timestamp_delta`].
const TIMESTAMP_BITS: [u32; 5] = [0, 14, 17, 20, 64];

impl<'a> ChunkBits<'a> {
    pub(super) fn new(bytes: &'a [u8], offset: u64) -> ChunkBits<'a> {
        ChunkBits { bytes, position: 0, offset }
    }

    pub(super) fn bits(&mut self, count: u32) -> Result<u64, InputError> {
        let mut value = 0;
        let mut missing = count;
        while missing > 0 {
            let byte = self.bytes.get(self.position >> 3).ok_or_else(|| {
                let end = self.offset.saturating_add(self.bytes.len() as u64);
                invalid(end, "more samples", "the end of the chunk")
            })?;
            let used = (self.position & 7) as u32;
            let taken = missing.min(8_u32.saturating_sub(used));
            let shift = 8_u32.saturating_sub(used).saturating_sub(taken);
            let part = u64::from(*byte >> shift) & (1_u64 << taken).wrapping_sub(1);
            value = value << taken | part;
            self.position = self.position.saturating_add(taken as usize);
            missing = missing.saturating_sub(taken);
        }
        Ok(value)
    }

    pub(super) fn double(&mut self) -> Result<f64, InputError> {
        Ok(f64::from_bits(self.bits(64)?))
    }

    /// A varint of bytes, at any bit.
    pub(super) fn uvarint(&mut self) -> Result<u64, InputError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bits(8)?;
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    /// Number of ones before a zero, at most `max`.
    fn ones(&mut self, max: usize) -> Result<usize, InputError> {
        for count in 0..max {
            if self.bits(1)? == 0 {
                return Ok(count);
            }
        }
        Ok(max)
    }

    /// Signed number of a width: above half of the range it is negative.
    fn signed(&mut self, width: u32) -> Result<i64, InputError> {
        let bits = self.bits(width)?;
        Ok(match width {
            0 | 64 => bits as i64,
            width if bits > 1_u64 << width.saturating_sub(1) => {
                bits.wrapping_sub(1_u64 << width) as i64
            }
            _ => bits as i64,
        })
    }

    /// Signed number of a histogram: `varbit_int`.
    pub(super) fn varbit(&mut self) -> Result<i64, InputError> {
        let ones = self.ones(8)?;
        self.signed(VARBIT_BITS[ones])
    }

    /// Unsigned number of a histogram: `varbit_uint`.
    pub(super) fn unsigned_varbit(&mut self) -> Result<u64, InputError> {
        let ones = self.ones(8)?;
        self.bits(VARBIT_BITS[ones])
    }

    /// Change of the distance of timestamps: `varbit_ts`.
    pub(super) fn timestamp_delta(&mut self) -> Result<i64, InputError> {
        let ones = self.ones(4)?;
        self.signed(TIMESTAMP_BITS[ones])
    }

    /// Next value: `varbit_xor`.
    pub(super) fn xor(&mut self, number: &mut XorNumber) -> Result<(), InputError> {
        if self.bits(1)? == 0 {
            return Ok(());
        }
        if self.bits(1)? == 1 {
            let leading = self.bits(5)? as u32;
            let significant = match self.bits(6)? as u32 {
                0 => 64,
                bits => bits,
            };
            let trailing = 64_u32.checked_sub(leading).and_then(|n| n.checked_sub(significant));
            let position = self.offset.saturating_add((self.position >> 3) as u64);
            number.trailing = trailing.ok_or_else(|| {
                let found = format!("{significant} after {leading} zeros");
                invalid(position, "at most 64 bits of a number", found)
            })?;
            number.leading = leading;
        }
        let width = 64_u32.saturating_sub(number.leading).saturating_sub(number.trailing);
        let bits = self.bits(width)?;
        let changed = bits.checked_shl(number.trailing).unwrap_or(0);
        number.value = f64::from_bits(number.value.to_bits() ^ changed);
        Ok(())
    }
}

impl XorNumber {
    pub(super) fn new(value: f64) -> XorNumber {
        XorNumber { value, leading: 0, trailing: 0 }
    }
}
