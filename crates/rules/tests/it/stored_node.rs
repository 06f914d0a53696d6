//! A node over a store on a simulated disk: a clock, rows, and one rule file.

use query::{Settings, StoreSource, promql};
use rules::{
    AlertTemplates, EvaluatedGroup, IterationInputs, IterationResult, SourceEvaluator,
    decode_snapshots, encode_snapshots,
};

use crate::harness::{MINUTE, group};
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
        let source = StoreSource::new(&view);
        let settings = Settings::default();
        let evaluator = SourceEvaluator {
            source: &source,
            settings: &settings,
            options: promql::Options::all(),
            context: &|| false,
        };
        let inputs = IterationInputs {
            evaluator: &evaluator,
            templates: &AlertTemplates::default(),
            resend_delay_ns: MINUTE,
        };
        self.group.evaluate(self.series.now(), &inputs)
    }

    /// Kills the process, and starts it with these rules.
    pub(crate) fn restart(&mut self, rules: &str) {
        let stored = encode_snapshots(&[self.group.snapshot()]);
        self.group = group(rules);
        let mut snapshots = decode_snapshots(&stored).expect("the states as written");
        self.group.restore(snapshots.pop().expect("one group"));
    }
}
