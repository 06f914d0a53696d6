//! Type checker of PromQL.

use std::collections::HashSet;

use crate::error::{Result, SourceSpan};

use super::ast::{Expr, ExprKind, MatchCardinality, ValueType, VectorMatching, VectorSelector};
use super::lexer::is_blank;
use super::parse::error;
use super::quote::quote_text;
use super::signature::{PromqlFunction, Variadic};

/// Checks the types of a parsed expression, innermost first.
pub(super) fn check(expr: &mut Expr, text: &str) -> Result<ValueType> {
    check_in(expr, text, false)
}

fn check_in(expr: &mut Expr, text: &str, may_select_all: bool) -> Result<ValueType> {
    let span = expr.span;
    let fails = |message: String| Err(error(span, message));
    match &mut expr.kind {
        ExprKind::Number(_) | ExprKind::Duration(_) => Ok(ValueType::Scalar),
        ExprKind::Text(_) => Ok(ValueType::Text),
        ExprKind::Selector(selector) => {
            check_selector(selector, may_select_all)?;
            Ok(ValueType::Vector)
        }
        ExprKind::Matrix { selector, .. } => {
            check_selector(selector, false)?;
            Ok(ValueType::Matrix)
        }
        ExprKind::Paren(inner) => check(inner, text),
        ExprKind::Subquery { expr, .. } => match check(expr, text)? {
            ValueType::Vector => Ok(ValueType::Matrix),
            other => fails(format!(
                "subquery is only allowed on instant vector, got {} instead",
                other.text()
            )),
        },
        ExprKind::Unary { expr, .. } => match check(expr, text)? {
            found @ (ValueType::Scalar | ValueType::Vector) => Ok(found),
            other => fails(format!(
                "unary expression only allowed on expressions of type scalar or instant vector, \
                 got {}",
                quote_text(other.documented())
            )),
        },
        ExprKind::Aggregate { op, expr, param, .. } => {
            expect(expr, ValueType::Vector, "aggregation expression", text)?;
            if let (Some(expected), Some(param)) = (op.param(), param) {
                expect(param, expected, "aggregation parameter", text)?;
            }
            Ok(ValueType::Vector)
        }
        ExprKind::Call { function, args } => {
            check_call(function, args, span, text)?;
            Ok(function.returns)
        }
        ExprKind::Binary { .. } => check_binary(expr, text),
    }
}

fn expect(expr: &mut Expr, expected: ValueType, context: &str, text: &str) -> Result<()> {
    let found = check(expr, text)?;
    if found == expected { Ok(()) } else { Err(wrong_type(expr.span, expected, context, found)) }
}

fn wrong_type(
    span: SourceSpan,
    expected: ValueType,
    context: &str,
    found: ValueType,
) -> crate::error::Error {
    let (expected, found) = (expected.documented(), found.documented());
    error(span, format!("expected type {expected} in {context}, got {found}"))
}

fn check_selector(selector: &VectorSelector, may_select_all: bool) -> Result<()> {
    if !selector.name.is_empty() {
        let written = &selector.matchers[..selector.matchers.len().saturating_sub(1)];
        let Some(second) = written.iter().find(|matcher| matcher.name == "__name__") else {
            return Ok(());
        };
        let (first, second) = (quote_text(&selector.name), quote_text(&second.value));
        let message = format!("metric name must not be set twice: {first} or {second}");
        return Err(error(selector.span, message));
    }
    // Prevents queries that select all series by mistake.
    if may_select_all || selector.matchers.iter().any(|matcher| !matcher.matches("")) {
        return Ok(());
    }
    Err(error(selector.span, "vector selector must contain at least one non-empty matcher"))
}

