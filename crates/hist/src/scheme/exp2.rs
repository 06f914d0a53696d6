//! The base-2 exponential grid: OTLP exponential histograms and Prometheus native schemas.
//!
//! At scale `s` the base is 2^(2^-s). Bucket `i` holds `(base^i, base^(i+1)]`, as in OTLP;
//! Prometheus numbers the same bucket `i + 1`. Scale 5, the default, has 32 buckets per octave: a
//! value read back at the middle of its bucket is off by at most 1.08 %. A grid nests in every
//! coarser one: scale `s` maps to `s - 1` by `index >> 1`.
//!
//! An edge is irrational unless it is a power of two. For doubles, the bucket therefore ends at the
//! largest double below the edge, which the table in `bounds.rs` gives exactly, without logarithms
//! and rounding errors.

use super::bounds::BOUNDS;
use crate::error::SchemeError;

const MANTISSA_BITS: u32 = 52;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
const EXPONENT_BIAS: i64 = 1023;
/// The finest scale, at which `BOUNDS` has its entries.
const SCALE_FINEST: i8 = 8;

/// A base-2 exponential grid of one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exp2 {
    scale: i8,
}

impl Exp2 {
    /// The coarsest scale: one bucket spans 2^1024. OTLP has no coarser one.
    pub const SCALE_MIN: i8 = -10;
    /// The finest scale: 256 buckets per octave, error at most 0.135 %.
    pub const SCALE_MAX: i8 = SCALE_FINEST;
    /// The default grid of topdeck: 32 buckets per octave, error at most 1.08 %.
    pub const DEFAULT: Exp2 = Exp2 { scale: 5 };

    /// A grid of a scale that the compiler has checked.
    pub(super) const fn with_checked_scale(scale: i8) -> Exp2 {
        assert!(Self::SCALE_MIN <= scale && scale <= Self::SCALE_MAX);
        Exp2 { scale }
    }

    /// A grid of the scale, which must lie within [`Self::SCALE_MIN`]..=[`Self::SCALE_MAX`].
    pub fn new(scale: i32) -> Result<Exp2, SchemeError> {
        match i8::try_from(scale) {
            Ok(scale) if (Self::SCALE_MIN..=Self::SCALE_MAX).contains(&scale) => Ok(Exp2 { scale }),
            _ => Err(SchemeError::Scale { found: scale }),
        }
    }

    /// log2 of the number of buckets per octave; negative if a bucket spans several octaves.
    pub fn scale(self) -> i8 {
        self.scale
    }

    /// The bucket of a finite `value` above zero.
    #[inline]
    pub(crate) fn index(self, value: f64) -> i32 {
        debug_assert!(value > 0.0 && value.is_finite());
        let (octave, mantissa) = octave_and_mantissa_below(value);
        let finest =
            (octave << SCALE_FINEST).wrapping_add(bucket_in_octave::<9>(&CELLS_FINEST, mantissa));
        (finest >> SCALE_FINEST.wrapping_sub(self.scale)) as i32
    }

    /// The edges of bucket `index`, rounded down to doubles: the bucket holds `(lower, upper]`.
    /// `None` if it contains no double.
    #[inline]
    pub(crate) fn edges(self, index: i32) -> Option<(f64, f64)> {
        let lower = self.floor_of_edge(index.into())?;
        let upper = self.floor_of_edge(i64::from(index).wrapping_add(1))?;
        (lower < upper).then_some((lower, upper))
    }

    /// The first index beyond the largest double. Formats that count infinities in a bucket use it.
    pub fn end_index(self) -> i32 {
        match self.scale {
            scale @ 0.. => 1024 << scale,
            scale => 1024 >> scale.wrapping_neg(),
        }
    }

    /// The largest double that is not above `base^index`; `None` above the largest double.
    fn floor_of_edge(self, index: i64) -> Option<f64> {
        let steps = index << SCALE_FINEST.wrapping_sub(self.scale);
        let (octave, bucket) = (steps >> SCALE_FINEST, (steps & 255) as usize);
        let significand = BOUNDS[bucket] >> (63 - MANTISSA_BITS);
        match octave {
            1024.. => (octave == 1024 && bucket == 0).then_some(f64::MAX),
            -1022..=1023 => Some(f64::from_bits(
                ((octave.wrapping_add(EXPONENT_BIAS) as u64) << MANTISSA_BITS)
                    | (significand & MANTISSA),
            )),
            -1075..=-1023 => Some(f64::from_bits(significand >> (-1022i64).wrapping_sub(octave))),
            _ => Some(0.0),
        }
    }

