//! Counts of a block for sums of many ranges of its histograms, such as windows that slide over
//! them: decoded once, added to dense counts.

use std::ops::Range;

use crate::codec::block::{BlockHeader, summary_reader, verify_checksum};
use crate::codec::bytes::ByteReader;
use crate::codec::columns;
use crate::codec::matrix::{
    CountBuffer, CountWord, MatrixDecoder, STRIPE_ROWS, Stripe, StripeObserver, height,
};
use crate::codec::runs::BucketRun;
use crate::error::DecodeError;
use crate::histogram::Histogram;
use crate::scheme::Scheme;

/// Maximum number of indexes between the first and the last bucket of a [`DenseCounts`]: 512 KiB.
const WINDOW_MAX: i64 = 1 << 16;

/// Decoded counts of a block whose histograms have only positive buckets and a zero bucket. It may
/// be filled with another block, which takes the same memory.
#[derive(Debug, Default)]
pub struct DecodedBlock {
    scheme: Scheme,
    zero_threshold: f64,
    /// Histograms of the block.
    rows: usize,
    /// Histograms from the first one on whose counts are decoded.
    decoded: usize,
    /// Indexes of the columns, ascending.
    indexes: Vec<i32>,
    runs: Vec<BucketRun>,
    is_wide: bool,
    /// Counts by stripe and column.
    cells: CountBuffer,
    /// Number of values of each row.
    totals: Vec<u64>,
    /// Sum of each column, by stripe.
    stripe_sums: Vec<u64>,
    zero: Vec<u64>,
}

/// Totals of the rows of stripes.
struct RowTotals<'a>(&'a mut [u64]);

/// Columns whose narrow counts add up within 32 bits.
const COLUMNS_AT_ONCE: usize = 32;

impl StripeObserver for RowTotals<'_> {
    fn observe<T: CountWord>(&mut self, stripe: &Stripe<'_, T>) {
        let totals = self.0.get_mut(stripe.first..).unwrap_or_default();
        for columns in stripe.cells.chunks(stripe.height.wrapping_mul(COLUMNS_AT_ONCE)) {
            let mut sums = [T::default(); STRIPE_ROWS];
            if stripe.height == STRIPE_ROWS {
                for column in columns.as_chunks::<STRIPE_ROWS>().0 {
                    sums.iter_mut().zip(column).for_each(|(sum, &n)| *sum = sum.plus(n));
                }
            } else {
                for column in columns.chunks_exact(stripe.height) {
                    sums.iter_mut().zip(column).for_each(|(sum, &n)| *sum = sum.plus(n));
                }
            }
            for (total, sum) in totals.iter_mut().zip(&sums[..stripe.rows]) {
                *total = total.wrapping_add(sum.wide());
            }
        }
    }
}

impl DecodedBlock {
    /// Decodes a block that fills `bytes`. `None` if its histograms have negative values, NaN or
    /// values beyond their scheme, or are so many that their total may exceed 2^63: then
    /// [`decode`](crate::codec::block::decode) the histograms. Sums, minima and maxima are neither
    /// decoded nor checked.
    pub fn decode(bytes: &[u8]) -> Result<Option<DecodedBlock>, DecodeError> {
        let mut counts = DecodedBlock::default();
        Ok(counts.decode_rows(bytes, usize::MAX)?.then_some(counts))
    }

    /// Decodes at least the first `rows` histograms of a block that fills `bytes`, in place of the
    /// block before; counts of others are not checked. `false` where [`DecodedBlock::decode`]
    /// returns `None`. After that, or after an error, the content is undefined.
    pub fn decode_rows(&mut self, bytes: &[u8], rows: usize) -> Result<bool, DecodeError> {
        let mut reader = ByteReader::new(verify_checksum(bytes)?);
        let header = BlockHeader::read(&mut reader)?;
        let mut positive = MatrixDecoder::read(&mut reader, header.rows)?;
        let negative = MatrixDecoder::read(&mut reader, header.rows)?;
        let mut bits = summary_reader(&mut reader)?;
        let mut summary_counts = || columns::get_summary_counts(&mut bits, header.rows);
        let zero = summary_counts()?;
        let mut is_plain = negative.indexes.is_empty();
        for _ in 0..3 {
            is_plain &= summary_counts()?.iter().all(|&count| count == 0);
        }
        let ends = positive.indexes.first().zip(positive.indexes.last());
        if !is_plain || !is_window(ends.map(|(&first, &last)| (first, last))) {
            return Ok(false);
        }
        let decoded = rows.min(header.rows).next_multiple_of(STRIPE_ROWS).min(header.rows);
        self.totals.clear();
        self.totals.extend(zero.iter().take(decoded));
        let mut totals = RowTotals(&mut self.totals);
        positive.decode_into(decoded, &mut self.cells, &mut self.stripe_sums, &mut totals)?;
        let counts = self.stripe_sums.iter().chain(&zero);
        if counts.fold(0u64, |total, &n| total.saturating_add(n)) >> 63 > 0 {
            return Ok(false);
        }
        self.is_wide = positive.wide;
        self.scheme = header.scheme;
        self.zero_threshold = header.zero_threshold;
        (self.rows, self.decoded) = (header.rows, decoded);
        self.runs = BucketRun::of_indexes(&positive.indexes);
        self.indexes = positive.indexes;
        self.zero = zero;
        Ok(true)
    }

