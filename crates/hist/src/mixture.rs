//! Mixture: histograms of several grid families, kept without conversion.
//!
//! Histograms whose grids nest are merged; a histogram of another family, or with other explicit
//! bounds, is kept beside them: so it stays exact at its own bounds.
//! Shares and counts of the components add up, so the bracket of a statistic of the whole is as
//! tight as the components allow.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::convert::Conversion;
use crate::error::MergeError;
use crate::histogram::Histogram;
use crate::moments;
use crate::quantile::nearest_rank;
use crate::scheme::{Explicit, LogLinear2, Scheme};
use crate::statistics::LimitInclusion;
use crate::tracked_value::DoubleDouble;

/// One histogram per family and per set of explicit bounds; the latter come last, by their bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mixture {
    /// In the order of [`Histogram::layout_order`].
    components: Vec<Histogram>,
    /// Number of values, with NaN.
    total: u64,
}

impl From<Histogram> for Mixture {
    fn from(histogram: Histogram) -> Mixture {
        Mixture { total: count_with_nan(&histogram), components: vec![histogram] }
    }
}

/// Number of values, with NaN.
fn count_with_nan(histogram: &Histogram) -> u64 {
    histogram.count().wrapping_add(histogram.nan_count())
}

impl Mixture {
    /// Adds all values of `histogram`. The time does not grow with the number of explicit layouts
    /// if they are added in their order.
    pub fn add(&mut self, histogram: &Histogram) -> Result<(), MergeError> {
        // Ranks of the whole are 64-bit numbers too.
        let total = self.total.checked_add(count_with_nan(histogram));
        let total = total.ok_or(MergeError::CountOverflow)?;
        let is_without_values =
            |of: &Histogram| of.scheme().is_explicit() && count_with_nan(of) == 0;
        if is_without_values(histogram) && !self.components.is_empty() {
            return Ok(());
        }
        // Schemes without explicit bounds are equal in this order, and merge among themselves.
        let end = self.components.partition_point(|held| held.layout_order(histogram).is_le());
        let start = self.components.partition_point(|held| held.layout_order(histogram).is_lt());
        for component in self.components.get_mut(start..end).unwrap_or_default() {
            match component.merge(histogram) {
                Err(MergeError::SchemesDiffer { .. }) => {}
                merged => {
                    merged?;
                    self.total = total;
                    return Ok(());
                }
            }
        }
        self.total = total;
        // One without values is alone.
        let is_replaced = self.components.first().is_some_and(is_without_values);
        if is_replaced {
            self.components.clear();
        }
        // Whatever the order of additions.
        self.components.insert(if is_replaced { 0 } else { end }, histogram.clone());
        Ok(())
    }

    /// Explicit bounds that not all histograms with explicit bounds have, ascending.
    pub fn differing_bounds(&self) -> Vec<f64> {
        let bounds = |component: &Histogram| match component.scheme() {
            Scheme::Explicit(grid) if !component.is_empty() => Some(grid.clone()),
            _ => None,
        };
        let layouts: Vec<Explicit> = self.components.iter().filter_map(bounds).collect();
        if layouts.len() < 2 {
            return Vec::new();
        }
        let mut all: Vec<f64> = layouts.iter().flat_map(Explicit::bounds).copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        let is_shared = |same: &[f64]| same.len() == layouts.len();
        let differing = all.chunk_by(|a, b| a == b).filter(|same| !is_shared(same));
        differing.filter_map(|same| same.first().copied()).collect()
    }

    /// The values divided by a number, see [`Histogram::divide`].
    #[must_use]
    pub fn divide(&self, divisor: f64) -> Mixture {
        let components = self.components.iter().map(|component| component.divide(divisor));
        Mixture { components: components.collect(), total: self.total }
    }

    /// The families' histograms.
    pub fn components(&self) -> &[Histogram] {
        &self.components
    }

