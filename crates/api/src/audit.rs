//! `/v1/audit`: reconciliation per producer and stage.

use intake::{Audit, Loss, ProducerAudit, ProducerCounts, SourceCounts, SourceProblem, StageAudit};

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use crate::json::integer;
use crate::route::ApiRoute;
use crate::routing;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/audit",
    "Reconciliation per producer and stage: counts received, acknowledged, stored and lost.",
    &[],
    || routing::get(audit),
)];

async fn audit(context: Context) -> Result<JsonBody, ApiError> {
    let shared = context.clone();
    let work = move |_: &_| {
        let audit = shared.intake.audit();
        let audit = audit.map_err(|error| ApiError::Internal(error.to_string()))?;
        shared.queries.json_response(&audit_json(&audit))
    };
    context.run_light("audit", None, work).await
}

/// An audit as JSON.
fn audit_json(audit: &Audit) -> Json {
    let lines = || audit.producers.iter().flat_map(|account| &account.stages);
    Object(vec![
        ("schema", integer(2)),
        ("start_time_ns", Integer(audit.started_at.into())),
        ("process_start_time_ns", Integer(audit.process_started_at.into())),
        ("position", integer(audit.position)),
        ("reconciled", Bool(lines().all(|line| line.is_reconciled))),
        ("producers", List(audit.producers.iter().map(producer_json).collect())),
        ("warnings", List(audit.warnings.iter().cloned().map(Text).collect())),
    ])
}

fn producer_json(account: &ProducerAudit) -> Json {
    Object(vec![
        ("id", account.id.map_or(Null, |id| Text(format!("{id:016x}")))),
        ("name", Text(account.name.clone())),
        ("source", account.source.as_ref().map_or(Null, source_json)),
        ("losses", List(account.losses.iter().map(loss_json).collect())),
        ("stages", List(account.stages.iter().map(stage_json).collect())),
    ])
}

fn source_json(source: &SourceCounts) -> Json {
    let dropped = source
        .dropped
        .iter()
        .map(|(reason, n)| Object(vec![("reason", Text(reason.clone())), ("values", integer(*n))]));
    Object(vec![
        ("received", integer(source.received)),
        ("accepted", integer(source.accepted)),
        ("buffered", integer(source.buffered())),
        ("dropped", List(dropped.collect())),
        ("last_problem", source.last_problem.as_ref().map_or(Null, problem_json)),
    ])
}

fn problem_json(problem: &SourceProblem) -> Json {
    Object(vec![("time_ns", Integer(problem.time.into())), ("text", Text(problem.text.clone()))])
}

fn loss_json(loss: &Loss) -> Json {
    Object(vec![
        ("reason", Text(loss.reason.clone())),
        ("gaps", integer(loss.gaps)),
        ("samples_lost", integer(loss.samples_lost)),
        ("gaps_of_unknown_size", integer(loss.gaps_of_unknown_size)),
    ])
}

fn stage_json(line: &StageAudit) -> Json {
    Object(vec![
        ("stage", Text(line.stage.clone())),
        ("received", counts_json(&line.received)),
        ("acknowledged", counts_json(&line.acknowledged)),
        ("stored", counts_json(&line.stored)),
        ("losses", List(line.losses.iter().map(loss_json).collect())),
        ("discrepancy", Integer(line.discrepancy)),
        ("unknown_batches", integer(line.unknown_batches)),
        ("reconciled", Bool(line.is_reconciled)),
        ("reason", Text(line.reason.clone())),
    ])
}

fn counts_json(counts: &ProducerCounts) -> Json {
    Object(vec![
        ("batches", integer(counts.batches)),
        ("samples", integer(counts.samples)),
        ("values", integer(counts.values)),
        ("duplicates", integer(counts.duplicates)),
        ("undecodable", integer(counts.undecodable)),
        ("missing", integer(counts.missing)),
    ])
}
