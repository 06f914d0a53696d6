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

impl Evaluation<'_> {
    /// `at` is the place of the readings among the arguments; `args` are the others.
    pub(crate) fn over(
        &mut self,
        _function: &'static Function,
        _over: &Ranged,
        _args: &[Node],
        _at: usize,
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
