//! Plan node that a query evaluates more than once.

use super::PlanNode;

/// Node that occurs more than once in a query: its streams are kept for the other uses.
#[derive(Clone, Debug)]
pub(crate) struct SharedNode {
    /// Key of the shared streams, the same for equal nodes.
    pub(crate) key: usize,
    pub(crate) node: PlanNode,
}
