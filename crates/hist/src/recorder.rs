//! Single-threaded recorder.
//!
//! Values are whole numbers from 0 to 2^64 − 1; latencies are in nanoseconds. A record is one
//! lookup in a table of 512 bytes, one addition to a bucket, and the update of the exact side
//! values. No branch depends on the value, except for new extremes. The counts take (64 ·
//! 2^SCALE + 1) · 8 bytes (16 KiB at scale 5), of which only the touched pages become resident.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: fewer than 2^64 values are recorded (`BULK_MAX`), each below 2^64, so counts
// fit 64 bits and the sum fits 128 bits. They are the instructions of `+` in a release build.

use crate::error::MergeError;
use crate::histogram::{Histogram, HistogramParts, Threshold};
use crate::scheme::{Integers, Scheme};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Maximum number of values recorded in bulk. Recording the other 2^63 values one by one would take
/// centuries, so the total stays below 2^64.
const BULK_MAX: u64 = 1 << 63;

/// Recorder of whole numbers for one thread; [`crate::SharedRecorder`] is for many threads.
#[derive(Clone, Debug)]
pub struct Recorder<const SCALE: u32 = 5> {
    counts: Box<[u64]>,
    zero: u64,
    sum: u128,
    min: u64,
    max: u64,
    thresholds: Vec<(u64, u64)>,
    /// Number of values recorded in bulk.
    bulk_count: u64,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// A recorder at the default scale 5 (error at most 1.08 %).
    pub fn new() -> Recorder {
        Recorder::with_scale()
    }
}

impl<const SCALE: u32> Recorder<SCALE> {
    /// A recorder at another scale: `Recorder::<8>::with_scale()`.
    pub fn with_scale() -> Recorder<SCALE> {
        Recorder {
            counts: vec![0; Integers::<SCALE>::POSITIONS].into(),
            zero: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
            thresholds: Vec::new(),
            bulk_count: 0,
        }
    }

    /// Counts exactly the values above each of `limits`, from now on. Each limit costs a comparison
    /// per record; the maximum is [`Histogram::THRESHOLDS_MAX`].
    pub fn with_thresholds(mut self, limits: &[u64]) -> Recorder<SCALE> {
        self.thresholds = sort_thresholds(limits).into_iter().map(|limit| (limit, 0)).collect();
        self
    }

    /// Records one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count(value, 1);
    }

    /// Records a value `n` times.
    ///
    /// Panics if more than 2^63 values would have been recorded in bulk.
    #[inline]
    #[expect(clippy::expect_used, reason = "documented: more than 2^63 values")]
    pub fn record_n(&mut self, value: u64, n: u64) {
        self.bulk_count = self.bulk_with(n).expect("BUG: more than 2^63 values");
        if n > 0 {
            self.count(value, n);
        }
    }

    /// Adds `n` values, `n` above zero. The caller has checked that the total fits.
    #[inline]
    fn count(&mut self, value: u64, n: u64) {
        if value == 0 {
            self.zero = self.zero.wrapping_add(n);
        } else {
            let count = &mut self.counts[Integers::<SCALE>::position(value)];
            *count = count.wrapping_add(n);
        }
        self.sum = self.sum.wrapping_add(u128::from(value).wrapping_mul(n.into()));
        if value < self.min {
            self.min = value;
        }
        if value > self.max {
            self.max = value;
        }
        for (limit, above) in &mut self.thresholds {
            *above = above.wrapping_add(if value > *limit { n } else { 0 });
        }
    }

    fn bulk_with(&self, n: u64) -> Option<u64> {
        self.bulk_count.checked_add(n).filter(|&bulk| bulk <= BULK_MAX)
    }

    /// Records a value and the values that the caller could not measure while it waited: see
    /// [`Histogram::record_corrected`]. Fails without any change if more than 2^63 values would
    /// have been recorded in bulk.
    pub fn record_corrected(
        &mut self,
        value: u64,
        expected_interval: u64,
    ) -> Result<(), MergeError> {
        let intervals = value.checked_div(expected_interval).unwrap_or(0);
        let last = intervals.saturating_sub(1);
        self.bulk_count = self.bulk_with(last).ok_or(MergeError::CountOverflow)?;
        self.record(value);
        if last > 0 {
            self.count_descending(value, expected_interval, last);
        }
        Ok(())
    }

    /// Records `value - k * interval` for k from 1 to `last`, all at least `interval`. The values
    /// descend, so each bucket holds one run of k; the end of the run is found by bisection.
    fn count_descending(&mut self, value: u64, interval: u64, last: u64) {
        let missing = |k: u64| value.wrapping_sub(k.wrapping_mul(interval));
        // The last k from `from` on for which `holds` is true; `holds` is true up to some k.
        let run_end = |from: u64, holds: &dyn Fn(u64) -> bool| {
            let (mut inside, mut outside) = (from, last.wrapping_add(1));
            while outside.wrapping_sub(inside) > 1 {
                let middle = u64::midpoint(inside, outside);
                if holds(missing(middle)) { inside = middle } else { outside = middle }
            }
            inside
        };
        let mut k = 1;
        while k <= last {
            let position = Integers::<SCALE>::position(missing(k));
            let end = run_end(k, &|value| Integers::<SCALE>::position(value) == position);
            let next = end.wrapping_add(1);
            self.counts[position] = self.counts[position].wrapping_add(next.wrapping_sub(k));
            k = next;
        }
        let [value_wide, interval_wide, last_wide] = [value, interval, last].map(u128::from);
        // The sum of k is last (last + 1) / 2, and interval * last is less than the value.
        let values = value_wide.wrapping_mul(last_wide);
        let waits =
            interval_wide.wrapping_mul(last_wide).wrapping_mul(last_wide.wrapping_add(1)) / 2;
        self.sum = self.sum.wrapping_add(values).wrapping_sub(waits);
        self.min = self.min.min(missing(last));
        for (limit, above) in &mut self.thresholds {
            if missing(1) > *limit {
                *above = above.wrapping_add(run_end(1, &|value| value > *limit));
            }
        }
    }

    /// All values recorded so far.
    #[expect(
        clippy::expect_used,
        reason = "the counts of a recorder lie on its grid and add up to less than 2^64"
    )]
    pub fn snapshot(&self) -> Histogram {
        let positions = self.counts.iter().enumerate();
        let mut parts = HistogramParts::new(Scheme::Exp2(Integers::<SCALE>::grid()));
        parts.positive = positions
            .filter(|&(_, &count)| count > 0)
            .map(|(position, &count)| (Integers::<SCALE>::index(position), count))
            .collect();
        parts.zero = self.zero;
        parts.sum = TrackedValue::Exact(DoubleDouble::from_integer(self.sum));
        parts.min = TrackedValue::Exact(self.min as f64);
        parts.max = TrackedValue::Exact(self.max as f64);
        parts.thresholds = self
            .thresholds
            .iter()
            .map(|&(limit, above)| Threshold { value: limit as f64, above })
            .collect();
        Histogram::from_parts(parts).expect("BUG: a recorder's counts make a histogram")
    }

    /// Removes all recorded values.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.zero, self.sum, self.min, self.max, self.bulk_count) = (0, 0, u64::MAX, 0, 0);
        self.thresholds.iter_mut().for_each(|(_, above)| *above = 0);
    }
}