    fn cells(&self) -> impl Iterator<Item = Cell> + Clone + '_ {
        self.components.iter().flat_map(Histogram::cells)
    }

    /// Number of values, without NaN.
    pub fn count(&self) -> u64 {
        self.components.iter().map(Histogram::count).sum()
    }

    /// The histograms, one per family.
    pub fn into_components(self) -> Vec<Histogram> {
        self.components
    }

    /// Sum of all values.
    pub fn sum(&self) -> Bracket {
        let mut total = [DoubleDouble::default(); 3];
        let mut exact = true;
        for component in self.components.iter().filter(|component| !component.is_empty()) {
            let sums = component.exact_sum().unwrap_or_else(|| {
                exact = false;
                let sum = component.sum();
                [sum.lower, sum.estimate, sum.upper].map(DoubleDouble::new)
            });
            for (total, sum) in total.iter_mut().zip(sums) {
                *total = total.plus(sum);
            }
        }
        let [lower, estimate, upper] = total.map(DoubleDouble::value);
        // Sums of components near the limits of doubles may overflow in between although the total
        // does not.
        let left = !exact && (lower == f64::INFINITY || upper == f64::NEG_INFINITY);
        if left || lower.is_nan() || upper.is_nan() || estimate.is_infinite() && lower < upper {
            return Bracket::new(f64::NEG_INFINITY, estimate, f64::INFINITY);
        }
        let sum = Bracket::new(lower, estimate, upper);
        if exact { sum } else { sum.widen() }
    }

    /// Smallest value.
    pub fn min(&self) -> Option<Bracket> {
        self.components.iter().filter_map(Histogram::min).reduce(|a, b| Bracket {
            lower: a.lower.min(b.lower),
            estimate: a.estimate.min(b.estimate),
            upper: a.upper.min(b.upper),
        })
    }

    /// Largest value.
    pub fn max(&self) -> Option<Bracket> {
        self.components.iter().filter_map(Histogram::max).reduce(|a, b| Bracket {
            lower: a.lower.max(b.lower),
            estimate: a.estimate.max(b.estimate),
            upper: a.upper.max(b.upper),
        })
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> Option<Bracket> {
        let (least, greatest) = (self.min()?, self.max()?);
        let n = self.count() as f64;
        let sum = self.sum();
        let mean = if sum.lower.is_finite() && sum.upper.is_finite() {
            sum.map(|sum| sum / n).widen()
        } else {
            moments::power_sum(self.cells(), 1, n)
        };
        Some(mean.map(|mean| mean.clamp(least.lower, greatest.upper)))
    }

    /// Population variance.
    pub fn variance(&self) -> Option<Bracket> {
        let (variance, exponent) = moments::variance(self.cells(), self.count(), self.mean()?);
        Some(variance.scale_by_pow2(exponent.wrapping_mul(2)))
    }

    /// Square root of [`Self::variance`].
    pub fn stddev(&self) -> Option<Bracket> {
        let (variance, exponent) = moments::variance(self.cells(), self.count(), self.mean()?);
        Some(variance.map(f64::sqrt).widen().scale_by_pow2(exponent))
    }

    /// Number of values greater than `x` (or at least `x`, if inclusive).
    pub fn count_above(&self, x: f64, bound: LimitInclusion) -> Bracket<u64> {
        sum(self.components.iter().map(|component| component.count_above(x, bound)))
    }

    /// Share of the values at or below `x`.
    pub fn cdf(&self, x: f64) -> Option<Bracket> {
        let n = self.count();
        let below = |component: &Histogram| component.count_below(x, LimitInclusion::Inclusive);
        (n > 0).then(|| sum(self.components.iter().map(below)).fraction_of(n))
    }

    /// The value of rank ⌈qn⌉. The lower bound is the lower end that has this rank among all lower
    /// ends of cells, the upper bound is the upper end that has it among all upper ends. With one
    /// component, the quantile of that component.
    #[expect(clippy::expect_used, reason = "the rank is among the values")]
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        if let [component] = self.components.as_slice() {
            return component.quantile(q);
        }
        let n = self.count();
        if n == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = nearest_rank(q, n);
        if rank == 1 {
            return self.min();
        }
        if rank == n {
            return self.max();
        }
        let of_rank = |end: fn(&Cell) -> f64| {
            let mut cells: Vec<Cell> = self.cells().collect();
            cells.sort_by(|a, b| end(a).total_cmp(&end(b)));
            let mut before = 0u64;
            cells
                .into_iter()
                .find(|cell| {
                    before = before.wrapping_add(cell.count);
                    before >= rank
                })
                .map(|cell| end(&cell))
                .expect("BUG: the rank is among the values")
        };
        let (lower, upper) = (of_rank(|cell| cell.lower), of_rank(|cell| cell.upper));
        let (mut low, mut high) = (lower.max(f64::MIN), upper.min(f64::MAX));
        // The estimated distribution function is monotonic: bisect the bracket until it meets the
        // rank.
        for _ in 0..64 {
            let middle = low * 0.5 + high * 0.5;
            let below: f64 = (self.components.iter())
                .flat_map(|component| component.cells().map(move |cell| (component, cell)))
                .map(|(component, cell)| cell.count as f64 * component.share_at_most(&cell, middle))
                .sum();
            if below < rank as f64 { low = middle } else { high = middle }
        }
        Some(Bracket::new(lower, high, upper))
    }

    /// One histogram on [`LogLinear2::UNIVERSAL`], a grid fine enough to keep the buckets of every
    /// other scheme apart: for charts and exports.
    pub fn flatten(&self) -> Result<Conversion, MergeError> {
        let mut flat = Conversion {
            histogram: Histogram::new(Scheme::LogLinear2(LogLinear2::UNIVERSAL)),
            error_added: 0.0,
        };
        for component in &self.components {
            let converted = component.convert(&Scheme::LogLinear2(LogLinear2::UNIVERSAL))?;
            flat.histogram.merge(&converted.histogram)?;
            flat.error_added = flat.error_added.max(converted.error_added);
        }
        Ok(flat)
    }
}

/// Sum of the counts of all components.
fn sum(counts: impl Iterator<Item = Bracket<u64>>) -> Bracket<u64> {
    counts.fold(Bracket::exact(0), |total, n| Bracket {
        lower: total.lower.saturating_add(n.lower),
        estimate: total.estimate.saturating_add(n.estimate),
        upper: total.upper.saturating_add(n.upper),
    })
}
