//! Selectors of a rule that select nothing: a rule with a misspelt name is as quiet as a good one.
//!
//! A rule can match if the selectors that its result needs have data. `absent` needs none, `unless`
//! none of the right, and `or` those of one side.

use std::ops::Range;

use model::Selector;
use query::promql::{self, BinaryOp, Expr, ExprKind, VectorSelector};
use query::{Language, SeriesHandle, Source};

use crate::alert_series::{ALERTS, ALERTS_FOR_STATE};
use crate::evaluator::{OverlayEvaluator as _, RuleQueryError};
use crate::overlay::{SampleOverlay, SourceEvaluator};
use crate::own::{RuleSource, query_selectors};
use crate::rule_file::Rule;

/// Selector without data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedSelector {
    /// As written; of CAQL the query.
    pub selector: String,
    /// What may have been meant, such as `did you mean the metric "latency"?`.
    pub hint: Option<String>,
}

/// Selectors of a rule that have no data in a range (start exclusive, end inclusive), so that its
/// result is empty. Of CAQL none is named if one has data, and formulas are not examined.
pub fn unmatched_selectors(
    rule: &Rule,
    evaluator: &SourceEvaluator<'_>,
    range: &Range<i64>,
) -> Result<Vec<UnmatchedSelector>, RuleQueryError> {
    let check = SelectorCheck { expression: &rule.expression, evaluator, range };
    let Some(own) = rule.condition() else { return check.of_expression() };
    match &own.source {
        RuleSource::Formula(_) => Ok(Vec::new()),
        RuleSource::Selector(selector) => check.of_selector(selector),
        RuleSource::Query(Language::PromQl) => check.of_expression(),
        RuleSource::Query(Language::Caql) => check.of_caql(own.window_ns),
    }
}

/// How a selector finds classic histograms, whose buckets are stored as counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClassicUse {
    /// By the names of the counters only.
    AsStored,
    /// By the name of the histogram.
    AsHistogram,
}

impl ClassicUse {
    /// Of the selectors directly below an expression.
    pub(crate) fn below(expression: &ExprKind, above: ClassicUse) -> ClassicUse {
        match expression {
            ExprKind::Call { function, .. } if function.finds_classic_histograms() => {
                ClassicUse::AsHistogram
            }
            ExprKind::Paren(_) => above,
            _ => ClassicUse::AsStored,
        }
    }

    /// Series that a selector finds in a range.
    pub(crate) fn select(
        self,
        source: &dyn Source,
        selector: &Selector,
        range: &Range<i64>,
    ) -> query::Result<Vec<SeriesHandle>> {
        let mut found = source.select_in_range(selector, range)?;
        if self == ClassicUse::AsHistogram {
            source.add_classic(selector, &mut found)?;
        }
        Ok(found)
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
        if self.has_rows(selector, ClassicUse::AsHistogram)? {
            return Ok(Vec::new());
        }
        let hint = self.hint(selector)?;
        Ok(vec![UnmatchedSelector { selector: self.expression.to_owned(), hint }])
    }

    fn of_expression(&self) -> CheckResult<Vec<UnmatchedSelector>> {
        // The check of the file has reported an expression that cannot be parsed.
        let Ok(parsed) = promql::parse(self.expression, &self.evaluator.options) else {
            return Ok(Vec::new());
        };
        let mut unmatched: Vec<UnmatchedSelector> = Vec::new();
        for missing in self.missing(&parsed, ClassicUse::AsStored)? {
            let selector = self.text(&missing).to_owned();
            if !unmatched.iter().any(|known| known.selector == selector) {
                let hint = self.hint(&promql::selector_of(&missing).map_err(failed)?)?;
                unmatched.push(UnmatchedSelector { selector, hint });
            }
        }
        Ok(unmatched)
    }

    /// Only if nothing that it looks for has data: what it does without some of it depends on its
    /// functions.
    fn of_caql(&self, window_ns: i64) -> CheckResult<Vec<UnmatchedSelector>> {
        let window = self.range.end.saturating_sub(window_ns)..self.range.end;
        let selectors = query_selectors(self.evaluator, Language::Caql, self.expression, window)?;
        let mut hint = None;
        for selector in &selectors {
            if self.has_rows(selector, ClassicUse::AsStored)? {
                return Ok(Vec::new());
            }
            if hint.is_none() {
                hint = self.hint(selector)?;
            }
        }
        let is_unmatched = !selectors.is_empty();
        let unmatched = || UnmatchedSelector { selector: self.expression.to_owned(), hint };
        Ok(is_unmatched.then(unmatched).into_iter().collect())
    }

    fn text(&self, selector: &VectorSelector) -> &str {
        self.expression.get(selector.span.start..selector.span.end).unwrap_or_default()
    }

    /// Selectors without data because of which an expression has no result; empty if it can have
    /// one.
    fn missing(&self, expression: &Expr, classic: ClassicUse) -> CheckResult<Vec<VectorSelector>> {
        let below = ClassicUse::below(&expression.kind, classic);
        match &expression.kind {
            ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
                Ok(if self.has_data(selector, classic)? {
                    Vec::new()
                } else {
                    vec![selector.clone()]
                })
            }
            ExprKind::Call { function, .. } if function.name.starts_with("absent") => {
                Ok(Vec::new())
            }
            ExprKind::Binary { op: BinaryOp::Unless, left, .. } => self.missing(left, below),
            ExprKind::Binary { op: BinaryOp::Or, left, right, .. } => {
                let mut left = self.missing(left, below)?;
                let right = self.missing(right, below)?;
                if left.is_empty() || right.is_empty() {
                    return Ok(Vec::new());
                }
                left.extend(right);
                Ok(left)
            }
            _ => {
                let mut missing = Vec::new();
                for child in expression.children() {
                    missing.extend(self.missing(child, below)?);
                }
                Ok(missing)
            }
        }
    }

    fn has_rows(&self, selector: &Selector, classic: ClassicUse) -> CheckResult<bool> {
        let source = self.evaluator.source;
        let found = classic.select(source, selector, self.range).map_err(failed)?;
        if found.is_empty() {
            return Ok(false);
        }
        Ok(source.time_range(&found, self.range.clone()).map_err(failed)?.is_some())
    }

    fn has_data(&self, selector: &VectorSelector, classic: ClassicUse) -> CheckResult<bool> {
        // Nobody can tell whether an alert is to fire.
        if matches!(&*selector.name, ALERTS | ALERTS_FOR_STATE) {
            return Ok(true);
        }
        let stored = promql::selector_of(selector).map_err(failed)?;
        if self.has_rows(&stored, classic)? {
            return Ok(true);
        }
        has_computed_data(self.evaluator, self.text(selector), self.range)
    }

    fn hint(&self, selector: &Selector) -> CheckResult<Option<String>> {
        query::selector_hint(self.evaluator.source, selector).map_err(failed)
    }
}

/// Whether a selector has data by other names of its series: `x_bucket` of a histogram `x`.
pub(crate) fn has_computed_data(
    evaluator: &SourceEvaluator<'_>,
    selector: &str,
    range: &Range<i64>,
) -> CheckResult<bool> {
    let seconds = range.end.saturating_sub(range.start) / 1_000_000_000;
    let query = format!("count(last_over_time({selector}[{seconds}s]))");
    let found = evaluator.instant_over(&SampleOverlay::default(), &query, range.end)?;
    Ok(!found.is_empty())
}
