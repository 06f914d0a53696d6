//! Conversion to a grid that does not nest, with the added error, and to another unit, without one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::cells::Cell;
use crate::error::MergeError;
use crate::histogram::{Histogram, HistogramParts, Threshold};
use crate::scheme::{BucketPosition, Scheme};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Converted histogram with the added error.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// Counts on the new grid. Each source bucket is moved as a whole. The brackets refer to the
    /// moved values at the middles of the source buckets; a recorded value may differ from that
    /// middle by the width that the source grid leaves open.
    pub histogram: Histogram,
    /// Largest relative distance between the middle of a source bucket and the far end of its
    /// target bucket.
    pub error_added: f64,
}

impl Histogram {
    /// The distribution of the values divided by a number, for another unit: bucket edges, sum,
    /// minimum, maximum and thresholds are quotients, each rounded once; counts do not change.
    #[must_use]
    #[expect(clippy::expect_used, reason = "quotients have the order of their dividends")]
    pub fn divide(&self, divisor: f64) -> Histogram {
        if divisor == 1.0 {
            return self.clone();
        }
        let parts = self.clone().into_parts();
        let extreme = |side: TrackedValue<f64>| side.map(|value| value / divisor);
        let divided = HistogramParts {
            scheme: parts.scheme.divide(divisor),
            zero_threshold: parts.zero_threshold / divisor,
            sum: parts.sum.map(|sum| DoubleDouble::new(sum.value() / divisor)),
            min: extreme(parts.min),
            max: extreme(parts.max),
            thresholds: (parts.thresholds.iter())
                .map(|of| Threshold { value: of.value / divisor, ..*of })
                .collect(),
            ..parts
        };
        Histogram::from_recorded_parts(divided).expect("BUG: quotients of a histogram make one")
    }

    /// The same buckets as explicit bounds, those with values only: for formats that lack the
    /// scheme. `None` if there are more than `Explicit::BOUNDS_MAX`.
    pub fn to_explicit(&self) -> Option<Histogram> {
        let (mut bounds, mut positive) = (Vec::new(), Vec::new());
        for Cell { lower, upper, count } in self.uncut_cells().filter(|cell| cell.count > 0) {
            // Quotients of adjacent bounds may be equal: then the lower bucket has the bound.
            let last = |bounds: &[f64]| bounds.last().copied().unwrap_or(f64::NEG_INFINITY);
            let below = lower.next_down();
            if below > last(&bounds) {
                bounds.push(below);
            }
            positive.push((i32::try_from(bounds.len()).ok()?, count));
            if upper.is_finite() {
                bounds.push(upper.max(last(&bounds).next_up()));
            }
        }
        let scheme = Scheme::explicit(&bounds).ok()?;
        let (nan, sum, thresholds) =
            (self.nan_count(), self.tracked_sum(), self.thresholds().to_vec());
        let (min, max) = (self.tracked_min(), self.tracked_max());
        let parts = HistogramParts {
            positive,
            nan,
            sum,
            min,
            max,
            thresholds,
            ..HistogramParts::new(scheme)
        };
        Histogram::from_recorded_parts(parts).ok()
    }

    /// Converts the counts to another grid: each bucket is moved as a whole to the bucket that
    /// contains its middle. Minimum, maximum and sum become estimates if they contradict the new
    /// buckets.
    #[expect(clippy::expect_used, reason = "the counts have the total of this histogram")]
    pub fn convert(&self, scheme: &Scheme) -> Result<Conversion, MergeError> {
        if self.scheme().common(scheme).as_ref() == Some(scheme) {
            let mut histogram = Histogram::new(scheme.clone());
            histogram.merge(self)?;
            return Ok(Conversion { histogram, error_added: 0.0 });
        }
        let mut counts = Histogram::new(scheme.clone());
        let mut error_added: f64 = 0.0;
        // Uncut cells: two cells whose exact extremes touch would get the same middle.
        for cell in self.uncut_cells() {
            let middle = cell.middle();
            counts.record_n(middle, cell.count);
            let held = match scheme.position(middle, 0.0) {
                BucketPosition::Positive(index) => scheme.span(index),
                BucketPosition::Negative(index) => {
                    scheme.span(index).map(|(lower, upper)| (-upper, -lower))
                }
                _ => None,
            };
            if let Some((lower, upper)) = held.filter(|_| middle != 0.0) {
                let far = (middle - lower).abs().max((upper - middle).abs());
                error_added = error_added.max(far / middle.abs());
            }
        }
        let counts = counts.into_parts();
        let parts = HistogramParts {
            // Upper bound of the values counted as zero.
            zero_threshold: if self.zero_count() > 0 { self.zero_end() } else { 0.0 },
            nan: self.nan_count(),
            sum: self.tracked_sum(),
            min: self.tracked_min(),
            max: self.tracked_max(),
            thresholds: self.thresholds().to_vec(),
            ..counts
        };
        let histogram = Histogram::from_parts(parts).expect("BUG: parts of a histogram make one");
        Ok(Conversion { histogram, error_added })
    }
}
