//! Decoder for block version 1: `docs/formats/block-1.md`.
//!
//! Version 2 has other counts and side values; what both have alike stands here.

use crate::codec::bits::BitReader;
use crate::codec::block::HISTOGRAMS_MAX;
use crate::codec::block::LIMITS_MAX;
use crate::codec::block_v1_counts::CountMatrixV1;
use crate::codec::bytes::{ByteReader, unzigzag};
use crate::codec::frame::read_number;
use crate::codec::header::{BLOCK_MAGIC, SeriesMeta, read_header};
use crate::error::DecodeError;
use crate::histogram::{Histogram, HistogramParts, PartsError, Threshold};
use crate::scheme::Scheme;
use crate::tracked_value::{CompensatedSum, TrackedValue};

/// Whole numbers below this are coded by their bits; above, doubles leave some out.
const INTEGER_MAX: f64 = (1u64 << 53) as f64;

/// The histograms of a block without its checksum, in order.
pub(crate) fn decode(body: &[u8]) -> Result<(Vec<Histogram>, SeriesMeta), DecodeError> {
    let block = BlockV1::read(body)?;
    let histograms =
        (0..block.header.rows).map(|row| Ok(Histogram::from_recorded_parts(block.parts(row))?));
    Ok((histograms.collect::<Result<_, DecodeError>>()?, block.header.meta))
}

/// Header common to both block versions.
pub(crate) struct BlockHeader {
    pub(crate) meta: SeriesMeta,
    pub(crate) scheme: Scheme,
    pub(crate) rows: usize,
    pub(crate) zero_threshold: f64,
    pub(crate) limits: Vec<f64>,
}

impl BlockHeader {
    pub(crate) fn read(
        reader: &mut ByteReader<'_>,
        version: u8,
    ) -> Result<BlockHeader, DecodeError> {
        let (meaning, scheme) = read_header(reader, BLOCK_MAGIC, version)?;
        let at = reader.offset();
        let rows = reader.varint("histogram count")?;
        if rows > HISTOGRAMS_MAX as u64 {
            let (field, limit) = ("histogram count", HISTOGRAMS_MAX as u64);
            return Err(DecodeError::Limit { offset: at, field, found: rows, limit });
        }
        let zero_threshold = read_number(reader, "zero threshold")?;
        Ok(BlockHeader {
            meta: meaning,
            scheme,
            rows: rows as usize,
            zero_threshold,
            limits: limits(reader)?,
        })
    }
}

/// Decoded block of version 1.
struct BlockV1 {
    header: BlockHeader,
    positive: CountMatrixV1,
    negative: CountMatrixV1,
    /// Zero count, overflow, underflow, nan, above each limit.
    summary_counts: Vec<Vec<u64>>,
    /// Of each row; whatever of those that are empty.
    min: Vec<TrackedValue<f64>>,
    max: Vec<TrackedValue<f64>>,
    sum: Vec<TrackedValue<CompensatedSum>>,
}

impl BlockV1 {
    fn read(body: &[u8]) -> Result<BlockV1, DecodeError> {
        let mut reader = ByteReader::new(body);
        let head = BlockHeader::read(&mut reader, 1)?;
        let rows = head.rows;
        let positive = CountMatrixV1::read(&mut reader, rows)?;
        let negative = CountMatrixV1::read(&mut reader, rows)?;
        let len = reader.varint("columns length")?;
        let offset = reader.offset();
        let bits = reader.read_bytes(usize::try_from(len).unwrap_or(usize::MAX), "columns")?;
        reader.finish()?;

        let mut bits = BitReader::new(bits, offset);
        let side_counts = (0..head.limits.len().wrapping_add(4))
            .map(|_| get_summary_counts(&mut bits, rows))
            .collect::<Result<Vec<_>, _>>()?;
        let (min, max, sum) = (Vec::new(), Vec::new(), Vec::new());
        let mut block = BlockV1 {
            header: head,
            positive,
            negative,
            summary_counts: side_counts,
            min,
            max,
            sum,
        };
        let predictions = block.predictions()?;
        block.min = get_extremes(&mut bits, &predictions, |row| row.lowest)?;
        block.max = get_extremes(&mut bits, &predictions, |row| row.highest)?;
        block.sum = get_sums(&mut bits, &predictions)?;
        bits.finish()?;
        Ok(block)
    }

    fn predictions(&self) -> Result<Vec<SummaryPrediction>, DecodeError> {
        let predictor = SummaryPredictor::new(
            &self.header.scheme,
            self.header.zero_threshold,
            &self.positive.indexes,
            &self.negative.indexes,
        )?;
        let row = |row: usize| {
            let sides = [0, 1, 2].map(|column: usize| self.summary_counts[column][row]);
            predictor.predict(self.positive.row(row), self.negative.row(row), sides)
        };
        Ok((0..self.header.rows).map(row).collect())
    }

