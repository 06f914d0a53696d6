//! CAQL parser.
//!
//! ```text
//! query     <- directive* pipe
//! directive <- '#' word ('=' value)?
//! pipe      <- operation ('|' call)*
//! operation <- unary (operator unary)*          operators in order of precedence
//! unary     <- ('!' / '-') unary / 'not' operation / primary
//! primary   <- call / constant / sign? (number / duration) / text / '(' pipe ')'
//! call      <- name ('(' (argument (',' argument)*)? ')')? ('{' (pipe (',' pipe)*)? '}')?
//! argument  <- (name '=')? (sign? (number / duration) / text / constant)
//! ```
//! A call needs parentheses, braces or both. A sign directly before a number, where an operand is
//! expected, belongs to the number; elsewhere it is an operator. `not` applies to everything up to
//! the next pipe, comma, closing parenthesis or brace.

use super::ast::{
    Argument, Body, CallExpr, CaqlExpr, CaqlExprKind, CaqlQuery, Constant, Directives, Literal,
    Operator,
};
use super::lexer::{CaqlLexer, CaqlToken, CaqlTokenKind, is_quote};
use super::{ARGUMENTS_MAX, DEPTH_MAX, EXPRESSION_BYTES_MAX, INPUTS_MAX};
use crate::error::{Error, Result, SourceSpan};

/// Parses a query.
pub fn parse(text: &str) -> Result<CaqlQuery> {
    if text.len() > EXPRESSION_BYTES_MAX {
        return Err(limit_error(
            "bytes of query text",
            text.len(),
            EXPRESSION_BYTES_MAX,
            "split the query",
        ));
    }
    let mut lexer = CaqlLexer::new(text, 0);
    let (directives, is_promql) = head(&mut lexer)?;
    if is_promql {
        let offset = lexer.offset();
        let text = text[offset..].to_owned();
        return Ok(CaqlQuery { directives, body: Body::Promql { text, offset } });
    }
    let token = lexer.next()?;
    if token.kind == CaqlTokenKind::End {
        let message = "empty expression; write one, such as find(\"name\")";
        return Err(Error::Parse { span: token.span, message: message.to_owned() });
    }
    let mut parser = CaqlParser { lexer, token, end: 0, nesting: 0 };
    let node = parser.pipe()?;
    match parser.token.kind {
        CaqlTokenKind::End => Ok(CaqlQuery { directives, body: Body::Caql(node.expr) }),
        _ => Err(parser.expected("an operator, | or the end")),
    }
}

// Directives.

/// For errors. `#strict`, the former name of `#serial`, is accepted too.
const DIRECTIVES: &str =
    "#preview, #serial, #min_period=10s, #lang=\"promql\", #lookback_window=5m";

/// Parses directives; returns whether PromQL follows them.
fn head(lexer: &mut CaqlLexer<'_>) -> Result<(Directives, bool)> {
    let mut directives = Directives::default();
    let mut is_promql = false;
    loop {
        lexer.skip_blanks_and_comments();
        let start = lexer.offset();
        if !lexer.take("#") {
            return Ok((directives, is_promql));
        }
        let name = lexer.word();
        let span = SourceSpan::new(start, lexer.offset());
        let refused = |message: String| Error::Parse { span, message };
        match name {
            "preview" => directives.preview = true,
            "serial" | "strict" => directives.serial = true,
            "min_period" | "lookback_window" => {
                let ns = parse_positive_duration(lexer, start, name)?;
                let field = match name {
                    "min_period" => &mut directives.min_period_ns,
                    _ => &mut directives.lookback_ns,
                };
                if field.replace(ns).is_some() {
                    return Err(refused(format!("duplicate directive #{name}")));
                }
            }
            "lang" => match language(lexer)?.as_str() {
                "promql" => is_promql = true,
                "caql" => is_promql = false,
                other => {
                    let message = format!("unknown language {other:?}; use \"caql\" or \"promql\"");
                    return Err(refused(message));
                }
            },
            // In PromQL, # starts a comment.
            _ if is_promql => {
                *lexer = lexer.with_offset(start);
                return Ok((directives, is_promql));
            }
            _ => {
                return Err(refused(format!(
                    "unknown directive #{name}; supported are {DIRECTIVES}"
                )));
            }
        }
    }
}

