//! HTTPTrap: `PUT` or `POST /module/httptrap/CHECK/SECRET`, as on Circonus brokers, and
//! `/v1/httptrap`.
//!
//! CHECK, the name or UUID of the Circonus check that sends, becomes the label `check`; the secret
//! is a token. As on a broker, values before a syntax error are stored: the response has the number
//! of stored values (`stats`) and of others (`filtered`), and the error, with status 406. Source:
//! docs.circonus.com, "HTTPTrap"; the header `X-Circonus-HTTPTrap-Debug` is returned unchanged.

use axum::response::Response;
use decode::SeriesSink;
use decode::mapper::{MapSummary, MappingDefaults, RowMapper};
use http::{HeaderName, HeaderValue, StatusCode};
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::error_response::ErrorResponse;
use crate::ingest::ingest_format::IngestFormat;
use crate::ingest::ingest_request::{IngestOutcome, IngestRequest, LABELS, json_response};
use crate::route::{ApiRoute, JSON, Parameter};

const DEBUG: HeaderName = HeaderName::from_static("x-circonus-httptrap-debug");

const PARAMETERS: &[Parameter] = &[LABELS];
const CHECK_PARAMETERS: &[Parameter] = &[
    Parameter::text("check", "name or UUID of the Circonus check"),
    Parameter::text("secret", "an API token"),
    LABELS,
];

const BODY: (&str, &str) = (JSON, "metrics in Circonus HTTPTrap JSON");
const RESPONSE: &str = "number of accepted metrics: {\"stats\": n}; stored durably";
const ANY: ApiRoute = ApiRoute::ingest(
    "/v1/httptrap",
    "Ingests HTTPTrap JSON (docs/formats/httptrap.md).",
    PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);
const ONE: ApiRoute = ApiRoute::ingest(
    "/module/httptrap/{check}/{secret}",
    "Ingests HTTPTrap JSON at the URL that Circonus clients use.",
    CHECK_PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);

/// An HTTPTrap request.
pub(crate) struct HttpTrapFormat {
    /// Labels of the URL, and the check.
    labels: Vec<(String, String)>,
    debug: Option<HeaderValue>,
}

impl IngestFormat for HttpTrapFormat {
    const NAME: &'static str = "httptrap";
    const ROUTES: &'static [ApiRoute] =
        &[ANY, ApiRoute { method: "put", ..ANY }, ONE, ApiRoute { method: "put", ..ONE }];

    type Summary = MapSummary;

    fn parse_request(request: &mut IngestRequest) -> Result<HttpTrapFormat, ErrorResponse> {
        request.reject_unknown_parameters(PARAMETERS)?;
        let mut labels = request.labels();
        let check = request.path_parameter("check");
        labels.extend(check.map(|check| ("check".to_owned(), check.to_owned())));
        Ok(HttpTrapFormat { labels, debug: request.headers.get(&DEBUG).cloned() })
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::GENERIC
    }

    fn decode(
        &self,
        body: &[u8],
        now: i64,
        sink: &mut dyn SeriesSink,
    ) -> Result<MapSummary, ErrorResponse> {
        let (labels, time) = (&self.labels[..], Some(now));
        let defaults = MappingDefaults { labels, time, ..MappingDefaults::default() };
        let mut sink = RowMapper::new(defaults, sink);
        decode::httptrap::read(body, &mut sink);
        Ok(sink.finish())
    }

    fn rejected(summary: &MapSummary) -> (u64, &[String]) {
        (summary.rejected, &summary.errors)
    }

    fn response(&self, outcome: IngestOutcome<MapSummary>) -> Response {
        let summary = outcome.summary;
        let mut answer =
            json!({ "stats": summary.samples, "filtered": summary.skipped + summary.rejected });
        if outcome.is_duplicate {
            answer["duplicate"] = true.into();
        }
        let mut status = StatusCode::OK;
        if summary.rejected > 0 {
            status = StatusCode::NOT_ACCEPTABLE;
            answer["error"] = summary.errors.join("; ").into();
        }
        let mut response = json_response(status, &answer);
        if let Some(debug) = &self.debug {
            response.headers_mut().insert(DEBUG, debug.clone());
        }
        response
    }
}