    fn parts(&self, row: usize) -> HistogramParts {
        let side_count = |column: usize| self.summary_counts[column][row];
        HistogramParts {
            scheme: self.header.scheme.clone(),
            zero_threshold: self.header.zero_threshold,
            positive: nonzero_buckets(&self.positive.indexes, self.positive.row(row)),
            negative: nonzero_buckets(&self.negative.indexes, self.negative.row(row)),
            zero: side_count(0),
            overflow: side_count(1),
            underflow: side_count(2),
            nan: side_count(3),
            sum: self.sum[row],
            min: self.min[row],
            max: self.max[row],
            thresholds: self
                .header
                .limits
                .iter()
                .enumerate()
                .map(|(limit, &value)| Threshold {
                    value,
                    above: side_count(limit.wrapping_add(4)),
                })
                .collect(),
        }
    }
}

fn limits(reader: &mut ByteReader<'_>) -> Result<Vec<f64>, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("limit count")?;
    if count > LIMITS_MAX {
        let (field, limit) = ("limit count", LIMITS_MAX);
        return Err(DecodeError::Limit { offset: at, field, found: count, limit });
    }
    (0..count).map(|_| read_number(reader, "limit")).collect()
}

fn nonzero_buckets(indexes: &[i32], counts: &[u64]) -> Vec<(i32, u64)> {
    let pairs = indexes.iter().copied().zip(counts.iter().copied());
    pairs.filter(|&(_, count)| count > 0).collect()
}

/// Prediction of a row's minimum, maximum and sum from its buckets.
struct SummaryPrediction {
    is_empty: bool,
    lowest: IntegerRange,
    highest: IntegerRange,
    /// What the whole numbers nearest to the bucket middles add up to, modulo 2^64.
    sum: i64,
}

/// Predictor of summary values, from the bucket ranges of each column.
struct SummaryPredictor {
    positive: Vec<(IntegerRange, i64)>,
    negative: Vec<(IntegerRange, i64)>,
    zero: IntegerRange,
}

impl SummaryPredictor {
    fn new(
        scheme: &Scheme,
        zero_threshold: f64,
        positive: &[i32],
        negative: &[i32],
    ) -> Result<SummaryPredictor, DecodeError> {
        // The edges of a logarithmic grid come from a logarithm that no two machines round alike, so
        // nothing is predicted from them.
        let predicts = !matches!(scheme, Scheme::Log(_));
        let column = |index: i32, sign: f64| {
            let outside =
                || PartsError::OutsideGrid { found: index, scheme: Box::new(scheme.clone()) };
            let (lower, upper) = scheme.span(index).ok_or_else(outside)?;
            Ok(match (predicts, sign > 0.0) {
                (false, _) => (IntegerRange::NONE, 0),
                (true, true) => {
                    (IntegerRange::between((lower, upper)), bucket_middle(lower, upper))
                }
                (true, false) => (
                    IntegerRange::between((-upper, -lower)),
                    bucket_middle(lower, upper).wrapping_neg(),
                ),
            })
        };
        let columns = |indexes: &[i32], sign| {
            indexes.iter().map(|&index| column(index, sign)).collect::<Result<Vec<_>, PartsError>>()
        };
        let zero_end = scheme.zero_end(zero_threshold);
        Ok(SummaryPredictor {
            positive: columns(positive, 1.0)?,
            negative: columns(negative, -1.0)?,
            zero: if predicts {
                IntegerRange::between((-zero_end, zero_end))
            } else {
                IntegerRange::NONE
            },
        })
    }

    fn predict(
        &self,
        positive: &[u64],
        negative: &[u64],
        [zero, overflow, underflow]: [u64; 3],
    ) -> SummaryPrediction {
        let first = |counts: &[u64]| counts.iter().position(|&count| count > 0);
        let last = |counts: &[u64]| counts.iter().rposition(|&count| count > 0);
        let zero = (zero > 0).then_some(self.zero);
        let beyond = |count: u64| (count > 0).then_some(IntegerRange::NONE);
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
        let sum = |columns: &[(IntegerRange, i64)], counts: &[u64]| {
            let products =
                columns.iter().zip(counts).map(|(&(_, middle), &n)| middle.wrapping_mul(n as i64));
            products.fold(0i64, i64::wrapping_add)
        };
        SummaryPrediction {
            is_empty: lowest.is_none(),
            lowest: lowest.unwrap_or(IntegerRange::NONE),
            highest: highest.unwrap_or(IntegerRange::NONE),
            sum: sum(&self.positive, positive).wrapping_add(sum(&self.negative, negative)),
        }
    }
}

/// The whole number nearest to the middle; a bucket without end counts as nothing.
fn bucket_middle(lower: f64, upper: f64) -> i64 {
    let middle = lower * 0.5 + upper * 0.5;
    if middle.is_finite() { middle.round() as i64 } else { 0 }
}

