//! A node over a store on a simulated disk: a clock, rows, and one rule file.

use query::StoreSource;
use rules::{EvaluatedGroup, IterationResult};

use crate::harness::{evaluate_over, group, restarted};
use crate::stored_series::StoredSeries;

/// A node.
pub(crate) struct StoredNode {
    pub(crate) series: StoredSeries,
    pub(crate) group: EvaluatedGroup,
}

impl StoredNode {
    #[track_caller]
    pub(crate) fn new(rules: &str) -> StoredNode {
        StoredNode { series: StoredSeries::new(), group: group(rules) }
    }

    /// Evaluates at the current time.
    pub(crate) fn evaluate(&mut self) -> IterationResult {
        let view = self.series.store.view().expect("a view");
        evaluate_over(&StoreSource::new(&view), &mut self.group, self.series.now(), None)
    }

    /// Kills the process, and starts it with these rules.
    pub(crate) fn restart(&mut self, rules: &str) {
        self.group = restarted(&self.group, rules);
    }
}
