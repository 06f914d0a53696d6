//! Count matrix codec: bucket counts of many histograms of one series.
//!
//! Counts form a matrix, a row per histogram, a column per bucket index that any of them uses. Rows come in
//! *frames* of [`FRAME`], a frame column by column. Every column has a rate, told at first and then learnt
//! from the rows before, and a row may have a scale, which follows the load of the whole series. They
//! tell which of the fixed codes of `codes.rs` the column has in this frame, so nothing but the codes' words
//! and bits stands between two counts. Four streams of bits hold eight rows of each frame, so that one need
//! not wait for the other.
//!
//! All prediction is in whole numbers, so every machine decodes the same.

use crate::buckets::Buckets;
use crate::codec::bits::{BitReader, BitWriter, rice_low_bits};
use crate::codec::bytes::{ByteReader, put_varint, put_zigzag, unzigzag, zigzag};
use crate::codec::columns::{MatrixColumns, RowBounds};
use crate::codec::huffman::{
    ESCAPE, HuffmanCode, HuffmanCodes, LOOKUP, LOW_CODES, STEPS, low_cells, symbol_bits,
};
use crate::error::DecodeError;

/// Rows of a frame.
pub(crate) const FRAME: usize = 32;
/// Rows of a frame that one stream holds.
const LANE: usize = 8;
const STREAMS: usize = 4;
/// Cells of one matrix at the most, rows rounded up to eights. A row of zeros costs next to nothing, so what
/// a decoder allocates has to be bounded by name.
pub const CELLS_MAX: u64 = 1 << 21;

/// Rates have 12 bits below the point.
const RATE_BITS: u32 = 12;
/// Rates of more than 2^40 a row are taken for this.
const RATE_MAX: u64 = 1 << (40 + RATE_BITS);
/// A column of which a frame is expected to hold less than this, half a count, is told by its places.
const RARE_RATE_MAX: u64 = 1 << (RATE_BITS - 1);
/// The least rate of the low codes: that of [`RARE`] in a whole frame.
const LOW_RATE_MIN: u64 = RARE_RATE_MAX / FRAME as u64;
/// From this, 8 a row, a column is coded by its distance from what is expected.
const HIGH_RATE_MIN: u64 = 8 << RATE_BITS;
/// Counts of a narrow matrix are below this, so that those of a frame add up within 32 bits.
const NARROW_BITS: u32 = 26;
/// A code word and a step's bits, twice, come out of one load.
const STEP_BITS_MAX: u32 = 17;
/// High columns that take turns.
const INTERLEAVED_COLUMNS: usize = 4;
/// 2^63.5, rounded up: where the upper half of an octave begins.
const UPPER_HALF: u64 = 0xb504_f333_f9de_6485;
/// Bits below the point of row scales, at the most.
const SCALE_BITS_MAX: u32 = 10;

/// Count as decoded: `u32` where possible (twice as many per vector), else `u64`.
pub(crate) trait CountWord: Copy + Default + PartialEq {
    /// The nearest double.
    fn double(self) -> f64;
    /// Bits that a count may have.
    const BITS: u32;
    /// The low bits.
    fn low(value: u64) -> Self;
    fn wide(self) -> u64;
    fn plus(self, other: Self) -> Self;
    /// The total with this: where it could be too large, it stays at the greatest.
    fn saturating_add_to(self, total: u64) -> u64;
    /// A sum of so few that it fits, if counts have as few bits as they should.
    fn sum(cells: &[Self]) -> u64;
    fn or(self, other: Self) -> Self;
    /// Modulo 2^64 or 2^32.
    fn expected_count(rate: u32, scale: u32, shift: u32) -> Self;
}

impl CountWord for u32 {
    const BITS: u32 = NARROW_BITS;
    #[inline(always)]
    fn low(value: u64) -> u32 {
        value as u32
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }
    #[inline(always)]
    fn double(self) -> f64 {
        // Of less than 2^31, and conversions of signed numbers go by twos.
        f64::from(self as i32)
    }
    #[inline(always)]
    fn plus(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn saturating_add_to(self, total: u64) -> u64 {
        // A matrix has too few cells for that.
        total.wrapping_add(self.into())
    }
    #[inline(always)]
    fn sum(cells: &[u32]) -> u64 {
        cells.iter().fold(0u32, |sum, &n| sum.wrapping_add(n)).into()
    }
    #[inline(always)]
    fn or(self, other: u32) -> u32 {
        self | other
    }
    #[inline(always)]
    fn expected_count(rate: u32, scale: u32, shift: u32) -> u32 {
        (u64::from(rate).wrapping_mul(u64::from(scale)) >> shift) as u32
    }
}

impl CountWord for u64 {
    const BITS: u32 = 64;
    #[inline(always)]
    fn low(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }
    #[inline(always)]
    fn double(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn plus(self, other: u64) -> u64 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn saturating_add_to(self, total: u64) -> u64 {
        total.saturating_add(self)
    }
    #[inline(always)]
    fn sum(cells: &[u64]) -> u64 {
        cells.iter().fold(0, |sum, &n| n.saturating_add(sum))
    }
    #[inline(always)]
    fn or(self, other: u64) -> u64 {
        self | other
    }
    #[inline(always)]
    fn expected_count(rate: u32, scale: u32, shift: u32) -> u64 {
        u64::from(rate).wrapping_mul(u64::from(scale)) >> shift
    }
}

/// Coding of a column within a frame.
#[derive(Clone, Copy)]
enum ColumnCoding {
    /// Where there is anything, and how many.
    Rare,
    Low(usize),
    /// The code's number and the bits of a step.
    High(usize, u32),
}

/// Rate model shared by encoder and decoder.
struct RateModel {
    rates: Vec<u64>,
    /// The spread of counts is that of a Poisson distribution, and 2^-half of this of the rate itself.
    spread: u32,
    /// High columns learn after so many rows: a power of two, to 8.
    group_bits: u32,
    scale_bits: u32,
    /// One per row, or empty.
    scales: Vec<u32>,
    /// Of the frame: what its rows' scales add up to; 2^(32 + RATE_BITS + scale_bits) / that.
    scale_sum: u64,
    /// What they are in the mean.
    scale_mean: u64,
    inverse: u64,
    /// The same of each group of rows.
    inverses: [u64; FRAME],
    rows: u64,
    is_first: bool,
}

impl RateModel {
    fn new(columns: usize) -> RateModel {
        RateModel {
            rates: vec![0; columns],
            spread: 0,
            group_bits: 3,
            scale_bits: 0,
            scales: Vec::new(),
            scale_sum: 0,
            scale_mean: 0,
            inverse: 0,
            inverses: [0; FRAME],
            rows: 0,
            is_first: false,
        }
    }

    fn frame(&mut self, first: usize, rows: usize) {
        self.is_first = first == 0;
        self.rows = rows as u64;
        let one = 1u64 << (32 + RATE_BITS).wrapping_add(self.scale_bits);
        let group = 1 << self.group_bits;
        if self.scale_bits == 0 {
            self.scale_sum = self.rows;
            self.inverses = [one >> self.group_bits; FRAME];
        } else {
            let scales = &self.scales[first..first.wrapping_add(rows)];
            self.scale_sum = 0;
            for (inverse, scales) in self.inverses.iter_mut().zip(scales.chunks(group)) {
                let sum: u64 = scales.iter().map(|&s| u64::from(s)).sum();
                self.scale_sum = self.scale_sum.wrapping_add(sum);
                *inverse = one.checked_div(sum).unwrap_or(one);
            }
        }
        self.inverse = one.checked_div(self.scale_sum).unwrap_or(one);
        self.scale_mean = self.scale_sum.checked_div(self.rows).unwrap_or(0);
    }

