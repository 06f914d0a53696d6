//! Summary columns of blocks: counts beside the buckets, minimum, maximum and sum.
//!
//! A minimum or maximum is coded as its index among the numbers that its outermost bucket can hold.
//! A sum is coded as its difference from the sum of the bucket middles. Both are multiples of
//! 10^-exponent, and a block chooses the exponent: seconds with six decimals are then as short as
//! whole microseconds. The remainder of a sum of doubles follows as a multiple of a power of two. A
//! value that is no such multiple is written unchanged, without an effect on the other values.
//!
//! Predictions are computed in doubles by additions, multiplications and divisions, rounded once
//! each, so decoding gives the same result on every machine.

use crate::codec::bits::{BitReader, BitWriter, rice_low_bits};
use crate::codec::bytes::{ByteReader, unzigzag, zigzag};
use crate::codec::matrix::CountTable;
use crate::codec::row_bounds::{
    ColumnPredictor, DecimalGrid, EXPONENT_MAX, INTEGER_MAX, POWERS, RowBounds,
};
use crate::error::DecodeError;
use crate::histogram::Histogram;
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Limit of coded whole sums, in two words of a double each.
const SUM_MAX: f64 = (1u64 << 61) as f64;

/// Encodings of a column: all values raw; all coded; or one bit per value, 1 if coded.
const RAW: u64 = 0;
const CODED: u64 = 1;
const PARTLY_CODED: u64 = 2;
/// Sums only: raw, without their low words, which are zero.
const RAW_HIGH: u64 = 3;

/// Exactness that differs from row to row.
const MIXED_EXACTNESS: u64 = 3;
/// Of a row of a mixed column: the value is a bound.
const IS_BOUND: u64 = 3;

/// Appends the columns of summary statistics.
#[expect(clippy::expect_used, reason = "a histogram holds no bucket outside of its grid")]
pub(crate) fn put_summary_columns(
    bits: &mut BitWriter,
    histograms: &[Histogram],
    first: &Histogram,
    tables: &[CountTable; 2],
) {
    let mut put_count = |of: &dyn Fn(&Histogram) -> u64| {
        put_summary_counts(bits, &histograms.iter().map(of).collect::<Vec<u64>>());
    };
    put_count(&Histogram::zero_count);
    put_count(&Histogram::overflow);
    put_count(&Histogram::underflow);
    put_count(&Histogram::nan_count);
    for limit in 0..first.thresholds().len() {
        put_count(&|histogram| histogram.thresholds()[limit].above);
    }
    let nonempty: Vec<&Histogram> =
        histograms.iter().filter(|histogram| !histogram.is_empty()).collect();
    let exponent = common_exponent(&nonempty);
    bits.put(exponent.into(), 4);
    let predictor = ColumnPredictor::new(first.scheme(), first.zero_threshold(), exponent);
    let mut row_bounds = vec![RowBounds::default(); histograms.len()];
    let columns = [(&tables[0], false), (&tables[1], true)].map(|(table, is_negative)| {
        let columns = predictor.columns(table.indexes(), is_negative);
        let columns = columns.expect("BUG: held buckets lie in the grid");
        table.build_row_bounds(&columns, &mut row_bounds);
        columns
    });
    for (bounds, histogram) in row_bounds.iter_mut().zip(histograms) {
        let beside = [histogram.zero_count(), histogram.overflow(), histogram.underflow()];
        predictor.finish_row(bounds, &columns, beside);
    }
    let mut empty = histograms.iter().map(Histogram::is_empty);
    row_bounds.retain(|_| empty.next() == Some(false));
    let power = predictor.power;
    for (side, places) in [
        (
            Histogram::tracked_min as fn(&Histogram) -> TrackedValue<f64>,
            RowBounds::lowest as fn(&RowBounds) -> DecimalGrid,
        ),
        (Histogram::tracked_max, RowBounds::highest),
    ] {
        put_exactness(bits, nonempty.iter().map(|histogram| side(histogram)));
        let column = nonempty.iter().zip(&row_bounds);
        let column = column.filter_map(|(histogram, bounds)| {
            let side = side(histogram);
            Some((side.value().or(side.limit())?, places(bounds)))
        });
        put_extremes(bits, &column.collect::<Vec<_>>(), power);
    }
    put_exactness(bits, nonempty.iter().map(|histogram| histogram.tracked_sum()));
    let column = nonempty.iter().zip(&row_bounds);
    let column = column.filter_map(|(histogram, bounds)| {
        Some((histogram.tracked_sum().value()?, bounds.predicted_sum()))
    });
    put_sums(bits, &column.collect::<Vec<_>>(), exponent);
}

