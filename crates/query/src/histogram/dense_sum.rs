//! Sum of histograms of one scheme, bucket by bucket in dense memory.
//!
//! The windows of many series are added to it without a float histogram for each of them. Series
//! with samples at the same times have the same extrapolation factor: their counts are added as
//! integers and multiplied once. Other counts are multiplied one by one, and added with
//! compensation (Kahan–Neumaier). Empty buckets take memory too, so their range is bounded.

use hist::codec::decoded_block::DenseCounts;

use super::compensation::{KahanSum, add_compensated};
use super::{FloatHistogram, ResetHint, SchemeConversion};

/// Maximum number of buckets from the first to the last one: 64 KiB.
const BUCKETS_MAX: usize = 1 << 12;
/// Maximum number of values that are added as integers, so that no bucket exceeds 64 bits.
const INTEGERS_MAX: f64 = (1u64 << 63) as f64;

/// Sum of increases that have only positive values and zeros; it is a gauge.
#[derive(Clone, Debug, Default)]
pub(crate) struct DenseSum {
    /// Counts that have to be multiplied by the factor.
    integers: DenseCounts,
    factor: f64,
    /// Number of their values.
    integer_count: f64,
    /// Counts with other factors, multiplied.
    cells: DenseCells,
    count: KahanSum,
    sum: KahanSum,
}

impl DenseSum {
    /// Counts to which those of a histogram with this many values can be added: they have its
    /// factor. Else use [`DenseSum::add_counts`]. Both need [`DenseSum::add_totals`].
    pub(crate) fn integer_counts(&mut self, count: f64, factor: f64) -> Option<&mut DenseCounts> {
        if self.integer_count == 0.0 {
            self.factor = factor;
        }
        let total = self.integer_count + count;
        let has_factor = factor.to_bits() == self.factor.to_bits();
        (has_factor && total <= INTEGERS_MAX).then(|| {
            self.integer_count = total;
            &mut self.integers
        })
    }

    /// Adds counts times a factor.
    pub(crate) fn add_counts(&mut self, counts: &DenseCounts, factor: f64) {
        let (first, positive) = counts.positive();
        self.cells.add(first, positive.iter().map(|&count| (count as f64 * factor, 0.0)));
        let zeros = counts.zero_count() as f64 * factor;
        self.cells.zero_count = add_compensated(zeros, self.cells.zero_count);
    }

    /// Adds the number and the sum of the values of a histogram.
    pub(crate) fn add_totals(&mut self, count: f64, sum: f64) {
        self.count = add_compensated(count, self.count);
        self.sum = add_compensated(sum, self.sum);
    }

    /// Adds another sum of the same scheme; false if the buckets are too far apart.
    #[must_use]
    pub(crate) fn add(&mut self, other: &DenseSum) -> bool {
        if !fits([self.range(), other.range()]) {
            return false;
        }
        match self.integer_counts(other.integer_count, other.factor) {
            Some(integers) => assert!(integers.add_window(&other.integers), "BUG: the buckets fit"),
            None => self.add_counts(&other.integers, other.factor),
        }
        let DenseCells { first, sums, compensations, zero_count } = &other.cells;
        self.cells.add(*first, sums.iter().copied().zip(compensations.iter().copied()));
        self.cells.zero_count = self.cells.zero_count.plus(*zero_count);
        self.count = self.count.plus(other.count);
        self.sum = self.sum.plus(other.sum);
        true
    }

    /// Whether the buckets are not too far apart.
    pub(crate) fn is_bounded(&self) -> bool {
        fits([self.range(), (0, 0)])
    }

    /// Index of the first bucket, and that after the last one; equal if there is none.
    fn range(&self) -> (i64, i64) {
        let (first, counts) = self.integers.positive();
        let of = |first: i32, length: usize| (first.into(), i64::from(first) + length as i64);
        enclose([of(first, counts.len()), of(self.cells.first, self.cells.sums.len())])
    }

