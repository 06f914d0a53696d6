//! Counts of a block for sums of many ranges of its histograms, such as windows that slide over
//! them: decoded once, added to dense counts.

use std::ops::Range;

use crate::codec::block::{BlockDecoder, verify_checksum};
use crate::codec::matrix::CountTable;
use crate::codec::runs::BucketRun;
use crate::error::DecodeError;
use crate::histogram::Histogram;
use crate::scheme::Scheme;

/// Maximum number of indexes between the first and the last bucket of a [`CountWindow`]: 512 KiB.
const WINDOW_MAX: i64 = 1 << 16;

/// Decoded counts of a block whose histograms have only positive buckets and a zero bucket.
pub struct BlockCounts {
    scheme: Scheme,
    zero_threshold: f64,
    rows: usize,
    positive: CountTable,
    runs: Vec<BucketRun>,
    zero: Vec<u64>,
}

impl BlockCounts {
    /// Decodes a block that fills `bytes`. `None` if its histograms have negative values, NaN or
    /// values beyond their scheme, or are so many that their total may exceed 2^63: then
    /// [`decode`](crate::codec::block::decode) the histograms.
    pub fn decode(bytes: &[u8]) -> Result<Option<BlockCounts>, DecodeError> {
        let (block, [positive, negative]) = BlockDecoder::read(verify_checksum(bytes)?)?;
        let Some((zero, beyond)) = block.summary_counts.split_first() else { return Ok(None) };
        let is_plain = negative.columns() == 0
            && beyond.iter().take(3).flatten().all(|&count| count == 0)
            && is_window(positive.index_range());
        let total = zero.iter().fold(positive.total(), |total, &n| total.saturating_add(n));
        if !is_plain || total >> 63 > 0 {
            return Ok(None);
        }
        Ok(Some(BlockCounts {
            rows: block.header.rows,
            runs: positive.bucket_runs(),
            zero: zero.clone(),
            scheme: block.header.scheme,
            zero_threshold: block.header.zero_threshold,
            positive,
        }))
    }

    /// Number of histograms.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Scheme of all histograms.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Zero threshold of all histograms.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Number of values of each histogram.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = self.zero.clone();
        self.positive.add_totals(&mut totals);
        totals
    }

    /// Approximate memory in bytes.
    pub fn held_bytes(&self) -> usize {
        self.positive.held_bytes().saturating_add(self.zero.len().saturating_mul(size_of::<u64>()))
    }
}

fn is_window(indexes: Option<(i32, i32)>) -> bool {
    indexes.is_none_or(|(first, last)| i64::from(last).wrapping_sub(i64::from(first)) < WINDOW_MAX)
}

/// Dense counts of positive buckets, and of the zero bucket. Sums are modulo 2^64.
#[derive(Clone, Debug, Default)]
pub struct CountWindow {
    first: i32,
    positive: Vec<u64>,
    zero: u64,
    /// Counts to subtract.
    scratch: Vec<u64>,
}

impl CountWindow {
    /// Extends the window to the buckets of a block; `false` if they are too far apart.
    #[must_use]
    pub fn extend_to_block(&mut self, block: &BlockCounts) -> bool {
        block.positive.index_range().is_none_or(|range| self.extend_to(range))
    }

    /// Extends the window to some buckets, in order of their indexes; `false` if they are too far
    /// apart.
    #[must_use]
    pub fn extend_to_buckets(&mut self, buckets: &[(i32, u64)]) -> bool {
        match (buckets.first(), buckets.last()) {
            (Some(first), Some(last)) => self.extend_to((first.0, last.0)),
            _ => true,
        }
    }

    fn extend_to(&mut self, (first, last): (i32, i32)) -> bool {
        let (mut from, mut to) = (i64::from(first), i64::from(last));
        if let Some(held) = (self.positive.len() as i64).checked_sub(1).filter(|&held| held >= 0) {
            from = from.min(self.first.into());
            to = to.max(i64::from(self.first).wrapping_add(held));
            if (from, to) == (self.first.into(), i64::from(self.first).wrapping_add(held)) {
                return true;
            }
        } else {
            self.first = first;
        }
        if to.wrapping_sub(from) >= WINDOW_MAX {
            return false;
        }
        let before = i64::from(self.first).wrapping_sub(from) as usize;
        self.positive.splice(..0, std::iter::repeat_n(0, before));
        self.positive.resize(to.wrapping_sub(from).wrapping_add(1) as usize, 0);
        // Between two indexes of 32 bits.
        self.first = from as i32;
        true
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        self.positive.fill(0);
        self.zero = 0;
    }