    /// A column's rate in this frame, with the load of its rows.
    #[inline]
    fn frame_rate(&self, rate: u64) -> u64 {
        if self.scale_bits == 0 {
            return rate;
        }
        // A scale has 15 bits.
        if rate >> 48 == 0 {
            return rate.wrapping_mul(self.scale_mean) >> self.scale_bits;
        }
        (u128::from(rate).wrapping_mul(u128::from(self.scale_mean)) >> self.scale_bits) as u64
    }

    /// How a column of a rate is coded.
    #[inline]
    fn kind(&self, rate: u64) -> ColumnCoding {
        let rate = self.frame_rate(rate);
        if rate < HIGH_RATE_MIN && rate.wrapping_mul(self.rows) < RARE_RATE_MAX {
            return ColumnCoding::Rare;
        }
        if rate < HIGH_RATE_MIN {
            // Half octaves.
            let code =
                rate.wrapping_mul(rate).ilog2().wrapping_sub(LOW_RATE_MIN.ilog2().wrapping_mul(2));
            return ColumnCoding::Low((code as usize).min(LOW_CODES - 1));
        }
        let shift = RATE_BITS.wrapping_add(self.spread);
        let variance = if rate >> 32 == 0 {
            rate.wrapping_add(rate.wrapping_mul(rate) >> shift) >> RATE_BITS
        } else {
            let variance = u128::from(rate)
                .wrapping_add(u128::from(rate).wrapping_mul(u128::from(rate)) >> shift);
            (variance >> RATE_BITS).min(1 << 62) as u64
        };
        // The spread is 2.4 to 4.8 steps: the variance 2^2.5 to 2^4.5. In half octaves:
        let is_upper_half = variance << variance.leading_zeros() >= UPPER_HALF;
        let halves =
            variance.ilog2().wrapping_mul(2).wrapping_add(u32::from(is_upper_half)).wrapping_sub(5);
        ColumnCoding::High(halves as usize % 4, (halves / 4).min(STEP_BITS_MAX))
    }

    /// Moves the rate of a column that is not high towards what the frame held.
    #[inline]
    fn learn<T: CountWord>(&mut self, column: usize, sum: u64) {
        let mean = mean::<T>(sum, self.inverse);
        let rate = &mut self.rates[column];
        *rate = if self.is_first || is_rate_jump(*rate, mean, FRAME.ilog2()) {
            mean
        } else if *rate < 1 << RATE_BITS {
            (*rate).wrapping_mul(3).wrapping_add(mean) >> 2
        } else {
            (*rate).wrapping_add(mean) >> 1
        };
    }

    /// The rate of a high column after a group of 2^bits rows.
    #[inline(always)]
    fn updated_rate<T: CountWord>(&self, rate: u64, group: usize, bits: u32, cells: &[T]) -> u64 {
        let mean = mean::<T>(T::sum(cells), self.inverses[group % FRAME]);
        let near = if bits < 2 {
            rate.wrapping_mul(3).wrapping_add(mean) >> 2
        } else {
            rate.wrapping_add(mean) >> 1
        };
        let jumps = if (rate | mean) >> 31 == 0 {
            // The same, where nothing can be too large on the way.
            let off = rate.wrapping_sub(mean);
            off.wrapping_mul(off)
                > rate.wrapping_add(1 << RATE_BITS) << (RATE_BITS + 4).wrapping_sub(bits)
        } else {
            is_rate_jump(rate, mean, bits)
        };
        if jumps { mean } else { near }
    }

    fn scale(&self, row: usize) -> u32 {
        if self.scale_bits == 0 { 1 } else { self.scales[row] }
    }
}

/// What is expected of a row of scale 1, as a rate in 64ths.
#[inline(always)]
fn rate_in_64ths(rate: u64) -> u32 {
    (rate >> (RATE_BITS - 6)).min(u32::MAX.into()) as u32
}

/// The mean of cells that add up to `sum`.
#[inline(always)]
fn mean<T: CountWord>(sum: u64, inverse: u64) -> u64 {
    let mean = u128::from(sum).wrapping_mul(u128::from(inverse)) >> 32;
    // Narrow counts come to 2^48 at the most.
    if T::BITS < 64 { mean as u64 } else { mean.min(RATE_MAX.into()) as u64 }
}

/// Whether the mean of 2^bits rows is four times as far from a rate as chance has it: something happened.
#[inline(always)]
fn is_rate_jump(rate: u64, mean: u64, bits: u32) -> bool {
    let off = rate.abs_diff(mean).min(1 << 31);
    off.wrapping_mul(off)
        > rate.wrapping_add(1 << RATE_BITS).min(1 << 47) << (RATE_BITS + 4).wrapping_sub(bits)
}

/// First rates are told by their roots, for a rate learnt from so many rows spreads as its root does.
fn rate_of_level(level: u64, coarse: u32) -> u64 {
    let root = level << coarse;
    root.wrapping_mul(root)
}

/// The level next to a rate.
fn level_of_rate(rate: u64, coarse: u32) -> u64 {
    let root = rate.isqrt();
    root.wrapping_add(1 << coarse >> 1) >> coarse
}

/// The root of the greatest rate.
const ROOT_MAX: u64 = 1 << (20 + RATE_BITS / 2);

// ---------------------------------------------------------------- writing

/// Union of the columns of some rows.
pub(crate) struct ColumnUnion {
    pub(crate) indexes: Vec<i32>,
    /// All counts or'ed.
    counts: u64,
    /// By index, less the first: the column. Empty if that would be too long.
    columns: Vec<u32>,
}

/// Indexes from the first to the last column that are looked up by a table.
const SPAN_MAX: i64 = 1 << 16;

impl ColumnUnion {
    pub(crate) fn from_rows<'a>(rows: impl Iterator<Item = &'a Buckets> + Clone) -> ColumnUnion {
        let (mut first, mut last, mut counts) = (i32::MAX, i32::MIN, 0);
        for row in rows.clone().filter(|row| !row.is_empty()) {
            first = first.min(row.indexes()[0]);
            last = last.max(row.indexes()[row.len().wrapping_sub(1)]);
            counts |= row.counts().iter().fold(0, |all, count| all | count);
        }
        let span = i64::from(last).wrapping_sub(i64::from(first)).wrapping_add(1);
        if span > SPAN_MAX {
            let mut indexes: Vec<i32> = rows.flat_map(Buckets::indexes).copied().collect();
            indexes.sort_unstable();
            indexes.dedup();
            return ColumnUnion { indexes, counts, columns: Vec::new() };
        }
        let mut columns = vec![0; span.max(0) as usize];
        for &index in rows.flat_map(Buckets::indexes) {
            columns[index.wrapping_sub(first) as usize] = 1;
        }
        let mut indexes = Vec::new();
        for (column, index) in columns.iter_mut().zip(first..) {
            if std::mem::replace(column, indexes.len() as u32) > 0 {
                indexes.push(index);
            }
        }
        ColumnUnion { indexes, counts, columns }
    }
}

/// Whether a matrix of this size can be written.
pub(crate) fn fits(rows: usize, columns: usize) -> bool {
    (rows.next_multiple_of(LANE) as u64).saturating_mul(columns as u64) <= CELLS_MAX
}

/// Cells of a column of a frame, zeros after the last row: a multiple of eight.
pub(super) fn height(rows: usize) -> usize {
    rows.next_multiple_of(LANE).min(FRAME)
}

/// Matrix of counts.
pub(crate) struct CountTable {
    pub(super) indexes: Vec<i32>,
    pub(super) rows: usize,
    pub(super) cells: CountCells,
    /// What each column adds up to, frame by frame.
    pub(super) sums: Vec<u64>,
}

/// Cells in frame-major, column-major order.
pub(super) enum CountCells {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl CountTable {
    /// The counts of `rows`, of which `union` tells the columns.
    pub(crate) fn new<'a>(
        union: ColumnUnion,
        rows: impl ExactSizeIterator<Item = &'a Buckets>,
    ) -> CountTable {
        let count = rows.len();
        let (cells, sums);
        if union.counts >> NARROW_BITS == 0 {
            let narrow = scatter(&union, rows);
            (sums, cells) = (column_sums(&narrow, count), CountCells::Narrow(narrow));
        } else {
            let wide = scatter(&union, rows);
            (sums, cells) = (column_sums(&wide, count), CountCells::Wide(wide));
        }
        CountTable { indexes: union.indexes, rows: count, cells, sums }
    }

