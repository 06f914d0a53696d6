//! Deltas of cumulative histograms within a chunk.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::{CompensatedSum, Histogram, TrackedValue};

use super::row_groups::is_uniform;
use crate::row::Row;

/// Whether a sample can be encoded as its delta to the last of `chunk`.
pub(super) fn is_delta_codable(chunk: &[Row<Histogram>], row: &Row<Histogram>) -> bool {
    let Some(Row { value: before, .. }) = chunk.last() else { return false };
    let Some(added) = delta_between(before, &row.value) else { return false };
    let first_added =
        chunk.get(1).and_then(|second| self::delta_between(&chunk[0].value, &second.value));
    first_added.is_none_or(|first| is_uniform(&first, &added))
        && apply_delta(before, &added, &TrackedSummary::from_histogram(&row.value)).as_ref()
            == Some(&row.value)
}

pub(super) fn delta_between(before: &Histogram, after: &Histogram) -> Option<Histogram> {
    let mut added = after.clone();
    added.subtract(before).ok()?;
    // Sums are encoded separately; a block is smallest without them.
    let mut parts = added.into_parts();
    (parts.sum, parts.min, parts.max) =
        (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_parts(parts).ok()
}

pub(super) fn apply_delta(
    before: &Histogram,
    added: &Histogram,
    sides: &TrackedSummary,
) -> Option<Histogram> {
    let mut after = before.clone();
    after.merge(added).ok()?;
    let mut parts = after.into_parts();
    (parts.sum, parts.min, parts.max) = (sides.sum, sides.min, sides.max);
    Histogram::from_parts(parts).ok()
}

/// Summary values of a cumulative histogram beside its counts.
pub(crate) struct TrackedSummary {
    pub(super) sum: TrackedValue<CompensatedSum>,
    pub(super) min: TrackedValue<f64>,
    pub(super) max: TrackedValue<f64>,
}

impl TrackedSummary {
    pub(crate) fn from_histogram(histogram: &Histogram) -> TrackedSummary {
        let (sum, min, max) =
            (histogram.tracked_sum(), histogram.tracked_min(), histogram.tracked_max());
        TrackedSummary { sum, min, max }
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

    pub(super) fn from_bits(accuracies: u8, [high, low, min, max]: [f64; 4]) -> TrackedSummary {
        fn side<T>(tag: u8, value: T) -> TrackedValue<T> {
            match tag & 3 {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(value),
                _ => TrackedValue::Exact(value),
            }
        }
        TrackedSummary {
            sum: side(accuracies, CompensatedSum::from_parts(high, low)),
            min: side(accuracies >> 2, min),
            max: side(accuracies >> 4, max),
        }
    }
}
