//! Points of streams as numbers, and back.

use crate::labels::LabelSet;
use crate::stream::Stream;
use crate::value::StepValue;

/// A number as a point; one that is none, or has no bound, is missing.
pub(super) fn point(number: Option<f64>) -> Option<StepValue> {
    number.filter(|number| number.is_finite()).map(StepValue::Number)
}

/// A number of a stream; `None` where it is missing, or a histogram.
pub(super) fn number(stream: &Stream, at: usize) -> Option<f64> {
    stream.points.get(at)?.as_ref()?.number()
}

/// All numbers of a stream.
pub(super) fn numbers(stream: &Stream) -> impl Iterator<Item = Option<f64>> + '_ {
    stream.points.iter().map(|point| point.as_ref().and_then(StepValue::number))
}

/// A stream of numbers.
pub(super) fn stream(labels: LabelSet, numbers: impl IntoIterator<Item = Option<f64>>) -> Stream {
    Stream::new(labels, numbers.into_iter().map(point).collect())
}

/// Changes each number that is there.
pub(super) fn map(mut streams: Vec<Stream>, f: impl Fn(f64) -> f64) -> Vec<Stream> {
    for stream in &mut streams {
        for held in &mut stream.points {
            let number = held.as_ref().and_then(StepValue::number);
            *held = point(number.map(&f));
        }
    }
    streams
}

/// 1 or 0.
pub(super) fn bool_to_number(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}
