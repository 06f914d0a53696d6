//! Plan nodes of CAQL: sources, and functions of streams.

use crate::caql::{Arguments, CaqlContext, Signature};
use crate::error::SourceSpan;

use super::{MetricQuery, PlanNode};

/// Plan stage: function and inputs.
#[derive(Clone, Debug)]
pub(crate) struct PlanStage {
    pub(crate) kind: StageKind,
    /// Key of the shared result, if the stage is used more than once.
    pub(crate) shared: Option<usize>,
    pub(crate) context: CaqlContext,
}

#[derive(Clone, Debug)]
pub(crate) enum StageKind {
    /// A stream without values.
    Null,
    /// Streams of metrics.
    Find(Box<MetricQuery>),
    /// Merged histograms of metrics: all, or those with equal tags of these categories.
    Merge { find: Box<MetricQuery>, by: Option<Vec<String>> },
    /// Delayed inputs, once for each delay in nanoseconds.
    Delay { delays: Vec<i64>, inputs: Vec<PlanNode> },
    /// Function of streams.
    Call(Box<CallStage>),
}

#[derive(Clone, Debug)]
pub(crate) struct CallStage {
    pub(crate) function: &'static Signature,
    pub(crate) arguments: Arguments,
    pub(crate) inputs: Vec<PlanNode>,
    /// Span of the name.
    pub(crate) span: SourceSpan,
}