/// Smallest decimal exponent of which nearly all extremes are multiples; 0 if there is none.
fn common_exponent(histograms: &[&Histogram]) -> u32 {
    let values: Vec<f64> = histograms
        .iter()
        .flat_map(|histogram| [histogram.tracked_min().value(), histogram.tracked_max().value()])
        .flatten()
        .filter(|value| value.is_finite())
        .collect();
    let fits = |&exponent: &u32| {
        let power = POWERS[exponent as usize];
        let is_multiple = |&&value: &&f64| {
            let scaled = (value * power).round();
            scaled.abs() < INTEGER_MAX && scaled / power == value
        };
        values.iter().filter(is_multiple).count().wrapping_mul(10) >= values.len().wrapping_mul(9)
    };
    (0..=EXPONENT_MAX).find(fits).unwrap_or(0)
}

/// One bit if all counts are zero; otherwise the Rice code of the differences.
fn put_summary_counts(bits: &mut BitWriter, counts: &[u64]) {
    let used = counts.iter().any(|&count| count > 0);
    bits.put(used.into(), 1);
    if !used {
        return;
    }
    let mut previous = 0;
    let differences: Vec<u64> = counts
        .iter()
        .map(|&count| zigzag(count.wrapping_sub(std::mem::replace(&mut previous, count)) as i64))
        .collect();
    put_rices(bits, &differences);
}

fn put_rices(bits: &mut BitWriter, values: &[u64]) {
    let low_bits = rice_low_bits(values.iter().copied());
    bits.put(low_bits.into(), 6);
    values.iter().for_each(|&value| bits.put_rice(value, low_bits));
}

/// Exactness of the statistics: two bits if all rows are equal and not bounds, otherwise two bits
/// for each row.
fn put_exactness<T: Copy>(
    bits: &mut BitWriter,
    sides: impl Iterator<Item = TrackedValue<T>> + Clone,
) {
    let exactness = |side| match side {
        TrackedValue::Absent => 0,
        TrackedValue::Estimated(_) => 1,
        TrackedValue::Exact(_) => 2,
        TrackedValue::Bound(_) => IS_BOUND,
    };
    let mut exactness = sides.map(exactness);
    let first = exactness.clone().next().unwrap_or(0);
    if first != IS_BOUND && exactness.clone().all(|exactness| exactness == first) {
        bits.put(first, 2);
    } else {
        bits.put(MIXED_EXACTNESS, 2);
        exactness.by_ref().for_each(|exactness| bits.put(exactness, 2));
    }
}

/// Encoding of a column in which `coded` of `values` values can be coded.
fn column_encoding(coded: usize, values: usize) -> u64 {
    match coded {
        _ if coded == values => CODED,
        0 => RAW,
        _ => PARTLY_CODED,
    }
}

fn put_extremes(bits: &mut BitWriter, column: &[(f64, DecimalGrid)], power: f64) {
    let places: Vec<Option<u64>> =
        column.iter().map(|(value, places)| places.index_of(*value, power)).collect();
    let form = column_encoding(places.iter().flatten().count(), column.len());
    bits.put(form, 2);
    for ((value, places), index) in column.iter().zip(places) {
        if form == PARTLY_CODED {
            bits.put(index.is_some().into(), 1);
        }
        match index {
            Some(index) => bits.put(index, places.bits()),
            None => bits.put(value.to_bits(), 64),
        }
    }
}