    /// Maximum relative error of a value that is read back as `2 lo hi / (lo + hi)`.
    pub fn relative_error(self) -> f64 {
        let base = (-f64::from(self.scale)).exp2().exp2();
        if base.is_finite() { (base - 1.0) / (base + 1.0) } else { 1.0 }
    }
}

/// Octave and mantissa of the double just below `value`, which turns `(lo, hi]` into `[lo, hi)`.
#[inline]
fn octave_and_mantissa_below(value: f64) -> (i64, u64) {
    let bits = value.to_bits().wrapping_sub(1);
    let exponent = (bits >> MANTISSA_BITS) as i64;
    if exponent == 0 {
        return subnormal_octave_and_mantissa_below(value);
    }
    (exponent.wrapping_sub(EXPONENT_BIAS), bits & MANTISSA)
}

/// The same for a subnormal value or the smallest normal one. Doubles are sparser there than bucket
/// edges: the value below is taken at the full precision of a mantissa.
#[cold]
fn subnormal_octave_and_mantissa_below(value: f64) -> (i64, u64) {
    let bits = value.to_bits();
    let shift = bits.leading_zeros().wrapping_sub(63 - MANTISSA_BITS);
    let octave = (-1022i64).wrapping_sub(shift.into());
    match (bits << shift) & MANTISSA {
        0 => (octave.wrapping_sub(1), MANTISSA),
        mantissa => (octave, mantissa.wrapping_sub(1)),
    }
}

/// Bucket of a mantissa among the 2^(CELL_BITS - 1) buckets of its octave.
///
/// The octave is divided into 2^CELL_BITS even cells, each narrower than the narrowest bucket, so a
/// cell contains at most one bucket edge. Its entry is `(bucket + 1) * 2^52 - edge`: adding the
/// mantissa carries into the bucket number exactly if the mantissa has reached the edge. The cost
/// is one load, one addition and one shift.
#[inline]
fn bucket_in_octave<const CELL_BITS: u32>(cells: &[u64], mantissa: u64) -> i64 {
    let cell = (mantissa >> const { MANTISSA_BITS - CELL_BITS }) as usize;
    (mantissa.wrapping_add(cells[cell]) >> MANTISSA_BITS) as i64
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "evaluated at compile time, where an overflow is an error"
)]
const fn cells<const N: usize>() -> [u64; N] {
    let cell_bits = N.trailing_zeros();
    let step = 512 / N;
    let mut cells = [0; N];
    let mut bucket = 0;
    let mut cell = 0;
    while cell < N {
        let start = (cell as u64) << (MANTISSA_BITS - cell_bits);
        let end = start + (1 << (MANTISSA_BITS - cell_bits));
        let next = (bucket + 1) * step;
        let edge = if next < 256 { (BOUNDS[next] >> 11) & MANTISSA } else { 1 << MANTISSA_BITS };
        if edge < end {
            cells[cell] = (((bucket + 1) as u64) << MANTISSA_BITS) - edge;
            bucket += 1;
        } else {
            cells[cell] = (bucket as u64) << MANTISSA_BITS;
        }
        cell += 1;
    }
    cells
}

static CELLS_FINEST: [u64; 512] = cells();
static CELLS_DEFAULT: [u64; 64] = cells();

