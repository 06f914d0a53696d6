//! OTLP metrics over HTTP (`POST /v1/metrics`, protobuf and JSON) and over gRPC.
//!
//! Rejected points are reported as a partial success; an invalid request is rejected. If a limit is
//! reached, the response asks for a retry (429 with `Retry-After`, RESOURCE_EXHAUSTED with
//! `RetryInfo`). Source: <https://opentelemetry.io/docs/specs/otlp/>.

use axum::response::{IntoResponse, Response};
use decode::SeriesSink;
use decode::otlp::{self, OtlpSummary};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::grpc;
use crate::ingest::decompress::ContentEncoding;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest, json_response};
use crate::protobuf_writer::{self, ProtobufWriter};
use crate::route::ApiRoute;

const EXPORT_PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

const MISSING_ENCODING: &str = "the message is compressed, but grpc-encoding is missing";

pub(crate) const CONTENT_TYPES: &str = "application/x-protobuf, application/json";

/// Encoding of a request, and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtlpFormat {
    Protobuf,
    Json,
    Grpc,
}

/// A path of OTLP; the longer one is that of Prometheus' receiver.
const fn route(path: &'static str) -> ApiRoute {
    ApiRoute::ingest(
        path,
        "Ingests OpenTelemetry metrics (docs/formats/otlp.md).",
        &[],
        (CONTENT_TYPES, "an ExportMetricsServiceRequest"),
    )
    .with_response(200, CONTENT_TYPES, "an ExportMetricsServiceResponse, with rejected points")
}

impl IngestFormat for OtlpFormat {
    const NAME: &'static str = "otlp";
    const ROUTES: &'static [ApiRoute] = &[route("/v1/metrics"), route("/api/v1/otlp/v1/metrics")];
    const GRPC_PATHS: &'static [&'static str] = &[EXPORT_PATH];

    type Summary = OtlpSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<OtlpFormat, ErrorResponse> {
        OtlpFormat::of_request(request, EXPORT_PATH)
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<OtlpSummary, ErrorResponse> {
        let read = match self {
            OtlpFormat::Protobuf | OtlpFormat::Grpc => otlp::read_protobuf(body, now, sink),
            OtlpFormat::Json => otlp::read_json(body, now, sink),
        };
        read.map_err(|error| ErrorResponse::bad_request(format!("invalid OTLP request: {error}")))
    }

    fn rejected(summary: &OtlpSummary) -> (u64, &[String]) {
        (summary.rejected, &summary.errors)
    }

    fn response(&self, outcome: IngestOutcome<OtlpSummary>) -> Response {
        let summary = &outcome.summary;
        self.partial_success("rejectedDataPoints", summary.rejected, &summary.errors)
    }

    fn error_response(format: Option<&Self>, error: ErrorResponse) -> Response {
        OtlpFormat::error(format, error)
    }
}

impl OtlpFormat {
    /// Encoding of a request of which `export_path` is the gRPC method.
    pub(crate) fn of_request(
        request: &mut IngestRequest,
        export_path: &str,
    ) -> Result<OtlpFormat, ErrorResponse> {
        if request.path() == export_path {
            return strip_grpc_frame(request);
        }
        match request.content_type() {
            "application/x-protobuf" => Ok(OtlpFormat::Protobuf),
            "application/json" => Ok(OtlpFormat::Json),
            other => Err(ErrorResponse::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "unsupported content type {other:?}: expected application/x-protobuf or \
                     application/json"
                ),
            )),
        }
    }

    /// A response with the number of rejected items, in JSON the field `name`.
    pub(crate) fn partial_success(
        self,
        name: &'static str,
        rejected: u64,
        errors: &[String],
    ) -> Response {
        let reasons = errors.join("; ");
        match self {
            OtlpFormat::Json => {
                json_response(StatusCode::OK, &partial_success_json(name, rejected, &reasons))
            }
            OtlpFormat::Protobuf => {
                let message = partial_success(rejected, &reasons);
                protobuf_response(StatusCode::OK.into_response(), &message)
            }
            OtlpFormat::Grpc => grpc::message_response(&partial_success(rejected, &reasons).0),
        }
    }

    /// The response to a failed request.
    pub(crate) fn error(format: Option<&Self>, error: ErrorResponse) -> Response {
        match format {
            // The middleware translates it to a gRPC status.
            None | Some(OtlpFormat::Grpc) => error.into_response(),
            Some(OtlpFormat::Protobuf) => error_response(error, false),
            Some(OtlpFormat::Json) => error_response(error, true),
        }
    }
}

/// An error is a `google.rpc.Status` in the encoding of the request.
fn error_response(problem: ErrorResponse, is_json: bool) -> Response {
    let (code, what, after) =
        (grpc::grpc_code(problem.status), problem.message.clone(), problem.retry_after);
    let response = problem.into_response();
    let (parts, _) = response.into_parts();
    match is_json {
        false => {
            let response = Response::from_parts(parts, axum::body::Body::empty());
            protobuf_response(response, &protobuf_writer::rpc_status(code, &what, after))
        }
        true => {
            let body = json!({ "code": code, "message": what }).to_string() + "\n";
            Response::from_parts(parts, body.into())
        }
    }
}

fn protobuf_response(mut response: Response, message: &ProtobufWriter) -> Response {
    *response.body_mut() = message.0.clone().into();
    let content_type = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

/// Removes the gRPC frame from the message.
fn strip_grpc_frame(request: &mut IngestRequest) -> Result<OtlpFormat, ErrorResponse> {
    if !grpc::is_grpc(&request.headers) {
        let what = "unsupported content type: expected application/grpc; for OTLP over HTTP use \
             /v1/metrics or /v1/traces";
        return Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let (message, is_compressed) = grpc::parse_message(std::mem::take(&mut request.body))?;
    request.body = message;
    let encoding = request.headers.get(grpc::ENCODING).map(|value| value.to_str().unwrap_or("?"));
    request.content_encoding = match (is_compressed, encoding) {
        (false, _) => ContentEncoding::Identity,
        (true, Some(encoding)) => match ContentEncoding::parse(encoding)? {
            ContentEncoding::Identity => return Err(ErrorResponse::bad_request(MISSING_ENCODING)),
            encoding => encoding,
        },
        (true, None) => return Err(ErrorResponse::bad_request(MISSING_ENCODING)),
    };
    Ok(OtlpFormat::Grpc)
}

/// `ExportMetricsServiceResponse` or `ExportTraceServiceResponse`: empty if all was accepted.
fn partial_success(rejected: u64, reasons: &str) -> ProtobufWriter {
    let partial = ProtobufWriter::default().number(1, rejected).bytes(2, reasons.as_bytes());
    ProtobufWriter::default().bytes(1, &partial.0)
}

/// The same in JSON, where 64-bit integers are strings.
fn partial_success_json(name: &'static str, rejected: u64, reasons: &str) -> serde_json::Value {
    if rejected == 0 {
        return json!({});
    }
    json!({ "partialSuccess": { name: rejected.to_string(), "errorMessage": reasons } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_points_are_reported() {
        assert!(partial_success(0, "").0.is_empty());
        assert_eq!(partial_success_json("rejectedSpans", 0, "").to_string(), "{}");
        assert_eq!(partial_success(2, "a").0, b"\x0a\x05\x08\x02\x12\x01a");
        assert_eq!(
            partial_success_json("rejectedDataPoints", 2, "a").to_string(),
            r#"{"partialSuccess":{"errorMessage":"a","rejectedDataPoints":"2"}}"#
        );
    }
}
