//! Functions of readings over time: `rate`, `avg_over_time` and their like.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::plan::{Node, Ranged};
use crate::stream::{Steps, Stream};

/// A function of readings over time.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
}

/// The function of that name.
pub(crate) fn function(_name: &str) -> Option<&'static Function> {
    unimplemented!()
}

/// A function of readings, and what it is applied to.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) function: &'static Function,
    /// The readings.
    pub(crate) of: Ranged,
    /// Numbers, in the order of the arguments without the readings.
    pub(crate) args: Vec<Node>,
}

impl Evaluation<'_> {
    pub(crate) fn over(
        &mut self,
        _over: &Over,
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
