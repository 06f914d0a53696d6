//! The base-2 log-linear grid: HdrHistogram, H2 (Rezolus) and BPF tools, and the top bits of a
//! double.
//!
//! With `bits` sub-bits every octave `[2^e, 2^(e+1))` is divided into 2^bits even buckets
//! `[lo, hi)`. Below `2^floor` buckets have the constant width `2^(floor - bits)` down to zero, as
//! in HdrHistogram. Index 0 starts at zero and indexes have no gaps. An index is therefore
//! HdrHistogram's position in its counts array (floor = unit magnitude + bits) and, at floor −1022,
//! the top bits of the double itself. The error at a bucket's middle is at most 2^-(bits+1) above
//! the floor.

use crate::error::SchemeError;

const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;

/// A base-2 log-linear grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogLinear2 {
    bits: u8,
    floor: i16,
}

impl LogLinear2 {
    /// Maximum number of sub-bits: HdrHistogram with five digits has 17, plus one for other
    /// sources.
    pub(crate) const BITS_MAX: u8 = 18;
    /// The lowest floor: below 2^-1022 doubles themselves are evenly spaced.
    pub(crate) const FLOOR_MIN: i16 = -1022;
    /// The highest floor.
    pub(crate) const FLOOR_MAX: i16 = 1023;
    /// The grid in which the buckets of every other scheme stay distinct (error at most 0.049 %):
    /// see [`crate::Mixture`].
    pub const UNIVERSAL: LogLinear2 = LogLinear2 { bits: 10, floor: Self::FLOOR_MIN };

    /// A grid over all positive doubles, 0..=18 sub-bits.
    pub fn new(bits: u32) -> Result<LogLinear2, SchemeError> {
        Self::with_floor(bits, Self::FLOOR_MIN.into())
    }

    /// A grid whose buckets have one width below `2^floor`.
    pub fn with_floor(bits: u32, floor: i32) -> Result<LogLinear2, SchemeError> {
        if !(0..=u32::from(Self::BITS_MAX)).contains(&bits) {
            return Err(SchemeError::Bits { found: bits });
        }
        match i16::try_from(floor) {
            Ok(floor) if (Self::FLOOR_MIN..=Self::FLOOR_MAX).contains(&floor) => {
                Ok(LogLinear2 { bits: bits as u8, floor })
            }
            _ => Err(SchemeError::Floor { found: floor }),
        }
    }

    /// The grid of integers with unit width at the bottom and 2^bits buckets per octave above.
    pub fn integers(bits: u32) -> Result<LogLinear2, SchemeError> {
        Self::with_floor(bits, bits as i32)
    }

    /// log2 of the number of buckets per octave.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// log2 of the value below which buckets have the constant width `2^(floor - bits)`.
    pub fn floor(self) -> i16 {
        self.floor
    }

    /// log2 of the width of the buckets below `2^floor`.
    fn log2_width(self) -> i32 {
        i32::from(self.floor).wrapping_sub(self.bits.into())
    }

    /// The bucket of a finite `value` at or above zero.
    #[inline]
    pub(crate) fn index(self, value: f64) -> i32 {
        debug_assert!(value >= 0.0 && value.is_finite());
        let bits = value.to_bits();
        let octave = (bits >> MANTISSA_BITS) as i64;
        let octave = octave.wrapping_sub(1023);
        if octave < i64::from(self.floor) {
            // Scaling by a power of two is exact, and a result below 2^bits is at least 2^-1074.
            return times_power_of_two(value, self.log2_width().wrapping_neg()) as i32;
        }
        let mantissa = (bits & MANTISSA) >> MANTISSA_BITS.wrapping_sub(self.bits.into());
        let octave = octave.wrapping_sub(self.floor.into()).wrapping_add(1);
        (octave << self.bits).wrapping_add(mantissa as i64) as i32
    }

    /// The edges of bucket `index`, which holds `[lower, upper)`; infinity above the last. `None`
    /// if the bucket contains no double.
    pub(crate) fn edges(self, index: i32) -> Option<(f64, f64)> {
        let lower = self.edge(index.into())?;
        let upper = self.edge(i64::from(index).wrapping_add(1)).unwrap_or(f64::INFINITY);
        (lower < upper).then_some((lower, upper))
    }

