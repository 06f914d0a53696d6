//! Suffixes of an expression: ranges, `offset`, `@`, `anchored` and `smoothed`.

use crate::error::{Result, SourceSpan};

use super::super::ast::{AtModifier, Expr, ExprKind};
use super::super::duration::DurationValue;
use super::super::token::{Keyword, TokenKind};
use super::{ENABLE_EXPERIMENTAL, ParseContext, ParsedExpr, Parser, node};

impl Parser<'_> {
    pub(super) fn brackets(&mut self, inner: ParsedExpr) -> Result<ParsedExpr> {
        const RANGE: ParseContext =
            ("subquery or range selector", "number, duration, step(), or range()");
        const STEP: ParseContext =
            ("subquery selector", "number, duration, step(), range(), or \"]\"");
        let open = self.next()?;
        let range = self.within(RANGE, Parser::positive_duration)?;
        let (start, height) = (inner.expr.span.start, inner.height);
        match self.peek()?.kind {
            TokenKind::RightBracket => {
                let close = self.next()?;
                let span = SourceSpan::new(start, close.span.end);
                let expr = match inner.expr.kind {
                    ExprKind::Selector(selector) => {
                        if selector.offset != DurationValue::ZERO {
                            let between = open.span.to(close.span);
                            self.record_error(between, "no offset modifiers allowed before range");
                        } else if selector.at.is_some() {
                            let between = open.span.to(close.span);
                            self.record_error(between, "no @ modifiers allowed before range");
                        }
                        ExprKind::Matrix { selector, range }
                    }
                    other => {
                        let between = open.span.to(close.span);
                        self.record_error(between, "ranges only allowed for vector selectors");
                        other
                    }
                };
                node(expr, span, height)
            }
            TokenKind::Colon => {
                self.next()?;
                let step = self.within(STEP, |parser| match parser.peek()?.kind {
                    TokenKind::RightBracket => Ok(None),
                    _ => parser.positive_duration().map(Some),
                })?;
                if self.peek()?.kind != TokenKind::RightBracket {
                    return Err(self.unexpected_in("subquery selector", "\"]\""));
                }
                let span = SourceSpan::new(start, self.next()?.span.end);
                let (expr, offset, at) = (Box::new(inner.expr), DurationValue::ZERO, None);
                node(ExprKind::Subquery { expr, range, step, offset, at }, span, height)
            }
            _ => Err(self.unexpected_in("subquery or range", "\":\" or \"]\"")),
        }
    }

    pub(super) fn offset(&mut self, expr: &mut Expr) -> Result<()> {
        const OFFSET: ParseContext = ("offset", "number, duration, step(), or range()");
        self.next()?;
        let offset = self.within(OFFSET, Parser::offset_duration)?;
        let span = expr.span;
        let Some((known, _)) = shifts(expr) else {
            let message = "offset modifier must be preceded by an instant vector selector or \
                           range vector selector or a subquery";
            self.record_error(span, message);
            return Ok(());
        };
        let is_twice = std::mem::replace(known, offset) != DurationValue::ZERO;
        if is_twice {
            self.record_error(span, "offset may not be set multiple times");
        }
        self.extend_span(expr);
        Ok(())
    }

    pub(super) fn at(&mut self, expr: &mut Expr) -> Result<()> {
        self.next()?;
        let at = self.within(("@", "timestamp"), |parser| {
            let at = match parser.peek()?.kind {
                TokenKind::Keyword(Keyword::Start) => AtModifier::Start,
                TokenKind::Keyword(Keyword::End) => AtModifier::End,
                _ => {
                    let seconds = parser.signed_number()?;
                    return Ok(AtModifier::Time(parser.time(seconds, expr.span)));
                }
            };
            parser.next()?;
            parser.expect(TokenKind::LeftParen)?;
            parser.expect(TokenKind::RightParen)?;
            Ok(at)
        })?;
        let span = expr.span;
        let Some((_, known)) = shifts(expr) else {
            let message = "@ modifier must be preceded by an instant vector selector or \
                           range vector selector or a subquery";
            self.record_error(span, message);
            return Ok(());
        };
        if known.replace(at).is_some() {
            self.record_error(span, "@ <timestamp> may not be set multiple times");
            return Ok(());
        }
        self.extend_span(expr);
        Ok(())
    }

    /// Timestamp in seconds as nanoseconds, rounded to milliseconds. There is no data beyond the
    /// range of nanoseconds, so such timestamps are clamped.
    fn time(&mut self, seconds: f64, span: SourceSpan) -> i64 {
        const MS_MAX: f64 = (i64::MAX / 1_000_000) as f64;
        if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
            let shown = match seconds {
                f64::INFINITY => "+Inf".to_owned(),
                f64::NEG_INFINITY => "-Inf".to_owned(),
                seconds => format!("{seconds:.6}"),
            };
            self.record_error(span, format!("timestamp out of bounds for @ modifier: {shown}"));
        }
        let ms = (seconds * 1000.0).round().clamp(-MS_MAX, MS_MAX) as i64;
        ms * 1_000_000
    }

    pub(super) fn extend_range(&mut self, expr: &mut Expr, anchored: bool) {
        let name = if anchored { "anchored" } else { "smoothed" };
        let span = expr.span;
        if !self.options.extended_selectors {
            let message = format!("{name} modifier is experimental{ENABLE_EXPERIMENTAL}");
            return self.record_error(span, message);
        }
        match &mut expr.kind {
            ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
                selector.anchored |= anchored;
                selector.smoothed |= !anchored;
                if selector.anchored && selector.smoothed {
                    self.record_error(
                        span,
                        "anchored and smoothed modifiers cannot be used together",
                    );
                }
            }
            ExprKind::Subquery { .. } => {
                self.record_error(span, format!("{name} modifier is not supported for subqueries"));
            }
            _ => self.record_error(span, format!("{name} modifier not implemented")),
        }
    }

    /// Extends the span of an expression by a suffix.
    fn extend_span(&self, expr: &mut Expr) {
        expr.span.end = self.end;
        if let ExprKind::Selector(selector) = &mut expr.kind {
            selector.span.end = self.end;
        }
    }
}

/// Offset and `@` of an expression that can have them.
fn shifts(expr: &mut Expr) -> Option<(&mut DurationValue, &mut Option<AtModifier>)> {
    match &mut expr.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
            Some((&mut selector.offset, &mut selector.at))
        }
        ExprKind::Subquery { offset, at, .. } => Some((offset, at)),
        _ => None,
    }
}
