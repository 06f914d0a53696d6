//! Line protocol of InfluxDB: `POST /write` as version 1 has it, `POST /api/v2/write` as version 2.
//!
//! Database, bucket and organisation are passed over. As at InfluxDB, lines that can be read are taken when others
//! cannot: then the status is 400, which clients do not try again, and the answer says what was left out.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use collect::influx::{self, Precision};
use http::StatusCode;
use intake::Way;
use serde_json::json;

use crate::context::Context;
use crate::ingest::posted::{Posted, json};
use crate::openapi::{Parameter, Route};
use crate::problem::Problem;

const PARAMETERS: &[Parameter] =
    &[Parameter::text("precision", "the unit of times: ns, us, ms, s, m or h; ns if not said")];

const LINES: (&str, &str) = ("text/plain", "lines of the Influx line protocol");
const TAKEN: &str = "all of it is durable";

pub(crate) const ROUTES: &[Route] = &[
    Route::ingest("/write", "Takes the line protocol of InfluxDB 1.", PARAMETERS, LINES)
        .answers(204, "", TAKEN),
    Route::ingest("/api/v2/write", "Takes the line protocol of InfluxDB 2.", PARAMETERS, LINES)
        .answers(204, "", TAKEN),
];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/write", post(write)).route("/api/v2/write", post(write))
}

async fn write(posted: Posted) -> Result<Response, Problem> {
    let precision = match posted.parameter("precision") {
        None | Some("") => Precision::default(),
        Some(text) => Precision::parse(text).ok_or_else(|| {
            Problem::bad(format!("precision={text}: expected ns, us, ms, s, m or h"))
        })?,
    };
    let taken = posted.take("influx", Way::Influx, move |_, body, now, rows| {
        Ok(influx::read(body, precision, now, rows))
    });
    let placed = taken.await?.found;
    if placed.refused == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let (taken, dropped, why) = (placed.readings, placed.refused, placed.troubles.join("; "));
    let what = format!("partial write: {why}; dropped={dropped}, taken={taken}");
    let answer = json!({ "code": "invalid", "message": what, "error": what });
    Ok(json(StatusCode::BAD_REQUEST, &answer))
}