    /// Adds the positive buckets and the zero bucket of a histogram; `false` if they do not fit or
    /// if it has other values.
    #[must_use]
    pub fn add_histogram(&mut self, histogram: &Histogram) -> bool {
        let beside = [histogram.overflow(), histogram.underflow(), histogram.nan_count()];
        if !histogram.negative().is_empty() || beside != [0; 3] {
            return false;
        }
        let indexes = histogram.positive().indexes();
        if let (Some(&first), Some(&last)) = (indexes.first(), indexes.last())
            && !self.extend_to((first, last))
        {
            return false;
        }
        for (index, count) in histogram.positive().iter() {
            self.add_count(index, count);
        }
        self.zero = self.zero.wrapping_add(histogram.zero_count());
        true
    }

    /// Adds values to a bucket inside the window.
    pub fn add_count(&mut self, index: i32, count: u64) {
        let at = index.wrapping_sub(self.first) as u32 as usize;
        if let Some(cell) = self.positive.get_mut(at) {
            *cell = cell.wrapping_add(count);
        }
    }

    /// Adds values to the zero bucket.
    pub fn add_zeros(&mut self, count: u64) {
        self.zero = self.zero.wrapping_add(count);
    }

    /// Adds some histograms of a block to which the window was extended.
    pub fn add_rows(&mut self, block: &BlockCounts, rows: Range<usize>) {
        let zeros = block.zero.get(rows.clone()).unwrap_or_default();
        self.zero = zeros.iter().fold(self.zero, |sum, &n| sum.wrapping_add(n));
        if let Some(window) = window_of(&mut self.positive, self.first, block) {
            block.positive.add_rows(rows, &block.runs, window);
        }
    }

    /// Subtracts some histograms of a block that were added.
    pub fn subtract_rows(&mut self, block: &BlockCounts, rows: Range<usize>) {
        let zeros = block.zero.get(rows.clone()).unwrap_or_default();
        self.zero = zeros.iter().fold(self.zero, |sum, &n| sum.wrapping_sub(n));
        let Some(window) = window_of(&mut self.positive, self.first, block) else { return };
        self.scratch.clear();
        self.scratch.resize(window.len(), 0);
        block.positive.add_rows(rows, &block.runs, &mut self.scratch);
        for (cell, &count) in window.iter_mut().zip(&self.scratch) {
            *cell = cell.wrapping_sub(count);
        }
    }

    /// Buckets with values, and the count of the zero bucket.
    pub fn buckets(&self) -> (Vec<(i32, u64)>, u64) {
        let indexes = i64::from(self.first)..;
        let pairs = indexes.zip(&self.positive).filter(|(_, count)| **count > 0);
        (pairs.map(|(index, &count)| (index as i32, count)).collect(), self.zero)
    }

    /// Increase since earlier counts, as [`CountWindow::buckets`]; `None` if a count has decreased.
    pub fn increase_since(&self, before: &CountWindow) -> Option<(Vec<(i32, u64)>, u64)> {
        let zero = self.zero.checked_sub(before.zero)?;
        let mut increase = self.clone();
        let (mut buckets, _) = before.buckets();
        if !increase.extend_to_buckets(&buckets) {
            // Some of the earlier buckets are outside, so they have no values now.
            return None;
        }
        for (index, count) in &mut buckets {
            let at = index.wrapping_sub(increase.first) as u32 as usize;
            let cell = increase.positive.get_mut(at)?;
            *cell = cell.checked_sub(*count)?;
        }
        Some((increase.buckets().0, zero))
    }

    /// Index of the first bucket of the window, and the counts from there on.
    pub fn positive(&self) -> (i32, &[u64]) {
        (self.first, &self.positive)
    }

    /// Count of the zero bucket.
    pub fn zero_count(&self) -> u64 {
        self.zero
    }
}

