//! Values kept beside the buckets, and how far each is to be trusted.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;

/// A side value with its standing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side<T> {
    /// What was recorded, to the last bit.
    Exact(T),
    /// Near to what was recorded: rounded by a source, or worked out from buckets.
    Estimated(T),
    /// The source does not say.
    Absent,
}

impl<T: Copy> Side<T> {
    /// The value, whatever its standing.
    pub fn value(self) -> Option<T> {
        match self {
            Side::Exact(value) | Side::Estimated(value) => Some(value),
            Side::Absent => None,
        }
    }

    /// The value if it is exact.
    pub fn exact(self) -> Option<T> {
        match self {
            Side::Exact(value) => Some(value),
            _ => None,
        }
    }

    /// Both combined, no better known than the worse of the two.
    pub(crate) fn combine(self, other: Side<T>, f: impl Fn(T, T) -> T) -> Side<T> {
        match (self, other) {
            (Side::Exact(a), Side::Exact(b)) => Side::Exact(f(a, b)),
            (Side::Absent, _) | (_, Side::Absent) => Side::Absent,
            (Side::Exact(a) | Side::Estimated(a), Side::Exact(b) | Side::Estimated(b)) => {
                Side::Estimated(f(a, b))
            }
        }
    }

    /// The same value, no longer exact.
    pub fn doubted(self) -> Side<T> {
        self.value().map_or(Side::Absent, Side::Estimated)
    }
}

impl<T: fmt::Display> fmt::Display for Side<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Side::Exact(value) => write!(f, "{value}"),
            Side::Estimated(value) => write!(f, "~{value}"),
            Side::Absent => write!(f, "unknown"),
        }
    }
}

/// A sum of doubles carried in two words: as if added with at least 100 bits, so whole numbers are summed
/// exactly up to 2^100 in any order (T. J. Dekker's and D. E. Knuth's error-free addition).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    high: f64,
    low: f64,
}

impl Sum {
    /// Nothing.
    pub const ZERO: Sum = Sum { high: 0.0, low: 0.0 };

    /// A sum that is this one number.
    pub fn new(value: f64) -> Sum {
        Sum { high: value, low: 0.0 }
    }

    /// A sum in two parts, as [`Self::parts`] gave them.
    pub fn from_parts(high: f64, low: f64) -> Sum {
        let (high, low) = two_sum(high, low);
        Sum { high, low }
    }

    /// The part a double holds, and what it lacks. A sum of −0 is 0: it equals it, but would not come back
    /// as −0 from the two parts.
    pub fn parts(self) -> (f64, f64) {
        (self.high + 0.0, self.low + 0.0)
    }

    /// A whole number.
    pub fn from_integer(value: u128) -> Sum {
        let high = value as f64;
        // `high` may round up to 2^128; the cast back then saturates and the difference stays right.
        let back = high as u128;
        let low = if back >= value {
            -(back.wrapping_sub(value) as f64)
        } else {
            value.wrapping_sub(back) as f64
        };
        Sum::from_parts(high, low)
    }

    /// The sum, rounded to a double.
    pub fn value(self) -> f64 {
        self.high + self.low
    }

    /// The sum divided by `n`, rounded to a double.
    pub(crate) fn over(self, n: u64) -> f64 {
        let divisor = n as f64;
        let quotient = self.value() / divisor;
        if !quotient.is_finite() {
            return quotient;
        }
        let lacking = i128::from(n).wrapping_sub(divisor as i128) as f64;
        let rest = (-quotient).mul_add(divisor, self.high) + (self.low - quotient * lacking);
        let corrected = quotient + rest / divisor;
        if corrected.is_finite() { corrected } else { quotient }
    }

    /// Whether there is nothing behind the point.
    pub(crate) fn is_whole(self) -> bool {
        self.high.fract() == 0.0 && self.low.fract() == 0.0
    }

    /// The sum `n` times over.
    pub(crate) fn times(self, n: u64) -> Sum {
        Sum::product(self.high, n).plus(Sum::product(self.low, n))
    }

    /// Both sums together.
    pub fn plus(self, other: Sum) -> Sum {
        let (high, error) = two_sum(self.high, other.high);
        if !high.is_finite() {
            return Sum::new(high);
        }
        let (low, rest) = two_sum(self.low, other.low);
        let (high, error) = fast_two_sum(high, error + low);
        let (high, low) = fast_two_sum(high, error + rest);
        Sum { high, low }
    }

    /// This sum without the other.
    pub(crate) fn minus(self, other: Sum) -> Sum {
        self.plus(Sum { high: -other.high, low: -other.low })
    }

    /// `value * times`, exact while both fit their words.
    pub(crate) fn product(value: f64, times: u64) -> Sum {
        if times == 1 {
            return Sum::new(value);
        }
        let times_high = times as f64;
        let high = value * times_high;
        if !high.is_finite() {
            return Sum::new(high);
        }
        let error = value.mul_add(times_high, -high);
        let times_low = i128::from(times).wrapping_sub(times_high as i128) as f64;
        Sum::from_parts(high, error + value * times_low)
    }
}

/// The rounded sum and what the rounding lost.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let b_seen = sum - a;
    (sum, (a - (sum - b_seen)) + (b - b_seen))
}

/// As [`two_sum`], for `|a| >= |b|`.
fn fast_two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    if !sum.is_finite() { (sum, 0.0) } else { (sum, b - (sum - a)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_sum_exactly() {
        let mut sum = Sum::default();
        let mut truth = 0u128;
        for i in 0..100_000u64 {
            let value = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
            sum = sum.plus(Sum::new(value as f64));
            truth += u128::from(value);
        }
        assert_eq!(sum, Sum::from_integer(truth));
        assert_eq!(sum.minus(Sum::from_integer(truth)).value(), 0.0);
    }

    #[test]
    fn order_does_not_matter_for_tenths() {
        let forth = (1..=1000).fold(Sum::default(), |s, i| s.plus(Sum::new(f64::from(i) * 0.1)));
        let back =
            (1..=1000).rev().fold(Sum::default(), |s, i| s.plus(Sum::new(f64::from(i) * 0.1)));
        assert_eq!(forth.value(), back.value());
    }

    #[test]
    fn a_product_is_the_repeated_sum() {
        let product = Sum::product(0.1, 1_000_003);
        let sum = (0..1_000_003).fold(Sum::default(), |s, _| s.plus(Sum::new(0.1)));
        assert_eq!(product.value(), sum.value());
        assert_eq!(Sum::product(3.0, u64::MAX), Sum::from_integer(3 * u128::from(u64::MAX)));
    }

    #[test]
    fn infinity_and_cancellation_do_not_make_nan() {
        assert_eq!(Sum::new(f64::INFINITY).plus(Sum::new(1.0)).value(), f64::INFINITY);
        assert_eq!(Sum::new(f64::MAX).plus(Sum::new(f64::MAX)).value(), f64::INFINITY);
        assert_eq!(Sum::new(1e300).plus(Sum::new(1.0)).minus(Sum::new(1e300)).value(), 1.0);
    }
}