/// Limits in ascending order without duplicates.
pub(crate) fn sort_thresholds(limits: &[u64]) -> Vec<u64> {
    let (found, most) = (limits.len(), Histogram::THRESHOLDS_MAX);
    assert!(found <= most, "{found} thresholds are more than a histogram may declare ({most})");
    let mut limits = limits.to_vec();
    limits.sort_unstable();
    // Limits that are equal as doubles are one threshold.
    limits.dedup_by_key(|limit| *limit as f64);
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the recorder with a histogram of the same scheme and values.
    #[track_caller]
    fn check<const SCALE: u32>(values: &[u64]) {
        let mut recorder = Recorder::<SCALE>::with_scale().with_thresholds(&[1000, 10]);
        let mut expected = Histogram::new(Scheme::Exp2(Integers::<SCALE>::grid()))
            .with_thresholds(&[10.0, 1000.0])
            .unwrap();
        for &value in values {
            recorder.record(value);
            expected.record(value as f64);
        }
        assert_eq!(recorder.snapshot(), expected);
        recorder.clear();
        assert!(recorder.snapshot().is_empty());
    }

    #[test]
    fn recorder_equals_histogram() {
        check::<5>(&[]);
        check::<5>(&[0]);
        check::<5>(&[1, 2, 3, 0, 1000, 1001, 1 << 40, 1 << 52]);
        check::<0>(&[7, 8, 9, u64::from(u32::MAX)]);
        check::<8>(&(1..5000).map(|i| i * i).collect::<Vec<_>>());
    }

    #[test]
    fn the_largest_values_are_counted() {
        let mut recorder = Recorder::new();
        recorder.record(u64::MAX);
        recorder.record(i64::MAX as u64 + 1);
        assert_eq!(recorder.snapshot().count(), 2);
        assert_eq!(recorder.snapshot().max().unwrap().estimate, u64::MAX as f64);
    }

    #[test]
    fn a_wait_is_filled_up() {
        let mut recorder = Recorder::new();
        recorder.record_corrected(100, 10).unwrap();
        let histogram = recorder.snapshot();
        assert_eq!(histogram.count(), 10);
        assert_eq!(histogram.sum().estimate, 550.0);
        recorder.record_corrected(5, 0).unwrap();
        assert_eq!(recorder.snapshot().count(), 11);
    }
}
