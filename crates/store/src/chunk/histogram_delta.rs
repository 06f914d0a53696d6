//! Deltas of cumulative histograms within a chunk.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::{DoubleDouble, Histogram, TrackedValue};

use super::row_groups::is_uniform;

/// The counts added between two samples, if the later one can be encoded as them and its summary.
/// `first` are those of the first delta of the chunk: all deltas of a block are uniform.
pub(super) fn codable_delta(
    before: &Histogram,
    after: &Histogram,
    first: Option<&Histogram>,
) -> Option<Histogram> {
    // Sums are encoded separately; a block is smallest without them.
    let added = after.counts_since(before)?;
    let is_codable = first.is_none_or(|first| is_uniform(first, &added))
        && (is_restored(before, after)
            || apply_delta(before, &added, &TrackedStatistics::from_histogram(after)).as_ref()
                == Some(after));
    is_codable.then_some(added)
}

/// True only if a sample equals `before` with the counts that were added and the sample's summary:
/// without thresholds and extremes, on one grid, counts add up and nothing else is kept.
fn is_restored(before: &Histogram, after: &Histogram) -> bool {
    let summary = TrackedStatistics::from_histogram(after);
    let sum_is_number =
        summary.sum.value().is_none_or(|sum| !sum.parts().0.is_nan() && !sum.parts().1.is_nan());
    before.scheme() == after.scheme()
        && before.zero_threshold() == after.zero_threshold()
        && before.thresholds().is_empty()
        && after.thresholds().is_empty()
        && !after.is_empty()
        && summary.min == TrackedValue::Absent
        && summary.max == TrackedValue::Absent
        && sum_is_number
}

/// The sample that follows `before`. Its summary is trusted, as that of any stored histogram.
pub(super) fn apply_delta(
    before: &Histogram,
    added: &Histogram,
    sides: &TrackedStatistics,
) -> Option<Histogram> {
    before.plus_counts(added, sides.sum, sides.min, sides.max)
}

/// Summary values of a cumulative histogram beside its counts.
#[derive(Clone, Copy)]
pub(crate) struct TrackedStatistics {
    pub(super) sum: TrackedValue<DoubleDouble>,
    pub(super) min: TrackedValue<f64>,
    pub(super) max: TrackedValue<f64>,
}

impl TrackedStatistics {
    pub(crate) fn from_histogram(histogram: &Histogram) -> TrackedStatistics {
        let (sum, min, max) =
            (histogram.tracked_sum(), histogram.tracked_min(), histogram.tracked_max());
        TrackedStatistics { sum, min, max }
    }

    /// Whether the sum is exact in one double, and the extremes are unknown.
    pub(crate) fn is_plain(&self) -> bool {
        self.sum.exact().is_some_and(|sum| sum.parts().1 == 0.0)
            && self.min == TrackedValue::Absent
            && self.max == TrackedValue::Absent
    }

    pub(super) fn exactness_bits(&self) -> u8 {
        fn of<T>(side: TrackedValue<T>) -> u8 {
            match side {
                TrackedValue::Absent => 0,
                TrackedValue::Estimated(_) => 1,
                TrackedValue::Exact(_) => 2,
                // No decoder reports bounds in a cumulative sample.
                TrackedValue::Bound(_) => 0,
            }
        }
        of(self.sum) | of(self.min) << 2 | of(self.max) << 4
    }

    pub(super) fn numbers(&self) -> [f64; 4] {
        let (high, low) = self.sum.value().unwrap_or_default().parts();
        [high, low, self.min.value().unwrap_or_default(), self.max.value().unwrap_or_default()]
    }

    pub(super) fn from_bits(accuracies: u8, [high, low, min, max]: [f64; 4]) -> TrackedStatistics {
        fn side<T>(tag: u8, value: T) -> TrackedValue<T> {
            match tag & 3 {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(value),
                _ => TrackedValue::Exact(value),
            }
        }
        TrackedStatistics {
            sum: side(accuracies, DoubleDouble::from_parts(high, low)),
            min: side(accuracies >> 2, min),
            max: side(accuracies >> 4, max),
        }
    }
}
