//! Many histograms of one series, for storage: near the entropy of their counts, exact side values
//! included.
//!
//! ```text
//! size      field
//!    any    header       see `header.rs`; all histograms have one scheme, unit and temporality
//!    any    histograms   varint
//!    any    threshold    the zero threshold, a number as in a frame; one for all
//!    any    limits       varint, then the declared thresholds as numbers; the same for all
//!    any    positive     counts, see `counts.rs`
//!    any    negative     counts
//!    any    columns      varint of their length in bytes, then bits, least significant first
//!      4    checksum     CRC-32C of everything before it
//! ```
//! The columns are, each for all histograms in turn: zero count, overflow, underflow, nan, the count above
//! each limit; then of those that are not empty: minimum, maximum, sum. An extreme is coded as its place
//! among the whole numbers of its outermost bucket, a sum as its distance from what the bucket middles
//! add up to, where they are whole; otherwise as doubles. `docs/formats/block.md` tells a stranger the same,
//! byte by byte.

use crate::accumulator::Accumulator;
use crate::codec::bits::{BitReader, BitWriter, rice_low_bits};
use crate::codec::bytes::{Reader, put_varint};
pub use crate::codec::counts::CELLS_MAX;
use crate::codec::counts::Matrix;
use crate::codec::frame::{number, put_number};
use crate::codec::header::{BLOCK_MAGIC, Meaning, header, put_header};
use crate::error::DecodeError;
use crate::histogram::{Histogram, Parts, PartsError, Threshold};
use crate::scheme::Scheme;
use crate::side::{Side, Sum};

/// Histograms in one block at the most.
pub const HISTOGRAMS_MAX: usize = 4096;
/// Limits of one block at the most.
pub const LIMITS_MAX: u64 = Histogram::THRESHOLDS_MAX as u64;
/// Whole numbers below this are coded by their bits; above, doubles leave some out.
const WHOLE_MAX: f64 = (1u64 << 53) as f64;

/// Histograms that do not go into one block.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// All must have one scheme, zero threshold and set of declared thresholds.
    #[error(
        "histogram {position} differs from the first in scheme, zero threshold or declared thresholds"
    )]
    Differs {
        /// Its place, from 0.
        position: usize,
    },
    /// Make two blocks of them.
    #[error("{histograms} histograms with {buckets} different buckets are too many for one block")]
    TooMany {
        /// How many histograms.
        histograms: usize,
        /// How many buckets at the most.
        buckets: u64,
    },
}

/// Appends a block of histograms that share scheme, zero threshold and declared thresholds.
pub fn encode(
    histograms: &[Histogram],
    meaning: Meaning,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    let empty = Histogram::default();
    let first = histograms.first().unwrap_or(&empty);
    check_alike(histograms, first)?;
    let [positive, negative] = [Histogram::positive, Histogram::negative].map(|of| {
        let indexes = Matrix::indexes(histograms.iter().map(of));
        let buckets = indexes.len() as u64;
        if histograms.len() > HISTOGRAMS_MAX || buckets * histograms.len() as u64 > CELLS_MAX {
            return Err(BlockError::TooMany { histograms: histograms.len(), buckets });
        }
        Ok(Matrix::new(indexes, histograms.iter().map(of)))
    });
    let (positive, negative) = (positive?, negative?);

    let start = out.len();
    put_header(out, BLOCK_MAGIC, meaning, first.scheme());
    put_varint(out, histograms.len() as u64);
    put_number(out, first.zero_threshold());
    put_varint(out, first.thresholds().len() as u64);
    first.thresholds().iter().for_each(|threshold| put_number(out, threshold.value));
    positive.put(out);
    negative.put(out);
    let columns = columns(histograms, first, &positive, &negative);
    put_varint(out, columns.len() as u64);
    out.extend(columns);
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend(checksum.to_le_bytes());
    Ok(())
}

fn check_alike(histograms: &[Histogram], first: &Histogram) -> Result<(), BlockError> {
    let limits = |histogram: &Histogram| -> Vec<u64> {
        histogram.thresholds().iter().map(|threshold| threshold.value.to_bits()).collect()
    };
    for (position, histogram) in histograms.iter().enumerate() {
        if histogram.scheme() != first.scheme()
            || histogram.zero_threshold() != first.zero_threshold()
            || limits(histogram) != limits(first)
        {
            return Err(BlockError::Differs { position });
        }
    }
    Ok(())
}

