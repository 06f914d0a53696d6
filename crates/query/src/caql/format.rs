//! Formatting of CAQL queries.
//!
//! A call with one input is shown as a pipe, a call with several inputs with braces. Parentheses
//! are shown only where they are needed.

use std::fmt::{Display, Formatter, Result, Write};

use super::ast::{
    Argument, Body, CallExpr, CaqlExpr, CaqlExprKind, CaqlQuery, Directives, Literal, Operator,
};
use super::lexer::UNITS;

impl Display for CaqlQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}", self.directives)?;
        match &self.body {
            Body::Caql(expr) => write!(f, "{expr}"),
            Body::Promql { text, .. } => write!(f, "#lang=\"promql\"\n{text}"),
        }
    }
}

/// One directive per line.
impl Display for Directives {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if self.preview {
            f.write_str("#preview\n")?;
        }
        if self.serial {
            f.write_str("#serial\n")?;
        }
        if let Some(ns) = self.min_period_ns {
            writeln!(f, "#min_period={}", Literal::Duration(ns))?;
        }
        if let Some(ns) = self.lookback_ns {
            writeln!(f, "#lookback_window={}", Literal::Duration(ns))?;
        }
        Ok(())
    }
}

impl Display for CaqlExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.kind {
            CaqlExprKind::Literal(literal) => write!(f, "{literal}"),
            CaqlExprKind::Call(call) => write!(f, "{call}"),
            CaqlExprKind::Operation {
                operator: operator @ (Operator::Not | Operator::Negate),
                operands,
            } => operands.iter().try_for_each(|operand| {
                f.write_str(operator.symbol())?;
                write_operand(f, *operator, operand)
            }),
            CaqlExprKind::Operation { operator, operands } => {
                for (at, operand) in operands.iter().enumerate() {
                    if at > 0 {
                        write!(f, " {} ", operator.symbol())?;
                    }
                    write_operand(f, *operator, operand)?;
                }
                Ok(())
            }
        }
    }
}

/// Writes an operand, in parentheses if it would otherwise parse differently.
fn write_operand(f: &mut Formatter<'_>, operator: Operator, operand: &CaqlExpr) -> Result {
    let is_bare = match &operand.kind {
        CaqlExprKind::Operation { operator: inner, .. } => {
            matches!(inner, Operator::Not | Operator::Negate) || *inner > operator
        }
        CaqlExprKind::Call(call) => !is_piped(call),
        // Without parentheses, the sign would become part of the number.
        CaqlExprKind::Literal(Literal::Number(number)) => {
            operator != Operator::Negate || number.is_sign_negative()
        }
        CaqlExprKind::Literal(Literal::Duration(ns)) => operator != Operator::Negate || *ns < 0,
        CaqlExprKind::Literal(_) => true,
    };
    if is_bare { write!(f, "{operand}") } else { write!(f, "({operand})") }
}

fn is_piped(call: &CallExpr) -> bool {
    call.inputs.len() == 1
}

impl Display for CallExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if is_piped(self) {
            write_list(f, &self.inputs)?;
            f.write_str(" | ")?;
        }
        f.write_str(&self.name)?;
        if !self.arguments.is_empty() || self.inputs.len() < 2 {
            f.write_char('(')?;
            write_list(f, &self.arguments)?;
            f.write_char(')')?;
        }
        if self.inputs.len() > 1 {
            f.write_char('{')?;
            write_list(f, &self.inputs)?;
            f.write_char('}')?;
        }
        Ok(())
    }
}

fn write_list<T: Display>(f: &mut Formatter<'_>, items: &[T]) -> Result {
    for (at, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl Display for Argument {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}", self.value)
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Literal::Number(number) => write!(f, "{number}"),
            Literal::Duration(ns) => write_duration(f, *ns),
            Literal::Text(text) => write_quoted(f, text),
            Literal::Constant(constant) => f.write_str(constant.name()),
        }
    }
}

/// Writes a duration in the longest unit of which it is a multiple, otherwise in seconds.
fn write_duration(f: &mut Formatter<'_>, ns: i64) -> Result {
    if ns < 0 {
        f.write_char('-')?;
    }
    let ns = ns.unsigned_abs();
    let fitting = UNITS.into_iter().find(|(unit, _)| ns != 0 && ns.is_multiple_of(*unit as u64));
    if let Some((unit, symbol)) = fitting {
        return write!(f, "{}{symbol}", ns / unit as u64);
    }
    let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    match rest {
        0 => write!(f, "{seconds}s"),
        _ => write!(f, "{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}

fn write_quoted(f: &mut Formatter<'_>, text: &str) -> Result {
    if !text.contains('"') {
        return write!(f, "\"{text}\"");
    }
    if !text.contains('\'') {
        return write!(f, "'{text}'");
    }
    write!(f, "p\"{}\"", text.replace('%', "%25").replace('"', "%22"))
}
