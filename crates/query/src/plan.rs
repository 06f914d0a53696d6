//! Query plan shared by both languages.
//!
//! A node gives streams: numbers or distributions at each step. Only [`Op::Ranged`] gives readings as they came,
//! and only functions over time take those.

mod operation;
mod selection;

pub(crate) use operation::{Aggregation, BinaryOperation, Grouping, OperandKind};
pub(crate) use selection::{
    ExactRange, RangeExtension, RangeSelection, RangeSource, SeriesFetch, TimeShift,
};

use crate::caql;
use crate::error::SourceSpan;
use crate::eval::{call, range_functions};

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
    RangeFunction(Box<range_functions::RangeFunctionCall>),
    /// A function of what is there at each step.
    Call {
        function: &'static call::InstantFunction,
        args: Vec<PlanNode>,
    },
    Aggregate(Box<Aggregation>),
    Binary(Box<BinaryOperation>),
    /// A function of CAQL.
    Stage(Box<caql::PlanStage>),
}
