//! Bracket: a statistic with lower and upper bound.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::scheme::times_power_of_two;

/// Statistic with bounds: the true value lies in `lower..=upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bracket<T = f64> {
    /// The truth is not below.
    pub lower: T,
    /// The best single number.
    pub estimate: T,
    /// The truth is not above.
    pub upper: T,
}

impl<T: PartialOrd + Copy> Bracket<T> {
    /// A value known exactly.
    pub fn exact(value: T) -> Bracket<T> {
        Bracket { lower: value, estimate: value, upper: value }
    }

    /// `estimate`, moved into `lower..=upper` if it lies outside or is not a number.
    pub(crate) fn new(lower: T, estimate: T, upper: T) -> Bracket<T> {
        let raised = if estimate >= lower { estimate } else { lower };
        Bracket { lower, estimate: if raised > upper { upper } else { raised }, upper }
    }

    /// Whether the bracket has no width.
    pub fn is_exact(&self) -> bool {
        self.lower == self.upper
    }

    /// Whether `value` may be the truth.
    pub fn contains(&self, value: T) -> bool {
        self.lower <= value && value <= self.upper
    }
}

impl Bracket<u64> {
    /// The count as a share of all `n`, 0 to 1; NaN of none.
    pub fn fraction_of(self, n: u64) -> Bracket {
        let share = |count: u64| count as f64 / n as f64;
        Bracket {
            lower: share(self.lower),
            estimate: share(self.estimate),
            upper: share(self.upper),
        }
    }

    /// How many of `n` the others are. No count is above `n`.
    pub fn complement(self, n: u64) -> Bracket<u64> {
        Bracket {
            lower: n.saturating_sub(self.upper),
            estimate: n.saturating_sub(self.estimate),
            upper: n.saturating_sub(self.lower),
        }
    }
}

impl Bracket<f64> {
    /// The same answer after `f`, which must never fall: a unit, a root, a logarithm. Rounding is
    /// the caller's.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Bracket {
        Bracket::new(f(self.lower), f(self.estimate), f(self.upper))
    }

    /// Bounds moved outwards by a few roundings of a double, for what was computed from them. Zero
    /// stays: it is what rounding makes of nothing.
    pub(crate) fn widen(self) -> Bracket {
        let doubt = 4.0 * f64::EPSILON;
        let open = |x: f64| x.is_finite() && x != 0.0;
        let (lower, upper) = (self.lower, self.upper);
        Bracket {
            lower: if open(lower) { (lower - lower.abs() * doubt).next_down() } else { lower },
            upper: if open(upper) { (upper + upper.abs() * doubt).next_up() } else { upper },
            ..self
        }
    }

    /// `2^exponent` times the answer, rounded outwards.
    pub(crate) fn scale_by_pow2(self, exponent: i64) -> Bracket {
        self.map(|x| times_power_of_two(x, exponent.clamp(-5000, 5000) as i32)).widen()
    }
}
