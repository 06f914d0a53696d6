//! Query plan shared by both languages.
//!
//! A node gives streams: numbers or distributions at each step. Only [`PlanOp::RangeSelection`]
//! gives readings as they came, and only functions over time take those.

mod call;
mod metric_query;
mod operation;
mod selection;
mod stage;

pub(crate) use call::RangeFunctionCall;
pub(crate) use metric_query::{MetricQuery, MetricStatistic};
pub(crate) use operation::{Aggregation, BinaryOperation, Grouping, OperandKind};
pub(crate) use selection::{
    ExactRange, RangeExtension, RangeSelection, RangeSource, SeriesFetch, TimeShift,
};
pub(crate) use stage::{CallStage, PlanStage, StageKind};

use crate::error::SourceSpan;
use crate::promql::PromqlFunction;

/// Node of a query plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanNode {
    pub(crate) op: PlanOp,
    /// Where in the expression it stands.
    pub(crate) span: SourceSpan,
}

#[derive(Clone, Debug)]
pub(crate) enum PlanOp {
    /// The same number at each step.
    Number(f64),
    /// A text, for functions that take one.
    Text(String),
    /// The latest reading of each series at each step, not older than the lookback.
    Latest(SeriesFetch),
    /// Readings of a stretch of time before each step.
    RangeSelection(Box<RangeSelection>),
    /// Exact deltas of a range, from the store.
    Exact(Box<ExactRange>),
    /// The same at each step: worked out once.
    Once(Box<PlanNode>),
    Negate(Box<PlanNode>),
    /// A function of readings over time.
    RangeFunction(Box<RangeFunctionCall>),
    /// A function of what is there at each step.
    Call {
        function: &'static PromqlFunction,
        args: Vec<PlanNode>,
    },
    Aggregate(Box<Aggregation>),
    Binary(Box<BinaryOperation>),
    /// A function of CAQL.
    Stage(Box<PlanStage>),
}