    /// Number of histograms.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of histograms from the first one on whose counts are decoded.
    pub fn decoded_rows(&self) -> usize {
        self.decoded
    }

    /// Scheme of all histograms.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Zero threshold of all histograms.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Number of values of each decoded histogram.
    pub fn totals(&self) -> &[u64] {
        &self.totals
    }

    fn index_range(&self) -> Option<(i32, i32)> {
        Some((*self.indexes.first()?, *self.indexes.last()?))
    }

    /// Adds some rows to counts that start at the first column's index, or subtracts them.
    fn add_rows(&self, rows: Range<usize>, subtracts: bool, window: &mut [u64]) {
        match self.is_wide {
            false => self.add_cells(&self.cells.narrow, rows, subtracts, window),
            true => self.add_cells(&self.cells.wide, rows, subtracts, window),
        }
    }

    fn add_cells<T: CountWord>(
        &self,
        cells: &[T],
        rows: Range<usize>,
        subtracts: bool,
        window: &mut [u64],
    ) {
        let (columns, height) = (self.indexes.len(), height(self.rows));
        let end = rows.end.min(self.decoded);
        let mut row = rows.start;
        while row < end {
            let (stripe, first) = (row / STRIPE_ROWS, row.wrapping_sub(row % STRIPE_ROWS));
            let stripe_rows = STRIPE_ROWS.min(self.rows.wrapping_sub(first));
            let within = row % STRIPE_ROWS..stripe_rows.min(end.wrapping_sub(first));
            row = first.wrapping_add(within.end);
            if within.len() == stripe_rows {
                let sums = self.stripe_sums.get(stripe.wrapping_mul(columns)..).unwrap_or_default();
                self.add_columns(sums.iter().copied(), subtracts, window);
                continue;
            }
            let size = height.wrapping_mul(columns);
            let cells = cells.get(stripe.wrapping_mul(size)..).unwrap_or_default();
            let cells = cells.get(..size).unwrap_or_default();
            let start = within.start;
            let columns = cells.chunks_exact(height);
            // With a constant number of rows, a sum has neither a loop nor a remainder.
            match within.len() {
                1 => self.add_columns(columns.map(sum_of::<T, 1>(start)), subtracts, window),
                2 => self.add_columns(columns.map(sum_of::<T, 2>(start)), subtracts, window),
                3 => self.add_columns(columns.map(sum_of::<T, 3>(start)), subtracts, window),
                4 => self.add_columns(columns.map(sum_of::<T, 4>(start)), subtracts, window),
                5 => self.add_columns(columns.map(sum_of::<T, 5>(start)), subtracts, window),
                _ => {
                    let sum = |column: &[T]| T::sum(&column[within.clone()]);
                    self.add_columns(columns.map(sum), subtracts, window);
                }
            }
        }
    }

    /// Adds the sums of all columns.
    #[inline(always)]
    fn add_columns(
        &self,
        mut sums: impl Iterator<Item = u64>,
        subtracts: bool,
        window: &mut [u64],
    ) {
        for BucketRun { columns, offset } in &self.runs {
            let window = window.get_mut(*offset..).unwrap_or_default();
            // The cells come first: a pair takes no sum that has no cell.
            let cells = window.iter_mut().take(columns.len()).zip(&mut sums);
            match subtracts {
                false => cells.for_each(|(cell, sum)| *cell = cell.wrapping_add(sum)),
                true => cells.for_each(|(cell, sum)| *cell = cell.wrapping_sub(sum)),
            }
        }
    }
}

