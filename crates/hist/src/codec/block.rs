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
//! add up to, where they are whole; otherwise as doubles.

use crate::accumulator::Accumulator;
use crate::codec::bits::{BitReader, BitWriter, rice_low_bits};
use crate::codec::bytes::{Reader, put_varint};
use crate::codec::counts::{CELLS_MAX, CountsDecoder, put_counts};
use crate::codec::frame::{number, put_number};
use crate::codec::header::{BLOCK_MAGIC, Meaning, header, put_header};
use crate::error::DecodeError;
use crate::histogram::{Histogram, Parts, Threshold};
use crate::scheme::Scheme;
use crate::side::{Side, Sum};

/// Histograms in one block at the most.
pub const HISTOGRAMS_MAX: usize = 4096;
/// Limits of one block at the most.
const LIMITS_MAX: u64 = 64;
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
    check(histograms, first)?;
    let start = out.len();
    put_header(out, BLOCK_MAGIC, meaning, first.scheme());
    put_varint(out, histograms.len() as u64);
    put_number(out, first.zero_threshold());
    put_varint(out, first.thresholds().len() as u64);
    first.thresholds().iter().for_each(|threshold| put_number(out, threshold.value));

    let rows = |of: fn(&Histogram) -> &crate::Buckets| -> Vec<Vec<(i32, u64)>> {
        histograms.iter().map(|histogram| of(histogram).iter().collect()).collect()
    };
    put_counts(out, &rows(Histogram::positive));
    put_counts(out, &rows(Histogram::negative));
    let columns = columns(histograms, first.thresholds().len());
    put_varint(out, columns.len() as u64);
    out.extend(columns);
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend(checksum.to_le_bytes());
    Ok(())
}