/// The histograms of a block that fills `bytes`, in order.
pub fn decode(bytes: &[u8]) -> Result<(Vec<Histogram>, Meaning), DecodeError> {
    let block = Block::read(bytes)?;
    let histograms = (0..block.rows).map(|row| Ok(Histogram::from_own_parts(block.parts(row))?));
    Ok((histograms.collect::<Result<_, DecodeError>>()?, block.meaning))
}

/// Adds the histograms at the places of `range` to `accumulator`. A damaged block is refused and nothing
/// is added.
pub fn merge_into(
    bytes: &[u8],
    range: std::ops::Range<usize>,
    accumulator: &mut Accumulator,
) -> Result<Meaning, DecodeError> {
    let block = Block::read(bytes)?;
    let range = range.start.min(block.rows)..range.end.min(block.rows);
    match block.merged(range.clone()) {
        Some(parts) => accumulator.add(&Histogram::from_own_parts(parts)?)?,
        None => {
            let mut merged = Accumulator::new(block.scheme.clone());
            for row in range {
                merged.add(&Histogram::from_own_parts(block.parts(row))?)?;
            }
            accumulator.add(&merged.to_histogram())?;
        }
    }
    Ok(block.meaning)
}

/// A block taken apart: columns of counts and of side values.
struct Block {
    meaning: Meaning,
    scheme: Scheme,
    rows: usize,
    zero_threshold: f64,
    limits: Vec<f64>,
    positive: Matrix,
    negative: Matrix,
    /// Zero count, overflow, underflow, nan, above each limit.
    side_counts: Vec<Vec<u64>>,
    /// Of each row; whatever of those that are empty.
    min: Vec<Side<f64>>,
    max: Vec<Side<f64>>,
    sum: Vec<Side<Sum>>,
}

impl Block {
    fn read(bytes: &[u8]) -> Result<Block, DecodeError> {
        let body = checked_body(bytes)?;
        let mut reader = Reader::new(body);
        let (meaning, scheme) = header(&mut reader, BLOCK_MAGIC)?;
        let at = reader.offset();
        let rows = reader.varint("histogram count")?;
        if rows > HISTOGRAMS_MAX as u64 {
            let (field, limit) = ("histogram count", HISTOGRAMS_MAX as u64);
            return Err(DecodeError::Limit { offset: at, field, found: rows, limit });
        }
        let rows = rows as usize;
        let zero_threshold = number(&mut reader, "zero threshold")?;
        let limits = limits(&mut reader)?;
        let positive = Matrix::read(&mut reader, rows)?;
        let negative = Matrix::read(&mut reader, rows)?;
        let len = reader.varint("columns length")?;
        let offset = reader.offset();
        let bits = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "columns")?;
        reader.finish()?;

