//! Graphite's Holt-Winters functions: smoothed level, slope and daily season.
//!
//! Factors and season are from Graphite's documentation: 0.1 for level and season, 0.0035 for the
//! slope, bands of three deviations, a week of learning before the range.

use super::kernel::{KernelInput, LEGEND};
use super::names::legend;
use super::points::{numbers, point};
use crate::error::Result;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

const LEVEL: f64 = 0.1;
const SLOPE: f64 = 0.0035;
const SEASON: f64 = 0.1;
const DEVIATIONS: f64 = 3.0;

fn season(steps: StepGrid) -> usize {
    usize::try_from(store::DAY / steps.step).unwrap_or(1).max(1)
}

/// Slots before the range that the model learns from.
pub(super) fn lookback_slots(steps: StepGrid) -> usize {
    season(steps).saturating_mul(7)
}

pub(super) fn forecast_seasons(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { name, inputs, steps, slots_before: before, .. } = call;
    let mut outputs = Vec::new();
    for stream in inputs {
        let foreseen: Vec<(f64, f64)> = forecast_stream(&stream, season(steps)).split_off(before);
        let later_numbers = numbers(&stream).skip(before);
        let mut add = |word: &str, points: Vec<Option<StepValue>>| {
            let label = format!("{word} of {}", legend(&stream.labels));
            outputs.push(Stream::new(stream.labels.with(LEGEND, &label), points));
        };
        let band = |sign: f64| {
            move |(forecast, deviation): &(f64, f64)| forecast + sign * DEVIATIONS * deviation
        };
        let (lower, upper) = (band(-1.0), band(1.0));
        match name {
            "graphite:holtwintersforecast" => {
                add("forecast", foreseen.iter().map(|held| point(Some(held.0))).collect());
            }
            "graphite:holtwintersconfidencebands" => {
                add("lower band", foreseen.iter().map(|held| point(Some(lower(held)))).collect());
                add("upper band", foreseen.iter().map(|held| point(Some(upper(held)))).collect());
            }
            _ => {
                let beyond = |(number, held): (Option<f64>, &(f64, f64))| match number {
                    Some(number) if number < lower(held) => number - lower(held),
                    Some(number) if number > upper(held) => number - upper(held),
                    _ => 0.0,
                };
                let beyond = later_numbers.zip(&foreseen).map(|pair| point(Some(beyond(pair))));
                add("aberration", beyond.collect());
            }
        }
    }
    Ok(outputs)
}

/// Forecast of each slot and its usual error.
fn forecast_stream(stream: &Stream, season: usize) -> Vec<(f64, f64)> {
    let mut seasonal = vec![0.0; season];
    let mut missed = vec![0.0; season];
    let mut last_number: Option<(f64, f64)> = None;
    let mut foreseen = Vec::with_capacity(stream.points.len());
    for (at, number) in numbers(stream).enumerate() {
        let turn = at % season;
        let Some((level, slope)) = last_number else {
            last_number = number.map(|number| (number, 0.0));
            foreseen.push((number.unwrap_or(f64::NAN), 0.0));
            continue;
        };
        let forecast = level + slope + seasonal[turn];
        foreseen.push((forecast, missed[turn]));
        let Some(number) = number else { continue };
        let next = LEVEL * (number - seasonal[turn]) + (1.0 - LEVEL) * (level + slope);
        last_number = Some((next, SLOPE * (next - level) + (1.0 - SLOPE) * slope));
        seasonal[turn] = SEASON * (number - next) + (1.0 - SEASON) * seasonal[turn];
        missed[turn] = SEASON * (number - forecast).abs() + (1.0 - SEASON) * missed[turn];
    }
    foreseen
}
