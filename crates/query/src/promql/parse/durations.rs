//! Duration expressions in brackets and after `offset`.

use crate::error::{Result, SourceSpan};

use super::super::NESTING_MAX;
use super::super::ast::BinaryOp;
use super::super::duration::{
    DurationExpr, DurationKind, DurationOp, DurationValue, is_out_of_range, nanos,
};
use super::super::token::{Keyword, PromqlToken, TokenKind};
use super::{ENABLE_EXPERIMENTAL, Parser};

const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const POWER: u8 = 3;

fn operator(kind: TokenKind) -> Option<(DurationOp, u8)> {
    let TokenKind::Op(op) = kind else { return None };
    Some(match op {
        BinaryOp::Add => (DurationOp::Add, SUM),
        BinaryOp::Subtract => (DurationOp::Subtract, SUM),
        BinaryOp::Multiply => (DurationOp::Multiply, PRODUCT),
        BinaryOp::Divide => (DurationOp::Divide, PRODUCT),
        BinaryOp::Modulo => (DurationOp::Modulo, PRODUCT),
        BinaryOp::Power => (DurationOp::Power, POWER),
        _ => return None,
    })
}

fn sign(kind: TokenKind) -> Option<bool> {
    match kind {
        TokenKind::Op(BinaryOp::Add) => Some(false),
        TokenKind::Op(BinaryOp::Subtract) => Some(true),
        _ => None,
    }
}

fn plain(tree: DurationExpr) -> DurationValue {
    match tree.kind {
        DurationKind::Seconds(seconds) => DurationValue::Nanos(nanos(seconds)),
        _ => DurationValue::Expr(tree),
    }
}

