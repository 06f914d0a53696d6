//! Exponential grid for integers, as array positions of recorders.
//!
//! Position 0 holds the value 1, which is the upper end of its bucket; position p holds bucket
//! `p - 1` of [`Exp2`]. Zero has no position. A whole number above 2^53 is recorded as the nearest
//! double.

use super::exp2::{Exp2, default_position};

/// Base-2 exponential grid with a compile-time scale, for recorders.
pub struct Integers<const SCALE: u32>;

impl<const SCALE: u32> Integers<SCALE> {
    /// Number of positions.
    pub const POSITIONS: usize = (64 << SCALE) + 1;

    /// The grid.
    pub fn grid() -> Exp2 {
        const { assert!(SCALE <= Exp2::SCALE_MAX as u32, "recorders have scales 0 to 8") };
        const { Exp2::with_checked_scale(SCALE as i8) }
    }

    /// Position of a value above zero: less than [`Self::POSITIONS`].
    #[inline]
    pub fn position(value: u64) -> usize {
        debug_assert!(value > 0);
        if SCALE != Exp2::DEFAULT.scale() as u32 {
            return match value as i64 {
                // Conversion from a signed integer is one instruction, from an unsigned one six.
                value @ 1.. => Self::grid().index(value as f64).wrapping_add(1) as usize,
                _ => Self::index_of_large(value).wrapping_add(1) as usize,
            };
        }
        // 1 has no octave below it; above 2^53 the nearest double is recorded instead of the
        // number.
        if value.wrapping_sub(2) > (1 << 53) - 2 {
            return Self::position_of_special(value);
        }
        default_position(value)
    }

    #[cold]
    fn position_of_special(value: u64) -> usize {
        Self::index_of_large(value).wrapping_add(1) as usize
    }

    #[cold]
    fn index_of_large(value: u64) -> i32 {
        Self::grid().index(value as f64)
    }

    /// Bucket index of a position.
    pub fn index(position: usize) -> i32 {
        (position as i32).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const SCALE: u32>() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, (1 << shift) | 0x5555]
            {
                if value > 0 {
                    let position = Integers::<SCALE>::position(value);
                    assert!(position < Integers::<SCALE>::POSITIONS);
                    let index = Integers::<SCALE>::grid().index(value as f64);
                    assert_eq!(Integers::<SCALE>::index(position), index, "value {value}");
                }
            }
        }
        assert_eq!(Integers::<SCALE>::position(1), 0);
        assert_eq!(Integers::<SCALE>::position(u64::MAX), Integers::<SCALE>::POSITIONS - 1);
    }

    #[test]
    fn positions_follow_the_grid() {
        check::<0>();
        check::<3>();
        check::<5>();
        check::<8>();
    }
}
