//! Quantiles, fractions and moments: Prometheus' estimate with bounds.
//!
//! The estimate equals Prometheus' to the last bit. The bounds come from the buckets alone: where
//! Prometheus assumes that a lowest bucket or the zero bucket starts at 0, the bounds do not. They
//! hold if counts are non-negative and every value is within its bucket.

mod classic;
mod native;

pub use classic::{
    CumulativeBucket, ForcedMonotonic, MonotonicFix, classic_fraction, classic_quantile,
};
pub use native::{NanEffect, average, fraction, quantile, stddev, variance};

/// Quantile estimate with bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantileEstimate {
    /// Prometheus' result.
    pub estimate: f64,
    /// Lower bound of the true value.
    pub lower: f64,
    /// Upper bound of the true value.
    pub upper: f64,
}

impl QuantileEstimate {
    /// Exact number, or NaN, which has no bounds.
    pub fn exact(value: f64) -> QuantileEstimate {
        QuantileEstimate { estimate: value, lower: value, upper: value }
    }

    /// Bounds, widened to the estimate if rounding has put it outside. NaN has no bounds.
    fn new(lower: f64, estimate: f64, upper: f64) -> QuantileEstimate {
        if estimate.is_nan() {
            return QuantileEstimate::exact(estimate);
        }
        QuantileEstimate { estimate, lower: lower.min(estimate), upper: upper.max(estimate) }
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

/// Sorts samples as [`quantile_of_sorted`] requires: NaN first.
pub(crate) fn sort_samples(samples: &mut [f64]) {
    samples.sort_by(|a, b| {
        b.is_nan().cmp(&a.is_nan()).then(a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal))
    });
}

/// Quantile of samples sorted by [`sort_samples`]: interpolated between two of them, which are its
/// bounds.
pub(crate) fn quantile_of_sorted(q: f64, samples: &[f64]) -> QuantileEstimate {
    let Some(last) = samples.len().checked_sub(1) else { return QuantileEstimate::exact(f64::NAN) };
    if let Some(answer) = out_of_range(q) {
        return QuantileEstimate::exact(answer);
    }
    let rank = q * last as f64;
    let whole = rank.floor();
    let weight = rank - whole;
    let below = (whole as usize).min(last);
    let above = (below + 1).min(last);
    let (lower, upper) = (samples[below], samples[above]);
    let upper_bound = if weight == 0.0 { lower } else { upper };
    QuantileEstimate::new(lower, lower * (1.0 - weight) + upper * weight, upper_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(q: f64, samples: &[f64], lower: f64, estimate: f64, upper: f64) {
        let mut samples = samples.to_vec();
        sort_samples(&mut samples);
        let found = quantile_of_sorted(q, &samples);
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        assert!(
            same(found.lower, lower) && same(found.estimate, estimate) && same(found.upper, upper),
            "{found:?}"
        );
    }

    #[test]
    fn quantiles_of_samples() {
        check(0.5, &[], f64::NAN, f64::NAN, f64::NAN);
        check(0.5, &[3.0], 3.0, 3.0, 3.0);
        check(0.5, &[3.0, 1.0], 1.0, 2.0, 3.0);
        check(0.25, &[4.0, 1.0, 2.0], 1.0, 1.5, 2.0);
        check(1.0, &[4.0, 1.0, 2.0], 4.0, 4.0, 4.0);
        check(-0.1, &[1.0], f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY);
        check(1.1, &[1.0], f64::INFINITY, f64::INFINITY, f64::INFINITY);
        check(f64::NAN, &[1.0], f64::NAN, f64::NAN, f64::NAN);
        check(0.0, &[1.0, f64::NAN], f64::NAN, f64::NAN, f64::NAN);
        check(1.0, &[1.0, f64::NAN], 1.0, 1.0, 1.0);
    }
}
