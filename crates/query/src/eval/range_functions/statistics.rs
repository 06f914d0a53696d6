//! Statistics of floats over time; histograms are ignored.

use crate::error::Result;
use crate::histogram::{KahanSum, add_compensated};
use crate::stream::seconds;
use crate::value::StepValue;

use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, RangeWindow};

pub(crate) fn max(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(extreme(window, warnings, |value, best| value > best)
        .map(|float| StepValue::Number(float.value)))
}

pub(crate) fn min(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(extreme(window, warnings, |value, best| value < best)
        .map(|float| StepValue::Number(float.value)))
}

/// Timestamp of the last maximum.
pub(crate) fn time_of_max(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let found = extreme(window, warnings, |value, held| value >= held);
    Ok(found.map(|float| StepValue::Number(seconds(float.time))))
}

/// Timestamp of the last minimum.
pub(crate) fn time_of_min(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let found = extreme(window, warnings, |value, held| value <= held);
    Ok(found.map(|float| StepValue::Number(seconds(float.time))))
}

/// Extreme by the given order; NaN only if all floats are NaN.
fn extreme<'a>(
    window: &RangeWindow<'a>,
    warnings: &mut SeriesWarnings,
    goes_before: impl Fn(f64, f64) -> bool,
) -> Option<&'a FloatPoint> {
    let floats = float_points(window, warnings)?;
    floats.iter().reduce(|held, float| {
        match goes_before(float.value, held.value) || held.value.is_nan() {
            true => float,
            false => held,
        }
    })
}

/// Floats, if there are any.
fn float_points<'a>(
    window: &RangeWindow<'a>,
    warnings: &mut SeriesWarnings,
) -> Option<&'a [FloatPoint]> {
    if window.is_mixed() {
        warnings.add(SeriesWarning::HistogramsIgnored);
    }
    (!window.floats.is_empty()).then_some(window.floats)
}

pub(crate) fn stddev(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(variance(window, warnings).map(|variance| StepValue::Number(variance.sqrt())))
}

pub(crate) fn stdvar(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(variance(window, warnings).map(StepValue::Number))
}

/// Welford's method, with compensated sums.
fn variance(window: &RangeWindow<'_>, warnings: &mut SeriesWarnings) -> Option<f64> {
    let floats = float_points(window, warnings)?;
    let mut count = 0.0;
    let (mut mean, mut squares) = (KahanSum::default(), KahanSum::default());
    for float in floats {
        count += 1.0;
        let delta = float.value - (mean.sum + mean.compensation);
        mean = add_compensated(delta / count, mean);
        squares = add_compensated(delta * (float.value - (mean.sum + mean.compensation)), squares);
    }
    Some((squares.sum + squares.compensation) / count)
}

/// Median absolute deviation.
pub(crate) fn mad(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let Some(floats) = float_points(window, warnings) else { return Ok(None) };
    let mut values: Vec<f64> = floats.iter().map(|float| float.value).collect();
    if values.iter().any(|value| value.is_nan()) {
        return Ok(Some(StepValue::Number(f64::NAN)));
    }
    let median = quantile_of(0.5, &mut values);
    for value in &mut values {
        *value = (*value - median).abs();
    }
    Ok(Some(StepValue::Number(quantile_of(0.5, &mut values))))
}

pub(crate) fn quantile(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let Some(floats) = float_points(window, warnings) else { return Ok(None) };
    let [rank] = *window.args else { return Ok(None) };
    if !(0.0..=1.0).contains(&rank) {
        warnings.add(SeriesWarning::InvalidQuantile(rank.to_bits()));
    }
    let mut values: Vec<f64> = floats.iter().map(|float| float.value).collect();
    Ok(Some(StepValue::Number(quantile_of(rank, &mut values))))
}

/// Quantile of floats, which are reordered; interpolated between ranks. NaN is the smallest.
/// Infinite outside of 0 to 1; NaN for no floats.
pub(super) fn quantile_of(rank: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || rank.is_nan() {
        return f64::NAN;
    }
    if rank < 0.0 {
        return f64::NEG_INFINITY;
    }
    if rank > 1.0 {
        return f64::INFINITY;
    }
    let order = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(b),
        (a, b) => b.cmp(&a),
    };
    let position = rank * (values.len() as f64 - 1.0);
    let below = (position.floor() as usize).min(values.len() - 1);
    let weight = position - position.floor();
    let (_, lower, above) = values.select_nth_unstable_by(below, order);
    let lower = *lower;
    let upper = above.iter().copied().min_by(order).unwrap_or(lower);
    lower * (1.0 - weight) + upper * weight
}
