//! Functions of instant vectors: `abs`, `histogram_quantile`, `label_replace` and others.
//!
//! Names, results and annotations are those of Prometheus 3.15. If numbers have bounds, a monotonic
//! function is also applied to the bounds.

pub(crate) mod absent;
pub(crate) mod burn_rate;
#[cfg(test)]
#[path = "../../../../testdata/extensions/promql_function/cube.rs"]
pub(crate) mod example;
pub(crate) mod histogram;
pub(crate) mod info;
pub(crate) mod label;
pub(crate) mod math;
pub(crate) mod running_total;
pub(crate) mod scalar;
pub(crate) mod sort;
#[cfg(test)]
mod tests;
pub(crate) mod time;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::plan::{PlanNode, PlanOp};
use crate::stream::{StepGrid, Stream};
use crate::value::StepValue;

/// Call of a function.
pub(crate) struct FunctionCall<'a> {
    pub(crate) args: &'a [PlanNode],
    pub(crate) span: SourceSpan,
    pub(crate) steps: StepGrid,
}

impl Evaluation<'_> {
    /// Maps each point of streams; `None` removes the point. The metric names are dropped.
    fn map_points(
        &mut self,
        call: &FunctionCall<'_>,
        at: usize,
        mut change: impl FnMut(usize, &StepValue) -> Option<StepValue>,
    ) -> Result<Vec<Stream>> {
        let mut streams = self.streams(&call.args[at], call.steps)?;
        let held = samples(&streams);
        for stream in &mut streams {
            for (step, point) in stream.points.iter_mut().enumerate() {
                *point = point.as_ref().and_then(|value| change(step, value));
            }
            self.drop_name(stream);
        }
        self.replace_streams(held, &mut streams)?;
        self.merge_equal_labels(streams, call.span)
    }

    /// Charges the new streams instead of the old ones and removes empty ones.
    fn replace_streams(&mut self, held: u64, streams: &mut Vec<Stream>) -> Result<()> {
        streams.retain(|stream| !stream.is_empty());
        let result = self.budget.charge_samples(samples(streams));
        self.budget.release_samples(held);
        result
    }
}

fn samples(streams: &[Stream]) -> u64 {
    streams.iter().map(Stream::samples).sum()
}

/// Node inside [`PlanOp::Once`].
fn unwrap_once(node: &PlanNode) -> &PlanNode {
    match &node.op {
        PlanOp::Once(inner) => inner,
        _ => node,
    }
}

/// String argument.
fn text_argument(node: &PlanNode) -> &str {
    match &unwrap_once(node).op {
        PlanOp::Text(text) => text,
        _ => panic!("BUG: the argument is a string"),
    }
}
