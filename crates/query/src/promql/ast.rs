//! PromQL AST.
//!
//! Durations are nanoseconds. Spans are byte ranges of the parsed text. [`Expr`]s that differ only
//! in their spans are not equal; compare the results of [`Expr::without_spans`].

use crate::error::SourceSpan;

use super::aggregate_op::AggregateOp;
use super::duration::DurationValue;
use super::matcher::Matcher;
use super::signature::PromqlFunction;

/// Expression with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Kind of the expression.
    pub kind: ExprKind,
    /// Span in the text.
    pub span: SourceSpan,
}

/// Kind of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// Number.
    Number(f64),
    /// Duration used as a number, in seconds; beside values with a unit of time, in that unit.
    Duration(f64),
    /// String literal.
    Text(String),
    /// `name{label="value"}`: an instant vector.
    Selector(VectorSelector),
    /// `selector[5m]`: a range vector.
    Matrix {
        /// Selector with offset and `@`.
        selector: VectorSelector,
        /// Length of the range; resolves to more than 0.
        range: DurationValue,
    },
    /// `expr[5m:30s]`: a range vector.
    Subquery {
        /// Expression evaluated at every step.
        expr: Box<Expr>,
        /// Length of the range; resolves to more than 0.
        range: DurationValue,
        /// Step, if given; resolves to more than 0.
        step: Option<DurationValue>,
        /// Offset into the past; may be negative.
        offset: DurationValue,
        /// Evaluation time given by `@`.
        at: Option<AtModifier>,
    },
    /// `-expr`, `+expr`; a sign before a number literal is part of the number.
    Unary {
        /// Whether the sign is a minus.
        negative: bool,
        /// Operand.
        expr: Box<Expr>,
    },
    /// `left op right`.
    Binary {
        /// Operator.
        op: BinaryOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
        /// Vector matching; `None` unless both operands are instant vectors.
        matching: Option<VectorMatching>,
        /// Whether a comparison gives 0 or 1 instead of filtering.
        return_bool: bool,
    },
    /// `sum by (label) (expr)`.
    Aggregate {
        /// Operator.
        op: AggregateOp,
        /// Aggregated expression.
        expr: Box<Expr>,
        /// Parameter before the expression, for operators that have one.
        param: Option<Box<Expr>>,
        /// Labels of `by` or `without`.
        grouping: Vec<String>,
        /// Whether it is `without`.
        without: bool,
    },
    /// `function(args)`.
    Call {
        /// Called function.
        function: &'static PromqlFunction,
        /// Arguments, checked for number and types.
        args: Vec<Expr>,
    },
    /// `(expr)`.
    Paren(Box<Expr>),
}

/// Vector selector with offset and `@`.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSelector {
    /// Metric name before the braces, or empty.
    pub name: String,
    /// All matchers; the one of `name`, if there is one, is the last.
    pub matchers: Vec<Matcher>,
    /// Offset into the past; may be negative.
    pub offset: DurationValue,
    /// Evaluation time given by `@`.
    pub at: Option<AtModifier>,
    /// Whether the range uses the samples before its boundaries (`anchored`).
    pub anchored: bool,
    /// Whether values at the boundaries of the range are interpolated (`smoothed`).
    pub smoothed: bool,
    /// Span of name and braces, without the range of a range vector.
    pub span: SourceSpan,
}

/// `@` modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtModifier {
    /// Nanoseconds since the Unix epoch, in whole milliseconds.
    Time(i64),
    /// First step of the query.
    Start,
    /// Last step of the query.
    End,
}

/// Binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory; `text` returns the symbols")]
pub enum BinaryOp {
    Or,
    And,
    Unless,
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    /// `</`: removes the observations of a histogram above a value.
    TrimUpper,
    /// `>/`: removes the observations of a histogram below a value.
    TrimLower,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Atan2,
    Power,
}

impl BinaryOp {
    /// Text in an expression.
    pub fn text(self) -> &'static str {
        match self {
            BinaryOp::Or => "or",
            BinaryOp::And => "and",
            BinaryOp::Unless => "unless",
            BinaryOp::Equal => "==",
            BinaryOp::NotEqual => "!=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterOrEqual => ">=",
            BinaryOp::Less => "<",
            BinaryOp::LessOrEqual => "<=",
            BinaryOp::TrimUpper => "</",
            BinaryOp::TrimLower => ">/",
            BinaryOp::Add => "+",
            BinaryOp::Subtract => "-",
            BinaryOp::Multiply => "*",
            BinaryOp::Divide => "/",
            BinaryOp::Modulo => "%",
            BinaryOp::Atan2 => "atan2",
            BinaryOp::Power => "^",
        }
    }

    /// Precedence: a higher number binds more tightly.
    pub(super) fn precedence(self) -> u8 {
        match self {
            BinaryOp::Or => 1,
            BinaryOp::And | BinaryOp::Unless => 2,
            BinaryOp::TrimUpper | BinaryOp::TrimLower => 3,
            op if op.is_comparison() => 3,
            BinaryOp::Add | BinaryOp::Subtract => 4,
            BinaryOp::Power => 6,
            _ => 5,
        }
    }

    /// Whether it is a comparison, which `bool` may follow.
    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Greater | GreaterOrEqual | Less | LessOrEqual)
    }

    /// Whether it is `and`, `or` or `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// Matching of two instant vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorMatching {
    /// Cardinality of the match.
    pub cardinality: MatchCardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// Whether it is `on`.
    pub on: bool,
    /// Labels copied from the "one" side.
    pub include: Vec<String>,
    /// Fill value for a series missing on the left.
    pub fill_left: Option<f64>,
    /// Fill value for a series missing on the right.
    pub fill_right: Option<f64>,
}

