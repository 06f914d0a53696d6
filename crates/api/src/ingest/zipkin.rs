//! Zipkin's spans (`POST /api/v2/spans`, JSON): each span is measured, as of OTLP traces.
//!
//! Zipkin's response has no body, so rejected spans are only counted.

use axum::response::{IntoResponse as _, Response};
use decode::SeriesSink;
use decode::spans::{self, SpanSummary};
use http::StatusCode;
use intake::SeriesKeyEncoding;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest};
use crate::ingest::otlp_traces::SPAN_KEYS;
use crate::route::ApiRoute;

/// A request with spans.
pub(crate) struct ZipkinFormat;

impl IngestFormat for ZipkinFormat {
    const NAME: &'static str = "zipkin";
    const SENDS_REGULARLY: bool = false;
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/api/v2/spans",
        "Measures Zipkin's spans, version 2 (docs/traces.md).",
        &[],
        ("application/json", "a list of spans"),
    )
    .with_response(202, "application/json", "an empty body: the measurements are durable")];

    type Summary = SpanSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<ZipkinFormat, ErrorResponse> {
        match request.content_type() {
            // Senders may leave it out, as Zipkin's own server accepts.
            "" | "application/json" => Ok(ZipkinFormat),
            other => Err(ErrorResponse::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("unsupported content type {other:?}: expected application/json"),
            )),
        }
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SPAN_KEYS
    }

    fn decode(
        &self,
        body: &[u8],
        _now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<SpanSummary, ErrorResponse> {
        spans::read_zipkin(body, sink)
            .map_err(|error| ErrorResponse::bad_request(format!("invalid Zipkin request: {error}")))
    }

    fn rejected(summary: &SpanSummary) -> (u64, &[String]) {
        (summary.rejected_inputs(), &summary.errors)
    }

    fn response(&self, _outcome: IngestOutcome<SpanSummary>) -> Response {
        StatusCode::ACCEPTED.into_response()
    }
}
