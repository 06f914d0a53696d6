//! Reading expressions: from words to a tree, by precedence climbing.
//!
//! Messages are those of Prometheus. Its generated parser says where it was when a word was unexpected by looking
//! for the innermost construct with a message of its own; here, `context` is that construct. Some errors do not keep
//! it from reading on, and what it meets first is reported: those are noted in `first_error`.

mod durations;
mod matchers;

pub use matchers::parse_series_labels;

use crate::error::{Error, Place, Result};

use super::ast::{At, BinaryOp, Cardinality, Expr, ExprKind, Matching, VectorSelector};
use super::check::check;
use super::duration::Duration;
use super::functions::{AggregateOp, FUNCTIONS, function};
use super::lexer::{Kind, Lexer, Token, Word};
use super::matcher::Matcher;
use super::number::{parse_duration, parse_number};
use super::quote::{quoted, unquoted};
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

pub(super) const IN_GROUPING: &str = "grouping opts";

/// Reads words into trees.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) options: &'a Options,
    lexer: Lexer<'a>,
    peeked: Option<Token>,
    /// Where the last word that was taken ends.
    pub(super) end: usize,
    pub(super) context: Context,
    first_error: Option<Error>,
    nesting: usize,
    pub(super) regexes: usize,
}

/// An expression and how deep it nests.
pub(super) struct Node {
    pub(super) expr: Expr,
    height: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, options: &'a Options) -> Result<Parser<'a>> {
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

    pub(super) fn peek(&mut self) -> Result<Token> {
        if let Some(token) = self.peeked {
            return Ok(token);
        }
        let token = self.lexer.next()?;
        self.peeked = Some(token);
        Ok(token)
    }

    pub(super) fn next(&mut self) -> Result<Token> {
        let token = self.peek()?;
        self.peeked = None;
        self.end = token.place.end;
        Ok(token)
    }

    pub(super) fn take(&mut self, kind: Kind) -> Result<bool> {
        let is_next = self.peek()?.kind == kind;
        if is_next {
            self.next()?;
        }
        Ok(is_next)
    }

    pub(super) fn expect(&mut self, kind: Kind) -> Result<Token> {
        if self.peek()?.kind != kind {
            return Err(self.unexpected());
        }
        self.next()
    }

    pub(super) fn written(&self, token: Token) -> &'a str {
        self.text.get(token.place.start..token.place.end).unwrap_or("")
    }

    // Errors.

    /// Notes an error that does not keep the parser from reading on.
    pub(super) fn note(&mut self, place: Place, message: impl Into<String>) {
        self.first_error.get_or_insert_with(|| error(place, message));
    }

