//! Rejection of averages over quantiles, with the correct query.

use crate::error::{Error, Result};

use super::aggregate_op::AggregateOp;
use super::ast::BinaryOp;
use super::ast::{Expr, ExprKind, ValueType};
use super::duration::DurationValue;
use super::signature::QuantileUse;

/// Rejects an expression that averages quantiles, over series or over time.
pub(crate) fn reject_averages(expr: &Expr) -> Result<()> {
    for child in expr.children() {
        reject_averages(child)?;
    }
    let mut average = expr;
    let (quantile, scope) = match &expr.kind {
        ExprKind::Aggregate { op: AggregateOp::Avg, expr: inner, .. } => {
            (quantile_in(inner), "series")
        }
        ExprKind::Call { function, args } if function.quantile_use == QuantileUse::Average => {
            (quantile_in(&args[0]), "time")
        }
        // An average as an explicit division.
        ExprKind::Binary { op: BinaryOp::Divide, left, right, .. } => {
            let (sum, count) = (left.unwrap_parens(), right.unwrap_parens());
            average = sum;
            match (&sum.kind, &count.kind) {
                (
                    ExprKind::Aggregate { op: AggregateOp::Sum, expr: inner, .. },
                    ExprKind::Aggregate { op: AggregateOp::Count, .. },
                ) => (quantile_in(inner), "series"),
                (
                    ExprKind::Call { function: sum, args },
                    ExprKind::Call { function: count, .. },
                ) if (sum.quantile_use, count.quantile_use)
                    == (QuantileUse::Sum, QuantileUse::Count) =>
                {
                    (quantile_in(&args[0]), "time")
                }
                _ => (None, ""),
            }
        }
        _ => (None, ""),
    };
    let Some(quantile) = quantile else { return Ok(()) };
    let remedy = match suggest_replacement(average, quantile) {
        Some(right) => {
            format!("merge the distributions and take the quantile of the result: {right}")
        }
        None => "record a histogram and take its quantile with histogram_quantile".to_owned(),
    };
    let message =
        format!("cannot average quantiles over {scope}: the result is not a quantile; {remedy}");
    Err(Error::Parse { span: expr.span, message })
}

/// Quantile in an expression, up to its scale or name.
fn quantile_in(expr: &Expr) -> Option<&Expr> {
    let expr = expr.unwrap_parens();
    match &expr.kind {
        ExprKind::Call { function, args } => match function.quantile_use {
            QuantileUse::Quantile => Some(expr),
            QuantileUse::Kept => args.iter().find_map(quantile_in),
            _ => None,
        },
        ExprKind::Aggregate { op: AggregateOp::Quantile, .. } => Some(expr),
        // A selection of quantiles.
        ExprKind::Aggregate {
            op:
                AggregateOp::TopK | AggregateOp::BottomK | AggregateOp::LimitK | AggregateOp::LimitRatio,
            expr,
            ..
        } => quantile_in(expr),
        ExprKind::Unary { expr, .. } => quantile_in(expr),
        ExprKind::Subquery { expr, .. } => quantile_in(expr),
        ExprKind::Binary { op, left, right, return_bool: false, .. } => {
            let is_scalar = |side: &Expr| side.value_type() == ValueType::Scalar;
            match op {
                BinaryOp::And | BinaryOp::Unless => quantile_in(left),
                BinaryOp::Or => quantile_in(left).or_else(|| quantile_in(right)),
                BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide => {
                    match (is_scalar(left), is_scalar(right)) {
                        (_, true) => quantile_in(left),
                        (true, _) => quantile_in(right),
                        _ => None,
                    }
                }
                // Quantiles filtered by a comparison.
                op if op.is_comparison() && is_scalar(left) => quantile_in(right),
                op if op.is_comparison() => quantile_in(left),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Suggested expression.
fn suggest_replacement(average: &Expr, quantile: &Expr) -> Option<String> {
    let ExprKind::Call { function, args } = &quantile.kind else { return None };
    let ("histogram_quantile", [q, of]) = (function.name, &args[..]) else { return None };
    match &average.kind {
        ExprKind::Aggregate { grouping, without, .. } => {
            // The existing sum with other labels, or a new one.
            let (of, inner) = match &of.unwrap_parens().kind {
                ExprKind::Aggregate { op: AggregateOp::Sum, expr, grouping, without, .. } => {
                    (&**expr, Some((grouping, *without)))
                }
                _ => (of, None),
            };
            let (mut labels, mut without) = (grouping.clone(), *without);
            match inner {
                Some((kept, false)) if without => {
                    labels =
                        kept.iter().filter(|label| !grouping.contains(label)).cloned().collect();
                    without = false;
                }
                Some((dropped, true)) if without => {
                    labels
                        .extend(dropped.iter().filter(|label| !grouping.contains(label)).cloned());
                }
                _ => {}
            }
            // Classic histogram buckets are summed by bound.
            labels.retain(|label| !without || label != BUCKET_LABEL);
            let has_bound = labels.iter().any(|label| label == BUCKET_LABEL);
            if !without && !has_bound && (is_classic(of) || is_by_bound(inner)) {
                labels.push(BUCKET_LABEL.to_owned());
            }
            let by = match (without, labels.is_empty()) {
                (false, true) => String::new(),
                (true, _) => format!(" without ({})", labels.join(", ")),
                (false, false) => format!(" by ({})", labels.join(", ")),
            };
            Some(format!("histogram_quantile({q}, sum{by} ({of}))"))
        }
        ExprKind::Call { args: outer, .. } => {
            let ExprKind::Subquery { range, .. } = &outer[0].unwrap_parens().kind else {
                return None;
            };
            let mut longer = of.clone();
            let of = match (set_ranges(&mut longer, range), &of.unwrap_parens().kind) {
                (true, _) => longer.to_string(),
                (false, ExprKind::Selector(selector)) => {
                    let (selector, range) = (selector.clone(), range.clone());
                    let samples =
                        Expr { kind: ExprKind::Matrix { selector, range }, span: of.span };
                    format!("sum_over_time({samples})")
                }
                (false, _) => format!("sum_over_time(({of})[{range}:])"),
            };
            Some(format!("histogram_quantile({q}, {of})"))
        }
        _ => None,
    }
}

/// Label of the upper bound of a classic histogram bucket.
const BUCKET_LABEL: &str = "le";

fn is_by_bound(grouping: Option<(&Vec<String>, bool)>) -> bool {
    grouping.is_some_and(|(labels, without)| {
        !without && labels.iter().any(|label| label == BUCKET_LABEL)
    })
}

/// Whether the selector reads classic histogram buckets, by name.
fn is_classic(expr: &Expr) -> bool {
    let selector = match &expr.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => Some(selector),
        _ => None,
    };
    selector.is_some_and(|selector| selector.name.ends_with("_bucket"))
        || expr.children().into_iter().any(is_classic)
}

/// Sets the length of every range; returns whether there was one.
fn set_ranges(expr: &mut Expr, length: &DurationValue) -> bool {
    if let ExprKind::Matrix { range, .. } = &mut expr.kind {
        *range = length.clone();
        return true;
    }
    expr.children_mut().into_iter().fold(false, |any, child| set_ranges(child, length) | any)
}
