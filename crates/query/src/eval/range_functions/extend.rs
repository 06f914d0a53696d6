//! Growth at the exact range boundaries (`anchored`, `smoothed`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::RangeExtension;
use crate::value::StepValue;

use super::rate::{Growth, add, sub};
use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, HasTime, HistogramPoint, RangeWindow, count_until, millis};

/// The readings at the ends, of those that reach beyond the stretch of time; `None` where none is
/// after its start.
fn boundary_points<T: HasTime>(
    window: &RangeWindow<'_>,
    points: &[T],
) -> Option<RangeInclusive<usize>> {
    let mut last = points.len().checked_sub(1)?;
    let first = count_until(&points[..last], window.start).saturating_sub(1);
    if window.extension == RangeExtension::Smoothed {
        last = count_until(&points[..last], window.end.saturating_sub(1));
    }
    (points[last].time() > window.start).then_some(first..=last)
}

/// The same, where growth within the stretch can be known: something of it was read before its end.
fn growth_boundary<T: HasTime>(
    window: &RangeWindow<'_>,
    points: &[T],
) -> Option<RangeInclusive<usize>> {
    let ends = boundary_points(window, points)?;
    let is_before = points[*ends.start()].time() <= window.end;
    (is_before || window.extension != RangeExtension::Smoothed).then_some(ends)
}

/// Whether the value at the start lies between a reading and the next.
fn is_start_interpolated<T: HasTime>(window: &RangeWindow<'_>, points: &[T], first: usize) -> bool {
    window.extension == RangeExtension::Smoothed
        && points[first].time() < window.start
        && first + 1 < points.len()
}

/// Whether the value at the end lies between a reading and the one before.
fn is_end_interpolated<T: HasTime>(window: &RangeWindow<'_>, points: &[T], last: usize) -> bool {
    window.extension == RangeExtension::Smoothed && last > 0 && points[last].time() > window.end
}

/// The growth of numbers.
pub(super) fn float_growth(window: &RangeWindow<'_>, growth: Growth) -> Option<f64> {
    let (left, inner, right) = at_ends(window, growth_boundary(window, window.floats)?, growth);
    let mut grown = right - left;
    if growth.is_counter {
        // Those at the ends or beyond are in `left` and `right`.
        let mut before = left;
        let mut lost = 0.0;
        for value in inner.map(|float| float.value).chain([right]) {
            if value < before {
                lost += before;
            }
            before = value;
        }
        grown += lost;
    }
    if growth.is_rate {
        grown /= window.seconds();
    }
    Some(grown)
}

/// The numbers at both ends, where there would be any outside of a function of growth too; and what
/// lies between.
pub(super) fn interpolated_ends<'a>(
    window: &RangeWindow<'a>,
) -> Option<(f64, impl Iterator<Item = &'a FloatPoint>, f64)> {
    let growth = Growth { is_counter: false, is_rate: false };
    Some(at_ends(window, boundary_points(window, window.floats)?, growth))
}

/// The numbers at both ends, and what lies between.
fn at_ends<'a>(
    window: &RangeWindow<'a>,
    ends: RangeInclusive<usize>,
    growth: Growth,
) -> (f64, impl Iterator<Item = &'a FloatPoint> + use<'a>, f64) {
    let floats = window.floats;
    let (first, last) = ends.into_inner();
    let left = match is_start_interpolated(window, floats, first) {
        true => interpolate(&floats[first], &floats[first + 1], window.start, growth),
        false => floats[first].value,
    };
    let right = match is_end_interpolated(window, floats, last) {
        true => interpolate(&floats[last - 1], &floats[last], window.end, growth),
        false => floats[last].value,
    };
    let (start, end) = (window.start, window.end);
    let inner = floats.get(first..=last).unwrap_or_default().iter();
    (left, inner.filter(move |float| start < float.time && float.time < end), right)
}

/// The number on the way from one to another; a counter that fell went from zero.
pub(super) fn interpolate(from: &FloatPoint, to: &FloatPoint, time: i64, growth: Growth) -> f64 {
    let begin = if growth.is_counter && to.value < from.value { 0.0 } else { from.value };
    let (part, whole) =
        (millis(time.saturating_sub(from.time)), millis(to.time.saturating_sub(from.time)));
    begin + (to.value - begin) * part / whole
}