/// Range of integers in a bucket; empty if doubles cannot hold them all.
#[derive(Clone, Copy)]
struct IntegerRange {
    first: i64,
    last: i64,
}

impl IntegerRange {
    /// No whole number.
    const NONE: IntegerRange = IntegerRange { first: 0, last: -1 };

    fn between((lower, upper): (f64, f64)) -> IntegerRange {
        let (first, last) = (lower.ceil(), upper.floor());
        if first <= last && first.abs() < INTEGER_MAX && last.abs() < INTEGER_MAX {
            IntegerRange { first: first as i64, last: last as i64 }
        } else {
            IntegerRange::NONE
        }
    }

    fn bits(self) -> u32 {
        u64::BITS.wrapping_sub((self.last.wrapping_sub(self.first) as u64).leading_zeros())
    }
}

/// A column of counts.
pub(crate) fn get_summary_counts(
    bits: &mut BitReader<'_>,
    histograms: usize,
) -> Result<Vec<u64>, DecodeError> {
    if bits.get(1, "whether a count is used")? == 0 {
        return Ok(vec![0; histograms]);
    }
    let low_bits = low_bits(bits)?;
    let mut count = 0u64;
    (0..histograms)
        .map(|_| {
            count = count.wrapping_add(unzigzag(bits.get_rice(low_bits, "count")?) as u64);
            Ok(count)
        })
        .collect()
}

/// A Rice parameter.
pub(crate) fn low_bits(bits: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    match bits.get(6, "Rice parameter")? {
        63 => Err(ByteReader::invalid_error(0, "Rice parameter", 63, "at most 62")),
        low_bits => Ok(low_bits as u32),
    }
}

/// Standings that differ from row to row.
pub(crate) const MIXED_EXACTNESS: u64 = 3;

/// The standing of each row; absent where the row is empty and nothing was written.
pub(crate) fn get_exactness(
    bits: &mut BitReader<'_>,
    is_empty: impl Iterator<Item = bool>,
) -> Result<Vec<TrackedValue<()>>, DecodeError> {
    let common = bits.get(2, "standing")?;
    is_empty
        .map(|is_empty| {
            if is_empty {
                return Ok(TrackedValue::Absent);
            }
            let standing =
                if common == MIXED_EXACTNESS { bits.get(2, "standing")? } else { common };
            Ok(match standing {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(()),
                2 => TrackedValue::Exact(()),
                _ => return Err(ByteReader::invalid_error(0, "standing", standing, "0 to 2")),
            })
        })
        .collect()
}

fn get_extremes(
    bits: &mut BitReader<'_>,
    rows: &[SummaryPrediction],
    whole_of: fn(&SummaryPrediction) -> IntegerRange,
) -> Result<Vec<TrackedValue<f64>>, DecodeError> {
    let standings = get_exactness(bits, rows.iter().map(|row| row.is_empty))?;
    let all_whole = bits.get(1, "whether extremes are whole")? == 1;
    rows.iter()
        .zip(standings)
        .map(|(row, standing)| {
            if standing == TrackedValue::Absent {
                return Ok(TrackedValue::Absent);
            }
            let whole = whole_of(row);
            let value = if all_whole {
                let place = bits.get(whole.bits().min(63), "place of an extreme")? as i64;
                whole.first.wrapping_add(place) as f64
            } else {
                f64::from_bits(bits.get(64, "extreme")?)
            };
            Ok(if standing == TrackedValue::Exact(()) {
                TrackedValue::Exact(value)
            } else {
                TrackedValue::Estimated(value)
            })
        })
        .collect()
}

fn get_sums(
    bits: &mut BitReader<'_>,
    rows: &[SummaryPrediction],
) -> Result<Vec<TrackedValue<CompensatedSum>>, DecodeError> {
    let standings = get_exactness(bits, rows.iter().map(|row| row.is_empty))?;
    let all_whole = bits.get(1, "whether sums are whole")? == 1;
    let low_bits = if all_whole { low_bits(bits)? } else { 0 };
    rows.iter()
        .zip(standings)
        .map(|(row, standing)| {
            if standing == TrackedValue::Absent {
                return Ok(TrackedValue::Absent);
            }
            let sum = if all_whole {
                let sum = row.sum.wrapping_add(unzigzag(bits.get_rice(low_bits, "sum")?));
                let magnitude = CompensatedSum::from_integer(sum.unsigned_abs().into());
                if sum < 0 { CompensatedSum::ZERO.minus(magnitude) } else { magnitude }
            } else {
                let high = f64::from_bits(bits.get(64, "sum")?);
                CompensatedSum::from_parts(high, f64::from_bits(bits.get(64, "sum low word")?))
            };
            Ok(if standing == TrackedValue::Exact(()) {
                TrackedValue::Exact(sum)
            } else {
                TrackedValue::Estimated(sum)
            })
        })
        .collect()
}
