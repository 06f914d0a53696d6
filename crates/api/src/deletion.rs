//! `DELETE /v1/points`: deletes points of series in a range.

use axum::routing;
use query::selection::SelectionSummary;
use report::{Deletion, document};

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use crate::query::no_match_message;
use crate::route::{ApiRoute, JSON, POINTS_PATH, Parameter, SELECTOR};
use crate::time_expr::TIME_SYNTAX;
use crate::token::Scope;

const DELETE: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("from", "start; points that ended after it are deleted").required(),
    Parameter::text("to", "end; points that ended at or before it are deleted").required(),
    Parameter::flag("dry_run", "only reports the number of matching series and one of them"),
];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute {
    method: "delete",
    ..ApiRoute::get(
        POINTS_PATH,
        "Deletes points of series in a range, at every resolution.",
        DELETE,
        || routing::delete(delete),
    )
}
.with_scope(Some(Scope::Admin))
.with_response(200, JSON, "matching series and numbers of deleted rows; durably deleted")];

async fn delete(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(DELETE)?;
    let (store, queries) = (context.queries.store()?, context.queries.clone());
    let now = context.intake.now();
    // Without a selector all series would match.
    parameters.required("selector", SELECTOR_SYNTAX)?;
    let time = |name: &str| -> Result<i64, ApiError> {
        parameters.required(name, TIME_SYNTAX)?;
        Ok(parameters.time(name, now)?.unwrap_or(now))
    };
    let (from, to, is_dry) = (time("from")?, time("to")?, parameters.flag("dry_run")?);
    if from >= to {
        let found = parameters.get("from").unwrap_or("");
        return Err(ApiError::invalid_parameter("from", found, "a time before `to`"));
    }
    let work = move |_: &_| {
        let selector = parameters.selectors("selector")?;
        let view = store.view()?;
        let summary = SelectionSummary::read(&view, &selector, &(from..to))
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        let Some(first) = summary.groups.first() else {
            return Err(ApiError::NotFound(no_match_message(&view, &selector)));
        };
        let deletion = Deletion {
            series: summary.series(),
            example: first.example.clone(),
            range: from..to,
            result: if is_dry { None } else { Some(store.delete(&selector, from..to)?) },
        };
        queries.json_response(&document::deletion::to_json(&deletion))
    };
    context.run_heavy("delete", None, work).await
}