/// The growth of histograms.
pub(super) fn histogram_growth(
    window: &RangeWindow<'_>,
    growth: Growth,
    remarks: &mut SeriesWarnings,
) -> Option<StepValue> {
    let histograms = window.histograms;
    let (first, last) = growth_boundary(window, histograms)?.into_inner();
    let is_custom = histograms[first].value.grid.is_custom();
    for point in &histograms[first..=last] {
        if point.value.grid.is_custom() != is_custom {
            remarks.add(SeriesWarning::ExponentialWithCustom);
            return None;
        }
        if growth.is_counter && point.value.hint == ResetHint::Gauge {
            remarks.add(SeriesWarning::NotCounter);
        }
    }
    let left = match is_start_interpolated(window, histograms, first) {
        true => {
            let (from, to) = (&histograms[first], &histograms[first + 1]);
            interpolate_histograms(from, to, window.start, growth, remarks)?
        }
        false => FloatHistogram::clone(&histograms[first].value),
    };
    let right = match is_end_interpolated(window, histograms, last) {
        true => {
            let (from, to) = (&histograms[last - 1], &histograms[last]);
            interpolate_histograms(from, to, window.end, growth, remarks)?
        }
        false => FloatHistogram::clone(&histograms[last].value),
    };
    let are_gauges = left.hint == ResetHint::Gauge && right.hint == ResetHint::Gauge;
    if !growth.is_counter && !are_gauges {
        remarks.add(SeriesWarning::NotGauge);
    }
    let mut grown = right.clone();
    sub(&mut grown, &left, remarks)?;
    if growth.is_counter {
        let lost = lost_at_resets(window, first..=last, &left, &right, remarks)?;
        if let Some(lost) = lost {
            add(&mut grown, &lost, remarks)?;
        }
    }
    if growth.is_rate {
        grown.div(window.seconds());
    }
    grown.hint = ResetHint::Gauge;
    Some(StepValue::Histogram(Arc::new(grown)))
}

/// The histogram on the way from one to another; a counter that began anew went from nothing.
pub(super) fn interpolate_histograms(
    from: &HistogramPoint,
    to: &HistogramPoint,
    time: i64,
    growth: Growth,
    remarks: &mut SeriesWarnings,
) -> Option<FloatHistogram> {
    let mut result = FloatHistogram::clone(&to.value);
    if time == to.time {
        return Some(result);
    }
    let part = millis(time.saturating_sub(from.time)) / millis(to.time.saturating_sub(from.time));
    if growth.is_counter && to.value.detect_reset(&from.value) {
        result.mul(part);
        return Some(result);
    }
    sub(&mut result, &from.value, remarks)?;
    result.mul(part);
    add(&mut result, &from.value, remarks)?;
    Some(result)
}

/// What counters had when they began anew, in all; the outer `None` where that cannot be put
/// together.
fn lost_at_resets(
    window: &RangeWindow<'_>,
    ends: RangeInclusive<usize>,
    left: &FloatHistogram,
    right: &FloatHistogram,
    remarks: &mut SeriesWarnings,
) -> Option<Option<FloatHistogram>> {
    let histograms = window.histograms;
    let (first, last) = ends.into_inner();
    let (mut next, mut before) = (first + 1, left);
    if is_start_interpolated(window, histograms, first) {
        let after = &histograms[next].value;
        if after.detect_reset(&histograms[first].value) {
            // What the value at the start was interpolated from knows of that one.
            (next, before) = (next + 1, after);
        }
    }
    // The last is as `right` is, or `right` was interpolated up to it: by its hint it would count
    // twice.
    if next > last {
        return Some(None);
    }
    let mut lost: Option<FloatHistogram> = None;
    let inner = histograms[next..last].iter().map(|point| &*point.value);
    for value in inner.chain([right]) {
        if value.detect_reset(before) {
            match &mut lost {
                None => lost = Some(before.clone()),
                Some(lost) => add(lost, before, remarks)?,
            }
        }
        before = value;
    }
    Some(lost)
}
