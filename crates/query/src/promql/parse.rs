//! Precedence-climbing parser.
//!
//! Messages are those of Prometheus. For an unexpected token, its generated parser names the
//! innermost construct that has a message of its own; here, `context` is that construct. After some
//! errors parsing continues, and the first error is reported; `first_error` holds it.

mod calls;
mod durations;
mod matchers;
mod matching;
mod suffixes;

pub use matchers::parse_series_labels;

use crate::error::{Error, Result, SourceSpan};

use super::ast::{BinaryOp, Expr, ExprKind, VectorSelector};
use super::check::check;
use super::duration::DurationValue;
use super::lexer::Lexer;
use super::matcher::Matcher;
use super::number::{parse_number, parse_seconds};
use super::quote::unquote;
use super::token::{Keyword, PromqlToken, TokenKind};
use super::{HEIGHT_MAX, LENGTH_MAX, NESTING_MAX, Options};

/// End of an error: how the user enables what Prometheus has behind feature flags.
const ENABLE_EXPERIMENTAL: &str = "; enable with --experimental (HTTP: experimental=true)";

/// Parses an expression and checks its types.
pub fn parse(text: &str, options: &Options) -> Result<Expr> {
    let mut parser = Parser::new(text, options)?;
    if parser.peek()?.kind == TokenKind::End {
        return Err(error(SourceSpan::default(), "no expression found in input"));
    }
    let result = parser.expr(0).and_then(|node| {
        if parser.peek()?.kind != TokenKind::End {
            return Err(parser.unexpected());
        }
        Ok(node.expr)
    });
    let mut expr = parser.finish(result)?;
    check(&mut expr, text)?;
    Ok(expr)
}

pub(super) fn error(span: SourceSpan, message: impl Into<String>) -> Error {
    Error::Parse { span, message: message.into() }
}

/// Name of a construct in messages, and what was expected in it.
type ParseContext = (&'static str, &'static str);

/// PromQL parser.
pub(super) struct Parser<'a> {
    text: &'a str,
    options: &'a Options,
    lexer: Lexer<'a>,
    peeked: Option<PromqlToken>,
    /// End of the last consumed token.
    end: usize,
    context: ParseContext,
    first_error: Option<Error>,
    nesting: usize,
    regexes: usize,
}

/// Expression with its height.
pub(super) struct ParsedExpr {
    expr: Expr,
    height: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, options: &'a Options) -> Result<Parser<'a>> {
        check_limit("bytes of text", text.len(), LENGTH_MAX)?;
        Ok(Parser {
            text,
            options,
            lexer: Lexer::new(text),
            peeked: None,
            end: 0,
            context: ("", ""),
            first_error: None,
            nesting: 0,
            regexes: 0,
        })
    }

    // Tokens.

    fn peek(&mut self) -> Result<PromqlToken> {
        if let Some(token) = self.peeked {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.peeked = Some(token);
        Ok(token)
    }

    fn next(&mut self) -> Result<PromqlToken> {
        let token = self.peek()?;
        self.peeked = None;
        self.end = token.span.end;
        Ok(token)
    }

    fn consume(&mut self, kind: TokenKind) -> Result<bool> {
        let is_next = self.peek()?.kind == kind;
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, kind: TokenKind) -> Result<PromqlToken> {
        if self.peek()?.kind != kind {
            return Err(self.unexpected());
        }
        self.next()
    }

    fn token_text(&self, token: PromqlToken) -> &'a str {
        self.text.get(token.span.start..token.span.end).unwrap_or("")
    }

    // Errors.

    /// Records an error after which parsing continues.
    fn record_error(&mut self, span: SourceSpan, message: impl Into<String>) {
        self.first_error.get_or_insert_with(|| error(span, message));
    }

    /// Error for an unexpected next token.
    fn unexpected(&mut self) -> Error {
        let token = match self.peek() {
            Ok(token) => token,
            Err(error) => return error,
        };
        let mut message = format!("unexpected {}", token.describe(self.text));
        let (context, expected) = self.context;
        if !context.is_empty() {
            message.push_str(&format!(" in {context}"));
        }
        if !expected.is_empty() {
            message.push_str(&format!(", expected {expected}"));
        }
        error(token.span, message)
    }