fn put_sums(bits: &mut BitWriter, column: &[(DoubleDouble, i64)], exponent: u32) {
    // Candidate units: the finest that any sum needs, the finest that nearly all need, none.
    let mut needs: Vec<u32> = column.iter().map(|(sum, _)| residual_bits(*sum, exponent)).collect();
    let mut units = vec![0];
    if needs.iter().any(|&unit| unit > 0) {
        needs.sort_unstable();
        let last = needs.len().wrapping_sub(1);
        units = vec![needs[last], needs[(needs.len().wrapping_mul(90) / 100).min(last)], 0];
    }
    let mut best = raw_sums(column);
    for unit in units {
        let tried = coded_sums(column, exponent, unit);
        if tried.bits() < best.bits() {
            best = tried;
        }
    }
    bits.append(best);
}

fn raw_sums(column: &[(DoubleDouble, i64)]) -> BitWriter {
    let mut bits = BitWriter::default();
    let plain = column.iter().all(|(sum, _)| sum.parts().1 == 0.0);
    bits.put(if plain { RAW_HIGH } else { RAW }, 2);
    for (sum, _) in column {
        bits.put(sum.parts().0.to_bits(), 64);
        if !plain {
            bits.put(sum.parts().1.to_bits(), 64);
        }
    }
    bits
}

fn coded_sums(column: &[(DoubleDouble, i64)], exponent: u32, unit: u32) -> BitWriter {
    let mut bits = BitWriter::default();
    let coded: Vec<Option<(i64, i64)>> =
        column.iter().map(|(sum, _)| split_sum(*sum, exponent, unit)).collect();
    let form = column_encoding(coded.iter().flatten().count(), column.len());
    if form == RAW {
        return raw_sums(column);
    }
    bits.put(form, 2);
    bits.put(unit.into(), 7);
    let pairs = || column.iter().zip(&coded);
    let wholes = pairs().filter_map(|((_, predicted), coded)| {
        coded.map(|(whole, _)| zigzag(whole.wrapping_sub(*predicted)))
    });
    let whole_bits = rice_low_bits(wholes);
    let rest_bits = rice_low_bits(coded.iter().flatten().map(|&(_, rest)| zigzag(rest)));
    bits.put(whole_bits.into(), 6);
    if unit > 0 {
        bits.put(rest_bits.into(), 6);
    }
    for ((sum, predicted), coded) in pairs() {
        if form == PARTLY_CODED {
            bits.put(coded.is_some().into(), 1);
        }
        match coded {
            Some((whole, rest)) => {
                bits.put_rice(zigzag(whole.wrapping_sub(*predicted)), whole_bits);
                if unit > 0 {
                    bits.put_rice(zigzag(*rest), rest_bits);
                }
            }
            None => {
                bits.put(sum.parts().0.to_bits(), 64);
                bits.put(sum.parts().1.to_bits(), 64);
            }
        }
    }
    bits
}

/// Multiple of 10^-exponent nearest to a sum.
fn nearest_multiple(sum: DoubleDouble, exponent: u32) -> i64 {
    let (high, low) = sum.parts();
    if exponent == 0 && high.abs() < SUM_MAX && high.fract() == 0.0 && low.fract() == 0.0 {
        return (high as i64).wrapping_add(low as i64);
    }
    (high * POWERS[exponent as usize]).round() as i64
}

/// Number of fractional bits of the difference between a sum and the nearest multiple; 127 for
/// more.
fn residual_bits(sum: DoubleDouble, exponent: u32) -> u32 {
    let rounded = join_sum(nearest_multiple(sum, exponent), 0, 0, exponent);
    let (high, low) = sum.parts();
    let (off_high, off_low) = sum.minus(rounded).parts();
    if !high.is_finite() || low == high {
        return 0;
    }
    [off_high, off_low].map(last_bit).into_iter().max().unwrap_or(0)
}

