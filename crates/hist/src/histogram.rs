//! The histogram type.
//!
//! A histogram has bucket counts on a [`Scheme`]'s grid, counts of the values outside the grid
//! (zero, NaN, overflow, underflow), and exact summary statistics (sum, min, max) and counts above
//! declared thresholds, so that no recorded value is missing from the total. Counts are `u64`;
//! values are doubles in the unit of the user. Recording a value here costs a binary search:
//! [`crate::Recorder`] is the fast way to record.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod merge;
mod parts;

use merge::{tracked_greater, tracked_lesser};
pub use parts::{HistogramParts, PartsError};
pub(crate) use parts::{check_smallest, check_thresholds};

use crate::buckets::Buckets;
use crate::error::MergeError;
use crate::scheme::{BucketPosition, Scheme};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// A distribution of recorded values.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    scheme: Scheme,
    zero_threshold: f64,
    positive: Buckets,
    negative: Buckets,
    zero: u64,
    overflow: u64,
    underflow: u64,
    nan: u64,
    /// Number of values except NaN: the sum of the fields above.
    count: u64,
    /// Undefined while `count` is 0, as are `min` and `max`.
    sum: TrackedValue<DoubleDouble>,
    min: TrackedValue<f64>,
    max: TrackedValue<f64>,
    thresholds: Vec<Threshold>,
}

/// Declared threshold (for instance of an SLO) with the exact count of values above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Threshold, in the unit of the values.
    pub value: f64,
    /// Number of values strictly above the threshold.
    pub above: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new(Scheme::default())
    }
}

impl Histogram {
    /// Maximum number of thresholds of one histogram: each costs a comparison per value.
    pub const THRESHOLDS_MAX: usize = 64;

    /// An empty histogram.
    pub fn new(scheme: Scheme) -> Histogram {
        Histogram {
            scheme,
            zero_threshold: 0.0,
            positive: Buckets::default(),
            negative: Buckets::default(),
            zero: 0,
            overflow: 0,
            underflow: 0,
            nan: 0,
            count: 0,
            sum: TrackedValue::Exact(DoubleDouble::default()),
            min: TrackedValue::Exact(f64::INFINITY),
            max: TrackedValue::Exact(f64::NEG_INFINITY),
            thresholds: Vec::new(),
        }
    }

    /// Counts values within ±`threshold` as zero. Call it before recording.
    pub fn with_zero_threshold(mut self, threshold: f64) -> Result<Histogram, PartsError> {
        if !(threshold.is_finite() && threshold >= 0.0) {
            return Err(PartsError::ZeroThreshold { found: threshold });
        }
        self.raise_zero_threshold(threshold);
        Ok(self)
    }

    /// Counts the values above each of `values` exactly. Call it before recording.
    pub fn with_thresholds(mut self, values: &[f64]) -> Result<Histogram, PartsError> {
        assert!(self.count == 0, "thresholds are declared before the first value");
        self.thresholds = values.iter().map(|&value| Threshold { value, above: 0 }).collect();
        check_thresholds(&self.thresholds, 0)?;
        Ok(self)
    }

    /// Records one value.
    pub fn record(&mut self, value: f64) {
        self.record_n(value, 1);
    }

    /// Records a value `n` times.
    ///
    /// Panics if the total would exceed 2^64 − 1, which takes 584 years at a billion values per
    /// second.
    #[expect(clippy::expect_used, reason = "documented: more than 2^64 - 1 recorded values")]
    pub fn record_n(&mut self, value: f64, n: u64) {
        if n == 0 {
            return;
        }
        let position = self.scheme.position(value, self.zero_threshold);
        if position == BucketPosition::Nan {
            let nan = self.nan.checked_add(n);
            self.nan = nan
                .filter(|nan| nan.checked_add(self.count).is_some())
                .expect("BUG: more than 2^64 values");
            return;
        }
        let before = self.count;
        self.count = before
            .checked_add(n)
            .filter(|count| count.checked_add(self.nan).is_some())
            .expect("BUG: more than 2^64 values");
        self.count_at(position, n);
        let sum = DoubleDouble::product(value, n);
        if before == 0 {
            (self.sum, self.min, self.max) =
                (TrackedValue::Exact(sum), TrackedValue::Exact(value), TrackedValue::Exact(value));
        } else {
            self.sum =
                drop_undefined_sum(self.sum.combine(TrackedValue::Exact(sum), DoubleDouble::plus));
            self.min = tracked_lesser(
                self.min,
                TrackedValue::Exact(value),
                || f64::NEG_INFINITY,
                || value,
            );
            self.max =
                tracked_greater(self.max, TrackedValue::Exact(value), || f64::INFINITY, || value);
        }
        for threshold in &mut self.thresholds {
            threshold.above =
                threshold.above.wrapping_add(if value > threshold.value { n } else { 0 });
        }
    }