/// Parses `=` and a number of seconds or a duration.
fn parse_positive_duration(lexer: &mut CaqlLexer<'_>, start: usize, name: &str) -> Result<i64> {
    let is_given = lexer.take("=");
    let quoted = is_given && lexer.peek().is_some_and(is_quote);
    // The duration has no spaces: the same line may continue with an expression that starts with a
    // number.
    let ns = match (is_given, quoted) {
        (false, _) => None,
        (true, false) => lexer.seconds_or_duration()?,
        (true, true) => {
            let mut inner = CaqlLexer::new(lexer.string_in_quotes()?, 0);
            inner.seconds_or_duration().ok().flatten()
        }
    };
    ns.filter(|ns| *ns > 0).ok_or_else(|| {
        let message =
            format!("#{name} requires a positive duration, as in #{name}=60 or #{name}=1m");
        lexer.error(start, lexer.offset(), message)
    })
}

/// Parses `=` and a word, quoted or not.
fn language(lexer: &mut CaqlLexer<'_>) -> Result<String> {
    let start = lexer.offset();
    if !lexer.take("=") {
        return Err(lexer.error(start, start, "#lang requires a language, as in #lang=\"promql\""));
    }
    let is_quoted = lexer.peek().is_some_and(is_quote);
    Ok(if is_quoted { lexer.string_in_quotes()? } else { lexer.word() }.to_owned())
}

// Expressions.

struct CaqlParser<'a> {
    lexer: CaqlLexer<'a>,
    /// Next token, not yet consumed.
    token: CaqlToken<'a>,
    /// End of the previous token.
    end: usize,
    /// Nesting depth of parentheses, braces, signs and right operands.
    nesting: usize,
}

/// Node with its height.
struct CaqlParsedExpr {
    expr: CaqlExpr,
    height: usize,
}

impl<'a> CaqlParser<'a> {
    fn pipe(&mut self) -> Result<CaqlParsedExpr> {
        let mut left = self.operation(0)?;
        while self.consume("|")? {
            let Some(name) = self.name_of_call() else {
                return Err(self.expected("a call after |, such as stats:sum()"));
            };
            let right = self.call(name, Some(left))?;
            if self.operator_between().is_some() {
                let message =
                    "a call after | cannot be an operand; write (… | f()) + 1 or f(){…} + 1";
                return Err(self.error_at_token(message));
            }
            left = right;
        }
        Ok(left)
    }

