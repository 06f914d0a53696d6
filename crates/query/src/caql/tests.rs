//! Tests of parser, formatter and binder together.

mod errors;
mod golden;
mod round_trip;
mod tables;

use super::ast::{Body, CaqlExpr, CaqlExprKind};
use super::{BoundExpr, CaqlContext, CaqlQuery, bind, parse};
use crate::error::Result;
use crate::query_warnings::QueryWarnings;

const HOUR_NS: i64 = 3_600_000_000_000;

/// View of an hour with one-minute slots.
fn context(query: &CaqlQuery) -> CaqlContext {
    CaqlContext {
        view_range_ns: HOUR_NS,
        view_period_ns: HOUR_NS / 60,
        is_serial: query.directives.serial,
    }
}

fn expr_of(query: CaqlQuery) -> CaqlExpr {
    match query.body {
        Body::Caql(expr) => expr,
        Body::Promql { .. } => panic!("this is PromQL"),
    }
}

fn parse_and_bind(text: &str) -> Result<BoundExpr> {
    let query = parse(text)?;
    let context = context(&query);
    bind(&expr_of(query), &context, &mut QueryWarnings::default())
}

/// Parse or bind error: its span and message.
fn error_text(text: &str) -> String {
    let error = parse_and_bind(text).map(|bound| bound.stream_kind).expect_err(text);
    match error.span() {
        Some(span) => {
            assert!(span.start <= span.end && span.end <= text.len(), "{text}: {span}");
            format!("[{}] {error}", &text[span.start..span.end])
        }
        None => error.to_string(),
    }
}

/// Text with all possible parentheses; pipes become braces.
fn with_all_brackets(expr: &CaqlExpr) -> String {
    match &expr.kind {
        CaqlExprKind::Literal(literal) => literal.to_string(),
        CaqlExprKind::Call(call) => {
            let list = |items: Vec<String>| items.join(", ");
            let arguments = list(call.arguments.iter().map(ToString::to_string).collect());
            let arguments = if arguments.is_empty() { arguments } else { format!("({arguments})") };
            let inputs = list(call.inputs.iter().map(with_all_brackets).collect());
            let inputs = if inputs.is_empty() { inputs } else { format!("{{{inputs}}}") };
            format!("{}{arguments}{inputs}", call.name)
        }
        CaqlExprKind::Operation { operator, operands } => {
            let operands: Vec<String> = operands.iter().map(with_all_brackets).collect();
            let symbol = operator.symbol();
            match operands.as_slice() {
                [one] => format!("({symbol}{one})"),
                _ => format!("({})", operands.join(&format!(" {symbol} "))),
            }
        }
    }
}
