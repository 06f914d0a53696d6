//! OTLP metrics over HTTP (`POST /v1/metrics`, protocol buffers and JSON) and over gRPC.
//!
//! Points that cannot be taken are told as a partial success; a request that is none is refused. Where there is no room
//! now, the answer asks to try again (429 with `Retry-After`, RESOURCE_EXHAUSTED with `RetryInfo`).
//! Source: <https://opentelemetry.io/docs/specs/otlp/>.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use collect::otlp::{self, Taken};
use http::{HeaderValue, StatusCode, header};
use intake::Way;
use serde_json::json;

use crate::context::Context;
use crate::grpc;
use crate::ingest::posted::{Posted, json};
use crate::ingest::unpack::Packing;
use crate::openapi::Route;
use crate::problem::Problem;
use crate::proto::{self, Message};

const SERVICE: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

const UNSAID: &str = "the message is packed, and no grpc-encoding says how";

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
}

const KINDS: &str = "application/x-protobuf, application/json";

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/v1/metrics",
    "Takes OpenTelemetry metrics (docs/formats/otlp.md).",
    &[],
    (KINDS, "an ExportMetricsServiceRequest"),
)
.answers(200, KINDS, "an ExportMetricsServiceResponse, with what was not taken")];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/v1/metrics", post(over_http)).route(SERVICE, post(over_grpc))
}

async fn take(posted: Posted, encoding: Encoding) -> Result<Taken, Problem> {
    let taken = posted.take("otlp", Way::Otlp, move |_, body, now, rows| {
        let taken = match encoding {
            Encoding::Protobuf => otlp::read_protobuf(body, now, rows),
            Encoding::Json => otlp::read_json(body, now, rows),
        };
        taken.map_err(|trouble| Problem::bad(format!("this is no request of OTLP: {trouble}")))
    });
    Ok(taken.await?.found)
}

async fn over_http(posted: Posted) -> Result<Response, Problem> {
    let encoding = match posted.content_type() {
        "application/x-protobuf" => Encoding::Protobuf,
        "application/json" => Encoding::Json,
        other => {
            let what = format!(
                "expected content of the type application/x-protobuf or application/json, found {other:?}"
            );
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
        }
    };
    Ok(match take(posted, encoding).await {
        Ok(taken) if encoding == Encoding::Json => json(StatusCode::OK, &partial_json(&taken)),
        Ok(taken) => protobuf(StatusCode::OK.into_response(), &partial(&taken)),
        Err(problem) => refusal(problem, encoding),
    })
}

/// A refusal is a `google.rpc.Status`, written as the request was.
fn refusal(problem: Problem, encoding: Encoding) -> Response {
    let (code, what, after) = (grpc::code(problem.status), problem.what.clone(), problem.after);
    let response = problem.into_response();
    let (parts, _) = response.into_parts();
    match encoding {
        Encoding::Protobuf => {
            let response = Response::from_parts(parts, axum::body::Body::empty());
            protobuf(response, &proto::status(code, &what, after))
        }
        Encoding::Json => {
            let body = json!({ "code": code, "message": what }).to_string() + "\n";
            Response::from_parts(parts, body.into())
        }
    }
}

fn protobuf(mut response: Response, message: &Message) -> Response {
    *response.body_mut() = message.0.clone().into();
    let kind = HeaderValue::from_static("application/x-protobuf");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

async fn over_grpc(mut posted: Posted) -> Result<Response, Problem> {
    if !grpc::is_grpc(&posted.headers) {
        let what =
            "expected content of the type application/grpc; over HTTP the address is /v1/metrics";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let (message, is_packed) = grpc::message(posted.body)?;
    posted.body = message;
    let encoding = posted.headers.get(grpc::ENCODING).map(|value| value.to_str().unwrap_or("?"));
    posted.packing = match (is_packed, encoding) {
        (false, _) => Packing::None,
        (true, Some(encoding)) => match Packing::parse(encoding)? {
            Packing::None => return Err(Problem::bad(UNSAID)),
            packing => packing,
        },
        (true, None) => return Err(Problem::bad(UNSAID)),
    };
    let taken = take(posted, Encoding::Protobuf).await?;
    Ok(grpc::answer(&partial(&taken).0))
}

/// `ExportMetricsServiceResponse`: empty if all points were taken.
fn partial(taken: &Taken) -> Message {
    let partial = Message::default().number(1, taken.refused).bytes(2, told(taken).as_bytes());
    Message::default().bytes(1, &partial.0)
}

/// The same in JSON, where whole numbers of 64 bits are texts.
fn partial_json(taken: &Taken) -> serde_json::Value {
    if taken.refused == 0 {
        return json!({});
    }
    let partial =
        json!({ "rejectedDataPoints": taken.refused.to_string(), "errorMessage": told(taken) });
    json!({ "partialSuccess": partial })
}

fn told(taken: &Taken) -> String {
    taken.troubles.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_points_are_told() {
        let all = Taken { points: 3, ..Taken::default() };
        assert!(partial(&all).0.is_empty());
        assert_eq!(partial_json(&all).to_string(), "{}");
        let some = Taken { refused: 2, troubles: vec!["a".to_owned()], ..Taken::default() };
        assert_eq!(partial(&some).0, b"\x0a\x05\x08\x02\x12\x01a");
        assert_eq!(
            partial_json(&some).to_string(),
            r#"{"partialSuccess":{"errorMessage":"a","rejectedDataPoints":"2"}}"#
        );
    }
}
