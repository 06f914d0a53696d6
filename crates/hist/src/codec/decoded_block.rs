//! Counts of a block for sums of many ranges of its histograms, such as windows that slide over
//! them: decoded once, added to dense counts.

use std::ops::Range;

use crate::codec::block::{BlockHeader, columns_reader, verify_checksum};
use crate::codec::bytes::ByteReader;
use crate::codec::columns;
use crate::codec::matrix::{
    CountCells, CountWord, FRAME, FrameObserver, MatrixDecoder, MatrixFrame,
};
use crate::codec::runs::BucketRun;
use crate::error::DecodeError;
use crate::histogram::Histogram;
use crate::scheme::Scheme;

/// Maximum number of indexes between the first and the last bucket of a [`CountWindow`]: 512 KiB.
const WINDOW_MAX: i64 = 1 << 16;

/// Decoded counts of a block whose histograms have only positive buckets and a zero bucket.
pub struct DecodedBlock {
    scheme: Scheme,
    zero_threshold: f64,
    rows: usize,
    /// Indexes of the columns, ascending.
    indexes: Vec<i32>,
    runs: Vec<BucketRun>,
    /// Counts by row and column.
    cells: RowCells,
    /// Sum of each column, by frame.
    frame_sums: Vec<u64>,
    zero: Vec<u64>,
}

