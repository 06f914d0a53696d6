//! Recorder of plain numbers, with exact counts above thresholds and per power of ten.

use hist::{Histogram, Recorder, Threshold};

/// Records plain numbers, with exact counts above thresholds and per power of ten.
pub struct NumberRecorder {
    /// Fast path for integers.
    fast: Recorder,
    others: Histogram,
    /// Ascending.
    thresholds: Vec<Threshold>,
    /// Number of values by how many of [`DECADES`] are at or below them.
    decade_counts: [u64; DECADES.len() + 1],
}

/// Doubles up to here represent all integers exactly.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// From a billionth of a unit to 11 days in nanoseconds.
const DECADES: [f64; 25] = [
    1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7,
    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
/// Powers of ten up to one.
const DECADES_TO_ONE: usize = 10;

impl NumberRecorder {
    /// No numbers yet; values above each of the thresholds are counted exactly.
    pub fn new(thresholds: &[f64]) -> NumberRecorder {
        let mut thresholds = thresholds.to_vec();
        thresholds.sort_by(f64::total_cmp);
        thresholds.dedup();
        let threshold = |value| Threshold { value, above: 0 };
        NumberRecorder {
            fast: Recorder::new(),
            others: Histogram::default(),
            thresholds: thresholds.into_iter().map(threshold).collect(),
            decade_counts: [0; DECADES.len() + 1],
        }
    }

    #[inline]
    /// Counts a number.
    pub fn record(&mut self, value: f64) {
        let integer = value as u64;
        if integer as f64 == value && value < EXACT_INTEGER_MAX {
            self.fast.record(integer);
            let decade =
                integer.checked_ilog10().map_or(0, |power| DECADES_TO_ONE + power as usize);
            self.decade_counts[decade.min(DECADES.len())] += 1;
        } else {
            self.others.record(value);
            if !value.is_nan() {
                self.decade_counts[DECADES.partition_point(|&power| power <= value)] += 1;
            }
        }
        for threshold in &mut self.thresholds {
            threshold.above += u64::from(value > threshold.value);
        }
    }

    /// Values recorded since the last call, without the counts above thresholds: in a stored
    /// histogram these would be thresholds that a program declared. `None` if there are none.
    pub fn take_values(&mut self) -> Option<Histogram> {
        let mut parts = self.take_histogram()?.into_parts();
        parts.thresholds.clear();
        Some(Histogram::from_parts(parts).expect("BUG: only thresholds were removed"))
    }

    /// Values recorded since the last call; `None` if there are none.
    pub(crate) fn take_histogram(&mut self) -> Option<Histogram> {
        let values: Vec<f64> = self.thresholds.iter().map(|threshold| threshold.value).collect();
        let NumberRecorder { fast, others, thresholds, decade_counts } =
            std::mem::replace(self, NumberRecorder::new(&values));
        let mut all = fast.snapshot();
        all.merge(&others).expect("BUG: both are on the default grid, and count to less than 2^64");
        if all.is_empty() && all.nan_count() == 0 {
            return None;
        }
        let mut parts = all.into_parts();
        let mut above = 0;
        // At or above a power of ten means above the previous double.
        let decades = DECADES.iter().zip(&decade_counts[1..]).rev().map(|(power, n)| {
            above += n;
            Threshold { value: power.next_down(), above }
        });
        parts.thresholds = decades.collect();
        parts.thresholds.extend(thresholds);
        model::sort::by(&mut parts.thresholds, |a, b| a.value.total_cmp(&b.value));
        parts.thresholds.dedup_by_key(|threshold| threshold.value);
        Some(
            Histogram::from_parts(parts)
                .expect("BUG: thresholds ascend, and count numbers recorded"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_exact_summary_and_thresholds() {
        let values = [
            1.0,
            2.0,
            3.0,
            2.5,
            -4.0,
            0.0,
            1e300,
            101.0,
            f64::NAN,
            100.5,
            1e-9,
            0.1,
            10.0,
            1e15,
            -0.0,
            1e17,
            f64::INFINITY,
        ];
        let mut numbers = NumberRecorder::new(&[100.0, 2.5, -1.0, 2.5, 1f64.next_down()]);
        values.iter().for_each(|&value| numbers.record(value));
        let all = numbers.take_histogram().unwrap();
        assert_eq!((all.count(), all.nan_count(), all.zero_count()), (16, 1, 2));
        assert_eq!(all.tracked_min().exact(), Some(-4.0));
        assert_eq!(all.tracked_max().exact(), Some(f64::INFINITY));
        assert_eq!(all.thresholds().len(), DECADES.len() + 3);
        for &Threshold { value: limit, above } in all.thresholds() {
            assert_eq!(
                above,
                values.iter().filter(|&&value| value > limit).count() as u64,
                "{limit}"
            );
        }
        assert!(numbers.take_histogram().is_none());
    }

    /// The overview showed "4 of 4 requests above 0 s, declared by the program".
    #[test]
    fn stored_numbers_have_no_thresholds_that_nobody_declared() {
        let mut numbers = NumberRecorder::new(&[]);
        [12.5, 480.0, 2100.0, 13.0].iter().for_each(|&value| numbers.record(value));
        let values = numbers.take_values().unwrap();
        assert_eq!((values.count(), values.thresholds()), (4, &[][..]));
        assert_eq!(values.tracked_max().exact(), Some(2100.0));
        assert!(numbers.take_values().is_none());
    }
}
