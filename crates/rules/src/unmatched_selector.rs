//! Selectors of a rule that select nothing: a rule with a misspelt name is as quiet as a good one.
//!
//! A rule can match if the selectors that its result needs have data. `absent` needs none, `unless`
//! none of the right, and `or` those of one side.

use std::collections::BTreeSet;
use std::ops::Range;

use model::Selector;
use query::promql::{self, BinaryOp, Expr, ExprKind, MatchOp, Matcher, VectorSelector};
use query::{LabelSet, Language, NAME, SeriesHandle};

use crate::alert_series::{ALERTS, ALERTS_FOR_STATE};
use crate::evaluator::{OverlayEvaluator as _, RuleQueryError};
use crate::overlay::{SampleOverlay, SourceEvaluator};
use crate::own::RuleSource;
use crate::rule_file::Rule;

/// Series whose labels are compared.
const SERIES_MAX: usize = 10_000;
/// What Prometheus' names of the parts of a histogram or of a counter end with.
const SUFFIXES: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];

/// Selector without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedSelector {
    /// As written.
    pub selector: String,
    /// What may have been meant, such as `did you mean the metric "latency"?`.
    pub hint: Option<String>,
}

/// Selectors of a rule that have no data in a range (start exclusive, end inclusive), so that its
/// result is empty. Formulas and CAQL are not examined.
pub fn unmatched_selectors(
    rule: &Rule,
    evaluator: &SourceEvaluator<'_>,
    range: &Range<i64>,
) -> Result<Vec<UnmatchedSelector>, RuleQueryError> {
    let check = SelectorCheck { expression: &rule.expression, evaluator, range };
    match rule.condition().map(|own| &own.source) {
        Some(RuleSource::Formula(_) | RuleSource::Query(Language::Caql)) => Ok(Vec::new()),
        Some(RuleSource::Selector(selector)) => check.of_selector(selector),
        Some(RuleSource::Query(_)) | None => check.of_expression(),
    }
}

struct SelectorCheck<'a> {
    expression: &'a str,
    evaluator: &'a SourceEvaluator<'a>,
    range: &'a Range<i64>,
}

type CheckResult<T> = Result<T, RuleQueryError>;

fn failed(error: query::Error) -> RuleQueryError {
    RuleQueryError(error.to_string())
}