fn check_call(
    function: &PromqlFunction,
    args: &mut [Expr],
    span: SourceSpan,
    text: &str,
) -> Result<()> {
    let (found, name) = (args.len(), quote_text(function.name));
    let (min, max) = (function.args_min(), function.args_max());
    let expected = if function.variadic == Variadic::No && found != min {
        format!("{min}")
    } else if found < min {
        format!("at least {min}")
    } else if let Some(max) = max.filter(|max| found > *max) {
        format!("at most {max}")
    } else {
        String::new()
    };
    if !expected.is_empty() {
        let message = format!("expected {expected} argument(s) in call to {name}, got {found}");
        return Err(error(span, message));
    }
    let context = format!("call to function {name}");
    if let Some(labels) = function.label_matchers_arg.and_then(|at| args.get(at)) {
        let found = labels.value_type();
        if found != ValueType::Vector {
            return Err(wrong_type(span, ValueType::Vector, &context, found));
        }
        let message = match &labels.kind {
            ExprKind::Selector(selector) if selector.name.is_empty() => "",
            ExprKind::Selector(_) => "expected label selectors only, got vector selector instead",
            _ => "expected label selectors only",
        };
        if !message.is_empty() {
            return Err(error(labels.span, message));
        }
    }
    for (index, arg) in args.iter_mut().enumerate() {
        let found = check_in(arg, text, function.label_matchers_arg == Some(index))?;
        let expected = function.args.get(index).or(function.args.last());
        if let Some(expected) = expected.filter(|expected| **expected != found) {
            return Err(wrong_type(arg.span, *expected, &context, found));
        }
    }
    Ok(())
}

fn check_binary(expr: &mut Expr, text: &str) -> Result<ValueType> {
    let span = expr.span;
    let ExprKind::Binary { op, left, right, matching, return_bool } = &mut expr.kind else {
        return Ok(ValueType::Vector);
    };
    let types = (check(left, text)?, check(right, text)?);
    let between = || between(left.span, right.span, text);
    if *return_bool && !op.is_comparison() {
        return Err(error(between(), "bool modifier can only be used on comparison operators"));
    }
    let are_scalars = types == (ValueType::Scalar, ValueType::Scalar);
    if are_scalars && op.is_comparison() && !*return_bool {
        return Err(error(between(), "comparisons between scalars must use BOOL modifier"));
    }
    let known = matching.get_or_insert_default();
    if op.is_set() && known.cardinality == MatchCardinality::OneToOne {
        known.cardinality = MatchCardinality::ManyToMany;
    }
    let included: HashSet<&String> = known.include.iter().collect();
    if known.on
        && let Some(label) = known.labels.iter().find(|label| included.contains(label))
    {
        let label = quote_text(label);
        let message = format!("label {label} must not occur in ON and GROUP clause at once");
        return Err(error(between(), message));
    }
    for (found, side) in [(types.0, &left), (types.1, &right)] {
        if !matches!(found, ValueType::Scalar | ValueType::Vector) {
            let message = "binary expression must contain only scalar and instant vector types";
            return Err(error(side.span, message));
        }
    }
    let wrong = if types == (ValueType::Vector, ValueType::Vector) {
        if op.is_set() { wrong_for_sets(known, op.text()) } else { None }
    } else if !known.labels.is_empty() {
        Some("vector matching only allowed between instant vectors".to_owned())
    } else if is_filled(known) {
        Some("filling in missing series only allowed between instant vectors".to_owned())
    } else if op.is_set() {
        let op = quote_text(op.text());
        Some(format!("set operator {op} not allowed in binary scalar expression"))
    } else {
        *matching = None;
        None
    };
    match wrong {
        Some(message) => Err(error(span, message)),
        None if are_scalars => Ok(ValueType::Scalar),
        None => Ok(ValueType::Vector),
    }
}

fn is_filled(matching: &VectorMatching) -> bool {
    matching.fill_left.is_some() || matching.fill_right.is_some()
}

fn wrong_for_sets(matching: &VectorMatching, op: &str) -> Option<String> {
    if matching.cardinality != MatchCardinality::ManyToMany {
        Some(format!("no grouping allowed for {} operation", quote_text(op)))
    } else if is_filled(matching) {
        Some("filling in missing series not allowed for set operators".to_owned())
    } else {
        None
    }
}

/// Span of the operator. As in Prometheus, its last byte is excluded.
fn between(left: SourceSpan, right: SourceSpan, text: &str) -> SourceSpan {
    let is_blank_at = |at: usize| text.as_bytes().get(at).is_some_and(|c| is_blank(*c as char));
    let (mut start, mut end) = (left.end, right.start.saturating_sub(1));
    while is_blank_at(start) {
        start += 1;
    }
    while end > start && is_blank_at(end) {
        end -= 1;
    }
    SourceSpan::new(start, end)
}
