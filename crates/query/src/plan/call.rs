//! Plan node of a range function.

use crate::error::SourceSpan;
use crate::promql::PromqlFunction;

use super::{PlanNode, RangeSelection};

/// Call of a range function.
#[derive(Clone, Debug)]
pub(crate) struct RangeFunctionCall {
    pub(crate) function: &'static PromqlFunction,
    /// Range vector.
    pub(crate) input: RangeSelection,
    /// Number arguments in order, without the range vector.
    pub(crate) args: Vec<PlanNode>,
}

impl RangeFunctionCall {
    /// Span of the first argument, to which warnings refer even if it is a number.
    pub(crate) fn first_span(&self) -> SourceSpan {
        let places = self.args.iter().map(|arg| arg.span).chain([self.input.span]);
        places.min_by_key(|span| span.start).unwrap_or(self.input.span)
    }
}
