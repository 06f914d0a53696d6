//! Float histograms for PromQL arithmetic.

mod bound;
mod bucket;
mod compensation;
mod conversion;
mod counts;
mod dense_sum;
#[cfg(test)]
mod description;
mod logarithm;
mod number;
mod parser;
mod reset;
mod sum;
mod trim;
#[cfg(test)]
mod validate;

use std::sync::Arc;

use hist::Scheme;

pub use bucket::Bucket;
pub use codecs::prometheus::ResetHint;
pub use compensation::Compensation;
pub use sum::{AddOutcome, IncompatibleHistograms};
pub use trim::TrimSide;

pub(crate) use bucket::BucketCount;
pub(crate) use compensation::{KahanSum, add_compensated};
pub(crate) use conversion::SchemeConversion;
pub(crate) use dense_sum::DenseSum;
pub(crate) use logarithm::{exp2, log2};
pub(crate) use number::{GoNumber, GoPlainNumber};
pub(crate) use parser::parse_description;

/// Bucket grid of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum BucketGrid {
    /// Prometheus' exponential schema, −4 to 8: bucket `i` is
    /// `(2^((i-1)/2^schema), 2^(i/2^schema)]`.
    Exponential(i32),
    /// Custom upper bounds (schema −53): bucket `i` ends at `bounds[i]`, inclusive; the last one,
    /// `bounds.len()`, at infinity.
    Custom(Arc<[f64]>),
    /// Buckets of another scheme, as numbered by `hist`; values beyond the last one are under
    /// `i32::MAX`.
    Scheme(Scheme),
}

/// Histogram with counts that may be fractional or negative.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatHistogram {
    /// Bucket grid.
    pub grid: BucketGrid,
    /// Maximum distance from zero of values in the zero bucket.
    pub zero_threshold: f64,
    /// Count of the zero bucket.
    pub zero_count: f64,
    /// Total count.
    pub count: f64,
    /// Sum of the values.
    pub sum: f64,
    /// Non-zero counts by rising index.
    pub positive: Vec<(i32, f64)>,
    /// Counts of negative values, by the index of their magnitude.
    pub negative: Vec<(i32, f64)>,
    /// Counter reset hint.
    pub hint: ResetHint,
}

impl Default for FloatHistogram {
    /// Empty histogram with schema 0.
    fn default() -> FloatHistogram {
        FloatHistogram {
            grid: BucketGrid::Exponential(0),
            zero_threshold: 0.0,
            zero_count: 0.0,
            count: 0.0,
            sum: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
            hint: ResetHint::Unknown,
        }
    }
}

impl FloatHistogram {
    /// Multiplies all counts and the sum. A negative factor makes it a gauge.
    pub(crate) fn mul(&mut self, factor: f64) {
        self.each(|value| value * factor);
        if factor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Divides all counts and the sum. A negative divisor makes it a gauge; division by zero leaves
    /// no buckets.
    pub fn div(&mut self, divisor: f64) {
        if divisor == 0.0 {
            self.positive.clear();
            self.negative.clear();
        }
        self.each(|value| value / divisor);
        if divisor < 0.0 {
            self.hint = ResetHint::Gauge;
        }
    }

    /// Negates all counts and the sum, which makes it a gauge.
    pub fn negate(&mut self) {
        self.mul(-1.0);
    }

    fn each(&mut self, f: impl Fn(f64) -> f64) {
        let values = [&mut self.zero_count, &mut self.count, &mut self.sum];
        let buckets = self.positive.iter_mut().chain(&mut self.negative).map(|(_, count)| count);
        for value in values.into_iter().chain(buckets) {
            *value = f(*value);
        }
        counts::drop_empty(&mut self.positive);
        counts::drop_empty(&mut self.negative);
    }

    /// Whether a count, the sum or a bound has overflowed.
    pub(crate) fn has_overflow(&self) -> bool {
        let bounds: &[f64] = match &self.grid {
            BucketGrid::Custom(bounds) => bounds,
            _ => &[],
        };
        [self.zero_count, self.count, self.sum]
            .iter()
            .chain(bounds)
            .chain(self.positive.iter().chain(&self.negative).map(|(_, count)| count))
            .any(|value| value.is_infinite())
    }

    /// Whether both have the same data bit for bit, so that NaN equals NaN; hints are ignored.
    pub fn equals(&self, other: &FloatHistogram) -> bool {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let same_counts = |a: &[(i32, f64)], b: &[(i32, f64)]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        };
        self.grid == other.grid
            && self.zero_threshold == other.zero_threshold
            && same(self.zero_count, other.zero_count)
            && same(self.count, other.count)
            && same(self.sum, other.sum)
            && same_counts(&self.positive, &other.positive)
            && same_counts(&self.negative, &other.negative)
    }
}
