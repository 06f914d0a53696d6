//! Labels and annotations of an alert: the variables `$labels`, `$value`, `$externalLabels` and
//! `$externalURL`, and the text in place of a template that fails.

use super::value::{TemplateRecord, TemplateValue};
use super::{TemplateContext, TemplateError, TextTemplate};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Declarations before each template. They are in the first line, so columns there count them;
/// Prometheus does the same.
const DECLARATIONS: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
    {{$externalURL := .ExternalURL}}{{$value := .Value}}";

/// What templates of an alert see.
#[derive(Clone, Debug)]
pub struct AlertTemplateData<'a> {
    /// Labels of the sample (`$labels`).
    pub labels: &'a BTreeMap<String, String>,
    /// Value of the sample: a float or a histogram (`$value`).
    pub value: TemplateValue,
    /// Labels that the node adds to what it sends (`$externalLabels`).
    pub external_labels: &'a BTreeMap<String, String>,
    /// URL under which users reach the node (`$externalURL`).
    pub external_url: &'a str,
}

impl AlertTemplateData<'_> {
    fn to_value(&self) -> TemplateValue {
        let fields = vec![
            ("Labels".to_owned(), TemplateValue::text_map(self.labels)),
            ("ExternalLabels".to_owned(), TemplateValue::text_map(self.external_labels)),
            ("ExternalURL".to_owned(), TemplateValue::text(self.external_url)),
            ("Value".to_owned(), self.value.clone()),
        ];
        let type_name = "struct { Labels map[string]string; ExternalLabels map[string]string; \
                         ExternalURL string; Value interface {} }";
        TemplateValue::Record(Arc::new(TemplateRecord::new(type_name, fields, None)))
    }
}

/// The text of a label or annotation, whether or not its template worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedText {
    /// The text to send; `<error expanding template: ...>` if the template failed.
    pub text: String,
    /// Why the template failed: a warning, because the alert is sent all the same.
    pub error: Option<TemplateError>,
}

/// Parses a label or annotation.
pub(crate) fn check_alert_text(alert_name: &str, text: &str) -> Result<(), TemplateError> {
    parse_alert_text(alert_name, text).map(drop)
}

fn parse_alert_text(alert_name: &str, text: &str) -> Result<TextTemplate, TemplateError> {
    TextTemplate::parse(&format!("__alert_{alert_name}"), &format!("{DECLARATIONS}{text}"))
}

/// Expands a label or annotation of the alert `alert_name`.
pub fn expand_alert_text(
    alert_name: &str,
    text: &str,
    data: &AlertTemplateData<'_>,
    context: &TemplateContext<'_>,
) -> ExpandedText {
    let expanded = parse_alert_text(alert_name, text)
        .and_then(|template| template.expand(&data.to_value(), context));
    match expanded {
        Ok(text) => ExpandedText { text, error: None },
        Err(error) => ExpandedText {
            text: format!("<error expanding template: {error}>"),
            error: Some(error),
        },
    }
}
