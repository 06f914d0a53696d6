//! Summary statistics (sum, min, max) with their exactness.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;

/// Summary statistic (sum, min, max) with its exactness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrackedValue<T> {
    /// Exact to the last bit.
    Exact(T),
    /// Approximate: rounded by a source, or computed from buckets.
    Estimated(T),
    /// Not known, but not beyond this value: a maximum is at most, a minimum at least it. Never a
    /// sum.
    Bound(T),
    /// Not reported by the source.
    Absent,
}

impl<T: Copy> TrackedValue<T> {
    /// The value, exact or estimated.
    pub fn value(self) -> Option<T> {
        match self {
            TrackedValue::Exact(value) | TrackedValue::Estimated(value) => Some(value),
            TrackedValue::Bound(_) | TrackedValue::Absent => None,
        }
    }

    /// The value beyond which a minimum or maximum cannot be.
    pub(crate) fn limit(self) -> Option<T> {
        match self {
            TrackedValue::Exact(value) | TrackedValue::Bound(value) => Some(value),
            TrackedValue::Estimated(_) | TrackedValue::Absent => None,
        }
    }

    /// The value if it is exact.
    pub fn exact(self) -> Option<T> {
        match self {
            TrackedValue::Exact(value) => Some(value),
            _ => None,
        }
    }

    /// Combines both values. The result is as uncertain as the worse of the two; with a bound it is
    /// unknown.
    pub(crate) fn combine(self, other: TrackedValue<T>, f: impl Fn(T, T) -> T) -> TrackedValue<T> {
        match (self, other) {
            (TrackedValue::Exact(a), TrackedValue::Exact(b)) => TrackedValue::Exact(f(a, b)),
            (TrackedValue::Bound(_) | TrackedValue::Absent, _)
            | (_, TrackedValue::Bound(_) | TrackedValue::Absent) => TrackedValue::Absent,
            (
                TrackedValue::Exact(a) | TrackedValue::Estimated(a),
                TrackedValue::Exact(b) | TrackedValue::Estimated(b),
            ) => TrackedValue::Estimated(f(a, b)),
        }
    }

    /// The value changed by a function, as exact as before.
    pub(crate) fn map(self, f: impl Fn(T) -> T) -> TrackedValue<T> {
        match self {
            TrackedValue::Exact(value) => TrackedValue::Exact(f(value)),
            TrackedValue::Estimated(value) => TrackedValue::Estimated(f(value)),
            TrackedValue::Bound(value) => TrackedValue::Bound(f(value)),
            TrackedValue::Absent => TrackedValue::Absent,
        }
    }

    /// The same value, marked as estimated.
    pub fn downgrade(self) -> TrackedValue<T> {
        self.value().map_or(TrackedValue::Absent, TrackedValue::Estimated)
    }
}

impl<T: fmt::Display> fmt::Display for TrackedValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackedValue::Exact(value) => write!(f, "{value}"),
            TrackedValue::Estimated(value) => write!(f, "~{value}"),
            TrackedValue::Bound(value) => write!(f, "not beyond {value}"),
            TrackedValue::Absent => write!(f, "unknown"),
        }
    }
}

/// Double-double sum with at least 100 bits (error-free addition of T. J. Dekker and D. E. Knuth).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DoubleDouble {
    high: f64,
    low: f64,
}

impl DoubleDouble {
    /// Zero.
    pub const ZERO: DoubleDouble = DoubleDouble { high: 0.0, low: 0.0 };

    /// A sum of one number.
    pub fn new(value: f64) -> DoubleDouble {
        DoubleDouble { high: value, low: 0.0 }
    }

    /// A sum from its two parts, as returned by [`Self::parts`].
    pub fn from_parts(high: f64, low: f64) -> DoubleDouble {
        let (high, low) = two_sum(high, low);
        DoubleDouble { high, low }
    }

    /// The nearest double, and the remainder. A sum of −0 becomes 0: the two are equal, but −0
    /// would not survive the split into two parts.
    pub fn parts(self) -> (f64, f64) {
        (self.high + 0.0, self.low + 0.0)
    }