    /// The error that the next word cannot be there.
    pub(super) fn unexpected(&mut self) -> Error {
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

    pub(super) fn unexpected_in(&mut self, context: &'static str, expected: &'static str) -> Error {
        self.context = (context, expected);
        self.unexpected()
    }

    /// What was read, unless an error was met before it, or instead.
    pub(super) fn finish<T>(self, result: Result<T>) -> Result<T> {
        match (self.first_error, result) {
            // A limit is not about what is written, and always said.
            (_, Err(limit @ Error::Limit { .. })) => Err(limit),
            (Some(first), _) => Err(first),
            (None, result) => result,
        }
    }

    /// Reads something that nests.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.nesting += 1;
        limit("nested expressions (NESTING_MAX)", self.nesting, NESTING_MAX)?;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// Reads something in a construct with a message of its own.
    pub(super) fn within<T>(
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

    /// What may stand between an operator and its right side.
    fn modifiers(&mut self) -> Result<(bool, Matching)> {
        let mut matching = Matching::default();
        let return_bool = self.take(Kind::Word(Word::Bool))?;
        let on_or_ignoring = self.peek()?.kind;
        if matches!(on_or_ignoring, Kind::Word(Word::On | Word::Ignoring)) {
            self.next()?;
            matching.on = on_or_ignoring == Kind::Word(Word::On);
            matching.labels = self.grouping()?;
            matching.cardinality = match self.peek()?.kind {
                Kind::Word(Word::GroupLeft) => Cardinality::ManyToOne,
                Kind::Word(Word::GroupRight) => Cardinality::OneToMany,
                _ => Cardinality::OneToOne,
            };
            if matching.cardinality != Cardinality::OneToOne {
                self.next()?;
                let after = self.peek()?.kind;
                let is_fill =
                    matches!(after, Kind::Word(Word::Fill | Word::FillLeft | Word::FillRight));
                if after == Kind::LeftParen || !is_fill && !begins_expr(after) {
                    matching.include = self.grouping()?;
                }
            }
        }
        if self.take(Kind::Word(Word::Fill))? {
            matching.fill_left = Some(self.fill_value()?);
            matching.fill_right = matching.fill_left;
        } else if self.take(Kind::Word(Word::FillLeft))? {
            matching.fill_left = Some(self.fill_value()?);
            if self.take(Kind::Word(Word::FillRight))? {
                matching.fill_right = Some(self.fill_value()?);
            }
        } else if self.take(Kind::Word(Word::FillRight))? {
            matching.fill_right = Some(self.fill_value()?);
            if self.take(Kind::Word(Word::FillLeft))? {
                matching.fill_left = Some(self.fill_value()?);
            }
        }
        Ok((return_bool, matching))
    }

    fn fill_value(&mut self) -> Result<f64> {
        self.expect(Kind::LeftParen)?;
        let value = self.signed_number()?;
        self.expect(Kind::RightParen)?;
        Ok(value)
    }

    /// Labels in parentheses.
    fn grouping(&mut self) -> Result<Vec<String>> {
        if self.peek()?.kind != Kind::LeftParen {
            return Err(self.unexpected_in(IN_GROUPING, "\"(\""));
        }
        self.next()?;
        let mut labels = Vec::new();
        while !self.take(Kind::RightParen)? {
            let token = self.peek()?;
            let label = match token.kind {
                Kind::Text => unquoted(self.written(token)),
                Kind::Identifier | Kind::MetricIdentifier | Kind::Aggregate(_) => {
                    self.written(token).to_owned()
                }
                Kind::Word(word) if word != Word::Without => self.written(token).to_owned(),
                Kind::Op(op) if op.is_set() || op == BinaryOp::Atan2 => {
                    self.written(token).to_owned()
                }
                _ => return Err(self.unexpected_in(IN_GROUPING, "label")),
            };
            self.next()?;
            if label.is_empty() {
                self.note(token.place, "invalid label name for grouping: \"\"");
            }
            labels.push(label);
            match self.peek()?.kind {
                Kind::Comma => drop(self.next()?),
                Kind::RightParen => {}
                _ => return Err(self.unexpected_in(IN_GROUPING, "\",\" or \")\"")),
            }
        }
        Ok(labels)
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

    fn aggregate(&mut self, op: AggregateOp, token: Token) -> Result<Node> {
        let (before, (args, height)) = self
            .within(("aggregation", ""), |parser| Ok((parser.by_or_without()?, parser.args()?)))?;
        let (without, grouping) = match before {
            Some(before) => before,
            None => self.by_or_without()?.unwrap_or_default(),
        };
        let place = Place::new(token.place.start, self.end);
        let expected = 1 + usize::from(op.param().is_some());
        if args.is_empty() {
            self.note(place, "no arguments for aggregate expression provided");
        } else if op.is_experimental() && !self.options.experimental_functions {
            self.note(
                place,
                format!(
                    "{}() is experimental and must be enabled with \
                     --enable-feature=promql-experimental-functions",
                    op.text()
                ),
            );
        } else if args.len() != expected {
            let found = args.len();
            self.note(
                place,
                format!(
                    "wrong number of arguments for aggregate expression provided, \
                     expected {expected}, got {found}"
                ),
            );
        }
        let mut args = args.into_iter().rev().map(Box::new);
        let Some(expr) = args.next() else { return node(ExprKind::Number(0.0), place, 0) };
        let param = args.next();
        node(ExprKind::Aggregate { op, expr, param, grouping, without }, place, height)
    }

    /// Whether the labels are dropped, and which.
    fn by_or_without(&mut self) -> Result<Option<(bool, Vec<String>)>> {
        let without = match self.peek()?.kind {
            Kind::Word(Word::By) => false,
            Kind::Word(Word::Without) => true,
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some((without, self.grouping()?)))
    }

    /// Arguments in parentheses, and how deep the deepest nests.
    fn args(&mut self) -> Result<(Vec<Expr>, usize)> {
        self.expect(Kind::LeftParen)?;
        let (mut args, mut height) = (Vec::new(), 0);
        if self.take(Kind::RightParen)? {
            return Ok((args, height));
        }
        loop {
            let arg = self.expr(0)?;
            height = height.max(arg.height);
            args.push(arg.expr);
            loop {
                let token = self.peek()?;
                match token.kind {
                    Kind::RightParen => {
                        self.next()?;
                        return Ok((args, height));
                    }
                    Kind::Comma => drop(self.next()?),
                    _ => return Err(self.unexpected()),
                }
                if begins_expr(self.peek()?.kind) {
                    break;
                }
                self.note(token.place, "trailing commas not allowed in function call args");
            }
        }
    }

    fn call(&mut self, token: Token) -> Result<Node> {
        let (args, height) = self.args()?;
        let place = Place::new(token.place.start, self.end);
        let name = self.written(token);
        let Some(function) = function(name) else {
            let hint =
                nearest_function(name).map(|near| format!("; did you mean {}?", quoted(near)));
            let message = format!("unknown function with name {}", quoted(name));
            self.note(token.place, message + &hint.unwrap_or_default());
            return node(ExprKind::Number(0.0), place, 0);
        };
        if function.is_experimental && !self.options.experimental_functions {
            self.note(token.place, format!("function {} is not enabled", quoted(name)));
        }
        node(ExprKind::Call { function, args }, place, height)
    }

    // Numbers.

    /// A number, or a duration in seconds.
    pub(super) fn number(&mut self) -> Result<f64> {
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

    // Suffixes.

    fn brackets(&mut self, inner: Node) -> Result<Node> {
        const RANGE: Context =
            ("subquery or range selector", "number, duration, step(), or range()");
        const STEP: Context = ("subquery selector", "number, duration, step(), range(), or \"]\"");
        let open = self.next()?;
        let range = self.within(RANGE, Parser::positive_duration)?;
        let (start, height) = (inner.expr.place.start, inner.height);
        match self.peek()?.kind {
            Kind::RightBracket => {
                let close = self.next()?;
                let place = Place::new(start, close.place.end);
                let expr = match inner.expr.kind {
                    ExprKind::Selector(selector) => {
                        if selector.offset != Duration::ZERO {
                            let between = open.place.to(close.place);
                            self.note(between, "no offset modifiers allowed before range");
                        } else if selector.at.is_some() {
                            let between = open.place.to(close.place);
                            self.note(between, "no @ modifiers allowed before range");
                        }
                        ExprKind::Matrix { selector, range }
                    }
                    other => {
                        let between = open.place.to(close.place);
                        self.note(between, "ranges only allowed for vector selectors");
                        other
                    }
                };
                node(expr, place, height)
            }
            Kind::Colon => {
                self.next()?;
                let step = self.within(STEP, |parser| match parser.peek()?.kind {
                    Kind::RightBracket => Ok(None),
                    _ => parser.positive_duration().map(Some),
                })?;
                if self.peek()?.kind != Kind::RightBracket {
                    return Err(self.unexpected_in("subquery selector", "\"]\""));
                }
                let place = Place::new(start, self.next()?.place.end);
                let (expr, offset, at) = (Box::new(inner.expr), Duration::ZERO, None);
                node(ExprKind::Subquery { expr, range, step, offset, at }, place, height)
            }
            _ => Err(self.unexpected_in("subquery or range", "\":\" or \"]\"")),
        }
    }

    fn offset(&mut self, expr: &mut Expr) -> Result<()> {
        const OFFSET: Context = ("offset", "number, duration, step(), or range()");
        self.next()?;
        let offset = self.within(OFFSET, Parser::offset_duration)?;
        let place = expr.place;
        let Some((known, _)) = shifts(expr) else {
            let message = "offset modifier must be preceded by an instant vector selector or \
                           range vector selector or a subquery";
            self.note(place, message);
            return Ok(());
        };
        let is_twice = std::mem::replace(known, offset) != Duration::ZERO;
        if is_twice {
            self.note(place, "offset may not be set multiple times");
        }
        self.extend_place(expr);
        Ok(())
    }

    fn at(&mut self, expr: &mut Expr) -> Result<()> {
        self.next()?;
        let at = self.within(("@", "timestamp"), |parser| {
            let at = match parser.peek()?.kind {
                Kind::Word(Word::Start) => At::Start,
                Kind::Word(Word::End) => At::End,
                _ => {
                    let seconds = parser.signed_number()?;
                    return Ok(At::Time(parser.time(seconds, expr.place)));
                }
            };
            parser.next()?;
            parser.expect(Kind::LeftParen)?;
            parser.expect(Kind::RightParen)?;
            Ok(at)
        })?;
        let place = expr.place;
        let Some((_, known)) = shifts(expr) else {
            let message = "@ modifier must be preceded by an instant vector selector or \
                           range vector selector or a subquery";
            self.note(place, message);
            return Ok(());
        };
        if known.replace(at).is_some() {
            self.note(place, "@ <timestamp> may not be set multiple times");
            return Ok(());
        }
        self.extend_place(expr);
        Ok(())
    }

    /// Nanoseconds of a time in seconds, to the millisecond. Beyond what nanoseconds can say there is no data, so
    /// times out there are moved to the last that can be said.
    fn time(&mut self, seconds: f64, place: Place) -> i64 {
        const MS_MAX: f64 = (i64::MAX / 1_000_000) as f64;
        if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
            let shown = match seconds {
                f64::INFINITY => "+Inf".to_owned(),
                f64::NEG_INFINITY => "-Inf".to_owned(),
                seconds => format!("{seconds:.6}"),
            };
            self.note(place, format!("timestamp out of bounds for @ modifier: {shown}"));
        }
        let ms = (seconds * 1000.0).round().clamp(-MS_MAX, MS_MAX) as i64;
        ms * 1_000_000
    }

    fn extend_range(&mut self, expr: &mut Expr, anchored: bool) {
        let name = if anchored { "anchored" } else { "smoothed" };
        let place = expr.place;
        if !self.options.extended_selectors {
            return self.note(place, format!("{name} modifier is experimental and not enabled"));
        }
        match &mut expr.kind {
            ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
                selector.anchored |= anchored;
                selector.smoothed |= !anchored;
                if selector.anchored && selector.smoothed {
                    self.note(place, "anchored and smoothed modifiers cannot be used together");
                }
            }
            ExprKind::Subquery { .. } => {
                self.note(place, format!("{name} modifier is not supported for subqueries"));
            }
            _ => self.note(place, format!("{name} modifier not implemented")),
        }
    }

    /// A suffix belongs to what it follows.
    fn extend_place(&self, expr: &mut Expr) {
        expr.place.end = self.end;
        if let ExprKind::Selector(selector) = &mut expr.kind {
            selector.place.end = self.end;
        }
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

/// Offset and time of what can have them.
fn shifts(expr: &mut Expr) -> Option<(&mut Duration, &mut Option<At>)> {
    match &mut expr.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => {
            Some((&mut selector.offset, &mut selector.at))
        }
        ExprKind::Subquery { offset, at, .. } => Some((offset, at)),
        _ => None,
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

/// A function that may have been meant.
fn nearest_function(name: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = 40;
    const DISTANCE_MAX: usize = 2;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let near = FUNCTIONS.iter().map(|function| (distance(name, function.name), function.name));
    let (distance, name) = near.min()?;
    (distance <= DISTANCE_MAX && distance < name.len()).then_some(name)
}

/// How many letters have to be put in, left out or changed.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
