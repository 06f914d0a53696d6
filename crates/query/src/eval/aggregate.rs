//! Many streams put together into fewer: `sum by (…)` and its like.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::labels::{Labels, NAME, is_metadata};
use crate::plan::Node;
use crate::promql::AggregateOp;
use crate::stream::{Steps, Stream};

/// Which streams are put together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grouping {
    /// Those that agree in all labels but these, not in these.
    pub(crate) is_without: bool,
    pub(crate) labels: Vec<String>,
}

impl Grouping {
    /// What a group is called.
    pub(crate) fn labels_of(&self, labels: &Labels) -> Labels {
        match self.is_without {
            true => labels.keep(|label| label != NAME && !self.names(label)),
            false => labels.keep(|label| self.names(label)),
        }
    }

    fn names(&self, label: &str) -> bool {
        self.labels.iter().any(|held| held == label)
    }
}

/// An aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) way: AggregateOp,
    pub(crate) grouping: Grouping,
    pub(crate) of: Node,
    /// How many, which quantile, or under which label.
    pub(crate) param: Option<Node>,
}

impl Evaluation<'_> {
    pub(crate) fn aggregate(
        &mut self,
        _aggregate: &Aggregate,
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        let _ = is_metadata;
        unimplemented!()
    }
}
