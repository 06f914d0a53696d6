//! Formatting of PromQL expressions.

use std::fmt::{Display, Formatter, Result, Write};

use super::ast::{AtModifier, Expr, ExprKind, MatchCardinality, VectorMatching, VectorSelector};
use super::duration::{DurationExpr, DurationKind, DurationOp, DurationValue, nanos};
use super::matcher::Matcher;
use super::number::show_duration;
use super::quote::quote_text;

impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match &self.kind {
            ExprKind::Number(number) => write_number(*number, out),
            // `1 / -0s` is negative infinity.
            ExprKind::Duration(seconds) if *seconds == 0.0 && seconds.is_sign_negative() => {
                out.write_str("-0s")
            }
            // Parsed durations are whole milliseconds.
            ExprKind::Duration(seconds) => {
                let ms = (seconds * 1e3).round() as i64;
                out.write_str(&show_duration(ms.saturating_mul(1_000_000)))
            }
            ExprKind::Text(text) => out.write_str(&quote_text(text)),
            ExprKind::Selector(selector) => {
                write!(out, "{selector}")?;
                write_shifts(&selector.at, &selector.offset, out)
            }
            ExprKind::Matrix { selector, range } => {
                write_conditions(selector, out)?;
                write!(out, "[{range}]")?;
                write_extension(selector, out)?;
                write_shifts(&selector.at, &selector.offset, out)
            }
            ExprKind::Subquery { expr, range, step, offset, at } => {
                write!(out, "{expr}[{range}:")?;
                if let Some(step) = step {
                    write!(out, "{step}")?;
                }
                out.write_char(']')?;
                write_shifts(at, offset, out)
            }
            ExprKind::Unary { negative, expr } => {
                write!(out, "{}{expr}", if *negative { '-' } else { '+' })
            }
            ExprKind::Binary { op, left, right, matching, return_bool } => {
                write!(out, "{left} {}", op.text())?;
                if *return_bool {
                    out.write_str(" bool")?;
                }
                if let Some(matching) = matching {
                    write_matching(matching, out)?;
                }
                write!(out, " {right}")
            }
            ExprKind::Aggregate { op, expr, param, grouping, without } => {
                out.write_str(op.text())?;
                if *without || !grouping.is_empty() {
                    out.write_str(if *without { " without (" } else { " by (" })?;
                    write_labels(grouping, out)?;
                    out.write_str(") ")?;
                }
                out.write_char('(')?;
                if let Some(param) = param {
                    write!(out, "{param}, ")?;
                }
                write!(out, "{expr})")
            }
            ExprKind::Call { function, args } => {
                write!(out, "{}(", function.name)?;
                for (index, arg) in args.iter().enumerate() {
                    // As a sole argument, Prometheus' form is safe.
                    let is_infinite = matches!(arg.kind, ExprKind::Number(f64::INFINITY));
                    let sign = if is_infinite { "+" } else { "" };
                    write!(out, "{}{sign}{arg}", if index == 0 { "" } else { ", " })?;
                }
                out.write_char(')')
            }
            ExprKind::Paren(expr) => write!(out, "({expr})"),
        }
    }
}

/// Without offset and `@`.
impl Display for VectorSelector {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write_conditions(self, out)?;
        write_extension(self, out)
    }
}

impl Display for Matcher {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        write_label(&self.name, out)?;
        out.write_str(self.op.text())?;
        out.write_str(&quote_text(&self.value))
    }
}

impl Display for DurationValue {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            DurationValue::Nanos(nanos) if nanos % 1_000_000 == 0 => {
                out.write_str(&show_duration(*nanos))
            }
            DurationValue::Nanos(nanos) => write_number(seconds(*nanos), out),
            DurationValue::Expr(tree) => write!(out, "{tree}"),
        }
    }
}

impl Display for DurationExpr {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        match &self.kind {
            DurationKind::Seconds(seconds) => write_number(*seconds, out),
            DurationKind::Step => out.write_str("step()"),
            DurationKind::Range => out.write_str("range()"),
            DurationKind::Negative(inner) => write!(out, "-{inner}"),
            DurationKind::Paren(inner) => write!(out, "({inner})"),
            DurationKind::Two(op @ (DurationOp::MinOf | DurationOp::MaxOf), left, right) => {
                write!(out, "{}({left}, {right})", op.text())
            }
            DurationKind::Two(op, left, right) => write!(out, "{left} {} {right}", op.text()),
        }
    }
}

/// Seconds that parse to exactly these nanoseconds: the quotient may be off in the last digit.
fn seconds(nanoseconds: i64) -> f64 {
    let near = nanoseconds as f64 / 1e9;
    let reads_back = |seconds: &f64| nanos(*seconds) == nanoseconds;
    [near, near.next_up(), near.next_down()].into_iter().find(reads_back).unwrap_or(near)
}

