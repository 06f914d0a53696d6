//! Resampling: functions evaluated at a finer period than the slots.
//!
//! Sources are then read in slots of that period, and one value is made of those of each slot.

use std::sync::Arc;

use hist::Mixture;

use super::points::{number, point};
use super::stage::{CallStage, PlanStage};
use super::stats::reduce;
use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// The period that a call looks at, where slots are a whole number of them.
pub(super) fn period(call: &CallStage, steps: StepGrid) -> Option<i64> {
    let package = call.function.computes.split(':').next();
    let has_period = matches!(package, Some("window" | "rolling" | "aggregate"));
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
    let fold = SlotFold::from_name(&call.function.computes, call.arguments.text("align"));
    let folded = |stream: Stream| {
        let slot = |at: usize| fold.value(&stream, at * each..(at + 1) * each);
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

/// How values of finer periods are folded into a slot.
enum SlotFold {
    First,
    Last,
    /// The sum of histograms.
    Merged,
    /// Of numbers, one in a way that `stats` knows.
    Numbers(&'static str),
}

impl SlotFold {
    fn from_name(name: &str, align: Option<&str>) -> SlotFold {
        match name.split_once(':') {
            // What a slot's end sees.
            Some(("rolling", _)) if align != Some("start") => SlotFold::Last,
            Some(("aggregate", "histogram")) => SlotFold::Merged,
            Some(("aggregate", "count" | "sum")) => SlotFold::Numbers("sum"),
            Some(("aggregate", "max")) => SlotFold::Numbers("max"),
            Some(("aggregate", "min")) => SlotFold::Numbers("min"),
            Some(("aggregate", _)) => SlotFold::Numbers("mean"),
            _ => SlotFold::First,
        }
    }

    fn value(
        &self,
        stream: &Stream,
        slots: std::ops::Range<usize>,
    ) -> Result<Option<StepValue>, hist::MergeError> {
        let points = &stream.points[slots.clone()];
        Ok(match self {
            SlotFold::First => points.first().cloned().flatten(),
            SlotFold::Last => points.last().cloned().flatten(),
            SlotFold::Merged => {
                let mut sum = Mixture::default();
                for value in points.iter().flatten() {
                    if let StepValue::Distribution(mixture) = value {
                        mixture.parts().iter().try_for_each(|part| sum.add(part))?;
                    }
                }
                Some(StepValue::Distribution(Arc::new(sum)))
            }
            SlotFold::Numbers(way) => {
                let row: Vec<Option<f64>> = slots.map(|at| number(stream, at)).collect();
                let is_empty = row.iter().all(Option::is_none);
                point(reduce(way, &row).filter(|_| !is_empty))
            }
        })
    }
}