/// Number of fractional bits of a double.
fn last_bit(value: f64) -> u32 {
    if value == 0.0 || value.fract() == 0.0 {
        return 0;
    }
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32;
    let significand = value.to_bits() & ((1 << 52) - 1) | 1 << 52;
    1075i32.wrapping_sub(exponent).wrapping_sub(significand.trailing_zeros() as i32).clamp(0, 127)
        as u32
}

/// Splits a sum into a multiple of 10^-exponent and a multiple of 2^-unit, if the two restore it to
/// the last bit.
fn split_sum(sum: DoubleDouble, exponent: u32, unit: u32) -> Option<(i64, i64)> {
    let integer = nearest_multiple(sum, exponent);
    if integer.unsigned_abs() >= 1 << 61 {
        return None;
    }
    let (high, low) = sum.minus(join_sum(integer, 0, 0, exponent)).parts();
    let scale = 2f64.powi(unit as i32);
    let rest = (high * scale).round() + (low * scale).round();
    if rest.is_nan() || rest.abs() >= INTEGER_MAX || unit == 0 && rest != 0.0 {
        return None;
    }
    let same = |a: (f64, f64), b: (f64, f64)| {
        a.0.to_bits() == b.0.to_bits() && a.1.to_bits() == b.1.to_bits()
    };
    same(join_sum(integer, rest as i64, unit, exponent).parts(), sum.parts())
        .then_some((integer, rest as i64))
}

/// The sum of whole·10^-exponent, rounded to a double unless the exponent is 0, and rest·2^-unit.
fn join_sum(integer: i64, rest: i64, unit: u32, exponent: u32) -> DoubleDouble {
    let rest = rest as f64 * (0.5f64).powi(unit as i32);
    if exponent > 0 {
        return DoubleDouble::from_parts(integer as f64 / POWERS[exponent as usize], rest);
    }
    let high = integer as f64;
    let low = i128::from(integer).wrapping_sub(high as i128) as f64;
    if rest == 0.0 {
        DoubleDouble::from_parts(high, low)
    } else {
        DoubleDouble::from_parts(high, low + rest)
    }
}

/// Reads the decimal exponent of a block's summary statistics.
pub(crate) fn get_exponent(bits: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    Ok(bits.get(4, "exponent")? as u32)
}

/// Reads a column of counts.
pub(crate) fn get_summary_counts(
    bits: &mut BitReader<'_>,
    histograms: usize,
) -> Result<Vec<u64>, DecodeError> {
    if bits.get(1, "whether a count is used")? == 0 {
        return Ok(vec![0; histograms]);
    }
    let low_bits = bits.get_rice_parameter()?;
    let mut count = 0u64;
    (0..histograms)
        .map(|_| {
            count = count.wrapping_add(unzigzag(bits.get_rice(low_bits, "count")?) as u64);
            Ok(count)
        })
        .collect()
}

/// Reads the exactness of each row; absent for an empty row for which nothing was written.
fn get_exactness(
    bits: &mut BitReader<'_>,
    is_empty: impl Iterator<Item = bool>,
    may_bound: bool,
) -> Result<Vec<TrackedValue<()>>, DecodeError> {
    let common = bits.get(2, "exactness")?;
    is_empty
        .map(|is_empty| {
            if is_empty {
                return Ok(TrackedValue::Absent);
            }
            let exactness =
                if common == MIXED_EXACTNESS { bits.get(2, "exactness")? } else { common };
            Ok(match exactness {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(()),
                2 => TrackedValue::Exact(()),
                IS_BOUND if may_bound => TrackedValue::Bound(()),
                _ => return Err(ByteReader::invalid_error(0, "exactness", exactness, "0 to 2")),
            })
        })
        .collect()
}

/// Columns of minimum, maximum and sum.
pub(crate) struct SummaryColumns {
    pub(crate) min: Vec<TrackedValue<f64>>,
    pub(crate) max: Vec<TrackedValue<f64>>,
    pub(crate) sum: Vec<TrackedValue<DoubleDouble>>,
}

