//! `POST /api/v1/write`: Prometheus remote write, version 1 or 2 by content type.
//!
//! Errors that must not be retried are 400, even if a part was stored; those to retry are 429 or
//! 503 with `Retry-After`. Sources: <https://prometheus.io/docs/specs/prw/remote_write_spec/> and
//! `…_spec_2_0/`.

use axum::response::{IntoResponse, Response};
use decode::SeriesSink;
use decode::remote_write::{self, RemoteWriteVersion, WriteSummary};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use intake::SeriesKeyEncoding;

use crate::error_response::ErrorResponse;
use crate::ingest::decompress::{ContentEncoding, unsupported};
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest};
use crate::route::ApiRoute;

const SAMPLES: HeaderName = HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// A write request.
pub(crate) struct RemoteWriteFormat {
    version: RemoteWriteVersion,
}

impl IngestFormat for RemoteWriteFormat {
    const NAME: &'static str = "remote write";
    const ROUTES: &'static [ApiRoute] = &[ApiRoute::ingest(
        "/api/v1/write",
        "Ingests Prometheus remote write 1.0 and 2.0 (docs/formats/prometheus.md).",
        &[],
        ("application/x-protobuf", "a write request, snappy-compressed"),
    )
    .with_response(204, "", "stored durably; headers have the counts")];

    type Summary = WriteSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<RemoteWriteFormat, ErrorResponse> {
        let version = version(&request.headers)?;
        if request.content_encoding != ContentEncoding::Snappy {
            let found = request.headers.get(header::CONTENT_ENCODING);
            let found = found.and_then(|value| value.to_str().ok()).unwrap_or_default();
            return Err(unsupported(found, "snappy"));
        }
        Ok(RemoteWriteFormat { version })
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        match self.version {
            RemoteWriteVersion::V1 => SeriesKeyEncoding::new("remote write 1"),
            RemoteWriteVersion::V2 => SeriesKeyEncoding::new("remote write 2"),
        }
    }

    fn decode(
        &self,
        body: &[u8],
        _now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<WriteSummary, ErrorResponse> {
        remote_write::read_request(self.version, body, sink).map_err(|error| {
            ErrorResponse::bad_request(format!("invalid remote write request: {error}"))
        })
    }

    fn exemplars_discarded(summary: &mut WriteSummary, exemplars: u64) {
        summary.exemplars = summary.exemplars.saturating_sub(exemplars);
    }

    fn rejected(summary: &WriteSummary) -> (u64, &[String]) {
        (summary.rejected, &summary.errors)
    }

    fn response(&self, outcome: IngestOutcome<WriteSummary>) -> Response {
        let written = outcome.summary;
        if written.rejected == 0 {
            return with_counts(StatusCode::NO_CONTENT.into_response(), &written);
        }
        let what = format!(
            "{} samples of this request rejected, the others stored: {}",
            written.rejected,
            written.errors.join("; ")
        );
        with_counts(ErrorResponse::bad_request(what).into_response(), &written)
    }

    fn error_response(_format: Option<&Self>, error: ErrorResponse) -> Response {
        with_counts(error.into_response(), &WriteSummary::default())
    }
}

/// Adds the headers with the numbers of written samples.
fn with_counts(mut response: Response, summary: &WriteSummary) -> Response {
    let headers = response.headers_mut();
    headers.insert(SAMPLES, HeaderValue::from(summary.samples));
    headers.insert(HISTOGRAMS, HeaderValue::from(summary.histograms));
    headers.insert(EXEMPLARS, HeaderValue::from(summary.exemplars));
    response
}

/// Protocol version of the body. Without a content type parameter it is version 1.
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
