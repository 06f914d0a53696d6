//! `absent`: 1 where there is nothing.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::labels::Labels;
use crate::plan::{Node, Op};
use crate::promql::labels_named;
use crate::stream::Stream;
use crate::value::Value;

use super::{Call, unwrapped};

pub(super) fn absent(evaluation: &mut Evaluation<'_>, call: &Call<'_>) -> Result<Vec<Stream>> {
    let streams = evaluation.streams(&call.args[0], call.steps)?;
    let held = super::samples(&streams);
    let mut points = vec![Some(Value::Number(1.0)); call.steps.count];
    for stream in &streams {
        for (point, held) in points.iter_mut().zip(&stream.points) {
            if held.is_some() {
                *point = None;
            }
        }
    }
    let mut result = vec![Stream::new(labels_of(&call.args[0]), points)];
    evaluation.exchange(held, &mut result)?;
    Ok(result)
}

fn labels_of(node: &Node) -> Labels {
    match &unwrapped(node).op {
        Op::Latest(fetch) => labels_named(&fetch.matchers),
        _ => Labels::default(),
    }
}
