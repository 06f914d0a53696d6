//! Functions of adjacent samples: `irate`, `idelta`, `changes`, `resets`.

use std::sync::Arc;

use crate::error::Result;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::RangeExtension;
use crate::stream::seconds;
use crate::value::StepValue;

use super::rate;
use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, HistogramPoint, RangeWindow, count_until};

pub(crate) fn irate(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(last_two(window, true, warnings))
}

pub(crate) fn idelta(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(last_two(window, false, warnings))
}

/// Float or histogram sample.
#[derive(Clone, Copy)]
enum FloatOrHistogram<'a> {
    Float(&'a FloatPoint),
    Histogram(&'a HistogramPoint),
}

impl FloatOrHistogram<'_> {
    fn time(self) -> i64 {
        match self {
            FloatOrHistogram::Float(float) => float.time,
            FloatOrHistogram::Histogram(histogram) => histogram.time,
        }
    }
}

fn last_two(
    window: &RangeWindow<'_>,
    is_rate: bool,
    warnings: &mut SeriesWarnings,
) -> Option<StepValue> {
    let (floats, histograms) = (window.floats, window.histograms);
    let floats = &floats[floats.len().saturating_sub(2)..];
    let histograms = &histograms[histograms.len().saturating_sub(2)..];
    let mut latest: Vec<FloatOrHistogram<'_>> = by_time(floats, histograms).collect();
    let (later, earlier) = (latest.pop()?, latest.pop()?);
    if later.time() == earlier.time() {
        return None;
    }
    let interval = seconds(later.time().saturating_sub(earlier.time()));
    match (earlier, later) {
        (FloatOrHistogram::Float(earlier), FloatOrHistogram::Float(later)) => {
            let is_reset = later.value < earlier.value || later.is_restart_after(earlier);
            let growth = match is_rate && is_reset {
                true => later.value,
                false => later.value - earlier.value,
            };
            Some(StepValue::Number(if is_rate { growth / interval } else { growth }))
        }
        (FloatOrHistogram::Histogram(earlier), FloatOrHistogram::Histogram(later)) => {
            let gauges = [earlier, later].map(|point| point.value.hint == ResetHint::Gauge);
            match is_rate {
                true if gauges.contains(&true) => warnings.add(SeriesWarning::NotCounter),
                false if gauges.contains(&false) => warnings.add(SeriesWarning::NotGauge),
                _ => {}
            }
            let mut growth = FloatHistogram::clone(&later.value);
            if !is_rate || !is_reset(earlier, later) {
                rate::sub(&mut growth, &earlier.value, warnings)?;
            }
            growth.hint = ResetHint::Gauge;
            if is_rate {
                growth.div(interval);
            }
            Some(StepValue::Histogram(Arc::new(growth)))
        }
        _ => {
            warnings.add(SeriesWarning::MixedFloatsHistograms);
            None
        }
    }
}

fn is_reset(earlier: &HistogramPoint, later: &HistogramPoint) -> bool {
    later.is_restart_after(earlier) || later.value.detect_reset(&earlier.value)
}

pub(crate) fn changes(
    window: &RangeWindow<'_>,
    _: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(count_pairs(window, |pair| match pair {
        (FloatOrHistogram::Float(earlier), FloatOrHistogram::Float(later)) => {
            let (a, b) = (earlier.value, later.value);
            a != b && !(a.is_nan() && b.is_nan())
        }
        (FloatOrHistogram::Histogram(earlier), FloatOrHistogram::Histogram(later)) => {
            !later.value.equals(&earlier.value)
        }
        _ => true,
    }))
}

pub(crate) fn resets(
    window: &RangeWindow<'_>,
    _: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(count_pairs(window, |pair| match pair {
        (FloatOrHistogram::Float(earlier), FloatOrHistogram::Float(later)) => {
            later.value < earlier.value || later.is_restart_after(earlier)
        }
        (FloatOrHistogram::Histogram(earlier), FloatOrHistogram::Histogram(later)) => {
            is_reset(earlier, later)
        }
        _ => true,
    }))
}

/// Number of adjacent samples for which a condition holds.
fn count_pairs(
    window: &RangeWindow<'_>,
    mut is_so: impl FnMut((FloatOrHistogram<'_>, FloatOrHistogram<'_>)) -> bool,
) -> Option<StepValue> {
    let (mut floats, mut histograms) = (window.floats, window.histograms);
    if window.extension == RangeExtension::Anchored {
        (floats, histograms) = anchored_points(window)?;
    }
    let mut samples = by_time(floats, histograms);
    let mut earlier = samples.next()?;
    let mut count = 0_u64;
    for later in samples {
        count += u64::from(is_so((earlier, later)));
        earlier = later;
    }
    Some(StepValue::Number(count as f64))
}

/// Samples of both kinds, by time.
fn by_time<'a>(
    mut floats: &'a [FloatPoint],
    mut histograms: &'a [HistogramPoint],
) -> impl Iterator<Item = FloatOrHistogram<'a>> {
    std::iter::from_fn(move || match (floats, histograms) {
        ([float, ..], [histogram, ..]) if float.time > histogram.time => {
            histograms = &histograms[1..];
            Some(FloatOrHistogram::Histogram(histogram))
        }
        ([float, ..], _) => {
            floats = &floats[1..];
            Some(FloatOrHistogram::Float(float))
        }
        ([], [histogram, ..]) => {
            histograms = &histograms[1..];
            Some(FloatOrHistogram::Histogram(histogram))
        }
        ([], []) => None,
    })
}

/// Samples after the start and the last one up to it, of either kind; `None` if there is none after
/// the start.
fn anchored_points<'a>(
    window: &RangeWindow<'a>,
) -> Option<(&'a [FloatPoint], &'a [HistogramPoint])> {
    let (floats, histograms) = (window.floats, window.histograms);
    let (mut float, mut histogram) =
        (count_until(floats, window.start), count_until(histograms, window.start));
    if float == floats.len() && histogram == histograms.len() {
        return None;
    }
    let time_of_float = float.checked_sub(1).map(|at| floats[at].time);
    let time_of_histogram = histogram.checked_sub(1).map(|at| histograms[at].time);
    match (time_of_float, time_of_histogram) {
        (None, None) => {}
        // A missing sample compares as the smallest.
        (a, b) if a >= b => float -= 1,
        _ => histogram -= 1,
    }
    Some((&floats[float..], &histograms[histogram..]))
}