    pub(crate) fn indexes(&self) -> &[i32] {
        &self.indexes
    }

    /// Tells what the rows hold.
    pub(crate) fn build_row_bounds(&self, columns: &MatrixColumns, extents: &mut [RowBounds]) {
        match &self.cells {
            CountCells::Narrow(cells) => self.build_row_bounds_of(cells, columns, extents),
            CountCells::Wide(cells) => self.build_row_bounds_of(cells, columns, extents),
        }
    }

    fn build_row_bounds_of<T: CountWord>(
        &self,
        cells: &[T],
        columns: &MatrixColumns,
        extents: &mut [RowBounds],
    ) {
        if self.indexes.is_empty() {
            return;
        }
        let height = height(self.rows);
        let frames = cells.chunks_exact(height.wrapping_mul(self.indexes.len()));
        for (first, cells) in (0..self.rows).step_by(FRAME).zip(frames) {
            let rows = FRAME.min(self.rows.wrapping_sub(first));
            columns.observe_frame(extents, &MatrixFrame { first, rows, height, cells });
        }
    }

    /// Appends the matrix.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.indexes.len() as u64);
        let Some(&first) = self.indexes.first() else { return };
        put_zigzag(out, first.into());
        match &self.cells {
            CountCells::Narrow(cells) => MatrixEncoder::new(self, cells).encode(out),
            CountCells::Wide(cells) => MatrixEncoder::new(self, cells).encode(out),
        }
    }
}

fn column_sums<T: CountWord>(cells: &[T], rows: usize) -> Vec<u64> {
    cells.chunks_exact(height(rows).max(1)).map(T::sum).collect()
}

#[expect(clippy::expect_used, reason = "the union has a column for each index of its rows")]
fn scatter<'a, T: CountWord>(
    union: &ColumnUnion,
    rows: impl ExactSizeIterator<Item = &'a Buckets>,
) -> Vec<T> {
    let height = height(rows.len());
    let frame = height.wrapping_mul(union.indexes.len());
    let mut cells = vec![T::default(); frame.wrapping_mul(rows.len().div_ceil(FRAME))];
    for (number, row) in rows.enumerate() {
        let cells = &mut cells[(number / FRAME).wrapping_mul(frame)..][..frame];
        let row_of = number % FRAME;
        if union.columns.is_empty() {
            let mut columns = union.indexes.iter().enumerate();
            for (index, count) in row.iter() {
                let (column, _) = columns.find(|c| *c.1 == index).expect("BUG: it has them all");
                cells[column.wrapping_mul(height).wrapping_add(row_of)] = T::low(count);
            }
        } else {
            let first = union.indexes[0];
            for (&index, &count) in row.indexes().iter().zip(row.counts()) {
                let column = union.columns[index.wrapping_sub(first) as usize] as usize;
                cells[column.wrapping_mul(height).wrapping_add(row_of)] = T::low(count);
            }
        }
    }
    cells
}

struct MatrixEncoder<'a, T> {
    indexes: &'a [i32],
    cells: &'a [T],
    rows: usize,
    height: usize,
    /// What each column adds up to.
    totals: Vec<u64>,
    model: RateModel,
    streams: [BitWriter; STREAMS],
}

