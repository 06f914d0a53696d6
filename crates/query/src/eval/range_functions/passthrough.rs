//! Range functions that pass samples through unchanged.

use crate::stream::{SeriesPoint, seconds};
use crate::value::StepValue;

pub(super) fn count(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(readings.len() as f64)
}

pub(super) fn present(_: &[SeriesPoint]) -> StepValue {
    StepValue::Number(1.0)
}

pub(super) fn first(readings: &[SeriesPoint]) -> StepValue {
    readings[0].value.clone()
}

pub(super) fn last(readings: &[SeriesPoint]) -> StepValue {
    readings[readings.len() - 1].value.clone()
}

pub(super) fn time_of_first(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(readings[0].time))
}

pub(super) fn time_of_last(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(readings[readings.len() - 1].time))
}