impl SummaryColumns {
    pub(crate) fn read(
        bits: &mut BitReader<'_>,
        rows: &[RowBounds],
        exponent: u32,
        may_bound: bool,
    ) -> Result<SummaryColumns, DecodeError> {
        let power = POWERS[exponent as usize];
        let min = get_extremes(bits, rows, RowBounds::lowest, power, may_bound)?;
        let max = get_extremes(bits, rows, RowBounds::highest, power, may_bound)?;
        let sum = get_sums(bits, rows, exponent)?;
        Ok(SummaryColumns { min, max, sum })
    }
}

fn with_exactness<T>(exactness: TrackedValue<()>, value: T) -> TrackedValue<T> {
    match exactness {
        TrackedValue::Exact(()) => TrackedValue::Exact(value),
        TrackedValue::Estimated(()) => TrackedValue::Estimated(value),
        TrackedValue::Bound(()) => TrackedValue::Bound(value),
        TrackedValue::Absent => TrackedValue::Absent,
    }
}

fn get_extremes(
    bits: &mut BitReader<'_>,
    rows: &[RowBounds],
    places: fn(&RowBounds) -> DecimalGrid,
    power: f64,
    may_bound: bool,
) -> Result<Vec<TrackedValue<f64>>, DecodeError> {
    let exactness = get_exactness(bits, rows.iter().map(RowBounds::is_empty), may_bound)?;
    let form = bits.get(2, "form of extremes")?;
    if form > PARTLY_CODED {
        return Err(ByteReader::invalid_error(0, "form of extremes", form, "0 to 2"));
    }
    let mut column = Vec::with_capacity(rows.len());
    for (row, exactness) in rows.iter().zip(exactness) {
        if exactness == TrackedValue::Absent {
            column.push(TrackedValue::Absent);
            continue;
        }
        let coded =
            form == CODED || form == PARTLY_CODED && bits.get(1, "form of an extreme")? == 1;
        let value = if coded {
            let places = places(row);
            let index = bits.get(places.bits().min(63), "index of an extreme")? as i64;
            places.first.wrapping_add(index) as f64 / power
        } else {
            f64::from_bits(bits.get(64, "extreme")?)
        };
        column.push(with_exactness(exactness, value));
    }
    Ok(column)
}

fn get_sums(
    bits: &mut BitReader<'_>,
    rows: &[RowBounds],
    exponent: u32,
) -> Result<Vec<TrackedValue<DoubleDouble>>, DecodeError> {
    let exactness = get_exactness(bits, rows.iter().map(RowBounds::is_empty), false)?;
    let form = bits.get(2, "form of sums")?;
    let (mut unit, mut whole_bits, mut rest_bits) = (0, 0, 0);
    if form == CODED || form == PARTLY_CODED {
        unit = bits.get(7, "unit of sums")? as u32;
        whole_bits = bits.get_rice_parameter()?;
        rest_bits = if unit > 0 { bits.get_rice_parameter()? } else { 0 };
    }
    let mut column = Vec::with_capacity(rows.len());
    for (row, exactness) in rows.iter().zip(exactness) {
        if exactness == TrackedValue::Absent {
            column.push(TrackedValue::Absent);
            continue;
        }
        let coded = form == CODED || form == PARTLY_CODED && bits.get(1, "form of a sum")? == 1;
        let sum = if coded {
            let off = unzigzag(bits.get_rice(whole_bits, "sum")?);
            let rest =
                if unit > 0 { unzigzag(bits.get_rice(rest_bits, "rest of a sum")?) } else { 0 };
            join_sum(row.predicted_sum().wrapping_add(off), rest, unit, exponent)
        } else {
            let high = f64::from_bits(bits.get(64, "sum")?);
            let low =
                if form == RAW_HIGH { 0.0 } else { f64::from_bits(bits.get(64, "low word")?) };
            DoubleDouble::from_parts(high, low)
        };
        column.push(with_exactness(exactness, sum));
    }
    Ok(column)
}
