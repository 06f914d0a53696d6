//! Line protocol of InfluxDB: `POST /write` as version 1 has it, `POST /api/v2/write` as version 2.
//!
//! Database, bucket and organisation are passed over. As at InfluxDB, lines that can be read are taken when others
//! cannot: then the status is 400, which clients do not try again, and the answer says what was left out.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use collect::influx::{self, TimestampPrecision};
use http::StatusCode;
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::openapi::{Parameter, Route};

const PARAMETERS: &[Parameter] =
    &[Parameter::text("precision", "unit of timestamps: ns, us, ms, s, m or h; default: ns")];

const LINES: (&str, &str) = ("text/plain", "Influx line protocol");
const RESPONSE: &str = "stored durably";

pub(crate) const ROUTES: &[Route] = &[
    Route::ingest("/write", "Ingests the line protocol of InfluxDB 1.", PARAMETERS, LINES)
        .with_response(204, "", RESPONSE),
    Route::ingest("/api/v2/write", "Ingests the line protocol of InfluxDB 2.", PARAMETERS, LINES)
        .with_response(204, "", RESPONSE),
];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/write", post(write)).route("/api/v2/write", post(write))
}

async fn write(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    let precision = match posted.parameter("precision") {
        None | Some("") => TimestampPrecision::default(),
        Some(text) => TimestampPrecision::parse(text).ok_or_else(|| {
            ErrorResponse::bad_request(format!("precision={text}: expected ns, us, ms, s, m or h"))
        })?,
    };
    let taken = posted.ingest("influx", SeriesKeyEncoding::Influx, move |_, body, now, rows| {
        Ok(influx::read_lines(body, precision, now, rows))
    });
    let placed = taken.await?.result;
    if placed.rejected == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (taken, dropped, why) = (placed.samples, placed.rejected, placed.errors.join("; "));
    let what = format!("partial write: {why}; dropped={dropped}, accepted={taken}");
    let answer = json!({ "code": "invalid", "message": what, "error": what });
    Ok(json_response(StatusCode::BAD_REQUEST, &answer))
}