impl<'a, T: CountWord> MatrixEncoder<'a, T> {
    fn new(table: &'a CountTable, cells: &'a [T]) -> MatrixEncoder<'a, T> {
        let columns = table.indexes.len();
        let mut totals = vec![0u64; columns];
        for sums in table.sums.chunks_exact(columns) {
            totals
                .iter_mut()
                .zip(sums)
                .for_each(|(total, sum)| *total = total.saturating_add(*sum));
        }
        MatrixEncoder {
            indexes: &table.indexes,
            cells,
            rows: table.rows,
            height: height(table.rows),
            totals,
            model: RateModel::new(columns),
            streams: Default::default(),
        }
    }

    /// The rows of a frame in a column.
    fn cells(&self, first: usize, column: usize) -> &'a [T] {
        let at = (first / FRAME)
            .wrapping_mul(self.indexes.len())
            .wrapping_add(column)
            .wrapping_mul(self.height);
        &self.cells[at..at.wrapping_add(FRAME.min(self.rows.wrapping_sub(first)))]
    }

    fn encode(mut self, out: &mut Vec<u8>) {
        let columns = self.indexes.len();
        self.set_scales();
        self.set_spread();
        // A level that is told more finely than chance has it for the rows that it is for is told in vain.
        let held = self.totals.iter().fold(0u64, |all, &total| all.saturating_add(total));
        let is_dense = self.rows < LANE && held / 32 >= self.rows.wrapping_mul(columns) as u64;
        let coarse =
            COARSE[self.rows.min(FRAME).ilog2() as usize].wrapping_add(u32::from(is_dense));
        let mut head = BitWriter::default();
        let first_rows = self.rows.min(FRAME);
        self.model.frame(0, first_rows);
        let mut levels = Vec::with_capacity(columns);
        for column in 0..columns {
            let sum = T::sum(self.cells(0, column));
            let level =
                level_of_rate(mean::<T>(sum, self.model.inverse), coarse).max((sum > 0).into());
            let level = level.min(ROOT_MAX >> coarse);
            levels.push(level as i64);
            self.model.rates[column] = rate_of_level(level, coarse);
        }
        self.set_group();
        head.put((T::BITS > NARROW_BITS).into(), 1);
        head.put(self.model.spread.into(), 4);
        head.put(self.model.scale_bits.into(), 4);
        head.put(self.model.group_bits.into(), 2);
        head.put(coarse.into(), 3);
        let gap = |pair: &[i32]| {
            i64::from(pair[1]).wrapping_sub(i64::from(pair[0])).wrapping_sub(1) as u64
        };
        put_column(&mut head, self.indexes.windows(2).map(gap));
        if self.model.scale_bits > 0 {
            put_differences(
                &mut head,
                1 << self.model.scale_bits,
                self.model.scales.iter().map(|&scale| i64::from(scale)),
            );
        }
        put_differences(&mut head, 0, levels.into_iter());

        for first in (0..self.rows).step_by(FRAME) {
            let rows = FRAME.min(self.rows.wrapping_sub(first));
            self.model.frame(first, rows);
            for column in 0..columns {
                self.put_cells(column, first, self.cells(first, column));
            }
        }
        let head = head.finish();
        put_varint(out, head.len() as u64);
        out.extend(head);
        let streams = self.streams.map(BitWriter::finish);
        streams.iter().for_each(|stream| put_varint(out, stream.len() as u64));
        streams.iter().for_each(|stream| out.extend_from_slice(stream));
    }

    fn put_cells(&mut self, column: usize, first: usize, cells: &[T]) {
        let codes = HuffmanCodes::get();
        let rate = self.model.rates[column];
        match self.model.kind(rate) {
            ColumnCoding::Rare => {
                let stream = &mut self.streams[0];
                let mut held = 0usize;
                if cells.iter().fold(T::default(), |all, &n| all.or(n)) != T::default() {
                    for (row, &count) in cells.iter().enumerate() {
                        if count != T::default() {
                            held = held.wrapping_add(1);
                            stream.put(1, 1);
                            stream.put(row as u64, row_bits(cells.len()));
                            put_long(stream, count.wide().wrapping_sub(1), 0);
                        }
                    }
                }
                // A full frame has no room for more.
                if held < cells.len() {
                    stream.put(0, 1);
                }
            }
            ColumnCoding::Low(code) => {
                let (code, width) = low_code(codes, code, cells.len());
                for (lane, stream) in cells.chunks(LANE).zip(&mut self.streams) {
                    match width {
                        8 => put_low::<T, 8>(stream, code, lane),
                        4 => put_low::<T, 4>(stream, code, lane),
                        2 => put_low::<T, 2>(stream, code, lane),
                        _ => put_low::<T, 1>(stream, code, lane),
                    }
                }
            }
            ColumnCoding::High(code, bits) => {
                let code = &codes.high[code];
                let streams = &mut self.streams;
                self.model.rates[column] = self.model.for_each_high(
                    rate,
                    bits,
                    first,
                    cells,
                    #[inline(always)]
                    |row, from_least| {
                        let stream = &mut streams[row / LANE % STREAMS];
                        let step = from_least >> bits;
                        if step < STEPS {
                            let (word, length) = code.words[step as usize];
                            let low = from_least & (1u64 << bits).wrapping_sub(1);
                            stream.put(
                                u64::from(word) | low << length,
                                u32::from(length).wrapping_add(bits),
                            );
                        } else {
                            stream.put(code.escape.0.into(), code.escape.1.into());
                            let off = from_least.wrapping_sub(reach(bits));
                            put_long(stream, zigzag(off as i64), bits.wrapping_add(3));
                        }
                    },
                );
                return;
            }
        }
        self.model.learn::<T>(column, T::sum(cells));
    }

    /// Scales of the rows, of as many bits as the rows' totals are worth. A part of the grid where something
    /// else happens than in the others does not count.
    fn set_scales(&mut self) {
        let rows = self.rows as f64;
        let mean = self.totals.iter().map(|&total| total as f64).sum::<f64>() / rows;
        let bits = (mean.max(1.0).log2() / 2.0 + SCALE_OFFSET) as i32;
        if bits < SCALE_BITS_MIN || self.rows < 2 {
            return;
        }
        // Bands of columns that hold alike many.
        let mut bands: Vec<(f64, std::ops::Range<usize>)> = Vec::new();
        for (column, &total) in self.totals.iter().enumerate() {
            if bands.last().is_none_or(|(held, _)| *held * BANDS > mean) {
                bands.push((0.0, column..column));
            }
            if let Some((held, columns)) = bands.last_mut() {
                *held += total as f64 / rows;
                columns.end = column.wrapping_add(1);
            }
        }
        let bits = (bits as u32).min(SCALE_BITS_MAX);
        let one = f64::from(1u32 << bits);
        let mut scales = Vec::with_capacity(self.rows);
        let mut totals = vec![[0.0f64; FRAME]; bands.len()];
        let mut ratios = Vec::with_capacity(bands.len());
        for first in (0..self.rows).step_by(FRAME) {
            for ((_, columns), totals) in bands.iter().zip(&mut totals) {
                *totals = [0.0; FRAME];
                for column in columns.clone() {
                    for (total, &count) in totals.iter_mut().zip(self.cells(first, column)) {
                        *total += count.double();
                    }
                }
            }
            for row in 0..FRAME.min(self.rows.wrapping_sub(first)) {
                ratios.clear();
                let band =
                    |((held, _), totals): (&(f64, _), &[f64; FRAME])| (totals[row] / held, *held);
                ratios.extend(bands.iter().zip(&totals).map(band));
                let place = ratios.len() / 2;
                let (_, &mut (middle, _), _) =
                    ratios.select_nth_unstable_by(place, |a, b| a.0.total_cmp(&b.0));
                let near = ratios.iter().filter(|(r, _)| (r - middle).abs() <= 0.2 * middle);
                let (sum, held) =
                    near.fold((0.0, 0.0), |(s, h), (ratio, held)| (s + ratio * held, h + held));
                scales.push((sum / held * one).round().clamp(1.0, 32.0 * one) as u32);
            }
        }
        (self.model.scale_bits, self.model.scales) = (bits, scales);
    }

    /// Some columns of high rates.
    fn sample(&self, most: usize) -> impl Iterator<Item = usize> + '_ {
        let is_high = |&column: &usize| self.totals[column] >= (self.rows as u64).wrapping_mul(8);
        let high = (0..self.totals.len()).filter(is_high).count();
        let step = high.div_ceil(most).max(1);
        (0..self.totals.len()).filter(is_high).skip(step / 2).step_by(step)
    }

    /// How far counts vary beyond chance: of neighbouring rows, for these are what is predicted from.
    fn set_spread(&mut self) {
        let (mut beyond, mut squares) = (0.0, 0.0);
        for column in self.sample(8192usize.checked_div(self.rows).unwrap_or(0).wrapping_add(1)) {
            let mean = self.totals[column] as f64 / self.rows as f64;
            for first in (0..self.rows).step_by(FRAME) {
                let cells = self.cells(first, column);
                for row in 1..cells.len() {
                    let (a, b) = (cells[row.wrapping_sub(1)].double(), cells[row].double());
                    let ratio = match self.model.scale_bits {
                        0 => 1.0,
                        _ => {
                            f64::from(self.model.scales[first.wrapping_add(row)])
                                / f64::from(
                                    self.model.scales[first.wrapping_add(row).wrapping_sub(1)],
                                )
                        }
                    };
                    let off = b - a * ratio;
                    // Rows in which something happened are rare and would count for all others.
                    let expected = a * ratio * (1.0 + ratio);
                    if off * off > 25.0 * (expected + 0.02 * a * a) {
                        continue;
                    }
                    beyond += (off * off - expected) / 2.0 / (mean + 1.0);
                    squares += a * b / (mean + 1.0);
                }
            }
        }
        let share = (beyond / squares).clamp(2f64.powi(-15), 1.0);
        self.model.spread = if share.is_nan() { 15 } else { (-share.log2()).round() as u32 };
    }

    /// After how many rows high columns learn: tried on some. Larger groups are read faster.
    fn set_group(&mut self) {
        let columns: Vec<usize> = self.sample(SAMPLE).collect();
        let codes = HuffmanCodes::get();
        let mut least = f64::INFINITY;
        let mut best = 3;
        let mut rates: Vec<u64> = Vec::new();
        for bits in [3, 2, 1, 0] {
            if columns.is_empty() || 1 << bits >= self.rows && bits > 0 {
                continue;
            }
            self.model.group_bits = bits;
            rates.clear();
            rates.extend(columns.iter().map(|&column| self.model.rates[column]));
            let mut cost = 0u64;
            for first in (0..self.rows).step_by(FRAME) {
                self.model.frame(first, FRAME.min(self.rows.wrapping_sub(first)));
                for (&column, rate) in columns.iter().zip(&mut rates) {
                    let cells = self.cells(first, column);
                    let ColumnCoding::High(code, bits) =
                        self.model.kind((*rate).max(HIGH_RATE_MIN << 2))
                    else {
                        continue;
                    };
                    let code = &codes.high[code];
                    let price = |_, from_least: u64| {
                        let step = from_least >> bits;
                        cost = cost.wrapping_add(u64::from(match step {
                            0..STEPS => u32::from(code.words[step as usize].1).wrapping_add(bits),
                            _ => {
                                let off = from_least.wrapping_sub(reach(bits)) as i64;
                                let long = off.unsigned_abs() >> (bits.wrapping_add(2));
                                let long = long.wrapping_add(1).ilog2().wrapping_mul(2);
                                u32::from(code.escape.1)
                                    .wrapping_add(bits)
                                    .wrapping_add(long)
                                    .wrapping_add(4)
                            }
                        }));
                    };
                    *rate = self.model.for_each_high(*rate, bits, first, cells, price);
                }
            }
            if (cost as f64) < least * GROUP_GAIN_MAX {
                (least, best) = (cost as f64, bits);
            }
        }
        self.model.group_bits = best;
    }
}

