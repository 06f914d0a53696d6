//! Quantile definitions.
//!
//! A quantile is given by `q` from 0 to 1. Definitions differ in their rank and in the position of
//! a value inside its bucket; every bracket contains the order statistic of its definition.
//!
//! `q` is a rounded decimal: if `q * n` is a whole number except for one ulp of `q`, it is
//! treated as that number, so the 0.07-quantile of 100 values is the 7th, not the 8th. Ranks use
//! integer arithmetic and are correct for any count.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: ranks lie in `1..=count`, quantiles in `0..=1`, and the total of a
// histogram, NaN included, fits 64 bits.

use crate::bracket::Bracket;
use crate::cells::{EvenSpread, RankPosition, interpolate};
use crate::histogram::Histogram;
use crate::scheme::Scheme;
use crate::sum_bounds::SumBounds;

/// A definition of the quantile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuantileMethod {
    /// The value of rank ⌈qn⌉ (type 1 of Hyndman and Fan, 1996). Inside a bucket of m values the
    /// k-th value is at k/(m+1) of the way between the edges, which are clipped to the exact
    /// minimum and maximum.
    #[default]
    NearestRank,
    /// Interpolation between the values of the ranks around (n−1)q + 1 (type 7 of Hyndman and Fan;
    /// R, NumPy, Excel).
    Linear,
    /// libcircllhist's `hist_approx_quantile`: nearest rank, edges not clipped.
    Circllhist1,
    /// libcircllhist's `hist_approx_quantile7`: rank ⌊(n−1)q + 1⌋, edges not clipped.
    Circllhist7,
    /// HdrHistogram's value at percentile: the largest value of the bucket (for q = 0, the
    /// smallest).
    HdrUpper,
    /// Prometheus' `histogram_quantile` on native histograms: exponential interpolation inside
    /// exponential buckets, linear elsewhere. The only definition that ranks NaN, above all values;
    /// the result is `None` if the rank is that of a NaN.
    PrometheusExponential,
}