    /// A whole number.
    pub fn from_integer(value: u128) -> DoubleDouble {
        let high = value as f64;
        // `high` may round up to 2^128; the cast back then saturates and the difference stays
        // correct.
        let back = high as u128;
        let low = if back >= value {
            -(back.wrapping_sub(value) as f64)
        } else {
            value.wrapping_sub(back) as f64
        };
        DoubleDouble::from_parts(high, low)
    }

    /// The sum, rounded to a double.
    pub fn value(self) -> f64 {
        self.high + self.low
    }

    /// The sum divided by `n`, rounded to a double.
    pub(crate) fn divide(self, n: u64) -> f64 {
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

    /// Whether the sum is a whole number.
    pub(crate) fn is_integer(self) -> bool {
        self.high.fract() == 0.0 && self.low.fract() == 0.0
    }

    /// `n` times the sum.
    pub(crate) fn times(self, n: u64) -> DoubleDouble {
        DoubleDouble::product(self.high, n).plus(DoubleDouble::product(self.low, n))
    }

    /// Sum of both.
    pub fn plus(self, other: DoubleDouble) -> DoubleDouble {
        let (high, error) = two_sum(self.high, other.high);
        if !high.is_finite() {
            return DoubleDouble::new(high);
        }
        let (low, rest) = two_sum(self.low, other.low);
        let (high, error) = fast_two_sum(high, error + low);
        let (high, low) = fast_two_sum(high, error + rest);
        DoubleDouble { high, low }
    }

    /// Difference of both.
    pub fn minus(self, other: DoubleDouble) -> DoubleDouble {
        self.plus(DoubleDouble { high: -other.high, low: -other.low })
    }

    /// `value * times`, exact while both fit their words.
    pub(crate) fn product(value: f64, times: u64) -> DoubleDouble {
        if times == 1 {
            return DoubleDouble::new(value);
        }
        let times_high = times as f64;
        let high = value * times_high;
        if !high.is_finite() {
            return DoubleDouble::new(high);
        }
        let error = value.mul_add(times_high, -high);
        let times_low = i128::from(times).wrapping_sub(times_high as i128) as f64;
        DoubleDouble::from_parts(high, error + value * times_low)
    }
}

/// Rounded sum and rounding error.
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
        let mut sum = DoubleDouble::default();
        let mut truth = 0u128;
        for i in 0..100_000u64 {
            let value = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
            sum = sum.plus(DoubleDouble::new(value as f64));
            truth += u128::from(value);
        }
        assert_eq!(sum, DoubleDouble::from_integer(truth));
        assert_eq!(sum.minus(DoubleDouble::from_integer(truth)).value(), 0.0);
    }

    #[test]
    fn order_does_not_matter_for_tenths() {
        let forth = (1..=1000)
            .fold(DoubleDouble::default(), |s, i| s.plus(DoubleDouble::new(f64::from(i) * 0.1)));
        let back = (1..=1000)
            .rev()
            .fold(DoubleDouble::default(), |s, i| s.plus(DoubleDouble::new(f64::from(i) * 0.1)));
        assert_eq!(forth.value(), back.value());
    }

    #[test]
    fn a_product_is_the_repeated_sum() {
        let product = DoubleDouble::product(0.1, 1_000_003);
        let sum =
            (0..1_000_003).fold(DoubleDouble::default(), |s, _| s.plus(DoubleDouble::new(0.1)));
        assert_eq!(product.value(), sum.value());
        assert_eq!(
            DoubleDouble::product(3.0, u64::MAX),
            DoubleDouble::from_integer(3 * u128::from(u64::MAX))
        );
    }

    #[test]
    fn infinity_and_cancellation_do_not_make_nan() {
        assert_eq!(
            DoubleDouble::new(f64::INFINITY).plus(DoubleDouble::new(1.0)).value(),
            f64::INFINITY
        );
        assert_eq!(
            DoubleDouble::new(f64::MAX).plus(DoubleDouble::new(f64::MAX)).value(),
            f64::INFINITY
        );
        assert_eq!(
            DoubleDouble::new(1e300)
                .plus(DoubleDouble::new(1.0))
                .minus(DoubleDouble::new(1e300))
                .value(),
            1.0
        );
    }
}
