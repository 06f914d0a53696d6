//! `/v1/selection`.

use query::selection::SelectionSummary;
use report::document;
use store::ReadView;

use super::{SELECTION, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::{Parameters, SELECTOR_SYNTAX};

pub(super) async fn selection(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(SELECTION)?;
    let now = context.intake.now();
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR_SYNTAX)?;
    let requested = parameters.clone();
    // The index has the ranges: about one lookup per series and part, which is less than a column.
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let rows = |selector| selection::estimate_rows(view, &selector, (None, None), 1);
        requested.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let selector = parameters.selectors("selector")?;
        let from = parameters.time("from", now)?.unwrap_or(i64::MIN);
        let to = parameters.time("to", now)?.unwrap_or(i64::MAX);
        let buckets = query::bucket_count(view, &selector);
        active.reserve(buckets.saturating_mul(selection::BUCKET_BYTES))?;
        let summary = SelectionSummary::read(view, &selector, &(from..to))
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        active.json_response(&document::selection::to_json(&summary))
    };
    context.run_query("selection", timeout, estimate, work).await
}
