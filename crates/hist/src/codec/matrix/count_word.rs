//! Width of counts in memory.

use super::NARROW_BITS;

/// Memory for counts of either width, for several matrices.
#[derive(Debug, Default)]
pub(in crate::codec) struct CountBuffer {
    pub(in crate::codec) narrow: Vec<u32>,
    pub(in crate::codec) wide: Vec<u64>,
}

/// Count as decoded: `u32` where possible (twice as many per vector), else `u64`.
pub(crate) trait CountWord: Copy + Default + PartialEq {
    /// Conversion to the nearest double.
    fn double(self) -> f64;
    /// Number of bits of a count.
    const BITS: u32;
    /// The low bits of `value`.
    fn low(value: u64) -> Self;
    fn wide(self) -> u64;
    fn plus(self, other: Self) -> Self;
    /// Adds the count to a total; saturates where the total may overflow.
    fn saturating_add_to(self, total: u64) -> u64;
    /// Sum of cells: exact if no count has more than `BITS` bits, else modulo 2^64 or 2^32.
    fn sum(cells: &[Self]) -> u64;
    fn or(self, other: Self) -> Self;
    /// Predicted count, modulo 2^64 or 2^32.
    fn predicted_count(rate: u32, scale: u32, shift: u32) -> Self;
    /// The part of a buffer for this width.
    fn buffer(buffer: &mut CountBuffer) -> &mut Vec<Self>;
}

impl CountWord for u32 {
    const BITS: u32 = NARROW_BITS;
    #[inline(always)]
    fn low(value: u64) -> u32 {
        value as u32
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }
    #[inline(always)]
    fn double(self) -> f64 {
        // Counts have NARROW_BITS bits, so the cast is exact; conversions of signed numbers are
        // vectorised.
        f64::from(self as i32)
    }
    #[inline(always)]
    fn plus(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn saturating_add_to(self, total: u64) -> u64 {
        // A matrix has too few cells to overflow.
        total.wrapping_add(self.into())
    }
    #[inline(always)]
    fn sum(cells: &[u32]) -> u64 {
        cells.iter().fold(0u32, |sum, &n| sum.wrapping_add(n)).into()
    }
    #[inline(always)]
    fn or(self, other: u32) -> u32 {
        self | other
    }
    #[inline(always)]
    fn predicted_count(rate: u32, scale: u32, shift: u32) -> u32 {
        (u64::from(rate).wrapping_mul(u64::from(scale)) >> shift) as u32
    }
    fn buffer(buffer: &mut CountBuffer) -> &mut Vec<u32> {
        &mut buffer.narrow
    }
}

impl CountWord for u64 {
    const BITS: u32 = 64;
    #[inline(always)]
    fn low(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }
    #[inline(always)]
    fn double(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn plus(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn saturating_add_to(self, total: u64) -> u64 {
        total.saturating_add(self)
    }
    #[inline(always)]
    fn sum(cells: &[u64]) -> u64 {
        cells.iter().fold(0, |sum, &n| n.saturating_add(sum))
    }
    #[inline(always)]
    fn or(self, other: u64) -> u64 {
        self | other
    }
    #[inline(always)]
    fn predicted_count(rate: u32, scale: u32, shift: u32) -> u64 {
        u64::from(rate).wrapping_mul(u64::from(scale)) >> shift
    }
    fn buffer(buffer: &mut CountBuffer) -> &mut Vec<u64> {
        &mut buffer.wide
    }
}

/// Sum and bitwise OR of counts.
#[inline(always)]
pub(crate) fn total<T: CountWord>(cells: &[T]) -> (u64, T) {
    if T::BITS < 64 {
        // Eight sums at a time, as in vectors.
        let (mut sums, mut all) = ([T::default(); 8], [T::default(); 8]);
        let (eights, rest) = cells.as_chunks::<8>();
        for eight in eights {
            for at in 0..8 {
                sums[at] = sums[at].plus(eight[at]);
                all[at] = all[at].or(eight[at]);
            }
        }
        let (sum, all) = sums
            .iter()
            .zip(&all)
            .chain(rest.iter().zip(rest))
            .fold((T::default(), T::default()), |(sum, all), (&n, &bits)| {
                (sum.plus(n), all.or(bits))
            });
        return (sum.wide(), all);
    }
    cells.iter().fold((0, T::default()), |(sum, all), &n| (n.wide().saturating_add(sum), all.or(n)))
}
