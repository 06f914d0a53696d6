//! Cumulative values and their deltas.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::Histogram;

/// Cumulative value that deltas can be computed from.
pub(crate) trait CumulativeValue: Sized + Clone {
    /// The increase since `before`; `None` after a reset.
    fn since(&self, before: &Self) -> Option<Self>;
    /// Whether it carries a value. Prometheus' staleness marker does not.
    fn is_amount(&self) -> bool {
        true
    }
}

impl CumulativeValue for Histogram {
    fn since(&self, before: &Histogram) -> Option<Histogram> {
        self.difference(before).ok()
    }
}

impl CumulativeValue for f64 {
    fn since(&self, before: &f64) -> Option<f64> {
        (self >= before).then(|| self - before)
    }

    fn is_amount(&self) -> bool {
        !self.is_nan()
    }
}
