//! Queries of rules over the store.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use query::{Settings, StoreSource};
use rules::{OverlayEvaluator, RuleQueryError, RuleSample, SampleOverlay, SourceEvaluator};
use store::ReadView;

use crate::rule_loader::rule_promql_options;
use crate::worker_control::WorkerControl;

/// Timeout of a query, as in Prometheus (`query.timeout`).
const QUERY_TIMEOUT: Duration = Duration::from_secs(120);

/// Evaluator over one view of the store: all rules of an iteration see the same data.
pub(crate) struct StoreEvaluator<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) settings: &'a Settings,
    pub(crate) control: &'a WorkerControl,
    /// Duration of the queries by expression.
    pub(crate) durations: RefCell<HashMap<String, Duration>>,
}

impl OverlayEvaluator for StoreEvaluator<'_> {
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError> {
        let mut found = Vec::new();
        self.with_source(expression, &mut |evaluator| {
            found = evaluator.instant_over(overlay, expression, time_ns)?;
            Ok(())
        })?;
        Ok(found)
    }

    fn with_source(
        &self,
        expression: &str,
        read: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError> {
        let began = Instant::now();
        let is_cancelled = || began.elapsed() > QUERY_TIMEOUT || self.control.is_stopping();
        let source = StoreSource::new(self.view).with_context(&is_cancelled);
        let evaluator = SourceEvaluator {
            source: &source,
            settings: self.settings,
            options: rule_promql_options(),
            context: &is_cancelled,
        };
        let outcome = read(&evaluator);
        let mut durations = self.durations.borrow_mut();
        match durations.get_mut(expression) {
            Some(duration) => *duration += began.elapsed(),
            None => drop(durations.insert(expression.to_owned(), began.elapsed())),
        }
        outcome
    }
}
