//! What takes readings whole, of whatever kind they are: none is made into something to reckon with.

use crate::stream::{Reading, seconds};
use crate::value::Value;

pub(super) fn count(readings: &[Reading]) -> Value {
    Value::Number(readings.len() as f64)
}

pub(super) fn present(_: &[Reading]) -> Value {
    Value::Number(1.0)
}

pub(super) fn first(readings: &[Reading]) -> Value {
    readings[0].value.clone()
}

pub(super) fn last(readings: &[Reading]) -> Value {
    readings[readings.len() - 1].value.clone()
}

pub(super) fn time_of_first(readings: &[Reading]) -> Value {
    Value::Number(seconds(readings[0].time))
}

pub(super) fn time_of_last(readings: &[Reading]) -> Value {
    Value::Number(seconds(readings[readings.len() - 1].time))
}
