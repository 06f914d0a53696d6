//! Bucket counts of many histograms of one series: small, and read at about two nanoseconds a count.
//!
//! Counts form a matrix, a row per histogram, a column per bucket index that any of them uses. Rows come in
//! *frames* of [`FRAME`], a frame column by column. Every column has a rate, told at first and then learnt
//! from the frames before, and a row may have a scale, which follows the load of the whole series. They
//! tell which of the fixed codes of `codes.rs` the column has in this frame, so nothing but the codes' words
//! and bits stands between two counts. Four streams of bits hold eight rows of each frame, so that one need
//! not wait for the other.
//!
//! All prediction is in whole numbers, so every machine decodes the same.

use crate::buckets::Buckets;
use crate::codec::bits::{BitReader, BitWriter, rice_low_bits};
use crate::codec::bytes::{Reader, put_varint, put_zigzag, unzigzag, zigzag};
use crate::codec::codes::{Code, Codes, ESCAPE, LOOKUP, LOW_CODES, STEPS, low_cells};
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
const RARE: u64 = 1 << (RATE_BITS - 1);
/// The least rate of the low codes: that of [`RARE`] in a whole frame.
const LOW: u64 = RARE / FRAME as u64;
/// From this, 8 a row, a column is coded by its distance from what is expected.
const HIGH: u64 = 8 << RATE_BITS;
/// Counts of a narrow matrix are below this, so that those of a frame add up within 32 bits.
const NARROW_BITS: u32 = 26;
/// A code word and a step's bits, twice, come out of one load.
const STEP_BITS_MAX: u32 = 17;
/// Bits below the point of row scales, at the most.
const SCALE_BITS_MAX: u32 = 10;

/// A count as it is decoded: 32 bits where that is enough, for then twice as many are added at once.
pub(crate) trait Cell: Copy + Default + PartialEq {
    /// The nearest double.
    fn double(self) -> f64;
    /// Bits that a count may have.
    const BITS: u32;
    /// The low bits.
    fn low(value: u64) -> Self;
    fn wide(self) -> u64;
    fn plus(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    /// Modulo 2^64 or 2^32.
    fn scaled(rate: u32, scale: u32, shift: u32) -> Self;
}

impl Cell for u32 {
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
    fn or(self, other: u32) -> u32 {
        self | other
    }
    #[inline(always)]
    fn scaled(rate: u32, scale: u32, shift: u32) -> u32 {
        ((u64::from(rate) * u64::from(scale)) >> shift) as u32
    }
}

impl Cell for u64 {
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
    fn or(self, other: u64) -> u64 {
        self | other
    }
    #[inline(always)]
    fn scaled(rate: u32, scale: u32, shift: u32) -> u64 {
        (u64::from(rate) * u64::from(scale)) >> shift
    }
}

/// How a column is coded in a frame.
#[derive(Clone, Copy)]
enum Kind {
    /// Where there is anything, and how many.
    Rare,
    Low(usize),
    /// The code's number and the bits of a step.
    High(usize, u32),
}

/// What both sides know before a frame.
struct Model {
    rates: Vec<u64>,
    /// The spread of counts is that of a Poisson distribution, and 2^-half of this of the rate itself.
    spread: u32,
    scale_bits: u32,
    /// One per row, or empty.
    scales: Vec<u32>,
    /// Of the frame: what its rows' scales add up to; 2^(32 + RATE_BITS + scale_bits) / that.
    scale_sum: u64,
    inverse: u64,
    rows: u64,
    is_first: bool,
}

impl Model {
    fn frame(&mut self, first: usize, rows: usize) {
        self.is_first = first == 0;
        self.rows = rows as u64;
        self.scale_sum = match self.scales.get(first..first + rows) {
            Some(scales) if self.scale_bits > 0 => scales.iter().map(|&s| u64::from(s)).sum(),
            _ => self.rows,
        };
        self.inverse = (1 << (32 + RATE_BITS + self.scale_bits)) / self.scale_sum.max(1);
    }

    /// The rate in this frame, with the load of its rows.
    #[inline]
    fn rate(&self, column: usize) -> u64 {
        let rate = self.rates[column];
        if self.scale_bits == 0 {
            return rate;
        }
        ((u128::from(rate) * u128::from(self.scale_sum / self.rows)) >> self.scale_bits) as u64
    }