    /// Adds `n` at one position. The caller has checked that the total fits.
    fn count_at(&mut self, position: BucketPosition, n: u64) {
        match position {
            BucketPosition::Positive(index) => self.positive.add(index, n),
            BucketPosition::Negative(index) => self.negative.add(index, n),
            BucketPosition::Zero => self.zero = self.zero.wrapping_add(n),
            BucketPosition::Overflow => self.overflow = self.overflow.wrapping_add(n),
            BucketPosition::Underflow => self.underflow = self.underflow.wrapping_add(n),
            BucketPosition::Nan => self.nan = self.nan.wrapping_add(n),
        }
    }

    /// Records a value measured by a caller that waited for it, and the values that the caller
    /// could not measure during the wait.
    ///
    /// If operations should start every `expected_interval` and one of them takes longer, the
    /// operations that should have started during it were not measured. Each would have taken one
    /// interval less than the one before: `value - expected_interval`,
    /// `value - 2 * expected_interval`, … down to one interval (coordinated omission; the
    /// correction is HdrHistogram's). The cost is one step per bucket in between, not per value.
    /// Fails without any change if the total would exceed 2^64 − 1.
    pub fn record_corrected(
        &mut self,
        value: f64,
        expected_interval: f64,
    ) -> Result<(), MergeError> {
        let mut corrected = self.empty_copy();
        corrected.record(value);
        if expected_interval > 0.0 && value.is_finite() {
            // Rounded like doubles: a wait of 1.0 with an interval of 0.1 is ten intervals.
            let intervals = (value / expected_interval).floor();
            if intervals >= u64::MAX as f64 {
                return Err(MergeError::CountOverflow);
            }
            corrected.record_descending(
                value,
                expected_interval,
                (intervals as u64).max(1).wrapping_sub(1),
            );
        }
        self.merge(&corrected)
    }

    /// Records `value - k * interval` for k from 1 to `last`, all of them above zero. The values
    /// descend, so each bucket holds one run of k; the end of the run is found by bisection.
    fn record_descending(&mut self, value: f64, interval: f64, last: u64) {
        if last == 0 {
            return;
        }
        let missing =
            |k: u64| DoubleDouble::new(value).minus(DoubleDouble::product(interval, k)).value();
        let run_end = |from: u64, holds: &dyn Fn(f64) -> bool| {
            let (mut inside, mut step) = (from, 1);
            while inside < last
                && holds(missing(inside.wrapping_add(step.min(last.wrapping_sub(inside)))))
            {
                inside = inside.wrapping_add(step.min(last.wrapping_sub(inside)));
                step = step.saturating_mul(2);
            }
            while step > 0 {
                if step <= last.wrapping_sub(inside) && holds(missing(inside.wrapping_add(step))) {
                    inside = inside.wrapping_add(step);
                }
                step /= 2;
            }
            inside
        };
        let (mut positions, mut k) = (Vec::new(), 1);
        while k <= last {
            let position = self.scheme.position(missing(k), self.zero_threshold);
            let end = run_end(k, &|v| self.scheme.position(v, self.zero_threshold) == position);
            positions.push((position, end.wrapping_sub(k).wrapping_add(1)));
            k = end.wrapping_add(1);
        }
        // Ascending, so that every bucket is appended.
        let mut positive = Buckets::with_capacity(positions.len());
        for &(position, n) in positions.iter().rev() {
            match position {
                BucketPosition::Positive(index) => positive.push(index, n),
                _ => self.count_at(position, n),
            }
        }
        self.positive.merge(&positive);
        self.count = self.count.wrapping_add(last);
        // The mean of an arithmetic series is the mean of its ends.
        let mean = DoubleDouble::new(value)
            .minus(DoubleDouble::product(interval * 0.5, last.wrapping_add(1)));
        self.sum = self.sum.combine(TrackedValue::Exact(mean.times(last)), DoubleDouble::plus);
        self.min = TrackedValue::Exact(missing(last));
        for threshold in &mut self.thresholds {
            if missing(1) > threshold.value {
                threshold.above =
                    threshold.above.wrapping_add(run_end(1, &|v| v > threshold.value));
            }
        }
    }

