//! `POST /v1/import`: any format that `topdeck hist` reads, told by its content. All of a body or nothing is taken.

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::Format;
use http::StatusCode;
use intake::Way;
use serde_json::json;

use crate::context::Context;
use crate::ingest::posted::{Posted, json};
use crate::ingest::record::{read, whole};
use crate::ingest::{LABELS, METRIC, START, UNIT, hlog};
use crate::openapi::{Parameter, Route};
use crate::problem::Problem;

const PARAMETERS: &[Parameter] = &[
    METRIC,
    UNIT,
    Parameter::text("format", "the format's name; told by the content, if not said"),
    START,
    LABELS,
];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/import",
    "Takes a recording in any format that `topdeck import` reads.",
    PARAMETERS,
    ("application/octet-stream", "the recording"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/import", post(import))
}

async fn import(posted: Posted) -> Result<Response, Problem> {
    posted.only(PARAMETERS)?;
    let unit = posted.unit()?;
    let named = posted.parameter("format").map(format).transpose()?;
    let start = hlog::start(&posted)?;
    let taken = posted.take("import", Way::Placed, move |posted, body, now, rows| {
        let found = named.map_or_else(|| collect::detect(body), Ok);
        let format = found.map_err(|trouble| Problem::bad(trouble.to_string()))?;
        let placed = match format {
            Format::Hlog => hlog::read(posted, start, body, rows),
            _ => read(posted, format, unit, body, now, rows),
        };
        Ok((format, whole(placed)?))
    });
    let taken = taken.await?;
    let (format, placed) = taken.found;
    let answer = json!({
        "format": format.name(),
        "readings": placed.readings,
        "values": taken.values,
        "skipped": placed.skipped,
        "repeated": taken.is_repeated,
    });
    Ok(json(StatusCode::OK, &answer))
}

fn format(name: &str) -> Result<Format, Problem> {
    Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.into_iter().map(Format::name).collect();
        Problem::bad(format!("format={name}: expected one of {}", known.join(", ")))
    })
}