    /// Lower edge of bucket `index`; `None` outside the range of doubles.
    fn edge(self, index: i64) -> Option<f64> {
        let per_octave = 1i64 << self.bits;
        if index < 0 {
            return None;
        }
        let log2_width = i64::from(self.log2_width());
        let (significand, exponent) = match index >> self.bits {
            0 => (index, log2_width),
            octave => (
                per_octave | index & per_octave.wrapping_sub(1),
                log2_width.wrapping_add(octave).wrapping_sub(1),
            ),
        };
        let edge = times_power_of_two(significand as f64, exponent.clamp(-5000, 5000) as i32);
        edge.is_finite().then_some(edge)
    }

    /// The finest grid in which the buckets of both grids nest. Merging into it is exact.
    pub(crate) fn common(self, other: LogLinear2) -> Option<LogLinear2> {
        let bits = self.bits.min(other.bits);
        let floor = self.log2_width().max(other.log2_width()).wrapping_add(bits.into());
        LogLinear2::with_floor(bits.into(), floor.max(Self::FLOOR_MIN.into())).ok()
    }

    /// Maximum relative error of a bucket's middle, above the floor.
    pub fn relative_error(self) -> f64 {
        1.0 / (2u64 << self.bits | 1) as f64
    }
}

/// `value * 2^exponent`, in steps, so that no factor overflows.
pub(crate) fn times_power_of_two(mut value: f64, mut exponent: i32) -> f64 {
    while exponent != 0 {
        let step = exponent.clamp(-1000, 1000);
        value *= f64::from_bits((step.wrapping_add(1023) as u64) << MANTISSA_BITS);
        exponent = exponent.wrapping_sub(step);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(grid: LogLinear2, value: f64, index: i32) {
        assert_eq!(grid.index(value), index, "{grid:?}, value {value:e}");
        let (lower, upper) = grid.edges(index).unwrap();
        assert!(lower <= value && value < upper, "{value:e} is not in [{lower:e}, {upper:e})");
    }

    #[test]
    fn integers_follow_the_counts_array_of_hdr_histogram() {
        let grid = LogLinear2::integers(7).unwrap();
        for v in 0..=256 {
            check(grid, v.into(), v);
        }
        check(grid, 257.0, 256);
        check(grid, 258.0, 257);
        check(grid, 511.0, 383);
        check(grid, 512.0, 384);
        assert_eq!(grid.edges(256), Some((256.0, 258.0)));
        let grid = LogLinear2::with_floor(7, 17).unwrap();
        check(grid, 1023.0, 0);
        check(grid, 1024.0, 1);
        check(grid, 256.0 * 1024.0, 256);
    }

    #[test]
    fn without_sub_bits_a_bucket_is_an_octave() {
        let grid = LogLinear2::integers(0).unwrap();
        for (index, value) in [0.0, 1.0, 2.0, 4.0, 8.0].into_iter().enumerate() {
            check(grid, value, index as i32);
        }
        check(grid, 0.9, 0);
        check(grid, 3.0, 2);
        assert_eq!(grid.edges(3), Some((4.0, 8.0)));
    }

    #[test]
    fn the_universal_grid_is_the_top_bits_of_the_double() {
        for value in [0.0, 5e-324, 1e-310, 1e-300, 0.1, 1.0, 1.5, 123.456, 1e300, f64::MAX] {
            check(LogLinear2::UNIVERSAL, value, (value.to_bits() >> 42) as i32);
        }
        let last = (f64::MAX.to_bits() >> 42) as i32;
        assert_eq!(LogLinear2::UNIVERSAL.edges(last).unwrap().1, f64::INFINITY);
        assert_eq!(LogLinear2::UNIVERSAL.edges(last + 1), None);
        assert_eq!(LogLinear2::UNIVERSAL.edges(-1), None);
        assert_eq!(LogLinear2::UNIVERSAL.edges(i32::MAX), None);
    }

    #[test]
    fn both_grids_nest_in_the_common_one() {
        let a = LogLinear2::integers(10).unwrap();
        let b = LogLinear2::with_floor(7, 12).unwrap();
        let common = a.common(b).unwrap();
        for grid in [a, b] {
            for index in 0..5000 {
                let (lower, upper) = grid.edges(index).unwrap();
                let last = upper.next_down();
                assert_eq!(common.index(lower), common.index(last), "{grid:?} bucket {index}");
            }
        }
        assert_eq!(
            LogLinear2::UNIVERSAL.common(LogLinear2::UNIVERSAL),
            Some(LogLinear2::UNIVERSAL)
        );
    }
}
