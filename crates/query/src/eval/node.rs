//! Streams of a plan node: dispatches each kind of node to its evaluator.
//!
//! Only this file knows all kinds. Evaluators call [`Evaluation::streams`] for their input nodes.

use std::sync::Arc;

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::{
    Grouping, PlanNode, PlanOp, RangeExtension, RangeFunctionCall, RangeSelection, SharedNode,
};
use crate::promql::{self, BinaryOp, PromqlKernel};
use crate::stream::{SeriesPoints, StepGrid, Stream};
use crate::value::StepValue;

use super::call::FunctionCall;
use super::range_functions::{BatchConsumer, GrowthMapper, RangeKernel, SeriesBatch};
use super::{binary, range_functions};

/// Series of a range function that are evaluated before they are aggregated.
const SERIES_BATCH: usize = 64;
/// Samples of streams that are kept for other uses, 32 MiB: a query that computes twice what needs
/// more memory has a smaller peak.
const SHARED_SAMPLES_MAX: u64 = 2 << 20;

impl Evaluation<'_> {
    /// Streams of a node. Their memory is charged; a caller that drops them must call
    /// [`Evaluation::release`].
    pub(crate) fn streams(&mut self, node: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        self.budget.check_deadline()?;
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        match &node.op {
            PlanOp::Number(number) | PlanOp::Duration(number) => self.constant(*number, steps),
            PlanOp::Text(_) => panic!("BUG: a string has no streams"),
            PlanOp::Latest(fetch) => self.latest(fetch, steps),
            PlanOp::RangeSelection(_) => panic!("BUG: raw samples have no steps"),
            PlanOp::Exact(exact) => self.exact(exact, steps),
            PlanOp::Once(inner) => self.evaluate_once(inner, steps),
            PlanOp::Shared(shared) => self.shared_streams(shared, steps),
            PlanOp::Negate(inner) => self.negate(inner, steps),
            PlanOp::RangeFunction(over) => {
                let kernel = range_kernel(over, node.span)?;
                self.range_function(over, kernel, node.span, steps, None)
            }
            PlanOp::Call { function, args } => match promql::kernel(function) {
                PromqlKernel::Instant(kernel) => {
                    kernel(self, &FunctionCall { args, span: node.span, steps })
                }
                _ => panic!("BUG: {} is not an instant function", function.name),
            },
            PlanOp::Aggregate(aggregate) => self.aggregate(aggregate, node.span, steps),
            PlanOp::Binary(binary) => self.binary(binary, node.span, steps),
            PlanOp::Stage(stage) => stage.streams(self, steps),
        }
    }

    /// The same for an aggregation: streams of a range function are passed in batches of series, so
    /// that not all of them are in memory at one time. With a grouping, sums may take their place.
    pub(crate) fn streams_in_batches(
        &mut self,
        node: &PlanNode,
        steps: StepGrid,
        grouping: Option<&Grouping>,
        take: &mut BatchConsumer<'_>,
    ) -> Result<()> {
        match &node.op {
            PlanOp::RangeFunction(over) if steps.count > 0 => {
                let kernel = range_kernel(over, node.span)?;
                let batch = (node.span, SERIES_BATCH, grouping);
                self.range_function_in_batches(over, kernel, batch, steps, None, take)
            }
            _ => {
                let streams = self.streams(node, steps)?;
                take(self, SeriesBatch::Streams(streams))
            }
        }
    }

    /// Streams, mapped if the mapper was used.
    pub(crate) fn mapped_streams(
        &mut self,
        node: &PlanNode,
        steps: StepGrid,
        mapper: &mut GrowthMapper<'_>,
    ) -> Result<Vec<Stream>> {
        match &node.op {
            PlanOp::RangeFunction(over) if steps.count > 0 => {
                let kernel = range_kernel(over, node.span)?;
                self.range_function(over, kernel, node.span, steps, Some(mapper))
            }
            _ => self.streams(node, steps),
        }
    }

    /// Numbers of a scalar node: one for each step.
    pub(crate) fn scalar(&mut self, node: &PlanNode, steps: StepGrid) -> Result<Vec<f64>> {
        if let PlanOp::Number(number) | PlanOp::Duration(number) = node.op {
            return Ok(vec![number; steps.count]);
        }
        if steps.count == 0 {
            return Ok(Vec::new());
        }
        let streams = self.streams(node, steps)?;
        self.release(&streams);
        let stream = streams.first().expect("BUG: a scalar has one stream");
        let number = |point: &Option<StepValue>| point.as_ref().and_then(StepValue::number);
        Ok(stream.points.iter().map(|point| number(point).unwrap_or(f64::NAN)).collect())
    }

    /// The same; a duration, or a multiple of one (`1ms * 0.3`), is converted from seconds to the
    /// unit of the values `of`.
    pub(crate) fn scalar_in_unit(
        &mut self,
        node: &PlanNode,
        of: &PlanNode,
        steps: StepGrid,
    ) -> Result<Vec<f64>> {
        let Some((seconds, multiple)) = multiple_of_duration(node) else {
            return self.scalar(node, steps);
        };
        let number = duration_in_unit(seconds, self.units_per_second(of)?) * multiple;
        Ok(vec![number; steps.count])
    }

    /// Raw samples of an instant query with a range vector as its result.
    pub(crate) fn ranged(
        &mut self,
        ranged: &RangeSelection,
        time: i64,
    ) -> Result<Vec<SeriesPoints>> {
        let end = ranged.shift().apply(time);
        let start = end.saturating_sub(ranged.range);
        self.map_samples(ranged, StepGrid::at(time), &|evaluation, mut samples| {
            match ranged.extension() {
                RangeExtension::None => {
                    samples.points.retain(|sample| start < sample.time && sample.time <= end);
                }
                extension => {
                    samples = range_functions::interpolate_at_ends(
                        samples,
                        (start, end),
                        extension,
                        ranged.span,
                    )?;
                }
            }
            if samples.points.is_empty() {
                return Ok(None);
            }
            // They are the result: charged from here on.
            let count = samples.points.iter().map(|sample| sample.value.samples()).sum();
            evaluation.budget.charge_samples(count)?;
            Ok(Some(samples))
        })
    }

    pub(super) fn constant(&mut self, number: f64, steps: StepGrid) -> Result<Vec<Stream>> {
        self.budget.charge_samples(steps.count as u64)?;
        Ok(vec![Stream::new(
            LabelSet::default(),
            vec![Some(StepValue::Number(number)); steps.count],
        )])
    }

    fn evaluate_once(&mut self, inner: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        let is_range = std::mem::take(&mut self.is_range_of_one_step);
        let streams = self.streams(inner, StepGrid::at(steps.start));
        self.is_range_of_one_step = is_range;
        let mut streams = streams?;
        for stream in &mut streams {
            self.budget.charge_samples(stream.samples().saturating_mul(steps.count as u64 - 1))?;
            let point = stream.points[0].take();
            stream.points = vec![point; steps.count];
        }
        Ok(streams)
    }

    /// Streams of a node that is used more than once. They are kept unless they are large, or have
    /// warnings, which name the place of each use.
    fn shared_streams(&mut self, shared: &SharedNode, steps: StepGrid) -> Result<Vec<Stream>> {
        let samples = |streams: &[Stream]| streams.iter().map(Stream::samples).sum::<u64>();
        let key = (shared.key, steps);
        if let Some(known) = self.shared.get(&key) {
            let streams = Vec::clone(known);
            self.budget.charge_samples(samples(&streams))?;
            return Ok(streams);
        }
        let warnings = self.warnings.clone();
        let streams = self.streams(&shared.node, steps)?;
        let kept = samples(&streams);
        if kept <= SHARED_SAMPLES_MAX && self.warnings == warnings {
            self.budget.charge_samples(kept)?;
            self.shared.insert(key, Arc::new(streams.clone()));
        }
        Ok(streams)
    }

    /// Drops the streams of shared nodes.
    pub(crate) fn release_shared(&mut self) {
        for streams in std::mem::take(&mut self.shared).into_values() {
            self.release(&streams);
        }
    }

    fn negate(&mut self, inner: &PlanNode, steps: StepGrid) -> Result<Vec<Stream>> {
        let mut streams = self.streams(inner, steps)?;
        for stream in &mut streams {
            let before = stream.samples();
            for value in stream.points.iter_mut().flatten() {
                *value = binary::negate_value(value);
            }
            self.budget.charge_samples(stream.samples())?;
            self.budget.release_samples(before);
            self.drop_name(stream);
        }
        self.merge_equal_labels(streams, SourceSpan::default())
    }
}

