//! Series of a classic histogram, computed from a stored histogram: `x_bucket`, `x_count`, `x_sum`.
//!
//! A bucket counts all values at or below its bound. Bounds are those of the stored buckets, both
//! ends of each, so that a quantile interpolates within the stored bucket and not across empty
//! ones. A count exists only where it is exact: if the bounds of a sender have changed and the new
//! buckets cross the old bound, the series of the old bound ends, as in Prometheus.

use std::collections::BTreeSet;

use crate::histogram::{Bucket, BucketGrid, FloatHistogram, GoNumber};

/// Part of a classic histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ClassicPart {
    /// Values at or below a bound.
    Bucket(f64),
    /// Number of values.
    Count,
    /// Sum of the values.
    Sum,
}

impl ClassicPart {
    /// Value of the part; `None` if the histogram does not determine it.
    pub(crate) fn value(self, histogram: &FloatHistogram) -> Option<f64> {
        match self {
            ClassicPart::Count => Some(histogram.count),
            ClassicPart::Sum => Some(histogram.sum),
            // NaN values count in the last bucket, as in client libraries.
            ClassicPart::Bucket(f64::INFINITY) => Some(histogram.count),
            ClassicPart::Bucket(bound) => count_up_to(histogram, bound),
        }
    }
}

/// Numbers of values at or below ascending bounds: [`ClassicPart::value`] of each bucket, in one
/// pass over the histogram.
pub(crate) fn counts_up_to(histogram: &FloatHistogram, bounds: &[f64]) -> Vec<Option<f64>> {
    let buckets: Vec<Bucket> = histogram.buckets().filter(|bucket| bucket.count != 0.0).collect();
    if !buckets.is_sorted_by(|a, b| a.upper <= b.upper && a.lower <= b.lower) {
        return bounds.iter().map(|bound| ClassicPart::Bucket(*bound).value(histogram)).collect();
    }
    let custom = match &histogram.grid {
        BucketGrid::Custom(bounds) => Some(&bounds[..]),
        _ => None,
    };
    let (mut count, mut next) = (0.0, buckets.iter().peekable());
    let count_up_to = |&bound: &f64| {
        while let Some(bucket) = next.next_if(|bucket| bucket.upper <= bound) {
            count += bucket.count;
        }
        if bound == f64::INFINITY {
            return Some(histogram.count);
        }
        let is_bound = |of: &[f64]| of.get(of.partition_point(|of| *of < bound)) == Some(&bound);
        let is_cut = next.peek().is_some_and(|bucket| bucket.lower < bound);
        (!is_cut && custom.is_none_or(is_bound)).then_some(count)
    };
    bounds.iter().map(count_up_to).collect()
}

fn count_up_to(histogram: &FloatHistogram, bound: f64) -> Option<f64> {
    if let BucketGrid::Custom(bounds) = &histogram.grid
        && !bounds.contains(&bound)
    {
        return None;
    }
    let mut count = 0.0;
    for bucket in histogram.buckets().filter(|bucket| bucket.count != 0.0) {
        match (bucket.lower, bucket.upper) {
            (_, upper) if upper <= bound => count += bucket.count,
            (lower, _) if lower < bound => return None,
            _ => {}
        }
    }
    Some(count)
}

/// Bounds of the buckets of a histogram over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct BucketBounds {
    /// Whether the histogram has samples.
    has_samples: bool,
    explicit: Vec<f64>,
    /// Fine buckets that have values, by grid: a sender may change it.
    fine: Vec<FineBuckets>,
}

/// Buckets of a grid that have values.
#[derive(Clone, Debug)]
struct FineBuckets {
    grid: BucketGrid,
    /// Ends of the buckets around zero.
    zero: Vec<f64>,
    /// The greatest distance from zero at which a bucket is cut.
    zero_threshold: f64,
    positive: BTreeSet<i32>,
    /// By the index of their magnitude.
    negative: BTreeSet<i32>,
}

impl BucketBounds {
    /// Adds the bounds of a histogram: all of them if they are explicit.
    pub(crate) fn add(&mut self, histogram: &FloatHistogram) {
        self.has_samples = true;
        if let BucketGrid::Custom(custom) = &histogram.grid {
            self.explicit.extend(custom.iter().filter(|bound| bound.is_finite()));
            sort_bounds(&mut self.explicit);
            return;
        }
        let at = match self.fine.iter().position(|of| of.grid == histogram.grid) {
            Some(at) => at,
            None => {
                self.fine.push(FineBuckets::new(histogram.grid.clone()));
                self.fine.len() - 1
            }
        };
        self.fine[at].add(histogram);
    }

    /// All bounds, in ascending order. Fine buckets that are downscaled to `target` have the ends
    /// of its buckets; then every histogram downscaled to it has a count for each of them.
    pub(crate) fn all(&self, target: Option<&BucketGrid>) -> Vec<f64> {
        let mut all = self.explicit.clone();
        self.fine.iter().for_each(|buckets| buckets.add_ends(target, &mut all));
        if self.has_samples {
            all.push(f64::INFINITY);
        }
        sort_bounds(&mut all);
        all
    }

    /// Grids of fine buckets.
    pub(crate) fn fine_grids(&self) -> impl Iterator<Item = &BucketGrid> {
        self.fine.iter().map(|buckets| &buckets.grid)
    }

    /// Whether it has explicit bounds, at least at times.
    pub(crate) fn has_explicit(&self) -> bool {
        !self.explicit.is_empty()
    }