    /// Parses a chain of operators of at least this precedence.
    fn operation(&mut self, least: usize) -> Result<CaqlParsedExpr> {
        let mut left = self.unary()?;
        while let Some((precedence, operator)) =
            self.operator_between().filter(|(precedence, _)| *precedence >= least)
        {
            let mut operands = vec![left];
            while self.operator_between() == Some((precedence, operator)) {
                if operator.is_comparison() && operands.len() == 2 {
                    let symbol = operator.symbol();
                    let message = format!(
                        "comparisons take exactly two operands: write (a {symbol} b) and (b \
                         {symbol} c)"
                    );
                    return Err(self.error_at_token(&message));
                }
                if operands.len() == INPUTS_MAX {
                    let remedy = "use op:sum or stats:sum with one find";
                    return Err(limit_error(
                        "operands in a chain",
                        operands.len() + 1,
                        INPUTS_MAX,
                        remedy,
                    ));
                }
                self.advance()?;
                operands.push(self.nested(|parser| parser.operation(precedence + 1))?);
            }
            left = operation(operator, operands)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<CaqlParsedExpr> {
        let start = self.token.span.start;
        if self.token.kind == CaqlTokenKind::Name("not") {
            self.advance()?;
            let operand = self.nested(|parser| parser.operation(0))?;
            return Ok(operation(Operator::Not, vec![operand])?.from(start));
        }
        if self.consume("!")? {
            let operand = self.nested(CaqlParser::unary)?;
            return Ok(operation(Operator::Not, vec![operand])?.from(start));
        }
        if let Some(literal) = self.signed()? {
            return Ok(CaqlParsedExpr::leaf(literal, SourceSpan::new(start, self.end)));
        }
        // `signed` left a sign that no number follows.
        if self.consume("-")? {
            let operand = self.nested(CaqlParser::unary)?;
            return Ok(operation(Operator::Negate, vec![operand])?.from(start));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<CaqlParsedExpr> {
        let start = self.token.span.start;
        if let Some(name) = self.name_of_call() {
            return self.call(name, None);
        }
        if let Some(literal) = self.literal()? {
            return Ok(CaqlParsedExpr::leaf(literal, SourceSpan::new(start, self.end)));
        }
        if self.consume("(")? {
            let mut inner = self.nested(CaqlParser::pipe)?;
            if !self.consume(")")? {
                return Err(self.expected("an operator, | or `)`"));
            }
            inner.expr.span = SourceSpan::new(start, self.end);
            return Ok(inner);
        }
        Err(self.expected("a call, a number, a duration, a string or `(`"))
    }

    // Calls.

    /// Name of a call, if one is next.
    fn name_of_call(&self) -> Option<&'a str> {
        match self.token.kind {
            CaqlTokenKind::Name("not" | "and" | "or") => None,
            CaqlTokenKind::Name(name) if Constant::from_name(name).is_none() => Some(name),
            _ => None,
        }
    }

    fn call(&mut self, name: &str, piped: Option<CaqlParsedExpr>) -> Result<CaqlParsedExpr> {
        let name_place = self.token.span;
        self.advance()?;
        let (mut has_arguments, mut has_inputs) = (false, false);
        let mut arguments = Vec::new();
        if self.consume("(")? {
            has_arguments = true;
            self.list(")", |parser| parser.argument(&mut arguments))?;
        }
        let start = piped.as_ref().map_or(name_place.start, |node| node.expr.span.start);
        let mut height = piped.as_ref().map_or(0, |node| node.height);
        let mut inputs: Vec<CaqlExpr> = piped.into_iter().map(|node| node.expr).collect();
        if self.consume("{")? {
            has_inputs = true;
            self.list("}", |parser| {
                if inputs.len() == INPUTS_MAX {
                    let remedy = "use one find for many streams";
                    return Err(limit_error(
                        "inputs of a call",
                        inputs.len() + 1,
                        INPUTS_MAX,
                        remedy,
                    ));
                }
                let input = parser.nested(CaqlParser::pipe)?;
                height = height.max(input.height);
                inputs.push(input.expr);
                Ok(())
            })?;
        }
        if !has_arguments && !has_inputs {
            let message =
                format!("`{name}` requires arguments or a block; write {name}(…) or {name}{{…}}");
            return Err(Error::Parse { span: name_place, message });
        }
        let name = name.replace("::", ":");
        let call = CallExpr { name, name_span: name_place, arguments, inputs };
        CaqlParsedExpr::new(CaqlExprKind::Call(call), SourceSpan::new(start, self.end), height + 1)
    }

    /// Parses a comma-separated list up to the closing symbol; the opening one is already
    /// consumed.
    fn list(&mut self, close: &str, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        if self.consume(close)? {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.consume(close)? {
                return Ok(());
            }
            if !self.consume(",")? {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
    }

    fn argument(&mut self, arguments: &mut Vec<Argument>) -> Result<()> {
        if arguments.len() == ARGUMENTS_MAX {
            let remedy = "split the call into several";
            return Err(limit_error(
                "arguments in a call",
                arguments.len() + 1,
                ARGUMENTS_MAX,
                remedy,
            ));
        }
        let start = self.token.span;
        let mut name = None;
        if let CaqlTokenKind::Name(word) = self.token.kind
            && Constant::from_name(word).is_none()
        {
            self.advance()?;
            if !self.consume("=")? {
                let message = format!(
                    "`{word}` is not a value; quote strings, as in \"{word}\", and put streams in \
                     braces after the arguments"
                );
                return Err(Error::Parse { span: start, message });
            }
            if arguments.iter().any(|argument: &Argument| argument.name.as_deref() == Some(word)) {
                let message = format!("duplicate argument `{word}`");
                return Err(Error::Parse { span: start, message });
            }
            name = Some(word.to_owned());
        }
        let value = match self.signed()? {
            Some(value) => Some(value),
            None => self.literal()?,
        };
        let Some(value) = value else {
            return Err(self.expected("a number, a duration, a string or a constant"));
        };
        let span = SourceSpan::new(start.start, self.end);
        if name.is_none()
            && let Some(before) = arguments.last().and_then(|argument| argument.name.as_deref())
        {
            let message = format!("positional arguments come first; move this before {before}=");
            return Err(Error::Parse { span, message });
        }
        arguments.push(Argument { name, value, span });
        Ok(())
    }

    // Literals.

    /// Parses a number or a duration, with a sign directly before it. If none follows, nothing is
    /// consumed; a plus sign without a number is an error.
    fn signed(&mut self) -> Result<Option<Literal>> {
        let CaqlTokenKind::Symbol(sign @ ("+" | "-")) = self.token.kind else { return Ok(None) };
        let digit = self.lexer.peek().is_some_and(|c| c.is_ascii_digit());
        if !digit && sign == "-" {
            return Ok(None);
        }
        if !digit {
            return Err(self.error_at_token("unary + requires a number directly after it"));
        }
        self.advance()?;
        let literal = match self.literal()? {
            Some(Literal::Number(number)) if sign == "-" => Literal::Number(-number),
            Some(Literal::Duration(ns)) if sign == "-" => Literal::Duration(-ns),
            Some(literal) => literal,
            None => return Err(self.expected("a number")),
        };
        Ok(Some(literal))
    }

    fn literal(&mut self) -> Result<Option<Literal>> {
        let literal = match &self.token.kind {
            CaqlTokenKind::Number(number) => Literal::Number(*number),
            CaqlTokenKind::Duration(ns) => Literal::Duration(*ns),
            CaqlTokenKind::String(text) => Literal::Text(text.clone()),
            CaqlTokenKind::Name(name) => match Constant::from_name(name) {
                Some(constant) => Literal::Constant(constant),
                None => return Ok(None),
            },
            CaqlTokenKind::Symbol(_) | CaqlTokenKind::End => return Ok(None),
        };
        self.advance()?;
        Ok(Some(literal))
    }

    // Tokens.

    /// Next token as a binary operator, and its precedence.
    fn operator_between(&self) -> Option<(usize, Operator)> {
        let (CaqlTokenKind::Symbol(word) | CaqlTokenKind::Name(word)) = self.token.kind else {
            return None;
        };
        let mut operators = Operator::BINARY.into_iter().enumerate();
        operators.find(|(_, operator)| operator.symbol() == word)
    }

    fn advance(&mut self) -> Result<()> {
        self.end = self.token.span.end;
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn consume(&mut self, symbol: &str) -> Result<bool> {
        let is_there = matches!(self.token.kind, CaqlTokenKind::Symbol(found) if found == symbol);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    /// Runs a recursive part of the parser within the depth limit.
    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<CaqlParsedExpr>,
    ) -> Result<CaqlParsedExpr> {
        if self.nesting == DEPTH_MAX {
            return Err(depth_error(self.nesting + 1));
        }
        self.nesting += 1;
        let node = inner(self);
        self.nesting -= 1;
        node
    }

    fn expected(&self, expected: &str) -> Error {
        let found = match &self.token.kind {
            CaqlTokenKind::Name(name) => format!("`{name}`"),
            CaqlTokenKind::Number(number) => format!("the number {number}"),
            CaqlTokenKind::Duration(_) => "a duration".to_owned(),
            CaqlTokenKind::String(_) => "a string".to_owned(),
            CaqlTokenKind::Symbol("=") => {
                return self
                    .error_at_token("a single = names an argument; write == for a comparison");
            }
            CaqlTokenKind::Symbol(symbol) => format!("`{symbol}`"),
            CaqlTokenKind::End => "the end".to_owned(),
        };
        self.error_at_token(&format!("found {found}, expected {expected}"))
    }

    /// Error at the next token.
    fn error_at_token(&self, message: &str) -> Error {
        Error::Parse { span: self.token.span, message: message.to_owned() }
    }
}

impl CaqlParsedExpr {
    fn new(form: CaqlExprKind, span: SourceSpan, height: usize) -> Result<CaqlParsedExpr> {
        if height > DEPTH_MAX {
            return Err(depth_error(height));
        }
        Ok(CaqlParsedExpr { expr: CaqlExpr { kind: form, span }, height })
    }

    fn leaf(literal: Literal, span: SourceSpan) -> CaqlParsedExpr {
        CaqlParsedExpr { expr: CaqlExpr { kind: CaqlExprKind::Literal(literal), span }, height: 1 }
    }

    fn from(mut self, start: usize) -> CaqlParsedExpr {
        self.expr.span.start = start;
        self
    }
}

fn operation(operator: Operator, operands: Vec<CaqlParsedExpr>) -> Result<CaqlParsedExpr> {
    let height = operands.iter().map(|node| node.height).max().unwrap_or(0) + 1;
    let operands: Vec<CaqlExpr> = operands.into_iter().map(|node| node.expr).collect();
    let ends = operands.first().zip(operands.last());
    let span = ends.map_or_else(SourceSpan::default, |(first, last)| first.span.to(last.span));
    CaqlParsedExpr::new(CaqlExprKind::Operation { operator, operands }, span, height)
}

fn depth_error(found: usize) -> Error {
    limit_error("levels of calls, operators and parentheses", found, DEPTH_MAX, "split the query")
}

fn limit_error(limit: &'static str, found: usize, max: usize, remedy: &str) -> Error {
    Error::Limit { limit, found: found as u64, max: max as u64, remedy: remedy.to_owned() }
}
