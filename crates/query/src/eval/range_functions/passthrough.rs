//! Range functions that pass samples through unchanged.

use crate::stream::{SeriesPoint, seconds};
use crate::value::StepValue;

pub(crate) fn count(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(readings.len() as f64)
}

pub(crate) fn present(_: &[SeriesPoint]) -> StepValue {
    StepValue::Number(1.0)
}

pub(crate) fn first(readings: &[SeriesPoint]) -> StepValue {
    readings[0].value.clone()
}

pub(crate) fn last(readings: &[SeriesPoint]) -> StepValue {
    readings[readings.len() - 1].value.clone()
}

pub(crate) fn time_of_first(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(readings[0].time))
}

pub(crate) fn time_of_last(readings: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(readings[readings.len() - 1].time))
}
