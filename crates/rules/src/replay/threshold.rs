//! Values above the threshold that an expression names, while its alerts fired.
//!
//! A threshold is named by a comparison of a statistic of one distribution with a number
//! (`histogram_quantile(0.99, …) > 0.25`), or is an argument of a function of a distribution
//! (`histogram_fraction(0, 0.25, …) < 0.99`). The comparison must hold because values are above the
//! threshold: `histogram_quantile(0.5, …) < 0.001` is about fast requests, and names none. The
//! values are those of the selected series with the labels of the alert.

use hist::Bracket;
use query::promql::{self, AggregateOp, BinaryOp, Expr, ExprKind, MatchOp, VectorSelector};
use query::{LabelSet, Language, QueryRequest, execute};

use super::alert_trace::ReplayedAlert;
use super::data_check::push_selectors;
use super::{QueryMemory, ReplayInputs, own_excess};
use crate::evaluator::OverlayEvaluator as _;
use crate::overlay::{SampleOverlay, SourceEvaluator};
use crate::own::is_absence_series;
use crate::rule_file::Rule;

/// Periods of firing of a rule for which values are counted; each needs a query.
const PERIODS_MAX: usize = 500;

/// Number of values above a threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct ThresholdExcess {
    /// Threshold as written.
    pub threshold: String,
    /// Unit of a threshold that is written as a bare number, if it is known.
    pub unit: Option<String>,
    /// Number of values.
    pub values: Bracket,
}

/// Threshold that an expression contains, and the distribution that it is of. Values above it are
/// why the expression has a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleThreshold {
    /// Threshold as written.
    pub threshold: String,
    /// Selector of the distribution; of buckets, that of their histogram.
    pub selector: String,
}

impl RuleThreshold {
    /// Threshold of the first criterion of an own rule that has one of a distribution, and the
    /// rule's selector; of a rule of Prometheus, that of its expression. `None` without one.
    pub fn of_rule(rule: &Rule) -> Option<RuleThreshold> {
        let Some(own) = rule.condition() else { return RuleThreshold::of(&rule.expression) };
        own.selector()?;
        let threshold = own.first_limit_text()?;
        Some(RuleThreshold { threshold, selector: rule.expression.clone() })
    }

    /// Threshold of an expression; `None` if it contains none of one distribution.
    pub fn of(expression: &str) -> Option<RuleThreshold> {
        let (threshold, selector) = find_threshold(expression)?;
        let selector = histogram_selector(&selector, &LabelSet::default());
        Some(RuleThreshold { threshold, selector })
    }
}

/// Threshold as written, and the selector of the distribution.
fn find_threshold(expression: &str) -> Option<(String, VectorSelector)> {
    let parsed = promql::parse(expression, &promql::Options::all()).ok()?;
    let (call, threshold) = find_comparison(&parsed)?;
    let mut selectors = Vec::new();
    push_selectors(call, &mut selectors);
    let [selector] = &selectors[..] else { return None };
    let text = expression.get(threshold.span.start..threshold.span.end)?;
    Some((text.to_owned(), selector.clone()))
}

