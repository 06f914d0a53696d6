//! Samples of a cumulative histogram in time order, as the head holds them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::{DoubleDouble, Histogram, TrackedValue};

use crate::row::Row;

/// Sample of a cumulative histogram.
#[derive(Clone, Debug)]
pub(crate) struct CumulativeSample {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) content: SampleContent,
}

/// Content of a sample.
#[derive(Clone, Debug)]
pub(crate) enum SampleContent {
    Whole(Histogram),
    /// The counts added since the sample before it, and its sum. Both samples have the same grid
    /// and zero threshold, and neither thresholds nor extremes.
    Increment {
        counts: Histogram,
        sum: TrackedValue<DoubleDouble>,
    },
}

impl From<Row<Histogram>> for CumulativeSample {
    fn from(row: Row<Histogram>) -> CumulativeSample {
        CumulativeSample {
            start: row.start,
            end: row.end,
            content: SampleContent::Whole(row.value),
        }
    }
}
