//! Syntax tree of a CAQL query: calls, operators and literals.
//!
//! Pipes are desugared: `a | f(1){b}` becomes `f(1){a, b}`. Durations are nanoseconds, as exact as
//! written; the evaluator rounds them to the minimum period.

use crate::error::SourceSpan;

/// Query: directives and a body.
#[derive(Clone, Debug, PartialEq)]
pub struct CaqlQuery {
    /// Directives: the lines that start with `#`.
    pub directives: Directives,
    /// Body after the directives.
    pub body: Body,
}

/// Body of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// CAQL.
    Caql(CaqlExpr),
    /// PromQL, selected by `#lang="promql"`.
    Promql {
        /// PromQL expression as written.
        text: String,
        /// Byte offset of the expression in the query.
        offset: usize,
    },
}

/// Directives (`#…` lines).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// `#preview`: approximations are allowed on long ranges.
    pub preview: bool,
    /// `#serial`, formerly `#strict`: evaluates slot by slot, without later slots, as Circonus'
    /// alerting does.
    pub serial: bool,
    /// `#min_period`: the finest period fetched, in nanoseconds.
    pub min_period_ns: Option<i64>,
    /// `#lookback_window`: lookback of PromQL, in nanoseconds.
    pub lookback_ns: Option<i64>,
}

/// Node with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct CaqlExpr {
    /// Kind of the node.
    pub kind: CaqlExprKind,
    /// From the first to the last byte, surrounding parentheses included. The span of a call
    /// includes the expression piped into it.
    pub span: SourceSpan,
}

/// Kind of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum CaqlExprKind {
    /// Literal. Used as an input, it is a constant stream.
    Literal(Literal),
    /// Call of a function with its inputs.
    Call(CallExpr),
    /// Operation: one operand for `!` and unary minus, two for comparisons, two or more for the
    /// others: a left-associative chain of one operator.
    Operation {
        /// Operator.
        operator: Operator,
        /// Operands, left to right.
        operands: Vec<CaqlExpr>,
    },
}

/// Call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct CallExpr {
    /// Name with its package, as in `histogram:percentile`; a double colon is normalised to a
    /// single one.
    pub name: String,
    /// Span of the name.
    pub name_span: SourceSpan,
    /// Arguments, positional ones first.
    pub arguments: Vec<Argument>,
    /// Inputs: the piped expression first, then those in braces.
    pub inputs: Vec<CaqlExpr>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Name of a named argument.
    pub name: Option<String>,
    /// Value of the argument.
    pub value: Literal,
    /// Span of name and value.
    pub span: SourceSpan,
}

/// Literal as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// Finite number.
    Number(f64),
    /// Duration in nanoseconds.
    Duration(i64),
    /// String without its quotes, percent codes decoded.
    Text(String),
    /// Named constant.
    Constant(Constant),
}

/// Named constants. Their values depend on the range of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// `NULL`: a missing value.
    Null,
    /// `VIEW_PERIOD`: the smallest period of the query, as a duration.
    ViewPeriod,
    /// `VIEW_PERIOD_MINUTES`: the same as a number.
    ViewPeriodMinutes,
    /// `VIEW_PERIOD_SECONDS`: the same as a number.
    ViewPeriodSeconds,
    /// `VIEW_RANGE`: the time range of the query, as a duration.
    ViewRange,
    /// `VIEW_RANGE_MINUTES`: the same as a number.
    ViewRangeMinutes,
    /// `VIEW_RANGE_SECONDS`: the same as a number.
    ViewRangeSeconds,
}

impl Constant {
    /// All constants.
    pub const ALL: [Constant; 7] = [
        Constant::Null,
        Constant::ViewPeriod,
        Constant::ViewPeriodMinutes,
        Constant::ViewPeriodSeconds,
        Constant::ViewRange,
        Constant::ViewRangeMinutes,
        Constant::ViewRangeSeconds,
    ];

    /// Name as written in a query.
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

    /// Constant with this name.
    pub(crate) fn from_name(name: &str) -> Option<Constant> {
        Constant::ALL.into_iter().find(|constant| constant.name() == name)
    }
}

/// Unary and binary operators. Binary operators are listed from the loosest to the tightest: the
/// order is their precedence, one level each.
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
    /// Binary `-`.
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
    /// Unary `-`.
    Negate,
}

impl Operator {
    /// Binary operators, from the loosest to the tightest.
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

    /// Symbol as written in a query.
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

    /// Name of the equivalent function.
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

    /// Whether the operator takes exactly two operands and cannot be chained.
    pub fn is_comparison(self) -> bool {
        (Operator::Equal..=Operator::Less).contains(&self)
    }
}
