//! Conversions between vectors and scalars.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::stream::Stream;
use crate::value::StepValue;

use super::FunctionCall;

/// At each step, the value of the only stream that has one; NaN if none or several have.
pub(crate) fn scalar(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    let only = |step: usize| {
        let points = streams.iter().filter_map(|stream| stream.points[step].as_ref());
        let mut numbers = points.filter(|value| !value.is_distribution());
        match (numbers.next(), numbers.next()) {
            (Some(only), None) => only.clone(),
            _ => StepValue::Number(f64::NAN),
        }
    };
    let points = (0..call.steps.count).map(|step| Some(only(step))).collect();
    let mut result = vec![Stream::new(LabelSet::default(), points)];
    evaluation.replace_streams(sample_count, &mut result)?;
    Ok(result)
}

/// `vector(scalar)`. A scalar is evaluated to a stream without labels, so nothing is converted.
pub(crate) fn vector(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    evaluation.streams(&call.args[0], call.steps)
}

pub(crate) fn pi(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> Result<Vec<Stream>> {
    evaluation.constant(std::f64::consts::PI, call.steps)
}

/// Combines two scalars.
pub(crate) fn combine_scalars(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    f: fn(f64, f64) -> f64,
) -> Result<Vec<Stream>> {
    let a = evaluation.scalar(&call.args[0], call.steps)?;
    let b = evaluation.scalar(&call.args[1], call.steps)?;
    evaluation.budget.charge_samples(a.len() as u64)?;
    let points = a.into_iter().zip(b).map(|(a, b)| Some(StepValue::Number(f(a, b)))).collect();
    Ok(vec![Stream::new(LabelSet::default(), points)])
}
