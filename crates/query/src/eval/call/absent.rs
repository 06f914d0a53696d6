//! `absent`: 1 at steps without a value.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::{PlanNode, PlanOp};
use crate::promql::labels_from_matchers;
use crate::stream::Stream;
use crate::value::StepValue;

use super::{FunctionCall, unwrap_once};

pub(crate) fn absent(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    let mut points = vec![Some(StepValue::Number(1.0)); call.steps.count];
    for stream in &streams {
        for (point, sample_count) in points.iter_mut().zip(&stream.points) {
            if sample_count.is_some() {
                *point = None;
            }
        }
    }
    let mut result = vec![Stream::new(labels_of(&call.args[0]), points)];
    evaluation.replace_streams(sample_count, &mut result)?;
    Ok(result)
}

fn labels_of(node: &PlanNode) -> LabelSet {
    match &unwrap_once(node).op {
        PlanOp::Latest(fetch) => labels_from_matchers(&fetch.matchers),
        _ => LabelSet::default(),
    }
}
