//! Lines fitted to the last numbers, and their extrapolation.
//!
//! With `model="exp"`, the line is fitted to the logarithms; values that are not above 0 are
//! skipped.

use super::super::arguments::Arguments;
use super::super::kernel::{KernelInput, SlotMargin};
use super::super::points::{numbers, stream};
use super::slots;
use crate::error::Result;
use crate::sliding::sliding_sums;
use crate::stream::{StepGrid, Stream};

const MINUTE_NS: i64 = 60_000_000_000;

/// Line fit: window, refit interval, look-ahead, in slots (steps).
struct LineModel {
    /// Window length in slots; at least 1.
    length: usize,
    /// Refit interval in slots, aligned to the Unix epoch; at least 1.
    every: usize,
    /// Look-ahead in slots.
    ahead: f64,
    is_exponential: bool,
}

impl LineModel {
    fn from_arguments(arguments: &Arguments, steps: StepGrid) -> LineModel {
        let ahead = slots(arguments, "forecast_duration", steps).unwrap_or(0.0);
        // Default window length: the look-ahead, but at least ten slots and ten minutes.
        let default_length = (10 * MINUTE_NS) as f64 / steps.step as f64;
        let length = slots(arguments, "model_duration", steps)
            .unwrap_or(default_length.max(10.0).max(ahead));
        LineModel {
            length: (length.round() as usize).max(1),
            every: slots(arguments, "step", steps).map_or(1, |every| (every as usize).max(1)),
            ahead,
            is_exponential: arguments.text("model") == Some("exp"),
        }
    }

    /// Slots since the line that applies to this slot was fitted.
    fn age(&self, steps: StepGrid, at: usize) -> usize {
        let slot = steps.time(at).div_euclid(steps.step);
        slot.rem_euclid(i64::try_from(self.every).unwrap_or(i64::MAX)) as usize
    }

    fn scale(&self, number: f64) -> Option<f64> {
        let scaled = if self.is_exponential { number.ln() } else { number };
        Some(scaled).filter(|scaled| scaled.is_finite())
    }

    fn unscale(&self, scaled: f64) -> f64 {
        if self.is_exponential { scaled.exp() } else { scaled }
    }
}

pub(super) fn margin(arguments: &Arguments, steps: StepGrid) -> SlotMargin {
    let model = LineModel::from_arguments(arguments, steps);
    SlotMargin::before(model.length.saturating_add(model.every - 1))
}

/// Least squares over the numbers of the last slots, the current one included.
pub(super) fn regression(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let (steps, before) = (call.steps, call.slots_before);
    let model = LineModel::from_arguments(call.arguments, steps);
    let forecast_stream = |input: &Stream| {
        let mut items = Vec::new();
        // Count of present numbers before each slot.
        let mut present = vec![0];
        for (at, number) in numbers(input).enumerate() {
            items.extend(
                number
                    .and_then(|number| model.scale(number))
                    .map(|y| LeastSquares::from_point(at as f64, y)),
            );
            present.push(items.len());
        }
        let windows = (0..steps.count).map(|at| {
            let end = (before + at + 1).saturating_sub(model.age(steps, at));
            present[end.saturating_sub(model.length)]..present[end]
        });
        let merge = |sums: &mut LeastSquares, more: &LeastSquares| {
            sums.merge(more);
            Ok::<(), std::convert::Infallible>(())
        };
        let window_sums = sliding_sums(&items, windows, merge).unwrap_or_default();
        let forecasts = window_sums.into_iter().enumerate().map(|(at, sums)| {
            let line = sums?.value_at((before + at) as f64 + model.ahead)?;
            Some(model.unscale(line))
        });
        stream(input.labels.clone(), forecasts.collect::<Vec<_>>())
    };
    Ok(call.inputs.iter().map(forecast_stream).collect())
}

/// Line through the current number and the number one window length earlier.
pub(super) fn slope(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let (steps, before) = (call.steps, call.slots_before);
    let model = LineModel::from_arguments(call.arguments, steps);
    let forecast_stream = |input: &Stream| {
        let scaled: Vec<Option<f64>> = numbers(input).map(|number| model.scale(number?)).collect();
        let forecasts = (0..steps.count).map(|at| {
            let age = model.age(steps, at);
            let last = (before + at).checked_sub(age)?;
            let (old, new) = (scaled[last.checked_sub(model.length)?]?, scaled[last]?);
            let ahead = model.ahead + age as f64;
            Some(model.unscale(new + (new - old) * ahead / model.length as f64))
        });
        stream(input.labels.clone(), forecasts.collect::<Vec<_>>())
    };
    Ok(call.inputs.iter().map(forecast_stream).collect())
}

/// Running least squares: means of both coordinates, and sums of products of the distances from
/// them.
#[derive(Clone)]
struct LeastSquares {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    sum_xx: f64,
    sum_xy: f64,
}

impl LeastSquares {
    fn from_point(x: f64, y: f64) -> LeastSquares {
        LeastSquares { count: 1.0, mean_x: x, mean_y: y, sum_xx: 0.0, sum_xy: 0.0 }
    }

    /// As in `running_variance.rs` (Chan, Golub, LeVeque): the distance of the means shifts the
    /// sums, which avoids cancellation.
    fn merge(&mut self, other: &LeastSquares) {
        let count = self.count + other.count;
        let (x, y) = (other.mean_x - self.mean_x, other.mean_y - self.mean_y);
        let weight = self.count * other.count / count;
        self.sum_xx += other.sum_xx + x * x * weight;
        self.sum_xy += other.sum_xy + x * y * weight;
        self.mean_x += x * (other.count / count);
        self.mean_y += y * (other.count / count);
        self.count = count;
    }

    /// Value of the line; `None` for a single point.
    fn value_at(&self, x: f64) -> Option<f64> {
        (self.sum_xx > 0.0).then(|| self.mean_y + self.sum_xy / self.sum_xx * (x - self.mean_x))
    }
}
