//! Statistics with bounds.
//!
//! If a summary statistic is exact the bracket has no width; otherwise it is as wide as the buckets
//! leave open. `None` means that there are no values. Variance and moments are those of the
//! recorded values (divided by n, not n − 1).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: the total of a histogram, NaN included, fits 64 bits, and so does any sum of
// its counts.

use crate::bracket::Bracket;
use crate::cells::{Cell, count_matching};
use crate::histogram::Histogram;
use crate::moments;
use crate::scheme::BucketPosition;
use crate::sum_bounds::SumBounds;
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Whether values equal to the limit are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitInclusion {
    /// Values equal to the limit are included.
    Inclusive,
    /// Values equal to the limit are excluded.
    Exclusive,
}

impl Histogram {
    /// Sum of all values. An exact sum is the true sum rounded to a double; if 100 bits do not
    /// decide between two neighbouring doubles, either of them. Infinities of both signs have no
    /// sum: the bracket is the whole line.
    pub fn sum(&self) -> Bracket {
        if self.is_empty() {
            return Bracket::exact(0.0);
        }
        if let Some(sum) = self.exact_sum() {
            let [lower, estimate, upper] = sum.map(DoubleDouble::value);
            return Bracket::new(lower, estimate, upper);
        }
        let from_cells = self.sum_from_cells();
        let estimate = self.tracked_sum().value().map_or(from_cells.estimate, DoubleDouble::value);
        Bracket::new(from_cells.lower, estimate, from_cells.upper)
    }

    pub(crate) fn sum_from_cells(&self) -> Bracket {
        moments::power_sum(self.cells(), 1, 1.0)
    }

    /// The exact sum with its remaining uncertainty if values of both signs cancel:
    /// [`DoubleDouble`] has 100 bits, and the difference of large sums may lie below them. `None`
    /// without an exact sum, and if it is only known that intermediate results overflowed.
    pub(crate) fn exact_sum(&self) -> Option<[DoubleDouble; 3]> {
        let sum = self.tracked_sum().exact()?;
        let (min, max) = (self.min()?, self.max()?);
        if min.lower >= 0.0 || max.upper <= 0.0 {
            return Some([sum; 3]);
        }
        let magnitude = min.lower.abs().max(max.upper.abs());
        let n = self.count() as f64;
        let value = sum.value();
        let recorded = |end: Bracket| end.is_exact() && end.estimate.is_infinite();
        if magnitude.is_infinite() && value.is_finite() && !recorded(min) && !recorded(max) {
            // Only the source knows the values of an open bucket, and it reports their sum.
            return Some([sum; 3]);
        }
        if value.is_infinite() {
            return (min.is_exact() && max.is_exact() && magnitude.is_infinite())
                .then_some([sum; 3]);
        }
        // Every addition is off by at most 2^-103 of the running sum; more than 2^40 additions take
        // hours.
        let uncertainty = n.min(2f64.powi(40)) * 2f64.powi(-103) * n * magnitude;
        // An uncertainty below 2^-17 of the last digit has no effect.
        if uncertainty <= value.abs() * 2f64.powi(-70)
            || sum.is_integer() && self.may_be_integers() && n * magnitude < 2f64.powi(90)
        {
            return Some([sum; 3]);
        }
        if !uncertainty.is_finite() {
            return None;
        }
        Some([
            sum.minus(DoubleDouble::new(uncertainty)),
            sum,
            sum.plus(DoubleDouble::new(uncertainty)),
        ])
    }

    /// Smallest value.
    pub fn min(&self) -> Option<Bracket> {
        (!self.is_empty()).then(|| self.extreme(self.tracked_min(), 1))
    }

    /// Largest value.
    pub fn max(&self) -> Option<Bracket> {
        (!self.is_empty()).then(|| self.extreme(self.tracked_max(), self.count()))
    }