    #[inline]
    fn kind(&self, column: usize) -> Kind {
        let rate = self.rate(column);
        if rate < HIGH && rate * self.rows < RARE {
            return Kind::Rare;
        }
        if rate < HIGH {
            // Half octaves.
            let code = (rate * rate).ilog2() - 2 * LOW.ilog2();
            return Kind::Low((code as usize).min(LOW_CODES - 1));
        }
        let variance =
            u128::from(rate) + ((u128::from(rate) * u128::from(rate)) >> (RATE_BITS + self.spread));
        let variance = (variance >> RATE_BITS).min(1 << 62) as u64;
        // The spread is 2.4 to 4.8 steps: the variance 2^2.5 to 2^4.5.
        let halves = (u128::from(variance) * u128::from(variance)).ilog2() - 5;
        Kind::High(halves as usize % 4, (halves / 4).min(STEP_BITS_MAX))
    }

    /// Moves a rate towards what the frame held.
    #[inline]
    fn learn(&mut self, column: usize, sum: u64) {
        let mean = ((u128::from(sum) * u128::from(self.inverse)) >> 32).min(RATE_MAX.into()) as u64;
        let rate = &mut self.rates[column];
        *rate = if self.is_first {
            mean
        } else if *rate < 1 << RATE_BITS {
            (3 * *rate + mean) >> 2
        } else {
            (*rate + mean) >> 1
        };
    }

    /// What is expected of a row, as a rate in 64ths.
    #[inline]
    fn sixty_fourths(&self, column: usize) -> u32 {
        (self.rates[column] >> (RATE_BITS - 6)).min(u32::MAX.into()) as u32
    }

    fn scale(&self, row: usize) -> u32 {
        if self.scale_bits == 0 { 1 } else { self.scales[row] }
    }
}

/// First rates are told by their roots, for a rate learnt from so many rows spreads as its root does.
fn rate_of_level(level: u64, coarse: u32) -> u64 {
    let root = level << coarse;
    root * root
}

/// The level next to a rate.
fn level_of_rate(rate: u64, coarse: u32) -> u64 {
    let root = rate.isqrt();
    (root + (1 << coarse >> 1)) >> coarse
}

/// The root of the greatest rate.
const ROOT_MAX: u64 = 1 << (20 + RATE_BITS / 2);

// ---------------------------------------------------------------- writing

/// The columns that these rows need together.
pub(crate) fn indexes<'a>(rows: impl Iterator<Item = &'a Buckets>) -> Vec<i32> {
    let mut all: Vec<i32> = Vec::new();
    for row in rows {
        // Rows of one series are much alike, so most bring nothing new.
        let mut known = all.iter();
        if !row.indexes().iter().all(|index| known.any(|known| known == index)) {
            all.extend(row.indexes());
            all.sort_unstable();
            all.dedup();
        }
    }
    all
}

/// Whether a matrix of this size can be written.
pub(crate) fn fits(rows: usize, columns: usize) -> bool {
    (rows.next_multiple_of(LANE) as u64).saturating_mul(columns as u64) <= CELLS_MAX
}

/// Appends the matrix of `rows` in the columns of `indexes`, which has them all.
pub(crate) fn put<'a>(
    out: &mut Vec<u8>,
    indexes: &[i32],
    rows: impl ExactSizeIterator<Item = &'a Buckets>,
) {
    put_varint(out, indexes.len() as u64);
    let Some(&first) = indexes.first() else { return };
    put_zigzag(out, first.into());
    let count = rows.len();
    let mut cells = vec![0; count * indexes.len()];
    for (number, row) in rows.enumerate() {
        let mut columns = indexes.iter().enumerate();
        for (index, n) in row.iter() {
            let (column, _) = columns.find(|&(_, &i)| i == index).expect("BUG: it has them all");
            cells[column * count + number] = n;
        }
    }
    let choices: &[u32] = if count < 100 { &[4, 5, 6, 7] } else { &[3] };
    let tries = choices.iter().map(|&coarse| Encoder::new(indexes, &cells, count, coarse).encode());
    out.extend(tries.min_by_key(Vec::len).expect("BUG: there is a choice"));
}

struct Encoder<'a> {
    indexes: &'a [i32],
    /// Column by column.
    cells: &'a [u64],
    rows: usize,
    /// First levels are multiples of 2 to this.
    coarse: u32,
    streams: [BitWriter; STREAMS],
}

