//! The maximum that stands beside every percentile: of a question that asks for percentiles, the question that asks
//! for the greatest value of the same distributions over the same windows.
//!
//! It is the same expression with `histogram_max(x)` in the place of `histogram_quantile(q, x)`. Where what is done
//! to the percentile would make something else of a maximum (`p99 > 1`, `topk(3, p99)`), it is asked without that;
//! and where nothing says which maximum belongs to which number (`p99 / p50`), for all of them together.

use query::caql;
use query::promql::{self, AggregateOp, BinaryOp, Expr, ExprKind};
use query::{Labels, Stream};

/// A maximum that is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What to ask.
    pub question: String,
    /// Each stream of the answer belongs beside one of these labels; else they are told together.
    pub is_beside: bool,
    /// The label that tells percentiles of the same distribution apart.
    pub by: Option<String>,
}

/// As many as a reader looks at where they are told together.
const TOGETHER_MAX: usize = 3;

/// The maxima that percentiles in an expression of PromQL want beside them; none if there is no percentile.
pub fn wanted(text: &str, options: &promql::Options) -> Vec<Wanted> {
    // What is wrong with the expression is told by whoever answers it.
    let Ok(expr) = promql::parse(text, options) else { return Vec::new() };
    if let Some((question, by)) = beside(text, &expr) {
        return vec![Wanted { question, is_beside: true, by }];
    }
    let mut questions = Vec::new();
    within(text, &expr, &mut questions);
    questions.dedup();
    questions.truncate(TOGETHER_MAX);
    let together = |question| Wanted { question, is_beside: false, by: None };
    questions.into_iter().map(together).collect()
}

