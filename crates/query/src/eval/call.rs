//! Functions of what is there at each step: `abs`, `histogram_quantile`, `label_replace` and their like.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::plan::Node;
use crate::stream::{Steps, Stream};

/// A function of streams.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
}

/// The function of that name.
pub(crate) fn function(_name: &str) -> Option<&'static Function> {
    unimplemented!()
}

impl Evaluation<'_> {
    pub(crate) fn call(
        &mut self,
        _function: &'static Function,
        _args: &[Node],
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
