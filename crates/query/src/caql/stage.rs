//! Evaluation of the stages of a CAQL plan.

use std::sync::Arc;

use super::function_table::CaqlKernel;
use super::kernel::{KernelInput, LEGEND, SlotMargin};
use super::names::{legend, tags};
use super::signature::{InputArity, OutputShape, Signature};
use super::{functions, resample, units, vector};
use crate::error::{Error, Result, SourceSpan};
use crate::estimate::CostEstimate;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::{CallStage, PlanNode, PlanStage, StageKind};
use crate::stream::{StepGrid, Stream};

impl PlanStage {
    pub(crate) fn streams(
        &self,
        evaluation: &mut Evaluation<'_>,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let key = self.shared.map(|shared| (shared, steps));
        if let Some(known) = key.and_then(|key| evaluation.shared.get(&key)) {
            let streams = Vec::clone(known);
            evaluation.charge_streams(&streams)?;
            return Ok(streams);
        }
        let streams = self.work(evaluation, steps)?;
        if let Some(key) = key {
            // Charged until the end of the query: the last use is not known.
            evaluation.charge_streams(&streams)?;
            evaluation.shared.insert(key, Arc::new(streams.clone()));
        }
        Ok(streams)
    }

    /// Adds the cost of reading.
    pub(crate) fn estimate(&self, estimate: &mut CostEstimate<'_>, steps: StepGrid) -> Result<()> {
        match &self.kind {
            StageKind::Null => Ok(()),
            StageKind::Find(find) | StageKind::Merge { find, .. } => find.estimate(estimate, steps),
            StageKind::Delay { delays, inputs } => delays.iter().try_for_each(|delay| {
                let start = steps.start.saturating_sub(*delay);
                estimate.nodes(inputs, StepGrid { start, ..steps })
            }),
            StageKind::Call(call) => estimate.nodes(&call.inputs, steps),
        }
    }

    fn work(&self, evaluation: &mut Evaluation<'_>, steps: StepGrid) -> Result<Vec<Stream>> {
        match &self.kind {
            StageKind::Null => {
                evaluation.check_fits(1, steps)?;
                Ok(vec![Stream::new(LabelSet::default(), vec![None; steps.count])])
            }
            StageKind::Find(find) => find.streams(evaluation, steps),
            StageKind::Merge { find, by } => find.merged(evaluation, by.as_deref(), steps),
            StageKind::Delay { delays, inputs } => delay_streams(evaluation, delays, inputs, steps),
            StageKind::Call(call) => {
                let span = call.span;
                if let Some(period) = resample::period(call, steps) {
                    return resample::streams(call, self, evaluation, span, period, steps);
                }
                self.call(call, evaluation, span, steps)
            }
        }
    }

    /// Evaluates a call; its inputs are read as far around the slots as the function reaches.
    pub(super) fn call(
        &self,
        call: &CallStage,
        evaluation: &mut Evaluation<'_>,
        span: SourceSpan,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let CallStage { function, arguments, .. } = call;
        let CaqlKernel::Kernel(kernel) = functions::kernel(function) else {
            panic!("BUG: {} is not planned as a call", function.name);
        };
        let SlotMargin { before, after } = (kernel.margin)(arguments, steps);
        let back = (before as i64).saturating_mul(steps.step);
        let wide = StepGrid {
            start: steps.start.saturating_sub(back),
            count: steps.count.saturating_add(before).saturating_add(after),
            ..steps
        };
        evaluation.check_fits(1, wide)?;
        let inputs = evaluation.inputs(&call.inputs, wide)?;
        let copies = match function.output_shape {
            OutputShape::EachPerArgument | OutputShape::OnePerArgument => {
                arguments.variadic().len().max(1)
            }
            _ => 1,
        };
        evaluation.check_fits(inputs.len().max(1).saturating_mul(copies), wide)?;
        let are_counts = match function.traits.first_count_input {
            Some(first) => {
                units::are_counts(call.inputs.get(first..).unwrap_or_default(), evaluation)?
            }
            None => false,
        };
        let sample_count: u64 = inputs.iter().map(Stream::samples).sum();
        let mut notes = std::mem::take(&mut evaluation.warnings);
        let mut work = |inputs: Vec<Stream>| {
            let streams = vector::count(&inputs) + usize::from(arguments.number("x").is_some());
            check_count(function, streams, span)?;
            let (context, notes) = (&self.context, &mut notes);
            (kernel.run)(KernelInput {
                name: &function.canonical_name,
                inputs,
                are_counts,
                arguments,
                steps,
                slots_before: before,
                slots_after: after,
                context,
                span,
                warnings: notes,
            })
        };
        let outputs = match vector::is_elementwise(function, &inputs) {
            true => vector::for_each_key(inputs, &mut work),
            false => work(inputs),
        };
        evaluation.warnings = notes;
        let outputs = outputs?;
        debug_assert!(outputs.iter().all(|stream| stream.points.len() == steps.count));
        evaluation.charge_streams(&outputs)?;
        evaluation.budget.release_samples(sample_count);
        Ok(outputs)
    }
}

