//! The audit: for each producer, what every hop on its way has, and why not the rest.

use axum::routing;
use intake::{Account, Audit, Counts, Line, Loss, Source};

use crate::context::Context;
use crate::desk::Written;
use crate::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use crate::json::integer;
use crate::openapi::Route;
use crate::refusal::Refusal;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/audit",
    "For each producer and hop what was received, acknowledged, stored and lost; a difference is none or explained.",
    &[],
    || routing::get(audit),
)];

async fn audit(context: Context) -> Result<Written, Refusal> {
    let shared = context.clone();
    let work = move |_: &_| {
        let audit = shared.intake.audit();
        let audit = audit.map_err(|error| Refusal::Internal(error.to_string()))?;
        shared.desk.answer(&document(&audit))
    };
    context.light("audit", None, work).await
}

/// An audit as JSON.
fn document(audit: &Audit) -> Json {
    let lines = || audit.producers.iter().flat_map(|account| &account.lines);
    Object(vec![
        ("schema", integer(1)),
        ("since_ns", Integer(audit.since.into())),
        ("booted_ns", Integer(audit.booted.into())),
        ("position", integer(audit.position)),
        ("explained", Bool(lines().all(|line| line.is_explained))),
        ("producers", List(audit.producers.iter().map(account).collect())),
        ("notes", List(audit.notes.iter().cloned().map(Text).collect())),
    ])
}

fn account(account: &Account) -> Json {
    Object(vec![
        ("id", account.id.map_or(Null, |id| Text(format!("{id:016x}")))),
        ("name", Text(account.name.clone())),
        ("source", account.source.as_ref().map_or(Null, source)),
        ("losses", List(account.losses.iter().map(loss).collect())),
        ("hops", List(account.lines.iter().map(line).collect())),
    ])
}

fn source(source: &Source) -> Json {
    let dropped = source
        .dropped
        .iter()
        .map(|(reason, n)| Object(vec![("reason", Text(reason.clone())), ("values", integer(*n))]));
    Object(vec![
        ("received", integer(source.received)),
        ("taken", integer(source.taken)),
        ("waiting", integer(source.waiting())),
        ("dropped", List(dropped.collect())),
    ])
}

fn loss(loss: &Loss) -> Json {
    Object(vec![
        ("reason", Text(loss.reason.clone())),
        ("gaps", integer(loss.gaps)),
        ("lost", integer(loss.lost)),
        ("unknown", integer(loss.unknown)),
    ])
}

fn line(line: &Line) -> Json {
    Object(vec![
        ("hop", Text(line.hop.clone())),
        ("received", counts(&line.received)),
        ("acknowledged", counts(&line.acknowledged)),
        ("stored", counts(&line.stored)),
        ("lost", List(line.lost.iter().map(loss).collect())),
        ("difference", Integer(line.difference)),
        ("unknown_batches", integer(line.unknown_batches)),
        ("explained", Bool(line.is_explained)),
        ("why", Text(line.why.clone())),
    ])
}

fn counts(counts: &Counts) -> Json {
    Object(vec![
        ("batches", integer(counts.batches)),
        ("samples", integer(counts.samples)),
        ("values", integer(counts.values)),
        ("repeated", integer(counts.repeated)),
        ("unreadable", integer(counts.unreadable)),
        ("missing", integer(counts.missing)),
    ])
}
