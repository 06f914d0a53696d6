//! What rules need from outside: answers to queries.
//!
//! This crate has no clock, disk, thread or socket. Times are nanoseconds since the Unix epoch.

use query::{LabelSet, StepValue};

use crate::overlay::{SampleOverlay, SourceEvaluator};

/// Element of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSample {
    /// Labels, with `__name__` if the expression keeps it.
    pub labels: LabelSet,
    /// Number or histogram.
    pub value: StepValue,
}

impl RuleSample {
    /// Number; 0 for a histogram, as `$value` of Prometheus is.
    pub fn number(&self) -> f64 {
        self.value.number().unwrap_or(0.0)
    }
}

/// Error of a query: no answer, which is not the same as an empty one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleQueryError(pub String);

/// Answers instant queries over stored samples and over those of this iteration, which are not
/// stored yet.
pub trait OverlayEvaluator {
    /// Instant vector of an expression; samples of the overlay count as stored.
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError>;

    /// Calls `read` with the stored samples, for the rule that reads this expression.
    fn with_source(
        &self,
        expression: &str,
        read: &mut dyn FnMut(&SourceEvaluator<'_>) -> Result<(), RuleQueryError>,
    ) -> Result<(), RuleQueryError>;
}