        let mut bits = BitReader::new(bits, offset);
        let side_counts = (0..4 + limits.len())
            .map(|_| get_side_count(&mut bits, rows))
            .collect::<Result<Vec<_>, _>>()?;
        let mut block = Block {
            meaning,
            scheme,
            rows,
            zero_threshold,
            limits,
            positive,
            negative,
            side_counts,
            min: Vec::new(),
            max: Vec::new(),
            sum: Vec::new(),
        };
        let predictions = block.predictions()?;
        block.min = get_extremes(&mut bits, &predictions, |row| row.lowest)?;
        block.max = get_extremes(&mut bits, &predictions, |row| row.highest)?;
        block.sum = get_sums(&mut bits, &predictions)?;
        bits.finish()?;
        Ok(block)
    }

    fn predictions(&self) -> Result<Vec<Prediction>, DecodeError> {
        let predictor = Predictor::new(
            &self.scheme,
            self.zero_threshold,
            &self.positive.indexes,
            &self.negative.indexes,
        )?;
        let row = |row: usize| {
            let sides = [0, 1, 2].map(|column: usize| self.side_counts[column][row]);
            predictor.of(self.positive.row(row), self.negative.row(row), sides)
        };
        Ok((0..self.rows).map(row).collect())
    }

    fn parts(&self, row: usize) -> Parts {
        let side_count = |column: usize| self.side_counts[column][row];
        Parts {
            scheme: self.scheme.clone(),
            zero_threshold: self.zero_threshold,
            positive: held(&self.positive.indexes, self.positive.row(row)),
            negative: held(&self.negative.indexes, self.negative.row(row)),
            zero: side_count(0),
            overflow: side_count(1),
            underflow: side_count(2),
            nan: side_count(3),
            sum: self.sum[row],
            min: self.min[row],
            max: self.max[row],
            thresholds: self
                .limits
                .iter()
                .enumerate()
                .map(|(limit, &value)| Threshold { value, above: side_count(4 + limit) })
                .collect(),
        }
    }

    /// The sum of some rows, column by column; `None` where side values or a total say that it takes more
    /// than that.
    fn merged(&self, range: std::ops::Range<usize>) -> Option<Parts> {
        let total = |column: &Vec<u64>| {
            column[range.clone()].iter().try_fold(0u64, |total, &count| total.checked_add(count))
        };
        let mut parts = Parts::new(self.scheme.clone());
        parts.zero_threshold = self.zero_threshold;
        parts.positive = merged(&self.positive, range.clone())?;
        parts.negative = merged(&self.negative, range.clone())?;
        parts.zero = total(&self.side_counts[0])?;
        parts.overflow = total(&self.side_counts[1])?;
        parts.underflow = total(&self.side_counts[2])?;
        parts.nan = total(&self.side_counts[3])?;
        let mut sum = Sum::ZERO;
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for row in range.clone().filter(|&row| self.is_held(row)) {
            sum = sum.plus(self.sum[row].exact()?);
            min = min.min(self.min[row].exact()?);
            max = max.max(self.max[row].exact()?);
        }
        (parts.sum, parts.min, parts.max) = (Side::Exact(sum), Side::Exact(min), Side::Exact(max));
        for (&value, column) in self.limits.iter().zip(&self.side_counts[4..]) {
            parts.thresholds.push(Threshold { value, above: total(column)? });
        }
        Some(parts)
    }

    /// Whether a row holds anything but NaN.
    fn is_held(&self, row: usize) -> bool {
        let held = |counts: &[u64]| counts.iter().any(|&count| count > 0);
        self.side_counts[..3].iter().any(|column| column[row] > 0)
            || held(self.positive.row(row))
            || held(self.negative.row(row))
    }
}

fn checked_body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(DecodeError::Truncated { offset: 0, field: "checksum" });
    };
    let (found, expected) = (crc32c::crc32c(body), u32::from_le_bytes(*checksum));
    if found == expected { Ok(body) } else { Err(DecodeError::Checksum { found, expected }) }
}

fn limits(reader: &mut Reader<'_>) -> Result<Vec<f64>, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("limit count")?;
    if count > LIMITS_MAX {
        let (field, limit) = ("limit count", LIMITS_MAX);
        return Err(DecodeError::Limit { offset: at, field, found: count, limit });
    }
    (0..count).map(|_| number(reader, "limit")).collect()
}

/// The columns' sums over some rows; `None` if one may not fit.
fn merged(matrix: &Matrix, range: std::ops::Range<usize>) -> Option<Vec<(i32, u64)>> {
    let mut sums = vec![0u64; matrix.indexes.len()];
    // A count with a high bit set is told by the union of all counts: then each addition is checked
    // in effect, for fewer than 2^13 rows of less than 2^51 add up within 64 bits.
    let mut union = 0;
    for row in range {
        for (sum, &count) in sums.iter_mut().zip(matrix.row(row)) {
            *sum = sum.wrapping_add(count);
            union |= count;
        }
    }
    (union < 1 << 51).then(|| held(&matrix.indexes, &sums))
}

fn held(indexes: &[i32], counts: &[u64]) -> Vec<(i32, u64)> {
    let pairs = indexes.iter().copied().zip(counts.iter().copied());
    pairs.filter(|&(_, count)| count > 0).collect()
}

/// What side values are coded against: the buckets of one histogram.
struct Prediction {
    is_empty: bool,
    lowest: Whole,
    highest: Whole,
    /// What the whole numbers nearest to the bucket middles add up to, modulo 2^64.
    sum: i64,
}

/// What each column's bucket can hold.
struct Predictor {
    positive: Vec<(Whole, i64)>,
    negative: Vec<(Whole, i64)>,
    zero: Whole,
}

