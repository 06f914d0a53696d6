//! `POST /v1/import`: any format that `topdeck hist` reads, told by its content. All of a body or nothing is taken.

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::InputFormat;
use http::StatusCode;
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::ingest::record::{read, reject_partial};
use crate::ingest::{LABELS, METRIC, START, UNIT, hlog};
use crate::openapi::{Parameter, Route};

const PARAMETERS: &[Parameter] = &[
    METRIC,
    UNIT,
    Parameter::text("format", "name of the format; default: detected from the content"),
    START,
    LABELS,
];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/import",
    "Ingests a file in any format that `topdeck import` reads.",
    PARAMETERS,
    ("application/octet-stream", "the file"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/import", post(ingest_import))
}

async fn ingest_import(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    posted.reject_unknown_parameters(PARAMETERS)?;
    let unit = posted.unit()?;
    let named = posted.parameter("format").map(format).transpose()?;
    let start = hlog::start_parameter(&posted)?;
    let taken =
        posted.ingest("import", SeriesKeyEncoding::Generic, move |posted, body, now, rows| {
            let found = named.map_or_else(|| collect::detect(body), Ok);
            let format =
                found.map_err(|trouble| ErrorResponse::bad_request(trouble.to_string()))?;
            let placed = match format {
                InputFormat::Hlog => hlog::read_log(posted, start, body, rows),
                _ => read(posted, format, unit, body, now, rows),
            };
            Ok((format, reject_partial(placed)?))
        });
    let taken = taken.await?;
    let (format, placed) = taken.result;
    let answer = json!({
        "format": format.name(),
        "samples": placed.samples,
        "values": taken.values,
        "skipped": placed.skipped,
        "duplicate": taken.is_duplicate,
    });
    Ok(json_response(StatusCode::OK, &answer))
}

fn format(name: &str) -> Result<InputFormat, ErrorResponse> {
    InputFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
        let known: Vec<&str> = InputFormat::ALL.into_iter().map(InputFormat::name).collect();
        ErrorResponse::bad_request(format!("format={name}: expected one of {}", known.join(", ")))
    })
}
