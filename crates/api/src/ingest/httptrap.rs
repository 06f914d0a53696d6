//! HTTPTrap: `PUT` or `POST /module/httptrap/CHECK/SECRET`, as Circonus brokers take it, and `/v1/httptrap`.
//!
//! The check's id becomes the label `check`; the secret is a token. As at a broker, what stands before a syntax error is
//! taken: the answer says how many values were (`stats`), how many were not (`filtered`), and why, with status 406.
//! Source: docs.circonus.com, "HTTPTrap"; the header `X-Circonus-HTTPTrap-Debug` comes back as it was sent.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::put;
use collect::mapper::{MappingDefaults, RowMapper};
use http::{HeaderName, StatusCode};
use intake::SeriesKeyEncoding;
use serde_json::json;

use crate::context::Context;
use crate::error_response::ErrorResponse;
use crate::ingest::LABELS;
use crate::ingest::ingest_request::{IngestRequest, json_response};
use crate::openapi::{JSON, Parameter, Route};

const DEBUG: HeaderName = HeaderName::from_static("x-circonus-httptrap-debug");

const PARAMETERS: &[Parameter] = &[LABELS];
const CHECK_PARAMETERS: &[Parameter] = &[
    Parameter::text("check", "name of the check"),
    Parameter::text("secret", "an API token"),
    LABELS,
];

const BODY: (&str, &str) = (JSON, "metrics in Circonus HTTPTrap JSON");
const RESPONSE: &str = "number of accepted metrics: {\"stats\": n}; stored durably";
const ANY: Route = Route::ingest(
    "/v1/httptrap",
    "Ingests HTTPTrap JSON (docs/formats/httptrap.md).",
    PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);
const ONE: Route = Route::ingest(
    "/module/httptrap/{check}/{secret}",
    "Ingests HTTPTrap JSON at the URL that Circonus clients use.",
    CHECK_PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);

pub(crate) const ROUTES: &[Route] =
    &[ANY, Route { method: "put", ..ANY }, ONE, Route { method: "put", ..ONE }];

pub(crate) fn routes() -> Router<Context> {
    Router::new()
        .route("/module/httptrap/{check}/{secret}", put(handle_check).post(handle_check))
        .route("/v1/httptrap", put(handle_any).post(handle_any))
}

async fn handle_check(
    Path((check, _)): Path<(String, String)>,
    posted: IngestRequest,
) -> Result<Response, ErrorResponse> {
    ingest_trap(posted, Some(check)).await
}

async fn handle_any(posted: IngestRequest) -> Result<Response, ErrorResponse> {
    ingest_trap(posted, None).await
}

async fn ingest_trap(
    posted: IngestRequest,
    check: Option<String>,
) -> Result<Response, ErrorResponse> {
    posted.reject_unknown_parameters(PARAMETERS)?;
    let debug = posted.headers.get(&DEBUG).cloned();
    let taken =
        posted.ingest("httptrap", SeriesKeyEncoding::Generic, move |posted, body, now, rows| {
            let mut labels = posted.labels();
            labels.extend(check.map(|check| ("check".to_owned(), check)));
            let rules =
                MappingDefaults { labels: &labels, time: Some(now), ..MappingDefaults::default() };
            let mut sink = RowMapper::new(rules, rows);
            collect::httptrap::read(body, &mut sink);
            Ok(sink.finish())
        });
    let taken = taken.await?;
    let placed = taken.result;
    let mut answer =
        json!({ "stats": placed.samples, "filtered": placed.skipped + placed.rejected });
    if taken.is_duplicate {
        answer["duplicate"] = true.into();
    }
    let mut status = StatusCode::OK;
    if placed.rejected > 0 {
        status = StatusCode::NOT_ACCEPTABLE;
        answer["error"] = placed.errors.join("; ").into();
    }
    let mut response = json_response(status, &answer);
    if let Some(debug) = debug {
        response.headers_mut().insert(DEBUG, debug);
    }
    Ok(response)
}
