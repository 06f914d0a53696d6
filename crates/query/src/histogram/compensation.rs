//! Compensated (Kahan–Neumaier) sums of histograms.

use super::FloatHistogram;
use super::counts::{self, BucketCounts};

/// Kahan sum: rounded sum and compensation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KahanSum {
    /// Rounded sum.
    pub(crate) sum: f64,
    /// Compensation to add to the sum.
    pub(crate) compensation: f64,
}

impl KahanSum {
    /// Sum and compensation of the pair.
    pub(crate) fn parts(self) -> (f64, f64) {
        (self.sum, self.compensation)
    }

    /// Sum of both.
    pub(super) fn plus(self, other: KahanSum) -> KahanSum {
        let sum = add_compensated(other.sum, self);
        if other.compensation == 0.0 { sum } else { add_compensated(other.compensation, sum) }
    }
}

/// Adds `more` to the sum. A sum that overflows has no compensation.
pub(crate) fn add_compensated(
    more: f64,
    KahanSum { sum, compensation: lost }: KahanSum,
) -> KahanSum {
    let total = sum + more;
    let lost = if total.is_infinite() {
        0.0
    } else if sum.abs() >= more.abs() {
        lost + ((sum - total) + more)
    } else {
        lost + ((more - total) + sum)
    };
    KahanSum { sum: total, compensation: lost }
}

/// Rounding errors of a sum of histograms, bucket by bucket. Starts empty; belongs to one
/// histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compensation {
    pub(super) zero_count: f64,
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) positive: BucketCounts,
    pub(super) negative: BucketCounts,
}

impl Compensation {
    /// Compensation of the histogram times `factor`.
    pub(crate) fn mul(&mut self, factor: f64) {
        self.each(|lost| lost * factor);
    }

    /// Compensation of the histogram divided by `divisor`, which is not 0.
    pub fn div(&mut self, divisor: f64) {
        self.each(|lost| lost / divisor);
    }

    fn each(&mut self, f: impl Fn(f64) -> f64) {
        let values = [&mut self.zero_count, &mut self.count, &mut self.sum];
        let buckets = self.positive.iter_mut().chain(&mut self.negative).map(|(_, lost)| lost);
        for lost in values.into_iter().chain(buckets) {
            *lost = f(*lost);
        }
    }
}

impl FloatHistogram {
    /// Adds the compensation, once the sum is complete.
    pub(crate) fn apply_compensation(&mut self, compensation: &Compensation) {
        self.zero_count += compensation.zero_count;
        self.count += compensation.count;
        self.sum += compensation.sum;
        counts::add(&mut self.positive, &compensation.positive, 1.0);
        counts::add(&mut self.negative, &compensation.negative, 1.0);
    }
}