/// Part of a window from the first to the last bucket of a block.
fn window_of<'a>(
    positive: &'a mut [u64],
    first: i32,
    block: &BlockCounts,
) -> Option<&'a mut [u64]> {
    let (from, to) = block.positive.index_range()?;
    let start = from.wrapping_sub(first) as u32 as usize;
    let length = (to.wrapping_sub(from) as u32 as usize).wrapping_add(1);
    positive.get_mut(start..)?.get_mut(..length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::block;
    use crate::codec::header::SeriesMeta;

    fn histograms(count: u64) -> Vec<Histogram> {
        let scheme = Scheme::exp2(5).unwrap();
        let mut seed = 7u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 33
        };
        let mut make = |_| {
            let mut histogram = Histogram::new(scheme.clone());
            (0..random() % 50).for_each(|_| histogram.record((random() % 1000) as f64 / 64.0));
            histogram
        };
        (0..count).map(&mut make).collect()
    }

    #[test]
    fn windows_equal_sums_of_their_histograms() {
        let all = histograms(150);
        let mut bytes = Vec::new();
        block::encode(&all, SeriesMeta::default(), &mut bytes).unwrap();
        let counts = BlockCounts::decode(&bytes).unwrap().unwrap();
        assert_eq!(counts.rows(), all.len());
        assert_eq!(counts.totals(), all.iter().map(Histogram::count).collect::<Vec<_>>());
        let mut sliding = CountWindow::default();
        assert!(sliding.extend_to_block(&counts));
        let mut held = 0..0;
        for (start, end) in [(0, 1), (0, 9), (3, 40), (40, 40), (40, 150), (149, 150)] {
            sliding.add_rows(&counts, held.end.max(start)..end);
            sliding.subtract_rows(&counts, held.start..start.min(held.end));
            held = start..end;
            let mut expected = CountWindow::default();
            for histogram in &all[start..end] {
                assert!(expected.add_histogram(histogram));
            }
            let buckets = |window: &CountWindow| -> Vec<(i64, u64)> {
                let (first, counts) = window.positive();
                let pairs = (i64::from(first)..).zip(counts.iter().copied());
                pairs.filter(|(_, count)| *count > 0).collect()
            };
            assert_eq!(buckets(&sliding), buckets(&expected), "{start}..{end}");
            assert_eq!(sliding.zero_count(), expected.zero_count());
        }
    }

    #[test]
    fn negative_nan_and_overflowing_values_are_left_to_decode() {
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            let mut histogram = Histogram::new(Scheme::exp2(3).unwrap());
            histogram.record(value);
            let mut bytes = Vec::new();
            block::encode(std::slice::from_ref(&histogram), SeriesMeta::default(), &mut bytes)
                .unwrap();
            assert!(BlockCounts::decode(&bytes).unwrap().is_none(), "{value}");
            assert!(!CountWindow::default().add_histogram(&histogram), "{value}");
        }
    }

    #[test]
    fn an_increase_is_the_difference_of_counts_that_have_not_decreased() {
        let window = |buckets: &[(i32, u64)], zero| {
            let mut window = CountWindow::default();
            assert!(window.extend_to_buckets(buckets));
            buckets.iter().for_each(|&(index, count)| window.add_count(index, count));
            window.add_zeros(zero);
            window
        };
        let before = window(&[(-3, 2), (4, 1)], 5);
        let check = |now: CountWindow, expected: Option<(Vec<(i32, u64)>, u64)>| {
            assert_eq!(now.increase_since(&before), expected);
        };
        check(window(&[(-3, 2), (4, 1)], 5), Some((vec![], 0)));
        check(window(&[(-4, 1), (-3, 2), (4, 3)], 6), Some((vec![(-4, 1), (4, 2)], 1)));
        check(window(&[(-3, 2), (4, 1)], 4), None);
        check(window(&[(-3, 1), (4, 9)], 5), None);
        check(window(&[(4, 9)], 5), None);
        check(window(&[(1 << 20, 9)], 5), None);
        check(CountWindow::default(), None);
    }

    #[test]
    fn a_window_is_bounded() {
        let mut window = CountWindow::default();
        assert!(window.extend_to((-5, 5)));
        assert!(window.extend_to((-9, 2)));
        assert_eq!(window.positive(), (-9, &[0; 15][..]));
        assert!(!window.extend_to((0, i32::MAX)));
        assert!(!window.extend_to((i32::MIN, 0)));
        assert_eq!(window.positive(), (-9, &[0; 15][..]));
    }
}
