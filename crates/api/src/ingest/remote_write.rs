//! `POST /api/v1/write`: Prometheus' remote write, version 1 and 2 by the type of the content.
//!
//! What must not be sent again is answered with 400, whatever of it was taken; what has to be sent again with 429 or 503
//! and `Retry-After`. Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and `…_spec_2_0/`.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use collect::remote_write::{self, RemoteWriteVersion, WriteSummary};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use intake::SeriesKeyEncoding;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::decompress::{ContentEncoding, unsupported};
use crate::ingest::ingest_request::IngestRequest;
use crate::openapi::Route;

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

pub(crate) const ROUTES: &[Route] = &[Route::ingest(
    "/api/v1/write",
    "Ingests Prometheus remote write 1.0 and 2.0 (docs/formats/prometheus.md).",
    &[],
    ("application/x-protobuf", "a write request, snappy-compressed"),
)
.with_response(204, "", "stored durably; headers have the counts")];

pub(crate) fn routes() -> Router<Context> {
    Router::new().route("/api/v1/write", post(write))
}

async fn write(posted: IngestRequest) -> Response {
    let (written, answer) = match ingest(posted).await {
        Ok(written) if written.rejected == 0 => (written, StatusCode::NO_CONTENT.into_response()),
        Ok(written) => {
            let what = format!(
                "{} of this request could not be taken, and the rest was: {}",
                written.rejected,
                written.errors.join("; ")
            );
            (written, ErrorResponse::bad_request(what).into_response())
        }
        Err(problem) => (WriteSummary::default(), problem.into_response()),
    };
    let mut answer = answer;
    let headers = answer.headers_mut();
    headers.insert(SAMPLES, HeaderValue::from(written.samples));
    headers.insert(HISTOGRAMS, HeaderValue::from(written.histograms));
    headers.insert(EXEMPLARS, HeaderValue::from(written.exemplars));
    answer
}

async fn ingest(posted: IngestRequest) -> Result<WriteSummary, ErrorResponse> {
    let version = version(&posted.headers)?;
    if posted.content_encoding != ContentEncoding::Snappy {
        let found = posted.headers.get(header::CONTENT_ENCODING);
        let found = found.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        return Err(unsupported(&found, "snappy"));
    }
    let way = match version {
        RemoteWriteVersion::V1 => SeriesKeyEncoding::RemoteWrite1,
        RemoteWriteVersion::V2 => SeriesKeyEncoding::RemoteWrite2,
    };
    let taken = posted.ingest("remote write", way, move |_, body, _, rows| {
        remote_write::read_request(version, body, rows).map_err(|trouble| {
            ErrorResponse::bad_request(format!("this is no request of remote write: {trouble}"))
        })
    });
    Ok(taken.await?.result)
}

/// Which message the body is. Senders that do not say send version 1, which is older than the question.
fn version(headers: &HeaderMap) -> Result<RemoteWriteVersion, ErrorResponse> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(RemoteWriteVersion::V1) };
    let text = value.to_str().unwrap_or("?");
    let mut parts = text.split(';').map(str::trim);
    let is_protobuf = parts.next().is_some_and(|kind| kind == "application/x-protobuf");
    match parts.find_map(|part| part.strip_prefix("proto=")) {
        None | Some("prometheus.WriteRequest") if is_protobuf => Ok(RemoteWriteVersion::V1),
        Some("io.prometheus.write.v2.Request") if is_protobuf => Ok(RemoteWriteVersion::V2),
        _ => Err(ErrorResponse::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!(
                "expected application/x-protobuf with proto=prometheus.WriteRequest or \
                 proto=io.prometheus.write.v2.Request, found {text:?}"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Option<&str>, expected: Option<RemoteWriteVersion>) {
        let mut headers = HeaderMap::new();
        if let Some(kind) = kind {
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        }
        let found = version(&headers);
        assert_eq!(found.as_ref().ok(), expected.as_ref());
        if let Err(problem) = found {
            assert_eq!(problem.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
    }

    #[test]
    fn content_type_selects_the_version() {
        check(None, Some(RemoteWriteVersion::V1));
        check(Some("application/x-protobuf"), Some(RemoteWriteVersion::V1));
        check(
            Some("application/x-protobuf;proto=prometheus.WriteRequest"),
            Some(RemoteWriteVersion::V1),
        );
        let v2 = "application/x-protobuf; proto=io.prometheus.write.v2.Request";
        check(Some(v2), Some(RemoteWriteVersion::V2));
        check(Some("application/x-protobuf;proto=io.prometheus.write.v3.Request"), None);
        check(Some("application/json"), None);
        check(Some("text/plain;proto=prometheus.WriteRequest"), None);
    }
}