/// Function of a distribution and its threshold, of the outermost comparison.
fn find_comparison(expression: &Expr) -> Option<(&Expr, &Expr)> {
    match &expression.kind {
        ExprKind::Paren(inner) => find_comparison(inner),
        ExprKind::Binary { op: BinaryOp::Unless, left, .. } => find_comparison(left),
        // `… > 0.25 and … > 10`: the first one that has a threshold of a distribution.
        ExprKind::Binary { op: BinaryOp::And, left, right, .. } => {
            [left, right].into_iter().find_map(|side| find_comparison(side))
        }
        ExprKind::Binary { op, left, right, return_bool: false, .. } => {
            let is_above = match op {
                BinaryOp::Greater | BinaryOp::GreaterOrEqual => true,
                BinaryOp::Less | BinaryOp::LessOrEqual => false,
                _ => return None,
            };
            match (number(left), number(right)) {
                (None, Some(_)) => threshold_of(left, right, is_above),
                (Some(_), None) => threshold_of(right, left, !is_above),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Function of a distribution that a value above a number, or below it, follows, and the threshold
/// above which values are why it does.
fn threshold_of<'a>(
    compared: &'a Expr,
    limit: &'a Expr,
    is_above: bool,
) -> Option<(&'a Expr, &'a Expr)> {
    let (call, trend) = distribution_call(compared)?;
    let ExprKind::Call { function, args } = &call.kind else { return None };
    let is_great = is_above == (trend != StatisticTrend::Falling);
    let threshold = match (function.name, &args[..], is_great) {
        ("histogram_quantile" | "histogram_max" | "histogram_avg", _, true)
            if trend == StatisticTrend::Equal =>
        {
            limit
        }
        ("histogram_count_above" | "users_affected", [limit, ..], true) => limit,
        // The share of good values is from 0 to the threshold, that of bad ones from it on.
        ("histogram_fraction", [low, high, _], false) if number(low)? <= 0.0 => high,
        ("histogram_fraction" | "histogram_count_between", [low, high, _], true)
            if number(high)? == f64::INFINITY =>
        {
            low
        }
        _ => return None,
    };
    number(threshold).is_some_and(f64::is_finite).then_some((call, threshold))
}

fn number(expression: &Expr) -> Option<f64> {
    match expression.kind {
        ExprKind::Number(number) | ExprKind::Duration(number) => Some(number),
        _ => None,
    }
}

/// How a value follows the statistic of a distribution that it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatisticTrend {
    /// It is the statistic, of one or several distributions.
    Equal,
    /// It is greater if the statistic is.
    Rising,
    /// It is less if the statistic is greater.
    Falling,
}

impl StatisticTrend {
    /// That of a value that rises with this one.
    fn risen(self) -> StatisticTrend {
        match self {
            StatisticTrend::Equal | StatisticTrend::Rising => StatisticTrend::Rising,
            StatisticTrend::Falling => StatisticTrend::Falling,
        }
    }

    /// That of a value that falls as this one rises.
    fn reversed(self) -> StatisticTrend {
        match self {
            StatisticTrend::Equal | StatisticTrend::Rising => StatisticTrend::Falling,
            StatisticTrend::Falling => StatisticTrend::Rising,
        }
    }
}

/// Outermost function of a distribution, such as `histogram_quantile(…)`, and how the value of an
/// expression follows it; `None` if that is not known.
fn distribution_call(expression: &Expr) -> Option<(&Expr, StatisticTrend)> {
    let risen = |(call, trend): (_, StatisticTrend)| (call, trend.risen());
    match &expression.kind {
        ExprKind::Paren(inner) | ExprKind::Subquery { expr: inner, .. } => distribution_call(inner),
        ExprKind::Unary { negative: false, expr } => distribution_call(expr),
        ExprKind::Unary { expr, .. } => {
            distribution_call(expr).map(|(call, trend)| (call, trend.reversed()))
        }
        ExprKind::Call { function, args } => match function.name {
            name if name.starts_with("histogram_") || name == "users_affected" => {
                Some((expression, StatisticTrend::Equal))
            }
            "avg_over_time" | "last_over_time" | "max_over_time" | "min_over_time"
            | "label_join" | "label_replace" | "sort" | "sort_desc" => {
                distribution_call(args.first()?)
            }
            "quantile_over_time" => distribution_call(args.get(1)?),
            "sum_over_time" => distribution_call(args.first()?).map(risen),
            "burn_rate" => args.iter().find_map(distribution_call).map(risen),
            _ => None,
        },
        ExprKind::Aggregate { op, expr, .. } => match op {
            AggregateOp::Avg
            | AggregateOp::BottomK
            | AggregateOp::LimitK
            | AggregateOp::LimitRatio
            | AggregateOp::Max
            | AggregateOp::Min
            | AggregateOp::Quantile
            | AggregateOp::TopK => distribution_call(expr),
            AggregateOp::Sum => distribution_call(expr).map(risen),
            _ => None,
        },
        ExprKind::Binary { op, left, .. } if op.is_set() => distribution_call(left),
        ExprKind::Binary { op, left, right, .. } => arithmetic_call(*op, left, right),
        _ => None,
    }
}

/// That of a calculation: what is not the distribution counts as positive.
fn arithmetic_call<'a>(
    op: BinaryOp,
    left: &'a Expr,
    right: &'a Expr,
) -> Option<(&'a Expr, StatisticTrend)> {
    let is_negative = |side: &Expr| number(side).is_some_and(|number| number < 0.0);
    let (left_call, right_call) = (distribution_call(left), distribution_call(right));
    let (call, trend) = left_call.or(right_call)?;
    let trend = match op {
        BinaryOp::Multiply | BinaryOp::Divide if is_negative(left) || is_negative(right) => {
            return None;
        }
        BinaryOp::Add | BinaryOp::Multiply => trend.risen(),
        BinaryOp::Subtract | BinaryOp::Divide if left_call.is_some() => trend.risen(),
        BinaryOp::Subtract | BinaryOp::Divide => trend.reversed(),
        _ => return None,
    };
    Some((call, trend))
}

/// Values above the threshold of a rule while its alerts fired.
pub(super) fn count_above(
    rule: &Rule,
    alerts: &[ReplayedAlert],
    inputs: &ReplayInputs<'_>,
) -> Option<ThresholdExcess> {
    let alerts: Vec<&ReplayedAlert> =
        alerts.iter().filter(|alert| !is_absence_series(&alert.series)).collect();
    if alerts.iter().map(|alert| alert.firing.len()).sum::<usize>() > PERIODS_MAX {
        return None;
    }
    let last = alerts.iter().flat_map(|alert| &alert.firing).map(|period| period.end).max();
    let unit = |threshold: &str| unit_of_number(threshold, rule, last?, inputs);
    if let Some(own) = rule.condition() {
        let found = own_excess::count_above(own, &alerts, inputs)?;
        return Some(ThresholdExcess { unit: unit(&found.threshold), ..found });
    }
    let (threshold, selector) = find_threshold(&rule.expression)?;
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
    Some(ThresholdExcess { unit: unit(&threshold), threshold, values })
}

/// Unit of a threshold that is a bare number: that of the values.
fn unit_of_number(
    threshold: &str,
    rule: &Rule,
    time_ns: i64,
    inputs: &ReplayInputs<'_>,
) -> Option<String> {
    threshold.trim().parse::<f64>().ok()?;
    let selector = RuleThreshold::of_rule(rule)?.selector;
    let request = QueryRequest {
        text: &format!("exact_increase({selector}[1m])"),
        language: Language::PromQl,
        start: time_ns,
        end: time_ns,
        step: 0,
        options: inputs.options,
    };
    let memory = QueryMemory::new(inputs.context);
    let source = (inputs.open_source)();
    execute(&*source, &request, inputs.settings, &memory).ok()?.unit
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
        let selector = |text: &str| RuleThreshold::of(text).map(|found| found.selector);
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

    #[test]
    fn values_above_a_threshold_are_why_the_comparison_holds() {
        const FOUND: Option<(&str, &str)> = Some(("0.25", "x"));
        for statistic in
            ["histogram_quantile(0.5, x)", "histogram_max(x)", "max by (a) (histogram_avg(x))"]
        {
            for (comparison, expected) in
                [("> 0.25", FOUND), (">= 0.25", FOUND), ("< 0.25", None), ("<= 0.25", None)]
            {
                check(&format!("{statistic} {comparison}"), expected);
            }
            check(&format!("0.25 < {statistic}"), FOUND);
            check(&format!("0.25 <= {statistic}"), FOUND);
            check(&format!("0.25 > {statistic}"), None);
            check(&format!("{statistic} == 0.25"), None);
            check(&format!("{statistic} != 0.25"), None);
            check(&format!("{statistic} > bool 0.25"), None);
            check(&format!("-{statistic} > 0.25"), None);
            // Another quantity than the statistic.
            check(&format!("{statistic} * 1000 > 0.25"), None);
            check(&format!("{statistic} / {statistic} > 0.25"), None);
            check(&format!("sum({statistic}) > 0.25"), None);
            check(&format!("count({statistic}) > 0.25"), None);
            check(&format!("max_over_time({statistic}[1h:]) > 0.25"), FOUND);
            check(&format!("({statistic} > 0.25) unless on () maintenance"), FOUND);
            // The other side has the threshold.
            check(&format!("{statistic} < 9 and histogram_max(x) > 0.25"), FOUND);
        }
        let share = "histogram_fraction(0, 0.25, x)";
        check(&format!("{share} < 0.9"), FOUND);
        check(&format!("0.9 >= {share}"), FOUND);
        check(&format!("{share} > 0.9"), None);
        check(&format!("1 - {share} > 0.1"), FOUND);
        check(&format!("(1 - {share}) / 0.001 > 14.4"), FOUND);
        check(&format!("1 - {share} < 0.1"), None);
        check(&format!("{share} * -1 > 0.1"), None);
        check("histogram_fraction(-Inf, 0.25, x) < 0.9", FOUND);
        check("histogram_fraction(0.25, +Inf, x) > 0.1", FOUND);
        check("histogram_fraction(0.25, +Inf, x) < 0.1", None);
        // Values above 1 are no reason.
        check("histogram_fraction(0.25, 1, x) > 0.1", None);
        check("histogram_count_between(0.25, +Inf, x) > 9", FOUND);
        check("histogram_count_between(0.25, 1, x) > 9", None);
        check("histogram_count_above(0.25, x) > 9", FOUND);
        check("histogram_count_above(0.25, x) / histogram_count(x) > 0.01", FOUND);
        check("histogram_count(x) / histogram_count_above(0.25, x) < 100", None);
        check("histogram_count_above(0.25, x) < 9", None);
        check("users_affected(0.25, 1000, x) > 9", FOUND);
        let counts = "histogram_count_above(0.25, x), histogram_count(x)";
        check(&format!("burn_rate(14.4, 0.001, {counts}, {counts}) > 14.4"), FOUND);
    }
}