    fn unexpected_in(&mut self, context: &'static str, expected: &'static str) -> Error {
        self.context = (context, expected);
        self.unexpected()
    }

    /// Result, unless an earlier error was recorded.
    fn finish<T>(self, result: Result<T>) -> Result<T> {
        match (self.first_error, result) {
            // A limit error takes precedence over recorded errors.
            (_, Err(limit @ Error::Limit { .. })) => Err(limit),
            (Some(first), _) => Err(first),
            (None, result) => result,
        }
    }

    /// Parses a nested construct within the nesting limit.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nesting += 1;
        check_limit("nested expressions", self.nesting, NESTING_MAX)?;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Parses a construct with a message of its own.
    fn within<T>(
        &mut self,
        context: ParseContext,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = std::mem::replace(&mut self.context, context);
        let result = read(self);
        if result.is_ok() {
            self.context = outer;
        }
        result
    }

    // Expressions.

    /// Parses operators of at least this precedence and their operands.
    fn expr(&mut self, binding_min: u8) -> Result<ParsedExpr> {
        self.nested(|parser| {
            let mut left = parser.unary()?;
            while let TokenKind::Op(op) = parser.peek()?.kind
                && op.precedence() >= binding_min
            {
                parser.next()?;
                left = parser.binary(left, op)?;
            }
            Ok(left)
        })
    }

    fn binary(&mut self, left: ParsedExpr, op: BinaryOp) -> Result<ParsedExpr> {
        let (return_bool, matching) = self.modifiers()?;
        let is_right_first = op == BinaryOp::Power;
        let right = self.expr(op.precedence() + u8::from(!is_right_first))?;
        let span = left.expr.span.to(right.expr.span);
        let is_filled = matching.fill_left.is_some() || matching.fill_right.is_some();
        if is_filled && !self.options.binop_fill {
            let message = format!("fill modifiers are experimental{ENABLE_EXPERIMENTAL}");
            self.record_error(span, message);
        }
        let height = left.height.max(right.height);
        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
        let matching = Some(matching);
        node(ExprKind::Binary { op, left, right, matching, return_bool }, span, height)
    }

    fn unary(&mut self) -> Result<ParsedExpr> {
        let token = self.peek()?;
        let negative = match token.kind {
            TokenKind::Op(BinaryOp::Add) => false,
            TokenKind::Op(BinaryOp::Subtract) => true,
            _ => return self.with_suffixes(),
        };
        self.next()?;
        let operand = self.expr(BinaryOp::Power.precedence())?;
        let span = token.span.to(operand.expr.span);
        match operand.expr.kind {
            ExprKind::Number(number) => {
                let number = if negative { -number } else { number };
                node(ExprKind::Number(number), span, 0)
            }
            ExprKind::Duration(seconds) => {
                let seconds = if negative { -seconds } else { seconds };
                node(ExprKind::Duration(seconds), span, 0)
            }
            _ => {
                let (height, expr) = (operand.height, Box::new(operand.expr));
                node(ExprKind::Unary { negative, expr }, span, height)
            }
        }
    }

    /// Parses an expression with its ranges, offsets and other suffixes.
    fn with_suffixes(&mut self) -> Result<ParsedExpr> {
        let mut node = self.primary()?;
        loop {
            match self.peek()?.kind {
                TokenKind::LeftBracket => node = self.brackets(node)?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(&mut node.expr)?,
                TokenKind::At => self.at(&mut node.expr)?,
                TokenKind::Keyword(word @ (Keyword::Anchored | Keyword::Smoothed)) => {
                    self.next()?;
                    self.extend_range(&mut node.expr, word == Keyword::Anchored);
                }
                _ => return Ok(node),
            }
        }
    }

