//! Count matrix encoder.

use crate::codec::bits::{BitWriter, rice_low_bits};
use crate::codec::bytes::{put_varint, zigzag};
use crate::codec::huffman::{HuffmanCode, HuffmanCodes, STEPS, symbol_bits};

use super::count_table::CountTable;
use super::count_word::CountWord;
use super::rate_model::{
    ColumnCoding, HIGH_RATE_MIN, ROOT_MAX, RateModel, level_of_rate, mean, rate_of_level,
};
use super::{
    NARROW_BITS, ROWS_PER_STREAM, SCALE_BITS_MAX, STREAMS, STRIPE_ROWS, height, low_code, reach,
    row_bits,
};

/// Encoder of the matrix of a count table.
pub(super) struct MatrixEncoder<'a, T> {
    indexes: &'a [i32],
    cells: &'a [T],
    rows: usize,
    height: usize,
    /// Sum of each column.
    totals: Vec<u64>,
    model: RateModel,
    streams: [BitWriter; STREAMS],
}

impl<'a, T: CountWord> MatrixEncoder<'a, T> {
    pub(super) fn new(table: &'a CountTable, cells: &'a [T]) -> MatrixEncoder<'a, T> {
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

    /// Cells of a column in a stripe.
    fn cells(&self, first: usize, column: usize) -> &'a [T] {
        let at = (first / STRIPE_ROWS)
            .wrapping_mul(self.indexes.len())
            .wrapping_add(column)
            .wrapping_mul(self.height);
        &self.cells[at..at.wrapping_add(STRIPE_ROWS.min(self.rows.wrapping_sub(first)))]
    }

    /// Appends the encoded matrix.
    pub(super) fn encode(mut self, out: &mut Vec<u8>) {
        let columns = self.indexes.len();
        self.set_scales();
        self.set_spread();
        // Precision of a first level beyond the counting noise of its rows is wasted.
        let total_count = self.totals.iter().fold(0u64, |all, &total| all.saturating_add(total));
        let is_dense = self.rows < ROWS_PER_STREAM
            && total_count / 32 >= self.rows.wrapping_mul(columns) as u64;
        let coarse =
            COARSE[self.rows.min(STRIPE_ROWS).ilog2() as usize].wrapping_add(u32::from(is_dense));
        let mut head = BitWriter::default();
        let first_rows = self.rows.min(STRIPE_ROWS);
        self.model.stripe(0, first_rows);
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

        for first in (0..self.rows).step_by(STRIPE_ROWS) {
            let rows = STRIPE_ROWS.min(self.rows.wrapping_sub(first));
            self.model.stripe(first, rows);
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
                let mut cell_count = 0usize;
                if cells.iter().fold(T::default(), |all, &n| all.or(n)) != T::default() {
                    for (row, &count) in cells.iter().enumerate() {
                        if count != T::default() {
                            cell_count = cell_count.wrapping_add(1);
                            stream.put(1, 1);
                            stream.put(row as u64, row_bits(cells.len()));
                            put_exp_golomb(stream, count.wide().wrapping_sub(1), 0);
                        }
                    }
                }
                // A full stripe has no room for more.
                if cell_count < cells.len() {
                    stream.put(0, 1);
                }
            }
            ColumnCoding::Low(code) => {
                let (code, width) = low_code(codes, code, cells.len());
                for (lane, stream) in cells.chunks(ROWS_PER_STREAM).zip(&mut self.streams) {
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
                        let stream = &mut streams[row / ROWS_PER_STREAM % STREAMS];
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
                            put_exp_golomb(stream, zigzag(off as i64), bits.wrapping_add(3));
                        }
                    },
                );
                return;
            }
        }
        self.model.learn::<T>(column, T::sum(cells));
    }

    /// Sets the row scales, with as many bits as the totals of the rows justify. Parts of the grid
    /// that deviate from the rest are ignored.
    fn set_scales(&mut self) {
        let rows = self.rows as f64;
        let mean = self.totals.iter().map(|&total| total as f64).sum::<f64>() / rows;
        let bits = (mean.max(1.0).log2() / 2.0 + SCALE_OFFSET) as i32;
        if bits < SCALE_BITS_MIN || self.rows < 2 {
            return;
        }
        // Bands of columns with similar totals.
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
        let mut totals = vec![[0.0f64; STRIPE_ROWS]; bands.len()];
        let mut ratios = Vec::with_capacity(bands.len());
        for first in (0..self.rows).step_by(STRIPE_ROWS) {
            for ((_, columns), totals) in bands.iter().zip(&mut totals) {
                *totals = [0.0; STRIPE_ROWS];
                for column in columns.clone() {
                    for (total, &count) in totals.iter_mut().zip(self.cells(first, column)) {
                        *total += count.double();
                    }
                }
            }
            for row in 0..STRIPE_ROWS.min(self.rows.wrapping_sub(first)) {
                ratios.clear();
                let band = |((held, _), totals): (&(f64, _), &[f64; STRIPE_ROWS])| {
                    (totals[row] / held, *held)
                };
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

    /// A sample of the columns with high rates.
    fn sample(&self, most: usize) -> impl Iterator<Item = usize> + '_ {
        let is_high = |&column: &usize| self.totals[column] >= (self.rows as u64).wrapping_mul(8);
        let high = (0..self.totals.len()).filter(is_high).count();
        let step = high.div_ceil(most).max(1);
        (0..self.totals.len()).filter(is_high).skip(step / 2).step_by(step)
    }

    /// Sets the spread: the variation of counts beyond Poisson noise between neighbouring rows,
    /// because rows are predicted from their neighbours.
    fn set_spread(&mut self) {
        let (mut beyond, mut squares) = (0.0, 0.0);
        for column in self.sample(8192usize.checked_div(self.rows).unwrap_or(0).wrapping_add(1)) {
            let mean = self.totals[column] as f64 / self.rows as f64;
            for first in (0..self.rows).step_by(STRIPE_ROWS) {
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
                    // Rows with incidents are rare and would dominate.
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

    /// Sets the number of rows after which high columns learn, by trial on some columns. Larger
    /// groups decode faster.
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
            for first in (0..self.rows).step_by(STRIPE_ROWS) {
                self.model.stripe(first, STRIPE_ROWS.min(self.rows.wrapping_sub(first)));
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

/// Number of columns on which group sizes are tried, and the size reduction that a smaller group
/// must reach.
const SAMPLE: usize = 12;
const GROUP_GAIN_MAX: f64 = 0.96;
/// Coarseness of first levels by the logarithm of their rows; one more where few rows hold large
/// counts.
const COARSE: [u32; 6] = [6, 5, 5, 5, 5, 4];

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
                put_exp_golomb(stream, cells.get(at).map_or(0, |count| count.wide()), 0);
            }
        }
    }
}

/// Appends differences between neighbours as a Rice column, zigzag-encoded.
fn put_differences(bits: &mut BitWriter, mut last: i64, values: impl Iterator<Item = i64>) {
    let zigzags: Vec<u64> = values
        .map(|value| zigzag(value.wrapping_sub(std::mem::replace(&mut last, value))))
        .collect();
    put_column(bits, zigzags.into_iter());
}

const SCALE_OFFSET: f64 = 0.0;
const SCALE_BITS_MIN: i32 = 4;
const BANDS: f64 = 16.0;

/// Appends the Rice code of each value, after six bits for the parameter.
fn put_column(bits: &mut BitWriter, values: impl Iterator<Item = u64> + Clone) {
    let low_bits = rice_low_bits(values.clone());
    bits.put(low_bits.into(), 6);
    values.for_each(|value| bits.put_rice(value, low_bits));
}

/// Appends an exponential Golomb code: as many ones as the part above `low_bits`, plus one, has
/// bits below its leading one, then a zero, these bits, and the low bits.
fn put_exp_golomb(stream: &mut BitWriter, value: u64, low_bits: u32) {
    let high = u128::from(value >> low_bits) + 1;
    let bits = high.ilog2();
    for _ in 0..bits {
        stream.put(1, 1);
    }
    stream.put(0, 1);
    stream.put(high.wrapping_sub(1 << bits) as u64, bits);
    stream.put(value & (1u64 << low_bits).wrapping_sub(1), low_bits);
}
