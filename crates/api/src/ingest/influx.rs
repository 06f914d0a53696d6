//! InfluxDB line protocol: `POST /write` of version 1, `POST /api/v2/write` of version 2.
//!
//! Database, bucket and organisation are ignored. As with InfluxDB, valid lines are stored if
//! others are invalid: the status is then 400, which clients do not retry, and the response lists
//! the rejected lines.

use axum::response::{IntoResponse, Response};
use decode::SeriesSink;
use decode::influx::{self, TimestampPrecision};
use decode::mapper::MapSummary;
use http::StatusCode;
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest, json_response};
use crate::route::{ApiRoute, Parameter};

const PARAMETERS: &[Parameter] =
    &[Parameter::text("precision", "unit of timestamps: ns, us, ms, s, m or h; default: ns")];

const LINES: (&str, &str) = ("text/plain", "InfluxDB line protocol");
const RESPONSE: &str = "stored durably";

/// A line protocol request.
pub(crate) struct InfluxFormat {
    precision: TimestampPrecision,
}

impl IngestFormat for InfluxFormat {
    const NAME: &'static str = "influx";
    const ROUTES: &'static [ApiRoute] = &[
        ApiRoute::ingest("/write", "Ingests the line protocol of InfluxDB 1.", PARAMETERS, LINES)
            .with_response(204, "", RESPONSE),
        ApiRoute::ingest(
            "/api/v2/write",
            "Ingests the line protocol of InfluxDB 2.",
            PARAMETERS,
            LINES,
        )
        .with_response(204, "", RESPONSE),
    ];

    type Summary = MapSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<InfluxFormat, ErrorResponse> {
        let precision = match request.parameter("precision") {
            None | Some("") => TimestampPrecision::default(),
            Some(text) => TimestampPrecision::parse(text).ok_or_else(|| {
                ErrorResponse::bad_request(format!(
                    "precision={text}: expected ns, us, ms, s, m or h"
                ))
            })?,
        };
        Ok(InfluxFormat { precision })
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<MapSummary, ErrorResponse> {
        Ok(influx::read_lines(body, self.precision, now, sink))
    }

    fn rejected(summary: &MapSummary) -> (u64, &[String]) {
        (summary.rejected, &summary.errors)
    }

    fn response(&self, outcome: IngestOutcome<MapSummary>) -> Response {
        let placed = outcome.summary;
        if placed.rejected == 0 {
            return StatusCode::NO_CONTENT.into_response();
        }
        let (accepted, dropped, reason) =
            (placed.samples, placed.rejected, placed.errors.join("; "));
        let what = format!("partial write: {reason}; dropped={dropped}, accepted={accepted}");
        let answer = json!({ "code": "invalid", "message": what, "error": what });
        json_response(StatusCode::BAD_REQUEST, &answer)
    }
}
