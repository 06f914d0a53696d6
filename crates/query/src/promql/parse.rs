//! Reading expressions: from words to a tree, by precedence climbing.
//!
//! Messages are those of Prometheus. Its generated parser says where it was when a word was unexpected by looking
//! for the innermost construct with a message of its own; here, `context` is that construct. Some errors do not keep
//! it from reading on, and what it meets first is reported: those are noted in `first_error`.

mod calls;
mod durations;
mod matchers;
mod matching;
mod suffixes;

pub use matchers::parse_series_labels;

use crate::error::{Error, Place, Result};

use super::ast::{BinaryOp, Expr, ExprKind, VectorSelector};
use super::check::check;
use super::duration::Duration;
use super::lexer::Lexer;
use super::matcher::Matcher;
use super::number::{parse_duration, parse_number};
use super::quote::unquoted;
use super::token::{Kind, Token, Word};
use super::{HEIGHT_MAX, LENGTH_MAX, NESTING_MAX, Options};

/// Reads an expression and checks its types.
pub fn parse(text: &str, options: &Options) -> Result<Expr> {
    let mut parser = Parser::new(text, options)?;
    if parser.peek()?.kind == Kind::End {
        return Err(error(Place::default(), "no expression found in input"));
    }
    let result = parser.expr(0).and_then(|node| {
        if parser.peek()?.kind != Kind::End {
            return Err(parser.unexpected());
        }
        Ok(node.expr)
    });
    let mut expr = parser.finish(result)?;
    check(&mut expr, text)?;
    Ok(expr)
}

pub(super) fn error(place: Place, message: impl Into<String>) -> Error {
    Error::Parse { place, message: message.into() }
}

/// What a message calls the construct, and what it says was expected.
type Context = (&'static str, &'static str);

/// Reads words into trees.
pub(super) struct Parser<'a> {
    text: &'a str,
    options: &'a Options,
    lexer: Lexer<'a>,
    peeked: Option<Token>,
    /// Where the last word that was taken ends.
    end: usize,
    context: Context,
    first_error: Option<Error>,
    nesting: usize,
    regexes: usize,
}

