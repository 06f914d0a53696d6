//! Quick plausibility check of a sum from another source against the buckets.
//!
//! Comparing a sum with the exact edges of all buckets takes most of the time of reading a
//! histogram. On the exponential grid each edge is the previous one times the base: one
//! multiplication. A sum within the bounds computed that way, reduced by much more than the
//! rounding error, is within the exact bounds. Any other sum is checked exactly.

use crate::histogram::Histogram;
use crate::scheme::Scheme;

/// A product of n factors is off by n roundings of 2^-53 and n times the error of the base: 537,088
/// buckets, the maximum, give 1.2e-10.
const MARGIN: f64 = 1e-9;

impl Histogram {
    /// True only if the sum is within the bounds of the buckets; false if the exact check is
    /// needed.
    pub(crate) fn sum_fits_buckets(&self, sum: f64) -> bool {
        let Scheme::Exp2(grid) = self.scheme() else { return false };
        let outside = self.overflow() > 0 || self.underflow() > 0 || !self.negative().is_empty();
        let (positive, base) = (self.positive(), (-f64::from(grid.scale())).exp2().exp2());
        let ends = positive.indexes().first().zip(positive.indexes().last());
        let Some((&first, &last)) = ends.filter(|_| !outside && base.is_finite()) else {
            return false;
        };
        let edges = |index| grid.edges(index).expect("BUG: a held bucket has edges");
        // Values around zero add nothing only if zero is their only possible value.
        if edges(first).0 < self.zero_threshold().max(f64::MIN_POSITIVE)
            || (self.zero_threshold() > 0.0 && self.zero_count() > 0)
        {
            return false;
        }
        let (mut lower, mut edge, mut next) = (0.0, 0.0, None);
        for (index, count) in positive.iter() {
            edge = if next == Some(index) { edge * base } else { edges(index).0 };
            lower += edge * count as f64;
            next = index.checked_add(1);
        }
        let upper = lower * base;
        // Minimum and maximum may clip the outermost buckets.
        let width = |index: i32| (edges(index).1 - edges(index).0) * positive.get(index) as f64;
        let least = lower + width(first) + upper * MARGIN;
        let greatest = upper - width(last) - upper * MARGIN;
        upper.is_finite() && (least..=greatest).contains(&sum)
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
