//! Text in braces: matchers of selectors, and labels of a series.

use crate::error::{Result, SourceSpan};

use super::super::ast::BinaryOp;
use super::super::matcher::{MatchOp, Matcher};
use super::super::quote::unquote;
use super::super::token::{Keyword, TokenKind};
use super::super::{Options, REGEXES_MAX};
use super::{ParseContext, Parser};

/// Labels of a series in source order, and the remaining text.
///
/// For series in test scripts: `name{label="value"} …`. The metric name, which may also be quoted
/// inside the braces, is the label `__name__` and comes first.
pub fn parse_series_labels(text: &str) -> Result<(Vec<(String, String)>, &str)> {
    let options = Options::default();
    let mut parser = Parser::new(text, &options)?;
    let result = parser.series_labels();
    let end = parser.end;
    let labels = parser.finish(result)?;
    Ok((labels, text.get(end..).unwrap_or("")))
}

const IN_MATCHERS: &str = "label matching";
const IN_LABELS: &str = "label set";

impl Parser<'_> {
    /// Parses matchers in braces.
    pub(super) fn matchers(&mut self) -> Result<Vec<Matcher>> {
        self.next()?;
        let mut matchers = Vec::new();
        while !self.consume(TokenKind::RightBrace)? {
            matchers.extend(self.matcher()?);
            match self.peek()?.kind {
                TokenKind::Comma => drop(self.next()?),
                TokenKind::RightBrace => {}
                _ => return Err(self.unexpected_in(IN_MATCHERS, "\",\" or \"}\"")),
            }
        }
        Ok(matchers)
    }

    /// Parses a matcher; `None` if its regex is invalid, which is recorded.
    fn matcher(&mut self) -> Result<Option<Matcher>> {
        let (name, span, is_quoted) = self.label_name((IN_MATCHERS, "identifier or \"}\""))?;
        let op = match self.peek()?.kind {
            TokenKind::Assign => MatchOp::Equal,
            TokenKind::Op(BinaryOp::NotEqual) => MatchOp::NotEqual,
            TokenKind::EqualRegex => MatchOp::Regex,
            TokenKind::NotEqualRegex => MatchOp::NotRegex,
            _ if is_quoted => return Ok(Some(Matcher::label_equals("__name__", name))),
            _ => return Err(self.unexpected_in(IN_MATCHERS, "label matching operator")),
        };
        self.next()?;
        let (value, span) = self.label_value(IN_MATCHERS, span)?;
        if matches!(op, MatchOp::Regex | MatchOp::NotRegex) {
            self.regexes += 1;
            super::check_limit("regular expressions", self.regexes, REGEXES_MAX)?;
        }
        let matcher = Matcher::new(name, op, value);
        Ok(matcher.map_err(|message| self.record_error(span, message)).ok())
    }

    fn label_name(&mut self, context: ParseContext) -> Result<(String, SourceSpan, bool)> {
        let token = self.peek()?;
        let name = match token.kind {
            TokenKind::Identifier => self.token_text(token).to_owned(),
            TokenKind::String => unquote(self.token_text(token)),
            _ => return Err(self.unexpected_in(context.0, context.1)),
        };
        self.next()?;
        Ok((name, token.span, token.kind == TokenKind::String))
    }

    fn label_value(
        &mut self,
        context: &'static str,
        name: SourceSpan,
    ) -> Result<(String, SourceSpan)> {
        let token = self.peek()?;
        if token.kind != TokenKind::String {
            return Err(self.unexpected_in(context, "string"));
        }
        self.next()?;
        Ok((unquote(self.token_text(token)), name.to(token.span)))
    }

    fn series_labels(&mut self) -> Result<Vec<(String, String)>> {
        let mut labels = Vec::new();
        let token = self.peek()?;
        let is_name = match token.kind {
            TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_) => true,
            TokenKind::Op(op) => op.is_set(),
            TokenKind::Keyword(word) => !matches!(
                word,
                Keyword::Bool
                    | Keyword::GroupLeft
                    | Keyword::GroupRight
                    | Keyword::Ignoring
                    | Keyword::On
            ),
            _ => false,
        };
        if is_name {
            self.next()?;
            labels.push(("__name__".to_owned(), self.token_text(token).to_owned()));
        }
        // Text after a name without braces is not an expression and must not be tokenised.
        let has_braces = self.text.get(self.end..).is_some_and(|rest| rest.starts_with('{'));
        if !is_name || has_braces {
            if self.peek()?.kind != TokenKind::LeftBrace {
                return Err(self.unexpected());
            }
            self.next()?;
            self.labels(&mut labels)?;
        }
        Ok(labels)
    }

    fn labels(&mut self, labels: &mut Vec<(String, String)>) -> Result<()> {
        while !self.consume(TokenKind::RightBrace)? {
            let (name, span, is_quoted) = self.label_name((IN_LABELS, "identifier or \"}\""))?;
            if self.consume(TokenKind::Assign)? {
                let (value, _) = self.label_value(IN_LABELS, span)?;
                labels.push((name, value));
            } else if is_quoted {
                labels.insert(0, ("__name__".to_owned(), name));
            } else {
                return Err(self.unexpected_in(IN_LABELS, "\"=\""));
            }
            match self.peek()?.kind {
                TokenKind::Comma => drop(self.next()?),
                TokenKind::RightBrace => {}
                _ => return Err(self.unexpected_in(IN_LABELS, "\",\" or \"}\"")),
            }
        }
        Ok(())
    }
}
