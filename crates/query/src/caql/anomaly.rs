//! `anomaly_detection`: score from 0 to 100 of how certain a change in a stream is.
//!
//! Circonus publishes only the outline of its method: forecasts by exponential smoothing on
//! five-minute values, and a CUSUM of the forecast errors. This file implements that outline, with
//! textbook parameters where Circonus states none:
//!
//! 1. The mean of each five-minute block (of a slot, if slots are longer) is compared with its
//!    forecast once the block is complete: single exponential smoothing for `constant`, Holt's
//!    method for `trending`, Holt–Winters without a trend for `periodic` (a season is
//!    `model_period`, a day or a week).
//! 2. The error is divided by its usual size, the root of an exponentially smoothed mean of
//!    squares. For both, errors above three times the usual size count as three times, so that an
//!    anomaly is not learnt at once (S. Gelper, R. Fried and C. Croux, Robust forecasting with
//!    exponential and Holt-Winters smoothing, 2010).
//! 3. Positive and negative errors are summed separately, less an allowance k per block, and never
//!    below 0 (E. S. Page, Continuous inspection schemes, Biometrika, 1954). The score is the
//!    larger sum as a percentage of a threshold h, at which the sum is clamped. k = ½ and h = 5 are
//!    the usual parameters (D. C. Montgomery, Introduction to statistical quality control); they
//!    apply at sensitivity 50. Sensitivity s multiplies h by (100 − s)/s and k by (100 − s)/50, so
//!    0 never reports an anomaly and 100 reports the smallest deviation.
//!
//! The model learns from `prefill_period` before the range of the query: by default a day, or three
//! seasons.

use super::arguments::Arguments;
use super::forecasting::{Smoothing, slots_per_season};
use super::function_table::{FunctionTable, PERCENT};
use super::kernel::{Kernel, KernelInput, SlotMargin};
use super::points::{numbers, stream};
use super::signature::ArgumentType::{DurationOr, DurationOrMinutes, OneOf};
use super::signature::DefaultValue;
use super::signature::InputKind::Numbers;
use crate::error::Result;
use crate::stream::{StepGrid, Stream};

const MINUTE_NS: i64 = 60_000_000_000;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;
/// Length of a block whose mean is compared with a forecast.
const BLOCK_NS: i64 = 5 * MINUTE_NS;
const ALPHA: f64 = 0.1;
const BETA: f64 = 0.02;
const GAMMA: f64 = 0.3;
/// Weight of a new error in the smoothed usual size.
const WEIGHT: f64 = 0.05;
/// Errors learnt before the first one is scored.
const LEARNED_MIN: u32 = 12;
const ERROR_MAX: f64 = 3.0;
const ALLOWANCE: f64 = 0.5;
const THRESHOLD: f64 = 5.0;

/// Adds this function.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_map("anomaly_detection", Numbers, Kernel { margin, run: detect_anomalies })
        .optional("sensitivity", PERCENT, DefaultValue::Number(50.0))
        .option("model", OneOf(&MODELS), DefaultValue::Text("constant"))
        .option("model_period", DurationOrMinutes, DefaultValue::Duration(DAY_NS))
        .option("prefill_period", DurationOr("auto"), DefaultValue::Text("auto"));
}

const MODELS: [&str; 5] = ["constant", "trending", "periodic", "periodic daily", "periodic weekly"];

/// Season length in nanoseconds, if the model has one.
fn period(arguments: &Arguments) -> Option<i64> {
    match arguments.text("model") {
        Some("periodic") => Some(arguments.duration("model_period").unwrap_or(DAY_NS)),
        Some("periodic daily") => Some(DAY_NS),
        Some("periodic weekly") => Some(7 * DAY_NS),
        _ => None,
    }
}

fn margin(arguments: &Arguments, steps: StepGrid) -> SlotMargin {
    let window_ns =
        period(arguments).map_or(DAY_NS, |period| period.saturating_mul(3).max(3 * DAY_NS));
    let learnt = arguments.duration("prefill_period").unwrap_or(window_ns);
    SlotMargin::before(usize::try_from(learnt / steps.step).unwrap_or(0))
}

fn detect_anomalies(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { arguments, steps, slots_before: before, .. } = call;
    let sensitivity = arguments.number("sensitivity").unwrap_or(50.0);
    let block = BLOCK_NS.max(steps.step);
    let start = steps.start.saturating_sub(steps.step.saturating_mul(before as i64));
    let of = |input: &Stream| {
        let mut detector = AnomalyDetector::new(arguments, block, sensitivity);
        let (mut sum, mut count) = (0.0, 0.0);
        let scores = numbers(input).enumerate().map(|(at, number)| {
            if let Some(number) = number.filter(|number| number.is_finite()) {
                (sum, count) = (sum + number, count + 1.0);
            }
            let end = start.saturating_add(steps.step.saturating_mul(at as i64 + 1));
            // A block ends with the slot that contains the block's end.
            if end.div_euclid(block) != end.saturating_sub(steps.step).div_euclid(block) {
                detector.push((count > 0.0).then(|| sum / count));
                (sum, count) = (0.0, 0.0);
            }
            Some(detector.score())
        });
        stream(input.labels.clone(), scores.skip(before).collect::<Vec<_>>())
    };
    Ok(call.inputs.iter().map(of).collect())
}

