//! Durations that are worked out: what stands in brackets and after `offset`.

use crate::error::{Place, Result};

use super::super::NESTING_MAX;
use super::super::ast::BinaryOp;
use super::super::duration::{
    Duration, DurationExpr, DurationKind, DurationOp, is_out_of_range, nanos,
};
use super::super::token::{Kind, Token, Word};
use super::Parser;

const SUM: u8 = 1;
const PRODUCT: u8 = 2;
const POWER: u8 = 3;

fn operator(kind: Kind) -> Option<(DurationOp, u8)> {
    let Kind::Op(op) = kind else { return None };
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

fn sign(kind: Kind) -> Option<bool> {
    match kind {
        Kind::Op(BinaryOp::Add) => Some(false),
        Kind::Op(BinaryOp::Subtract) => Some(true),
        _ => None,
    }
}

fn plain(tree: DurationExpr) -> Duration {
    match tree.kind {
        DurationKind::Seconds(seconds) => Duration::Nanos(nanos(seconds)),
        _ => Duration::Expr(tree),
    }
}

impl Parser<'_> {
    /// The length of a range or a step.
    pub(super) fn positive_duration(&mut self) -> Result<Duration> {
        let tree = self.duration(SUM)?;
        if let DurationKind::Seconds(seconds) = tree.kind
            && seconds <= 0.0
        {
            self.note(tree.place, "duration must be greater than 0");
        }
        Ok(plain(tree))
    }

    /// The length of an offset. Unlike in brackets, operators after a number are not part of it:
    /// `x offset 5m + 1` adds 1 to `x`. After parentheses without a sign they are.
    pub(super) fn offset_duration(&mut self) -> Result<Duration> {
        let token = self.peek()?;
        let (negative, first) = match sign(token.kind) {
            Some(negative) => {
                self.next()?;
                (Some(negative), self.peek()?)
            }
            None => (None, token),
        };
        let tree = match (first.kind, negative) {
            (Kind::LeftParen, None) => self.duration(SUM)?,
            (kind, Some(negative)) if sign(kind).is_some() => {
                let inner = self.duration(POWER)?;
                let left = self.signed(token.place, negative, inner);
                self.operators(left, SUM)?
            }
            // Numbers in parentheses after a sign need no switch.
            (Kind::LeftParen, Some(negative)) => {
                let inner = self.paren_duration()?;
                self.signed(token.place, negative, inner)
            }
            (_, Some(negative)) => {
                let inner = self.duration_primary(Some(token.place))?;
                self.signed(token.place, negative, inner)
            }
            (_, None) => self.duration_primary(None)?,
        };
        Ok(plain(tree))
    }

    /// Operators that bind at least this strongly, and what is between them.
    fn duration(&mut self, binding_min: u8) -> Result<DurationExpr> {
        self.nested(|parser| {
            let token = parser.peek()?;
            let left = match sign(token.kind) {
                Some(negative) => {
                    parser.next()?;
                    let inner = parser.duration(POWER)?;
                    parser.signed(token.place, negative, inner)
                }
                None => parser.duration_primary(None)?,
            };
            parser.operators(left, binding_min)
        })
    }

    fn operators(&mut self, mut left: DurationExpr, binding_min: u8) -> Result<DurationExpr> {
        // Each makes the tree one deeper.
        let nesting = self.nesting;
        while let Some((op, binding)) = operator(self.peek()?.kind)
            && binding >= binding_min
        {
            let token = self.next()?;
            self.nesting += 1;
            super::limit("operators in a duration (NESTING_MAX)", self.nesting, NESTING_MAX)?;
            let right = self.duration(binding + u8::from(op != DurationOp::Power))?;
            left = self.two(op, token, left, right);
        }
        self.nesting = nesting;
        Ok(left)
    }

    fn two(
        &mut self,
        op: DurationOp,
        token: Token,
        left: DurationExpr,
        right: DurationExpr,
    ) -> DurationExpr {
        self.experimental(left.place);
        let place = left.place.to(right.place);
        let by_zero = match op {
            DurationOp::Divide => "division by zero",
            DurationOp::Modulo => "modulo by zero",
            _ => "",
        };
        if right.kind == DurationKind::Seconds(0.0) && !by_zero.is_empty() {
            self.note(token.place, by_zero);
        }
        DurationExpr { kind: DurationKind::Two(op, Box::new(left), Box::new(right)), place }
    }

    /// With a sign directly after `offset`, messages have its place.
    fn duration_primary(&mut self, sign: Option<Place>) -> Result<DurationExpr> {
        let token = self.peek()?;
        match token.kind {
            Kind::Number | Kind::Duration => {
                let seconds = self.number()?;
                Ok(self.seconds(seconds, token.place, sign.unwrap_or(token.place)))
            }
            Kind::LeftParen => {
                let paren = self.paren_duration()?;
                if let DurationKind::Paren(inner) = &paren.kind {
                    self.experimental(inner.place);
                }
                Ok(paren)
            }
            Kind::Word(word @ (Word::Step | Word::Range | Word::MinOf | Word::MaxOf)) => {
                self.next()?;
                self.expect(Kind::LeftParen)?;
                let kind = match word {
                    Word::Step => DurationKind::Step,
                    Word::Range => DurationKind::Range,
                    _ => self.min_or_max(word)?,
                };
                let mut place = token.place.to(self.expect(Kind::RightParen)?.place);
                // As in Prometheus, the place of two lengths is what they fill, whatever stands around.
                if let DurationKind::Two(_, left, right) = &kind {
                    place = left.place.to(right.place);
                }
                self.experimental(sign.unwrap_or(place).to(place));
                Ok(DurationExpr { kind, place })
            }
            _ => Err(self.unexpected()),
        }
    }

    fn paren_duration(&mut self) -> Result<DurationExpr> {
        let open = self.expect(Kind::LeftParen)?;
        let inner = self.duration(SUM)?;
        let close = self.expect(Kind::RightParen)?;
        let place = match inner.kind {
            DurationKind::Seconds(_) => open.place.to(close.place),
            _ => inner.place,
        };
        Ok(DurationExpr { kind: DurationKind::Paren(Box::new(inner)), place })
    }

    fn min_or_max(&mut self, word: Word) -> Result<DurationKind> {
        let op = if word == Word::MinOf { DurationOp::MinOf } else { DurationOp::MaxOf };
        let left = self.duration(SUM)?;
        self.expect(Kind::Comma)?;
        let right = self.duration(SUM)?;
        Ok(DurationKind::Two(op, Box::new(left), Box::new(right)))
    }

    /// What stands after a sign; numbers take it in.
    fn signed(&mut self, sign: Place, negative: bool, inner: DurationExpr) -> DurationExpr {
        let place = sign.to(inner.place);
        match inner.kind {
            DurationKind::Seconds(seconds) => {
                self.seconds(if negative { -seconds } else { seconds }, place, sign)
            }
            _ if negative => DurationExpr { kind: DurationKind::Negative(Box::new(inner)), place },
            _ => inner,
        }
    }

    fn seconds(&mut self, seconds: f64, place: Place, blamed: Place) -> DurationExpr {
        let mut seconds = seconds;
        if is_out_of_range(seconds) {
            self.note(blamed, "duration out of range");
            seconds = 1.0;
        }
        DurationExpr { kind: DurationKind::Seconds(seconds), place }
    }

    fn experimental(&mut self, place: Place) {
        if !self.options.duration_expressions {
            self.note(place, "experimental duration expression is not enabled");
        }
    }
}
