//! Query plan shared by both languages.
//!
//! A node gives streams: numbers or distributions at each step. Only [`PlanOp::RangeSelection`]
//! gives raw samples, which only range functions accept.

mod call;
mod metric_query;
mod operation;
mod selection;
mod shared_node;
mod stage;

pub(crate) use call::RangeFunctionCall;
pub(crate) use metric_query::{MetricQuery, MetricStatistic};
pub(crate) use operation::{Aggregation, BinaryOperation, Grouping, OperandKind};
pub(crate) use selection::{
    ExactRange, RangeExtension, RangeSelection, RangeSource, SeriesFetch, TimeShift,
};
pub(crate) use shared_node::SharedNode;
pub(crate) use stage::{CallStage, PlanStage, StageKind};

use crate::error::SourceSpan;
use crate::promql::PromqlFunction;

/// Node of a query plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanNode {
    pub(crate) op: PlanOp,
    /// Span in the expression.
    pub(crate) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(crate) enum PlanOp {
    /// Same number at each step.
    Number(f64),
    /// Duration in seconds, which takes the unit of the values beside it.
    Duration(f64),
    /// String argument.
    Text(String),
    /// Latest sample of each series at each step, within the lookback.
    Latest(SeriesFetch),
    /// Samples in a window before each step.
    RangeSelection(Box<RangeSelection>),
    /// Exact deltas of a range, from the store.
    Exact(Box<ExactRange>),
    /// Constant over steps: evaluated once.
    Once(Box<PlanNode>),
    /// Used more than once.
    Shared(Box<SharedNode>),
    Negate(Box<PlanNode>),
    /// Range function.
    RangeFunction(Box<RangeFunctionCall>),
    /// Instant function.
    Call {
        function: &'static PromqlFunction,
        args: Vec<PlanNode>,
    },
    Aggregate(Box<Aggregation>),
    Binary(Box<BinaryOperation>),
    /// CAQL function.
    Stage(Box<PlanStage>),
}
