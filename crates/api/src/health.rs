//! Whether topdeck is well, for those who start and watch it; no token is asked for, and nothing is told.

use axum::extract::State;
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

async fn health(State(context): State<Context>) -> Result<&'static str, Problem> {
    let intake = context.intake.clone();
    let stat = tokio::task::spawn_blocking(move || intake.home().journal().stat());
    let unwell = |what: String| Problem::new(StatusCode::SERVICE_UNAVAILABLE, what);
    match stat.await {
        Ok(Ok(stat)) if stat.poisoned => Err(unwell(
            "writing to the journal failed; see /v1/status and start topdeck anew".to_owned(),
        )),
        Ok(Ok(_)) => Ok("topdeck is well\n"),
        Ok(Err(error)) => Err(unwell(error.to_string())),
        Err(error) => Err(unwell(format!("BUG: {error}"))),
    }
}
