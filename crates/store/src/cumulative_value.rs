//! Values that grow, and what was added between two of them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::Histogram;

/// Cumulative value that deltas can be computed from.
pub(crate) trait CumulativeValue: Sized + Clone {
    /// What was added since `before`; `None` if it began anew.
    fn since(&self, before: &Self) -> Option<Self>;
    /// Whether it says how much there is. Prometheus' mark of the end of a series does not.
    fn is_amount(&self) -> bool {
        true
    }
}

impl CumulativeValue for Histogram {
    fn since(&self, before: &Histogram) -> Option<Histogram> {
        let mut added = self.clone();
        added.subtract(before).ok().map(|()| added)
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
