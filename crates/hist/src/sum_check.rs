//! Quick plausibility check of a sum from another source against the buckets.
//!
//! Comparing a sum with the exact edges of all buckets takes most of the time of reading a
//! histogram. On the exponential grid each edge is the previous one times the base: one
//! multiplication. A sum within the bounds computed that way, reduced by much more than the
//! rounding error, is within the exact bounds. Any other sum is checked exactly.

use crate::histogram::Histogram;
use crate::scheme::{Exp2, Scheme};

/// A product of n factors is off by n roundings of 2^-53 and n times the error of the base: 537,088
/// buckets, the maximum, give 1.2e-10.
const MARGIN: f64 = 1e-9;

/// Sum of the lower edges of ascending buckets of an exponential grid, each as often as its bucket
/// has values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowerEdgeSum {
    grid: Exp2,
    /// The first index beyond the grid.
    end: i32,
    base: f64,
    /// First and last bucket, with their counts.
    ends: Option<[(i32, u64); 2]>,
    /// Lower edge of the last bucket.
    edge: f64,
    sum: f64,
}

impl LowerEdgeSum {
    pub(crate) fn new(grid: Exp2) -> LowerEdgeSum {
        let base = (-f64::from(grid.scale())).exp2().exp2();
        LowerEdgeSum { grid, end: grid.end_index(), base, ends: None, edge: 0.0, sum: 0.0 }
    }

    pub(crate) fn grid(&self) -> Exp2 {
        self.grid
    }

    /// Index of the first bucket and of the last one.
    #[inline]
    pub(crate) fn ends(&self) -> Option<(i32, i32)> {
        self.ends.map(|[first, last]| (first.0, last.0))
    }

    /// Adds a bucket above all others; refuses one outside the grid. So the number of buckets is
    /// bounded whatever a sender counts.
    #[inline]
    pub(crate) fn add(&mut self, index: i32, count: u64) -> bool {
        let first = match self.ends {
            Some([first, last]) if last.0.checked_add(1) == Some(index) && index < self.end => {
                self.edge *= self.base;
                first
            }
            ends => {
                let Some((lower, _)) = self.grid.edges(index) else { return false };
                self.edge = lower;
                ends.map_or((index, count), |[first, _]| first)
            }
        };
        self.ends = Some([first, (index, count)]);
        self.sum += self.edge * count as f64;
        true
    }

    /// True only if `sum` is a possible sum of the values in the buckets. Values around zero, which
    /// add something of either sign if no extremes are known, are left out.
    pub(crate) fn allows(&self, sum: f64, zero_threshold: f64, has_extremes: bool) -> bool {
        let Some([first, last]) = self.ends else { return false };
        let edges = |index| self.grid.edges(index).filter(|_| self.base.is_finite());
        let Some((first_edges, last_edges)) = edges(first.0).zip(edges(last.0)) else {
            return false;
        };
        if first_edges.0 < zero_threshold.max(f64::MIN_POSITIVE) {
            return false;
        }
        let upper = self.sum * self.base;
        // Minimum and maximum may clip the outermost buckets.
        let clipped = |(lower, upper): (f64, f64), count: u64| match has_extremes {
            true => (upper - lower) * count as f64,
            false => 0.0,
        };
        let least = self.sum + clipped(first_edges, first.1) + upper * MARGIN;
        let greatest = upper - clipped(last_edges, last.1) - upper * MARGIN;
        upper.is_finite() && (least..=greatest).contains(&sum)
    }
}

impl Histogram {
    /// True only if the sum is within the bounds of the buckets; false if the exact check is
    /// needed.
    pub(crate) fn sum_fits_buckets(&self, sum: f64) -> bool {
        let Scheme::Exp2(grid) = self.scheme() else { return false };
        let outside = self.overflow() > 0 || self.underflow() > 0 || !self.negative().is_empty();
        let sides = [self.tracked_min(), self.tracked_max()];
        let has_extremes = sides.iter().any(|side| side.limit().is_some());
        let is_near_zero = self.zero_threshold() > 0.0 && self.zero_count() > 0;
        if outside || (has_extremes && is_near_zero) {
            return false;
        }
        let mut edges = LowerEdgeSum::new(*grid);
        self.positive().iter().all(|(index, count)| edges.add(index, count))
            && edges.allows(sum, self.zero_threshold(), has_extremes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::HistogramParts;
    use crate::scheme::Exp2;
    use crate::tracked_value::TrackedValue;

    proptest! {
        /// The exact check accepts every sum that the quick check accepts.
        #[test]
        fn accepted_sums_are_possible(
            scale in -3i32..9,
            buckets in prop::collection::btree_map(-30i32..300, 1u64..1000, 1..40),
            dense in 1i32..60,
            zero in 0u64..3,
            threshold in prop_oneof![Just(0.0), 0.0f64..2.0],
            part in -0.5f64..1.5,
            cut in any::<bool>(),
        ) {
            let mut buckets: Vec<(i32, u64)> = buckets.into_iter().collect();
            let last = buckets[buckets.len() - 1].0;
            buckets.extend((1..dense).map(|n| (last + n, 7)));
            let mut parts = HistogramParts::new(Scheme::Exp2(Exp2::new(scale).unwrap()));
            (parts.zero, parts.zero_threshold) = (zero, threshold);
            parts.positive = buckets;
            let Ok(whole) = Histogram::from_parts(parts.clone()) else { return Ok(()) };
            if cut {
                let (first, last) = (whole.cells().next().unwrap(), whole.cells().next_back().unwrap());
                (parts.min, parts.max) = (TrackedValue::Exact(first.upper), TrackedValue::Exact(last.lower));
            }
            let histogram = Histogram::from_parts(parts).unwrap();
            let bounds = histogram.sum_from_cells();
            let sum = bounds.lower + (bounds.upper - bounds.lower) * part;
            if histogram.sum_fits_buckets(sum) {
                prop_assert!(bounds.contains(sum), "{sum} in {bounds:?}");
            }
        }
    }

    #[test]
    fn plain_sum_is_accepted() {
        let mut histogram = Histogram::default();
        (1..1000).for_each(|n| histogram.record(f64::from(n)));
        assert!(histogram.sum_fits_buckets(499_500.0));
        assert!(!histogram.sum_fits_buckets(600_000.0));
        assert!(!histogram.sum_fits_buckets(f64::NAN));
    }
}