/// Duration in seconds and its multiple.
pub(crate) fn multiple_of_duration(node: &PlanNode) -> Option<(f64, f64)> {
    match &node.op {
        PlanOp::Duration(seconds) => Some((*seconds, 1.0)),
        PlanOp::Once(inner) => multiple_of_duration(inner),
        PlanOp::Binary(binary) if binary.operator == BinaryOp::Multiply => {
            match (&binary.left.1.op, &binary.right.1.op) {
                (PlanOp::Duration(seconds), PlanOp::Number(multiple))
                | (PlanOp::Number(multiple), PlanOp::Duration(seconds)) => {
                    Some((*seconds, *multiple))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Kernel of a range function, if it accepts the extension of the call's range.
fn range_kernel(call: &RangeFunctionCall, span: SourceSpan) -> Result<&'static RangeKernel> {
    let name = call.function.name;
    let PromqlKernel::Range(kernel) = promql::kernel(call.function) else {
        panic!("BUG: {name} is not a range function");
    };
    let extension = call.input.extension();
    if kernel.takes(extension) {
        return Ok(kernel);
    }
    let word = match extension {
        RangeExtension::Anchored => "anchored",
        _ => "smoothed",
    };
    let names = promql::names_with_extension(extension).join(", ");
    let message = format!("{word} modifier can only be used with: {names} - not with {name}");
    Err(Error::Execution { span, message })
}

/// A duration in another unit, rounded once: 1.1 s are 1100 ms, the bound of a bucket, and not
/// 1100.0000000000002 ms, which is inside the next one.
fn duration_in_unit(seconds: f64, units_per_second: f64) -> f64 {
    /// Doubles below it have all whole nanoseconds.
    const EXACT_NS: f64 = 9e15;
    let ns = (seconds * 1e9).round();
    match ns.abs() < EXACT_NS {
        true => ns / (1e9 / units_per_second),
        false => seconds * units_per_second,
    }
}

#[cfg(test)]
mod tests {
    use super::duration_in_unit;

    /// `histogram_count_above(1100ms, x)` with a bound at 1100 ms was a range.
    #[test]
    fn durations_are_the_doubles_of_bounds_in_their_unit() {
        for (seconds, units_per_second, expected) in [
            (1.1, 1e3, 1100.0),
            (0.7, 1.0, 0.7),
            (0.0035, 1e6, 3500.0),
            (0.25, 1e9, 2.5e8),
            (90.0, 1.0 / 60.0, 1.5),
            (1e9, 1e9, 1e18),
        ] {
            assert_eq!(duration_in_unit(seconds, units_per_second), expected, "{seconds}");
        }
    }
}
