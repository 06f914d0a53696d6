//! Operators between streams, between a stream and a number, and between numbers.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::plan::Node;
use crate::stream::{Steps, Stream};
use crate::value::Value;

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Eq,
    Ne,
    Gt,
    Lt,
    Ge,
    Le,
    /// Values of a histogram below a limit, `</`.
    TrimUpper,
    /// Values of a histogram above a limit, `>/`.
    TrimLower,
    And,
    Or,
    Unless,
}

/// Which streams of both sides belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Matching {
    /// Those that agree in these labels; else those that agree in all but these.
    pub(crate) is_on: bool,
    pub(crate) labels: Vec<String>,
    pub(crate) cardinality: Cardinality,
    /// Labels that the result takes from the side of the one.
    pub(crate) include: Vec<String>,
    /// What stands for a stream that the left side lacks, and the right.
    pub(crate) fill: (Option<f64>, Option<f64>),
}

/// How many streams of one side may belong to one of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cardinality {
    #[default]
    OneToOne,
    /// Many on the left: `group_left`.
    ManyToOne,
    /// Many on the right: `group_right`.
    OneToMany,
    /// Of `and`, `or` and `unless`.
    ManyToMany,
}

/// What stands on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Scalar,
    Vector,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) operator: Operator,
    pub(crate) left: (Side, Node),
    pub(crate) right: (Side, Node),
    pub(crate) matching: Matching,
    /// A comparison gives 0 or 1 and picks nothing.
    pub(crate) is_bool: bool,
}

/// What is as far on the other side of nought.
pub(crate) fn negated(_value: &Value) -> Value {
    unimplemented!()
}

impl Evaluation<'_> {
    pub(crate) fn binary(
        &mut self,
        _binary: &Binary,
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
