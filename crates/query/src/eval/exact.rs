//! What happened in the stretches of time before the steps, exactly: nothing is extrapolated, and the coarsest
//! rollups that fit are read.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::Exact;
use crate::stream::{Steps, Stream};

impl Evaluation<'_> {
    pub(crate) fn exact(&mut self, _exact: &Exact, _steps: Steps) -> Result<Vec<Stream>> {
        unimplemented!()
    }
}
