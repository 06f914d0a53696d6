//! Infos about an empty PromQL result: a misspelt metric returns nothing, as one without data does.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::labels::{LabelSet, NAME};
use crate::prometheus_name::translations;
use crate::prometheus_source::{PrometheusSource, exact_name};
use crate::promql::{self, Expr, ExprKind, VectorSelector};
use crate::selector_hint::{is_word, name_hint};
use crate::source::Source;

/// Maximum number of names that are looked up.
const NAMES_MAX: usize = 3;
/// Maximum number of metrics that are compared with a name.
const METRICS_MAX: usize = 10_000;

/// Names of an expression that no series has, each with the metric that may have been meant. Names
/// like no other are left out.
pub fn unknown_names(
    source: &dyn Source,
    text: &str,
    options: &promql::Options,
) -> Result<Vec<String>> {
    let Ok(parsed) = promql::parse(text, options) else { return Ok(Vec::new()) };
    let mut selectors = Vec::new();
    collect_selectors(&parsed, &mut selectors);
    let named = PrometheusSource::new(source, &|| false);
    let mut names = BTreeSet::new();
    for selector in selectors {
        let selector = promql::selector_of(selector)?;
        let Some(name) = exact_name(&selector) else { continue };
        names.insert(name.to_owned());
    }
    let mut unknown = Vec::new();
    for name in names.into_iter().take(NAMES_MAX) {
        let selector = model::Selector::label_equals(NAME, &name);
        if named.select_count(&selector)? == 0 {
            unknown.push(name);
        }
    }
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let mut metrics = BTreeSet::new();
    for metric in source.metrics()?.into_iter().take(METRICS_MAX) {
        let own = LabelSet::new([(NAME, metric.name.as_str())]);
        let all = translations(&own, &metric.unit, metric.kind);
        // The last one is in seconds, if there is such a name.
        let base = all.last().map_or("", |last| last.labels.name());
        metrics.insert(base.to_owned());
        if is_word(&metric.name, ":") {
            metrics.insert(metric.name);
        }
    }
    let info = |name: &String| {
        let hint = name_hint(name, metrics.iter().map(String::as_str))?;
        Some(format!("no series has the name {name:?}; {hint}"))
    };
    Ok(unknown.iter().filter_map(info).collect())
}

fn collect_selectors<'e>(expression: &'e Expr, found: &mut Vec<&'e VectorSelector>) {
    match &expression.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => found.push(selector),
        _ => expression.children().into_iter().for_each(|child| collect_selectors(child, found)),
    }
}