/// Cardinality of vector matching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchCardinality {
    /// One-to-one.
    #[default]
    OneToOne,
    /// Many on the left: `group_left`.
    ManyToOne,
    /// Many on the right: `group_right`.
    OneToMany,
    /// Many-to-many: set operators.
    ManyToMany,
}

/// Type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Scalar.
    Scalar,
    /// String.
    Text,
    /// Instant vector.
    Vector,
    /// Range vector.
    Matrix,
}

impl ValueType {
    /// Name in Prometheus' API.
    pub fn text(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Text => "string",
            ValueType::Vector => "vector",
            ValueType::Matrix => "matrix",
        }
    }

    /// Name in Prometheus' documentation.
    pub fn documented(self) -> &'static str {
        match self {
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            other => other.text(),
        }
    }
}

impl Expr {
    /// Type of the result.
    pub fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Duration(_) => ValueType::Scalar,
            ExprKind::Text(_) => ValueType::Text,
            ExprKind::Selector(_) | ExprKind::Aggregate { .. } => ValueType::Vector,
            ExprKind::Matrix { .. } | ExprKind::Subquery { .. } => ValueType::Matrix,
            ExprKind::Unary { expr, .. } | ExprKind::Paren(expr) => expr.value_type(),
            ExprKind::Binary { left, right, .. } => {
                let are_scalars = left.value_type() == ValueType::Scalar
                    && right.value_type() == ValueType::Scalar;
                if are_scalars { ValueType::Scalar } else { ValueType::Vector }
            }
            ExprKind::Call { function, .. } => function.returns,
        }
    }

    /// Expression without surrounding parentheses.
    pub(crate) fn unwrap_parens(&self) -> &Expr {
        let mut expr = self;
        while let ExprKind::Paren(inner) = &expr.kind {
            expr = inner;
        }
        expr
    }

    /// Direct subexpressions in source order.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Duration(_) | ExprKind::Text(_) => Vec::new(),
            ExprKind::Selector(_) | ExprKind::Matrix { .. } => Vec::new(),
            ExprKind::Subquery { expr, .. } | ExprKind::Unary { expr, .. } => vec![expr],
            ExprKind::Paren(expr) => vec![expr],
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Aggregate { expr, param, .. } => {
                param.iter().map(|param| &**param).chain([&**expr]).collect()
            }
            ExprKind::Call { args, .. } => args.iter().collect(),
        }
    }

    /// Direct subexpressions, mutable.
    pub fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.kind {
            ExprKind::Number(_) | ExprKind::Duration(_) | ExprKind::Text(_) => Vec::new(),
            ExprKind::Selector(_) | ExprKind::Matrix { .. } => Vec::new(),
            ExprKind::Subquery { expr, .. } | ExprKind::Unary { expr, .. } => vec![expr],
            ExprKind::Paren(expr) => vec![expr],
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Aggregate { expr, param, .. } => {
                param.iter_mut().map(|param| &mut **param).chain([&mut **expr]).collect()
            }
            ExprKind::Call { args, .. } => args.iter_mut().collect(),
        }
    }

    /// Expression with all spans at 0, for comparison.
    pub fn without_spans(mut self) -> Expr {
        fn clear(expr: &mut Expr) {
            expr.span = SourceSpan::default();
            match &mut expr.kind {
                ExprKind::Selector(selector) => selector.clear_spans(),
                ExprKind::Matrix { selector, range } => {
                    selector.clear_spans();
                    range.clear_spans();
                }
                ExprKind::Subquery { range, step, offset, .. } => {
                    for duration in [Some(range), step.as_mut(), Some(offset)] {
                        duration.into_iter().for_each(DurationValue::clear_spans);
                    }
                }
                _ => {}
            }
            expr.children_mut().into_iter().for_each(clear);
        }
        clear(&mut self);
        self
    }
}

impl VectorSelector {
    fn clear_spans(&mut self) {
        self.span = SourceSpan::default();
        self.offset.clear_spans();
    }
}
