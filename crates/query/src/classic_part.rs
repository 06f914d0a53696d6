//! Series of a classic histogram, computed from a stored histogram: `x_bucket`, `x_count`, `x_sum`.
//!
//! A bucket counts all values at or below its bound. Bounds are those of the stored buckets, both
//! ends of each, so that a quantile interpolates within the stored bucket and not across empty
//! ones. A count exists only where it is exact: if the bounds of a sender have changed and the new
//! buckets cross the old bound, the series of the old bound ends, as in Prometheus.

use crate::histogram::{BucketGrid, FloatHistogram, GoNumber};

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
    /// In ascending order.
    pub(crate) all: Vec<f64>,
    grid: Option<BucketGrid>,
    has_explicit_bounds: bool,
    has_changed_grid: bool,
}

impl BucketBounds {
    /// Adds the bounds of a histogram: all of them if they are explicit.
    pub(crate) fn add(&mut self, histogram: &FloatHistogram) {
        match &histogram.grid {
            BucketGrid::Custom(custom) => {
                self.has_explicit_bounds = true;
                self.all.extend(custom.iter());
            }
            grid => {
                let is_same = self.grid.get_or_insert_with(|| grid.clone()) == grid;
                self.has_changed_grid |= !is_same;
                let filled = histogram.buckets().filter(|bucket| bucket.count != 0.0);
                self.all.extend(filled.flat_map(|bucket| [bucket.lower, bucket.upper]));
            }
        }
        self.all.retain(|bound| bound.is_finite());
        self.all.push(f64::INFINITY);
        sort_bounds(&mut self.all);
    }

    /// Grid of which all bounds are edges, so that every histogram with it has a count for each.
    pub(crate) fn grid(&self) -> Option<&BucketGrid> {
        self.grid.as_ref().filter(|_| !self.has_explicit_bounds && !self.has_changed_grid)
    }

    /// Whether fine buckets of other widths were added: not all bounds are edges of all of them.
    pub(crate) fn has_changed_grid(&self) -> bool {
        self.has_changed_grid
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
            .all
            .into_iter()
            .map(|bound| (bound_label(bound), ClassicPart::Bucket(bound).value(histogram).unwrap()))
            .collect();
        let expected: Vec<(String, f64)> =
            expected.iter().map(|(bound, count)| ((*bound).to_owned(), *count)).collect();
        assert_eq!(found, expected);
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
