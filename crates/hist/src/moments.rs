//! Power sums and variance over cells, with rounding included in the bounds.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: the exponent of a double has 11 bits, so its product with a `u32`
// fits 64 bits.

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::scheme::times_power_of_two;

/// Bracket of the sum of the `k`-th powers of all values divided by `divisor`.
pub(crate) fn power_sum(
    cells: impl Iterator<Item = Cell> + Clone,
    k: u32,
    divisor: f64,
) -> Bracket {
    // For larger `k` even the largest of the scaled powers may underflow.
    let exponent: i32 = if k <= 512 { exponent_of_greatest(cells.clone()) } else { 0 };
    let unit = times_power_of_two(1.0, exponent.wrapping_neg());
    // Repeated multiplication: small powers of whole numbers are exact.
    let power = |x: f64| match k {
        0..=16 => x.powi(k as i32),
        _ if x < 0.0 && k % 2 == 1 => -(-x).powf(k.into()),
        _ => x.abs().powf(k.into()),
    };
    let mut total = BoundedSum::default();
    for cell in cells {
        let weight = cell.count as f64 / divisor;
        let (a, b) = (power(cell.lower * unit), power(cell.upper * unit));
        for (bound, power) in [(cell.lower, a), (cell.upper, b)] {
            total.vanished +=
                if bound != 0.0 && !power.is_normal() { f64::MIN_POSITIVE } else { 0.0 };
        }
        let around_zero = k > 0 && k.is_multiple_of(2) && cell.lower < 0.0 && cell.upper > 0.0;
        let low = if around_zero { 0.0 } else { a.min(b) };
        let high = a.max(b);
        // A power that overflows is at least the largest double; its weighted share may not
        // overflow.
        let (low, high) =
            if k <= 512 { (low, high) } else { (low.min(f64::MAX), high.max(f64::MIN)) };
        total.add(weight * low, weight * power(cell.middle() * unit), weight * high);
    }
    total.bracket(k.min(16).into()).scale_by_pow2(i64::from(exponent).wrapping_mul(k.into()))
}

/// Mean squared distance from the mean, which lies in `mean`, divided by `2^(2 * exponent)`, and
/// that exponent: squares of doubles may overflow. The estimate assumes evenly spread values in a
/// cell; the bounds hold for any values.
pub(crate) fn variance(
    cells: impl Iterator<Item = Cell> + Clone,
    count: u64,
    mean: Bracket,
) -> (Bracket, i64) {
    // An open cell has no finite end, but a sum may show that its values are far out.
    let of_mean = Cell { lower: mean.lower, upper: mean.upper, count: 0 };
    let exponent = exponent_of_greatest(cells.clone().chain([of_mean]));
    let unit = times_power_of_two(1.0, exponent.wrapping_neg());
    let mean = mean.widen().map(|mean| mean * unit);
    let centre = if mean.estimate.is_finite() { mean.estimate } else { 0.0 };
    let n = count as f64;
    let mut total = BoundedSum::default();
    for cell in cells {
        let weight = cell.count as f64 / n;
        let cell = Cell { lower: cell.lower * unit, upper: cell.upper * unit, ..cell };
        let nearest = cell.distance_from((mean.lower, mean.upper));
        // The variance is minimal about the mean, so distances from any other point bound it from
        // above.
        let farthest = (cell.lower - centre).abs().max((cell.upper - centre).abs());
        let (low, high) = cell.finite();
        let width = if low < high { high - low } else { 0.0 };
        let middle = cell.middle() - centre;
        let spread = middle * middle + width * width / 12.0;
        total.add(weight * nearest * nearest, weight * spread, weight * farthest * farthest);
    }
    let bracket = total.bracket(8.0);
    (Bracket { lower: bracket.lower.max(0.0), ..bracket }, exponent.into())
}

/// Power of two that scales the largest finite bound to between 1/2 and 1, so that its powers
/// neither overflow nor underflow. The scaling is exact.
fn exponent_of_greatest(cells: impl Iterator<Item = Cell>) -> i32 {
    let finite = |x: f64| if x.is_finite() { x.abs() } else { 0.0 };
    let greatest =
        cells.fold(0.0, |greatest: f64, c| greatest.max(finite(c.lower)).max(finite(c.upper)));
    ((greatest.to_bits() >> 52) as i32).wrapping_sub(1022).max(-1021)
}

/// Sum of bounds with rounding error tracking.
#[derive(Default)]
struct BoundedSum {
    lower: f64,
    estimate: f64,
    upper: f64,
    magnitude_lower: f64,
    magnitude_upper: f64,
    /// Upper bound of the error from terms that underflowed.
    vanished: f64,
    terms: u32,
}

impl BoundedSum {
    fn add(&mut self, lower: f64, estimate: f64, upper: f64) {
        self.lower += lower;
        self.estimate += estimate;
        self.upper += upper;
        self.magnitude_lower += lower.abs();
        self.magnitude_upper += upper.abs();
        self.terms = self.terms.saturating_add(1);
    }

    /// The sums, widened by one rounding for each addition and `roundings` for each term.
    /// Infinities of both signs give an unbounded bracket.
    fn bracket(self, roundings: f64) -> Bracket {
        let uncertainty = (f64::from(self.terms) + roundings + 4.0) * f64::EPSILON;
        let vanished = self.vanished;
        let moved = |x: f64, uncertainty: f64| if x.is_finite() { x + uncertainty } else { x };
        let known = |x: f64, or: f64| if x.is_nan() { or } else { x };
        Bracket::new(
            known(
                moved(self.lower, -uncertainty * self.magnitude_lower - vanished),
                f64::NEG_INFINITY,
            ),
            self.estimate,
            known(moved(self.upper, uncertainty * self.magnitude_upper + vanished), f64::INFINITY),
        )
    }
}
