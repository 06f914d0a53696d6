//! Statistics of a whole distribution, each with the bracket that the truth lies in.
//!
//! Where a side value is exact the bracket has no width; elsewhere it is as wide as the buckets leave
//! open. `None` means that there are no values to speak of. Variance and moments are those of the
//! recorded values themselves (divided by n, not n − 1).

use crate::bracket::Bracket;
use crate::cells::{self, Cell, tally};
use crate::histogram::Histogram;
use crate::side::Sum;

/// Whether values equal to the limit are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// They are.
    Inclusive,
    /// They are not.
    Exclusive,
}

impl Histogram {
    /// Sum of all values.
    pub fn sum(&self) -> Bracket {
        if self.is_empty() {
            return Bracket::exact(0.0);
        }
        if let Some(sum) = self.sum_side().exact() {
            return Bracket::exact(sum.value());
        }
        let from_cells = self.sum_from_cells();
        let estimate = self.sum_side().value().map_or(from_cells.estimate, Sum::value);
        Bracket::new(from_cells.lower, estimate, from_cells.upper)
    }

    pub(crate) fn sum_from_cells(&self) -> Bracket {
        cells::sum(self.cells())
    }

    /// Least value.
    pub fn min(&self) -> Option<Bracket> {
        (!self.is_empty()).then(|| extreme(self.min_side(), self.outermost(false)))
    }

    /// Greatest value.
    pub fn max(&self) -> Option<Bracket> {
        (!self.is_empty()).then(|| extreme(self.max_side(), self.outermost(true)))
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> Option<Bracket> {
        let n = self.count() as f64;
        (n > 0.0).then(|| {
            let mean = self.sum().map(|sum| sum / n);
            let (least, greatest) =
                (self.min().expect("not empty"), self.max().expect("not empty"));
            let mean = if self.sum_side().exact().is_some() { mean } else { mean.widened() };
            // A mean of equal values may round past them.
            mean.map(|mean| mean.clamp(least.lower, greatest.upper))
        })
    }

    /// Mean squared distance from the mean, of the values themselves (population variance).
    pub fn variance(&self) -> Option<Bracket> {
        self.mean().map(|mean| cells::variance(self.cells(), self.count(), mean.widened()))
    }

    /// Square root of [`Self::variance`].
    pub fn stddev(&self) -> Option<Bracket> {
        self.variance().map(|variance| variance.map(f64::sqrt))
    }

    /// Mean of the `k`-th powers of the values (raw moment).
    pub fn moment(&self, k: u32) -> Option<Bracket> {
        let power = |x: f64| x.powi(k.min(i32::MAX as u32) as i32);
        let bounds = |cell: &Cell| {
            let (a, b) = (power(cell.lower), power(cell.upper));
            let low =
                if k % 2 == 0 && cell.lower < 0.0 && cell.upper > 0.0 { 0.0 } else { a.min(b) };
            (low, a.max(b))
        };
        let n = self.count() as f64;
        (n > 0.0).then(|| {
            let sum = cells::moment_sum(self.cells(), power, bounds).widened();
            // A power of k multiplications is off by as many roundings.
            (0..k).fold(sum, |sum, _| sum.widened()).map(|sum| sum / n).widened()
        })
    }

    /// How many values are less than `x` (or at most `x`, if inclusive).
    pub fn count_below(&self, x: f64, bound: Bound) -> Bracket<u64> {
        if bound == Bound::Inclusive {
            if let Some(above) = self.declared(x) {
                return Bracket::exact(self.count() - above);
            }
        }
        tally(
            self.cells(),
            |cell| match bound {
                Bound::Inclusive => cell.upper <= x,
                Bound::Exclusive => cell.upper < x,
            },
            |cell| match bound {
                Bound::Inclusive => cell.lower <= x,
                Bound::Exclusive => cell.lower < x,
            },
            |cell| cell.share_below(x),
        )
    }

    /// How many values are greater than `x` (or at least `x`, if inclusive). Exact at a declared threshold,
    /// exclusive, and at bucket edges.
    pub fn count_above(&self, x: f64, bound: Bound) -> Bracket<u64> {
        let rest = match bound {
            Bound::Inclusive => self.count_below(x, Bound::Exclusive),
            Bound::Exclusive => self.count_below(x, Bound::Inclusive),
        };
        let count = self.count();
        Bracket {
            lower: count - rest.upper,
            estimate: count - rest.estimate,
            upper: count - rest.lower,
        }
    }

    /// How many values lie between `low` and `high`, both included or both left out.
    pub fn count_between(&self, low: f64, high: f64, bound: Bound) -> Bracket<u64> {
        if high < low {
            return Bracket::exact(0);
        }
        tally(
            self.cells(),
            |cell| match bound {
                Bound::Inclusive => low <= cell.lower && cell.upper <= high,
                Bound::Exclusive => low < cell.lower && cell.upper < high,
            },
            |cell| match bound {
                Bound::Inclusive => low <= cell.upper && cell.lower <= high,
                Bound::Exclusive => low < cell.upper && cell.lower < high,
            },
            |cell| cell.share_below(high) - cell.share_below(low),
        )
    }

    /// How many values share a bucket with `x`, `x`'s neighbours as far as this histogram can tell.
    pub fn count_nearby(&self, x: f64) -> u64 {
        use crate::scheme::Place;
        match self.scheme().place(x, self.zero_threshold()) {
            Place::Positive(index) => self.positive().get(index),
            Place::Negative(index) => self.negative().get(index),
            Place::Zero => self.zero_count(),
            Place::Overflow => self.overflow(),
            Place::Underflow => self.underflow(),
            Place::Nan => self.nan_count(),
        }
    }

    /// Share of the values at or below `x`, 0 to 1: the inverse of the quantile.
    pub fn cdf(&self, x: f64) -> Option<Bracket> {
        let n = self.count() as f64;
        (n > 0.0).then(|| {
            let below = self.count_below(x, Bound::Inclusive);
            Bracket {
                lower: below.lower as f64 / n,
                estimate: below.estimate as f64 / n,
                upper: below.upper as f64 / n,
            }
        })
    }

    fn declared(&self, x: f64) -> Option<u64> {
        self.thresholds()
            .iter()
            .find(|threshold| threshold.value == x)
            .map(|threshold| threshold.above)
    }
}

fn extreme(side: crate::Side<f64>, (lower, upper): (f64, f64)) -> Bracket {
    if let Some(value) = side.exact() {
        return Bracket::exact(value);
    }
    let middle = Cell { lower, upper, count: 1 }.middle();
    Bracket::new(lower, side.value().unwrap_or(middle), upper)
}