    fn primary(&mut self) -> Result<ParsedExpr> {
        let token = self.peek()?;
        match token.kind {
            TokenKind::Number => {
                let number = self.number()?;
                node(ExprKind::Number(number), token.span, 0)
            }
            TokenKind::Duration => {
                let seconds = self.number()?;
                node(ExprKind::Duration(seconds), token.span, 0)
            }
            TokenKind::String => {
                self.next()?;
                node(ExprKind::Text(unquote(self.token_text(token))), token.span, 0)
            }
            TokenKind::LeftParen => {
                self.next()?;
                let inner = self.expr(0)?;
                let close = self.expect(TokenKind::RightParen)?;
                let span = token.span.to(close.span);
                node(ExprKind::Paren(Box::new(inner.expr)), span, inner.height)
            }
            TokenKind::LeftBrace => self.selector(None),
            kind if !starts_expr(kind) => Err(self.unexpected()),
            kind => {
                self.next()?;
                let after = self.peek()?.kind;
                match (kind, after) {
                    (
                        TokenKind::Aggregate(op),
                        TokenKind::LeftParen | TokenKind::Keyword(Keyword::By | Keyword::Without),
                    ) => self.aggregate(op, token),
                    (TokenKind::Identifier, TokenKind::LeftParen) => self.call(token),
                    (TokenKind::Keyword(word), TokenKind::LeftParen) if is_function(word) => {
                        self.call(token)
                    }
                    _ => self.selector(Some(token)),
                }
            }
        }
    }

    // Numbers.

    /// Parses a number, or a duration in seconds.
    fn number(&mut self) -> Result<f64> {
        let token = self.next()?;
        let text = self.token_text(token);
        let number = match token.kind {
            TokenKind::Duration => parse_seconds(text),
            _ => parse_number(text),
        };
        Ok(number.unwrap_or_else(|message| {
            self.record_error(token.span, message);
            0.0
        }))
    }

    fn signed_number(&mut self) -> Result<f64> {
        let sign = match self.peek()?.kind {
            TokenKind::Op(BinaryOp::Add) => 1.0,
            TokenKind::Op(BinaryOp::Subtract) => -1.0,
            _ => 0.0,
        };
        if sign != 0.0 {
            self.next()?;
        }
        if !matches!(self.peek()?.kind, TokenKind::Number | TokenKind::Duration) {
            return Err(self.unexpected());
        }
        let number = self.number()?;
        Ok(if sign < 0.0 { -number } else { number })
    }

    // Selectors.

    fn selector(&mut self, name: Option<PromqlToken>) -> Result<ParsedExpr> {
        let mut span = name.map_or(self.peek()?.span, |token| token.span);
        let mut matchers = Vec::new();
        if self.peek()?.kind == TokenKind::LeftBrace {
            matchers = self.matchers()?;
            span.end = self.end;
        }
        let name = name.map_or("", |token| self.token_text(token)).to_owned();
        if !name.is_empty() {
            matchers.push(Matcher::label_equals("__name__", name.clone()));
        }
        let (offset, at, anchored, smoothed) = (DurationValue::ZERO, None, false, false);
        let selector = VectorSelector { name, matchers, offset, at, anchored, smoothed, span };
        node(ExprKind::Selector(selector), span, 0)
    }
}

fn node(kind: ExprKind, span: SourceSpan, height_within: usize) -> Result<ParsedExpr> {
    let height = height_within + 1;
    check_limit("levels of operators", height, HEIGHT_MAX)?;
    Ok(ParsedExpr { expr: Expr { kind, span }, height })
}

fn check_limit(limit: &'static str, found: usize, max: usize) -> Result<()> {
    if found <= max {
        return Ok(());
    }
    let remedy = "split the expression, or use a recording rule for a part of it".to_owned();
    Err(Error::Limit { limit, found: found as u64, max: max as u64, remedy })
}

/// Keywords that are also functions.
fn is_function(word: Keyword) -> bool {
    use Keyword::{End, MaxOf, MinOf, Range, Start, Step};
    matches!(word, End | MaxOf | MinOf | Range | Start | Step)
}

/// Whether a token can start an expression.
fn starts_expr(kind: TokenKind) -> bool {
    use Keyword::{Bool, GroupLeft, GroupRight, Ignoring, On};
    match kind {
        TokenKind::Number
        | TokenKind::Duration
        | TokenKind::String
        | TokenKind::LeftParen
        | TokenKind::LeftBrace => true,
        TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_) => true,
        TokenKind::Op(op) => op.is_set() || matches!(op, BinaryOp::Add | BinaryOp::Subtract),
        TokenKind::Keyword(word) => !matches!(word, Bool | GroupLeft | GroupRight | Ignoring | On),
        _ => false,
    }
}
