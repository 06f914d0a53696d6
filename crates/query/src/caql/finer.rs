//! Functions over time that are asked to look closer than slots are long: `window:*`, `rolling:*` and
//! `aggregate:*` with a `period` below that of the answer.
//!
//! Sources are then read in slots of that period, and one value is made of those of each slot.

use std::sync::Arc;

use hist::Mixture;

use super::points::{number, point};
use super::stage::{Call, Stage};
use super::stats::reduce;
use crate::error::{Error, Place, Result};
use crate::eval::Evaluation;
use crate::stream::{Steps, Stream};
use crate::value::Value;

/// The period that a call looks at, where slots are a whole number of them.
pub(super) fn period(call: &Call, steps: Steps) -> Option<i64> {
    let package = call.function.computes.split(':').next();
    let has_period = matches!(package, Some("window" | "rolling" | "aggregate"));
    let period = call.arguments.duration("period").filter(|period| *period > 0)?;
    (has_period && period < steps.step && steps.step % period == 0).then_some(period)
}

pub(super) fn streams(
    call: &Call,
    stage: &Stage,
    evaluation: &mut Evaluation<'_>,
    place: Place,
    period: i64,
    steps: Steps,
) -> Result<Vec<Stream>> {
    let each = (steps.step / period) as usize;
    let fine = Steps { start: steps.start, step: period, count: steps.count.saturating_mul(each) };
    evaluation.fits(1, fine)?;
    let streams = stage.call(call, evaluation, place, fine)?;
    let held: u64 = streams.iter().map(Stream::samples).sum();
    let fold = Fold::of(&call.function.computes, call.arguments.text("align"));
    let folded = |stream: Stream| {
        let slot = |at: usize| fold.value(&stream, at * each..(at + 1) * each);
        let points: Result<Vec<_>, _> = (0..steps.count).map(slot).collect();
        let points = points.map_err(|error| Error::Execution {
            place,
            message: format!("{error}: ask for shorter periods or fewer series"),
        })?;
        Ok(Stream { points, ..stream })
    };
    let streams = streams.into_iter().map(folded).collect::<Result<Vec<Stream>>>()?;
    evaluation.hold(&streams)?;
    evaluation.budget.release(held);
    Ok(streams)
}

/// Which value stands for a slot.
enum Fold {
    First,
    Last,
    /// The sum of histograms.
    Merged,
    /// Of numbers, one in a way that `stats` knows.
    Numbers(&'static str),
}

impl Fold {
    fn of(name: &str, align: Option<&str>) -> Fold {
        match name.split_once(':') {
            // What a slot's end sees.
            Some(("rolling", _)) if align != Some("start") => Fold::Last,
            Some(("aggregate", "histogram")) => Fold::Merged,
            Some(("aggregate", "count" | "sum")) => Fold::Numbers("sum"),
            Some(("aggregate", "max")) => Fold::Numbers("max"),
            Some(("aggregate", "min")) => Fold::Numbers("min"),
            Some(("aggregate", _)) => Fold::Numbers("mean"),
            _ => Fold::First,
        }
    }

    fn value(
        &self,
        stream: &Stream,
        slots: std::ops::Range<usize>,
    ) -> Result<Option<Value>, hist::MergeError> {
        let points = &stream.points[slots.clone()];
        Ok(match self {
            Fold::First => points.first().cloned().flatten(),
            Fold::Last => points.last().cloned().flatten(),
            Fold::Merged => {
                let mut sum = Mixture::default();
                for value in points.iter().flatten() {
                    if let Value::Distribution(mixture) = value {
                        mixture.parts().iter().try_for_each(|part| sum.add(part))?;
                    }
                }
                Some(Value::Distribution(Arc::new(sum)))
            }
            Fold::Numbers(way) => {
                let row: Vec<Option<f64>> = slots.map(|at| number(stream, at)).collect();
                let is_empty = row.iter().all(Option::is_none);
                point(reduce(way, &row).filter(|_| !is_empty))
            }
        })
    }
}
