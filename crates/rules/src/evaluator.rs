//! What rules need from outside: answers to queries, and expanded templates.
//!
//! This crate has no clock, disk, thread or socket. Times are nanoseconds since the Unix epoch.

use query::{LabelSet, StepValue};

use crate::overlay::SampleOverlay;

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

/// Answers instant queries.
pub trait QueryEvaluator {
    /// Instant vector of an expression; a scalar is one element without labels.
    fn instant(&self, expression: &str, time_ns: i64) -> Result<Vec<RuleSample>, RuleQueryError>;
}

/// Answers instant queries over stored samples and over those of the current cycle, which are not
/// stored yet.
pub trait OverlayEvaluator {
    /// Instant vector of an expression; samples of the overlay count as stored.
    fn instant_over(
        &self,
        overlay: &SampleOverlay,
        expression: &str,
        time_ns: i64,
    ) -> Result<Vec<RuleSample>, RuleQueryError>;
}

/// An evaluator with the samples of the current cycle: what a template queries.
pub(crate) struct CycleEvaluator<'a> {
    pub(crate) evaluator: &'a dyn OverlayEvaluator,
    pub(crate) overlay: &'a SampleOverlay,
}

impl QueryEvaluator for CycleEvaluator<'_> {
    fn instant(&self, expression: &str, time_ns: i64) -> Result<Vec<RuleSample>, RuleQueryError> {
        self.evaluator.instant_over(self.overlay, expression, time_ns)
    }
}

/// Data of a template.
pub struct TemplateData<'a> {
    /// Name of the alert.
    pub alert: &'a str,
    /// `$labels`: labels of the sample, before those of the rule are added.
    pub labels: &'a LabelSet,
    /// `$value`.
    pub value: f64,
    /// Evaluation time.
    pub time_ns: i64,
    /// Answers the function `query`.
    pub evaluator: &'a dyn QueryEvaluator,
}

/// Expands the templates of labels and annotations. External labels and the external URL are the
/// implementation's.
pub trait TemplateExpander {
    /// Cause if a text cannot be parsed as a template.
    fn check(&self, text: &str) -> Result<(), String>;

    /// Expanded text, or the cause of the failure.
    fn expand(&self, text: &str, data: &TemplateData<'_>) -> Result<String, String>;
}

/// Expanded text. A failure becomes the text, and a warning: it must not lose the alert.
pub(crate) fn expand_or_explain(
    templates: &dyn TemplateExpander,
    text: &str,
    data: &TemplateData<'_>,
    warnings: &mut Vec<String>,
) -> String {
    templates.expand(text, data).unwrap_or_else(|cause| {
        warnings.push(format!("cannot expand template {text:?}: {cause}"));
        format!("<error expanding template: {cause}>")
    })
}