/// Columns that group sizes are tried on, and what a smaller one has to come down to.
const SAMPLE: usize = 12;
const GROUP_GAIN_MAX: f64 = 0.96;
/// The coarseness of first levels, by the logarithm of the rows they are for; one more where few rows hold much.
const COARSE: [u32; 6] = [6, 5, 5, 5, 5, 4];

impl RateModel {
    /// Goes through the rows of a high column, and gives each with its distance from the least count of the
    /// first step; the rate after them.
    #[inline(always)]
    fn for_each_high<T: CountWord>(
        &self,
        mut rate: u64,
        bits: u32,
        first: usize,
        cells: &[T],
        mut each: impl FnMut(usize, u64),
    ) -> u64 {
        let shift = self.scale_bits.wrapping_add(6);
        let group = 1 << self.group_bits;
        for (number, cells) in cells.chunks(group).enumerate() {
            let expected = rate_in_64ths(rate);
            for (at, &count) in cells.iter().enumerate() {
                let row = number.wrapping_mul(group).wrapping_add(at);
                let expected =
                    u64::expected_count(expected, self.scale(first.wrapping_add(row)), shift);
                each(row, count.wide().wrapping_sub(expected).wrapping_add(reach(bits)));
            }
            if cells.len() == group {
                rate = self.updated_rate(rate, number, self.group_bits, cells);
            }
        }
        rate
    }
}

/// The rows of a lane in a low code.
#[inline(always)]
fn put_low<T: CountWord, const WIDTH: usize>(
    stream: &mut BitWriter,
    code: &HuffmanCode,
    lane: &[T],
) {
    let bits = symbol_bits(WIDTH);
    for cells in lane.chunks(WIDTH) {
        let (mut symbol, mut all) = (0u64, 0u64);
        for (at, &count) in cells.iter().enumerate() {
            all |= count.wide();
            symbol |= count.wide() << at.wrapping_mul(bits);
        }
        if all < 1 << bits && code.words[symbol as usize].1 > 0 {
            let (word, length) = code.words[symbol as usize];
            stream.put(word.into(), length.into());
        } else {
            stream.put(code.escape.0.into(), code.escape.1.into());
            for at in 0..WIDTH {
                put_long(stream, cells.get(at).map_or(0, |count| count.wide()), 0);
            }
        }
    }
}

/// Differences, each to the one before, folded, in a Rice column.
fn put_differences(bits: &mut BitWriter, mut last: i64, values: impl Iterator<Item = i64>) {
    let folded: Vec<u64> = values
        .map(|value| zigzag(value.wrapping_sub(std::mem::replace(&mut last, value))))
        .collect();
    put_column(bits, folded.into_iter());
}

const SCALE_OFFSET: f64 = 0.0;
const SCALE_BITS_MIN: i32 = 4;
const BANDS: f64 = 16.0;

/// Bits of a row's place in a frame.
#[inline]
fn row_bits(rows: usize) -> u32 {
    rows.wrapping_sub(1).checked_ilog2().map_or(0, |bits| bits.wrapping_add(1))
}

/// From the least count of the first step to the expected one.
#[inline]
fn reach(bits: u32) -> u64 {
    (STEPS << bits) / 2
}

fn low_code(codes: &HuffmanCodes, code: usize, rows: usize) -> (&HuffmanCode, usize) {
    if rows <= 4 { (&codes.low_single[code], 1) } else { (&codes.low[code], low_cells(code)) }
}

/// Rice's code of each, after six bits for its parameter.
fn put_column(bits: &mut BitWriter, values: impl Iterator<Item = u64> + Clone) {
    let low_bits = rice_low_bits(values.clone());
    bits.put(low_bits.into(), 6);
    values.for_each(|value| bits.put_rice(value, low_bits));
}

/// An exponential Golomb code: as many ones as the part above `low_bits`, plus one, has bits below its
/// leading one, a zero, these bits, the low bits.
fn put_long(stream: &mut BitWriter, value: u64, low_bits: u32) {
    let high = u128::from(value >> low_bits) + 1;
    let bits = high.ilog2();
    for _ in 0..bits {
        stream.put(1, 1);
    }
    stream.put(0, 1);
    stream.put(high.wrapping_sub(1 << bits) as u64, bits);
    stream.put(value & (1u64 << low_bits).wrapping_sub(1), low_bits);
}

// ---------------------------------------------------------------- reading

/// Bit reader that returns zeros past the end; checked after each frame.
struct PaddedBitReader<'a> {
    bytes: &'a [u8],
    at_bit: usize,
    end_bit: usize,
}