impl Evaluation<'_> {
    /// Streams of all inputs, in order.
    pub(super) fn inputs(&mut self, nodes: &[PlanNode], steps: StepGrid) -> Result<Vec<Stream>> {
        let mut inputs = Vec::new();
        for node in nodes {
            inputs.extend(self.streams(node, steps)?);
        }
        Ok(inputs)
    }

    /// Charges streams that are kept in memory.
    pub(super) fn charge_streams(&self, streams: &[Stream]) -> Result<()> {
        self.budget.charge_samples(streams.iter().map(Stream::samples).sum())
    }

    /// Rejects streams that exceed the memory limit before they are allocated: slots without values
    /// take memory too.
    pub(super) fn check_fits(&self, streams: usize, steps: StepGrid) -> Result<()> {
        let slots = (streams as u64).saturating_mul(steps.count as u64);
        self.budget.charge_samples(slots)?;
        self.budget.release_samples(slots);
        Ok(())
    }
}

/// Delays each input. For each one, the delays follow in order.
fn delay_streams(
    evaluation: &mut Evaluation<'_>,
    delays: &[i64],
    inputs: &[PlanNode],
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    let mut copies = Vec::with_capacity(delays.len());
    for delay in delays {
        let earlier = StepGrid { start: steps.start.saturating_sub(*delay), ..steps };
        let mut streams = evaluation.inputs(inputs, earlier)?;
        for stream in &mut streams {
            let label = format!("{} {} before", legend(&stream.labels), format_duration(*delay));
            stream.labels = stream.labels.with(LEGEND, label.trim_start());
        }
        copies.push(streams.into_iter());
    }
    let mut all = Vec::new();
    loop {
        let point_count = all.len();
        all.extend(copies.iter_mut().filter_map(Iterator::next));
        if all.len() == point_count {
            return Ok(all);
        }
    }
}

fn format_duration(duration: i64) -> String {
    super::Literal::Duration(duration).to_string()
}

/// Rejects a number of streams that the function does not accept.
fn check_count(function: &Signature, found: usize, span: SourceSpan) -> Result<()> {
    let expected_count = match function.arity {
        InputArity::Any => return Ok(()),
        InputArity::Exactly(count) if count == found => return Ok(()),
        InputArity::AtLeast(count) if count <= found => return Ok(()),
        InputArity::Exactly(1) => "exactly one stream".to_owned(),
        InputArity::Exactly(2) => "exactly two streams".to_owned(),
        InputArity::Exactly(count) => format!("exactly {count} streams"),
        InputArity::AtLeast(count) => format!("at least {count} streams"),
    };
    let name = &function.name;
    let hint = match found > 1 {
        true => "; combine them first, as with stats:sum() or group_by:sum(…)",
        false => "",
    };
    let message = format!("{name} takes {expected_count}, got {found}{hint}");
    Err(Error::Execution { span, message })
}

/// Names streams that have neither legend nor name by the text of their expression.
pub(crate) fn set_names(streams: &mut [Stream], text: &str) {
    const LEGEND_BYTES_MAX: usize = 200;
    let text = text.trim();
    let is_one = streams.len() == 1;
    for (at, stream) in streams.iter_mut().enumerate() {
        let labels = &stream.labels;
        let key = vector::key_of(labels).unwrap_or_default().to_owned();
        let mut labels = labels.with(super::names::VECTOR, "").with(super::names::KEY, "");
        if labels.get(LEGEND).is_empty() {
            if !key.is_empty() {
                labels = labels.with(LEGEND, &key);
            } else if labels.name().is_empty() && tags(&labels).next().is_none() {
                let label = match is_one && text.len() <= LEGEND_BYTES_MAX {
                    true => text.to_owned(),
                    false => format!("output[{}]", at + 1),
                };
                labels = labels.with(LEGEND, &label);
            }
        }
        stream.labels = labels;
    }
}