/// The expression with maxima in the place of its percentiles, if its streams stay the same by this; and by which
/// label they are told apart.
fn beside(text: &str, expr: &Expr) -> Option<(String, Option<String>)> {
    let of = |expr: &Expr| text.get(expr.place.start..expr.place.end);
    // The expression with another one in the place of a part of it.
    let with = |part: &Expr, (new, by): (String, Option<String>)| {
        let before = text.get(expr.place.start..part.place.start)?;
        let after = text.get(part.place.end..expr.place.end)?;
        Some((format!("{before}{new}{after}"), by))
    };
    match &expr.kind {
        ExprKind::Paren(inner) => beside(text, inner),
        ExprKind::Call { function, args } => match function.name {
            "histogram_quantile" => Some((format!("histogram_max({})", of(args.get(1)?)?), None)),
            "histogram_quantiles" => {
                let ExprKind::Text(by) = &args.get(1)?.unwrapped().kind else { return None };
                Some((format!("histogram_max({})", of(args.first()?)?), Some(by.clone())))
            }
            "quantile_over_time" => {
                // Of percentiles, the greatest one of all is no maximum.
                let samples = args.get(1)?;
                let question = format!("max_over_time({})", of(samples)?);
                Some(match inside(samples) {
                    true => beside(&question, &promql::parse(&question, &ALL).ok()?)?,
                    false => (question, None),
                })
            }
            "max_over_time" | "last_over_time" => {
                let ExprKind::Subquery { expr: inner, .. } = &args.first()?.unwrapped().kind else {
                    return None;
                };
                with(inner, beside(text, inner)?)
            }
            "label_replace" | "label_join" => {
                let inner = args.first()?;
                with(inner, beside(text, inner)?)
            }
            "sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc" | "round" | "ceil"
            | "floor" | "clamp" | "clamp_min" | "clamp_max" => beside(text, args.first()?),
            _ => None,
        },
        ExprKind::Aggregate { op, expr: inner, grouping, without, .. } => match op {
            AggregateOp::Quantile if !inside(inner) => {
                let by = if *without { "without" } else { "by" };
                let question = format!("max {by} ({}) ({})", grouping.join(", "), of(inner)?);
                Some((question, None))
            }
            AggregateOp::Max => with(inner, beside(text, inner)?),
            AggregateOp::TopK | AggregateOp::BottomK => beside(text, inner),
            _ => None,
        },
        ExprKind::Binary { op, left, right, return_bool, .. } => {
            let number = |side: &Expr| match side.unwrapped().kind {
                ExprKind::Number(number) => Some(number),
                _ => None,
            };
            let (part, number) = match (number(left), number(right)) {
                (None, Some(number)) => (left, number),
                (Some(number), None) if *op != BinaryOp::Divide => (right, number),
                _ => return None,
            };
            match op {
                op if op.is_comparison() && !return_bool => beside(text, part),
                BinaryOp::Add => with(part, beside(text, part)?),
                BinaryOp::Multiply | BinaryOp::Divide if number > 0.0 => {
                    with(part, beside(text, part)?)
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

/// Whether there are percentiles in it.
fn inside(expr: &Expr) -> bool {
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
    is_percentile || expr.children().into_iter().any(inside)
}

/// Questions for the maxima of percentiles that are anywhere in an expression, each once. What is in a subquery
/// has other windows than the answer, and is left out.
fn within(text: &str, expr: &Expr, questions: &mut Vec<String>) {
    if matches!(expr.kind, ExprKind::Subquery { .. }) {
        return;
    }
    match beside(text, expr).filter(|_| inside(expr)) {
        Some((question, _)) if !questions.contains(&question) => questions.push(question),
        Some(_) => {}
        None => expr.children().into_iter().for_each(|child| within(text, child, questions)),
    }
}

/// The same for CAQL, of percentiles of histograms and over streams.
pub fn wanted_caql(text: &str) -> Vec<Wanted> {
    let Ok(caql::Query { body: caql::Body::Caql(expr), .. }) = caql::parse(text) else {
        return Vec::new();
    };
    let by = Some(caql::LABEL.to_owned());
    let mut root = &expr;
    // Names change nothing.
    while let caql::Form::Call(call) = &root.form
        && let ("label", [source]) = (call.name.as_str(), &call.sources[..])
    {
        root = source;
    }
    if let Some(question) = caql_maximum(text, root) {
        return vec![Wanted { question, is_beside: true, by }];
    }
    let mut questions = Vec::new();
    caql_within(text, root, &mut questions);
    questions.truncate(TOGETHER_MAX);
    let together = |question| Wanted { question, is_beside: false, by: None };
    questions.into_iter().map(together).collect()
}

/// The maximum of what a call takes percentiles of.
fn caql_maximum(text: &str, expr: &caql::Expr) -> Option<String> {
    let caql::Form::Call(call) = &expr.form else { return None };
    let maximum = match call.name.as_str() {
        "histogram:percentile" | "histogram:quantile" | "histogram:median" => "histogram:max",
        "stats:percentile" => "stats:max",
        _ => return None,
    };
    let of = |source: &caql::Expr| text.get(source.place.start..source.place.end);
    let sources: Vec<&str> = call.sources.iter().map(of).collect::<Option<_>>()?;
    Some(format!("{maximum}(){{{}}}", sources.join(", ")))
}

fn caql_within(text: &str, expr: &caql::Expr, questions: &mut Vec<String>) {
    if let Some(question) = caql_maximum(text, expr) {
        if !questions.contains(&question) {
            questions.push(question);
        }
        return;
    }
    let children = match &expr.form {
        caql::Form::Call(call) => &call.sources,
        caql::Form::Operation { operands, .. } => operands,
        caql::Form::Literal(_) => return,
    };
    children.iter().for_each(|child| caql_within(text, child, questions));
}

/// The answer to what is asked beside the answer: maxima of its streams.
#[derive(Debug, Default)]
pub struct Maxima {
    /// What was asked.
    pub question: String,
    /// The maxima.
    pub streams: Vec<Stream>,
    /// In what they are.
    pub unit: Option<String>,
    /// Each belongs beside a stream of the answer.
    pub is_beside: bool,
    /// The label that those have, and these do not.
    pub by: Option<String>,
}

impl Maxima {
    /// Those that belong beside a stream.
    pub fn of(&self, labels: &Labels) -> Option<&Stream> {
        let own = match &self.by {
            Some(by) => labels.with(by, ""),
            None => labels.clone(),
        };
        let of = |labels: &Labels| labels.with(caql::LABEL, "").without_metadata();
        let mut same = self.streams.iter().filter(|stream| of(&stream.labels) == of(&own));
        // Of two nobody knows which.
        same.next().filter(|_| self.is_beside && same.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let wanted = wanted(text, &promql::Options::all());
        let questions: Vec<String> = wanted
            .iter()
            .map(|of| format!("{}{}", if of.is_beside { "" } else { "together: " }, of.question))
            .collect();
        assert_eq!(questions, expected, "{text}");
    }

    #[test]
    fn percentiles_want_the_maximum_of_the_same() {
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
    fn percentiles_of_caql_too() {
        let of = |text: &str| -> Vec<(String, bool)> {
            let wanted = wanted_caql(text).into_iter();
            wanted.map(|wanted| (wanted.question, wanted.is_beside)).collect()
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
    fn where_streams_become_others_the_maximum_is_told_apart() {
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