impl SelectorCheck<'_> {
    fn of_selector(&self, selector: &Selector) -> CheckResult<Vec<UnmatchedSelector>> {
        if self.has_rows(selector)? {
            return Ok(Vec::new());
        }
        // Simple selectors have the same syntax.
        let hint = match promql::parse(self.expression, &self.evaluator.options) {
            Ok(Expr { kind: ExprKind::Selector(parsed), .. }) => self.hint(&parsed)?,
            _ => None,
        };
        Ok(vec![UnmatchedSelector { selector: self.expression.to_owned(), hint }])
    }

    fn of_expression(&self) -> CheckResult<Vec<UnmatchedSelector>> {
        // The check of the file has reported an expression that cannot be parsed.
        let Ok(parsed) = promql::parse(self.expression, &self.evaluator.options) else {
            return Ok(Vec::new());
        };
        let mut unmatched: Vec<UnmatchedSelector> = Vec::new();
        for missing in self.missing(&parsed)? {
            let selector = self.text(&missing).to_owned();
            if !unmatched.iter().any(|known| known.selector == selector) {
                let hint = self.hint(&missing)?;
                unmatched.push(UnmatchedSelector { selector, hint });
            }
        }
        Ok(unmatched)
    }

    fn text(&self, selector: &VectorSelector) -> &str {
        self.expression.get(selector.span.start..selector.span.end).unwrap_or_default()
    }

    /// Selectors without data because of which an expression has no result; empty if it can have
    /// one.
    fn missing(&self, expression: &Expr) -> CheckResult<Vec<VectorSelector>> {
        match &expression.kind {
            ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
                Ok(if self.has_data(selector)? { Vec::new() } else { vec![selector.clone()] })
            }
            ExprKind::Call { function, .. } if function.name.starts_with("absent") => {
                Ok(Vec::new())
            }
            ExprKind::Binary { op: BinaryOp::Unless, left, .. } => self.missing(left),
            ExprKind::Binary { op: BinaryOp::Or, left, right, .. } => {
                let mut left = self.missing(left)?;
                let right = self.missing(right)?;
                if left.is_empty() || right.is_empty() {
                    return Ok(Vec::new());
                }
                left.extend(right);
                Ok(left)
            }
            _ => {
                let mut missing = Vec::new();
                for child in expression.children() {
                    missing.extend(self.missing(child)?);
                }
                Ok(missing)
            }
        }
    }

    fn has_rows(&self, selector: &Selector) -> CheckResult<bool> {
        let source = self.evaluator.source;
        let found = source.select_in_range(selector, self.range).map_err(failed)?;
        if found.is_empty() {
            return Ok(false);
        }
        Ok(source.time_range(&found, self.range.clone()).map_err(failed)?.is_some())
    }

    fn has_data(&self, selector: &VectorSelector) -> CheckResult<bool> {
        // Nobody can tell whether an alert is to fire.
        if matches!(&*selector.name, ALERTS | ALERTS_FOR_STATE) {
            return Ok(true);
        }
        let stored = promql::selector_of(selector).map_err(failed)?;
        if self.has_rows(&stored)? {
            return Ok(true);
        }
        // Queries know series by other names, too: `x_bucket` of a histogram `x`.
        let seconds = self.range.end.saturating_sub(self.range.start) / 1_000_000_000;
        let query = format!("count(last_over_time({}[{seconds}s]))", self.text(selector));
        let overlay = SampleOverlay::default();
        Ok(!self.evaluator.instant_over(&overlay, &query, self.range.end)?.is_empty())
    }

    /// What may have been meant.
    fn hint(&self, selector: &VectorSelector) -> CheckResult<Option<String>> {
        if selector.name.is_empty() {
            return Ok(None);
        }
        let named = Selector::label_equals(NAME, &selector.name);
        let mut series = self.evaluator.source.select(&named).map_err(failed)?;
        if series.is_empty() {
            let metrics = self.evaluator.source.metrics().map_err(failed)?;
            let names = metrics.iter().map(|metric| metric.name.as_str());
            let near = nearest(without_suffix(&selector.name), names.map(without_suffix_pair));
            return Ok(near.map(|name| format!("did you mean the metric {name:?}?")));
        }
        series.truncate(SERIES_MAX);
        Ok(selector.matchers.iter().find_map(|matcher| label_hint(matcher, &series)))
    }
}

/// What may have been meant by a matcher that no series meets.
fn label_hint(matcher: &Matcher, series: &[SeriesHandle]) -> Option<String> {
    let Matcher { name, op, value, .. } = matcher;
    if name == NAME || *op != MatchOp::Equal || value.is_empty() {
        return None;
    }
    let labels = || series.iter().map(|handle| &handle.labels);
    let value_of = |labels: &LabelSet| labels.get(name).to_owned();
    let values: BTreeSet<String> =
        labels().map(value_of).filter(|value| !value.is_empty()).collect();
    if values.contains(value) {
        return None;
    }
    if !values.is_empty() {
        let near = nearest(value, values.iter().map(|value| (value.as_str(), value.as_str())));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        return Some(format!("label {name:?} has no value {value:?}{near}"));
    }
    let names: BTreeSet<&str> =
        labels().flat_map(|labels| labels.iter().map(|(name, _)| name)).collect();
    let others = names.into_iter().filter(|other| *other != NAME);
    let near = nearest(name, others.map(|other| (other, other)));
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    Some(format!("no series has the label {name:?}{near}"))
}

/// Nearest name, of pairs of what is compared and what is returned.
fn nearest<'a>(found: &str, names: impl Iterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let max = 1 + found.chars().count().min(40) / 3;
    let near = names.filter_map(|(compared, name)| {
        let distance = query::edit_distance(found, compared, max)?;
        Some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

fn without_suffix(name: &str) -> &str {
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

fn without_suffix_pair(name: &str) -> (&str, &str) {
    (without_suffix(name), name)
}
