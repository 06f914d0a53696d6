//! What there is how many series of.

use super::CARDINALITY;
use crate::context::Context;
use crate::desk::Written;
use crate::document;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

pub(super) async fn cardinality(
    context: Context,
    parameters: Parameters,
) -> Result<Written, Refusal> {
    let parameters = parameters.only(CARDINALITY)?;
    let (timeout, top) = (parameters.timeout()?, parameters.count("top", 10, 10_000)?);
    let (store, desk) = (context.desk.store()?, context.desk.clone());
    let work = move |_: &_| desk.answer(&document::cardinality::of(&store.cardinality(top)?));
    context.light("cardinality", timeout, work).await
}