/// One more than the bucket, at the default scale, of a whole number from 2 to 2^53. Equivalent to
/// [`Exp2::index`], with a table of 512 bytes and without doubles: the conversion would take as
/// long as the rest.
#[inline]
pub(crate) fn default_position(value: u64) -> usize {
    // The value minus the smallest step is in the octave of the previous number, and has the bits
    // of the shifted value minus 1.
    let zeros = value.wrapping_sub(1).leading_zeros();
    let below = (value << zeros).wrapping_sub(1);
    let mantissa = (below << 1) >> (64 - MANTISSA_BITS);
    let octave = u64::from(63u32.wrapping_sub(zeros));
    let cell = (mantissa >> (MANTISSA_BITS - 6)) as usize;
    let bucket = mantissa.wrapping_add(CELLS_DEFAULT[cell]) >> MANTISSA_BITS;
    (octave << Exp2::DEFAULT.scale).wrapping_add(bucket).wrapping_add(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scale: i32, value: f64, index: i32) {
        let grid = Exp2::new(scale).unwrap();
        assert_eq!(grid.index(value), index, "scale {scale}, value {value:e}");
        let (lower, upper) = grid.edges(index).unwrap();
        assert!(lower < value && value <= upper, "{value:e} is not in ({lower:e}, {upper:e}]");
        if scale == 5 && value.fract() == 0.0 && (2.0..=9_007_199_254_740_992.0).contains(&value) {
            assert_eq!(default_position(value as u64), (index + 1) as usize);
        }
    }

    #[test]
    fn powers_of_two_close_their_bucket() {
        for scale in Exp2::SCALE_MIN..=Exp2::SCALE_MAX {
            check(scale.into(), 1.0, -1);
            check(scale.into(), 1f64.next_up(), 0);
        }
        check(0, 2.0, 0);
        check(0, 4.0, 1);
        check(0, 2f64.next_up(), 1);
        check(5, 2.0, 31);
        check(8, 2.0, 255);
        check(-1, 4.0, 0);
        check(-1, 4f64.next_up(), 1);
        check(-1, 0.25, -2);
    }

    #[test]
    fn the_ends_of_the_doubles_have_buckets() {
        check(0, f64::MAX, 1023);
        check(8, f64::MAX, 1024 * 256 - 1);
        check(5, f64::MAX, 1024 * 32 - 1);
        check(0, f64::MIN_POSITIVE, -1023);
        check(0, f64::MIN_POSITIVE.next_up(), -1022);
        check(0, f64::from_bits(1), -1075);
        check(0, f64::from_bits(2), -1074);
        check(0, f64::from_bits(3), -1073);
        check(0, f64::from_bits(4), -1073);
        check(8, f64::from_bits(1), -1074 * 256 - 1);
        check(-10, f64::MAX, 0);
        check(-10, f64::from_bits(1), -2);
        assert_eq!(Exp2::new(0).unwrap().edges(1024), None);
        assert_eq!(Exp2::new(0).unwrap().edges(i32::MAX), None);
        assert_eq!(Exp2::new(0).unwrap().edges(i32::MIN), None);
    }

    #[test]
    fn subnormal_values_lie_in_their_bucket() {
        for scale in Exp2::SCALE_MIN..=Exp2::SCALE_MAX {
            for bits in (1..200).chain([1 << 51, (1 << 51) + 1, (1 << 52) - 1]) {
                let value = f64::from_bits(bits);
                check(scale.into(), value, Exp2::new(scale.into()).unwrap().index(value));
            }
        }
    }

    #[test]
    fn every_edge_parts_its_two_buckets() {
        for scale in 0..=8 {
            let grid = Exp2::new(scale).unwrap();
            for octave in [-1022, -1000, -30, -1, 0, 1, 29, 1023] {
                for bucket in 0..1 << scale {
                    let index = (octave << scale) + bucket;
                    let (lower, upper) = grid.edges(index).unwrap();
                    check(scale, lower.next_up(), index);
                    check(scale, upper, index);
                    if upper < f64::MAX {
                        check(scale, upper.next_up(), index + 1);
                    }
                }
            }
        }
    }

    #[test]
    fn a_finer_index_shifts_to_the_coarser_one() {
        let mut value = 1e-300;
        while value < 1e300 {
            let finest = Exp2::new(8).unwrap().index(value);
            for scale in -10..8 {
                check(scale, value, finest >> (8 - scale));
            }
            value *= 1.37;
        }
    }

    #[test]
    fn bounds_are_the_floor_of_the_root() {
        for (k, &bound) in BOUNDS.iter().enumerate() {
            let target = big_power_of_two(63 * 256 + k);
            assert!(big_power(bound.into(), 256) <= target, "entry {k} is above the root");
            if k > 0 {
                assert!(
                    big_power(u128::from(bound) + 1, 256) > target,
                    "entry {k} is not the floor"
                );
            }
        }
    }

    /// Big integers as 32-bit digits, most significant first, without leading zeros, so that `Ord`
    /// on (length, digits) is numeric order.
    type BigDigits = (usize, Vec<u32>);

    fn big(mut digits: Vec<u32>) -> BigDigits {
        let zeros = digits.iter().take_while(|&&d| d == 0).count();
        digits.drain(..zeros);
        (digits.len(), digits)
    }

    fn big_power_of_two(exponent: usize) -> BigDigits {
        let mut digits = vec![0; exponent / 32 + 1];
        digits[0] = 1 << (exponent % 32);
        big(digits)
    }

    fn big_power(base: u128, exponent: u32) -> BigDigits {
        let mut digits = big((0..4).rev().map(|i| (base >> (32 * i)) as u32).collect()).1;
        for _ in 0..exponent.trailing_zeros() {
            digits = big_square(&digits);
        }
        big(digits)
    }

    fn big_square(digits: &[u32]) -> Vec<u32> {
        let n = digits.len();
        let mut product = vec![0u32; 2 * n];
        for i in (0..n).rev() {
            let mut carry = 0u64;
            for j in (0..n).rev() {
                let at = i + j + 1;
                let term =
                    u64::from(digits[i]) * u64::from(digits[j]) + u64::from(product[at]) + carry;
                product[at] = term as u32;
                carry = term >> 32;
            }
            product[i] = carry as u32;
        }
        big(product).1
    }
}
