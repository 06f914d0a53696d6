//! PromQL AST.
//!
//! Durations are nanoseconds. Places are bytes of the text that was read; [`Expr`]s that differ
//! only in their places are not equal, so compare what [`Expr::without_places`] gives.

use crate::error::SourceSpan;

use super::aggregate_op::AggregateOp;
use super::duration::DurationValue;
use super::matcher::Matcher;
use super::signature::PromqlFunction;

/// An expression and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: SourceSpan,
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A number; durations in the place of numbers are seconds.
    Number(f64),
    /// A text in quotes.
    Text(String),
    /// `name{label="value"}`: an instant vector.
    Selector(VectorSelector),
    /// `selector[5m]`: a range vector.
    Matrix {
        /// What is selected, with offset and `@`.
        selector: VectorSelector,
        /// How far back; resolves to more than 0.
        range: DurationValue,
    },
    /// `expr[5m:30s]`: a range vector.
    Subquery {
        /// What is evaluated at every step.
        expr: Box<Expr>,
        /// How far back; resolves to more than 0.
        range: DurationValue,
        /// The step, if it is said; resolves to more than 0.
        step: Option<DurationValue>,
        /// How much earlier; may be negative.
        offset: DurationValue,
        /// The time it is asked for instead of that of the evaluation.
        at: Option<AtModifier>,
    },
    /// `-expr`, `+expr`; signs before plain numbers are part of the number.
    Unary {
        /// Whether the sign is a minus.
        negative: bool,
        /// What has the sign.
        expr: Box<Expr>,
    },
    /// `left op right`.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Its left side.
        left: Box<Expr>,
        /// Its right side.
        right: Box<Expr>,
        /// How series of both sides find each other; `None` unless both are instant vectors.
        matching: Option<VectorMatching>,
        /// Whether a comparison gives 0 or 1 instead of filtering.
        return_bool: bool,
    },
    /// `sum by (label) (expr)`.
    Aggregate {
        /// The operator.
        op: AggregateOp,
        /// What is aggregated.
        expr: Box<Expr>,
        /// What stands before it, for operators with a parameter.
        param: Option<Box<Expr>>,
        /// The labels to keep, or to drop.
        grouping: Vec<String>,
        /// Whether `grouping` is dropped.
        without: bool,
    },
    /// `function(args)`.
    Call {
        /// Which function.
        function: &'static PromqlFunction,
        /// Its arguments: of the right number and types.
        args: Vec<Expr>,
    },
    /// `(expr)`.
    Paren(Box<Expr>),
}

/// Which series, and as of when.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSelector {
    /// The name before the braces, or empty.
    pub name: String,
    /// All conditions; one for `name`, if there is one, is the last.
    pub matchers: Vec<Matcher>,
    /// How much earlier; may be negative.
    pub offset: DurationValue,
    /// The time it is asked for instead of that of the evaluation.
    pub at: Option<AtModifier>,
    /// Whether a range begins and ends with the samples before its ends.
    pub anchored: bool,
    /// Whether the ends of a range are interpolated.
    pub smoothed: bool,
    /// Where name and braces stand; the range of a range vector is not part of it.
    pub span: SourceSpan,
}

/// What `@` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtModifier {
    /// A time, in nanoseconds since the Unix epoch; a whole number of milliseconds.
    Time(i64),
    /// The first time of the query.
    Start,
    /// The last time of the query.
    End,
}

/// Operators between two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it; `text` has how they are written")]
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
    /// `</`: what a histogram has above a value is cut off.
    TrimUpper,
    /// `>/`: what a histogram has below a value is cut off.
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
    /// As it is written.
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

    /// How strongly it binds: more is stronger.
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

    /// Whether it compares, so that `bool` may follow.
    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Greater | GreaterOrEqual | Less | LessOrEqual)
    }

    /// Whether it is `and`, `or` or `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless)
    }
}

/// How series of two instant vectors find each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VectorMatching {
    /// How many of one side may meet how many of the other.
    pub cardinality: MatchCardinality,
    /// The labels that are compared, or ignored.
    pub labels: Vec<String>,
    /// Whether only `labels` are compared, instead of all others.
    pub on: bool,
    /// Labels that the result has from the side with one series.
    pub include: Vec<String>,
    /// What a series missing on the left is taken for.
    pub fill_left: Option<f64>,
    /// What a series missing on the right is taken for.
    pub fill_right: Option<f64>,
}

/// How many series of one side may meet how many of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchCardinality {
    /// One and one.
    #[default]
    OneToOne,
    /// Many on the left: `group_left`.
    ManyToOne,
    /// Many on the right: `group_right`.
    OneToMany,
    /// The set operators.
    ManyToMany,
}

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A number.
    Scalar,
    /// A text.
    Text,
    /// Series with a value each.
    Vector,
    /// Series with samples over a range.
    Matrix,
}

impl ValueType {
    /// As Prometheus' API says it.
    pub fn text(self) -> &'static str {
        match self {
            ValueType::Scalar => "scalar",
            ValueType::Text => "string",
            ValueType::Vector => "vector",
            ValueType::Matrix => "matrix",
        }
    }

    /// As Prometheus' documentation says it.
    pub fn documented(self) -> &'static str {
        match self {
            ValueType::Vector => "instant vector",
            ValueType::Matrix => "range vector",
            other => other.text(),
        }
    }
}

impl Expr {
    /// What it gives.
    pub fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number(_) => ValueType::Scalar,
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

    /// What is inside any parentheses around it.
    pub fn unwrap_parens(&self) -> &Expr {
        let mut expr = self;
        while let ExprKind::Paren(inner) = &expr.kind {
            expr = inner;
        }
        expr
    }

    /// The expressions it is made of, in the order they are written.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Text(_) => Vec::new(),
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

    /// The same, to be changed.
    pub fn children_mut(&mut self) -> Vec<&mut Expr> {
        match &mut self.kind {
            ExprKind::Number(_) | ExprKind::Text(_) => Vec::new(),
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

    /// The same with every place at 0, to compare what was written differently.
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
