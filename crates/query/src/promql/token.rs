//! What words there are in expressions, and how messages call them.

use crate::error::Place;

use super::ast::BinaryOp;
use super::functions::AggregateOp;
use super::quote::quoted;

/// A word and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) place: Place,
}

/// What a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    Identifier,
    /// With a colon.
    MetricIdentifier,
    Number,
    Duration,
    Text,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    /// `=`
    Equals,
    /// `=~`
    Like,
    /// `!~`
    NotLike,
    /// `@`
    At,
    Op(BinaryOp),
    Aggregate(AggregateOp),
    Word(Word),
}

/// Words that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Anchored,
    Bool,
    By,
    Fill,
    FillLeft,
    FillRight,
    GroupLeft,
    GroupRight,
    Ignoring,
    Offset,
    On,
    Smoothed,
    Without,
    End,
    MaxOf,
    MinOf,
    Range,
    Start,
    Step,
}

const WORDS: [(&str, Kind); 25] = [
    ("and", Kind::Op(BinaryOp::And)),
    ("or", Kind::Op(BinaryOp::Or)),
    ("unless", Kind::Op(BinaryOp::Unless)),
    ("atan2", Kind::Op(BinaryOp::Atan2)),
    ("inf", Kind::Number),
    ("nan", Kind::Number),
    ("anchored", Kind::Word(Word::Anchored)),
    ("bool", Kind::Word(Word::Bool)),
    ("by", Kind::Word(Word::By)),
    ("fill", Kind::Word(Word::Fill)),
    ("fill_left", Kind::Word(Word::FillLeft)),
    ("fill_right", Kind::Word(Word::FillRight)),
    ("group_left", Kind::Word(Word::GroupLeft)),
    ("group_right", Kind::Word(Word::GroupRight)),
    ("ignoring", Kind::Word(Word::Ignoring)),
    ("offset", Kind::Word(Word::Offset)),
    ("on", Kind::Word(Word::On)),
    ("smoothed", Kind::Word(Word::Smoothed)),
    ("without", Kind::Word(Word::Without)),
    ("end", Kind::Word(Word::End)),
    ("max_of", Kind::Word(Word::MaxOf)),
    ("min_of", Kind::Word(Word::MinOf)),
    ("range", Kind::Word(Word::Range)),
    ("start", Kind::Word(Word::Start)),
    ("step", Kind::Word(Word::Step)),
];

pub(super) fn word(text: &str) -> Option<Kind> {
    let is = |name: &str| name.eq_ignore_ascii_case(text);
    let aggregate = || AggregateOp::ALL.into_iter().find(|op| is(op.text())).map(Kind::Aggregate);
    WORDS.iter().find(|(name, _)| is(name)).map(|(_, kind)| *kind).or_else(aggregate)
}

/// The words that may stand in a duration within brackets.
pub(super) fn duration_word(text: &str) -> Option<Kind> {
    use Word::{MaxOf, MinOf, Range, Step};
    word(text).filter(|kind| matches!(kind, Kind::Word(MaxOf | MinOf | Range | Step)))
}

impl Token {
    /// How a message calls it.
    pub(super) fn describe(&self, text: &str) -> String {
        let value = text.get(self.place.start..self.place.end).unwrap_or("");
        let short = || match value.char_indices().nth(10) {
            Some((end, _)) if value.len() > 10 => format!("{}...", quoted(&value[..end])),
            _ => quoted(value),
        };
        match self.kind {
            Kind::End => "end of input".to_owned(),
            Kind::Identifier => format!("identifier {}", quoted(value)),
            Kind::MetricIdentifier => format!("metric identifier {}", quoted(value)),
            Kind::Text => format!("string {}", short()),
            Kind::Number => format!("number {}", short()),
            Kind::Duration => format!("duration {}", short()),
            Kind::Op(_) | Kind::Like | Kind::NotLike | Kind::At => format!("<op:{value}>"),
            Kind::Aggregate(_) => format!("<aggr:{value}>"),
            Kind::Word(
                Word::End | Word::MaxOf | Word::MinOf | Word::Range | Word::Start | Word::Step,
            ) => short(),
            Kind::Word(_) => format!("<{value}>"),
            _ => short(),
        }
    }
}
