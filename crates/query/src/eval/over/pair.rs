//! How two readings differ that follow each other: `irate` and `idelta` of the last two, `changes` and `resets` of
//! all.

use std::sync::Arc;

use crate::error::Result;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::Extension;
use crate::stream::seconds;
use crate::value::Value;

use super::rate;
use super::remark::{Remark, Remarks};
use super::window::{Float, Histogram, Window, until};

pub(super) fn irate(window: &Window<'_>, remarks: &mut Remarks) -> Result<Option<Value>> {
    Ok(last_two(window, true, remarks))
}

pub(super) fn idelta(window: &Window<'_>, remarks: &mut Remarks) -> Result<Option<Value>> {
    Ok(last_two(window, false, remarks))
}

/// One of the two kinds of readings.
#[derive(Clone, Copy)]
enum Either<'a> {
    Float(&'a Float),
    Histogram(&'a Histogram),
}

impl Either<'_> {
    fn time(self) -> i64 {
        match self {
            Either::Float(float) => float.time,
            Either::Histogram(histogram) => histogram.time,
        }
    }
}

fn last_two(window: &Window<'_>, is_rate: bool, remarks: &mut Remarks) -> Option<Value> {
    let (floats, histograms) = (window.floats, window.histograms);
    let floats = &floats[floats.len().saturating_sub(2)..];
    let histograms = &histograms[histograms.len().saturating_sub(2)..];
    let mut latest: Vec<Either<'_>> = by_time(floats, histograms).collect();
    let (later, earlier) = (latest.pop()?, latest.pop()?);
    if later.time() == earlier.time() {
        return None;
    }
    let interval = seconds(later.time().saturating_sub(earlier.time()));
    match (earlier, later) {
        (Either::Float(earlier), Either::Float(later)) => {
            let is_reset = later.value < earlier.value || later.starts_anew_after(earlier);
            let grown = match is_rate && is_reset {
                true => later.value,
                false => later.value - earlier.value,
            };
            Some(Value::Number(if is_rate { grown / interval } else { grown }))
        }
        (Either::Histogram(earlier), Either::Histogram(later)) => {
            let gauges = [earlier, later].map(|point| point.value.hint == ResetHint::Gauge);
            match is_rate {
                true if gauges.contains(&true) => remarks.add(Remark::NotCounter),
                false if gauges.contains(&false) => remarks.add(Remark::NotGauge),
                _ => {}
            }
            let mut grown = FloatHistogram::clone(&later.value);
            if !is_rate || !is_reset(earlier, later) {
                rate::sub(&mut grown, &earlier.value, remarks)?;
            }
            grown.hint = ResetHint::Gauge;
            if is_rate {
                grown.div(interval);
            }
            Some(Value::Histogram(Arc::new(grown)))
        }
        _ => {
            remarks.add(Remark::Mixed);
            None
        }
    }
}

fn is_reset(earlier: &Histogram, later: &Histogram) -> bool {
    later.starts_anew_after(earlier) || later.value.detect_reset(&earlier.value)
}

pub(super) fn changes(window: &Window<'_>, _: &mut Remarks) -> Result<Option<Value>> {
    Ok(counted(window, |pair| match pair {
        (Either::Float(earlier), Either::Float(later)) => {
            let (a, b) = (earlier.value, later.value);
            a != b && !(a.is_nan() && b.is_nan())
        }
        (Either::Histogram(earlier), Either::Histogram(later)) => {
            !later.value.equals(&earlier.value)
        }
        _ => true,
    }))
}

pub(super) fn resets(window: &Window<'_>, _: &mut Remarks) -> Result<Option<Value>> {
    Ok(counted(window, |pair| match pair {
        (Either::Float(earlier), Either::Float(later)) => {
            later.value < earlier.value || later.starts_anew_after(earlier)
        }
        (Either::Histogram(earlier), Either::Histogram(later)) => is_reset(earlier, later),
        _ => true,
    }))
}

/// How many readings are so, each seen beside the one before.
fn counted(
    window: &Window<'_>,
    mut is_so: impl FnMut((Either<'_>, Either<'_>)) -> bool,
) -> Option<Value> {
    let (mut floats, mut histograms) = (window.floats, window.histograms);
    if window.extension == Extension::Anchored {
        (floats, histograms) = anchored(window)?;
    }
    let mut readings = by_time(floats, histograms);
    let mut earlier = readings.next()?;
    let mut count = 0_u64;
    for later in readings {
        count += u64::from(is_so((earlier, later)));
        earlier = later;
    }
    Some(Value::Number(count as f64))
}

/// Both kinds of readings, by time.
fn by_time<'a>(
    mut floats: &'a [Float],
    mut histograms: &'a [Histogram],
) -> impl Iterator<Item = Either<'a>> {
    std::iter::from_fn(move || match (floats, histograms) {
        ([float, ..], [histogram, ..]) if float.time > histogram.time => {
            histograms = &histograms[1..];
            Some(Either::Histogram(histogram))
        }
        ([float, ..], _) => {
            floats = &floats[1..];
            Some(Either::Float(float))
        }
        ([], [histogram, ..]) => {
            histograms = &histograms[1..];
            Some(Either::Histogram(histogram))
        }
        ([], []) => None,
    })
}

/// Readings after the start and the last one until then, of either kind; `None` where there is none after it.
fn anchored<'a>(window: &Window<'a>) -> Option<(&'a [Float], &'a [Histogram])> {
    let (floats, histograms) = (window.floats, window.histograms);
    let (mut float, mut histogram) = (until(floats, window.start), until(histograms, window.start));
    if float == floats.len() && histogram == histograms.len() {
        return None;
    }
    let time_of_float = float.checked_sub(1).map(|at| floats[at].time);
    let time_of_histogram = histogram.checked_sub(1).map(|at| histograms[at].time);
    match (time_of_float, time_of_histogram) {
        (None, None) => {}
        // A missing one is less than any other.
        (a, b) if a >= b => float -= 1,
        _ => histogram -= 1,
    }
    Some((&floats[float..], &histograms[histogram..]))
}
