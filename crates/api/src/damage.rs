//! Acknowledgement of damage of stored data by an operator.
//!
//! Lost data stays lost. An acknowledged location no longer makes the server degraded; the status
//! lists it as acknowledged, also after a restart.

#[cfg(test)]
mod tests;

use intake::Supervisor;

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::damage_report::acknowledgement_json;
use crate::json::Json::{List, Object};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, JSON, Parameter};
use crate::routing;
use crate::token::Scope;

const ACKNOWLEDGE: &[Parameter] = &[
    Parameter::text(
        "location",
        "`location` of the damage, or `input` of a quarantined record, as in /v1/status; default: \
         all that is reported",
    ),
    Parameter::text("note", "text that is stored with it, such as the cause; default: none"),
];

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute {
    method: "post",
    ..ApiRoute::get(
        "/v1/damage/acknowledge",
        "Acknowledges damage of stored data, and records skipped for good: /health no longer \
         reports it.",
        ACKNOWLEDGE,
        || routing::post(acknowledge),
    )
}
.with_scope(Some(Scope::Admin))
.with_response(200, JSON, "the new acknowledgements; durable, and listed in /v1/status")];

async fn acknowledge(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(ACKNOWLEDGE)?;
    let location = parameters.get("location").map(str::to_owned);
    let note = parameters.get("note").unwrap_or_default().to_owned();
    let (intake, queries) = (context.intake.clone(), context.queries.clone());
    let work = move |_: &_| {
        let new = intake.acknowledge_damage(location.as_deref(), &note);
        let new = new.map_err(|error| match error {
            intake::Error::Rejected(reason) => ApiError::BadRequest(reason),
            error => ApiError::Internal(error.to_string()),
        })?;
        if let Some(location) = location.filter(|_| new.is_empty()) {
            return Err(ApiError::NotFound(not_reported(intake.supervisor(), &location)));
        }
        queries.json_response(&Object(vec![
            ("schema", integer(1)),
            ("acknowledged", List(new.into_iter().map(acknowledgement_json).collect())),
        ]))
    };
    context.run_light("acknowledge damage", None, work).await
}

fn not_reported(supervisor: &Supervisor, location: &str) -> String {
    let cause = if supervisor.is_acknowledged(location) {
        "it is acknowledged already"
    } else if supervisor.quarantined().iter().any(|input| input.name == location) {
        "it is retried, and its report ends when that succeeds"
    } else {
        "it is not reported; /v1/status has the locations"
    };
    format!("cannot acknowledge {location:?}: {cause}")
}
