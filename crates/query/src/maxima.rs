//! Maxima next to percentiles: for a query of percentiles, the query of the maximum of the same
//! distributions over the same windows.
//!
//! It is the same expression with `histogram_max(x)` in place of `histogram_quantile(q, x)`. If an
//! operation on the percentile would change the meaning of the maximum (`p99 > 1`, `topk(3, p99)`),
//! the maximum query omits the operation. If no maximum belongs to a single result (`p99 / p50`),
//! the maximum covers all of them.

use crate::caql;
use crate::engine::{QueryResult, ResultData};
use crate::labels::LabelSet;
use crate::promql::{self, AggregateOp, BinaryOp, Expr, ExprKind};
use crate::request::Language;
use crate::stream::Stream;

/// Maximum query of an expression with percentiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxQuery {
    /// The query text.
    pub expression: String,
    /// Whether each result stream belongs to the stream with the same labels; otherwise they are
    /// reported together.
    pub is_per_stream: bool,
    /// The label that distinguishes percentiles of the same distribution.
    pub by: Option<String>,
}

/// Maximum number of queries whose results are reported together.
const MERGED_QUERIES_MAX: usize = 3;

/// Maximum queries for the percentiles in an expression; empty without percentiles.
pub fn max_queries(text: &str, language: Language, options: &promql::Options) -> Vec<MaxQuery> {
    match language {
        Language::PromQl => promql_max_queries(text, options),
        Language::Caql => caql_max_queries(text),
    }
}

fn promql_max_queries(text: &str, options: &promql::Options) -> Vec<MaxQuery> {
    // The main query reports syntax errors.
    let Ok(expr) = promql::parse(text, options) else { return Vec::new() };
    if let Some((question, by)) = max_expression(text, &expr) {
        return vec![MaxQuery { expression: question, is_per_stream: true, by }];
    }
    let mut questions = Vec::new();
    collect_max_queries(text, &expr, &mut questions);
    questions.dedup();
    questions.truncate(MERGED_QUERIES_MAX);
    let together = |question| MaxQuery { expression: question, is_per_stream: false, by: None };
    questions.into_iter().map(together).collect()
}

