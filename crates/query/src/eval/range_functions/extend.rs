//! Growth at exact range boundaries (`anchored`, `smoothed`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::RangeExtension;
use crate::value::StepValue;

use super::rate::{GrowthKind, add, sub};
use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, HasTime, HistogramPoint, RangeWindow, count_until, millis};

/// Samples at the boundaries, from samples that reach beyond the window; `None` if there is none
/// after the start of the window.
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

/// The same if the growth within the window is known: a sample precedes its end.
fn growth_boundary<T: HasTime>(
    window: &RangeWindow<'_>,
    points: &[T],
) -> Option<RangeInclusive<usize>> {
    let ends = boundary_points(window, points)?;
    let is_before = points[*ends.start()].time() <= window.end;
    (is_before || window.extension != RangeExtension::Smoothed).then_some(ends)
}

/// Whether the value at the start is interpolated between two samples.
fn is_start_interpolated<T: HasTime>(window: &RangeWindow<'_>, points: &[T], first: usize) -> bool {
    window.extension == RangeExtension::Smoothed
        && points[first].time() < window.start
        && first + 1 < points.len()
}

/// Whether the value at the end is interpolated between two samples.
fn is_end_interpolated<T: HasTime>(window: &RangeWindow<'_>, points: &[T], last: usize) -> bool {
    window.extension == RangeExtension::Smoothed && last > 0 && points[last].time() > window.end
}

/// Growth of floats.
pub(super) fn float_growth(window: &RangeWindow<'_>, growth: GrowthKind) -> Option<f64> {
    let (left, inner, right) = at_ends(window, growth_boundary(window, window.floats)?, growth);
    let mut increase = right - left;
    if growth.is_counter {
        // Samples at or beyond the boundaries are in `left` and `right`.
        let mut before = left;
        let mut lost = 0.0;
        for value in inner.map(|float| float.value).chain([right]) {
            if value < before {
                lost += before;
            }
            before = value;
        }
        increase += lost;
    }
    if growth.is_rate {
        increase /= window.seconds();
    }
    Some(increase)
}

/// Floats at both boundaries, if they exist outside of a growth function too, and the samples
/// between.
pub(super) fn interpolated_ends<'a>(
    window: &RangeWindow<'a>,
) -> Option<(f64, impl Iterator<Item = &'a FloatPoint>, f64)> {
    let growth = GrowthKind { is_counter: false, is_rate: false };
    Some(at_ends(window, boundary_points(window, window.floats)?, growth))
}

/// Floats at both boundaries, and the samples between.
fn at_ends<'a>(
    window: &RangeWindow<'a>,
    ends: RangeInclusive<usize>,
    growth: GrowthKind,
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

/// Linear interpolation between two floats; a counter that fell starts at zero.
pub(super) fn interpolate(
    from: &FloatPoint,
    to: &FloatPoint,
    time: i64,
    growth: GrowthKind,
) -> f64 {
    let begin = if growth.is_counter && to.value < from.value { 0.0 } else { from.value };
    let (part, elapsed) =
        (millis(time.saturating_sub(from.time)), millis(to.time.saturating_sub(from.time)));
    begin + (to.value - begin) * part / elapsed
}

/// Growth of histograms.
pub(super) fn histogram_growth(
    window: &RangeWindow<'_>,
    growth: GrowthKind,
    warnings: &mut SeriesWarnings,
) -> Option<StepValue> {
    let histograms = window.histograms;
    let (first, last) = growth_boundary(window, histograms)?.into_inner();
    let is_custom = histograms[first].value.grid.is_custom();
    for point in &histograms[first..=last] {
        if point.value.grid.is_custom() != is_custom {
            warnings.add(SeriesWarning::ExponentialWithCustom);
            return None;
        }
        if growth.is_counter && point.value.hint == ResetHint::Gauge {
            warnings.add(SeriesWarning::NotCounter);
        }
    }
    let left = match is_start_interpolated(window, histograms, first) {
        true => {
            let (from, to) = (&histograms[first], &histograms[first + 1]);
            interpolate_histograms(from, to, window.start, growth, warnings)?
        }
        false => FloatHistogram::clone(&histograms[first].value),
    };
    let right = match is_end_interpolated(window, histograms, last) {
        true => {
            let (from, to) = (&histograms[last - 1], &histograms[last]);
            interpolate_histograms(from, to, window.end, growth, warnings)?
        }
        false => FloatHistogram::clone(&histograms[last].value),
    };
    let are_gauges = left.hint == ResetHint::Gauge && right.hint == ResetHint::Gauge;
    if !growth.is_counter && !are_gauges {
        warnings.add(SeriesWarning::NotGauge);
    }
    let mut increase = right.clone();
    sub(&mut increase, &left, warnings)?;
    if growth.is_counter {
        let lost = lost_at_resets(window, first..=last, &left, &right, warnings)?;
        if let Some(lost) = lost {
            add(&mut increase, &lost, warnings)?;
        }
    }
    if growth.is_rate {
        increase.div(window.seconds());
    }
    increase.hint = ResetHint::Gauge;
    Some(StepValue::Histogram(Arc::new(increase)))
}

/// Linear interpolation between two histograms; a counter that was reset starts empty.
pub(super) fn interpolate_histograms(
    from: &HistogramPoint,
    to: &HistogramPoint,
    time: i64,
    growth: GrowthKind,
    warnings: &mut SeriesWarnings,
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
    sub(&mut result, &from.value, warnings)?;
    result.mul(part);
    add(&mut result, &from.value, warnings)?;
    Some(result)
}

/// Sum of the counter values lost at resets; the outer `None` if the histograms are incompatible.
fn lost_at_resets(
    window: &RangeWindow<'_>,
    ends: RangeInclusive<usize>,
    left: &FloatHistogram,
    right: &FloatHistogram,
    warnings: &mut SeriesWarnings,
) -> Option<Option<FloatHistogram>> {
    let histograms = window.histograms;
    let (first, last) = ends.into_inner();
    let (mut next, mut before) = (first + 1, left);
    if is_start_interpolated(window, histograms, first) {
        let after = &histograms[next].value;
        if after.detect_reset(&histograms[first].value) {
            // The sample before the start was already used by the interpolation there.
            (next, before) = (next + 1, after);
        }
    }
    // The last sample equals `right`, or `right` was interpolated up to it: its hint must not count
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
                Some(lost) => add(lost, before, warnings)?,
            }
        }
        before = value;
    }
    Some(lost)
}
