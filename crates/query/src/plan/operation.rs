//! Plan nodes of PromQL that put streams together: aggregations and operators.

use crate::labels::{LabelSet, NAME};
use crate::promql::{AggregateOp, BinaryOp, VectorMatching};

use super::PlanNode;

/// Which streams are put together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    /// Those that agree in all labels but these, not in these.
    pub(crate) is_without: bool,
    pub(crate) labels: Vec<String>,
}

impl Grouping {
    /// What a group is called.
    pub(crate) fn group_labels(&self, labels: &LabelSet) -> LabelSet {
        match self.is_without {
            true => labels.filter(|label| label != NAME && !self.names(label)),
            false => labels.filter(|label| self.names(label)),
        }
    }

    pub(crate) fn names(&self, label: &str) -> bool {
        self.labels.iter().any(|held| held == label)
    }
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    pub(crate) op: AggregateOp,
    pub(crate) grouping: Grouping,
    pub(crate) input: PlanNode,
    /// How many, which quantile, or under which label.
    pub(crate) param: Option<PlanNode>,
}

/// Operand kind: scalar or vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandKind {
    Scalar,
    Vector,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct BinaryOperation {
    pub(crate) operator: BinaryOp,
    pub(crate) left: (OperandKind, PlanNode),
    pub(crate) right: (OperandKind, PlanNode),
    pub(crate) matching: VectorMatching,
    /// A comparison gives 0 or 1 and picks nothing.
    pub(crate) is_bool: bool,
}