impl Predictor {
    fn new(
        scheme: &Scheme,
        zero_threshold: f64,
        positive: &[i32],
        negative: &[i32],
    ) -> Result<Predictor, DecodeError> {
        // The edges of a logarithmic grid come from a logarithm that no two machines round alike, so
        // nothing is predicted from them.
        let predicts = !matches!(scheme, Scheme::Log(_));
        let column = |index: i32, sign: f64| {
            let outside =
                || PartsError::OutsideGrid { found: index, scheme: Box::new(scheme.clone()) };
            let (lower, upper) = scheme.span(index).ok_or_else(outside)?;
            Ok(match (predicts, sign > 0.0) {
                (false, _) => (Whole::NONE, 0),
                (true, true) => (Whole::between((lower, upper)), middle(lower, upper)),
                (true, false) => {
                    (Whole::between((-upper, -lower)), middle(lower, upper).wrapping_neg())
                }
            })
        };
        let columns = |indexes: &[i32], sign| {
            indexes.iter().map(|&index| column(index, sign)).collect::<Result<Vec<_>, PartsError>>()
        };
        let zero_end = scheme.zero_end(zero_threshold);
        Ok(Predictor {
            positive: columns(positive, 1.0)?,
            negative: columns(negative, -1.0)?,
            zero: if predicts { Whole::between((-zero_end, zero_end)) } else { Whole::NONE },
        })
    }

    fn of(
        &self,
        positive: &[u64],
        negative: &[u64],
        [zero, overflow, underflow]: [u64; 3],
    ) -> Prediction {
        let first = |counts: &[u64]| counts.iter().position(|&count| count > 0);
        let last = |counts: &[u64]| counts.iter().rposition(|&count| count > 0);
        let zero = (zero > 0).then_some(self.zero);
        let beyond = |count: u64| (count > 0).then_some(Whole::NONE);
        let lowest = beyond(underflow)
            .or_else(|| last(negative).map(|column| self.negative[column].0))
            .or(zero)
            .or_else(|| first(positive).map(|column| self.positive[column].0))
            .or(beyond(overflow));
        let highest = beyond(overflow)
            .or_else(|| last(positive).map(|column| self.positive[column].0))
            .or(zero)
            .or_else(|| first(negative).map(|column| self.negative[column].0))
            .or(beyond(underflow));
        let sum = |columns: &[(Whole, i64)], counts: &[u64]| {
            let products =
                columns.iter().zip(counts).map(|(&(_, middle), &n)| middle.wrapping_mul(n as i64));
            products.fold(0i64, i64::wrapping_add)
        };
        Prediction {
            is_empty: lowest.is_none(),
            lowest: lowest.unwrap_or(Whole::NONE),
            highest: highest.unwrap_or(Whole::NONE),
            sum: sum(&self.positive, positive).wrapping_add(sum(&self.negative, negative)),
        }
    }
}

/// The whole number nearest to the middle; a bucket without end counts as nothing.
fn middle(lower: f64, upper: f64) -> i64 {
    let middle = lower * 0.5 + upper * 0.5;
    if middle.is_finite() { middle.round() as i64 } else { 0 }
}

/// The whole numbers that a bucket can hold, if it can and doubles hold them all.
#[derive(Clone, Copy)]
struct Whole {
    first: i64,
    last: i64,
}

impl Whole {
    /// No whole number.
    const NONE: Whole = Whole { first: 0, last: -1 };

    fn between((lower, upper): (f64, f64)) -> Whole {
        let (first, last) = (lower.ceil(), upper.floor());
        if first <= last && first.abs() < WHOLE_MAX && last.abs() < WHOLE_MAX {
            Whole { first: first as i64, last: last as i64 }
        } else {
            Whole::NONE
        }
    }

    fn bits(self) -> u32 {
        u64::BITS - ((self.last - self.first) as u64).leading_zeros()
    }

    /// The place of a value, if it is one of these.
    fn place(self, value: f64) -> Option<u64> {
        let whole = value as i64;
        let is_one = whole as f64 == value
            && (self.first..=self.last).contains(&whole)
            && value.to_bits() != (-0.0f64).to_bits();
        is_one.then(|| (whole - self.first) as u64)
    }
}

