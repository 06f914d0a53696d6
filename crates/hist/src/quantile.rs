//! Quantile definitions.
//!
//! A quantile is asked for by `q` from 0 to 1. Definitions differ in which rank they mean and in
//! where they place a value inside its bucket; all brackets hold the order statistic that the
//! definition means.
//!
//! `q` is a rounded decimal: where `q * n` is a whole number but for the last place of `q`, it is
//! taken for that number, so the 0.07-quantile of 100 values is the 7th, not the 8th. Ranks are
//! whole-number arithmetic and hold for any count.

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

/// A definition of the quantile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuantileMethod {
    /// The value of rank ⌈qn⌉ (type 1 of Hyndman and Fan, 1996); inside a bucket of m values the
    /// k-th lies k/(m+1) of the way between the edges, which the exact minimum and maximum cut.
    #[default]
    NearestRank,
    /// Between the values of the ranks around (n−1)q + 1 (type 7 of Hyndman and Fan; R, NumPy,
    /// Excel).
    Linear,
    /// libcircllhist's `hist_approx_quantile`: as nearest rank, edges never cut.
    Circllhist1,
    /// libcircllhist's `hist_approx_quantile7`: rank ⌊(n−1)q + 1⌋, edges never cut.
    Circllhist7,
    /// HdrHistogram's value at percentile: the greatest (for q = 0, the least) value of the bucket.
    HdrUpper,
    /// Prometheus' `histogram_quantile` on native histograms: exponential interpolation inside
    /// exponential buckets, linear elsewhere. The only one that ranks NaN, above all values: `None`
    /// where it is meant.
    PrometheusExponential,
}

impl Histogram {
    /// The value below or at which the share `q` of the values lies, by nearest rank. `None` when
    /// empty or when `q` is not within 0..=1.
    pub fn quantile(&self, q: f64) -> Option<Bracket> {
        let rank = self.nearest_rank(q)?;
        Some(self.order_statistic(rank))
    }

    /// One quantile for each of `qs`.
    pub fn quantiles(&self, qs: &[f64]) -> Vec<Option<Bracket>> {
        qs.iter().map(|&q| self.quantile(q)).collect()
    }

    /// A quantile by a named definition.
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

    fn nearest_rank(&self, q: f64) -> Option<u64> {
        if self.is_empty() || !(0.0..=1.0).contains(&q) {
            return None;
        }
        Some(nearest_rank(q, self.count()))
    }