    /// Widths of the buckets around zero.
    pub(crate) fn zero_thresholds(&self) -> impl Iterator<Item = f64> {
        self.fine.iter().map(|buckets| buckets.zero_threshold)
    }
}

impl FineBuckets {
    fn new(grid: BucketGrid) -> FineBuckets {
        FineBuckets {
            grid,
            zero: Vec::new(),
            zero_threshold: 0.0,
            positive: BTreeSet::new(),
            negative: BTreeSet::new(),
        }
    }

    fn add(&mut self, histogram: &FloatHistogram) {
        let filled = |counts: &[(i32, f64)]| {
            counts.iter().filter(|of| of.1 != 0.0).map(|of| of.0).collect::<Vec<i32>>()
        };
        self.positive.extend(filled(&histogram.positive));
        self.negative.extend(filled(&histogram.negative));
        self.zero_threshold = self.zero_threshold.max(histogram.zero_threshold);
        if histogram.zero_count != 0.0 {
            let zero =
                histogram.buckets().find(|bucket| bucket.lower <= 0.0 && bucket.upper >= 0.0);
            self.zero.extend(zero.iter().flat_map(|bucket| [bucket.lower, bucket.upper]));
            sort_bounds(&mut self.zero);
        }
    }

    fn add_ends(&self, target: Option<&BucketGrid>, all: &mut Vec<f64>) {
        let target =
            target.filter(|target| self.grid.common(target).is_ok_and(|common| common == **target));
        let ends = |index: i32| {
            let (lower, upper) = match target {
                Some(target) => target.edges(self.grid.coarser_index(index, target)),
                None => self.grid.edges(index),
            };
            [lower, upper].map(|end| end.max(self.zero_threshold))
        };
        let positive = self.positive.iter().flat_map(|&index| ends(index));
        let negative = self.negative.iter().flat_map(|&index| ends(index).map(|end| -end));
        let finite = |bound: &f64| bound.is_finite();
        all.extend(positive.chain(negative).chain(self.zero.iter().copied()).filter(finite));
    }
}

/// Sorts bounds and removes duplicates.
pub(crate) fn sort_bounds(bounds: &mut Vec<f64>) {
    // Zero has one spelling.
    bounds.iter_mut().for_each(|bound| *bound += 0.0);
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
}

/// Label `le` of a bound, as Prometheus 3 stores it: `1.0`.
pub(crate) fn bound_label(bound: f64) -> String {
    let text = GoNumber(bound).to_string();
    match text.contains(['.', 'e', 'I']) {
        true => text,
        false => text + ".0",
    }
}

#[cfg(test)]
mod tests {
    use hist::{Histogram, Scheme};

    use super::*;

    fn float(scheme: Scheme, values: &[f64]) -> FloatHistogram {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        FloatHistogram::from(&histogram)
    }

    #[track_caller]
    fn check(histogram: &FloatHistogram, expected: &[(&str, f64)]) {
        let mut bounds = BucketBounds::default();
        bounds.add(histogram);
        let found: Vec<(String, f64)> = bounds
            .all(None)
            .into_iter()
            .map(|bound| (bound_label(bound), ClassicPart::Bucket(bound).value(histogram).unwrap()))
            .collect();
        let expected: Vec<(String, f64)> =
            expected.iter().map(|(bound, count)| ((*bound).to_owned(), *count)).collect();
        assert_eq!(found, expected);
        // All at a time, and bounds of no bucket.
        let mut all = bounds.all(None);
        all.extend([f64::NEG_INFINITY, -2.9, 0.0, 0.26, 1.1, 5.0, 12.5]);
        sort_bounds(&mut all);
        let one_by_one: Vec<Option<f64>> =
            all.iter().map(|bound| ClassicPart::Bucket(*bound).value(histogram)).collect();
        assert_eq!(counts_up_to(histogram, &all), one_by_one, "{all:?}");
    }

    #[test]
    fn explicit_bounds_are_the_buckets() {
        let histogram = float(Scheme::explicit(&[0.25, 1.0, 1e6]).unwrap(), &[0.25, 0.3, 2.0, 2e6]);
        check(&histogram, &[("0.25", 1.0), ("1.0", 2.0), ("1e+06", 3.0), ("+Inf", 4.0)]);
        assert_eq!(ClassicPart::Bucket(0.5).value(&histogram), None);
        assert_eq!(ClassicPart::Count.value(&histogram), Some(4.0));
        assert_eq!(ClassicPart::Sum.value(&histogram), Some(2000002.55));
    }

    #[test]
    fn both_ends_of_filled_exponential_buckets_are_bounds() {
        let histogram = float(Scheme::exp2(0).unwrap(), &[0.0, 1.5, 12.0, 13.0]);
        let ends = [("0.0", 1.0), ("1.0", 1.0), ("2.0", 2.0), ("8.0", 2.0), ("16.0", 4.0)];
        check(&histogram, &[&ends[..], &[("+Inf", 4.0)]].concat());
        // Between filled buckets the count is known, within one it is not.
        assert_eq!(ClassicPart::Bucket(4.0).value(&histogram), Some(2.0));
        assert_eq!(ClassicPart::Bucket(12.5).value(&histogram), None);
    }

    #[test]
    fn negative_values_come_first() {
        let histogram = float(Scheme::exp2(0).unwrap(), &[-3.0, 3.0]);
        check(
            &histogram,
            &[("-4.0", 0.0), ("-2.0", 1.0), ("2.0", 1.0), ("4.0", 2.0), ("+Inf", 2.0)],
        );
    }
}