impl Parser<'_> {
    /// Parses a range or a step.
    pub(super) fn positive_duration(&mut self) -> Result<DurationValue> {
        let tree = self.duration(SUM)?;
        if let DurationKind::Seconds(seconds) = tree.kind
            && seconds <= 0.0
        {
            self.record_error(tree.span, "duration must be greater than 0");
        }
        Ok(plain(tree))
    }

    /// Parses an offset. Unlike in brackets, operators after a number are not part of it:
    /// `x offset 5m + 1` adds 1 to `x`. After parentheses without a sign they are.
    pub(super) fn offset_duration(&mut self) -> Result<DurationValue> {
        let token = self.peek()?;
        let (negative, first) = match sign(token.kind) {
            Some(negative) => {
                self.next()?;
                (Some(negative), self.peek()?)
            }
            None => (None, token),
        };
        let tree = match (first.kind, negative) {
            (TokenKind::LeftParen, None) => self.duration(SUM)?,
            (kind, Some(negative)) if sign(kind).is_some() => {
                let inner = self.duration(POWER)?;
                let left = self.signed(token.span, negative, inner);
                self.operators(left, SUM)?
            }
            // A number in parentheses after a sign does not need the feature flag.
            (TokenKind::LeftParen, Some(negative)) => {
                let inner = self.paren_duration()?;
                self.signed(token.span, negative, inner)
            }
            (_, Some(negative)) => {
                let inner = self.duration_primary(Some(token.span))?;
                self.signed(token.span, negative, inner)
            }
            (_, None) => self.duration_primary(None)?,
        };
        Ok(plain(tree))
    }

    /// Parses operators of at least this precedence and their operands.
    fn duration(&mut self, binding_min: u8) -> Result<DurationExpr> {
        self.nested(|parser| {
            let token = parser.peek()?;
            let left = match sign(token.kind) {
                Some(negative) => {
                    parser.next()?;
                    let inner = parser.duration(POWER)?;
                    parser.signed(token.span, negative, inner)
                }
                None => parser.duration_primary(None)?,
            };
            parser.operators(left, binding_min)
        })
    }

    fn operators(&mut self, mut left: DurationExpr, binding_min: u8) -> Result<DurationExpr> {
        // Each operator makes the tree one level deeper.
        let nesting = self.nesting;
        while let Some((op, binding)) = operator(self.peek()?.kind)
            && binding >= binding_min
        {
            let token = self.next()?;
            self.nesting += 1;
            super::check_limit("operators in a duration", self.nesting, NESTING_MAX)?;
            let right = self.duration(binding + u8::from(op != DurationOp::Power))?;
            left = self.two(op, token, left, right);
        }
        self.nesting = nesting;
        Ok(left)
    }

    fn two(
        &mut self,
        op: DurationOp,
        token: PromqlToken,
        left: DurationExpr,
        right: DurationExpr,
    ) -> DurationExpr {
        self.experimental(left.span);
        let span = left.span.to(right.span);
        let by_zero = match op {
            DurationOp::Divide => "division by zero",
            DurationOp::Modulo => "modulo by zero",
            _ => "",
        };
        if right.kind == DurationKind::Seconds(0.0) && !by_zero.is_empty() {
            self.record_error(token.span, by_zero);
        }
        DurationExpr { kind: DurationKind::Two(op, Box::new(left), Box::new(right)), span }
    }

    /// With a sign directly after `offset`, messages use the sign's span.
    fn duration_primary(&mut self, sign: Option<SourceSpan>) -> Result<DurationExpr> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let seconds = self.number()?;
                Ok(self.seconds(seconds, token.span, sign.unwrap_or(token.span)))
            }
            TokenKind::LeftParen => {
                let paren = self.paren_duration()?;
                if let DurationKind::Paren(inner) = &paren.kind {
                    self.experimental(inner.span);
                }
                Ok(paren)
            }
            TokenKind::Keyword(
                word @ (Keyword::Step | Keyword::Range | Keyword::MinOf | Keyword::MaxOf),
            ) => {
                self.next()?;
                self.expect(TokenKind::LeftParen)?;
                let kind = match word {
                    Keyword::Step => DurationKind::Step,
                    Keyword::Range => DurationKind::Range,
                    _ => self.min_or_max(word)?,
                };
                let mut span = token.span.to(self.expect(TokenKind::RightParen)?.span);
                // As in Prometheus, the span of an operation runs from its left to its right
                // operand, whatever surrounds it.
                if let DurationKind::Two(_, left, right) = &kind {
                    span = left.span.to(right.span);
                }
                self.experimental(sign.unwrap_or(span).to(span));
                Ok(DurationExpr { kind, span })
            }
            _ => Err(self.unexpected()),
        }
    }

    fn paren_duration(&mut self) -> Result<DurationExpr> {
        let open = self.expect(TokenKind::LeftParen)?;
        let inner = self.duration(SUM)?;
        let close = self.expect(TokenKind::RightParen)?;
        let span = match inner.kind {
            DurationKind::Seconds(_) => open.span.to(close.span),
            _ => inner.span,
        };
        Ok(DurationExpr { kind: DurationKind::Paren(Box::new(inner)), span })
    }

    fn min_or_max(&mut self, word: Keyword) -> Result<DurationKind> {
        let op = if word == Keyword::MinOf { DurationOp::MinOf } else { DurationOp::MaxOf };
        let left = self.duration(SUM)?;
        self.expect(TokenKind::Comma)?;
        let right = self.duration(SUM)?;
        Ok(DurationKind::Two(op, Box::new(left), Box::new(right)))
    }

    /// Applies a sign; a number absorbs it.
    fn signed(&mut self, sign: SourceSpan, negative: bool, inner: DurationExpr) -> DurationExpr {
        let span = sign.to(inner.span);
        match inner.kind {
            DurationKind::Seconds(seconds) => {
                self.seconds(if negative { -seconds } else { seconds }, span, sign)
            }
            _ if negative => DurationExpr { kind: DurationKind::Negative(Box::new(inner)), span },
            _ => inner,
        }
    }

    fn seconds(&mut self, seconds: f64, span: SourceSpan, blamed: SourceSpan) -> DurationExpr {
        let mut seconds = seconds;
        if is_out_of_range(seconds) {
            self.record_error(blamed, "duration out of range");
            seconds = 1.0;
        }
        DurationExpr { kind: DurationKind::Seconds(seconds), span }
    }

    fn experimental(&mut self, span: SourceSpan) {
        if !self.options.duration_expressions {
            let message = format!("duration expressions are experimental{ENABLE_EXPERIMENTAL}");
            self.record_error(span, message);
        }
    }
}