    /// The sum, with the compensations.
    pub(crate) fn to_histogram(&self, conversion: &SchemeConversion) -> FloatHistogram {
        let value = |sum: KahanSum| sum.sum + sum.compensation;
        let mut all = self.clone();
        all.add_counts(&self.integers, self.factor);
        let DenseCells { first, sums, compensations, zero_count } = all.cells;
        let cells = sums.iter().zip(&compensations).map(|(sum, lost)| sum + lost);
        let buckets = (i64::from(first)..).zip(cells).filter(|(_, count)| *count != 0.0);
        let positive = buckets.map(|(index, count)| (index as i32, count)).collect();
        FloatHistogram {
            count: value(self.count),
            sum: value(self.sum),
            hint: ResetHint::Gauge,
            ..conversion.convert_counts(positive, value(zero_count))
        }
    }

    /// Sample count towards limits, 16 bytes as one.
    pub(crate) fn samples(&self) -> u64 {
        (self.integers.positive().1.len() / 2 + self.cells.sums.len()) as u64 + 8
    }
}

/// Compensated sums of consecutive buckets.
#[derive(Clone, Debug, Default)]
struct DenseCells {
    /// Index of the first bucket, in the numbers of the scheme.
    first: i32,
    /// Rounded sum of each bucket.
    sums: Vec<f64>,
    /// Compensation of each bucket.
    compensations: Vec<f64>,
    zero_count: KahanSum,
}

impl DenseCells {
    /// Adds the sums and compensations of consecutive buckets.
    fn add(&mut self, first: i32, more: impl ExactSizeIterator<Item = (f64, f64)>) {
        if more.len() == 0 {
            return;
        }
        let length = self.sums.len() as i64;
        let ours = (self.first.into(), i64::from(self.first) + length);
        let (from, end) = enclose([ours, (first.into(), i64::from(first) + more.len() as i64)]);
        if (from, end - from) != (self.first.into(), length) {
            let before = if length == 0 { 0 } else { (ours.0 - from) as usize };
            for cells in [&mut self.sums, &mut self.compensations] {
                cells.splice(..0, std::iter::repeat_n(0.0, before));
                cells.resize((end - from) as usize, 0.0);
            }
            // The smaller of two indexes.
            self.first = from as i32;
        }
        let at = (i64::from(first) - from) as usize;
        let cells = self.sums[at..].iter_mut().zip(&mut self.compensations[at..]);
        for ((sum, lost), (more, more_lost)) in cells.zip(more) {
            (*sum, *lost) = add_finite(*sum, *lost + more_lost, more);
        }
    }
}

/// Range that encloses two; an empty one is ignored.
fn enclose(ranges: [(i64, i64); 2]) -> (i64, i64) {
    match ranges {
        [range, (start, end)] | [(start, end), range] if start == end => range,
        [a, b] => (a.0.min(b.0), a.1.max(b.1)),
    }
}

fn fits(ranges: [(i64, i64); 2]) -> bool {
    let (start, end) = enclose(ranges);
    end - start <= BUCKETS_MAX as i64
}

/// As [`add_compensated`] for finite numbers, but without a comparison, so that loops are
/// vectorised: the rounding error is found from both addends (Knuth's TwoSum).
#[inline(always)]
fn add_finite(sum: f64, lost: f64, more: f64) -> (f64, f64) {
    let total = sum + more;
    let added = total - sum;
    (total, lost + ((sum - (total - added)) + (more - added)))
}

#[cfg(test)]
mod tests {
    use hist::Scheme;

    use super::*;

    fn window(first: i32, counts: &[u64], zeros: u64) -> DenseCounts {
        let buckets: Vec<(i32, u64)> = (first..).zip(counts.iter().copied()).collect();
        let mut window = DenseCounts::default();
        assert!(window.extend_to_buckets(&buckets));
        buckets.iter().for_each(|&(index, count)| window.add_count(index, count));
        window.add_zeros(zeros);
        window
    }

