//! Conversion between points of streams and numbers.

use crate::labels::LabelSet;
use crate::stream::Stream;
use crate::value::StepValue;

/// Converts a number to a point; NaN and infinities are missing.
pub(super) fn point(number: Option<f64>) -> Option<StepValue> {
    number.filter(|number| number.is_finite()).map(StepValue::Number)
}

/// Number at a slot; `None` if it is missing or a histogram.
pub(super) fn number(stream: &Stream, at: usize) -> Option<f64> {
    stream.points.get(at)?.as_ref()?.number()
}

/// Numbers of all slots.
pub(super) fn numbers(stream: &Stream) -> impl Iterator<Item = Option<f64>> + '_ {
    stream.points.iter().map(|point| point.as_ref().and_then(StepValue::number))
}

/// Stream of numbers.
pub(super) fn stream(labels: LabelSet, numbers: impl IntoIterator<Item = Option<f64>>) -> Stream {
    Stream::new(labels, numbers.into_iter().map(point).collect())
}

/// Maps each present number.
pub(super) fn map(mut streams: Vec<Stream>, f: impl Fn(f64) -> f64) -> Vec<Stream> {
    for stream in &mut streams {
        for slot in &mut stream.points {
            let number = slot.as_ref().and_then(StepValue::number);
            *slot = point(number.map(&f));
        }
    }
    streams
}

/// 1 for true, 0 for false.
pub(super) fn bool_to_number(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}
