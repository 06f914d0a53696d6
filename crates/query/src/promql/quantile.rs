//! Quantiles, fractions and moments: Prometheus' estimate with bounds.
//!
//! The estimate equals Prometheus' to the last bit. The bounds come from the buckets alone: where
//! Prometheus assumes that a lowest bucket or the zero bucket starts at 0, the bounds do not. They
//! hold if counts are non-negative and every value is within its bucket.

mod classic;
mod native;

pub use classic::{CumulativeBucket, ForcedMonotonic, MonotonicFix};
pub(crate) use classic::{classic_fraction, classic_quantile};
pub use native::{NanEffect, average, fraction, quantile, stddev, variance};

/// Quantile estimate with bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatisticEstimate {
    /// Prometheus' result.
    pub estimate: f64,
    /// Lower bound of the true value.
    pub lower: f64,
    /// Upper bound of the true value.
    pub upper: f64,
}

impl StatisticEstimate {
    /// Exact number, or NaN, which has no bounds.
    pub fn exact(value: f64) -> StatisticEstimate {
        StatisticEstimate { estimate: value, lower: value, upper: value }
    }

    /// Bounds, widened to the estimate if rounding has put it outside. NaN has no bounds.
    fn new(lower: f64, estimate: f64, upper: f64) -> StatisticEstimate {
        if estimate.is_nan() {
            return StatisticEstimate::exact(estimate);
        }
        StatisticEstimate { estimate, lower: lower.min(estimate), upper: upper.max(estimate) }
    }
}

/// Result for a `q` outside of 0 to 1, which does not depend on the histogram.
fn out_of_range(q: f64) -> Option<f64> {
    if q.is_nan() {
        Some(f64::NAN)
    } else if q < 0.0 {
        Some(f64::NEG_INFINITY)
    } else {
        (q > 1.0).then_some(f64::INFINITY)
    }
}

/// Maximum rounding error of a sum of counts that is compared with a rank.
fn slack(count: f64) -> f64 {
    count.abs() * 1e-12
}
