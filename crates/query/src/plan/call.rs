//! Plan node of a function of readings over time.

use crate::error::SourceSpan;
use crate::promql::PromqlFunction;

use super::{PlanNode, RangeSelection};

/// Call of a range function.
#[derive(Clone, Debug)]
pub(crate) struct RangeFunctionCall {
    pub(crate) function: &'static PromqlFunction,
    /// The readings.
    pub(crate) input: RangeSelection,
    /// Numbers, in the order of the arguments without the readings.
    pub(crate) args: Vec<PlanNode>,
}

impl RangeFunctionCall {
    /// The first argument: remarks are about that, also where it is a number.
    pub(crate) fn first_span(&self) -> SourceSpan {
        let places = self.args.iter().map(|arg| arg.span).chain([self.input.span]);
        places.min_by_key(|place| place.start).unwrap_or(self.input.span)
    }
}