fn check(histograms: &[Histogram], first: &Histogram) -> Result<(), BlockError> {
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
    let buckets = |of: fn(&Histogram) -> &crate::Buckets| {
        let mut all: Vec<i32> =
            histograms.iter().flat_map(|histogram| of(histogram).indexes()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.len() as u64
    };
    let buckets = buckets(Histogram::positive).max(buckets(Histogram::negative));
    let cells = buckets.saturating_mul(histograms.len() as u64);
    let limits = first.thresholds().len() as u64;
    if histograms.len() > HISTOGRAMS_MAX || cells > CELLS_MAX || limits > LIMITS_MAX {
        return Err(BlockError::TooMany { histograms: histograms.len(), buckets });
    }
    Ok(())
}

/// The histograms of a block that fills `bytes`, in order.
pub fn decode(bytes: &[u8]) -> Result<(Vec<Histogram>, Meaning), DecodeError> {
    let mut histograms = Vec::new();
    let meaning = each(bytes, |_, parts| {
        histograms.push(Histogram::from_own_parts(parts)?);
        Ok(())
    })?;
    Ok((histograms, meaning))
}

/// Adds the histograms at the places of `range` to `accumulator`. A damaged block is refused and nothing
/// is added.
pub fn merge_into(
    bytes: &[u8],
    range: std::ops::Range<usize>,
    accumulator: &mut Accumulator,
) -> Result<Meaning, DecodeError> {
    let mut merged: Option<Accumulator> = None;
    let meaning = each(bytes, |position, parts| {
        if range.contains(&position) {
            let histogram = Histogram::from_own_parts(parts)?;
            merged
                .get_or_insert_with(|| Accumulator::new(histogram.scheme().clone()))
                .add(&histogram)?;
        }
        Ok(())
    })?;
    if let Some(merged) = merged {
        accumulator.add(&merged.to_histogram())?;
    }
    Ok(meaning)
}

/// Calls `f` with the place and the parts of each histogram.
fn each(
    bytes: &[u8],
    mut f: impl FnMut(usize, Parts) -> Result<(), DecodeError>,
) -> Result<Meaning, DecodeError> {
    let body = checked_body(bytes)?;
    let mut reader = Reader::new(body);
    let (meaning, scheme) = header(&mut reader, BLOCK_MAGIC)?;
    let at = reader.offset();
    let histograms = reader.varint("histogram count")?;
    if histograms > HISTOGRAMS_MAX as u64 {
        let (field, limit) = ("histogram count", HISTOGRAMS_MAX as u64);
        return Err(DecodeError::Limit { offset: at, field, found: histograms, limit });
    }
    let histograms = histograms as usize;
    let zero_threshold = number(&mut reader, "zero threshold")?;
    let limits = limits(&mut reader)?;
    let positive = matrix(&mut reader, histograms)?;
    let negative = matrix(&mut reader, histograms)?;
    let len = reader.varint("columns length")?;
    let offset = reader.offset();
    let bits = reader.take(usize::try_from(len).unwrap_or(usize::MAX), "columns")?;
    reader.finish()?;

    let mut bits = BitReader::new(bits, offset);
    let mut side_counts = Vec::with_capacity(4 + limits.len());
    for _ in 0..4 + limits.len() {
        side_counts.push(get_side_count(&mut bits, histograms)?);
    }
    let buckets = |matrix: &Matrix, row: usize| -> Vec<(i32, u64)> {
        let counts = &matrix.counts[row * matrix.indexes.len()..][..matrix.indexes.len()];
        matrix.indexes.iter().copied().zip(counts.iter().copied()).filter(|&(_, n)| n > 0).collect()
    };
    let rows: Vec<Row> = (0..histograms)
        .map(|row| {
            let sides = [0, 1, 2].map(|column: usize| side_counts[column][row]);
            Row::new(
                &scheme,
                zero_threshold,
                buckets(&positive, row),
                buckets(&negative, row),
                sides,
            )
        })
        .collect::<Result<_, _>>()?;
    let mins = get_extremes(&mut bits, &rows, |row| row.lowest)?;
    let maxs = get_extremes(&mut bits, &rows, |row| row.highest)?;
    let sums = get_sums(&mut bits, &rows)?;
    bits.finish()?;

    let (mut mins, mut maxs, mut sums) = (mins.into_iter(), maxs.into_iter(), sums.into_iter());
    for (position, row) in rows.into_iter().enumerate() {
        let mut parts = Parts::new(scheme.clone());
        parts.zero_threshold = zero_threshold;
        if !row.is_empty {
            parts.min = mins.next().expect("BUG: a minimum for each");
            parts.max = maxs.next().expect("BUG: a maximum for each");
            parts.sum = sums.next().expect("BUG: a sum for each");
        }
        parts.zero = side_counts[0][position];
        parts.overflow = side_counts[1][position];
        parts.underflow = side_counts[2][position];
        parts.nan = side_counts[3][position];
        parts.thresholds = limits
            .iter()
            .zip(&side_counts[4..])
            .map(|(&value, above)| Threshold { value, above: above[position] })
            .collect();
        (parts.positive, parts.negative) = (row.positive, row.negative);
        f(position, parts)?;
    }
    Ok(meaning)
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

struct Matrix {
    indexes: Vec<i32>,
    counts: Vec<u64>,
}

fn matrix(reader: &mut Reader<'_>, rows: usize) -> Result<Matrix, DecodeError> {
    let mut decoder = CountsDecoder::new(reader, rows)?;
    let indexes = decoder.indexes().to_vec();
    let mut counts = vec![0; rows * indexes.len()];
    if !indexes.is_empty() {
        counts.chunks_exact_mut(indexes.len()).try_for_each(|row| decoder.row(row))?;
    }
    decoder.finish()?;
    Ok(Matrix { indexes, counts })
}

/// What side values are predicted from: the buckets of one histogram.
struct Row {
    positive: Vec<(i32, u64)>,
    negative: Vec<(i32, u64)>,
    is_empty: bool,
    lowest: Whole,
    highest: Whole,
    /// What the bucket middles add up to, if that is a whole number of moderate size.
    sum: Option<i64>,
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

impl Row {
    fn new(
        scheme: &Scheme,
        zero_threshold: f64,
        positive: Vec<(i32, u64)>,
        negative: Vec<(i32, u64)>,
        [zero, overflow, underflow]: [u64; 3],
    ) -> Result<Row, DecodeError> {
        let mut parts = Parts::new(scheme.clone());
        parts.zero_threshold = zero_threshold;
        (parts.zero, parts.overflow, parts.underflow) = (zero, overflow, underflow);
        (parts.positive, parts.negative) = (positive, negative);
        let histogram = Histogram::from_own_parts(parts)?;
        Ok(Row::of(&histogram))
    }

    fn of(histogram: &Histogram) -> Row {
        // The edges of a logarithmic grid come from a logarithm that no two machines round alike, so
        // nothing is predicted from them.
        let predicts = !histogram.is_empty() && !matches!(histogram.scheme(), Scheme::Log(_));
        let whole = |greatest| match predicts {
            true => Whole::between(histogram.outermost(greatest)),
            false => Whole::NONE,
        };
        Row {
            positive: histogram.positive().iter().collect(),
            negative: histogram.negative().iter().collect(),
            is_empty: histogram.is_empty(),
            lowest: whole(false),
            highest: whole(true),
            sum: if predicts { sum_of_middles(histogram) } else { None },
        }
    }
}

fn sum_of_middles(histogram: &Histogram) -> Option<i64> {
    let side = |buckets: &crate::Buckets| -> f64 {
        let middle = |index| {
            let (lower, upper) =
                histogram.scheme().edges(index).expect("BUG: held buckets have edges");
            lower * 0.5 + upper * 0.5
        };
        buckets.iter().map(|(index, count)| count as f64 * middle(index)).sum()
    };
    let sum: f64 = side(histogram.positive()) - side(histogram.negative());
    (sum.abs() < (1u64 << 61) as f64).then(|| sum.round() as i64)
}

fn columns(histograms: &[Histogram], limits: usize) -> Vec<u8> {
    let mut bits = BitWriter::default();
    let mut side_count = |of: &dyn Fn(&Histogram) -> u64| {
        put_side_count(&mut bits, &histograms.iter().map(of).collect::<Vec<u64>>());
    };
    side_count(&Histogram::zero_count);
    side_count(&Histogram::overflow);
    side_count(&Histogram::underflow);
    side_count(&Histogram::nan_count);
    for limit in 0..limits {
        side_count(&|histogram| histogram.thresholds()[limit].above);
    }
    let held: Vec<(&Histogram, Row)> = histograms
        .iter()
        .filter(|histogram| !histogram.is_empty())
        .map(|histogram| (histogram, Row::of(histogram)))
        .collect();
    let mut extremes = |side: fn(&Histogram) -> Side<f64>, whole: fn(&Row) -> Whole| {
        let column: Vec<(Side<f64>, Whole)> =
            held.iter().map(|(histogram, row)| (side(histogram), whole(row))).collect();
        put_extremes(&mut bits, &column);
    };
    extremes(Histogram::min_side, |row| row.lowest);
    extremes(Histogram::max_side, |row| row.highest);
    let sums: Vec<(Side<Sum>, Option<i64>)> =
        held.iter().map(|(histogram, row)| (histogram.sum_side(), row.sum)).collect();
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

fn get_standings(bits: &mut BitReader<'_>, rows: usize) -> Result<Vec<Side<()>>, DecodeError> {
    let common = bits.get(2, "standing")?;
    (0..rows)
        .map(|_| {
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
    rows: &[Row],
    whole_of: fn(&Row) -> Whole,
) -> Result<Vec<Side<f64>>, DecodeError> {
    let rows: Vec<Whole> = rows.iter().filter(|row| !row.is_empty).map(whole_of).collect();
    let standings = get_standings(bits, rows.len())?;
    let all_whole = bits.get(1, "whether extremes are whole")? == 1;
    rows.into_iter()
        .zip(standings)
        .map(|(whole, standing)| {
            if standing == Side::Absent {
                return Ok(Side::Absent);
            }
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

fn put_sums(bits: &mut BitWriter, column: &[(Side<Sum>, Option<i64>)]) {
    put_standings(bits, column.iter().map(|(side, _)| *side));
    let differences: Option<Vec<u64>> = column
        .iter()
        .filter_map(|(side, middles)| side.value().map(|sum| (sum, middles)))
        .map(|(sum, middles)| Some(fold(whole_sum(sum)?.checked_sub((*middles)?)?)))
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

fn get_sums(bits: &mut BitReader<'_>, rows: &[Row]) -> Result<Vec<Side<Sum>>, DecodeError> {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.is_empty).collect();
    let standings = get_standings(bits, rows.len())?;
    let all_whole = bits.get(1, "whether sums are whole")? == 1;
    let low_bits = if all_whole { low_bits(bits)? } else { 0 };
    rows.into_iter()
        .zip(standings)
        .map(|(row, standing)| {
            if standing == Side::Absent {
                return Ok(Side::Absent);
            }
            let sum = if all_whole {
                let difference = unfold(bits.get_rice(low_bits, "sum")?);
                let sum = i128::from(row.sum.unwrap_or(0)) + i128::from(difference);
                let magnitude = Sum::from_integer(sum.unsigned_abs());
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
    let is_negative_zero = high.to_bits() == (-0.0f64).to_bits();
    (fits && !is_negative_zero).then(|| whole + low_whole)
}

/// A signed number as an unsigned one, small for small.
fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
