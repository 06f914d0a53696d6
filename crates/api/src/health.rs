//! Health check for supervisors and load balancers. It requires no token, so it reports failures
//! only: dead threads, quarantined inputs, and damage.

use http::StatusCode;
use intake::{Intake, SourceState};

use crate::context::Context;
use crate::damage_report;
use crate::error_response::ErrorResponse;
use crate::route::ApiRoute;
use crate::routing;

const KIND: &str = "text/plain";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/health", "Health: whether accepted data becomes durable.", &[], || {
        routing::get(health)
    })
    .with_scope(None)
    .with_response(
        200,
        KIND,
        "healthy, or degraded (journal damage, quarantined inputs, unless acknowledged); 503 with \
         the reason if unhealthy, or without space for new data",
    ),
    ApiRoute::get("/-/healthy", "Prometheus API: health.", &[], || routing::get(liveness))
        .with_scope(None)
        .with_response(200, KIND, "healthy; a restart frees no disk space, so that is no failure"),
    ApiRoute::get("/-/ready", "Prometheus API: readiness.", &[], || routing::get(health))
        .with_scope(None)
        .with_response(200, KIND, "ready; 503 with the reason without space for new data"),
];

/// Result of the check.
#[derive(Clone, Debug)]
pub(crate) struct HealthReport {
    outcome: Result<String, String>,
    /// Why new data finds no space.
    space_problem: Option<String>,
}

async fn health(context: Context) -> Result<String, ErrorResponse> {
    let report = report(&context).await;
    let full = |reason: String| {
        // Only a limit can be raised, which the reason names.
        let raise = if reason.contains("limit") { ", or raise the limit" } else { "" };
        format!("cannot store new data: {reason}; free space{raise}")
    };
    let outcome = match (report.outcome, report.space_problem) {
        (Ok(_), Some(reason)) => Err(full(reason)),
        (outcome, _) => outcome,
    };
    outcome.map_err(unavailable)
}

async fn liveness(context: Context) -> Result<String, ErrorResponse> {
    report(&context).await.outcome.map_err(unavailable)
}

fn unavailable(reason: String) -> ErrorResponse {
    ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, reason)
}

async fn report(context: &Context) -> HealthReport {
    let intake = context.intake.clone();
    let check = move || HealthReport {
        outcome: check_health(&intake),
        space_problem: intake.space_problem(),
    };
    let found = context.queries.health.get(check).await;
    found.unwrap_or_else(|error| HealthReport { outcome: Err(error), space_problem: None })
}

/// The report: a summary line, and a line for each damaged location, each quarantined input, and
/// for absent sources. These do not make the check fail: a restart would not remove them.
fn check_health(intake: &Intake) -> Result<String, String> {
    let stat = intake.write_target().journal().stat().map_err(|error| error.to_string())?;
    if stat.is_failed {
        let what = "cannot write to the journal; see /v1/status and restart topdeck";
        return Err(what.to_owned());
    }
    let supervisor = intake.supervisor();
    let failures = supervisor.failures();
    if !failures.is_empty() {
        return Err(format!("{}; see threads in /v1/status", failures.join("; ")));
    }
    let mut message = damage_report::health_message(supervisor);
    // Not by name: the check requires no token.
    let absent = intake.sources().iter().filter(|of| of.state == SourceState::Absent).count();
    if absent > 0 {
        let are = if absent == 1 { "source is" } else { "sources are" };
        message += &format!("{absent} {are} absent; see sources in /v1/status\n");
    }
    Ok(message)
}