impl<'a> Encoder<'a> {
    fn new(indexes: &'a [i32], cells: &'a [u64], rows: usize, coarse: u32) -> Encoder<'a> {
        Encoder { indexes, cells, rows, coarse, streams: Default::default() }
    }

    fn column(&self, column: usize) -> &'a [u64] {
        &self.cells[column * self.rows..][..self.rows]
    }

    fn encode(mut self) -> Vec<u8> {
        let columns = self.indexes.len();
        let wide = self.cells.iter().fold(0, |all, &n| all | n) >> NARROW_BITS != 0;
        let (scale_bits, scales) = self.scales();
        let spread = self.spread(scale_bits, &scales);
        let mut head = BitWriter::default();
        head.put(wide.into(), 1);
        head.put(spread.into(), 4);
        head.put(scale_bits.into(), 4);
        head.put(self.coarse.into(), 3);
        let gaps = self
            .indexes
            .windows(2)
            .map(|pair| (i64::from(pair[1]) - i64::from(pair[0]) - 1) as u64);
        put_column(&mut head, gaps);
        if scale_bits > 0 {
            let mut last = 1 << scale_bits;
            put_column(
                &mut head,
                scales
                    .iter()
                    .map(|&scale| {
                        zigzag(i64::from(scale) - std::mem::replace(&mut last, i64::from(scale)))
                    })
                    .collect::<Vec<_>>()
                    .into_iter(),
            );
        }
        let mut model = Model {
            rates: vec![0; columns],
            spread,
            scale_bits,
            scales,
            scale_sum: 0,
            inverse: 0,
            rows: 0,
            is_first: false,
        };
        let first_rows = self.rows.min(FRAME);
        model.frame(0, first_rows);
        let mut levels = Vec::with_capacity(columns);
        for column in 0..columns {
            let sum = self.column(column)[..first_rows]
                .iter()
                .fold(0, |sum: u64, &n| sum.saturating_add(n));
            model.learn(column, sum);
            let level = level_of_rate(model.rates[column], self.coarse).max((sum > 0).into());
            let level = level.min(ROOT_MAX >> self.coarse);
            levels.push(level);
            model.rates[column] = rate_of_level(level, self.coarse);
        }
        let mut last = 0;
        put_column(
            &mut head,
            levels
                .iter()
                .map(|&level| zigzag(level as i64 - std::mem::replace(&mut last, level as i64)))
                .collect::<Vec<_>>()
                .into_iter(),
        );

        for first in (0..self.rows).step_by(FRAME) {
            let rows = FRAME.min(self.rows - first);
            model.frame(first, rows);
            for column in 0..columns {
                let cells = &self.column(column)[first..first + rows];
                self.put_cells(&model, column, first, cells);
                model.learn(column, cells.iter().fold(0, |sum: u64, &n| sum.saturating_add(n)));
            }
        }
        let mut out = Vec::new();
        let head = head.finish();
        put_varint(&mut out, head.len() as u64);
        out.extend(head);
        let streams = self.streams.map(BitWriter::finish);
        streams.iter().for_each(|stream| put_varint(&mut out, stream.len() as u64));
        streams.iter().for_each(|stream| out.extend(stream));
        out
    }

    fn put_cells(&mut self, model: &Model, column: usize, first: usize, cells: &[u64]) {
        let codes = Codes::get();
        match model.kind(column) {
            Kind::Rare => {
                let stream = &mut self.streams[0];
                for (row, &count) in cells.iter().enumerate().filter(|&(_, &n)| n > 0) {
                    stream.put(1, 1);
                    stream.put(row as u64, row_bits(cells.len()));
                    put_long(stream, count - 1, 0);
                }
                // A full frame has no room for more.
                if cells.contains(&0) {
                    stream.put(0, 1);
                }
            }
            Kind::Low(code) => self.put_low(code, cells),
            Kind::High(code, bits) => {
                let rate = model.sixty_fourths(column);
                let code = &codes.high[code];
                let shift = 6 + model.scale_bits;
                for (row, &count) in cells.iter().enumerate() {
                    let expected = u64::scaled(rate, model.scale(first + row), shift);
                    let from_least = count.wrapping_sub(expected).wrapping_add(reach(bits));
                    let stream = &mut self.streams[row / LANE % STREAMS];
                    let step = from_least >> bits;
                    if step < STEPS {
                        let (word, length) = code.words[step as usize];
                        let low = from_least & ((1 << bits) - 1);
                        stream.put(u64::from(word) | low << length, u32::from(length) + bits);
                    } else {
                        stream.put(code.escape.0.into(), code.escape.1.into());
                        put_long(stream, zigzag(count.wrapping_sub(expected) as i64), bits + 3);
                    }
                }
            }
        }
    }

    fn put_low(&mut self, code: usize, cells: &[u64]) {
        let codes = Codes::get();
        let (code, width) = low_code(codes, code, cells.len());
        let bits = if width == 1 { 4 } else { 8 / width };
        for (lane, cells) in cells.chunks(LANE).enumerate() {
            let stream = &mut self.streams[lane % STREAMS];
            for cells in cells.chunks(width) {
                let fits = cells.iter().all(|&n| n < 1 << bits);
                let symbol = cells
                    .iter()
                    .rev()
                    .fold(0, |symbol, &n| symbol << bits | n as usize & ((1 << bits) - 1));
                if fits && code.words[symbol].1 > 0 {
                    let (word, length) = code.words[symbol];
                    stream.put(word.into(), length.into());
                } else {
                    stream.put(code.escape.0.into(), code.escape.1.into());
                    (0..width)
                        .for_each(|at| put_long(stream, cells.get(at).copied().unwrap_or(0), 0));
                }
            }
        }
    }

    /// Scales of the rows, of as many bits as the rows' totals are worth. A part of the grid where something
    /// else happens than in the others does not count.
    fn scales(&self) -> (u32, Vec<u32>) {
        let sum = |column: &[u64]| column.iter().map(|&n| n as f64).sum::<f64>();
        let mean = sum(self.cells) / self.rows as f64;
        let bits = (mean.max(1.0).log2() / 2.0 + SCALE_OFFSET) as i32;
        if bits < SCALE_BITS_MIN || self.rows < 2 {
            return (0, Vec::new());
        }
        // Bands of columns that hold alike many.
        let mut bands: Vec<(f64, Vec<f64>)> = Vec::new();
        for column in self.cells.chunks_exact(self.rows) {
            if bands.last().is_none_or(|(held, _)| *held * BANDS > mean) {
                bands.push((0.0, vec![0.0; self.rows]));
            }
            let (held, totals) = bands.last_mut().expect("BUG: pushed above");
            *held += sum(column) / self.rows as f64;
            totals.iter_mut().zip(column).for_each(|(total, &n)| *total += n as f64);
        }
        let bits = (bits as u32).min(SCALE_BITS_MAX);
        let one = f64::from(1u32 << bits);
        let scale = |row: usize| {
            let mut ratios: Vec<(f64, f64)> =
                bands.iter().map(|(held, totals)| (totals[row] / held, *held)).collect();
            ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
            let middle = ratios[ratios.len() / 2].0;
            let near = ratios.iter().filter(|(ratio, _)| (ratio - middle).abs() <= 0.2 * middle);
            let (sum, held) =
                near.fold((0.0, 0.0), |(s, h), (ratio, held)| (s + ratio * held, h + held));
            (sum / held * one).round().clamp(1.0, 32.0 * one) as u32
        };
        (bits, (0..self.rows).map(scale).collect())
    }

    /// How far counts vary beyond chance: of neighbouring rows, for these are what is predicted from.
    fn spread(&self, scale_bits: u32, scales: &[u32]) -> u32 {
        let (mut beyond, mut squares) = (0.0, 0.0);
        for column in self.cells.chunks_exact(self.rows) {
            let mean = column.iter().map(|&n| n as f64).sum::<f64>() / self.rows as f64;
            if mean < 8.0 {
                continue;
            }
            for row in 1..self.rows {
                let (a, b) = (column[row - 1] as f64, column[row] as f64);
                let ratio = if scale_bits == 0 {
                    1.0
                } else {
                    f64::from(scales[row]) / f64::from(scales[row - 1])
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
        let share = (beyond / squares).clamp(2f64.powi(-15), 1.0);
        if share.is_nan() { 15 } else { (-share.log2()).round() as u32 }
    }
}

const SCALE_OFFSET: f64 = 0.0;
const SCALE_BITS_MIN: i32 = 4;
const BANDS: f64 = 16.0;

/// Bits of a row's place in a frame.
#[inline]
fn row_bits(rows: usize) -> u32 {
    (rows - 1).checked_ilog2().map_or(0, |bits| bits + 1)
}

/// From the least count of the first step to the expected one.
#[inline]
fn reach(bits: u32) -> u64 {
    (STEPS << bits) / 2
}

fn low_code(codes: &Codes, code: usize, rows: usize) -> (&Code, usize) {
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
    stream.put((high - (1 << bits)) as u64, bits);
    stream.put(value & ((1 << low_bits) - 1), low_bits);
}

// ---------------------------------------------------------------- reading

/// A stream of bits that may be read past its end, which is found out later.
struct Stream<'a> {
    bytes: &'a [u8],
    at_bit: usize,
    end_bit: usize,
}

impl Stream<'_> {
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
            return self.get(32) | self.get(bits - 32) << 32;
        }
        let word = self.load();
        self.at_bit += bits as usize;
        word & ((1 << bits) - 1)
    }

    /// What [`put_long`] wrote. Past the end there are zeros, so it ends.
    fn get_long(&mut self, low_bits: u32) -> u64 {
        let mut bits = self.load().trailing_ones().min(48);
        self.at_bit += bits as usize;
        while bits < 64 && self.get(1) == 1 {
            bits += 1;
        }
        // The zero after 64 ones.
        self.at_bit += usize::from(bits == 64);
        let high = (1u64.checked_shl(bits).unwrap_or(0) | self.get(bits)).wrapping_sub(1);
        high.checked_shl(low_bits).unwrap_or(0) | self.get(low_bits)
    }

    /// A column that is nearly empty.
    fn rare<T: Cell>(&mut self, rows: usize, out: &mut [T]) {
        out.fill(T::default());
        for _ in 0..rows {
            if self.get(1) == 0 {
                break;
            }
            let row = self.get(row_bits(rows)) as usize;
            let count = T::low(self.checked_long::<T>().saturating_add(1));
            if let Some(cell) = out[..rows].get_mut(row) {
                *cell = count;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn low_slowly<T: Cell>(&mut self, code: &[u16; LOOKUP], cells: usize, out: &mut [T]) {
        let bits = if cells == 1 { 4 } else { 8 / cells };
        for out in out.chunks_mut(cells) {
            let entry = code[self.load() as usize % LOOKUP];
            self.at_bit += usize::from(entry >> 8 & 15);
            for at in 0..cells {
                let count = match entry & ESCAPE {
                    0 => u64::from(entry >> (at * bits)) & ((1 << bits) - 1),
                    _ => self.checked_long::<T>(),
                };
                if let Some(cell) = out.get_mut(at) {
                    *cell = T::low(count);
                }
            }
        }
    }

    /// A count; one that is too large for its kind stays too large.
    fn checked_long<T: Cell>(&mut self) -> u64 {
        let count = self.get_long(0);
        if T::BITS < 64 { count.min(1 << T::BITS) } else { count }
    }

    #[cold]
    #[inline(never)]
    fn high_slowly<T: Cell>(&mut self, code: &[u16; LOOKUP], bits: u32, out: &mut [T]) {
        for cell in out {
            let entry = code[self.load() as usize % LOOKUP];
            self.at_bit += usize::from(entry >> 8 & 15);
            let from_least = match entry & ESCAPE {
                0 => u64::from(entry & 255) << bits | self.get(bits),
                _ => (unzigzag(self.get_long(bits + 3)) as u64).wrapping_add(reach(bits)),
            };
            *cell = T::low(from_least);
        }
    }
}

/// Some rows of a matrix.
pub(crate) struct Frame<'a, T> {
    /// The number of the first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Cells of each column: the rows, filled up with zeros to a multiple of eight.
    pub(crate) height: usize,
    /// Column by column.
    pub(crate) cells: &'a [T],
    /// What each column adds up to.
    pub(crate) sums: &'a [u64],
}

impl<T: Cell> Frame<'_, T> {
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

/// Takes a matrix out again, frame by frame.
pub(crate) struct Matrix<'a> {
    /// The columns' indexes, ascending.
    pub(crate) indexes: Vec<i32>,
    /// Whether counts may have more than [`NARROW_BITS`] bits.
    pub(crate) wide: bool,
    rows: usize,
    model: Model,
    streams: [Stream<'a>; STREAMS],
    codes: &'static Codes,
    offset: usize,
}

impl<'a> Matrix<'a> {
    /// Reads everything but the cells. `rows` has been checked by the caller.
    pub(crate) fn read(reader: &mut Reader<'a>, rows: usize) -> Result<Matrix<'a>, DecodeError> {
        let at = reader.offset();
        let columns = reader.varint("column count")?;
        // A column takes a bit at least.
        let most = CELLS_MAX / rows.next_multiple_of(LANE).max(LANE) as u64;
        let limit = most.min(8 * reader.remaining() as u64);
        if columns > limit {
            let field = "column count";
            return Err(DecodeError::Limit { offset: at, field, found: columns, limit });
        }
        let columns = columns as usize;
        let mut matrix = Matrix {
            indexes: Vec::new(),
            wide: false,
            rows,
            model: Model {
                rates: Vec::new(),
                spread: 0,
                scale_bits: 0,
                scales: Vec::new(),
                scale_sum: 0,
                inverse: 0,
                rows: 0,
                is_first: false,
            },
            streams: [(); STREAMS].map(|()| Stream { bytes: &[], at_bit: 0, end_bit: 0 }),
            codes: Codes::get(),
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
                reader.take(length, "stream")?;
                *stream = Stream { bytes, at_bit: 0, end_bit: length * 8 };
            }
        }
        Ok(matrix)
    }

    fn head(&mut self, reader: &mut Reader<'a>, columns: usize) -> Result<(), DecodeError> {
        let first = reader.zigzag("first index")?;
        let length = usize::try_from(reader.varint("head length")?).unwrap_or(usize::MAX);
        let at = reader.offset();
        let mut head = BitReader::new(reader.take(length, "head")?, at);
        self.wide = head.get(1, "width")? == 1;
        self.model.spread = head.get(4, "spread")? as u32;
        self.model.scale_bits = head.get(4, "scale bits")? as u32;
        let coarse = head.get(3, "level bits")? as u32;
        if self.model.scale_bits > SCALE_BITS_MAX {
            return Err(Reader::invalid(at, "scale bits", self.model.scale_bits, "at most 10"));
        }
        let index = |index: i64| {
            i32::try_from(index).map_err(|_| Reader::invalid(at, "index", index, "a 32-bit number"))
        };
        let mut last = first;
        self.indexes.push(index(first)?);
        let low_bits = low_bits(&mut head)?;
        for _ in 1..columns {
            let gap = head.get_rice(low_bits, "index gap")?;
            last = last.saturating_add_unsigned(gap).saturating_add(1);
            self.indexes.push(index(last)?);
        }
        if self.model.scale_bits > 0 {
            let low_bits = self::low_bits(&mut head)?;
            let mut scale = 1i64 << self.model.scale_bits;
            for _ in 0..self.rows {
                scale = scale.wrapping_add(unzigzag(head.get_rice(low_bits, "scale")?));
                if !(1..=32 << self.model.scale_bits).contains(&scale) {
                    return Err(Reader::invalid(at, "scale", scale, "above 0 and at most 32"));
                }
                self.model.scales.push(scale as u32);
            }
        }
        let low_bits = self::low_bits(&mut head)?;
        let mut level = 0i64;
        for _ in 0..columns {
            level = level.wrapping_add(unzigzag(head.get_rice(low_bits, "level")?));
            if !(0..=(ROOT_MAX >> coarse) as i64).contains(&level) {
                return Err(Reader::invalid(at, "level", level, "a root of at most 2^26"));
            }
            self.model.rates.push(rate_of_level(level as u64, coarse));
        }
        head.finish()
    }

    /// Cells of a column of a frame, zeros after the last row: a multiple of eight.
    fn height(&self) -> usize {
        self.rows.next_multiple_of(LANE).min(FRAME)
    }

    /// Decodes all frames. What was given to `each` counts only if all goes well.
    pub(crate) fn each_frame<T: Cell>(
        mut self,
        mut each: impl FnMut(Frame<'_, T>),
    ) -> Result<(), DecodeError> {
        let height = self.height();
        let mut cells = vec![T::default(); height * self.indexes.len()];
        let mut sums = vec![0; self.indexes.len()];
        let mut union = T::default();
        if height > 0 {
            for first in (0..self.rows).step_by(FRAME) {
                let rows = FRAME.min(self.rows - first);
                self.model.frame(first, rows);
                let mut scales = [1u32; FRAME];
                if self.model.scale_bits > 0 {
                    scales[..rows].copy_from_slice(&self.model.scales[first..first + rows]);
                }
                for (column, out) in cells.chunks_exact_mut(height).enumerate() {
                    let (sum, all) = match <&mut [T; FRAME]>::try_from(&mut *out) {
                        Ok(out) if rows == FRAME => {
                            self.column(column, &scales, FRAME, out);
                            total(out)
                        }
                        _ => {
                            self.column(column, &scales, rows, out);
                            total(out)
                        }
                    };
                    union = union.or(all);
                    self.model.learn(column, sum);
                    sums[column] = sum;
                }
                each(Frame { first, rows, height, cells: &cells, sums: &sums });
            }
        }
        if T::BITS < 64 && union.wide() >> T::BITS != 0 {
            return Err(Reader::invalid(self.offset, "count", union.wide(), "less than 2^26"));
        }
        for stream in &self.streams {
            if stream.at_bit > stream.end_bit {
                return Err(DecodeError::Truncated { offset: self.offset, field: "counts" });
            }
            if stream.at_bit.div_ceil(8) * 8 != stream.end_bit {
                return Err(Reader::invalid(
                    self.offset,
                    "counts",
                    "a remainder",
                    "an end after the last row",
                ));
            }
        }
        Ok(())
    }

    /// A column of a frame.
    #[inline(always)]
    fn column<T: Cell>(
        &mut self,
        column: usize,
        scales: &[u32; FRAME],
        rows: usize,
        out: &mut [T],
    ) {
        let codes = self.codes;
        let streams = &mut self.streams;
        let code = match self.model.kind(column) {
            Kind::Rare => return streams[0].rare(rows, out),
            Kind::Low(code) => code,
            Kind::High(code, bits) => {
                let code = &codes.high[code].lookup;
                match bits {
                    0..=3 => each_lane(
                        streams,
                        rows,
                        out,
                        |streams, lanes| high_turn::<T, 4>(streams, code, bits, lanes),
                        |stream, lane| stream.high_slowly(code, bits, lane),
                    ),
                    _ => each_lane(
                        streams,
                        rows,
                        out,
                        |streams, lanes| high_turn::<T, 2>(streams, code, bits, lanes),
                        |stream, lane| stream.high_slowly(code, bits, lane),
                    ),
                }
                return self.model.expect(column, bits, &scales[..rows], &mut out[..rows]);
            }
        };
        let (code, cells) = low_code(codes, code, rows);
        let code = &code.lookup;
        let rest = |stream: &mut Stream<'_>, lane: &mut [T]| stream.low_slowly(code, cells, lane);
        match cells {
            8 => each_lane(
                streams,
                rows,
                out,
                |streams, lanes| low_turn::<T, 8>(streams, code, lanes),
                rest,
            ),
            4 => each_lane(
                streams,
                rows,
                out,
                |streams, lanes| low_turn::<T, 4>(streams, code, lanes),
                rest,
            ),
            2 => each_lane(
                streams,
                rows,
                out,
                |streams, lanes| low_turn::<T, 2>(streams, code, lanes),
                rest,
            ),
            _ => each_lane(
                streams,
                rows,
                out,
                |streams, lanes| low_turn::<T, 1>(streams, code, lanes),
                rest,
            ),
        }
    }
}

/// Eight rows of each stream, as many code words of each as one load holds in turn.
#[inline(always)]
fn low_turn<T: Cell, const CELLS: usize>(
    streams: &mut [Stream<'_>; STREAMS],
    code: &[u16; LOOKUP],
    out: &mut [[T; LANE]; STREAMS],
) {
    let bits = if CELLS == 1 { 4 } else { 8 / CELLS };
    let words = (LANE / CELLS).min(4);
    for first in (0..LANE).step_by(words * CELLS) {
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        let (mut used, mut marks) = ([0; STREAMS], [0; STREAMS]);
        for at in 0..words {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let length = u32::from(entry >> 8);
                loaded[stream] = loaded[stream].wrapping_shr(length);
                used[stream] += length;
                marks[stream] |= entry;
                for cell in 0..CELLS {
                    let count = u64::from(entry >> (cell * bits)) & ((1 << bits) - 1);
                    out[stream][first + at * CELLS + cell] = T::low(count);
                }
            }
        }
        let escaped = marks.iter().fold(0, |all, mark| all | mark) & ESCAPE != 0;
        if !escaped {
            streams.iter_mut().zip(used).for_each(|(stream, used)| stream.at_bit += used as usize);
            continue;
        }
        for stream in 0..STREAMS {
            if marks[stream] & ESCAPE == 0 {
                streams[stream].at_bit += used[stream] as usize;
            } else {
                streams[stream].low_slowly(
                    code,
                    CELLS,
                    &mut out[stream][first..first + words * CELLS],
                );
            }
        }
    }
}

/// The same for a high code.
#[inline(always)]
fn high_turn<T: Cell, const WORDS: usize>(
    streams: &mut [Stream<'_>; STREAMS],
    code: &[u16; LOOKUP],
    bits: u32,
    out: &mut [[T; LANE]; STREAMS],
) {
    let mask = (1u64 << bits) - 1;
    for first in (0..LANE).step_by(WORDS) {
        let [a, b, c, d] = &*streams;
        let mut loaded = [a.load(), b.load(), c.load(), d.load()];
        let (mut used, mut marks) = ([0; STREAMS], [0; STREAMS]);
        for at in 0..WORDS {
            for stream in 0..STREAMS {
                let entry = code[loaded[stream] as usize % LOOKUP];
                let length = u32::from(entry >> 8);
                let word = loaded[stream].wrapping_shr(length);
                out[stream][first + at] = T::low(u64::from(entry & 255) << bits | word & mask);
                loaded[stream] = word >> bits;
                used[stream] += length;
                marks[stream] |= entry;
            }
        }
        let low = WORDS * bits as usize;
        let escaped = marks.iter().fold(0, |all, mark| all | mark) & ESCAPE != 0;
        if !escaped {
            streams
                .iter_mut()
                .zip(used)
                .for_each(|(stream, used)| stream.at_bit += used as usize + low);
            continue;
        }
        for stream in 0..STREAMS {
            if marks[stream] & ESCAPE == 0 {
                streams[stream].at_bit += used[stream] as usize + low;
            } else {
                streams[stream].high_slowly(code, bits, &mut out[stream][first..first + WORDS]);
            }
        }
    }
}

/// The rows of a frame by turns of all streams; then what is left, by eights.
#[inline(always)]
fn each_lane<'a, T: Cell>(
    streams: &mut [Stream<'a>; STREAMS],
    rows: usize,
    out: &mut [T],
    turn: impl Fn(&mut [Stream<'a>; STREAMS], &mut [[T; LANE]; STREAMS]),
    rest: impl Fn(&mut Stream<'a>, &mut [T]),
) {
    let (out, after) = out.split_at_mut(rows);
    after.fill(T::default());
    let (turns, rest_of) = out.as_chunks_mut::<{ LANE * STREAMS }>();
    for lanes in turns {
        let (lanes, _) = lanes.as_chunks_mut::<LANE>();
        turn(streams, lanes.try_into().expect("BUG: a turn has a lane for each stream"));
    }
    for (stream, lane) in streams.iter_mut().zip(rest_of.chunks_mut(LANE)) {
        rest(stream, lane);
    }
}

impl Model {
    /// Adds what is expected of the rows.
    #[inline(always)]
    fn expect<T: Cell>(&self, column: usize, bits: u32, scales: &[u32], out: &mut [T]) {
        let rate = self.sixty_fourths(column);
        let shift = 6 + self.scale_bits;
        let least = T::low(reach(bits).wrapping_neg());
        if self.scale_bits == 0 {
            let least = T::scaled(rate, 1, 6).plus(least);
            out.iter_mut().for_each(|cell| *cell = cell.plus(least));
        } else {
            for (cell, &scale) in out.iter_mut().zip(scales) {
                *cell = cell.plus(T::scaled(rate, scale, shift)).plus(least);
            }
        }
    }
}

/// The sum and the union of counts.
#[inline(always)]
pub(crate) fn total<T: Cell>(cells: &[T]) -> (u64, T) {
    if T::BITS < 64 {
        let (sum, all) = cells
            .iter()
            .fold((T::default(), T::default()), |(sum, all), &n| (sum.plus(n), all.or(n)));
        return (sum.wide(), all);
    }
    cells.iter().fold((0, T::default()), |(sum, all), &n| (n.wide().saturating_add(sum), all.or(n)))
}

fn low_bits(bits: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    match bits.get(6, "Rice parameter")? {
        63 => Err(Reader::invalid(0, "Rice parameter", 63, "at most 62")),
        low_bits => Ok(low_bits as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        put(&mut out, &indexes(buckets.iter()), buckets.iter());
        let mut reader = Reader::new(&out);
        let matrix = Matrix::read(&mut reader, rows.len()).unwrap();
        let indexes = matrix.indexes.clone();
        let mut found = vec![Vec::new(); rows.len()];
        let mut take = |frame: (usize, usize, usize), cell: &dyn Fn(usize) -> u64| {
            let (first, rows, height) = frame;
            for row in 0..rows {
                for (column, &index) in indexes.iter().enumerate() {
                    let count = cell(column * height + row);
                    if count > 0 {
                        found[first + row].push((index, count));
                    }
                }
            }
        };
        if matrix.wide {
            matrix.each_frame::<u64>(|f| take((f.first, f.rows, f.height), &|at| f.cells[at]))
        } else {
            matrix
                .each_frame::<u32>(|f| take((f.first, f.rows, f.height), &|at| f.cells[at].into()))
        }
        .unwrap();
        assert_eq!(found, rows);
        reader.finish().unwrap();
        out.len()
    }

    #[test]
    fn matrices_come_back() {
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