impl Histogram {
    /// The quantile `q` by nearest rank: the smallest value with at least the share `q` of the
    /// values at or below it. `None` if the histogram is empty or `q` is not within 0..=1.
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        let rank = self.nearest_rank(q)?;
        Some(self.order_statistic(rank))
    }

    /// The quantile of each of `qs`.
    pub fn quantiles(&self, qs: &[f64]) -> Vec<Option<Bracket>> {
        qs.iter().map(|&q| self.quantile(q)).collect()
    }

    /// A quantile by a given definition.
    pub fn quantile_with(&self, q: f64, method: QuantileMethod) -> Option<Bracket> {
        let rank = self.nearest_rank(q)?;
        Some(match method {
            QuantileMethod::NearestRank => self.order_statistic(rank),
            QuantileMethod::Linear => self.linear(q),
            QuantileMethod::Circllhist1 => self.circllhist(q * self.count() as f64, rank),
            QuantileMethod::Circllhist7 => {
                let rank = split_product(q, self.count().wrapping_sub(1)).0.wrapping_add(1);
                self.circllhist(rank as f64, rank)
            }
            QuantileMethod::HdrUpper => self.hdr_upper(q, rank),
            QuantileMethod::PrometheusExponential => self.prometheus_exponential(q)?,
        })
    }

    /// Number of values of higher ranks than the quantile `q`. The quantile is the maximum if this
    /// is 0.
    pub fn count_beyond_quantile(&self, q: f64) -> u64 {
        self.nearest_rank(q).map_or(0, |rank| self.count().saturating_sub(rank))
    }

    fn nearest_rank(&self, q: f64) -> Option<u64> {
        if self.is_empty() || !(0.0..=1.0).contains(&q) {
            return None;
        }
        Some(nearest_rank(q, self.count()))
    }

    /// The value of a rank, 1-based.
    pub(crate) fn order_statistic(&self, rank: u64) -> Bracket {
        let value = self.value_of_rank(rank);
        match value.is_wide().then(|| SumBounds::of(self)).flatten() {
            Some(bounds) => {
                let (cell, before) = self.cell_of_rank(rank);
                bounds.narrow_rank(value, rank.wrapping_sub(before), cell.count)
            }
            None => value,
        }
    }

    /// The value of a rank as its bucket bounds it. Definitions of other programs do not use the
    /// sum.
    fn value_of_rank(&self, rank: u64) -> Bracket {
        if let (1, Some(min)) = (rank, self.tracked_min().exact()) {
            return Bracket::exact(min);
        }
        if let (true, Some(max)) = (rank == self.count(), self.tracked_max().exact()) {
            return Bracket::exact(max);
        }
        let (cell, before) = self.cell_of_rank(rank);
        self.spread_evenly(&cell).order_statistic(rank.wrapping_sub(before))
    }

    fn linear(&self, q: f64) -> Bracket {
        let n = self.count().wrapping_sub(1);
        let (integer, part) = split_product(q, n);
        let rank = integer.wrapping_add(1);
        let below = self.order_statistic(rank);
        if part == 0.0 || rank == self.count() {
            return below;
        }
        let above = self.order_statistic(rank.wrapping_add(1));
        // Part of the way that corresponds to one ulp of `q`, a rounded decimal.
        let uncertainty = n as f64 * (q - q.next_down());
        let (low, high) = ((part - uncertainty).max(0.0), (part + uncertainty).min(1.0));
        // If the signs differ, rounding errors are relative to the ends, not to their difference.
        let rounding = |a: f64, b: f64| 4.0 * f64::EPSILON * a.abs().max(b.abs());
        let (least, greatest) = (below.lower, above.upper);
        let lower = interpolate(least, above.lower, low) - rounding(least, above.lower);
        let upper = interpolate(below.upper, greatest, high) + rounding(below.upper, greatest);
        let known = |x: f64, or: f64| if x.is_nan() { or } else { x };
        Bracket::new(
            if least.is_finite() { known(lower, least) } else { least },
            interpolate(below.estimate, above.estimate, part),
            if greatest.is_finite() { known(upper, greatest) } else { greatest },
        )
        .widen()
    }

    /// libcircllhist divides the bucket into `count + 1` equal parts and returns the end of part
    /// `rank - before`.
    fn circllhist(&self, rank: f64, nearest_rank: u64) -> Bracket {
        let (position, count, before) = self.position_of_rank(nearest_rank);
        let (left, right) = self.position_edges(position);
        let k = (rank - before as f64).ceil().max(1.0);
        let estimate = left + (right - left) * (k / (count as f64 + 1.0));
        self.clamp_to_rank(nearest_rank, estimate)
    }

    fn hdr_upper(&self, q: f64, rank: u64) -> Bracket {
        let (cell, _) = self.cell_of_rank(rank);
        // In buckets with integer edges, the largest value of a bucket is an integer.
        let is_integer_grid = match self.scheme() {
            Scheme::LogLinear2(grid) => grid.floor() >= grid.bits().into(),
            _ => false,
        };
        let end = if is_integer_grid { |x: f64| x.floor() } else { |x| x };
        self.clamp_to_rank(rank, if q == 0.0 { cell.lower } else { end(cell.upper) })
    }

    /// Prometheus scans from the nearer end and stops at the first bucket that reaches the rank. If
    /// a rank is exactly at the end of a bucket, `q` from 0.5 on therefore selects the bucket
    /// above. NaN values count but are in no bucket; if there are any, Prometheus scans from below.
    fn prometheus_exponential(&self, q: f64) -> Option<Bracket> {
        let n = self.count();
        let all = n.wrapping_add(self.nan_count()) as f64;
        let upwards = q < 0.5 || self.nan_count() > 0;
        let reach = if upwards { q * all } else { (1.0 - q) * all };
        if upwards && reach > n as f64 {
            return None;
        }
        let nth = (reach.ceil() as u64).clamp(1, n);
        let rank = if upwards { nth } else { n.wrapping_sub(nth).wrapping_add(1) };
        let (position, count, before) = self.position_of_rank(rank);
        let (mut left, mut right) = self.position_edges(position);
        let inside = match upwards {
            true => reach - before as f64,
            false => n.wrapping_sub(before) as f64 - reach,
        };
        let share = (inside / count as f64).clamp(0.0, 1.0);
        if position == RankPosition::Zero {
            // If all values have one sign, the zero bucket ends at zero.
            if self.negative().is_empty() && !self.positive().is_empty() {
                left = 0.0;
            } else if self.positive().is_empty() && !self.negative().is_empty() {
                right = 0.0;
            }
        }
        let estimate = match (self.scheme(), position) {
            (Scheme::Explicit(_), _) if left.is_infinite() && right <= 0.0 => right,
            (Scheme::Explicit(_), _) if left.is_infinite() && share > 0.0 => right * share,
            (Scheme::Explicit(_), _) if left.is_infinite() => 0.0,
            (Scheme::Explicit(_), _) if right.is_infinite() => left,
            (Scheme::Explicit(_), _) | (_, RankPosition::Zero) => left + (right - left) * share,
            // The first bucket of a log-linear grid starts at zero; the last ends beyond the range
            // of doubles.
            (_, RankPosition::Positive(_) | RankPosition::Negative(_))
                if left == 0.0 || right == 0.0 || !(right - left).is_finite() =>
            {
                interpolate(left, right, share)
            }
            (_, RankPosition::Positive(_)) => {
                let (from, to) = (left.log2(), right.log2());
                (from + (to - from) * share).exp2()
            }
            (_, RankPosition::Negative(_)) => {
                let (from, to) = ((-left).log2(), (-right).log2());
                -(from + (to - from) * share).exp2()
            }
            (_, RankPosition::Overflow) => left,
            (_, RankPosition::Underflow) => right,
        };
        // The quantile itself is the value of the nearest rank, which is in the bucket below if the
        // rank is exactly at its end.
        let nearest = self.value_of_rank(nearest_rank(q, n));
        let known = self.value_of_rank(rank);
        let (lower, upper) = (known.lower.min(nearest.lower), known.upper.max(nearest.upper));
        Some(Bracket::new(lower, estimate, upper))
    }

    /// An estimate clamped to the bounds of the value of `rank`.
    fn clamp_to_rank(&self, rank: u64, estimate: f64) -> Bracket {
        let known = self.value_of_rank(rank);
        Bracket::new(known.lower, estimate, known.upper)
    }

    fn position_edges(&self, position: RankPosition) -> (f64, f64) {
        let edges = |index| self.scheme().edges(index).unwrap_or_else(|| self.bucket_span(index));
        match position {
            RankPosition::Underflow => (f64::NEG_INFINITY, -self.scheme().end()),
            RankPosition::Negative(index) => {
                let (lower, upper) = edges(index);
                (-upper, -lower)
            }
            RankPosition::Zero if self.zero_threshold() == 0.0 => (0.0, 0.0),
            RankPosition::Zero => (-self.zero_threshold(), self.zero_threshold()),
            RankPosition::Positive(index) => edges(index),
            RankPosition::Overflow => (self.scheme().end(), f64::INFINITY),
        }
    }
}

