//! Where numbers are heading: `deriv`, `predict_linear` and `double_exponential_smoothing`.

use crate::error::{Error, Result};
use crate::histogram::{Kahan, add_compensated};
use crate::stream::seconds;
use crate::value::Value;

use super::remark::{Remark, Remarks};
use super::window::{Float, Window};

pub(super) fn deriv(window: &Window<'_>, remarks: &mut Remarks) -> Result<Option<Value>> {
    let Some(floats) = two_or_more(window, remarks) else { return Ok(None) };
    // Near to the readings: far away, squares of times would lose digits.
    let line = Line::through(floats, floats[0].time);
    Ok(Some(Value::Number(line.slope)))
}

pub(super) fn predict_linear(window: &Window<'_>, remarks: &mut Remarks) -> Result<Option<Value>> {
    let Some(floats) = two_or_more(window, remarks) else { return Ok(None) };
    let [ahead] = window.args else { return Ok(None) };
    let line = Line::through(floats, window.time);
    Ok(Some(Value::Number(line.slope * ahead + line.intercept)))
}

/// Numbers enough for a trend.
fn two_or_more<'a>(window: &Window<'a>, remarks: &mut Remarks) -> Option<&'a [Float]> {
    if window.is_mixed() {
        remarks.add(Remark::HistogramsIgnored);
    }
    (window.floats.len() >= 2).then_some(window.floats)
}

/// The line of least squares.
struct Line {
    /// In a second.
    slope: f64,
    intercept: f64,
}

impl Line {
    fn through(floats: &[Float], origin: i64) -> Line {
        let first = floats[0].value;
        if floats.iter().all(|float| float.value == first) {
            return match first.is_infinite() {
                true => Line { slope: f64::NAN, intercept: f64::NAN },
                false => Line { slope: 0.0, intercept: first },
            };
        }
        let count = floats.len() as f64;
        let mut sums = [Kahan::default(); 4];
        for float in floats {
            let (x, y) = (seconds(float.time.saturating_sub(origin)), float.value);
            for (sum, more) in sums.iter_mut().zip([x, y, x * y, x * x]) {
                *sum = add_compensated(more, *sum);
            }
        }
        let [x, y, xy, xx] = sums.map(|sum| sum.sum + sum.lost);
        let covariance = xy - x * y / count;
        let variance = xx - x * x / count;
        let slope = covariance / variance;
        Line { slope, intercept: y / count - slope * x / count }
    }
}

/// A moving average that leans on its own trend (Holt's linear method).
pub(super) fn smoothed(window: &Window<'_>, remarks: &mut Remarks) -> Result<Option<Value>> {
    let [smoothing, trend_factor] = *window.args else { return Ok(None) };
    for (what, short, factor) in [("smoothing", "sf", smoothing), ("trend", "tf", trend_factor)] {
        if factor <= 0.0 || factor >= 1.0 {
            let message = format!(
                "invalid {what} factor. Expected: 0 < {short} < 1, got: {}",
                six_decimals(factor)
            );
            return Err(Error::Execution { place: window.place, message });
        }
    }
    let Some(floats) = two_or_more(window, remarks) else { return Ok(None) };
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
    Ok(Some(Value::Number(level)))
}

fn six_decimals(value: f64) -> String {
    match value.is_infinite() {
        true if value > 0.0 => "+Inf".to_owned(),
        true => "-Inf".to_owned(),
        false => format!("{value:.6}"),
    }
}