/// The expression with percentiles replaced by maxima, if its streams stay the same, and the label
/// that distinguishes its percentiles.
fn max_expression(text: &str, expr: &Expr) -> Option<(String, Option<String>)> {
    let of = |expr: &Expr| text.get(expr.span.start..expr.span.end);
    // The expression with a part replaced.
    let with = |part: &Expr, (new, by): (String, Option<String>)| {
        let before = text.get(expr.span.start..part.span.start)?;
        let after = text.get(part.span.end..expr.span.end)?;
        Some((format!("{before}{new}{after}"), by))
    };
    match &expr.kind {
        ExprKind::Paren(inner) => max_expression(text, inner),
        ExprKind::Call { function, args } => match function.name {
            "histogram_quantile" => Some((format!("histogram_max({})", of(args.get(1)?)?), None)),
            "histogram_quantiles" => {
                let ExprKind::Text(by) = &args.get(1)?.unwrap_parens().kind else { return None };
                Some((format!("histogram_max({})", of(args.first()?)?), Some(by.clone())))
            }
            "quantile_over_time" => {
                // The greatest of several percentiles is not a maximum.
                let samples = args.get(1)?;
                let question = format!("max_over_time({})", of(samples)?);
                Some(match contains_percentile(samples) {
                    true => max_expression(&question, &promql::parse(&question, &ALL).ok()?)?,
                    false => (question, None),
                })
            }
            "max_over_time" | "last_over_time" => {
                let ExprKind::Subquery { expr: inner, .. } = &args.first()?.unwrap_parens().kind
                else {
                    return None;
                };
                with(inner, max_expression(text, inner)?)
            }
            "label_replace" | "label_join" => {
                let inner = args.first()?;
                with(inner, max_expression(text, inner)?)
            }
            "sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc" | "round" | "ceil"
            | "floor" | "clamp" | "clamp_min" | "clamp_max" => max_expression(text, args.first()?),
            _ => None,
        },
        ExprKind::Aggregate { op, expr: inner, grouping, without, .. } => match op {
            AggregateOp::Quantile if !contains_percentile(inner) => {
                let by = if *without { "without" } else { "by" };
                let question = format!("max {by} ({}) ({})", grouping.join(", "), of(inner)?);
                Some((question, None))
            }
            AggregateOp::Max => with(inner, max_expression(text, inner)?),
            AggregateOp::TopK | AggregateOp::BottomK => max_expression(text, inner),
            _ => None,
        },
        ExprKind::Binary { op, left, right, return_bool, .. } => {
            let number = |side: &Expr| match side.unwrap_parens().kind {
                ExprKind::Number(number) => Some(number),
                _ => None,
            };
            let (part, number) = match (number(left), number(right)) {
                (None, Some(number)) => (left, number),
                (Some(number), None) if *op != BinaryOp::Divide => (right, number),
                _ => return None,
            };
            match op {
                op if op.is_comparison() && !return_bool => max_expression(text, part),
                BinaryOp::Add => with(part, max_expression(text, part)?),
                BinaryOp::Multiply | BinaryOp::Divide if number > 0.0 => {
                    with(part, max_expression(text, part)?)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

const ALL: promql::Options = promql::Options {
    experimental_functions: true,
    duration_expressions: true,
    extended_selectors: true,
    binop_fill: true,
    standard_only: false,
};

/// Whether an expression contains percentiles.
fn contains_percentile(expr: &Expr) -> bool {
    let is_percentile = match &expr.kind {
        ExprKind::Call { function, .. } => {
            matches!(
                function.name,
                "histogram_quantile" | "histogram_quantiles" | "quantile_over_time"
            )
        }
        ExprKind::Aggregate { op, .. } => *op == AggregateOp::Quantile,
        _ => false,
    };
    is_percentile || expr.children().into_iter().any(contains_percentile)
}

/// Collects distinct maximum queries for percentiles anywhere in an expression. Subqueries are
/// skipped: their windows differ from those of the result.
fn collect_max_queries(text: &str, expr: &Expr, questions: &mut Vec<String>) {
    if matches!(expr.kind, ExprKind::Subquery { .. }) {
        return;
    }
    match max_expression(text, expr).filter(|_| contains_percentile(expr)) {
        Some((question, _)) if !questions.contains(&question) => questions.push(question),
        Some(_) => {}
        None => expr
            .children()
            .into_iter()
            .for_each(|child| collect_max_queries(text, child, questions)),
    }
}

/// Maximum queries of a CAQL expression: percentiles of histograms and over streams.
fn caql_max_queries(text: &str) -> Vec<MaxQuery> {
    let Ok(caql::CaqlQuery { body: caql::Body::Caql(expr), .. }) = caql::parse(text) else {
        return Vec::new();
    };
    let by = Some(caql::LEGEND.to_owned());
    let mut root = &expr;
    // `label` calls do not change values.
    while let caql::CaqlExprKind::Call(call) = &root.kind
        && let ("label", [source]) = (call.name.as_str(), &call.inputs[..])
    {
        root = source;
    }
    if let Some(question) = caql_max_expression(text, root) {
        return vec![MaxQuery { expression: question, is_per_stream: true, by }];
    }
    let mut questions = Vec::new();
    collect_caql_max_queries(text, root, &mut questions);
    questions.truncate(MERGED_QUERIES_MAX);
    let together = |question| MaxQuery { expression: question, is_per_stream: false, by: None };
    questions.into_iter().map(together).collect()
}

/// The maximum expression for a percentile call.
fn caql_max_expression(text: &str, expr: &caql::CaqlExpr) -> Option<String> {
    let caql::CaqlExprKind::Call(call) = &expr.kind else { return None };
    let maximum = match call.name.as_str() {
        "histogram:percentile" | "histogram:quantile" | "histogram:median" => "histogram:max",
        "stats:percentile" => "stats:max",
        _ => return None,
    };
    let of = |source: &caql::CaqlExpr| text.get(source.span.start..source.span.end);
    let inputs: Vec<&str> = call.inputs.iter().map(of).collect::<Option<_>>()?;
    Some(format!("{maximum}(){{{}}}", inputs.join(", ")))
}

fn collect_caql_max_queries(text: &str, expr: &caql::CaqlExpr, questions: &mut Vec<String>) {
    if let Some(question) = caql_max_expression(text, expr) {
        if !questions.contains(&question) {
            questions.push(question);
        }
        return;
    }
    let children = match &expr.kind {
        caql::CaqlExprKind::Call(call) => &call.inputs,
        caql::CaqlExprKind::Operation { operands, .. } => operands,
        caql::CaqlExprKind::Literal(_) => return,
    };
    children.iter().for_each(|child| collect_caql_max_queries(text, child, questions));
}

/// Result of a maximum query.
#[derive(Debug, Default)]
pub struct Maxima {
    /// The query text.
    pub expression: String,
    /// The maxima.
    pub streams: Vec<Stream>,
    /// Unit of the maxima.
    pub unit: Option<String>,
    /// Whether each maximum belongs to a stream of the result.
    pub is_per_stream: bool,
    /// The label that the result's streams have and the maxima lack.
    pub by: Option<String>,
}

impl Maxima {
    /// The result of a maximum query, beside the streams that it is for. `None` if it has no
    /// streams.
    pub fn new(query: MaxQuery, result: QueryResult, streams: &[Stream]) -> Option<Maxima> {
        let MaxQuery { expression, is_per_stream, by } = query;
        let (ResultData::Vector(found) | ResultData::Matrix(found)) = result.data else {
            return None;
        };
        let mut maxima =
            Maxima { expression, streams: found, unit: result.unit, is_per_stream, by };
        maxima.is_per_stream =
            streams.iter().any(|stream| maxima.stream_for(&stream.labels).is_some());
        Some(maxima)
    }

    /// The maximum that belongs to a stream.
    pub fn stream_for(&self, labels: &LabelSet) -> Option<&Stream> {
        let group_labels = match &self.by {
            Some(by) => labels.with(by, ""),
            None => labels.clone(),
        };
        let of = |labels: &LabelSet| labels.with(caql::LEGEND, "").without_metadata();
        let mut same = self.streams.iter().filter(|stream| of(&stream.labels) == of(&group_labels));
        // Two matches are ambiguous.
        same.next().filter(|_| self.is_per_stream && same.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let wanted = max_queries(text, Language::PromQl, &promql::Options::all());
        let questions: Vec<String> = wanted
            .iter()
            .map(|of| {
                format!("{}{}", if of.is_per_stream { "" } else { "together: " }, of.expression)
            })
            .collect();
        assert_eq!(questions, expected, "{text}");
    }

    #[test]
    fn percentiles_query_the_maximum_of_their_input() {
        check("histogram_quantile(0.99, sum(rate(a[5m])))", &["histogram_max(sum(rate(a[5m])))"]);
        check("(histogram_quantile(0.99, a)) * 1000", &["histogram_max(a) * 1000"]);
        check("1000 * histogram_quantile(0.99, a)", &["1000 * histogram_max(a)"]);
        check("topk(3, histogram_quantile(0.99, a) > 0.5)", &["histogram_max(a)"]);
        check("sort_desc(histogram_quantile(0.9, a))", &["histogram_max(a)"]);
        check(r#"histogram_quantiles(a, "q", 0.5, 0.9)"#, &["histogram_max(a)"]);
        check("quantile by (host) (0.9, depth)", &["max by (host) (depth)"]);
        check("quantile_over_time(0.9, depth[1h])", &["max_over_time(depth[1h])"]);
        check(
            "max_over_time(histogram_quantile(0.99, exact_increase(a[5m]))[1h:5m])",
            &["max_over_time(histogram_max(exact_increase(a[5m]))[1h:5m])"],
        );
        check(
            r#"label_replace(histogram_quantile(0.5, a), "x", "$1", "y", "(.*)")"#,
            &[r#"label_replace(histogram_max(a), "x", "$1", "y", "(.*)")"#],
        );
    }

    #[test]
    fn caql_percentiles_query_the_maximum() {
        let of = |text: &str| -> Vec<(String, bool)> {
            let wanted = caql_max_queries(text).into_iter();
            wanted.map(|wanted| (wanted.expression, wanted.is_per_stream)).collect()
        };
        let found = r#"find:histogram("lat") | histogram:merge()"#;
        let max = format!("histogram:max(){{{found}}}");
        for last in ["percentile(99)", "median()", r#"percentile(50, 99) | label("p")"#] {
            assert_eq!(of(&format!("{found} | histogram:{last}")), [(max.clone(), true)], "{last}");
        }
        assert_eq!(
            of(&format!("{found} | histogram:percentile(99) | each:mul(2)")),
            [(max, false)]
        );
        assert_eq!(of(&format!("{found} | histogram:count()")), []);
    }

    #[test]
    fn merged_streams_have_a_separate_maximum() {
        check(
            "histogram_quantile(0.99, a) / histogram_quantile(0.5, a)",
            &["together: histogram_max(a)"],
        );
        check(
            "histogram_quantile(0.99, a) - histogram_quantile(0.99, b)",
            &["together: histogram_max(a)", "together: histogram_max(b)"],
        );
        check("-histogram_quantile(0.99, a)", &["together: histogram_max(a)"]);
        check("histogram_count(a)", &[]);
        check("histogram_quantile(", &[]);
    }
}