    /// Whether all values except 0 are large enough that an integral sum implies integral values: a
    /// tiny value, even one counted as zero, would vanish in a large sum.
    pub(crate) fn may_be_integers(&self) -> bool {
        let zeros_are_0 = self.zero == 0 || self.zero_end() == 0.0;
        let all = [&self.positive, &self.negative];
        zeros_are_0
            && all.iter().all(|buckets| {
                let least = buckets.indexes().first().and_then(|&index| self.scheme.span(index));
                least.is_none_or(|(lower, _)| lower >= 0.5)
            })
    }

    /// Downgrades exact summary statistics that cannot be true to estimates. NaN, and bounds that
    /// cannot be true or say no more than the buckets, become absent.
    fn normalize_summary(&mut self) {
        if self.count == 0 {
            self.sum = TrackedValue::Exact(DoubleDouble::default());
            (self.min, self.max) =
                (TrackedValue::Exact(f64::INFINITY), TrackedValue::Exact(f64::NEG_INFINITY));
            return;
        }
        let known = |extreme: TrackedValue<f64>| {
            let value = extreme.value().or(extreme.limit());
            if value.is_some_and(f64::is_nan) { TrackedValue::Absent } else { extreme }
        };
        (self.min, self.max) = (known(self.min), known(self.max));
        let within =
            |extreme: TrackedValue<f64>, (lower, upper): (f64, f64), edge: f64| match extreme {
                TrackedValue::Exact(value) if value < lower || value > upper => extreme.downgrade(),
                TrackedValue::Bound(value) if value < lower || value > upper || value == edge => {
                    TrackedValue::Absent
                }
                _ => extreme,
            };
        // Most samples of other systems have no extremes, and edges of buckets cost more than all
        // of the above.
        if self.min.limit().is_some() {
            let lowest = self.extreme_bounds(false);
            self.min = within(self.min, lowest, lowest.0);
        }
        if self.max.limit().is_some() {
            let highest = self.extreme_bounds(true);
            self.max = within(self.max, highest, highest.1);
        }
        if let (Some(min), Some(max)) = (self.min.limit(), self.max.limit())
            && min > max
        {
            (self.min, self.max) = (self.min.downgrade(), self.max.downgrade());
        }
        self.sum = drop_undefined_sum(self.sum);
    }

    /// Bucket scheme.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Buckets of values above zero; with explicit bounds, of all values.
    pub fn positive(&self) -> &Buckets {
        &self.positive
    }

    /// Buckets of values below zero, by magnitude.
    pub fn negative(&self) -> &Buckets {
        &self.negative
    }

    /// Values within ± this threshold are counted as zero.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Number of values counted as zero.
    pub fn zero_count(&self) -> u64 {
        self.zero
    }

    /// Number of values above the grid, including +inf.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Number of values below the grid, including -inf.
    pub fn underflow(&self) -> u64 {
        self.underflow
    }

    /// Number of NaN values. No other count includes them.
    pub fn nan_count(&self) -> u64 {
        self.nan
    }

    /// Number of values, without NaN.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the histogram has no value except NaN.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no value is certainly negative, on a grid that distinguishes signs.
    pub(crate) fn has_no_negatives(&self) -> bool {
        self.negative.is_empty() && self.underflow == 0
    }

    /// Sum as stored beside the buckets.
    pub fn tracked_sum(&self) -> TrackedValue<DoubleDouble> {
        self.sum
    }

    /// Smallest value as stored beside the buckets; absent if the histogram is empty.
    pub fn tracked_min(&self) -> TrackedValue<f64> {
        if self.count == 0 { TrackedValue::Absent } else { self.min }
    }

    /// Largest value as stored beside the buckets; absent if the histogram is empty.
    pub fn tracked_max(&self) -> TrackedValue<f64> {
        if self.count == 0 { TrackedValue::Absent } else { self.max }
    }

    /// Declared thresholds with their exact counts, ascending.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }
}

/// A sum of infinities of both signs is undefined.
pub(crate) fn drop_undefined_sum(sum: TrackedValue<DoubleDouble>) -> TrackedValue<DoubleDouble> {
    if sum.value().is_some_and(|sum| sum.value().is_nan()) { TrackedValue::Absent } else { sum }
}
