//! Regression and smoothing: `deriv`, `predict_linear`, `double_exponential_smoothing`.

use crate::error::{Error, Result};
use crate::histogram::{KahanSum, add_compensated};
use crate::stream::seconds;
use crate::value::StepValue;

use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, RangeWindow};

pub(crate) fn deriv(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let Some(floats) = two_or_more(window, warnings) else { return Ok(None) };
    // Origin near the samples: squares of distant times would lose digits.
    let line = RegressionLine::fit(floats, floats[0].time);
    Ok(Some(StepValue::Number(line.slope)))
}

pub(crate) fn predict_linear(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let Some(floats) = two_or_more(window, warnings) else { return Ok(None) };
    let [ahead] = window.args else { return Ok(None) };
    let line = RegressionLine::fit(floats, window.time);
    Ok(Some(StepValue::Number(line.slope * ahead + line.intercept)))
}

/// Floats, if there are at least two.
fn two_or_more<'a>(
    window: &RangeWindow<'a>,
    warnings: &mut SeriesWarnings,
) -> Option<&'a [FloatPoint]> {
    if window.is_mixed() {
        warnings.add(SeriesWarning::HistogramsIgnored);
    }
    (window.floats.len() >= 2).then_some(window.floats)
}

/// Least-squares line.
struct RegressionLine {
    /// Slope per second.
    slope: f64,
    intercept: f64,
}

impl RegressionLine {
    fn fit(floats: &[FloatPoint], origin: i64) -> RegressionLine {
        let first = floats[0].value;
        if floats.iter().all(|float| float.value == first) {
            return match first.is_infinite() {
                true => RegressionLine { slope: f64::NAN, intercept: f64::NAN },
                false => RegressionLine { slope: 0.0, intercept: first },
            };
        }
        let count = floats.len() as f64;
        let mut sums = [KahanSum::default(); 4];
        for float in floats {
            let (x, y) = (seconds(float.time.saturating_sub(origin)), float.value);
            for (sum, more) in sums.iter_mut().zip([x, y, x * y, x * x]) {
                *sum = add_compensated(more, *sum);
            }
        }
        let [x, y, xy, xx] = sums.map(|sum| sum.sum + sum.compensation);
        let covariance = xy - x * y / count;
        let variance = xx - x * x / count;
        let slope = covariance / variance;
        RegressionLine { slope, intercept: y / count - slope * x / count }
    }
}

/// Double exponential smoothing (Holt's linear method).
pub(crate) fn holt_smoothing(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    let [smoothing, trend_factor] = *window.args else { return Ok(None) };
    for (what, short, factor) in [("smoothing", "sf", smoothing), ("trend", "tf", trend_factor)] {
        if factor <= 0.0 || factor >= 1.0 {
            let message = format!(
                "invalid {what} factor. Expected: 0 < {short} < 1, got: {}",
                six_decimals(factor)
            );
            return Err(Error::Execution { span: window.span, message });
        }
    }
    let Some(floats) = two_or_more(window, warnings) else { return Ok(None) };
    let mut level = floats[0].value;
    let mut level_before = 0.0;
    let mut trend = floats[1].value - floats[0].value;
    for (at, float) in floats.iter().enumerate().skip(1) {
        if at > 1 {
            let of_levels = trend_factor * (level - level_before);
            trend = of_levels + (1.0 - trend_factor) * trend;
        }
        let expected = (1.0 - smoothing) * (level + trend);
        level_before = level;
        level = smoothing * float.value + expected;
    }
    Ok(Some(StepValue::Number(level)))
}

fn six_decimals(value: f64) -> String {
    match value.is_infinite() {
        true if value > 0.0 => "+Inf".to_owned(),
        true => "-Inf".to_owned(),
        false => format!("{value:.6}"),
    }
}
