//! A function of CAQL with its arguments, as a piece of a plan.

use crate::error::{Place, Result};
use crate::eval::Evaluation;
use crate::stream::{Steps, Stream};

/// A function and what it is applied to.
#[derive(Clone, Debug)]
pub(crate) struct Stage {}

impl Stage {
    pub(crate) fn streams(
        &self,
        _evaluation: &mut Evaluation<'_>,
        _place: Place,
        _steps: Steps,
    ) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
