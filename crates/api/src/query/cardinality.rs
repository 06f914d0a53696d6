//! `/v1/cardinality`.

use super::CARDINALITY;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::Parameters;
use report::document;

pub(super) async fn cardinality(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(CARDINALITY)?;
    let (timeout, top) = (parameters.timeout()?, parameters.integer("top", 10, 10_000)?);
    let (store, queries) = (context.queries.store()?, context.queries.clone());
    let work = move |_: &_| {
        queries.json_response(&document::cardinality::to_json(&store.cardinality(top)?))
    };
    context.run_light("cardinality", timeout, work).await
}