fn write_number(number: f64, out: &mut Formatter<'_>) -> Result {
    // Prometheus writes `+Inf`, but `+Inf ^ 2` differs from `Inf ^ 2`.
    match number {
        f64::INFINITY => out.write_str("Inf"),
        f64::NEG_INFINITY => out.write_str("-Inf"),
        number => write!(out, "{number}"),
    }
}

fn write_conditions(selector: &VectorSelector, out: &mut Formatter<'_>) -> Result {
    out.write_str(&selector.name)?;
    let named = usize::from(!selector.name.is_empty());
    let others = &selector.matchers[..selector.matchers.len().saturating_sub(named)];
    if others.is_empty() && named == 1 {
        return Ok(());
    }
    out.write_char('{')?;
    for (index, matcher) in others.iter().enumerate() {
        write!(out, "{}{matcher}", if index == 0 { "" } else { "," })?;
    }
    out.write_char('}')
}

fn write_extension(selector: &VectorSelector, out: &mut Formatter<'_>) -> Result {
    match (selector.anchored, selector.smoothed) {
        (true, _) => out.write_str(" anchored"),
        (_, true) => out.write_str(" smoothed"),
        _ => Ok(()),
    }
}

fn write_shifts(
    at: &Option<AtModifier>,
    offset: &DurationValue,
    out: &mut Formatter<'_>,
) -> Result {
    match at {
        Some(AtModifier::Time(nanos)) => {
            let ms = nanos / 1_000_000;
            let sign = if ms < 0 { "-" } else { "" };
            let ms = ms.unsigned_abs();
            write!(out, " @ {sign}{}.{:03}", ms / 1000, ms % 1000)?;
        }
        Some(AtModifier::Start) => out.write_str(" @ start()")?,
        Some(AtModifier::End) => out.write_str(" @ end()")?,
        None => {}
    }
    match offset {
        &DurationValue::ZERO => Ok(()),
        DurationValue::Nanos(_) => write!(out, " offset {offset}"),
        DurationValue::Expr(tree) => write!(out, " offset {}{tree}", offset_signs(tree)),
    }
}

/// Signs that make the whole duration the offset, but nothing after it: `offset 1 + 2` is an offset
/// of 1, `offset (1) + 2` one of 3.
fn offset_signs(tree: &DurationExpr) -> &'static str {
    let mut leftmost = tree;
    while let DurationKind::Two(op, left, _) = &leftmost.kind
        && !matches!(op, DurationOp::MinOf | DurationOp::MaxOf)
    {
        leftmost = left;
    }
    let is_two = !std::ptr::eq(leftmost, tree);
    match &leftmost.kind {
        DurationKind::Paren(_) => {
            if is_two {
                ""
            } else {
                "+"
            }
        }
        DurationKind::Negative(inner) => {
            let is_one = match &inner.kind {
                DurationKind::Two(op, ..) => matches!(op, DurationOp::MinOf | DurationOp::MaxOf),
                DurationKind::Negative(_) => false,
                _ => true,
            };
            if is_one && !is_two { "" } else { "+" }
        }
        DurationKind::Seconds(seconds) if seconds.is_sign_negative() => "+",
        _ => {
            if is_two {
                "++"
            } else {
                ""
            }
        }
    }
}

fn write_matching(matching: &VectorMatching, out: &mut Formatter<'_>) -> Result {
    let side = match matching.cardinality {
        MatchCardinality::ManyToOne => "left",
        MatchCardinality::OneToMany => "right",
        MatchCardinality::OneToOne | MatchCardinality::ManyToMany => "",
    };
    if matching.on || !matching.labels.is_empty() || !side.is_empty() {
        out.write_str(if matching.on { " on (" } else { " ignoring (" })?;
        write_labels(&matching.labels, out)?;
        out.write_char(')')?;
    }
    if !side.is_empty() {
        write!(out, " group_{side} (")?;
        write_labels(&matching.include, out)?;
        out.write_char(')')?;
    }
    let fill = |name: &str, value: Option<f64>, out: &mut Formatter<'_>| match value {
        Some(value) => {
            write!(out, " {name} (")?;
            write_number(value, out)?;
            out.write_char(')')
        }
        None => Ok(()),
    };
    match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left.to_bits() == right.to_bits() => {
            fill("fill", Some(left), out)
        }
        (left, right) => {
            fill("fill_left", left, out)?;
            fill("fill_right", right, out)
        }
    }
}

fn write_labels(labels: &[String], out: &mut Formatter<'_>) -> Result {
    for (index, label) in labels.iter().enumerate() {
        out.write_str(if index == 0 { "" } else { ", " })?;
        write_label(label, out)?;
    }
    Ok(())
}

fn write_label(label: &str, out: &mut Formatter<'_>) -> Result {
    let is_plain = !label.starts_with(|c: char| c.is_ascii_digit())
        && !label.is_empty()
        && label.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    // Most keywords may be label names, except those that parse differently.
    let is_word = ["without", "inf", "nan"].iter().any(|word| label.eq_ignore_ascii_case(word));
    if is_plain && !is_word { out.write_str(label) } else { out.write_str(&quote_text(label)) }
}
