//! Exponential smoothing: single, double with a trend (C. C. Holt, 1957), triple with a season (P.
//! R. Winters, 1960).
//!
//! The level starts at the first number, the trend at 0. With a season, both start from the first
//! whole season: the level is its mean, the seasonal offsets are the differences from that mean. A
//! missing number is replaced by its forecast.

use super::super::arguments::Arguments;
use super::super::kernel::{KernelInput, SlotMargin};
use super::super::points::{numbers, stream};
use super::slots;
use crate::error::Result;
use crate::stream::{StepGrid, Stream};

/// Maximum total weight of numbers older than the warm-up.
const TAIL_WEIGHT_MAX: f64 = 1e-4;
/// Maximum warm-up in slots (steps): a week of minutes.
const WARM_UP_MAX: f64 = 10_080.0;
/// Seasons read as warm-up.
const SEASONS: usize = 3;

/// Slots of the warm-up.
pub(super) fn margin(arguments: &Arguments, steps: StepGrid) -> SlotMargin {
    if let Some(season) = season_slots(arguments, steps) {
        return SlotMargin::before(season.saturating_mul(SEASONS));
    }
    let parameters = ["alpha", "beta"].map(|name| arguments.number(name));
    let slowest =
        parameters.into_iter().flatten().filter(|weight| *weight > 0.0).fold(1.0, f64::min);
    let before = TAIL_WEIGHT_MAX.ln() / (-slowest).ln_1p();
    let slots = if before.is_finite() { before.clamp(0.0, WARM_UP_MAX) as usize } else { 0 };
    SlotMargin::before(slots)
}

fn season_slots(arguments: &Arguments, steps: StepGrid) -> Option<usize> {
    arguments.number("gamma")?;
    Some(slots_per_season(arguments.duration("period")?, steps))
}

/// Slots of a season; at least 1.
pub(in super::super) fn slots_per_season(period: i64, steps: StepGrid) -> usize {
    ((period as f64 / steps.step as f64).round() as usize).max(1)
}

/// Forecasts of all inputs.
pub(super) fn smooth(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let (arguments, steps) = (call.arguments, call.steps);
    let ahead = slots(arguments, "forecast_duration", steps).unwrap_or(0.0);
    let fills_gaps_only = arguments.number("fill") == Some(2.0);
    let forecast_stream = |input: &Stream| {
        let weight = |name: &str| arguments.number(name).unwrap_or(0.0);
        let mut smoothing = Smoothing::new(weight("alpha"), weight("beta"));
        if let Some(season) = season_slots(arguments, steps) {
            smoothing = smoothing.with_season(weight("gamma"), season);
        }
        let forecasts = numbers(input).map(|number| {
            let number = number.filter(|number| number.is_finite());
            smoothing.push(number);
            match number {
                Some(number) if fills_gaps_only => Some(number),
                _ => smoothing.forecast(ahead),
            }
        });
        stream(input.labels.clone(), forecasts.skip(call.slots_before).collect::<Vec<_>>())
    };
    Ok(call.inputs.iter().map(forecast_stream).collect())
}

/// Smoothing state (level, trend, season).
pub(in super::super) struct Smoothing {
    alpha: f64,
    beta: f64,
    /// Level and trend, set after the first number or the first season.
    level_and_trend: Option<(f64, f64)>,
    season: Option<Season>,
}

struct Season {
    gamma: f64,
    length: usize,
    /// Offset of each slot of the season from the level; during the first season, its numbers.
    above: Vec<Option<f64>>,
    /// Index in the season of the next number.
    at: usize,
}

impl Smoothing {
    /// Smoothing of level and trend.
    pub(in super::super) fn new(alpha: f64, beta: f64) -> Smoothing {
        Smoothing { alpha, beta, level_and_trend: None, season: None }
    }

    /// Adds a season of `length` slots.
    pub(in super::super) fn with_season(self, gamma: f64, length: usize) -> Smoothing {
        let season = Season { gamma, length, above: Vec::new(), at: 0 };
        Smoothing { season: Some(season), ..self }
    }

    /// Adds the number of the next slot, if it has one.
    pub(in super::super) fn push(&mut self, number: Option<f64>) {
        let Some((level, trend)) = self.level_and_trend else { return self.begin(number) };
        let above = self.season.as_ref().map_or(0.0, |season| season.above(0));
        let expected = level + trend;
        let next = match number {
            None => expected,
            Some(number) => self.alpha * (number - above) + (1.0 - self.alpha) * expected,
        };
        let trend = match number {
            None => trend,
            Some(_) => self.beta * (next - level) + (1.0 - self.beta) * trend,
        };
        self.level_and_trend = Some((next, trend));
        if let Some(season) = &mut self.season {
            if let (Some(number), Some(offset)) = (number, season.above.get_mut(season.at)) {
                *offset = Some(season.gamma * (number - next) + (1.0 - season.gamma) * above);
            }
            season.at = (season.at + 1) % season.length;
        }
    }

    fn begin(&mut self, number: Option<f64>) {
        let Some(season) = &mut self.season else {
            self.level_and_trend = number.map(|number| (number, 0.0));
            return;
        };
        // The first season starts with the first number.
        if number.is_none() && season.above.is_empty() {
            return;
        }
        season.above.push(number);
        if season.above.len() == season.length {
            let known = || season.above.iter().flatten();
            let level = known().sum::<f64>() / known().count() as f64;
            season.above.iter_mut().flatten().for_each(|number| *number -= level);
            self.level_and_trend = Some((level, 0.0));
        }
    }

    /// Forecast `ahead` slots after the last one that was added.
    pub(in super::super) fn forecast(&self, ahead: f64) -> Option<f64> {
        let (level, trend) = self.level_and_trend?;
        // The next slot of the season is the one after the last that was added.
        let above = self.season.as_ref().map_or(0.0, |season| {
            season.above(ahead.round().max(0.0) as usize % season.length + season.length - 1)
        });
        Some(level + trend * ahead + above)
    }
}

impl Season {
    /// Seasonal offset of the slot `ahead` slots after the next one.
    fn above(&self, ahead: usize) -> f64 {
        self.above.get((self.at + ahead) % self.length).copied().flatten().unwrap_or(0.0)
    }
}