/// An expression and how deep it nests.
pub(super) struct Node {
    expr: Expr,
    height: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, options: &'a Options) -> Result<Parser<'a>> {
        limit("bytes of expression (LENGTH_MAX)", text.len(), LENGTH_MAX)?;
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

    // Words.

    fn peek(&mut self) -> Result<Token> {
        if let Some(token) = self.peeked {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.peeked = Some(token);
        Ok(token)
    }

    fn next(&mut self) -> Result<Token> {
        let token = self.peek()?;
        self.peeked = None;
        self.end = token.place.end;
        Ok(token)
    }

    fn take(&mut self, kind: Kind) -> Result<bool> {
        let is_next = self.peek()?.kind == kind;
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    fn expect(&mut self, kind: Kind) -> Result<Token> {
        if self.peek()?.kind != kind {
            return Err(self.unexpected());
        }
        self.next()
    }

    fn written(&self, token: Token) -> &'a str {
        self.text.get(token.place.start..token.place.end).unwrap_or("")
    }

    // Errors.

    /// Notes an error that does not keep the parser from reading on.
    fn note(&mut self, place: Place, message: impl Into<String>) {
        self.first_error.get_or_insert_with(|| error(place, message));
    }

    /// The error that the next word cannot be there.
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
        error(token.place, message)
    }

    fn unexpected_in(&mut self, context: &'static str, expected: &'static str) -> Error {
        self.context = (context, expected);
        self.unexpected()
    }

    /// What was read, unless an error was met before it, or instead.
    fn finish<T>(self, result: Result<T>) -> Result<T> {
        match (self.first_error, result) {
            // A limit is not about what is written, and always said.
            (_, Err(limit @ Error::Limit { .. })) => Err(limit),
            (Some(first), _) => Err(first),
            (None, result) => result,
        }
    }

    /// Reads something that nests.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nesting += 1;
        limit("nested expressions (NESTING_MAX)", self.nesting, NESTING_MAX)?;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Reads something in a construct with a message of its own.
    fn within<T>(
        &mut self,
        context: Context,
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

    /// Operators that bind at least this strongly, and what is between them.
    fn expr(&mut self, binding_min: u8) -> Result<Node> {
        self.nested(|parser| {
            let mut left = parser.unary()?;
            while let Kind::Op(op) = parser.peek()?.kind
                && op.binding() >= binding_min
            {
                parser.next()?;
                left = parser.binary(left, op)?;
            }
            Ok(left)
        })
    }

    fn binary(&mut self, left: Node, op: BinaryOp) -> Result<Node> {
        let (return_bool, matching) = self.modifiers()?;
        let is_right_first = op == BinaryOp::Power;
        let right = self.expr(op.binding() + u8::from(!is_right_first))?;
        let place = left.expr.place.to(right.expr.place);
        let is_filled = matching.fill_left.is_some() || matching.fill_right.is_some();
        if is_filled && !self.options.binop_fill {
            self.note(place, "binop fill modifiers are experimental and not enabled");
        }
        let height = left.height.max(right.height);
        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
        let matching = Some(matching);
        node(ExprKind::Binary { op, left, right, matching, return_bool }, place, height)
    }

    fn unary(&mut self) -> Result<Node> {
        let token = self.peek()?;
        let negative = match token.kind {
            Kind::Op(BinaryOp::Add) => false,
            Kind::Op(BinaryOp::Subtract) => true,
            _ => return self.with_suffixes(),
        };
        self.next()?;
        let operand = self.expr(BinaryOp::Power.binding())?;
        let place = token.place.to(operand.expr.place);
        match operand.expr.kind {
            ExprKind::Number(number) => {
                let number = if negative { -number } else { number };
                node(ExprKind::Number(number), place, 0)
            }
            _ => {
                let (height, expr) = (operand.height, Box::new(operand.expr));
                node(ExprKind::Unary { negative, expr }, place, height)
            }
        }
    }

    /// An expression with the ranges, offsets and so on that follow it.
    fn with_suffixes(&mut self) -> Result<Node> {
        let mut node = self.primary()?;
        loop {
            match self.peek()?.kind {
                Kind::LeftBracket => node = self.brackets(node)?,
                Kind::Word(Word::Offset) => self.offset(&mut node.expr)?,
                Kind::At => self.at(&mut node.expr)?,
                Kind::Word(word @ (Word::Anchored | Word::Smoothed)) => {
                    self.next()?;
                    self.extend_range(&mut node.expr, word == Word::Anchored);
                }
                _ => return Ok(node),
            }
        }
    }

    fn primary(&mut self) -> Result<Node> {
        let token = self.peek()?;
        match token.kind {
            Kind::Number | Kind::Duration => {
                let number = self.number()?;
                node(ExprKind::Number(number), token.place, 0)
            }
            Kind::Text => {
                self.next()?;
                node(ExprKind::Text(unquoted(self.written(token))), token.place, 0)
            }
            Kind::LeftParen => {
                self.next()?;
                let inner = self.expr(0)?;
                let close = self.expect(Kind::RightParen)?;
                let place = token.place.to(close.place);
                node(ExprKind::Paren(Box::new(inner.expr)), place, inner.height)
            }
            Kind::LeftBrace => self.selector(None),
            kind if !begins_expr(kind) => Err(self.unexpected()),
            kind => {
                self.next()?;
                let after = self.peek()?.kind;
                match (kind, after) {
                    (
                        Kind::Aggregate(op),
                        Kind::LeftParen | Kind::Word(Word::By | Word::Without),
                    ) => self.aggregate(op, token),
                    (Kind::Identifier, Kind::LeftParen) => self.call(token),
                    (Kind::Word(word), Kind::LeftParen) if is_function(word) => self.call(token),
                    _ => self.selector(Some(token)),
                }
            }
        }
    }

    // Numbers.

    /// A number, or a duration in seconds.
    fn number(&mut self) -> Result<f64> {
        let token = self.next()?;
        let text = self.written(token);
        let number = match token.kind {
            Kind::Duration => parse_duration(text).map(|nanos| nanos as f64 / 1e9),
            _ => parse_number(text),
        };
        Ok(number.unwrap_or_else(|message| {
            self.note(token.place, message);
            0.0
        }))
    }

    fn signed_number(&mut self) -> Result<f64> {
        let sign = match self.peek()?.kind {
            Kind::Op(BinaryOp::Add) => 1.0,
            Kind::Op(BinaryOp::Subtract) => -1.0,
            _ => 0.0,
        };
        if sign != 0.0 {
            self.next()?;
        }
        if !matches!(self.peek()?.kind, Kind::Number | Kind::Duration) {
            return Err(self.unexpected());
        }
        let number = self.number()?;
        Ok(if sign < 0.0 { -number } else { number })
    }

    // Selectors.

    fn selector(&mut self, name: Option<Token>) -> Result<Node> {
        let mut place = name.map_or(self.peek()?.place, |token| token.place);
        let mut matchers = Vec::new();
        if self.peek()?.kind == Kind::LeftBrace {
            matchers = self.matchers()?;
            place.end = self.end;
        }
        let name = name.map_or("", |token| self.written(token)).to_owned();
        if !name.is_empty() {
            matchers.push(Matcher::equal("__name__", name.clone()));
        }
        let (offset, at, anchored, smoothed) = (Duration::ZERO, None, false, false);
        let selector = VectorSelector { name, matchers, offset, at, anchored, smoothed, place };
        node(ExprKind::Selector(selector), place, 0)
    }
}

fn node(kind: ExprKind, place: Place, height_within: usize) -> Result<Node> {
    let height = height_within + 1;
    limit("levels in a tree of operators (HEIGHT_MAX)", height, HEIGHT_MAX)?;
    Ok(Node { expr: Expr { kind, place }, height })
}

fn limit(what: &'static str, found: usize, max: usize) -> Result<()> {
    if found <= max {
        return Ok(());
    }
    let remedy = "split it, or record a part of it".to_owned();
    Err(Error::Limit { what, found: found as u64, max: max as u64, remedy })
}

/// Words that are functions as well.
fn is_function(word: Word) -> bool {
    use Word::{End, MaxOf, MinOf, Range, Start, Step};
    matches!(word, End | MaxOf | MinOf | Range | Start | Step)
}

/// Whether an expression can begin so.
fn begins_expr(kind: Kind) -> bool {
    use Word::{Bool, GroupLeft, GroupRight, Ignoring, On};
    match kind {
        Kind::Number | Kind::Duration | Kind::Text | Kind::LeftParen | Kind::LeftBrace => true,
        Kind::Identifier | Kind::MetricIdentifier | Kind::Aggregate(_) => true,
        Kind::Op(op) => op.is_set() || matches!(op, BinaryOp::Add | BinaryOp::Subtract),
        Kind::Word(word) => !matches!(word, Bool | GroupLeft | GroupRight | Ignoring | On),
        _ => false,
    }
}
