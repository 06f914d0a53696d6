//! What a CAQL query says: a tree of calls, operators and literals.
//!
//! Pipes are gone: `a | f(1){b}` is `f(1){a, b}`. Durations are nanoseconds, as exact as written;
//! rounding to the minimum period is for whoever evaluates.

use crate::error::SourceSpan;

/// A query: what its head asks for, and what is to be computed.
#[derive(Clone, Debug, PartialEq)]
pub struct CaqlQuery {
    /// The lines that begin with `#`.
    pub directives: Directives,
    /// What follows them.
    pub body: Body,
}

/// What follows the directives.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// CAQL.
    Caql(CaqlExpr),
    /// PromQL, by `#lang="promql"`.
    Promql {
        /// The expression, as written.
        text: String,
        /// Where it begins in the query, in bytes.
        offset: usize,
    },
}

/// What `#…` lines ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `#preview`: shortcuts are welcome on long ranges.
    pub preview: bool,
    /// `#serial`, earlier `#strict`: as a check would compute it, slot by slot.
    pub serial: bool,
    /// `#min_period`: the finest period fetched, in nanoseconds.
    pub min_period_ns: Option<i64>,
    /// `#lookback_window`: how long PromQL takes a value for the present one, in nanoseconds.
    pub lookback_ns: Option<i64>,
}

/// A node, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct CaqlExpr {
    /// What it is.
    pub kind: CaqlExprKind,
    /// From its first byte, brackets around it included, to its last. What was piped into a call
    /// belongs to it.
    pub span: SourceSpan,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum CaqlExprKind {
    /// As a source, a constant stream.
    Literal(Literal),
    /// A function of its sources.
    Call(CallExpr),
    /// One operand for `!` and the minus sign, two for comparisons, two or more for the rest: a
    /// chain of one operator, to be taken from the left.
    Operation {
        /// Which.
        operator: Operator,
        /// Its operands.
        operands: Vec<CaqlExpr>,
    },
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallExpr {
    /// With its package, as in `histogram:percentile`; a double colon is a single one here.
    pub name: String,
    /// Where the name stands.
    pub name_span: SourceSpan,
    /// Those without a name first.
    pub arguments: Vec<Argument>,
    /// What was piped in, then what stands between the braces.
    pub sources: Vec<CaqlExpr>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// If it has one.
    pub name: Option<String>,
    /// What is given.
    pub value: Literal,
    /// Of name and value.
    pub span: SourceSpan,
}

/// A value, as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// Always finite.
    Number(f64),
    /// In nanoseconds.
    Duration(i64),
    /// Without its quotes, percent codes decoded.
    Text(String),
    /// A name for a value.
    Constant(Constant),
}

/// Names for values. What they stand for is known when the range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// `NULL`: a missing value.
    Null,
    /// `VIEW_PERIOD`: the smallest span drawn, a duration.
    ViewPeriod,
    /// `VIEW_PERIOD_MINUTES`: the same as a number.
    ViewPeriodMinutes,
    /// `VIEW_PERIOD_SECONDS`: the same as a number.
    ViewPeriodSeconds,
    /// `VIEW_RANGE`: the span drawn, a duration.
    ViewRange,
    /// `VIEW_RANGE_MINUTES`: the same as a number.
    ViewRangeMinutes,
    /// `VIEW_RANGE_SECONDS`: the same as a number.
    ViewRangeSeconds,
}

impl Constant {
    /// All there are.
    pub const ALL: [Constant; 7] = [
        Constant::Null,
        Constant::ViewPeriod,
        Constant::ViewPeriodMinutes,
        Constant::ViewPeriodSeconds,
        Constant::ViewRange,
        Constant::ViewRangeMinutes,
        Constant::ViewRangeSeconds,
    ];

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Constant::Null => "NULL",
            Constant::ViewPeriod => "VIEW_PERIOD",
            Constant::ViewPeriodMinutes => "VIEW_PERIOD_MINUTES",
            Constant::ViewPeriodSeconds => "VIEW_PERIOD_SECONDS",
            Constant::ViewRange => "VIEW_RANGE",
            Constant::ViewRangeMinutes => "VIEW_RANGE_MINUTES",
            Constant::ViewRangeSeconds => "VIEW_RANGE_SECONDS",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Constant> {
        Constant::ALL.into_iter().find(|constant| constant.name() == name)
    }
}

/// What stands between or before operands. Those between are here from the loosest to the tightest:
/// the order is their precedence, one level each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `or`.
    Or,
    /// `and`.
    And,
    /// `==`.
    Equal,
    /// `>=`.
    AtLeast,
    /// `<=`.
    AtMost,
    /// `>`.
    Greater,
    /// `<`.
    Less,
    /// `+`.
    Add,
    /// `-` between two.
    Subtract,
    /// `%`.
    Remainder,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `^`.
    Power,
    /// `!`, or the looser `not`.
    Not,
    /// `-` before one.
    Negate,
}

impl Operator {
    /// Those between operands, from the loosest to the tightest.
    pub const BINARY: [Operator; 13] = [
        Operator::Or,
        Operator::And,
        Operator::Equal,
        Operator::AtLeast,
        Operator::AtMost,
        Operator::Greater,
        Operator::Less,
        Operator::Add,
        Operator::Subtract,
        Operator::Remainder,
        Operator::Multiply,
        Operator::Divide,
        Operator::Power,
    ];

    /// How it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            Operator::Or => "or",
            Operator::And => "and",
            Operator::Equal => "==",
            Operator::AtLeast => ">=",
            Operator::AtMost => "<=",
            Operator::Greater => ">",
            Operator::Less => "<",
            Operator::Add => "+",
            Operator::Subtract | Operator::Negate => "-",
            Operator::Remainder => "%",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Power => "^",
            Operator::Not => "!",
        }
    }

    /// The function that computes the same.
    pub fn function(self) -> &'static str {
        match self {
            Operator::Or => "op:or",
            Operator::And => "op:and",
            Operator::Equal => "op:eq",
            Operator::AtLeast => "op:geq",
            Operator::AtMost => "op:leq",
            Operator::Greater => "op:gt",
            Operator::Less => "op:lt",
            Operator::Add => "op:sum",
            Operator::Subtract => "op:sub",
            Operator::Remainder => "op:mod",
            Operator::Multiply => "op:prod",
            Operator::Divide => "op:div2",
            Operator::Power => "op:exp",
            Operator::Not => "op:not",
            Operator::Negate => "op:neg",
        }
    }

    /// Whether it takes exactly two operands and cannot be chained.
    pub fn is_comparison(self) -> bool {
        (Operator::Equal..=Operator::Less).contains(&self)
    }
}
