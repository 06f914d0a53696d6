//! Plan nodes of PromQL aggregations and binary operators.

use crate::labels::{LabelSet, NAME};
use crate::promql::{AggregateOp, BinaryOp, VectorMatching};

use super::PlanNode;

/// Grouping of streams.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    /// Whether the listed labels are excluded (`without`).
    pub(crate) is_without: bool,
    pub(crate) labels: Vec<String>,
}

impl Grouping {
    /// Labels of a group.
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

/// Aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    pub(crate) op: AggregateOp,
    pub(crate) grouping: Grouping,
    pub(crate) input: PlanNode,
    /// Parameter: a count, a quantile or a label.
    pub(crate) param: Option<PlanNode>,
}

/// Operand kind: scalar or vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandKind {
    Scalar,
    Vector,
}

/// Binary operation.
#[derive(Clone, Debug)]
pub(crate) struct BinaryOperation {
    pub(crate) operator: BinaryOp,
    pub(crate) left: (OperandKind, PlanNode),
    pub(crate) right: (OperandKind, PlanNode),
    pub(crate) matching: VectorMatching,
    /// Whether a comparison gives 0 or 1 instead of filtering.
    pub(crate) is_bool: bool,
}
