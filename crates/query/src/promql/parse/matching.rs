//! Modifiers between an operator and its right operand, and labels in parentheses.

use crate::error::Result;

use super::super::ast::{BinaryOp, MatchCardinality, VectorMatching};
use super::super::matcher::is_label_name;
use super::super::quote::{quote_text, unquote};
use super::super::token::{Keyword, TokenKind};
use super::{Parser, starts_expr};

const IN_GROUPING: &str = "grouping opts";

impl Parser<'_> {
    /// Parses the modifiers between an operator and its right operand.
    pub(super) fn modifiers(&mut self) -> Result<(bool, VectorMatching)> {
        let mut matching = VectorMatching::default();
        let return_bool = self.consume(TokenKind::Keyword(Keyword::Bool))?;
        let on_or_ignoring = self.peek()?.kind;
        if matches!(on_or_ignoring, TokenKind::Keyword(Keyword::On | Keyword::Ignoring)) {
            self.next()?;
            matching.on = on_or_ignoring == TokenKind::Keyword(Keyword::On);
            matching.labels = self.grouping()?;
            matching.cardinality = match self.peek()?.kind {
                TokenKind::Keyword(Keyword::GroupLeft) => MatchCardinality::ManyToOne,
                TokenKind::Keyword(Keyword::GroupRight) => MatchCardinality::OneToMany,
                _ => MatchCardinality::OneToOne,
            };
            if matching.cardinality != MatchCardinality::OneToOne {
                self.next()?;
                let after = self.peek()?.kind;
                let is_fill = matches!(
                    after,
                    TokenKind::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight)
                );
                if after == TokenKind::LeftParen || !is_fill && !starts_expr(after) {
                    matching.include = self.grouping()?;
                }
            }
        }
        if self.consume(TokenKind::Keyword(Keyword::Fill))? {
            matching.fill_left = Some(self.fill_value()?);
            matching.fill_right = matching.fill_left;
        } else if self.consume(TokenKind::Keyword(Keyword::FillLeft))? {
            matching.fill_left = Some(self.fill_value()?);
            if self.consume(TokenKind::Keyword(Keyword::FillRight))? {
                matching.fill_right = Some(self.fill_value()?);
            }
        } else if self.consume(TokenKind::Keyword(Keyword::FillRight))? {
            matching.fill_right = Some(self.fill_value()?);
            if self.consume(TokenKind::Keyword(Keyword::FillLeft))? {
                matching.fill_left = Some(self.fill_value()?);
            }
        }
        Ok((return_bool, matching))
    }

    fn fill_value(&mut self) -> Result<f64> {
        self.expect(TokenKind::LeftParen)?;
        let value = self.signed_number()?;
        self.expect(TokenKind::RightParen)?;
        Ok(value)
    }

    /// Parses labels in parentheses.
    pub(super) fn grouping(&mut self) -> Result<Vec<String>> {
        if self.peek()?.kind != TokenKind::LeftParen {
            return Err(self.unexpected_in(IN_GROUPING, "\"(\""));
        }
        self.next()?;
        let mut labels = Vec::new();
        while !self.consume(TokenKind::RightParen)? {
            let token = self.peek()?;
            let label = match token.kind {
                TokenKind::String => unquote(self.token_text(token)),
                TokenKind::Identifier | TokenKind::MetricIdentifier | TokenKind::Aggregate(_) => {
                    self.token_text(token).to_owned()
                }
                TokenKind::Keyword(word) if word != Keyword::Without => {
                    self.token_text(token).to_owned()
                }
                TokenKind::Op(op) if op.is_set() || op == BinaryOp::Atan2 => {
                    self.token_text(token).to_owned()
                }
                _ => return Err(self.unexpected_in(IN_GROUPING, "label")),
            };
            self.next()?;
            if !is_label_name(&label) {
                let message = format!("invalid label name for grouping: {}", quote_text(&label));
                self.record_error(token.span, message);
            }
            labels.push(label);
            match self.peek()?.kind {
                TokenKind::Comma => drop(self.next()?),
                TokenKind::RightParen => {}
                _ => return Err(self.unexpected_in(IN_GROUPING, "\",\" or \")\"")),
            }
        }
        Ok(labels)
    }
}
