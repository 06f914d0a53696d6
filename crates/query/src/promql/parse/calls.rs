//! Aggregations and function calls.

use crate::edit_distance::edit_distance;
use crate::error::{Result, SourceSpan};

use super::super::aggregate_op::AggregateOp;
use super::super::ast::{Expr, ExprKind};
use super::super::functions::{function, functions};
use super::super::quote::quote_text;
use super::super::signature::PromqlFunction;
use super::super::token::{Keyword, PromqlToken, TokenKind};
use super::{ENABLE_EXPERIMENTAL, ParsedExpr, Parser, node, starts_expr};

impl Parser<'_> {
    pub(super) fn aggregate(&mut self, op: AggregateOp, token: PromqlToken) -> Result<ParsedExpr> {
        let (before, (args, height)) = self
            .within(("aggregation", ""), |parser| Ok((parser.by_or_without()?, parser.args()?)))?;
        let (without, grouping) = match before {
            Some(before) => before,
            None => self.by_or_without()?.unwrap_or_default(),
        };
        let span = SourceSpan::new(token.span.start, self.end);
        let expected = 1 + usize::from(op.param().is_some());
        if args.is_empty() {
            self.record_error(span, "no arguments for aggregate expression provided");
        } else if op.is_experimental() && !self.options.experimental_functions {
            self.record_error(
                span,
                format!("{}() is experimental{ENABLE_EXPERIMENTAL}", op.text()),
            );
        } else if args.len() != expected {
            let found = args.len();
            self.record_error(
                span,
                format!(
                    "wrong number of arguments for aggregate expression provided, \
                     expected {expected}, got {found}"
                ),
            );
        }
        let mut args = args.into_iter().rev().map(Box::new);
        let Some(expr) = args.next() else { return node(ExprKind::Number(0.0), span, 0) };
        let param = args.next();
        node(ExprKind::Aggregate { op, expr, param, grouping, without }, span, height)
    }

    /// Parses `by` or `without`: whether it is `without`, and the labels.
    fn by_or_without(&mut self) -> Result<Option<(bool, Vec<String>)>> {
        let without = match self.peek()?.kind {
            TokenKind::Keyword(Keyword::By) => false,
            TokenKind::Keyword(Keyword::Without) => true,
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some((without, self.grouping()?)))
    }

    /// Parses arguments in parentheses; returns the maximum height.
    fn args(&mut self) -> Result<(Vec<Expr>, usize)> {
        self.expect(TokenKind::LeftParen)?;
        let (mut args, mut height) = (Vec::new(), 0);
        if self.consume(TokenKind::RightParen)? {
            return Ok((args, height));
        }
        loop {
            let arg = self.expr(0)?;
            height = height.max(arg.height);
            args.push(arg.expr);
            loop {
                let token = self.peek()?;
                match token.kind {
                    TokenKind::RightParen => {
                        self.next()?;
                        return Ok((args, height));
                    }
                    TokenKind::Comma => drop(self.next()?),
                    _ => return Err(self.unexpected()),
                }
                if starts_expr(self.peek()?.kind) {
                    break;
                }
                self.record_error(token.span, "trailing commas not allowed in function call args");
            }
        }
    }

    pub(super) fn call(&mut self, token: PromqlToken) -> Result<ParsedExpr> {
        let (args, height) = self.args()?;
        let span = SourceSpan::new(token.span.start, self.end);
        let name = self.token_text(token);
        let is_known =
            |function: &&PromqlFunction| !(function.is_topdeck_only && self.options.standard_only);
        let Some(function) = function(name).filter(is_known) else {
            let hint =
                nearest_function(name).map(|near| format!("; did you mean {}?", quote_text(near)));
            let message = format!("unknown function with name {}", quote_text(name));
            self.record_error(token.span, message + &hint.unwrap_or_default());
            return node(ExprKind::Number(0.0), span, 0);
        };
        if function.is_experimental && !self.options.experimental_functions {
            let name = quote_text(name);
            let message = format!("function {name} is experimental{ENABLE_EXPERIMENTAL}");
            self.record_error(token.span, message);
        }
        node(ExprKind::Call { function, args }, span, height)
    }
}

/// Likely misspelt function.
fn nearest_function(name: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = 40;
    const DISTANCE_MAX: usize = 2;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let near = functions().filter_map(|function| {
        Some((edit_distance(name, function.name, DISTANCE_MAX)?, function.name))
    });
    let (distance, name) = near.min()?;
    (distance < name.len()).then_some(name)
}
