//! Values above the threshold that an expression names, while its alerts fired.
//!
//! A threshold is named by a comparison of a statistic of one distribution with a number
//! (`histogram_quantile(0.99, …) > 0.25`), or is an argument of a function of a distribution
//! (`histogram_fraction(0, 0.25, …) < 0.99`). The values are those of the selected series with the
//! labels of the alert.

use hist::Bracket;
use query::LabelSet;
use query::promql::{self, BinaryOp, Expr, ExprKind, MatchOp, VectorSelector};

use super::alert_trace::ReplayedAlert;
use super::data_check::push_selectors;
use super::{QueryMemory, ReplayInputs};
use crate::evaluator::OverlayEvaluator as _;
use crate::overlay::{SampleOverlay, SourceEvaluator};
use crate::rule_file::Rule;

/// Periods of firing of a rule for which values are counted; each needs a query.
const PERIODS_MAX: usize = 500;

/// Number of values above a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct ThresholdExcess {
    /// Threshold as written.
    pub threshold: String,
    /// Number of values.
    pub values: Bracket,
}

/// Threshold that an expression names, and the distribution that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedThreshold {
    /// Threshold as written.
    pub threshold: String,
    /// Selector of the distribution; of buckets, that of their histogram.
    pub selector: String,
}

impl NamedThreshold {
    /// Threshold of an expression; `None` if it names none of one distribution.
    pub fn of(expression: &str) -> Option<NamedThreshold> {
        let (threshold, selector) = find_threshold(expression)?;
        let selector = histogram_selector(&selector, &LabelSet::default());
        Some(NamedThreshold { threshold, selector })
    }
}

/// Threshold as written, and the selector of the distribution.
fn find_threshold(expression: &str) -> Option<(String, VectorSelector)> {
    let parsed = promql::parse(expression, &promql::Options::all()).ok()?;
    let (compared, number) = comparison(&parsed)?;
    let call = distribution_call(compared)?;
    let ExprKind::Call { function, args } = &call.kind else { return None };
    let threshold = match (function.name, &args[..]) {
        ("histogram_quantile" | "histogram_max" | "histogram_avg", _) => number,
        ("histogram_count_above" | "users_affected", [limit, ..]) => limit,
        // The share of good values is from 0 to the threshold, that of bad ones from it on.
        ("histogram_fraction", [low, high, _]) => match low.kind {
            ExprKind::Number(0.0) => high,
            _ => low,
        },
        ("histogram_count_between", [low, ..]) => low,
        _ => return None,
    };
    if !matches!(threshold.kind, ExprKind::Number(_) | ExprKind::Duration(_)) {
        return None;
    }
    let mut selectors = Vec::new();
    push_selectors(call, &mut selectors);
    let [selector] = &selectors[..] else { return None };
    let text = expression.get(threshold.span.start..threshold.span.end)?;
    Some((text.to_owned(), selector.clone()))
}

/// Compared vector and number of the outermost comparison.
fn comparison(expression: &Expr) -> Option<(&Expr, &Expr)> {
    match &expression.kind {
        ExprKind::Paren(inner) => comparison(inner),
        ExprKind::Binary { op, left, right, .. } if op.is_comparison() => {
            let is_number =
                |side: &Expr| matches!(side.kind, ExprKind::Number(_) | ExprKind::Duration(_));
            match (is_number(left), is_number(right)) {
                (false, true) => Some((left, right)),
                (true, false) => Some((right, left)),
                _ => None,
            }
        }
        // `… > 0.25 and … > 10`: the first one that has a threshold of a distribution.
        ExprKind::Binary { op: BinaryOp::And, left, right, .. } => [left, right]
            .into_iter()
            .filter_map(|side| comparison(side))
            .find(|(compared, _)| distribution_call(compared).is_some()),
        _ => None,
    }
}

/// Outermost function of a distribution, such as `histogram_quantile(…)`.
fn distribution_call(expression: &Expr) -> Option<&Expr> {
    match &expression.kind {
        ExprKind::Call { function, .. }
            if function.name.starts_with("histogram_") || function.name == "users_affected" =>
        {
            Some(expression)
        }
        ExprKind::Selector(_) | ExprKind::Matrix { .. } => None,
        _ => expression.children().into_iter().find_map(distribution_call),
    }
}