struct AnomalyDetector {
    smoothing: Smoothing,
    /// Smoothed mean square of the errors.
    square: f64,
    learned: u32,
    above: f64,
    below: f64,
    allowance: f64,
    threshold: f64,
}

impl AnomalyDetector {
    fn new(arguments: &Arguments, block: i64, sensitivity: f64) -> AnomalyDetector {
        let smoothing = match (arguments.text("model"), period(arguments)) {
            (Some("trending"), _) => Smoothing::new(ALPHA, BETA),
            (_, Some(period)) => {
                let season = slots_per_season(period, StepGrid { start: 0, step: block, count: 1 });
                Smoothing::new(ALPHA, 0.0).with_season(GAMMA, season)
            }
            _ => Smoothing::new(ALPHA, 0.0),
        };
        AnomalyDetector {
            smoothing,
            square: 0.0,
            learned: 0,
            above: 0.0,
            below: 0.0,
            allowance: ALLOWANCE * (100.0 - sensitivity) / 50.0,
            threshold: THRESHOLD * (100.0 - sensitivity) / sensitivity,
        }
    }

    /// Adds the mean of the next block, if it has one.
    fn push(&mut self, number: Option<f64>) {
        let (Some(number), Some(expected)) = (number, self.smoothing.forecast(1.0)) else {
            return self.smoothing.push(number);
        };
        let error = number - expected;
        // A constant stream has no usual error size, so any other number counts as a large error.
        let least = f64::EPSILON * 16.0 * expected.abs().max(f64::MIN_POSITIVE);
        let usual = self.square.sqrt().max(least);
        let is_learnt = self.learned >= LEARNED_MIN;
        let bound = if is_learnt { ERROR_MAX * usual } else { f64::INFINITY };
        let bounded = error.clamp(-bound, bound);
        if is_learnt {
            // The sum is clamped at the threshold, so that the score falls soon after an anomaly
            // ends.
            let next = |held: f64, error: f64| {
                (held + error / usual - self.allowance).clamp(0.0, self.threshold.max(1.0))
            };
            (self.above, self.below) = (next(self.above, error), next(self.below, -error));
        }
        // The first errors have equal weights.
        let weight = WEIGHT.max(1.0 / f64::from(self.learned + 1));
        self.square += weight * (bounded * bounded - self.square);
        self.learned = self.learned.saturating_add(1);
        self.smoothing.push(Some(expected + bounded));
    }

    fn score(&self) -> f64 {
        let most = self.above.max(self.below);
        match self.threshold {
            threshold if threshold.is_infinite() => 0.0,
            0.0 if most > 0.0 => 100.0,
            0.0 => 0.0,
            threshold => (100.0 * most / threshold).min(100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_kernel::{MINUTE_NS, T0, run_kernel, view};
    use crate::stream::StepGrid;
    use crate::value::StepValue;

    /// Scores of a stream in the range, by minute from its start.
    fn scores(call: &str, of: impl Fn(i64) -> f64, steps: StepGrid) -> Vec<f64> {
        let made = |time: i64| Some(StepValue::Number(of((time - T0) / MINUTE_NS)));
        let streams = run_kernel(call, &[&made], steps).unwrap();
        streams[0].points.iter().map(|point| point.as_ref().unwrap().number().unwrap()).collect()
    }

    /// Deterministic noise from −1 to 1: a multiplicative hash of the minute.
    fn noise(minute: i64) -> f64 {
        let hash = (minute as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        hash as f64 / (1u64 << 23) as f64 - 1.0
    }

    #[test]
    fn constant_stream_has_no_anomaly() {
        let most = |call: &str, of: fn(i64) -> f64| {
            scores(call, of, view(120)).into_iter().fold(0.0, f64::max)
        };
        assert!(most("anomaly_detection()", |_| 5.0) == 0.0);
        assert!(most("anomaly_detection()", |minute| 100.0 + noise(minute)) < 100.0);
        let rising = |minute: i64| minute as f64 + noise(minute);
        assert!(most("anomaly_detection(model=\"trending\")", rising) < 100.0);
        let daily = |minute: i64| f64::from(minute.rem_euclid(1440) >= 60) * 50.0 + noise(minute);
        assert!(most("anomaly_detection(model=\"periodic daily\")", daily) < 100.0);
        assert!(most("anomaly_detection()", daily) == 100.0);
    }

    #[test]
    fn jump_is_detected_after_its_block() {
        let jump = |minute: i64| 100.0 + noise(minute) + if minute >= 30 { 20.0 } else { 0.0 };
        let found = scores("anomaly_detection()", jump, view(60));
        assert!(found[..34].iter().all(|score| *score < 100.0), "{found:?}");
        assert_eq!(found[34], 100.0);
        assert!(scores("anomaly_detection(0)", jump, view(60)).iter().all(|score| *score == 0.0));
    }

    #[test]
    fn the_slightest_deviation() {
        let jump = |minute: i64| if minute >= 30 { 5.001 } else { 5.0 };
        let found = scores("anomaly_detection(100)", jump, view(60));
        assert!(found[..34].iter().all(|score| *score == 0.0), "{found:?}");
        assert_eq!(found[34], 100.0);
        let dropped = scores("anomaly_detection(50)", |minute| -jump(minute), view(60));
        assert_eq!(dropped[34], 100.0);
    }
}
