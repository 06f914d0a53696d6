//! Range functions that pass samples through unchanged.

use crate::stream::{SeriesPoint, seconds};
use crate::value::StepValue;

pub(crate) fn count(samples: &[SeriesPoint]) -> StepValue {
    StepValue::Number(samples.len() as f64)
}

pub(crate) fn present(_: &[SeriesPoint]) -> StepValue {
    StepValue::Number(1.0)
}

pub(crate) fn first(samples: &[SeriesPoint]) -> StepValue {
    samples[0].value.clone()
}

pub(crate) fn last(samples: &[SeriesPoint]) -> StepValue {
    samples[samples.len() - 1].value.clone()
}

pub(crate) fn time_of_first(samples: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(samples[0].time))
}

pub(crate) fn time_of_last(samples: &[SeriesPoint]) -> StepValue {
    StepValue::Number(seconds(samples[samples.len() - 1].time))
}
