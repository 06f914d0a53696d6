//! PromQL tokens and their names in messages.

use crate::error::SourceSpan;

use super::aggregate_op::AggregateOp;
use super::ast::BinaryOp;
use super::quote::quote_text;

/// Token with its span.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromqlToken {
    pub(super) kind: TokenKind,
    pub(super) span: SourceSpan,
}

/// Token kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    End,
    Identifier,
    /// Identifier with a colon.
    MetricIdentifier,
    Number,
    Duration,
    String,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    /// `=`
    Assign,
    /// `=~`
    EqualRegex,
    /// `!~`
    NotEqualRegex,
    /// `@`
    At,
    Op(BinaryOp),
    Aggregate(AggregateOp),
    Keyword(Keyword),
}

/// PromQL keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
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

const KEYWORDS: [(&str, TokenKind); 25] = [
    ("and", TokenKind::Op(BinaryOp::And)),
    ("or", TokenKind::Op(BinaryOp::Or)),
    ("unless", TokenKind::Op(BinaryOp::Unless)),
    ("atan2", TokenKind::Op(BinaryOp::Atan2)),
    ("inf", TokenKind::Number),
    ("nan", TokenKind::Number),
    ("anchored", TokenKind::Keyword(Keyword::Anchored)),
    ("bool", TokenKind::Keyword(Keyword::Bool)),
    ("by", TokenKind::Keyword(Keyword::By)),
    ("fill", TokenKind::Keyword(Keyword::Fill)),
    ("fill_left", TokenKind::Keyword(Keyword::FillLeft)),
    ("fill_right", TokenKind::Keyword(Keyword::FillRight)),
    ("group_left", TokenKind::Keyword(Keyword::GroupLeft)),
    ("group_right", TokenKind::Keyword(Keyword::GroupRight)),
    ("ignoring", TokenKind::Keyword(Keyword::Ignoring)),
    ("offset", TokenKind::Keyword(Keyword::Offset)),
    ("on", TokenKind::Keyword(Keyword::On)),
    ("smoothed", TokenKind::Keyword(Keyword::Smoothed)),
    ("without", TokenKind::Keyword(Keyword::Without)),
    ("end", TokenKind::Keyword(Keyword::End)),
    ("max_of", TokenKind::Keyword(Keyword::MaxOf)),
    ("min_of", TokenKind::Keyword(Keyword::MinOf)),
    ("range", TokenKind::Keyword(Keyword::Range)),
    ("start", TokenKind::Keyword(Keyword::Start)),
    ("step", TokenKind::Keyword(Keyword::Step)),
];

pub(super) fn keyword(text: &str) -> Option<TokenKind> {
    let is = |name: &str| name.eq_ignore_ascii_case(text);
    let aggregate =
        || AggregateOp::ALL.into_iter().find(|op| is(op.text())).map(TokenKind::Aggregate);
    KEYWORDS.iter().find(|(name, _)| is(name)).map(|(_, kind)| *kind).or_else(aggregate)
}

/// Keywords allowed in a duration within brackets.
pub(super) fn duration_keyword(text: &str) -> Option<TokenKind> {
    use Keyword::{MaxOf, MinOf, Range, Step};
    keyword(text).filter(|kind| matches!(kind, TokenKind::Keyword(MaxOf | MinOf | Range | Step)))
}

impl PromqlToken {
    /// Description in messages.
    pub(super) fn describe(&self, text: &str) -> String {
        let value = text.get(self.span.start..self.span.end).unwrap_or("");
        let short = || match value.char_indices().nth(10) {
            Some((end, _)) if value.len() > 10 => format!("{}...", quote_text(&value[..end])),
            _ => quote_text(value),
        };
        match self.kind {
            TokenKind::End => "end of input".to_owned(),
            TokenKind::Identifier => format!("identifier {}", quote_text(value)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quote_text(value)),
            TokenKind::String => format!("string {}", short()),
            TokenKind::Number => format!("number {}", short()),
            TokenKind::Duration => format!("duration {}", short()),
            TokenKind::Op(_) | TokenKind::EqualRegex | TokenKind::NotEqualRegex | TokenKind::At => {
                format!("<op:{value}>")
            }
            TokenKind::Aggregate(_) => format!("<aggr:{value}>"),
            TokenKind::Keyword(
                Keyword::End
                | Keyword::MaxOf
                | Keyword::MinOf
                | Keyword::Range
                | Keyword::Start
                | Keyword::Step,
            ) => short(),
            TokenKind::Keyword(_) => format!("<{value}>"),
            _ => short(),
        }
    }
}
