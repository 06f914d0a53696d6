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
use crate::route::{ApiRoute, JSON, Parameter};

const DEBUG: HeaderName = HeaderName::from_static("x-circonus-httptrap-debug");

const PARAMETERS: &[Parameter] = &[LABELS];
const CHECK_PARAMETERS: &[Parameter] =
    &[Parameter::text("check", "which check"), Parameter::text("secret", "a token"), LABELS];

const BODY: (&str, &str) = (JSON, "metrics as Circonus' HTTPTrap takes them");
const RESPONSE: &str = "how many were taken: {\"stats\": n}; they are durable";
const ANY: ApiRoute = ApiRoute::ingest(
    "/v1/httptrap",
    "Takes an HTTPTrap body (docs/formats/httptrap.md).",
    PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);
const ONE: ApiRoute = ApiRoute::ingest(
    "/module/httptrap/{check}/{secret}",
    "Takes an HTTPTrap body at the address that Circonus' clients know.",
    CHECK_PARAMETERS,
    BODY,
)
.with_response(200, JSON, RESPONSE);

pub(crate) const ROUTES: &[ApiRoute] =
    &[ANY, ApiRoute { method: "put", ..ANY }, ONE, ApiRoute { method: "put", ..ONE }];

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
        posted.ingest("httptrap", SeriesKeyEncoding::GENERIC, move |posted, body, now, rows| {
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
        answer["repeated"] = true.into();
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
