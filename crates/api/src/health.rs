//! Whether topdeck is well, for those who start and watch it; no token is asked for, and nothing is told.

use std::time::Duration;

use axum::routing;
use http::StatusCode;

use crate::context::Context;
use crate::openapi::Route;
use crate::problem::Problem;

const KIND: &str = "text/plain";

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/health", "Whether topdeck is well: what is sent becomes durable.", &[], || {
        routing::get(health)
    })
    .with_scope(None)
    .answers(200, KIND, "it is"),
    Route::get("/-/healthy", "As Prometheus: whether it is well.", &[], || routing::get(health))
        .with_scope(None)
        .answers(200, KIND, "it is"),
    Route::get("/-/ready", "As Prometheus: whether it may be asked.", &[], || routing::get(health))
        .with_scope(None)
        .answers(200, KIND, "it may"),
];

/// So long the same is told: whoever asks needs no token, and may ask as often as they like.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(1);

async fn health(context: Context) -> Result<&'static str, Problem> {
    let intake = context.intake.clone();
    let found = context.desk.health.get(move || match intake.home().journal().stat() {
        Ok(stat) if stat.poisoned => {
            Err("writing to the journal failed; see /v1/status and start topdeck anew".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    let outcome = found.await.unwrap_or_else(|error| Err(format!("BUG: {error}")));
    let unwell = |what: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, what);
    outcome.map(|()| "topdeck is well\n").map_err(unwell)
}