/// Sum of some rows of a column.
fn sum_of<T: CountWord, const ROWS: usize>(start: usize) -> impl Fn(&[T]) -> u64 {
    move |column| {
        let rows = column.get(start..).and_then(|rows| rows.first_chunk::<ROWS>());
        rows.map_or(0, |rows| T::sum(rows))
    }
}

fn is_window(indexes: Option<(i32, i32)>) -> bool {
    indexes.is_none_or(|(first, last)| i64::from(last).wrapping_sub(i64::from(first)) < WINDOW_MAX)
}

/// Dense counts of positive buckets, and of the zero bucket. Sums are modulo 2^64.
#[derive(Clone, Debug, Default)]
pub struct DenseCounts {
    first: i32,
    positive: Vec<u64>,
    zero: u64,
}

impl DenseCounts {
    /// Extends the window to the buckets of a block; `false` if they are too far apart.
    #[must_use]
    pub fn extend_to_block(&mut self, block: &DecodedBlock) -> bool {
        block.index_range().is_none_or(|range| self.extend_to(range))
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

    /// Extends the window to the buckets of a histogram; `false` if they are too far apart or if it
    /// has other than positive values and zeros.
    #[must_use]
    pub fn extend_to_histogram(&mut self, histogram: &Histogram) -> bool {
        let beside = [histogram.overflow(), histogram.underflow(), histogram.nan_count()];
        let indexes = histogram.positive().indexes();
        let ends = indexes.first().zip(indexes.last());
        histogram.negative().is_empty()
            && beside == [0; 3]
            && ends.is_none_or(|(&first, &last)| self.extend_to((first, last)))
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
        self.add_signed(histogram, false)
    }

    /// Subtracts what [`DenseCounts::add_histogram`] adds.
    #[must_use]
    pub fn subtract_histogram(&mut self, histogram: &Histogram) -> bool {
        self.add_signed(histogram, true)
    }

    fn add_signed(&mut self, histogram: &Histogram, subtracts: bool) -> bool {
        if !self.extend_to_histogram(histogram) {
            return false;
        }
        let signed = |count: u64| if subtracts { count.wrapping_neg() } else { count };
        for (index, count) in histogram.positive().iter() {
            self.add_count(index, signed(count));
        }
        self.add_zeros(signed(histogram.zero_count()));
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

    /// Adds some histograms of a block to which the window was extended, or subtracts histograms
    /// that were added.
    pub fn add_rows(&mut self, block: &DecodedBlock, rows: Range<usize>, subtracts: bool) {
        let zeros = block.zero.get(rows.clone()).unwrap_or_default();
        let zeros = zeros.iter().fold(0u64, |sum, &n| sum.wrapping_add(n));
        self.add_zeros(if subtracts { zeros.wrapping_neg() } else { zeros });
        if let Some((from, _)) = block.index_range() {
            let start = from.wrapping_sub(self.first) as u32 as usize;
            let window = self.positive.get_mut(start..).unwrap_or_default();
            block.add_rows(rows, subtracts, window);
        }
    }

    /// Extends the window to the buckets of another one; `false` if they are too far apart.
    #[must_use]
    pub fn extend_to_window(&mut self, other: &DenseCounts) -> bool {
        other.positive.len().checked_sub(1).is_none_or(|length| {
            // Between two indexes of 32 bits.
            let last = i64::from(other.first).wrapping_add(length as i64) as i32;
            self.extend_to((other.first, last))
        })
    }

    /// Adds the counts of another window; `false` if they are too far apart.
    #[must_use]
    pub fn add_window(&mut self, other: &DenseCounts) -> bool {
        if !self.extend_to_window(other) {
            return false;
        }
        let start = other.first.wrapping_sub(self.first) as u32 as usize;
        let cells = self.positive.get_mut(start..).unwrap_or_default();
        cells.iter_mut().zip(&other.positive).for_each(|(cell, &count)| {
            *cell = cell.wrapping_add(count);
        });
        self.add_zeros(other.zero);
        true
    }

    /// Buckets with values, and the count of the zero bucket.
    pub fn buckets(&self) -> (Vec<(i32, u64)>, u64) {
        let indexes = i64::from(self.first)..;
        let pairs = indexes.zip(&self.positive).filter(|(_, count)| **count > 0);
        (pairs.map(|(index, &count)| (index as i32, count)).collect(), self.zero)
    }

    /// Increase since earlier counts, as [`DenseCounts::buckets`]; `None` if a count has decreased.
    pub fn increase_since(&self, before: &DenseCounts) -> Option<(Vec<(i32, u64)>, u64)> {
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

    /// Number of values.
    pub fn total(&self) -> u64 {
        self.positive.iter().fold(self.zero, |total, &n| total.wrapping_add(n))
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
        check_windows(histograms(150));
        check_windows(histograms(3));
        // Counts of more than 32 bits.
        let mut wide = histograms(150);
        wide.iter_mut().step_by(7).for_each(|histogram| histogram.record_n(3.0, 1 << 40));
        check_windows(wide);
    }

    #[track_caller]
    fn check_windows(all: Vec<Histogram>) {
        let mut bytes = Vec::new();
        block::encode(&all, SeriesMeta::default(), &mut bytes).unwrap();
        let counts = DecodedBlock::decode(&bytes).unwrap().unwrap();
        assert_eq!(counts.rows(), all.len());
        assert_eq!(counts.totals(), all.iter().map(Histogram::count).collect::<Vec<_>>());
        let mut some = DecodedBlock::default();
        for rows in [1, 40, 150, 3].map(|rows| all.len().min(rows)) {
            assert!(some.decode_rows(&bytes, rows).unwrap());
            assert!((rows..rows + 32).contains(&some.decoded_rows()), "{rows}");
            assert_eq!(some.totals(), &counts.totals()[..some.decoded_rows()]);
            let [mut of_some, mut of_all] = [(); 2].map(|()| DenseCounts::default());
            assert!(of_some.extend_to_block(&some) && of_all.extend_to_block(&counts));
            of_some.add_rows(&some, 0..rows, false);
            of_all.add_rows(&counts, 0..rows, false);
            assert_eq!(of_some.buckets(), of_all.buckets(), "{rows}");
            assert_eq!(of_some.total(), counts.totals()[..rows].iter().sum());
        }
        let mut sliding = DenseCounts::default();
        assert!(sliding.extend_to_block(&counts));
        let mut held = 0..0;
        for (start, end) in [(0, 1), (0, 9), (3, 40), (40, 40), (40, 150), (149, 150)] {
            let (start, end) = (all.len().min(start), all.len().min(end));
            sliding.add_rows(&counts, held.end.max(start)..end, false);
            sliding.add_rows(&counts, held.start..start.min(held.end), true);
            held = start..end;
            let mut expected = DenseCounts::default();
            for histogram in &all[start..end] {
                assert!(expected.add_histogram(histogram));
            }
            let buckets = |window: &DenseCounts| -> Vec<(i64, u64)> {
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
            assert!(DecodedBlock::decode(&bytes).unwrap().is_none(), "{value}");
            assert!(!DenseCounts::default().add_histogram(&histogram), "{value}");
        }
    }

    #[test]
    fn an_increase_is_the_difference_of_counts_that_have_not_decreased() {
        let window = |buckets: &[(i32, u64)], zero| {
            let mut window = DenseCounts::default();
            assert!(window.extend_to_buckets(buckets));
            buckets.iter().for_each(|&(index, count)| window.add_count(index, count));
            window.add_zeros(zero);
            window
        };
        let before = window(&[(-3, 2), (4, 1)], 5);
        let check = |now: DenseCounts, expected: Option<(Vec<(i32, u64)>, u64)>| {
            assert_eq!(now.increase_since(&before), expected);
        };
        check(window(&[(-3, 2), (4, 1)], 5), Some((vec![], 0)));
        check(window(&[(-4, 1), (-3, 2), (4, 3)], 6), Some((vec![(-4, 1), (4, 2)], 1)));
        check(window(&[(-3, 2), (4, 1)], 4), None);
        check(window(&[(-3, 1), (4, 9)], 5), None);
        check(window(&[(4, 9)], 5), None);
        check(window(&[(1 << 20, 9)], 5), None);
        check(DenseCounts::default(), None);
    }

    #[test]
    fn a_window_is_bounded() {
        let mut window = DenseCounts::default();
        assert!(window.extend_to((-5, 5)));
        assert!(window.extend_to((-9, 2)));
        assert_eq!(window.positive(), (-9, &[0; 15][..]));
        assert!(!window.extend_to((0, i32::MAX)));
        assert!(!window.extend_to((i32::MIN, 0)));
        assert_eq!(window.positive(), (-9, &[0; 15][..]));
    }
}