    /// An extreme is the value of its rank, so that no quantile is estimated beyond it, unless its
    /// source has its own estimate.
    fn extreme(&self, side: TrackedValue<f64>, rank: u64) -> Bracket {
        let known = self.order_statistic(rank);
        match side {
            TrackedValue::Estimated(value) => Bracket::new(known.lower, value, known.upper),
            TrackedValue::Exact(_) | TrackedValue::Bound(_) | TrackedValue::Absent => known,
        }
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> Option<Bracket> {
        let (least, greatest) = (self.min()?, self.max()?);
        let from_cells = || moments::power_sum(self.cells(), 1, self.count() as f64);
        let mean = match self.exact_sum() {
            Some([lower, sum, upper]) if lower.value().is_finite() && upper.value().is_finite() => {
                let mean = [lower, sum, upper].map(|sum| sum.divide(self.count()));
                Bracket::new(mean[0], mean[1], mean[2])
            }
            Some([_, sum, _]) if least.lower == greatest.upper => Bracket::exact(sum.value()),
            _ => {
                let mean = from_cells();
                let near = self.tracked_sum().value().map(|sum| sum.divide(self.count()));
                let near = near.filter(|near| near.is_finite());
                Bracket::new(mean.lower, near.unwrap_or(mean.estimate), mean.upper)
            }
        };
        // A mean of equal values may be rounded beyond them.
        Some(mean.map(|mean| mean.clamp(least.lower, greatest.upper)))
    }

    /// Mean squared distance from the mean of the recorded values (population variance).
    pub fn variance(&self) -> Option<Bracket> {
        let (variance, exponent) = moments::variance(self.cells(), self.count(), self.mean()?);
        Some(variance.scale_by_pow2(exponent.wrapping_mul(2)))
    }

    /// Square root of [`Self::variance`].
    pub fn stddev(&self) -> Option<Bracket> {
        let (variance, exponent) = moments::variance(self.cells(), self.count(), self.mean()?);
        Some(variance.map(f64::sqrt).widen().scale_by_pow2(exponent))
    }

    /// Mean of the `k`-th powers of the values (raw moment).
    pub fn moment(&self, k: u32) -> Option<Bracket> {
        match k {
            _ if self.is_empty() => None,
            0 => Some(Bracket::exact(1.0)),
            1 => self.mean(),
            _ => Some(moments::power_sum(self.cells(), k, self.count() as f64)),
        }
    }

    /// Number of values less than `x` (or at most `x`, if inclusive).
    pub fn count_below(&self, x: f64, bound: LimitInclusion) -> Bracket<u64> {
        if let (LimitInclusion::Inclusive, Some(above)) = (bound, self.threshold_count(x)) {
            return Bracket::exact(self.count().saturating_sub(above));
        }
        let certain = |cell: &Cell| match bound {
            LimitInclusion::Inclusive => cell.upper <= x,
            LimitInclusion::Exclusive => cell.upper < x,
        };
        let possible = |cell: &Cell| match bound {
            LimitInclusion::Inclusive => cell.lower <= x,
            LimitInclusion::Exclusive => cell.lower < x,
        };
        let share = |cell: &Cell| self.share_at_most(cell, x);
        let contains = |cell: &Cell| possible(cell) && !certain(cell);
        match self.cells_up_to(x) {
            Some((below, near)) => {
                let near: Vec<Cell> = near.collect();
                let counts = count_matching(near.iter().copied(), certain, possible, share);
                let counts = Bracket {
                    lower: below.wrapping_add(counts.lower),
                    estimate: below.wrapping_add(counts.estimate),
                    upper: below.wrapping_add(counts.upper),
                };
                self.narrow_by_sum(counts, near.into_iter().filter(contains), x)
            }
            None => {
                let counts = count_matching(self.cells(), certain, possible, share);
                self.narrow_by_sum(counts, self.cells().filter(contains), x)
            }
        }
    }

    /// Narrows a count of values below `x` by the sum, if one wide cell alone contains `x`.
    fn narrow_by_sum(
        &self,
        below: Bracket<u64>,
        mut containing: impl Iterator<Item = Cell>,
        x: f64,
    ) -> Bracket<u64> {
        match (containing.next(), containing.next()) {
            (Some(cell), None) if Bracket::new(cell.lower, x, cell.upper).is_wide() => {
                SumBounds::of(self).map_or(below, |bounds| bounds.narrow_count(below, &cell, x))
            }
            _ => below,
        }
    }

    /// Number of values greater than `x` (or at least `x`, if inclusive). Exact at a declared
    /// threshold, exclusive, and at bucket edges.
    pub fn count_above(&self, x: f64, bound: LimitInclusion) -> Bracket<u64> {
        if x.is_nan() {
            return Bracket::exact(0);
        }
        let rest = match bound {
            LimitInclusion::Inclusive => self.count_below(x, LimitInclusion::Exclusive),
            LimitInclusion::Exclusive => self.count_below(x, LimitInclusion::Inclusive),
        };
        rest.complement(self.count())
    }

    /// Number of values between `low` and `high`, both included or both excluded.
    pub fn count_between(&self, low: f64, high: f64, bound: LimitInclusion) -> Bracket<u64> {
        if high < low || high == low && bound == LimitInclusion::Exclusive {
            return Bracket::exact(0);
        }
        count_matching(
            self.cells(),
            |cell| match bound {
                LimitInclusion::Inclusive => low <= cell.lower && cell.upper <= high,
                LimitInclusion::Exclusive => low < cell.lower && cell.upper < high,
            },
            |cell| match bound {
                LimitInclusion::Inclusive => low <= cell.upper && cell.lower <= high,
                LimitInclusion::Exclusive => low < cell.upper && cell.lower < high,
            },
            |cell| self.share_at_most(cell, high) - self.share_at_most(cell, low),
        )
    }

    /// Number of values in the bucket of `x`: the values that the histogram cannot distinguish from
    /// `x`.
    pub fn count_nearby(&self, x: f64) -> u64 {
        match self.scheme().position(x, self.zero_threshold()) {
            BucketPosition::Positive(index) => self.positive().get(index),
            BucketPosition::Negative(index) => self.negative().get(index),
            BucketPosition::Zero => self.zero_count(),
            BucketPosition::Overflow => self.overflow(),
            BucketPosition::Underflow => self.underflow(),
            BucketPosition::Nan => self.nan_count(),
        }
    }

    /// Share of the values at or below `x`, 0 to 1: the inverse of the quantile.
    pub fn cdf(&self, x: f64) -> Option<Bracket> {
        let n = self.count();
        (n > 0).then(|| self.count_below(x, LimitInclusion::Inclusive).fraction_of(n))
    }

    fn threshold_count(&self, x: f64) -> Option<u64> {
        self.thresholds()
            .iter()
            .find(|threshold| threshold.value == x)
            .map(|threshold| threshold.above)
    }
}
