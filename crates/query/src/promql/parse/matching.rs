//! What stands between an operator and its right side, and labels in parentheses.

use crate::error::Result;

use super::super::ast::{BinaryOp, Cardinality, Matching};
use super::super::matcher::is_label_name;
use super::super::quote::{quoted, unquoted};
use super::super::token::{Kind, Word};
use super::{Parser, begins_expr};

const IN_GROUPING: &str = "grouping opts";

impl Parser<'_> {
    /// What may stand between an operator and its right side.
    pub(super) fn modifiers(&mut self) -> Result<(bool, Matching)> {
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
    pub(super) fn grouping(&mut self) -> Result<Vec<String>> {
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
            if !is_label_name(&label) {
                let message = format!("invalid label name for grouping: {}", quoted(&label));
                self.note(token.place, message);
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
}
