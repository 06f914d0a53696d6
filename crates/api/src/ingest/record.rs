//! `POST /v1/record?metric=NAME&unit=ms&label.host=a`: numbers, one per line, into one histogram.
//!
//! All of a body or nothing is taken. What the body is said to be does not matter: `curl -d 12.5` calls it a form.

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use collect::mapper::{MapSummary, MappingDefaults, RowMapper};
use collect::{InputFormat, Unit};
use http::StatusCode;
use intake::{IngestWriter, SeriesKeyEncoding};
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::ingest::{LABELS, METRIC, UNIT};
use crate::openapi::{Parameter, Route};

const PARAMETERS: &[Parameter] = &[METRIC.required(), UNIT, LABELS];

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/record",
    "Records raw values: a number per line.",
    PARAMETERS,
    ("text/plain", "a number per line"),
)];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/record", post(ingest_record))
}

async fn ingest_record(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    posted.reject_unknown_parameters(PARAMETERS)?;
    if posted.parameter("metric").is_none_or(str::is_empty) {
        return Err(ErrorResponse::bad_request(
            "what was measured? name it: /v1/record?metric=NAME&unit=ms",
        ));
    }
    let unit = posted.unit()?;
    let taken =
        posted.ingest("record", SeriesKeyEncoding::Generic, move |posted, body, now, rows| {
            reject_partial(read(posted, InputFormat::Numbers, unit, body, now, rows))
        });
    let taken = taken.await?;
    let answer = json!({ "values": taken.values, "duplicate": taken.is_duplicate });
    Ok(json_response(StatusCode::OK, &answer))
}

/// Reads a body as `format`, with what the address says.
pub(crate) fn read(
    posted: &IngestRequest,
    format: InputFormat,
    unit: Option<Unit>,
    body: &[u8],
    now: i64,
    rows: &mut IngestWriter,
) -> MapSummary {
    let labels = posted.labels();
    // Numbers with a unit of time become nanoseconds as they are read.
    let is_scaled = format == InputFormat::Numbers
        && !matches!(unit, None | Some(Unit::Bytes | Unit::Other(_)));
    let placed_as = if is_scaled { Some(Unit::Nanoseconds) } else { unit.clone() };
    let rules = MappingDefaults {
        metric: posted.parameter("metric"),
        labels: &labels,
        unit: placed_as.as_ref(),
        time: Some(now),
    };
    let mut sink = RowMapper::new(rules, rows);
    collect::read(format, &mut &body[..], unit.as_ref(), &mut sink)
        .expect("BUG: memory does not fail to be read");
    sink.finish()
}

/// Refuses a body of which something could not be taken.
pub(crate) fn reject_partial(placed: MapSummary) -> Result<MapSummary, ErrorResponse> {
    if placed.rejected == 0 {
        return Ok(placed);
    }
    let more = placed.rejected - 1;
    let mut what = placed.errors.into_iter().next().unwrap_or_default();
    if more > 0 {
        what.push_str(&format!(", and {more} more"));
    }
    Err(ErrorResponse::bad_request(format!("{what}; nothing of the body was taken")))
}
