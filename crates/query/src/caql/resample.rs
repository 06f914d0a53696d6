//! Resampling: functions evaluated at a finer period than the slots.
//!
//! Sources are read in slots of that period, and the values of each slot are folded into one.

use std::sync::Arc;

use hist::Mixture;

use super::function_table::ResampleRule;
use super::points::{number, point};
use super::stats::reduce;
use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::plan::{CallStage, PlanStage};
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// Period of a call, if a slot is a whole number of periods.
pub(super) fn period(call: &CallStage, steps: StepGrid) -> Option<i64> {
    let has_period = call.function.traits.resample != ResampleRule::NoPeriod;
    let period = call.arguments.duration("period").filter(|period| *period > 0)?;
    (has_period && period < steps.step && steps.step % period == 0).then_some(period)
}

pub(super) fn streams(
    call: &CallStage,
    stage: &PlanStage,
    evaluation: &mut Evaluation<'_>,
    span: SourceSpan,
    period: i64,
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    let each = (steps.step / period) as usize;
    let fine =
        StepGrid { start: steps.start, step: period, count: steps.count.saturating_mul(each) };
    evaluation.check_fits(1, fine)?;
    let streams = stage.call(call, evaluation, span, fine)?;
    let sample_count: u64 = streams.iter().map(Stream::samples).sum();
    let rule = call.function.traits.resample;
    let is_aligned_to_start = call.arguments.text("align") == Some("start");
    let folded = |stream: Stream| {
        let slot =
            |at: usize| fold_slot(rule, is_aligned_to_start, &stream, at * each..(at + 1) * each);
        let points: Result<Vec<_>, _> = (0..steps.count).map(slot).collect();
        let points = points.map_err(|error| Error::Execution {
            span,
            message: format!("{error}; use shorter periods or fewer series"),
        })?;
        Ok(Stream { points, ..stream })
    };
    let streams = streams.into_iter().map(folded).collect::<Result<Vec<Stream>>>()?;
    evaluation.charge_streams(&streams)?;
    evaluation.budget.release_samples(sample_count);
    Ok(streams)
}

/// Folds the values of a slot into one.
fn fold_slot(
    rule: ResampleRule,
    is_aligned_to_start: bool,
    stream: &Stream,
    slots: std::ops::Range<usize>,
) -> Result<Option<StepValue>, hist::MergeError> {
    let points = &stream.points[slots.clone()];
    Ok(match rule {
        // The value at the end of the slot.
        ResampleRule::Rolling if !is_aligned_to_start => points.last().cloned().flatten(),
        ResampleRule::NoPeriod | ResampleRule::First | ResampleRule::Rolling => {
            points.first().cloned().flatten()
        }
        ResampleRule::Merged => {
            let mut sum = Mixture::default();
            for value in points.iter().flatten() {
                if let StepValue::Distribution(mixture) = value {
                    mixture.components().iter().try_for_each(|part| sum.add(part))?;
                }
            }
            Some(StepValue::Distribution(Arc::new(sum)))
        }
        ResampleRule::Numbers(function) => {
            let values: Vec<Option<f64>> = slots.map(|at| number(stream, at)).collect();
            let is_empty = values.iter().all(Option::is_none);
            point(reduce(function, &values).filter(|_| !is_empty))
        }
    })
}