/// Counts in row-major order: a range of rows is added with contiguous reads.
enum RowCells {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// No frame is observed: sums of rows need no bounds.
struct NoObserver;

impl FrameObserver for NoObserver {
    fn observe<T: CountWord>(&mut self, _: &MatrixFrame<'_, T>) {}
}

impl DecodedBlock {
    /// Decodes a block that fills `bytes`. `None` if its histograms have negative values, NaN or
    /// values beyond their scheme, or are so many that their total may exceed 2^63: then
    /// [`decode`](crate::codec::block::decode) the histograms. Sums, minima and maxima are neither
    /// decoded nor checked.
    pub fn decode(bytes: &[u8]) -> Result<Option<DecodedBlock>, DecodeError> {
        let mut reader = ByteReader::new(verify_checksum(bytes)?);
        let header = BlockHeader::read(&mut reader)?;
        let rows = header.rows;
        let positive = MatrixDecoder::read(&mut reader, rows)?;
        let negative = MatrixDecoder::read(&mut reader, rows)?;
        let mut bits = columns_reader(&mut reader)?;
        let mut summary_counts = || columns::get_summary_counts(&mut bits, rows);
        let zero = summary_counts()?;
        let mut is_plain = negative.indexes.is_empty();
        for _ in 0..3 {
            is_plain &= summary_counts()?.iter().all(|&count| count == 0);
        }
        let ends = positive.indexes.first().zip(positive.indexes.last());
        if !is_plain || !is_window(ends.map(|(&first, &last)| (first, last))) {
            return Ok(None);
        }
        let table = positive.table(&mut NoObserver)?;
        let total = zero.iter().fold(table.total(), |total, &n| total.saturating_add(n));
        if total >> 63 > 0 {
            return Ok(None);
        }
        let cells = match &table.cells {
            CountCells::Narrow(cells) => RowCells::Narrow(table.transpose(cells)),
            CountCells::Wide(cells) => RowCells::Wide(table.transpose(cells)),
        };
        Ok(Some(DecodedBlock {
            scheme: header.scheme,
            zero_threshold: header.zero_threshold,
            rows,
            runs: table.bucket_runs(),
            indexes: table.indexes,
            cells,
            frame_sums: table.sums,
            zero,
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
        let columns = self.indexes.len().max(1);
        let mut totals = self.zero.clone();
        match &self.cells {
            RowCells::Narrow(cells) => {
                for (total, row) in totals.iter_mut().zip(cells.chunks_exact(columns)) {
                    *total = row.iter().fold(*total, |sum, &n| sum.wrapping_add(n.into()));
                }
            }
            RowCells::Wide(cells) => {
                for (total, row) in totals.iter_mut().zip(cells.chunks_exact(columns)) {
                    *total = row.iter().fold(*total, |sum, &n| sum.wrapping_add(n));
                }
            }
        }
        totals
    }

    /// Approximate memory in bytes.
    pub fn held_bytes(&self) -> usize {
        let cells = match &self.cells {
            RowCells::Narrow(cells) => size_of_val(cells.as_slice()),
            RowCells::Wide(cells) => size_of_val(cells.as_slice()),
        };
        let counts = self.zero.len().saturating_add(self.frame_sums.len());
        cells.saturating_add(counts.saturating_mul(size_of::<u64>()))
    }

    fn index_range(&self) -> Option<(i32, i32)> {
        Some((*self.indexes.first()?, *self.indexes.last()?))
    }

    /// Adds some rows to counts that start at the first column's index, or subtracts them.
    fn add_rows(
        &self,
        rows: Range<usize>,
        subtracts: bool,
        window: &mut [u64],
        scratch: &mut Vec<u32>,
    ) {
        let columns = self.indexes.len();
        let rows = rows.start.min(self.rows)..rows.end.min(self.rows);
        let mut row = rows.start;
        while row < rows.end {
            let frame = row / FRAME;
            let frame_end = self.rows.min(frame.wrapping_add(1).wrapping_mul(FRAME));
            let end = frame_end.min(rows.end);
            if row % FRAME == 0 && end == frame_end {
                let sums = self.frame_sums.get(frame.wrapping_mul(columns)..).unwrap_or_default();
                self.add_row(sums, subtracts, window);
                row = end;
                continue;
            }
            let within = row.wrapping_mul(columns)..end.wrapping_mul(columns);
            match &self.cells {
                RowCells::Narrow(cells) => {
                    // The counts of a frame add up within 32 bits, twice as many per vector.
                    let cells = cells.get(within).unwrap_or_default();
                    scratch.clear();
                    scratch.extend(cells.iter().take(columns));
                    for cells in cells.chunks_exact(columns.max(1)).skip(1) {
                        scratch.iter_mut().zip(cells).for_each(|(sum, &n)| {
                            *sum = sum.wrapping_add(n);
                        });
                    }
                    self.add_row(scratch, subtracts, window);
                }
                RowCells::Wide(cells) => {
                    let cells = cells.get(within).unwrap_or_default();
                    for cells in cells.chunks_exact(columns.max(1)) {
                        self.add_row(cells, subtracts, window);
                    }
                }
            }
            row = end;
        }
    }

    #[inline(always)]
    fn add_row<T: Copy + Into<u64>>(&self, counts: &[T], subtracts: bool, window: &mut [u64]) {
        for BucketRun { columns, offset } in &self.runs {
            let counts = counts.get(columns.clone()).unwrap_or_default();
            let window = window.get_mut(*offset..).unwrap_or_default();
            match subtracts {
                false => window.iter_mut().zip(counts).for_each(|(cell, &count)| {
                    *cell = cell.wrapping_add(count.into());
                }),
                true => window.iter_mut().zip(counts).for_each(|(cell, &count)| {
                    *cell = cell.wrapping_sub(count.into());
                }),
            }
        }
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
    /// Sum of some rows of a block.
    scratch: Vec<u32>,
}

impl CountWindow {
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

    /// Adds some histograms of a block to which the window was extended, or subtracts histograms
    /// that were added.
    pub fn add_rows(&mut self, block: &DecodedBlock, rows: Range<usize>, subtracts: bool) {
        let zeros = block.zero.get(rows.clone()).unwrap_or_default();
        let zeros = zeros.iter().fold(0u64, |sum, &n| sum.wrapping_add(n));
        self.add_zeros(if subtracts { zeros.wrapping_neg() } else { zeros });
        if let Some((from, _)) = block.index_range() {
            let start = from.wrapping_sub(self.first) as u32 as usize;
            let window = self.positive.get_mut(start..).unwrap_or_default();
            block.add_rows(rows, subtracts, window, &mut self.scratch);
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
        let counts = DecodedBlock::decode(&bytes).unwrap().unwrap();
        assert_eq!(counts.rows(), all.len());
        assert_eq!(counts.totals(), all.iter().map(Histogram::count).collect::<Vec<_>>());
        let mut sliding = CountWindow::default();
        assert!(sliding.extend_to_block(&counts));
        let mut held = 0..0;
        for (start, end) in [(0, 1), (0, 9), (3, 40), (40, 40), (40, 150), (149, 150)] {
            sliding.add_rows(&counts, held.end.max(start)..end, false);
            sliding.add_rows(&counts, held.start..start.min(held.end), true);
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
            assert!(DecodedBlock::decode(&bytes).unwrap().is_none(), "{value}");
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
