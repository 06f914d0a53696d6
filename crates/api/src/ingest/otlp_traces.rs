//! OTLP traces over HTTP (`POST /v1/traces`, protobuf and JSON) and over gRPC: spans are measured.
//!
//! Rejected spans are reported as a partial success. Encodings, compression and errors are those of
//! OTLP metrics.

use axum::response::Response;
use decode::SeriesSink;
use decode::spans::{self, SpanSummary};
use intake::SeriesKeyEncoding;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest};
use crate::ingest::otlp::{CONTENT_TYPES, OtlpFormat};
use crate::route::ApiRoute;

const EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Encoding of the keys of `decode::spans`.
pub(crate) const SPAN_KEYS: SeriesKeyEncoding = SeriesKeyEncoding::new("spans");

/// A request with spans, in an encoding.
pub(crate) struct TracesFormat(OtlpFormat);

impl IngestFormat for TracesFormat {
    const NAME: &'static str = "otlp_traces";
    // Without requests there are no spans.
    const SENDS_REGULARLY: bool = false;
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/v1/traces",
        "Measures the spans of OpenTelemetry traces (docs/traces.md).",
        &[],
        (CONTENT_TYPES, "an ExportTraceServiceRequest"),
    )
    .with_response(200, CONTENT_TYPES, "an ExportTraceServiceResponse, with rejected spans")];
    const GRPC_PATHS: &'static [&'static str] = &[EXPORT_PATH];

    type Summary = SpanSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<TracesFormat, ErrorResponse> {
        OtlpFormat::of_request(request, EXPORT_PATH).map(TracesFormat)
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
        let read = match self.0 {
            OtlpFormat::Protobuf | OtlpFormat::Grpc => spans::read_otlp_protobuf(body, sink),
            OtlpFormat::Json => spans::read_otlp_json(body, sink),
        };
        read.map_err(|error| ErrorResponse::bad_request(format!("invalid OTLP request: {error}")))
    }

    fn rejected(summary: &SpanSummary) -> (u64, &[String]) {
        (summary.rejected_inputs(), &summary.errors)
    }

    fn response(&self, outcome: IngestOutcome<SpanSummary>) -> Response {
        let summary = &outcome.summary;
        self.0.partial_success("rejectedSpans", summary.rejected(), &summary.errors)
    }

    fn error_response(format: Option<&Self>, error: ErrorResponse) -> Response {
        OtlpFormat::error(format.map(|format| &format.0), error)
    }
}