impl PaddedBitReader<'_> {
    /// The next 57 bits or more.
    #[inline(always)]
    fn load(&self) -> u64 {
        let word = match self.bytes.get(self.at_bit / 8..).and_then(|rest| rest.first_chunk::<8>())
        {
            Some(word) => u64::from_le_bytes(*word),
            None => self.load_at_end(),
        };
        word >> (self.at_bit % 8)
    }

    #[cold]
    fn load_at_end(&self) -> u64 {
        let mut word = [0; 8];
        let rest = self.bytes.get(self.at_bit / 8..).unwrap_or(&[]);
        word[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(word)
    }

    fn get(&mut self, bits: u32) -> u64 {
        if bits > 32 {
            return self.get(32) | self.get(bits.wrapping_sub(32)) << 32;
        }
        let word = self.load();
        self.at_bit = self.at_bit.wrapping_add(bits as usize);
        word & (1u64 << bits).wrapping_sub(1)
    }

    /// What [`put_long`] wrote. Past the end there are zeros, so it ends.
    fn get_long(&mut self, low_bits: u32) -> u64 {
        let word = self.load();
        let bits = word.trailing_ones();
        let length = bits.wrapping_mul(2).wrapping_add(1).wrapping_add(low_bits);
        // Nearly always all of it is in one load.
        if length < 57 {
            self.at_bit = self.at_bit.wrapping_add(length as usize);
            let high = (1u64 << bits)
                .wrapping_sub(1)
                .wrapping_add(word >> (bits.wrapping_add(1)) & (1u64 << bits).wrapping_sub(1));
            let low =
                word >> bits.wrapping_mul(2).wrapping_add(1) & (1u64 << low_bits).wrapping_sub(1);
            return high << low_bits | low;
        }
        let mut bits = bits.min(48);
        self.at_bit = self.at_bit.wrapping_add(bits as usize);
        while bits < 64 && self.get(1) == 1 {
            bits = bits.wrapping_add(1);
        }
        // The zero after 64 ones.
        self.at_bit = self.at_bit.wrapping_add(usize::from(bits == 64));
        let high = (1u64.checked_shl(bits).unwrap_or(0) | self.get(bits)).wrapping_sub(1);
        high.checked_shl(low_bits).unwrap_or(0) | self.get(low_bits)
    }

    /// A column that is nearly empty.
    fn get_rare<T: CountWord>(&mut self, rows: usize, out: &mut [T]) {
        out.fill(T::default());
        for _ in 0..rows {
            if self.get(1) == 0 {
                break;
            }
            let row = self.get(row_bits(rows)) as usize;
            let count = T::low(self.get_count::<T>().saturating_add(1));
            if let Some(cell) = out[..rows].get_mut(row) {
                *cell = count;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn get_low_scalar<T: CountWord>(&mut self, code: &[u16; LOOKUP], cells: usize, out: &mut [T]) {
        let bits = symbol_bits(cells);
        for out in out.chunks_mut(cells) {
            let entry = code[self.load() as usize % LOOKUP];
            self.at_bit = self.at_bit.wrapping_add(usize::from(entry >> 8 & 15));
            for at in 0..cells {
                let count = match entry & ESCAPE {
                    0 => u64::from(entry >> at.wrapping_mul(bits)) & (1u64 << bits).wrapping_sub(1),
                    _ => self.get_count::<T>(),
                };
                if let Some(cell) = out.get_mut(at) {
                    *cell = T::low(count);
                }
            }
        }
    }

    /// A count; one that is too large for its kind stays too large.
    fn get_count<T: CountWord>(&mut self) -> u64 {
        let count = self.get_long(0);
        if T::BITS < 64 { count.min(1 << T::BITS) } else { count }
    }

    #[cold]
    #[inline(never)]
    fn get_high_scalar<T: CountWord>(&mut self, code: &[u16; LOOKUP], bits: u32, out: &mut [T]) {
        for cell in out {
            let word = self.load();
            let entry = code[word as usize % LOOKUP];
            let length = u32::from(entry >> 8 & 15);
            self.at_bit = self.at_bit.wrapping_add(length as usize);
            let from_least = if entry & ESCAPE == 0 {
                self.at_bit = self.at_bit.wrapping_add(bits as usize);
                u64::from(entry & 255) << bits | word >> length & (1u64 << bits).wrapping_sub(1)
            } else {
                (unzigzag(self.get_long(bits.wrapping_add(3))) as u64).wrapping_add(reach(bits))
            };
            *cell = T::low(from_least);
        }
    }
}

/// Frame: consecutive rows of a matrix.
pub(crate) struct MatrixFrame<'a, T> {
    /// The number of the first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Cells of each column: the rows, filled up with zeros to a multiple of eight.
    pub(crate) height: usize,
    /// Column by column.
    pub(crate) cells: &'a [T],
}

impl<T: CountWord> MatrixFrame<'_, T> {
    /// Adds what each row holds, or finds out that it does not fit; to as many totals as there are.
    pub(crate) fn add_totals(&self, totals: &mut [Option<u64>]) {
        if totals.is_empty() {
            return;
        }
        for column in self.cells.chunks_exact(self.height) {
            for (total, count) in totals.iter_mut().zip(&column[..self.rows]) {
                *total = total.and_then(|total| total.checked_add(count.wide()));
            }
        }
    }
}

/// Observer of decoded frames.
pub(crate) trait FrameObserver {
    fn observe<T: CountWord>(&mut self, frame: &MatrixFrame<'_, T>);
}

/// Count matrix decoder.
pub(crate) struct MatrixDecoder<'a> {
    /// The columns' indexes, ascending.
    pub(crate) indexes: Vec<i32>,
    /// Whether counts may have more than [`NARROW_BITS`] bits.
    pub(crate) wide: bool,
    rows: usize,
    model: RateModel,
    streams: [PaddedBitReader<'a>; STREAMS],
    codes: &'static HuffmanCodes,
    offset: usize,
}

impl<'a> MatrixDecoder<'a> {
    /// Reads everything but the cells. `rows` has been checked by the caller.
    pub(crate) fn read(
        reader: &mut ByteReader<'a>,
        rows: usize,
    ) -> Result<MatrixDecoder<'a>, DecodeError> {
        let at = reader.offset();
        let columns = reader.varint("column count")?;
        // A column takes a bit at least.
        let most = CELLS_MAX.checked_div(rows.next_multiple_of(LANE).max(LANE) as u64).unwrap_or(0);
        let limit = most.min((reader.remaining() as u64).wrapping_mul(8));
        if columns > limit {
            let field = "column count";
            return Err(DecodeError::Limit { offset: at, field, found: columns, limit });
        }
        let columns = columns as usize;
        let mut matrix = MatrixDecoder {
            indexes: Vec::new(),
            wide: false,
            rows,
            model: RateModel::new(0),
            streams: [(); STREAMS].map(|()| PaddedBitReader { bytes: &[], at_bit: 0, end_bit: 0 }),
            codes: HuffmanCodes::get(),
            offset: at,
        };
        if columns > 0 {
            matrix.head(reader, columns)?;
            let mut lengths = [0; STREAMS];
            for length in &mut lengths {
                *length = usize::try_from(reader.varint("stream length")?).unwrap_or(usize::MAX);
            }
            for (stream, length) in matrix.streams.iter_mut().zip(lengths) {
                // What follows the stream may be loaded, but counts as its end.
                let bytes = reader.peek();
                reader.read_bytes(length, "stream")?;
                *stream = PaddedBitReader { bytes, at_bit: 0, end_bit: length.wrapping_mul(8) };
            }
        }
        Ok(matrix)
    }

    fn head(&mut self, reader: &mut ByteReader<'a>, columns: usize) -> Result<(), DecodeError> {
        let first = reader.zigzag("first index")?;
        let length = usize::try_from(reader.varint("head length")?).unwrap_or(usize::MAX);
        let at = reader.offset();
        let mut head = BitReader::new(reader.read_bytes(length, "head")?, at);
        self.wide = head.get(1, "width")? == 1;
        self.model.spread = head.get(4, "spread")? as u32;
        self.model.scale_bits = head.get(4, "scale bits")? as u32;
        self.model.group_bits = head.get(2, "group bits")? as u32;
        let coarse = head.get(3, "level bits")? as u32;
        if self.model.scale_bits > SCALE_BITS_MAX {
            return Err(ByteReader::invalid_error(
                at,
                "scale bits",
                self.model.scale_bits,
                "at most 10",
            ));
        }
        let index = |index: i64| {
            i32::try_from(index)
                .map_err(|_| ByteReader::invalid_error(at, "index", index, "a 32-bit number"))
        };
        let mut last = first;
        self.indexes.push(index(first)?);
        let low_bits = head.get_rice_parameter()?;
        for _ in 1..columns {
            let gap = head.get_rice(low_bits, "index gap")?;
            last = last.saturating_add_unsigned(gap).saturating_add(1);
            self.indexes.push(index(last)?);
        }
        if self.model.scale_bits > 0 {
            let low_bits = head.get_rice_parameter()?;
            let mut scale = 1i64 << self.model.scale_bits;
            for _ in 0..self.rows {
                scale = scale.wrapping_add(unzigzag(head.get_rice(low_bits, "scale")?));
                if !(1..=32 << self.model.scale_bits).contains(&scale) {
                    return Err(ByteReader::invalid_error(
                        at,
                        "scale",
                        scale,
                        "above 0 and at most 32",
                    ));
                }
                self.model.scales.push(scale as u32);
            }
        }
        let low_bits = head.get_rice_parameter()?;
        let mut level = 0i64;
        for _ in 0..columns {
            level = level.wrapping_add(unzigzag(head.get_rice(low_bits, "level")?));
            if !(0..=(ROOT_MAX >> coarse) as i64).contains(&level) {
                return Err(ByteReader::invalid_error(
                    at,
                    "level",
                    level,
                    "a root of at most 2^26",
                ));
            }
            self.model.rates.push(rate_of_level(level as u64, coarse));
        }
        head.finish()
    }

    /// Decodes all frames. What `witness` saw of them counts only if all goes well.
    pub(crate) fn table(
        mut self,
        witness: &mut impl FrameObserver,
    ) -> Result<CountTable, DecodeError> {
        let mut sums = vec![0; self.rows.div_ceil(FRAME).wrapping_mul(self.indexes.len())];
        let cells = match self.wide {
            true => CountCells::Wide(self.cells(&mut sums, witness)?),
            false => CountCells::Narrow(self.cells(&mut sums, witness)?),
        };
        Ok(CountTable { indexes: self.indexes, rows: self.rows, cells, sums })
    }

    fn cells<T: CountWord>(
        &mut self,
        sums: &mut [u64],
        witness: &mut impl FrameObserver,
    ) -> Result<Vec<T>, DecodeError> {
        let (height, columns) = (height(self.rows), self.indexes.len());
        let mut all_cells = vec![T::default(); sums.len().wrapping_mul(height)];
        let mut high = Vec::with_capacity(columns);
        let mut union = T::default();
        if !all_cells.is_empty() {
            let frames = all_cells
                .chunks_exact_mut(columns.wrapping_mul(height))
                .zip(sums.chunks_exact_mut(columns));
            for (first, (cells, sums)) in (0..self.rows).step_by(FRAME).zip(frames) {
                let rows = FRAME.min(self.rows.wrapping_sub(first));
                self.model.frame(first, rows);
                high.clear();
                for (column, out) in cells.chunks_exact_mut(height).enumerate() {
                    let bits = match <&mut [T; FRAME]>::try_from(&mut *out) {
                        Ok(out) if rows == FRAME => self.column(column, FRAME, out),
                        _ => self.column(column, rows, out),
                    };
                    match bits {
                        Some(bits) => high.push((column, bits)),
                        None => {
                            let (sum, all) = total(out);
                            (sums[column], union) = (sum, union.or(all));
                            self.model.learn::<T>(column, sum);
                        }
                    }
                }
                self.model.expect_all(&high, first, rows, cells);
                for &(column, _) in &high {
                    let (sum, all) = total(&cells[column.wrapping_mul(height)..][..height]);
                    (sums[column], union) = (sum, union.or(all));
                }
                witness.observe(&MatrixFrame { first, rows, height, cells });
            }
        }
        if T::BITS < 64 && union.wide() >> T::BITS != 0 {
            return Err(ByteReader::invalid_error(
                self.offset,
                "count",
                union.wide(),
                "less than 2^26",
            ));
        }
        for stream in &self.streams {
            if stream.at_bit > stream.end_bit {
                return Err(DecodeError::Truncated { offset: self.offset, field: "counts" });
            }
            if stream.at_bit.div_ceil(8).wrapping_mul(8) != stream.end_bit {
                return Err(ByteReader::invalid_error(
                    self.offset,
                    "counts",
                    "a remainder",
                    "an end after the last row",
                ));
            }
        }
        Ok(all_cells)
    }

    /// A column of a frame; of a high one, which comes without what is expected of its rows, the bits of a step.
    #[inline(always)]
    fn column<T: CountWord>(&mut self, column: usize, rows: usize, out: &mut [T]) -> Option<u32> {
        let codes = self.codes;
        let streams = &mut self.streams;
        let code = match self.model.kind(self.model.rates[column]) {
            ColumnCoding::Rare => {
                streams[0].get_rare(rows, out);
                return None;
            }
            ColumnCoding::Low(code) => code,
            ColumnCoding::High(code, bits) => {
                let code = &codes.high[code].lookup;
                // With the bits known beforehand a count takes a fifth fewer steps.
                match bits {
                    0 => get_high_column::<T, 4>(streams, code, 0, rows, out),
                    1 => get_high_column::<T, 4>(streams, code, 1, rows, out),
                    2 => get_high_column::<T, 4>(streams, code, 2, rows, out),
                    3 => get_high_column::<T, 4>(streams, code, 3, rows, out),
                    4 => get_high_column::<T, 3>(streams, code, 4, rows, out),
                    5 => get_high_column::<T, 3>(streams, code, 5, rows, out),
                    6 => get_high_column::<T, 3>(streams, code, 6, rows, out),
                    7 => get_high_column::<T, 3>(streams, code, 7, rows, out),
                    _ => get_high_column::<T, 2>(streams, code, bits, rows, out),
                }
                return Some(bits);
            }
        };
        let (code, cells) = low_code(codes, code, rows);
        let code = &code.lookup;
        let rest = |stream: &mut PaddedBitReader<'_>, lane: &mut [T]| {
            stream.get_low_scalar(code, cells, lane)
        };
        match cells {
            8 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 8>(streams, code, lanes),
                rest,
            ),
            4 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 4>(streams, code, lanes),
                rest,
            ),
            2 => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 2>(streams, code, lanes),
                rest,
            ),
            _ => for_each_lane(
                streams,
                rows,
                out,
                |streams, lanes| get_low_round::<T, 1>(streams, code, lanes),
                rest,
            ),
        }
        None
    }
}