    fn add(sum: &mut DenseSum, counts: &DenseCounts, factor: f64) -> bool {
        let count = counts.total() as f64;
        match sum.integer_counts(count, factor) {
            Some(integers) => assert!(integers.add_window(counts)),
            None => sum.add_counts(counts, factor),
        }
        sum.add_totals(count * factor, 0.1 * factor);
        sum.is_bounded()
    }

    fn exp2() -> SchemeConversion {
        SchemeConversion::new(&Scheme::exp2(3).unwrap(), 0.0)
    }

    #[test]
    fn a_sum_is_that_of_float_histograms() {
        let windows = [
            (window(5, &[3, 0, 7], 1), 1.25),
            (window(-2, &[1, 1 << 30, 2], 0), 1.0 / 3.0),
            (window(4, &[9], 5), 1.25),
            (window(-9, &[4], 5), 1.25),
            (window(4, &[9], 5), 1.1),
            (DenseCounts::default(), 1.0),
        ];
        let conversion = exp2();
        let mut dense = DenseSum::default();
        let mut packs = DenseSum::default();
        let mut expected: Option<FloatHistogram> = None;
        for (counts, factor) in &windows {
            assert!(add(&mut dense, counts, *factor));
            let mut pack = DenseSum::default();
            assert!(add(&mut pack, counts, *factor) && packs.add(&pack));
            let mut float = conversion.convert_window(counts, *factor);
            (float.count, float.sum) = (counts.total() as f64 * factor, 0.1 * factor);
            float.hint = ResetHint::Gauge;
            match &mut expected {
                None => expected = Some(float),
                Some(sum) => drop(sum.add(&float).unwrap()),
            }
        }
        let expected = expected.unwrap();
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-15 * b.abs();
        for found in [&dense, &packs].map(|sum| sum.to_histogram(&conversion)) {
            assert!(close(found.count, expected.count) && close(found.sum, expected.sum));
            assert!(close(found.zero_count, expected.zero_count), "{found} {expected}");
            assert_eq!(found.positive.len(), expected.positive.len(), "{found} {expected}");
            for (found, expected) in found.positive.iter().zip(&expected.positive) {
                assert!(found.0 == expected.0 && close(found.1, expected.1), "{found:?}");
            }
        }
    }

    #[test]
    fn counts_beyond_64_bits_are_added_as_floats() {
        let large = window(3, &[1 << 62], 0);
        let mut sum = DenseSum::default();
        let mut packs = DenseSum::default();
        for _ in 0..9 {
            assert!(add(&mut sum, &large, 1.5));
            let mut pack = DenseSum::default();
            assert!(add(&mut pack, &large, 1.5) && packs.add(&pack));
        }
        for sum in [sum, packs] {
            let found = sum.to_histogram(&exp2());
            let expected = 9.0 * 1.5 * (1u64 << 62) as f64;
            assert_eq!((found.count, found.positive), (expected, vec![(4, expected)]));
        }
    }

    #[test]
    fn custom_buckets_take_the_zeros() {
        let conversion = SchemeConversion::new(&Scheme::explicit(&[0.0, 1.0, 2.0]).unwrap(), 0.0);
        let counts = window(1, &[4, 5], 7);
        let mut sum = DenseSum::default();
        assert!(add(&mut sum, &counts, 2.0));
        let found = sum.to_histogram(&conversion);
        assert_eq!(found.positive, [(0, 14.0), (1, 8.0), (2, 10.0)]);
        assert_eq!((found.count, found.zero_count), (32.0, 0.0));
    }

    #[test]
    fn buckets_that_are_far_apart_are_refused_and_leave_the_sum_as_it_was() {
        let (near, far) = (window(0, &[1], 2), window(i32::MAX - 1, &[1], 0));
        let mut sum = DenseSum::default();
        assert!(add(&mut sum, &near, 1.0));
        let before = sum.to_histogram(&exp2());
        let mut other = DenseSum::default();
        assert!(add(&mut other, &far, 1.0));
        assert!(!sum.add(&other));
        assert_eq!(sum.to_histogram(&exp2()), before);
        let next = window(4000, &[1; 200], 0);
        assert!(!add(&mut sum, &next, 1.0));
    }
}
