//! Bracket: a statistic with lower and upper bound.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::scheme::times_power_of_two;

/// Statistic with bounds: the true value lies in `lower..=upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket<T = f64> {
    /// Lower bound of the true value.
    pub lower: T,
    /// Best estimate.
    pub estimate: T,
    /// Upper bound of the true value.
    pub upper: T,
}

impl<T: PartialOrd + Copy> Bracket<T> {
    /// A value known exactly.
    pub fn exact(value: T) -> Bracket<T> {
        Bracket { lower: value, estimate: value, upper: value }
    }

    /// A bracket whose `estimate` is clamped to `lower..=upper`; NaN becomes `lower`.
    pub(crate) fn new(lower: T, estimate: T, upper: T) -> Bracket<T> {
        let raised = if estimate >= lower { estimate } else { lower };
        Bracket { lower, estimate: if raised > upper { upper } else { raised }, upper }
    }

    /// Whether the bracket has no width.
    pub fn is_exact(&self) -> bool {
        self.lower == self.upper
    }

    /// Whether `value` is within the bounds.
    pub fn contains(&self, value: T) -> bool {
        self.lower <= value && value <= self.upper
    }
}

impl Bracket<u64> {
    /// The count as a share of `n`, 0 to 1; NaN if `n` is 0.
    pub fn fraction_of(self, n: u64) -> Bracket {
        let share = |count: u64| count as f64 / n as f64;
        Bracket {
            lower: share(self.lower),
            estimate: share(self.estimate),
            upper: share(self.upper),
        }
    }

    /// Number of the other values among `n`. No count exceeds `n`.
    pub fn complement(self, n: u64) -> Bracket<u64> {
        Bracket {
            lower: n.saturating_sub(self.upper),
            estimate: n.saturating_sub(self.estimate),
            upper: n.saturating_sub(self.lower),
        }
    }
}

impl Bracket<f64> {
    /// Whether the bounds differ by more than a factor of two, or in sign: the estimate, which
    /// assumes evenly spread values, is then a guess.
    pub fn is_wide(&self) -> bool {
        match self.lower < 0.0 {
            true => self.upper > 0.0 || self.lower < 2.0 * self.upper,
            false => self.upper > 2.0 * self.lower,
        }
    }

    /// Applies a non-decreasing function (unit conversion, root, logarithm) to all three values.
    /// The caller accounts for rounding.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Bracket {
        Bracket::new(f(self.lower), f(self.estimate), f(self.upper))
    }

    /// Widens the bounds by a few roundings of a double, for results of computations. A bound of
    /// zero stays: it is exact.
    pub(crate) fn widen(self) -> Bracket {
        let uncertainty = 4.0 * f64::EPSILON;
        let open = |x: f64| x.is_finite() && x != 0.0;
        let (lower, upper) = (self.lower, self.upper);
        Bracket {
            lower: if open(lower) {
                (lower - lower.abs() * uncertainty).next_down()
            } else {
                lower
            },
            upper: if open(upper) { (upper + upper.abs() * uncertainty).next_up() } else { upper },
            ..self
        }
    }

    /// `2^exponent` times the bracket, rounded outwards.
    pub(crate) fn scale_by_pow2(self, exponent: i64) -> Bracket {
        self.map(|x| times_power_of_two(x, exponent.clamp(-5000, 5000) as i32)).widen()
    }
}