/// Values above the threshold of a rule while its alerts fired.
pub(super) fn count_above(
    rule: &Rule,
    alerts: &[ReplayedAlert],
    inputs: &ReplayInputs<'_>,
) -> Option<ThresholdExcess> {
    let (threshold, selector) = find_threshold(&rule.expression)?;
    if alerts.iter().map(|alert| alert.firing.len()).sum::<usize>() > PERIODS_MAX {
        return None;
    }
    let mut values = Bracket::exact(0.0);
    for alert in alerts {
        let matchers = histogram_selector(&selector, &alert.series);
        for period in &alert.firing {
            let range_ms = (period.end - period.start).div_euclid(1_000_000).max(1);
            let increase = format!("exact_increase({matchers}[{range_ms}ms])");
            let query = format!("sum(histogram_count_above({threshold}, {increase}))");
            let source = (inputs.open_source)();
            let memory = QueryMemory::new(inputs.context);
            let evaluator = SourceEvaluator {
                source: &*source,
                settings: inputs.settings,
                options: inputs.options,
                context: &memory,
            };
            let found =
                evaluator.instant_over(&SampleOverlay::default(), &query, period.end).ok()?;
            let found = found.first()?.value.bracket()?;
            values.lower += found.lower;
            values.estimate += found.estimate;
            values.upper += found.upper;
        }
    }
    Some(ThresholdExcess { threshold, values })
}

/// Selector with further labels. Buckets are selected by the name of their histogram.
fn histogram_selector(selector: &VectorSelector, labels: &LabelSet) -> String {
    let mut parts = Vec::new();
    let mut name = "";
    for matcher in &selector.matchers {
        let is_name = matcher.name == query::NAME && matcher.op == MatchOp::Equal;
        let buckets = matcher.value.strip_suffix("_bucket").filter(|_| is_name);
        if matcher.name == "le" {
            continue;
        }
        let value = buckets.unwrap_or(&matcher.value);
        if is_name && is_plain_name(value) {
            name = value;
            continue;
        }
        let label = label_text(&matcher.name);
        parts.push(format!("{label}{}{value:?}", matcher.op.text()));
    }
    parts.extend(labels.iter().map(|(label, value)| format!("{}={value:?}", label_text(label))));
    match parts.is_empty() {
        true => name.to_owned(),
        false => format!("{name}{{{}}}", parts.join(", ")),
    }
}

fn label_text(label: &str) -> String {
    if is_plain_name(label) { label.to_owned() } else { format!("{label:?}") }
}

fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: Option<(&str, &str)>) {
        let found = find_threshold(expression);
        let found = found.as_ref().map(|(text, selector)| (&text[..], &selector.name[..]));
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn the_selector_is_that_of_the_histogram() {
        let selector = |text: &str| NamedThreshold::of(text).map(|found| found.selector);
        let buckets = "x_seconds_bucket{job=~\"a|b\", le=\"1\"}";
        let quantile = format!("histogram_quantile(0.9, rate({buckets}[5m])) > 1");
        assert_eq!(selector(&quantile).as_deref(), Some("x_seconds{job=~\"a|b\"}"));
        let dotted = "histogram_max({\"x.y\", \"a.b\"=\"c\"}) > 1";
        let expected = "{__name__=\"x.y\", \"a.b\"=\"c\"}";
        assert_eq!(selector(dotted).map(|text| sorted(&text)), Some(sorted(expected)));
        assert_eq!(selector("histogram_max(x) > 1").as_deref(), Some("x"));
    }

    /// The order of matchers is that of the parser.
    fn sorted(selector: &str) -> Vec<String> {
        let inner = selector.trim_start_matches('{').trim_end_matches('}');
        let mut parts: Vec<String> = inner.split(", ").map(str::to_owned).collect();
        parts.sort();
        parts
    }

    #[test]
    fn a_threshold_of_a_distribution_is_found() {
        let quantile = "histogram_quantile(0.99, sum by (le) (rate(x_seconds_bucket[5m])))";
        check(&format!("{quantile} > 0.25"), Some(("0.25", "x_seconds_bucket")));
        check(&format!("250ms < ({quantile})"), Some(("250ms", "x_seconds_bucket")));
        check(&format!("rate(n[5m]) > 9 and {quantile} >= 2"), Some(("2", "x_seconds_bucket")));
        check("histogram_fraction(0, 0.25, rate(x[5m])) < 0.99", Some(("0.25", "x")));
        check("histogram_fraction(0.25, +Inf, rate(x[5m])) > 0.01", Some(("0.25", "x")));
        check("sum(histogram_count_above(1s, exact_increase(x[5m]))) > 10", Some(("1s", "x")));
        check("rate(errors_total[5m]) > 0.1", None);
        check("histogram_quantile(0.9, rate(x[5m]) - rate(y[5m])) > 1", None);
        check("histogram_quantile(0.9, x) > scalar(y)", None);
        check("up == 0", None);
    }
}