/// ⌈qn⌉, at least 1, with tolerance for the rounding of `q`.
#[inline]
pub(crate) fn nearest_rank(q: f64, n: u64) -> u64 {
    // If the rounded product is clearly not a whole number, the exact product is not one either.
    let product = q * n as f64;
    let integer = product as i64;
    let (part, uncertainty) = (product - integer as f64, product * 2f64.powi(-50));
    if part > uncertainty && part < 1.0 - uncertainty {
        return (integer as u64).wrapping_add(1);
    }
    exact_nearest_rank(q, n)
}

#[cold]
fn exact_nearest_rank(q: f64, n: u64) -> u64 {
    let (integer, part) = split_product(q, n);
    integer.saturating_add((part > 0.0).into()).clamp(1, n)
}

/// Integral and fractional part of `q * n`, `q` within 0..=1. A product that differs from a whole
/// number by at most one ulp of `q` is treated as that number.
fn split_product(q: f64, n: u64) -> (u64, f64) {
    // Zero may be negative.
    let q = q.abs();
    let exponent = ((q.to_bits() >> 52) as u32).max(1);
    let fraction = q.to_bits() & ((1 << 52) - 1);
    let mantissa = if q < f64::MIN_POSITIVE { fraction } else { fraction | 1 << 52 };
    // q = mantissa / 2^shift, so the product has at most 53 + 64 bits.
    let shift = 1075u32.wrapping_sub(exponent);
    if shift > 120 {
        return (0, q * n as f64);
    }
    let product = u128::from(mantissa).wrapping_mul(n.into());
    let half = (1u128 << shift) >> 1;
    let nearest = product.wrapping_add(half) >> shift;
    if product.abs_diff(nearest << shift) <= u128::from(n) {
        return (nearest as u64, 0.0);
    }
    let part = product & (1u128 << shift).wrapping_sub(1);
    ((product >> shift) as u64, part as f64 / (1u128 << shift) as f64)
}

/// Histogram prepared for many quantile queries: cumulative counts and binary search.
#[derive(Clone, Debug)]
pub struct CumulativeHistogram {
    /// Number of values up to and including each cell.
    up_to: Vec<u64>,
    cells: Vec<EvenSpread>,
    exact_min: Option<f64>,
    exact_max: Option<f64>,
    sum_bounds: Option<SumBounds>,
}

impl CumulativeHistogram {
    /// Builds the cumulative counts of `histogram`.
    pub fn new(histogram: &Histogram) -> CumulativeHistogram {
        let mut total = 0;
        CumulativeHistogram {
            up_to: histogram
                .cells()
                .map(|cell| {
                    total = u64::wrapping_add(total, cell.count);
                    total
                })
                .collect(),
            cells: histogram.cells().map(|cell| histogram.spread_evenly(&cell)).collect(),
            exact_min: histogram.tracked_min().exact(),
            exact_max: histogram.tracked_max().exact(),
            sum_bounds: SumBounds::of(histogram),
        }
    }

    /// Same result as [`Histogram::quantile`].
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        let &n = self.up_to.last()?;
        if !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = nearest_rank(q, n);
        if let (1, Some(min)) = (rank, self.exact_min) {
            return Some(Bracket::exact(min));
        }
        if let (true, Some(max)) = (rank == n, self.exact_max) {
            return Some(Bracket::exact(max));
        }
        let at = self.up_to.partition_point(|&up_to| up_to < rank);
        let before = at.checked_sub(1).map_or(0, |last| self.up_to[last]);
        let k = rank.wrapping_sub(before);
        let value = self.cells[at].order_statistic(k);
        Some(match self.sum_bounds {
            Some(bounds) if value.is_wide() => {
                bounds.narrow_rank(value, k, self.up_to[at].wrapping_sub(before))
            }
            _ => value,
        })
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.up_to.last().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_zero_is_accepted() {
        let mut histogram = Histogram::default();
        [1.0, 2.0, 3.0].into_iter().for_each(|value| histogram.record(value));
        assert_eq!(histogram.quantile(-0.0), histogram.quantile(0.0));
        assert_eq!(nearest_rank(-0.0, 3), 1);
    }
}
