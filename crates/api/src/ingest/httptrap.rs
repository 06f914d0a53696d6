//! HTTPTrap: `PUT` or `POST /module/httptrap/CHECK/SECRET`, as Circonus brokers take it, and `/v1/httptrap`.
//!
//! The check's id becomes the label `check`; the secret is a token. As at a broker, what stands before a syntax error is
//! taken: the answer says how many values were (`stats`), how many were not (`filtered`), and why, with status 406.
//! Source: docs.circonus.com, "HTTPTrap"; the header `X-Circonus-HTTPTrap-Debug` comes back as it was sent.

use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::put;
use collect::place::{Placing, Rules};
use http::{HeaderName, StatusCode};
use intake::Way;
use serde_json::json;

use crate::context::Context;
use crate::ingest::LABELS;
use crate::ingest::posted::{Posted, json};
use crate::openapi::{JSON, Parameter, Route};
use crate::problem::Problem;

const DEBUG: HeaderName = HeaderName::from_static("x-circonus-httptrap-debug");

const PARAMETERS: &[Parameter] = &[LABELS];
const OF_CHECK: &[Parameter] =
    &[Parameter::text("check", "which check"), Parameter::text("secret", "a token"), LABELS];

const BODY: (&str, &str) = (JSON, "metrics as Circonus' HTTPTrap takes them");
const TAKEN: &str = "how many were taken: {\"stats\": n}; they are durable";
const ANY: Route = Route::ingest(
    "/v1/httptrap",
    "Takes an HTTPTrap body (docs/formats/httptrap.md).",
    PARAMETERS,
    BODY,
)
.answers(200, JSON, TAKEN);
const ONE: Route = Route::ingest(
    "/module/httptrap/{check}/{secret}",
    "Takes an HTTPTrap body at the address that Circonus' clients know.",
    OF_CHECK,
    BODY,
)
.answers(200, JSON, TAKEN);

pub(crate) const ROUTES: &[Route] =
    &[ANY, Route { method: "put", ..ANY }, ONE, Route { method: "put", ..ONE }];

pub(crate) fn routes() -> Router<Context> {
    Router::new()
        .route("/module/httptrap/{check}/{secret}", put(of_check).post(of_check))
        .route("/v1/httptrap", put(of_any).post(of_any))
}

async fn of_check(
    Path((check, _)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Problem> {
    trap(posted, Some(check)).await
}

async fn of_any(posted: Posted) -> Result<Response, Problem> {
    trap(posted, None).await
}

async fn trap(posted: Posted, check: Option<String>) -> Result<Response, Problem> {
    posted.only(PARAMETERS)?;
    let debug = posted.headers.get(&DEBUG).cloned();
    let taken = posted.take("httptrap", Way::Placed, move |posted, body, now, rows| {
        let mut labels = posted.labels();
        labels.extend(check.map(|check| ("check".to_owned(), check)));
        let rules = Rules { labels: &labels, time: Some(now), ..Rules::default() };
        let mut sink = Placing::new(rules, rows);
        collect::httptrap::read(body, &mut sink);
        Ok(sink.finish())
    });
    let taken = taken.await?;
    let placed = taken.found;
    let mut answer =
        json!({ "stats": placed.readings, "filtered": placed.skipped + placed.refused });
    if taken.is_repeated {
        answer["repeated"] = true.into();
    }
    let mut status = StatusCode::OK;
    if placed.refused > 0 {
        status = StatusCode::NOT_ACCEPTABLE;
        answer["error"] = placed.troubles.join("; ").into();
    }
    let mut response = json(status, &answer);
    if let Some(debug) = debug {
        response.headers_mut().insert(DEBUG, debug);
    }
    Ok(response)
}