    /// The value of a rank, 1-based.
    pub(crate) fn order_statistic(&self, rank: u64) -> Bracket {
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
        let (whole, part) = split_product(q, n);
        let rank = whole.wrapping_add(1);
        let below = self.order_statistic(rank);
        if part == 0.0 || rank == self.count() {
            return below;
        }
        let above = self.order_statistic(rank.wrapping_add(1));
        // The last place of `q`, a rounded decimal, is worth this much of the way.
        let doubt = n as f64 * (q - q.next_down());
        let (low, high) = ((part - doubt).max(0.0), (part + doubt).min(1.0));
        // Where signs differ the roundings are those of the ends, not of what is left between them.
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

    /// libcircllhist places the value `rank - before` values into the bucket's `count + 1` gaps.
    fn circllhist(&self, rank: f64, nearest_rank: u64) -> Bracket {
        let (place, count, before) = self.position_of_rank(nearest_rank);
        let (left, right) = self.position_edges(place);
        let k = (rank - before as f64).ceil().max(1.0);
        let estimate = left + (right - left) * (k / (count as f64 + 1.0));
        self.clamp_to_rank(nearest_rank, estimate)
    }

    fn hdr_upper(&self, q: f64, rank: u64) -> Bracket {
        let (cell, _) = self.cell_of_rank(rank);
        // On a grid of whole numbers the greatest value is whole.
        let whole = match self.scheme() {
            Scheme::LogLinear2(grid) => grid.floor() >= grid.bits().into(),
            _ => false,
        };
        let end = if whole { |x: f64| x.floor() } else { |x| x };
        self.clamp_to_rank(rank, if q == 0.0 { cell.lower } else { end(cell.upper) })
    }

    /// Prometheus walks from the nearer end and stops at the first bucket that reaches the rank, so
    /// where a rank ends a bucket exactly, `q` from 0.5 on takes the bucket above. NaN values
    /// count, in no bucket, and are passed by walking from below.
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
        let (place, count, before) = self.position_of_rank(rank);
        let (mut left, mut right) = self.position_edges(place);
        let inside = match upwards {
            true => reach - before as f64,
            false => n.wrapping_sub(before) as f64 - reach,
        };
        let share = (inside / count as f64).clamp(0.0, 1.0);
        if place == RankPosition::Zero {
            // Only one sign was ever seen: zero is the natural end of the zero bucket.
            if self.negative().is_empty() && !self.positive().is_empty() {
                left = 0.0;
            } else if self.positive().is_empty() && !self.negative().is_empty() {
                right = 0.0;
            }
        }
        let estimate = match (self.scheme(), place) {
            (Scheme::Explicit(_), _) if left.is_infinite() && right <= 0.0 => right,
            (Scheme::Explicit(_), _) if left.is_infinite() && share > 0.0 => right * share,
            (Scheme::Explicit(_), _) if left.is_infinite() => 0.0,
            (Scheme::Explicit(_), _) if right.is_infinite() => left,
            (Scheme::Explicit(_), _) | (_, RankPosition::Zero) => left + (right - left) * share,
            // The first bucket of a log-linear grid begins at zero, the last ends beyond the
            // doubles.
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
        // The quantile itself is the value of the nearest rank, which is in the bucket below where
        // the rank ends it exactly.
        let nearest = self.order_statistic(nearest_rank(q, n));
        let known = self.order_statistic(rank);
        let (lower, upper) = (known.lower.min(nearest.lower), known.upper.max(nearest.upper));
        Some(Bracket::new(lower, estimate, upper))
    }

    /// An estimate within what is known of the value of `rank`.
    fn clamp_to_rank(&self, rank: u64, estimate: f64) -> Bracket {
        let known = self.order_statistic(rank);
        Bracket::new(known.lower, estimate, known.upper)
    }

    fn position_edges(&self, place: RankPosition) -> (f64, f64) {
        let edges = |index| self.scheme().edges(index).unwrap_or_else(|| self.bucket_span(index));
        match place {
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

/// ⌈qn⌉, at least 1, forgiving the rounding of `q`.
#[inline]
pub(crate) fn nearest_rank(q: f64, n: u64) -> u64 {
    // Where the rounded product is clearly no whole number, neither is the product.
    let product = q * n as f64;
    let whole = product as i64;
    let (part, doubt) = (product - whole as f64, product * 2f64.powi(-50));
    if part > doubt && part < 1.0 - doubt {
        return (whole as u64).wrapping_add(1);
    }
    exact_nearest_rank(q, n)
}

#[cold]
fn exact_nearest_rank(q: f64, n: u64) -> u64 {
    let (whole, part) = split_product(q, n);
    whole.saturating_add((part > 0.0).into()).clamp(1, n)
}

/// Whole and part of `q * n`, `q` within 0..=1. What differs from a whole number by no more than
/// the last place of `q` is taken for that number.
fn split_product(q: f64, n: u64) -> (u64, f64) {
    // Nought may have a sign.
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
    /// Values up to and including each cell.
    up_to: Vec<u64>,
    cells: Vec<EvenSpread>,
    exact_min: Option<f64>,
    exact_max: Option<f64>,
}

impl CumulativeHistogram {
    /// Sums up the counts of `histogram`.
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
        }
    }

    /// The same answer as [`Histogram::quantile`].
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
        Some(self.cells[at].order_statistic(rank.wrapping_sub(before)))
    }

    /// How many values there are.
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
