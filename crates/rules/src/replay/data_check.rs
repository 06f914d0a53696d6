//! Selectors of a rule that have no data in the range: a rule without data never fires, which must
//! not look like a quiet week.

use std::ops::Range;

use model::Selector;
use query::Source;
use query::promql::{self, Expr, ExprKind, VectorSelector};

use super::{ReplayInputs, RuleReplayError};
use crate::overlay::{ReplacedSamples, SourceEvaluator};
use crate::rule_file::Rule;
use crate::unmatched_selector::{ClassicUse, has_computed_data};

/// Lookback of an instant selector, as in Prometheus: data just before the range counts.
const LOOKBACK_NS: i64 = 5 * 60 * 1_000_000_000;

/// All selectors of an expression.
pub(super) fn selectors(expression: &str) -> Vec<VectorSelector> {
    selectors_by_use(expression).into_iter().map(|(selector, _)| selector).collect()
}

/// All selectors of an expression, and how it reads each.
fn selectors_by_use(expression: &str) -> Vec<(VectorSelector, ClassicUse)> {
    let mut found = Vec::new();
    if let Ok(parsed) = promql::parse(expression, &promql::Options::all()) {
        each_selector(&parsed, ClassicUse::AsStored, &mut |selector, classic| {
            found.push((selector.clone(), classic));
        });
    }
    found
}

/// Selectors below an expression.
pub(super) fn push_selectors(expression: &Expr, into: &mut Vec<VectorSelector>) {
    each_selector(expression, ClassicUse::AsStored, &mut |selector, _| into.push(selector.clone()));
}

fn each_selector(
    expression: &Expr,
    classic: ClassicUse,
    each: &mut dyn FnMut(&VectorSelector, ClassicUse),
) {
    match &expression.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
            each(selector, classic);
        }
        kind => {
            let classic = ClassicUse::below(kind, classic);
            expression.children().into_iter().for_each(|child| each_selector(child, classic, each));
        }
    }
}

/// Selectors without data. Those of metrics that the rules record are left out.
pub(super) fn selectors_without_data(
    rule: &Rule,
    range: &Range<i64>,
    inputs: &ReplayInputs<'_>,
    replaced: &ReplacedSamples,
) -> Result<Vec<String>, RuleReplayError> {
    let failed = |error: query::Error| match inputs.context.is_cancelled() {
        true => RuleReplayError::Cancelled,
        false => RuleReplayError::Source(error.to_string()),
    };
    let range = range.start.saturating_sub(LOOKBACK_NS)..range.end;
    let has_data = |source: &dyn Source, selector: &Selector, classic: ClassicUse| {
        let found = classic.select(source, selector, &range).map_err(failed)?;
        Ok::<_, RuleReplayError>(
            !found.is_empty()
                && source.time_range(&found, range.clone()).map_err(failed)?.is_some(),
        )
    };
    if let Some(own) = rule.condition().filter(|own| own.language() != "promql") {
        let Some(selector) = own.selector() else { return Ok(Vec::new()) };
        let source = (inputs.open_source)();
        let missing = (!has_data(&*source, selector, ClassicUse::AsHistogram)?)
            .then(|| rule.expression.clone());
        return Ok(missing.into_iter().collect());
    }
    let mut missing = Vec::new();
    for (selector, classic) in selectors_by_use(&rule.expression) {
        let is_own = replaced.metrics.contains(&selector.name)
            || matches!(&*selector.name, "ALERTS" | "ALERTS_FOR_STATE");
        if is_own {
            continue;
        }
        let source = (inputs.open_source)();
        let stored = promql::selector_of(&selector).map_err(failed)?;
        let has_data = has_data(&*source, &stored, classic)?;
        let text = rule.expression.get(selector.span.start..selector.span.end).unwrap_or_default();
        let evaluator = SourceEvaluator {
            source: &*source,
            settings: inputs.settings,
            options: inputs.options,
            context: inputs.context,
        };
        let is_cancelled = || inputs.context.is_cancelled();
        let has_data = has_data
            || match has_computed_data(&evaluator, text, &range) {
                Err(_) if is_cancelled() => return Err(RuleReplayError::Cancelled),
                // The evaluations report a query that fails.
                found => found.unwrap_or(false),
            };
        if !has_data && !missing.iter().any(|known| known == text) {
            missing.push(text.to_owned());
        }
    }
    Ok(missing)
}