fn columns(
    histograms: &[Histogram],
    first: &Histogram,
    positive: &Matrix,
    negative: &Matrix,
) -> Vec<u8> {
    let mut bits = BitWriter::default();
    let mut side_count = |of: &dyn Fn(&Histogram) -> u64| {
        put_side_count(&mut bits, &histograms.iter().map(of).collect::<Vec<u64>>());
    };
    side_count(&Histogram::zero_count);
    side_count(&Histogram::overflow);
    side_count(&Histogram::underflow);
    side_count(&Histogram::nan_count);
    for limit in 0..first.thresholds().len() {
        side_count(&|histogram| histogram.thresholds()[limit].above);
    }
    let predictor = Predictor::new(
        first.scheme(),
        first.zero_threshold(),
        &positive.indexes,
        &negative.indexes,
    )
    .expect("BUG: held buckets lie in the grid");
    let held: Vec<(&Histogram, Prediction)> = histograms
        .iter()
        .enumerate()
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(row, histogram)| {
            let sides = [histogram.zero_count(), histogram.overflow(), histogram.underflow()];
            (histogram, predictor.of(positive.row(row), negative.row(row), sides))
        })
        .collect();
    let mut extremes = |side: fn(&Histogram) -> Side<f64>, whole: fn(&Prediction) -> Whole| {
        let column: Vec<(Side<f64>, Whole)> =
            held.iter().map(|(histogram, predicted)| (side(histogram), whole(predicted))).collect();
        put_extremes(&mut bits, &column);
    };
    extremes(Histogram::min_side, |predicted| predicted.lowest);
    extremes(Histogram::max_side, |predicted| predicted.highest);
    let sums: Vec<(Side<Sum>, i64)> =
        held.iter().map(|(histogram, predicted)| (histogram.sum_side(), predicted.sum)).collect();
    put_sums(&mut bits, &sums);
    bits.finish()
}

/// One bit if all are zero; else Rice's code of the differences.
fn put_side_count(bits: &mut BitWriter, counts: &[u64]) {
    let used = counts.iter().any(|&count| count > 0);
    bits.put(used.into(), 1);
    if !used {
        return;
    }
    let mut previous = 0;
    let differences: Vec<u64> = counts
        .iter()
        .map(|&count| {
            let difference = count.wrapping_sub(previous) as i64;
            previous = count;
            fold(difference)
        })
        .collect();
    let low_bits = rice_low_bits(differences.iter().copied());
    bits.put(low_bits.into(), 6);
    differences.into_iter().for_each(|difference| bits.put_rice(difference, low_bits));
}

fn get_side_count(bits: &mut BitReader<'_>, histograms: usize) -> Result<Vec<u64>, DecodeError> {
    if bits.get(1, "whether a count is used")? == 0 {
        return Ok(vec![0; histograms]);
    }
    let low_bits = low_bits(bits)?;
    let mut count = 0u64;
    (0..histograms)
        .map(|_| {
            count = count.wrapping_add(unfold(bits.get_rice(low_bits, "count")?) as u64);
            Ok(count)
        })
        .collect()
}

fn low_bits(bits: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    match bits.get(6, "Rice parameter")? {
        63 => Err(Reader::invalid(0, "Rice parameter", 63, "at most 62")),
        low_bits => Ok(low_bits as u32),
    }
}

/// How sides are known: two bits if all alike, else two bits each.
fn put_standings<T: Copy>(bits: &mut BitWriter, sides: impl Iterator<Item = Side<T>> + Clone) {
    let standing = |side| match side {
        Side::Absent => 0,
        Side::Estimated(_) => 1,
        Side::Exact(_) => 2,
    };
    let mut standings = sides.map(standing);
    let first = standings.clone().next().unwrap_or(0);
    if standings.clone().all(|standing| standing == first) {
        bits.put(first, 2);
    } else {
        bits.put(MIXED, 2);
        standings.by_ref().for_each(|standing| bits.put(standing, 2));
    }
}

const MIXED: u64 = 3;

/// The standing of each row; absent where the row is empty and nothing was written.
fn get_standings(
    bits: &mut BitReader<'_>,
    rows: &[Prediction],
) -> Result<Vec<Side<()>>, DecodeError> {
    let common = bits.get(2, "standing")?;
    rows.iter()
        .map(|row| {
            if row.is_empty {
                return Ok(Side::Absent);
            }
            let standing = if common == MIXED { bits.get(2, "standing")? } else { common };
            Ok(match standing {
                0 => Side::Absent,
                1 => Side::Estimated(()),
                2 => Side::Exact(()),
                _ => return Err(Reader::invalid(0, "standing", standing, "0 to 2")),
            })
        })
        .collect()
}

