//! Random values recorded on random grids: every statistic compared with the values themselves.

use arbitrary::{Result, Unstructured};
use hist::{
    Histogram, Interpolation, LogLinear2, Logarithmic, Recorder, Scheme, SharedRecorder,
    TrackedValue,
};

use super::histogram::check_all;
use crate::model::SortedSample;
use crate::oracle::check;

/// Maximum number of values of one histogram: expected results are computed in integers of
/// thousands of bits.
const VALUES_MAX: usize = 32;

pub(super) fn values(bytes: &[u8]) {
    let _ = try_values(&mut Unstructured::new(bytes));
}

fn try_values(u: &mut Unstructured<'_>) -> Result<()> {
    let empty = empty(u)?;
    let (way, strip, cut) =
        (u.int_in_range(0..=2)?, u.arbitrary()?, u.int_in_range(0..=VALUES_MAX)?);
    let mut values = Vec::new();
    while !u.is_empty() && values.len() < VALUES_MAX {
        let next = match values.last() {
            Some(&last) if u.ratio(1, 3)? => neighbouring_value(u, &empty, last)?,
            _ => value(u)?,
        };
        values.push(next);
    }
    // One at a time: each computes expected results with thousands of bits.
    match way {
        0 => {
            let histogram = record_values(&empty, &values, strip);
            check(&histogram, &SortedSample::new(&values));
            check_all(&histogram);
        }
        1 => {
            let (first, second) = values.split_at(cut.min(values.len()));
            let mut histogram = record_values(&empty, first, strip);
            let rest = record_values(&empty, second, strip);
            histogram.merge(&rest).expect("halves of one kind");
            check(&histogram, &SortedSample::new(&values));
            histogram.subtract(&rest).expect("a half is contained");
            check(&histogram, &SortedSample::new(first));
        }
        _ => recorders(&values),
    }
    Ok(())
}

fn empty(u: &mut Unstructured<'_>) -> Result<Histogram> {
    let mut empty = Histogram::new(scheme(u)?);
    if u.ratio(1, 4)? {
        let threshold = number(u)?.abs();
        empty = empty.clone().with_zero_threshold(threshold).unwrap_or(empty);
    }
    if u.ratio(1, 4)? {
        let limits = [number(u)?, number(u)?];
        empty = empty.clone().with_thresholds(&limits).unwrap_or(empty);
    }
    Ok(empty)
}

/// Drops summary statistics if `strip` is set, like a source that has none.
fn record_values(empty: &Histogram, values: &[f64], strip: bool) -> Histogram {
    let mut histogram = empty.clone();
    values.iter().for_each(|&value| histogram.record(value));
    if !strip {
        return histogram;
    }
    let mut parts = histogram.into_parts();
    (parts.sum, parts.min, parts.max) =
        (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_parts(parts).expect("parts of a histogram")
}

/// The recorders take whole numbers; those that doubles represent have the same expected results.
fn recorders(values: &[f64]) {
    let whole: Vec<u64> =
        values.iter().map(|value| value.abs() as u64).filter(|&n| n < 1 << 53).collect();
    let (mut coarse, mut fine) = (Recorder::new(), Recorder::<8>::with_scale());
    let shared = SharedRecorder::new();
    for &value in &whole {
        coarse.record(value);
        fine.record(value);
        shared.record(value);
    }
    let expected: Vec<f64> = whole.iter().map(|&value| value as f64).collect();
    check(&coarse.snapshot(), &SortedSample::new(&expected));
    check(&fine.snapshot(), &SortedSample::new(&expected));
    assert_eq!(shared.snapshot(), coarse.snapshot());
    assert_eq!(shared.interval(), coarse.snapshot());
    assert!(shared.interval().is_empty());
}

/// A grid of any family.
pub(super) fn scheme(u: &mut Unstructured<'_>) -> Result<Scheme> {
    let made = match u.int_in_range(0..=6)? {
        0 => Ok(Scheme::default()),
        1 => Scheme::exp2(u.int_in_range(-10..=8)?),
        2 => {
            let bits = u.int_in_range(0..=18)?;
            LogLinear2::with_floor(bits, u.int_in_range(-1022..=1023)?).map(Scheme::LogLinear2)
        }
        3 => LogLinear2::integers(u.int_in_range(0..=18)?).map(Scheme::LogLinear2),
        4 => Ok(Scheme::LogLinear10),
        5 => {
            let by = *u.choose(&[
                Interpolation::None,
                Interpolation::Linear,
                Interpolation::Quadratic,
                Interpolation::Cubic,
            ])?;
            let gamma = 1.0 + number(u)?.abs();
            let offset = if u.arbitrary()? { number(u)? } else { 0.0 };
            Logarithmic::new(gamma, offset, by).map(Scheme::Logarithmic)
        }
        _ => {
            let mut bounds = Vec::new();
            for _ in 0..u.int_in_range(0..=8)? {
                bounds.push(number(u)? + 0.0);
            }
            bounds.sort_by(f64::total_cmp);
            bounds.dedup();
            Scheme::explicit(&bounds)
        }
    };
    Ok(made.unwrap_or_default())
}

/// Any double.
pub(super) fn value(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match u.int_in_range(0..=15)? {
        0 => *u.choose(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0])?,
        _ => number(u)?,
    })
}

/// Any finite double, small whole and decimal ones often.
pub(super) fn number(u: &mut Unstructured<'_>) -> Result<f64> {
    let magnitude = match u.int_in_range(0..=4)? {
        0 => f64::from(u.arbitrary::<u16>()?),
        1 => u.arbitrary::<u64>()? as f64,
        2 => 2f64.powi(u.int_in_range(-1074..=1023)?),
        3 => {
            let (digits, power) = (u.int_in_range(1..=999)?, u.int_in_range(-12..=12)?);
            f64::from(digits) * 10f64.powi(power)
        }
        _ => f64::from_bits(u.arbitrary()?),
    };
    let signed = if u.ratio(1, 4)? { -magnitude } else { magnitude };
    Ok(if signed.is_finite() { signed } else { 1.0 })
}

/// A value beside the last one, or on an edge of its bucket.
fn neighbouring_value(u: &mut Unstructured<'_>, empty: &Histogram, last: f64) -> Result<f64> {
    let mut held = empty.clone();
    held.record(last);
    let edges = held.positive().indexes().first().and_then(|&at| empty.scheme().edges(at));
    let (lower, upper) = edges.unwrap_or((-last, last * 2.0));
    let place = *u.choose(&[last, lower, upper])?;
    let moved = *u.choose(&[place, place.next_up(), place.next_down()])?;
    Ok(if moved.is_infinite() { last } else { moved })
}
