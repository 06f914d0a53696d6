//! Bounds from the exact sum: how many values of a wide bucket can be at either of its ends.
//!
//! With all values at the lower ends of their cells the sum would be smaller by the *excess*, at
//! the upper ends larger by the *deficit*. A value above `x` in a cell that begins at `lower` uses
//! at least `x - lower` of the excess (Markov's inequality with the other buckets taken into
//! account), and a value at or below `x` at least `upper - x` of the deficit. In narrow buckets
//! this says little; in a bucket of 0 to 5 s whose values have a mean of 47 ms it says most.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::histogram::Histogram;
use crate::tracked_value::DoubleDouble;

/// Share of the sum by which a source may have rounded it: a source adds doubles one by one, and
/// the sum of an interval is the difference of two such sums, which may be much larger.
const ROUNDING: f64 = 1e-6;
/// Rounding of the products and sums below, per magnitude.
const COMPUTATION: f64 = 1e-12;

/// Excess and deficit of an exact sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumBounds {
    /// Sum above that of all lower ends.
    excess: f64,
    /// Sum below that of all upper ends; infinite if an end is.
    deficit: f64,
}

impl SumBounds {
    /// `None` without an exact finite sum, if it contradicts the cells, and if a value may be
    /// negative: values of both signs cancel, and the sum then says little.
    pub(crate) fn of(histogram: &Histogram) -> Option<SumBounds> {
        let sum = histogram.tracked_sum().exact().map(DoubleDouble::value)?;
        let may_be_negative = histogram.cells().next().is_none_or(|cell| cell.lower < 0.0);
        if !sum.is_finite() || may_be_negative {
            return None;
        }
        let ends = histogram.cells().map(|cell| {
            let count = cell.count as f64;
            (cell.lower * count, cell.upper * count)
        });
        let (lowest, highest) = ends.fold((0.0, 0.0), |all, cell| (all.0 + cell.0, all.1 + cell.1));
        let slack = |end: f64| match end.is_finite() {
            true => sum.abs() * ROUNDING + end.abs() * COMPUTATION,
            false => 0.0,
        };
        let (excess, deficit) = (sum - lowest + slack(lowest), highest - sum + slack(highest));
        (excess >= 0.0 && deficit >= 0.0).then_some(SumBounds { excess, deficit })
    }

    /// Number of values below `x`, narrowed: `below` are certain, and those of `cell`, which
    /// contains `x`, possible.
    pub(crate) fn narrow_count(&self, below: Bracket<u64>, cell: &Cell, x: f64) -> Bracket<u64> {
        let certain = below.lower;
        let above = uses(self.excess, x - cell.lower, cell.count);
        let not_above = uses(self.deficit, cell.upper - x, cell.count);
        let lower = certain.saturating_add(cell.count.saturating_sub(above));
        let upper = certain.saturating_add(not_above).min(below.upper);
        if lower > upper { below } else { Bracket::new(lower, below.estimate, upper) }
    }

    /// The `k`-th of `count` values of a cell, narrowed.
    pub(crate) fn narrow_rank(&self, value: Bracket, k: u64, count: u64) -> Bracket {
        // This value and those above it in the cell; this one and those below it.
        let (from, to) = (count.saturating_sub(k).saturating_add(1) as f64, k as f64);
        let upper = (value.lower + self.excess / from).min(value.upper);
        let lower = (value.upper - self.deficit / to).max(value.lower);
        if lower <= upper { Bracket::new(lower, value.estimate, upper) } else { value }
    }
}

/// How many of `count` values can use `each` of `all`.
fn uses(all: f64, each: f64, count: u64) -> u64 {
    let most = all / each;
    // NaN if both are zero or infinite. The difference to an end may be a negative zero.
    if each > 0.0 && most < count as f64 { most as u64 } else { count }
}
