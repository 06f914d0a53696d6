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
use crate::ingest::posted::{Posted, json};
use crate::problem::Problem;

const DEBUG: HeaderName = HeaderName::from_static("x-circonus-httptrap-debug");

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
    posted.only(&[])?;
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
