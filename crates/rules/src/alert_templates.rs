//! Templates of the labels and annotations of a rule, expanded over the samples of the iteration.

use std::sync::Arc;

use query::{LabelSet, StepValue};

use crate::evaluator::{OverlayEvaluator, RuleSample};
use crate::overlay::SampleOverlay;
use crate::rule_file::LabelMap;
use crate::template::{
    AlertTemplateData, TemplateContext, TemplateQuery, TemplateRecord, TemplateSample,
    TemplateValue, expand_alert_text,
};

/// What the templates of all rules see of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertTemplates {
    /// Labels that the node adds to what it sends (`$externalLabels`).
    pub external_labels: LabelMap,
    /// URL under which users reach the node (`$externalURL`).
    pub external_url: String,
}

/// Templates of one element of the result of an alerting rule.
pub(crate) struct ElementTemplates<'a> {
    pub(crate) templates: &'a AlertTemplates,
    /// Name of the alert.
    pub(crate) alert: &'a str,
    /// Element, with the labels that it has before those of the rule are added.
    pub(crate) sample: &'a RuleSample,
    pub(crate) time_ns: i64,
    /// Answers the function `query`.
    pub(crate) query: CycleQuery<'a>,
}

/// Stored samples, and those of the current iteration.
pub(crate) struct CycleQuery<'a> {
    pub(crate) evaluator: &'a dyn OverlayEvaluator,
    pub(crate) overlay: &'a SampleOverlay,
}

impl ElementTemplates<'_> {
    /// Expanded text. A failure becomes the text, and a warning: it must not lose the alert.
    pub(crate) fn expand(&self, text: &str, warnings: &mut Vec<String>) -> String {
        let AlertTemplates { external_labels, external_url } = self.templates;
        let labels = label_map(&self.sample.labels);
        let value = template_value(&self.sample.value);
        let data = AlertTemplateData { labels: &labels, value, external_labels, external_url };
        let context = TemplateContext { query: &self.query, time_ns: self.time_ns, external_url };
        let expanded = expand_alert_text(self.alert, text, &data, &context);
        if let Some(error) = expanded.error {
            warnings.push(format!("cannot expand template {text:?}: {error}"));
        }
        expanded.text
    }
}

impl TemplateQuery for CycleQuery<'_> {
    fn query(&self, expression: &str, time_ns: i64) -> Result<Vec<TemplateSample>, String> {
        let found = self.evaluator.instant_over(self.overlay, expression, time_ns);
        let sample = |RuleSample { labels, value }: RuleSample| TemplateSample {
            labels: label_map(&labels),
            value: template_value(&value),
        };
        Ok(found.map_err(|error| error.0)?.into_iter().map(sample).collect())
    }
}

fn label_map(labels: &LabelSet) -> LabelMap {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn template_value(value: &StepValue) -> TemplateValue {
    if let Some(number) = value.number() {
        return TemplateValue::Float(number);
    }
    let Some(histogram) = value.histogram() else { return TemplateValue::Missing };
    let number = |name: &str, number| (name.to_owned(), TemplateValue::Float(number));
    let fields = vec![number("Count", histogram.count), number("Sum", histogram.sum)];
    let text = Some(histogram.to_string());
    let record = TemplateRecord::new("*histogram.FloatHistogram", fields, text);
    TemplateValue::Record(Arc::new(record))
}