fn put_extremes(bits: &mut BitWriter, column: &[(Side<f64>, Whole)]) {
    put_standings(bits, column.iter().map(|(side, _)| *side));
    let places: Option<Vec<(u64, u32)>> = column
        .iter()
        .filter_map(|(side, whole)| side.value().map(|value| (value, whole)))
        .map(|(value, whole)| Some((whole.place(value)?, whole.bits())))
        .collect();
    bits.put(places.is_some().into(), 1);
    match places {
        Some(places) => places.into_iter().for_each(|(place, width)| bits.put(place, width)),
        None => column
            .iter()
            .filter_map(|(side, _)| side.value())
            .for_each(|value| bits.put(value.to_bits(), 64)),
    }
}

fn get_extremes(
    bits: &mut BitReader<'_>,
    rows: &[Prediction],
    whole_of: fn(&Prediction) -> Whole,
) -> Result<Vec<Side<f64>>, DecodeError> {
    let standings = get_standings(bits, rows)?;
    let all_whole = bits.get(1, "whether extremes are whole")? == 1;
    rows.iter()
        .zip(standings)
        .map(|(row, standing)| {
            if standing == Side::Absent {
                return Ok(Side::Absent);
            }
            let whole = whole_of(row);
            let value = if all_whole {
                let place = bits.get(whole.bits().min(63), "place of an extreme")? as i64;
                (whole.first + place) as f64
            } else {
                f64::from_bits(bits.get(64, "extreme")?)
            };
            Ok(if standing == Side::Exact(()) {
                Side::Exact(value)
            } else {
                Side::Estimated(value)
            })
        })
        .collect()
}

fn put_sums(bits: &mut BitWriter, column: &[(Side<Sum>, i64)]) {
    put_standings(bits, column.iter().map(|(side, _)| *side));
    let differences: Option<Vec<u64>> = column
        .iter()
        .filter_map(|(side, predicted)| side.value().map(|sum| (sum, predicted)))
        .map(|(sum, predicted)| Some(fold(whole_sum(sum)?.wrapping_sub(*predicted))))
        .collect();
    bits.put(differences.is_some().into(), 1);
    match differences {
        Some(differences) => {
            let low_bits = rice_low_bits(differences.iter().copied());
            bits.put(low_bits.into(), 6);
            differences.into_iter().for_each(|difference| bits.put_rice(difference, low_bits));
        }
        None => column.iter().filter_map(|(side, _)| side.value()).for_each(|sum| {
            let (high, low) = sum.parts();
            bits.put(high.to_bits(), 64);
            bits.put(low.to_bits(), 64);
        }),
    }
}

fn get_sums(bits: &mut BitReader<'_>, rows: &[Prediction]) -> Result<Vec<Side<Sum>>, DecodeError> {
    let standings = get_standings(bits, rows)?;
    let all_whole = bits.get(1, "whether sums are whole")? == 1;
    let low_bits = if all_whole { low_bits(bits)? } else { 0 };
    rows.iter()
        .zip(standings)
        .map(|(row, standing)| {
            if standing == Side::Absent {
                return Ok(Side::Absent);
            }
            let sum = if all_whole {
                let sum = row.sum.wrapping_add(unfold(bits.get_rice(low_bits, "sum")?));
                let magnitude = Sum::from_integer(sum.unsigned_abs().into());
                if sum < 0 { Sum::ZERO.minus(magnitude) } else { magnitude }
            } else {
                let high = f64::from_bits(bits.get(64, "sum")?);
                Sum::from_parts(high, f64::from_bits(bits.get(64, "sum low word")?))
            };
            Ok(if standing == Side::Exact(()) { Side::Exact(sum) } else { Side::Estimated(sum) })
        })
        .collect()
}

/// A sum that is a whole number of moderate size.
fn whole_sum(sum: Sum) -> Option<i64> {
    let (high, low) = sum.parts();
    let whole = high as i64;
    let low_whole = low as i64;
    let fits = high.abs() < (1u64 << 61) as f64 && whole as f64 == high && low_whole as f64 == low;
    fits.then(|| whole + low_whole)
}

/// A signed number as an unsigned one, small for small.
fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
