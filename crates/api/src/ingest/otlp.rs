//! OTLP metrics over HTTP (`POST /v1/metrics`, protocol buffers and JSON) and over gRPC.
//!
//! Points that cannot be taken are told as a partial success; a request that is none is refused. Where there is no room
//! now, the answer asks to try again (429 with `Retry-After`, RESOURCE_EXHAUSTED with `RetryInfo`).
//! Source: <https://opentelemetry.io/docs/specs/otlp/>.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use collect::otlp::{self, OtlpSummary};
use http::{HeaderValue, StatusCode, header};
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::grpc;
use crate::ingest::decompress::ContentEncoding;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::openapi::Route;
use crate::protobuf_writer::{self, ProtobufWriter};

const SERVICE: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

const MISSING_ENCODING: &str = "the message is packed, and no grpc-encoding says how";

/// Encoding of an OTLP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtlpEncoding {
    Protobuf,
    Json,
}

const KINDS: &str = "application/x-protobuf, application/json";

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/metrics",
    "Ingests OpenTelemetry metrics (docs/formats/otlp.md).",
    &[],
    (KINDS, "an ExportMetricsServiceRequest"),
)
.with_response(200, KINDS, "an ExportMetricsServiceResponse, with rejected points")];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/metrics", post(handle_http)).route(SERVICE, post(handle_grpc))
}

async fn ingest(
    posted: IngestRequest,
    encoding: OtlpEncoding,
) -> Result<OtlpSummary, ErrorResponse> {
    let taken = posted.ingest("otlp", SeriesKeyEncoding::Otlp, move |_, body, now, rows| {
        let taken = match encoding {
            OtlpEncoding::Protobuf => otlp::read_protobuf(body, now, rows),
            OtlpEncoding::Json => otlp::read_json(body, now, rows),
        };
        taken.map_err(|trouble| {
            ErrorResponse::bad_request(format!("this is no request of OTLP: {trouble}"))
        })
    });
    Ok(taken.await?.result)
}

async fn handle_http(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    let encoding = match posted.content_type() {
        "application/x-protobuf" => OtlpEncoding::Protobuf,
        "application/json" => OtlpEncoding::Json,
        other => {
            let what = format!(
                "expected content of the type application/x-protobuf or application/json, found {other:?}"
            );
            return Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
        }
    };
    Ok(match ingest(posted, encoding).await {
        Ok(taken) if encoding == OtlpEncoding::Json => {
            json_response(StatusCode::OK, &partial_success_json(&taken))
        }
        Ok(taken) => protobuf_response(StatusCode::OK.into_response(), &partial_success(&taken)),
        Err(problem) => error_response(problem, encoding),
    })
}

/// A refusal is a `google.rpc.Status`, written as the request was.
fn error_response(problem: ErrorResponse, encoding: OtlpEncoding) -> Response {
    let (code, what, after) =
        (grpc::grpc_code(problem.status), problem.message.clone(), problem.retry_after);
    let response = problem.into_response();
    let (parts, _) = response.into_parts();
    match encoding {
        OtlpEncoding::Protobuf => {
            let response = Response::from_parts(parts, axum::body::Body::empty());
            protobuf_response(response, &protobuf_writer::rpc_status(code, &what, after))
        }
        OtlpEncoding::Json => {
            let body = json!({ "code": code, "message": what }).to_string() + "\n";
            Response::from_parts(parts, body.into())
        }
    }
}

fn protobuf_response(mut response: Response, message: &ProtobufWriter) -> Response {
    *response.body_mut() = message.0.clone().into();
    let kind = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

async fn handle_grpc(mut posted: IngestRequest) -> Result<Response, ErrorResponse> {
    if !grpc::is_grpc(&posted.headers) {
        let what =
            "expected content of the type application/grpc; over HTTP the address is /v1/metrics";
        return Err(ErrorResponse::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let (message, is_packed) = grpc::parse_message(posted.body)?;
    posted.body = message;
    let encoding = posted.headers.get(grpc::ENCODING).map(|value| value.to_str().unwrap_or("?"));
    posted.content_encoding = match (is_packed, encoding) {
        (false, _) => ContentEncoding::Identity,
        (true, Some(encoding)) => match ContentEncoding::parse(encoding)? {
            ContentEncoding::Identity => return Err(ErrorResponse::bad_request(MISSING_ENCODING)),
            packing => packing,
        },
        (true, None) => return Err(ErrorResponse::bad_request(MISSING_ENCODING)),
    };
    let taken = ingest(posted, OtlpEncoding::Protobuf).await?;
    Ok(grpc::message_response(&partial_success(&taken).0))
}

/// `ExportMetricsServiceResponse`: empty if all points were taken.
fn partial_success(taken: &OtlpSummary) -> ProtobufWriter {
    let partial = ProtobufWriter::default()
        .number(1, taken.rejected)
        .bytes(2, rejected_message(taken).as_bytes());
    ProtobufWriter::default().bytes(1, &partial.0)
}

/// The same in JSON, where whole numbers of 64 bits are texts.
fn partial_success_json(taken: &OtlpSummary) -> serde_json::Value {
    if taken.rejected == 0 {
        return json!({});
    }
    let partial = json!({ "rejectedDataPoints": taken.rejected.to_string(), "errorMessage": rejected_message(taken) });
    json!({ "partialSuccess": partial })
}

fn rejected_message(taken: &OtlpSummary) -> String {
    taken.errors.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_points_are_reported() {
        let all = OtlpSummary { points: 3, ..OtlpSummary::default() };
        assert!(partial_success(&all).0.is_empty());
        assert_eq!(partial_success_json(&all).to_string(), "{}");
        let some =
            OtlpSummary { rejected: 2, errors: vec!["a".to_owned()], ..OtlpSummary::default() };
        assert_eq!(partial_success(&some).0, b"\x0a\x05\x08\x02\x12\x01a");
        assert_eq!(
            partial_success_json(&some).to_string(),
            r#"{"partialSuccess":{"errorMessage":"a","rejectedDataPoints":"2"}}"#
        );
    }
}
