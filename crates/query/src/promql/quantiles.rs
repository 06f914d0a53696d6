//! Averages of quantiles, which say nothing about anybody: refused, with what to write instead.

use crate::error::{Error, Result};

use super::ast::BinaryOp;
use super::ast::{Expr, ExprKind};
use super::duration::Duration;
use super::functions::AggregateOp;

/// An error where an expression averages quantiles, over series or over time.
pub(crate) fn refuse_averages(expr: &Expr) -> Result<()> {
    for child in expr.children() {
        refuse_averages(child)?;
    }
    let (quantile, what) = match &expr.kind {
        ExprKind::Aggregate { op: AggregateOp::Avg, expr: inner, .. } => {
            (quantile_in(inner), "series")
        }
        ExprKind::Call { function, args } if function.name == "avg_over_time" => {
            match &args[0].unwrapped().kind {
                ExprKind::Subquery { expr: inner, .. } => (quantile_in(inner), "time"),
                _ => (None, ""),
            }
        }
        _ => (None, ""),
    };
    let Some(quantile) = quantile else { return Ok(()) };
    let remedy = match instead(expr, quantile) {
        Some(right) => {
            format!("merge the distributions and take the quantile of the whole: {right}")
        }
        None => {
            "keep the distributions: record a histogram, and take the quantile of the whole with \
                 histogram_quantile"
                .to_owned()
        }
    };
    let message = format!(
        "an average of quantiles over {what} is not a quantile of anything: \
         where few had a bad time it says that all had a fair one. {remedy}"
    );
    Err(Error::Parse { place: expr.place, message })
}

/// The quantile that an expression is, if it is one but for its scale or name.
fn quantile_in(expr: &Expr) -> Option<&Expr> {
    let expr = expr.unwrapped();
    match &expr.kind {
        ExprKind::Call { function, args } => match function.name {
            "histogram_quantile" | "histogram_quantiles" | "quantile_over_time" => Some(expr),
            "abs" | "ceil" | "floor" | "round" | "clamp" | "clamp_min" | "clamp_max"
            | "label_replace" | "label_join" | "sort" | "sort_desc" | "last_over_time" => {
                args.iter().find_map(quantile_in)
            }
            _ => None,
        },
        ExprKind::Aggregate { op: AggregateOp::Quantile, .. } => Some(expr),
        ExprKind::Unary { expr, .. } => quantile_in(expr),
        ExprKind::Subquery { expr, .. } => quantile_in(expr),
        ExprKind::Binary { op, left, right, .. } => match op {
            BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide => {
                let is_number = |side: &Expr| matches!(side.unwrapped().kind, ExprKind::Number(_));
                match (is_number(left), is_number(right)) {
                    (_, true) => quantile_in(left),
                    (true, _) => quantile_in(right),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}

/// The expression that was meant.
fn instead(average: &Expr, quantile: &Expr) -> Option<String> {
    let ExprKind::Call { function, args } = &quantile.kind else { return None };
    let ("histogram_quantile", [q, of]) = (function.name, &args[..]) else { return None };
    match &average.kind {
        ExprKind::Aggregate { grouping, without, .. } => {
            // The sum that is there, but for its labels, or a new one.
            let of = match &of.unwrapped().kind {
                ExprKind::Aggregate { op: AggregateOp::Sum, expr: inner, .. } => inner,
                _ => of,
            };
            let by = match (without, grouping.is_empty()) {
                (false, true) => String::new(),
                (true, _) => format!(" without ({})", grouping.join(", ")),
                (false, false) => format!(" by ({})", grouping.join(", ")),
            };
            Some(format!("histogram_quantile({q}, sum{by} ({of}))"))
        }
        ExprKind::Call { args: outer, .. } => {
            let ExprKind::Subquery { range, .. } = &outer[0].unwrapped().kind else { return None };
            let mut longer = of.clone();
            let of = match stretch(&mut longer, range) {
                true => longer.to_string(),
                false => format!("sum_over_time({of}[{range}:])"),
            };
            Some(format!("histogram_quantile({q}, {of})"))
        }
        _ => None,
    }
}

/// Gives every range the length; whether there was one.
fn stretch(expr: &mut Expr, length: &Duration) -> bool {
    if let ExprKind::Matrix { range, .. } = &mut expr.kind {
        *range = length.clone();
        return true;
    }
    expr.children_mut().into_iter().fold(false, |any, child| stretch(child, length) | any)
}
