//! Changes of series: `/v1/changes`, and their acceptance.
//!
//! The role `alerts` stores them as annotations. An acceptance is a text sample, durable when the
//! client is answered.

#[cfg(test)]
mod tests;

use axum::extract::{Path, Request};
use decode::SeriesSink as _;
use intake::SeriesKeyEncoding;
use rules::{ChangeAcceptance, SeriesSetChange, read_changes};
use serde_json::Value as JsonValue;
use store::ReadView;

use crate::access::Principal;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Null, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::route::{ApiRoute, JSON, Parameter, TIMEOUT};
use crate::routing;
use crate::token::Scope;

/// Maximum size of the body of an acceptance, in bytes.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Default range.
const RANGE_NS: i64 = 7 * store::DAY;
/// Who accepts without a token: a client on this host.
const LOCAL: &str = "local";

const PARAMETERS: &[Parameter] = &[
    Parameter::text("from", "start of the range; default: a week before the end"),
    Parameter::text("to", "end of the range; default: now"),
    Parameter::flag("open", "true for changes that nobody accepted; default: all"),
    TIMEOUT,
];

const ID: Parameter = Parameter::text("id", "id of the change").required();

const ACCEPT: ApiRoute = ApiRoute {
    method: "post",
    body: Some((JSON, "{\"note\": …}, or nothing")),
    ..ApiRoute::get("/v1/changes/{id}/accept", "Accepts a change of series.", &[ID], || {
        routing::post(accept)
    })
}
.with_scope(Some(Scope::Ingest))
.with_response(200, JSON, "the change; stored durably");

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        "/v1/changes",
        "Series that vanished, and what replaced them, by time.",
        PARAMETERS,
        || routing::get(list),
    ),
    ACCEPT,
];

fn change_json(change: &SeriesSetChange) -> Json {
    let acceptance = change.acceptance.as_ref().map_or(Null, |accepted| {
        Object(vec![
            ("at_ns", Integer(accepted.at_ns.into())),
            ("by", Text(accepted.by.clone())),
            ("note", Text(accepted.note.clone())),
        ])
    });
    Object(vec![
        ("id", Text(change.id())),
        ("at_ns", Integer(change.time_ns.into())),
        ("source", Text(change.source.clone())),
        ("text", Text(change.text.clone())),
        ("acceptance", acceptance),
    ])
}

async fn list(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(PARAMETERS)?;
    let now = context.intake.now();
    let to = parameters.time("to", now)?.unwrap_or(now);
    let from = parameters.time("from", now)?.unwrap_or(to.saturating_sub(RANGE_NS));
    let (timeout, is_open) = (parameters.timeout()?, parameters.flag("open")?);
    let queries = context.queries.clone();
    let work = move |view: &ReadView, _: &ActiveQuery| {
        let mut changes = read_changes(view, from.saturating_sub(1)..to)?;
        changes.retain(|change| !is_open || change.acceptance.is_none());
        queries.json_response(&Object(vec![
            ("schema", integer(1)),
            ("changes", List(changes.iter().map(change_json).collect())),
        ]))
    };
    context.run_light_with_view("changes", timeout, work).await
}

async fn accept(
    context: Context,
    Path(id): Path<String>,
    request: Request,
) -> Result<JsonBody, ApiError> {
    Parameters::of_uri(request.uri())?.reject_unknown(&[])?;
    let principal = request.extensions().get::<Principal>();
    let by = principal.and_then(|principal| principal.name.clone());
    let body = axum::body::to_bytes(request.into_body(), BODY_BYTES_MAX).await;
    let body = body.map_err(|error| {
        let limit = format!("the size limit is {BODY_BYTES_MAX} bytes");
        ApiError::BadRequest(format!("cannot read the acceptance: {error}; {limit}"))
    })?;
    let acceptance = ChangeAcceptance {
        at_ns: context.intake.now(),
        by: by.unwrap_or_else(|| LOCAL.to_owned()),
        note: read_note(&body)?,
    };
    let (queries, intake) = (context.queries.clone(), context.intake.clone());
    let work = move |view: &ReadView, _: &ActiveQuery| {
        let changes = read_changes(view, i64::MIN..i64::MAX)?;
        let found = changes.into_iter().find(|change| change.id() == id);
        let mut change = found.ok_or_else(|| ApiError::NotFound(format!("no change {id:?}")))?;
        let internal = |error: &dyn std::fmt::Display| {
            ApiError::Internal(format!("cannot store the acceptance: {error}"))
        };
        // The first acceptance stays.
        if change.acceptance.is_none() {
            let (series, sample) = acceptance.sample(&change.id());
            let series = series.validate().map_err(|error| internal(&error))?;
            let producer = intake.producer("changes");
            producer.disable_absence_monitor();
            let mut writer = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
            let added = writer.series(&series.canonical_key(), &mut || Ok(series.clone()));
            added.and_then(|()| writer.sample(&sample)).map_err(|error| internal(&error))?;
            let appended = intake.append(&producer, writer).and_then(|it| it.wait_durable());
            appended.map_err(|error| internal(&error))?;
            change.acceptance = Some(acceptance);
        }
        queries
            .json_response(&Object(vec![("schema", integer(1)), ("change", change_json(&change))]))
    };
    context.run_light_with_view("accept_change", None, work).await
}

/// Note of a body such as `{"note":"we dropped the label"}`.
fn read_note(body: &[u8]) -> Result<String, ApiError> {
    if body.is_empty() {
        return Ok(String::new());
    }
    let bad = |what: String| ApiError::BadRequest(format!("invalid acceptance: {what}"));
    let read: JsonValue = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    let JsonValue::Object(fields) = read else {
        return Err(bad("expected an object such as {\"note\":\"planned\"}".to_owned()));
    };
    let mut note = String::new();
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("note", JsonValue::String(text)) => note = text,
            ("note", _) => return Err(bad("note: expected a string".to_owned())),
            _ => return Err(bad(format!("unknown field {name:?}; allowed: note"))),
        }
    }
    Ok(note)
}