/// Eight rows of each stream, as many code words of each as one load holds in turn.
#[inline(always)]
fn get_low_round<T: CountWord, const CELLS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    out: &mut [[T; LANE]; STREAMS],
) {
    let bits = symbol_bits(CELLS);
    let words = LANE.checked_div(CELLS).unwrap_or(LANE).min(4);
    for first in (0..LANE).step_by(words.wrapping_mul(CELLS)) {
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        let (mut used, mut marks) = ([0u32; STREAMS], [0; STREAMS]);
        for at in 0..words {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let length = u32::from(entry >> 8);
                loaded[stream] = loaded[stream].wrapping_shr(length);
                used[stream] = used[stream].wrapping_add(length);
                marks[stream] |= entry;
                for cell in 0..CELLS {
                    let count = u64::from(entry >> cell.wrapping_mul(bits))
                        & (1u64 << bits).wrapping_sub(1);
                    out[stream][first.wrapping_add(at.wrapping_mul(CELLS)).wrapping_add(cell)] =
                        T::low(count);
                }
            }
        }
        let escaped = marks.iter().fold(0, |all, mark| all | mark) & ESCAPE != 0;
        if !escaped {
            streams.iter_mut().zip(used).for_each(|(stream, used)| {
                stream.at_bit = stream.at_bit.wrapping_add(used as usize)
            });
            continue;
        }
        for stream in 0..STREAMS {
            if marks[stream] & ESCAPE == 0 {
                streams[stream].at_bit = streams[stream].at_bit.wrapping_add(used[stream] as usize);
            } else {
                streams[stream].get_low_scalar(
                    code,
                    CELLS,
                    &mut out[stream][first..first.wrapping_add(words.wrapping_mul(CELLS))],
                );
            }
        }
    }
}

/// A column of a high code, of which a load holds so many words.
#[inline(always)]
fn get_high_column<T: CountWord, const WORDS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    bits: u32,
    rows: usize,
    out: &mut [T],
) {
    for_each_lane(
        streams,
        rows,
        out,
        #[inline(always)]
        |streams, lanes| get_high_round::<T, WORDS>(streams, code, bits, lanes),
        |stream, lane| stream.get_high_scalar(code, bits, lane),
    );
}

/// The same as [`low_turn`] for a high code.
#[inline(always)]
fn get_high_round<T: CountWord, const WORDS: usize>(
    streams: &mut [PaddedBitReader<'_>; STREAMS],
    code: &[u16; LOOKUP],
    bits: u32,
    out: &mut [[T; LANE]; STREAMS],
) {
    let mask = (1u64 << bits).wrapping_sub(1);
    let mut first = 0;
    while first < LANE {
        let words = WORDS.min(LANE.wrapping_sub(first));
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        // What entries add up to: symbols of five bits in the low byte, lengths, escapes.
        let mut used = [0u32; STREAMS];
        for at in 0..words {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let word = loaded[stream].wrapping_shr(u32::from(entry >> 8));
                out[stream][first.wrapping_add(at)] =
                    T::low(u64::from(entry & 255) << bits | word & mask);
                loaded[stream] = word >> bits;
                used[stream] = used[stream].wrapping_add(u32::from(entry));
            }
        }
        let escaped = used.iter().fold(0, |all, used| all | used) >= ESCAPE.into();
        for (stream, used) in streams.iter_mut().zip(used) {
            if !escaped || used < ESCAPE.into() {
                stream.at_bit = stream.at_bit.wrapping_add(
                    ((used >> 8) as usize).wrapping_add(words.wrapping_mul(bits as usize)),
                );
            }
        }
        if escaped {
            for stream in (0..STREAMS).filter(|&stream| used[stream] >= ESCAPE.into()) {
                streams[stream].get_high_scalar(
                    code,
                    bits,
                    &mut out[stream][first..first.wrapping_add(words)],
                );
            }
        }
        first = first.wrapping_add(words);
    }
}

