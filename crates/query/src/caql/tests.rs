//! All of it together: what is read, shown, bound and refused.

mod golden;
mod refused;
mod round_trip;
mod tables;

use super::ast::{Body, Expr, Form};
use super::{Bound, Context, Query, bind, parse};
use crate::error::Result;
use crate::note::Notes;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A view of an hour, drawn by minutes.
fn context(query: &Query) -> Context {
    Context {
        view_range_ns: HOUR_NS,
        view_period_ns: HOUR_NS / 60,
        is_serial: query.directives.serial,
    }
}

fn expr_of(query: Query) -> Expr {
    match query.body {
        Body::Caql(expr) => expr,
        Body::Promql { .. } => panic!("this is PromQL"),
    }
}

fn bound(text: &str) -> Result<Bound> {
    let query = parse(text)?;
    let context = context(&query);
    bind(&expr_of(query), &context, &mut Notes::default())
}

/// What is refused, by reading or by binding: what is pointed at, and the message.
fn refusal(text: &str) -> String {
    let error = bound(text).map(|bound| bound.kind).expect_err(text);
    match error.place() {
        Some(place) => {
            assert!(place.start <= place.end && place.end <= text.len(), "{text}: {place}");
            format!("[{}] {error}", &text[place.start..place.end])
        }
        None => error.to_string(),
    }
}

/// With all brackets there could be; pipes are braces.
fn grouped(expr: &Expr) -> String {
    match &expr.form {
        Form::Literal(literal) => literal.to_string(),
        Form::Call(call) => {
            let list = |items: Vec<String>| items.join(", ");
            let arguments = list(call.arguments.iter().map(ToString::to_string).collect());
            let arguments = if arguments.is_empty() { arguments } else { format!("({arguments})") };
            let sources = list(call.sources.iter().map(grouped).collect());
            let sources = if sources.is_empty() { sources } else { format!("{{{sources}}}") };
            format!("{}{arguments}{sources}", call.name)
        }
        Form::Operation { operator, operands } => {
            let operands: Vec<String> = operands.iter().map(grouped).collect();
            let symbol = operator.symbol();
            match operands.as_slice() {
                [one] => format!("({symbol}{one})"),
                _ => format!("({})", operands.join(&format!(" {symbol} "))),
            }
        }
    }
}
