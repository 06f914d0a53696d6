//! Plan nodes of CAQL: what is read, and functions of other streams.

use crate::caql::{Arguments, CaqlContext, Signature};
use crate::error::SourceSpan;

use super::{MetricQuery, PlanNode};

/// Plan stage: function and inputs.
#[derive(Clone, Debug)]
pub(crate) struct PlanStage {
    pub(crate) kind: StageKind,
    /// Under which number its streams are kept, if they are needed more than once.
    pub(crate) shared: Option<usize>,
    pub(crate) context: CaqlContext,
}

#[derive(Clone, Debug)]
pub(crate) enum StageKind {
    /// A stream without values.
    Null,
    /// What is found.
    Find(Box<MetricQuery>),
    /// Histograms that are found, merged: all, or those whose tags of these categories agree.
    Merge { find: Box<MetricQuery>, by: Option<Vec<String>> },
    /// What was so long before, once for each length.
    Delay { delays: Vec<i64>, sources: Vec<PlanNode> },
    /// A function of other streams.
    Call(Box<CallStage>),
}

#[derive(Clone, Debug)]
pub(crate) struct CallStage {
    pub(crate) function: &'static Signature,
    pub(crate) arguments: Arguments,
    pub(crate) sources: Vec<PlanNode>,
    /// Where its name stands.
    pub(crate) span: SourceSpan,
}