/// The rows of a frame by turns of all streams; then what is left, by eights.
#[inline(always)]
fn for_each_lane<'a, T: CountWord>(
    streams: &mut [PaddedBitReader<'a>; STREAMS],
    rows: usize,
    out: &mut [T],
    turn: impl Fn(&mut [PaddedBitReader<'a>; STREAMS], &mut [[T; LANE]; STREAMS]),
    rest: impl Fn(&mut PaddedBitReader<'a>, &mut [T]),
) {
    let (out, after) = out.split_at_mut(rows);
    after.fill(T::default());
    let (turns, rest_of) = out.as_chunks_mut::<{ LANE * STREAMS }>();
    for lanes in turns {
        let (lanes, _) = lanes.as_chunks_mut::<LANE>();
        // A turn has a lane for each stream.
        if let Ok(lanes) = lanes.try_into() {
            turn(streams, lanes);
        }
    }
    for (stream, lane) in streams.iter_mut().zip(rest_of.chunks_mut(LANE)) {
        rest(stream, lane);
    }
}

impl RateModel {
    /// Adds what is expected of the rows to high columns of a frame, and moves their rates.
    fn expect_all<T: CountWord>(
        &mut self,
        high: &[(usize, u32)],
        first: usize,
        rows: usize,
        cells: &mut [T],
    ) {
        let mut scales = [1u32; FRAME];
        if self.scale_bits > 0 {
            scales[..rows].copy_from_slice(&self.scales[first..first.wrapping_add(rows)]);
        }
        let scales = &scales[..rows];
        match self.group_bits {
            3 => self.expect_by::<T, 8>(high, scales, cells),
            2 => self.expect_by::<T, 4>(high, scales, cells),
            1 => self.expect_by::<T, 2>(high, scales, cells),
            _ => self.expect_by::<T, 1>(high, scales, cells),
        }
    }

    /// A column's rate waits for the rows before: several columns take turns, so that one need not wait for
    /// the other.
    fn expect_by<T: CountWord, const GROUP: usize>(
        &mut self,
        high: &[(usize, u32)],
        scales: &[u32],
        cells: &mut [T],
    ) {
        let (together, rest) = high.as_chunks::<INTERLEAVED_COLUMNS>();
        if self.scale_bits == 0 {
            together.iter().for_each(|four| self.expect::<T, GROUP, _, false>(four, scales, cells));
            rest.iter().for_each(|&one| self.expect::<T, GROUP, _, false>(&[one], scales, cells));
        } else {
            together.iter().for_each(|four| self.expect::<T, GROUP, _, true>(four, scales, cells));
            rest.iter().for_each(|&one| self.expect::<T, GROUP, _, true>(&[one], scales, cells));
        }
    }

    #[inline(always)]
    #[expect(clippy::expect_used, reason = "columns are of one frame, and no two of them the same")]
    fn expect<T: CountWord, const GROUP: usize, const COLUMNS: usize, const IS_SCALED: bool>(
        &mut self,
        columns: &[(usize, u32); COLUMNS],
        scales: &[u32],
        cells: &mut [T],
    ) {
        let height = cells.len().checked_div(self.rates.len()).unwrap_or(0);
        let shift = self.scale_bits.wrapping_add(6);
        let ranges = columns.map(|(column, _)| {
            column.wrapping_mul(height)..column.wrapping_mul(height).wrapping_add(scales.len())
        });
        let held = cells.get_disjoint_mut(ranges).expect("BUG: columns lie apart");
        let (group_scales, rest_scales) = scales.as_chunks::<GROUP>();
        let held = held.map(|cells| {
            let (groups, rest) = cells.as_chunks_mut::<GROUP>();
            (&mut groups[..group_scales.len()], rest)
        });
        let least = columns.map(|(_, bits)| T::low(reach(bits).wrapping_neg()));
        let mut rates = columns.map(|(column, _)| self.rates[column]);
        for (number, scales) in group_scales.iter().enumerate() {
            for at in 0..COLUMNS {
                let cells = &mut held[at].0[number];
                let expected = rate_in_64ths(rates[at]);
                for (cell, &scale) in cells.iter_mut().zip(scales) {
                    let expected = match IS_SCALED {
                        true => T::expected_count(expected, scale, shift),
                        false => T::expected_count(expected, 1, 6),
                    };
                    *cell = cell.plus(expected.plus(least[at]));
                }
                rates[at] = self.updated_rate::<T>(rates[at], number, GROUP.ilog2(), cells);
            }
        }
        for at in 0..COLUMNS {
            let expected = rate_in_64ths(rates[at]);
            for (cell, &scale) in held[at].1.iter_mut().zip(rest_scales) {
                *cell = cell.plus(T::expected_count(expected, scale, shift)).plus(least[at]);
            }
            self.rates[columns[at].0] = rates[at];
        }
    }
}

/// The sum and the union of counts.
#[inline(always)]
pub(crate) fn total<T: CountWord>(cells: &[T]) -> (u64, T) {
    if T::BITS < 64 {
        let (sum, all) = cells
            .iter()
            .fold((T::default(), T::default()), |(sum, all), &n| (sum.plus(n), all.or(n)));
        return (sum.wide(), all);
    }
    cells.iter().fold((0, T::default()), |(sum, all), &n| (n.wide().saturating_add(sum), all.or(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoopObserver;

    impl FrameObserver for NoopObserver {
        fn observe<T: CountWord>(&mut self, _: &MatrixFrame<'_, T>) {}
    }

    #[track_caller]
    fn check(rows: &[Vec<(i32, u64)>]) -> usize {
        let buckets: Vec<Buckets> = rows
            .iter()
            .map(|row| {
                let mut buckets = Buckets::default();
                row.iter().for_each(|&(index, count)| buckets.push(index, count));
                buckets
            })
            .collect();
        let mut out = Vec::new();
        CountTable::new(ColumnUnion::from_rows(buckets.iter()), buckets.iter()).put(&mut out);
        let mut reader = ByteReader::new(&out);
        let matrix = MatrixDecoder::read(&mut reader, rows.len()).unwrap();
        assert_eq!(matrix.indexes, ColumnUnion::from_rows(buckets.iter()).indexes);
        let found = matrix.table(&mut NoopObserver).unwrap().into_rows();
        assert_eq!(found, rows);
        reader.finish().unwrap();
        out.len()
    }

    #[test]
    fn matrices_round_trip() {
        check(&[]);
        check(&[vec![]]);
        check(&[vec![(5, 1)]]);
        check(&[vec![(i32::MIN, 1), (i32::MAX, u64::MAX)], vec![], vec![(0, 1 << 40)]]);
        check(&vec![vec![(1, 3), (2, 5), (3, 1)]; 7]);
        let mut seed = 1u64;
        for most in [1, 3, 40, 1000, 1 << 20, 1 << 30, 1 << 50] {
            let mut rows = Vec::new();
            for row in 0..200u64 {
                rows.push(
                    (0..97u64)
                        .filter_map(|column| {
                            seed = seed
                                .wrapping_mul(6364136223846793005)
                                .wrapping_add(1442695040888963407);
                            let count = (seed >> 33) % (1 + column * row * (most / 4000 + 1));
                            (count > 0).then_some((column as i32 * 3, count))
                        })
                        .collect(),
                );
            }
            check(&rows);
            check(&rows[190..]);
            check(&rows[197..]);
        }
    }

    #[test]
    fn equal_rows_cost_almost_nothing() {
        assert!(check(&vec![vec![(1, 3), (2, 12), (3, 1)]; 1000]) < 2000);
    }
}
