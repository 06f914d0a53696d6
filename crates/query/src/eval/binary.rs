//! Operators between streams, between a stream and a number, and between numbers.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::plan::Node;
use crate::promql::{BinaryOp, Matching};
use crate::stream::{Steps, Stream};
use crate::value::Value;

/// What stands on a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Scalar,
    Vector,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub(crate) operator: BinaryOp,
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
