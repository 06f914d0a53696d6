//! Resampling: functions evaluated at a finer period than the slots.
//!
//! Sources are then read in slots of that period, and one value is made of those of each slot.

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

/// The period that a call looks at, where slots are a whole number of them.
pub(super) fn period(call: &CallStage, steps: StepGrid) -> Option<i64> {
    let has_period = call.function.traits.resample != ResampleRule::Not;
    let period = call.arguments.duration("period").filter(|period| *period > 0)?;
    (has_period && period < steps.step && steps.step % period == 0).then_some(period)
}

pub(super) fn streams(
    call: &CallStage,
    stage: &PlanStage,
    evaluation: &mut Evaluation<'_>,
    place: SourceSpan,
    period: i64,
    steps: StepGrid,
) -> Result<Vec<Stream>> {
    let each = (steps.step / period) as usize;
    let fine =
        StepGrid { start: steps.start, step: period, count: steps.count.saturating_mul(each) };
    evaluation.check_fits(1, fine)?;
    let streams = stage.call(call, evaluation, place, fine)?;
    let held: u64 = streams.iter().map(Stream::samples).sum();
    let rule = call.function.traits.resample;
    let is_aligned_to_start = call.arguments.text("align") == Some("start");
    let folded = |stream: Stream| {
        let slot =
            |at: usize| fold_slot(rule, is_aligned_to_start, &stream, at * each..(at + 1) * each);
        let points: Result<Vec<_>, _> = (0..steps.count).map(slot).collect();
        let points = points.map_err(|error| Error::Execution {
            span: place,
            message: format!("{error}: ask for shorter periods or fewer series"),
        })?;
        Ok(Stream { points, ..stream })
    };
    let streams = streams.into_iter().map(folded).collect::<Result<Vec<Stream>>>()?;
    evaluation.charge_streams(&streams)?;
    evaluation.budget.release_samples(held);
    Ok(streams)
}

/// One value of those of a slot.
fn fold_slot(
    rule: ResampleRule,
    is_aligned_to_start: bool,
    stream: &Stream,
    slots: std::ops::Range<usize>,
) -> Result<Option<StepValue>, hist::MergeError> {
    let points = &stream.points[slots.clone()];
    Ok(match rule {
        // What a slot's end sees.
        ResampleRule::Rolling if !is_aligned_to_start => points.last().cloned().flatten(),
        ResampleRule::Not | ResampleRule::First | ResampleRule::Rolling => {
            points.first().cloned().flatten()
        }
        ResampleRule::Merged => {
            let mut sum = Mixture::default();
            for value in points.iter().flatten() {
                if let StepValue::Distribution(mixture) = value {
                    mixture.parts().iter().try_for_each(|part| sum.add(part))?;
                }
            }
            Some(StepValue::Distribution(Arc::new(sum)))
        }
        ResampleRule::Numbers(way) => {
            let row: Vec<Option<f64>> = slots.map(|at| number(stream, at)).collect();
            let is_empty = row.iter().all(Option::is_none);
            point(reduce(way, &row).filter(|_| !is_empty))
        }
    })
}
