//! `/v1/status`.

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::damage_report;
use crate::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use crate::json::integer;
use crate::route::ApiRoute;
use crate::routing;
use report::document;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/status",
    "Status: store, journal, subscribers and their lag, remotes, damage.",
    &[],
    || routing::get(status),
)];

async fn status(context: Context) -> Result<JsonBody, ApiError> {
    let shared = context.clone();
    let work = move |_: &_| {
        let now = shared.intake.now();
        let failed = |error: journal::Error| ApiError::Internal(error.to_string());
        let (store, journal) = match shared.intake.write_target().store() {
            Some(store) => {
                let stat = store.stat()?;
                let traces = traces_json(&store.trace_stat());
                (self::store_json(&stat, traces), self::journal_json(&stat.journal))
            }
            None => {
                let stat = shared.intake.write_target().journal().stat().map_err(failed)?;
                (Null, self::journal_json(&stat))
            }
        };
        let mut fields = vec![
            ("schema", integer(2)),
            ("version", Text(env!("CARGO_PKG_VERSION").to_owned())),
            ("now_ns", Integer(now.into())),
            ("start_time_ns", Integer(shared.queries.started_at.into())),
            ("store", store),
            ("journal", journal),
            ("data", data_json(shared.intake.write_target().journal().dir())),
            ("config", shared.queries.config_reload.json()),
            ("trace_url", shared.queries.settings.trace_url.clone().map_or(Null, Text)),
        ];
        let supervisor = shared.intake.supervisor();
        fields.push(("threads", threads_json(supervisor)));
        fields.push(("quarantined", damage_report::quarantined_json(supervisor)));
        fields.push(("damage", damage_report::damage_json(supervisor)));
        fields.push(("acknowledged_damage", damage_report::acknowledged_json(supervisor)));
        fields.push(("sources", sources_json(&shared.intake.sources())));
        fields.extend(shared.queries.status_sections());
        shared.queries.json_response(&Object(fields))
    };
    context.run_light("status", None, work).await
}

/// Directory of the data, and the space of its file system; null if that cannot be read.
fn data_json(journal: &Path) -> Json {
    let dir = journal.parent().unwrap_or(journal);
    let space = rustix::fs::statvfs(dir).ok();
    let bytes = |blocks: u64, size: u64| integer(blocks.saturating_mul(size));
    Object(vec![
        ("dir", Text(dir.display().to_string())),
        ("free_bytes", space.as_ref().map_or(Null, |of| bytes(of.f_bavail, of.f_frsize))),
        ("total_bytes", space.as_ref().map_or(Null, |of| bytes(of.f_blocks, of.f_frsize))),
    ])
}

/// Threads, their panics and restarts.
fn threads_json(supervisor: &intake::Supervisor) -> Json {
    let thread = |thread: intake::ThreadStatus| {
        let (panic, time) = match thread.last_panic {
            Some(last) => (Text(last.message), Integer(last.time.into())),
            None => (Null, Null),
        };
        Object(vec![
            ("name", Text(thread.name)),
            ("count", integer(thread.count as u64)),
            ("down", integer(thread.waiting as u64)),
            ("restarts", integer(thread.restarts)),
            ("panics", integer(thread.panics)),
            ("last_panic", panic),
            ("last_panic_ns", time),
        ])
    };
    List(supervisor.threads().into_iter().map(thread).collect())
}

/// Sources of batches, and whether they still send.
fn sources_json(sources: &[intake::SourceActivity]) -> Json {
    let source = |source: &intake::SourceActivity| {
        let time = |time: Option<i64>| time.map_or(Null, |ns| Integer(ns.into()));
        Object(vec![
            ("id", Text(format!("{:016x}", source.id))),
            ("name", Text(source.name.clone())),
            ("state", Text(source.state.name().to_owned())),
            ("last_ns", Integer(source.last.into())),
            ("interval_ns", time(source.interval.map(|(interval, _)| interval))),
            ("absent_after_ns", time(source.interval.map(|(_, limit)| limit))),
        ])
    };
    List(sources.iter().map(source).collect())
}

fn traces_json(stat: &store::TraceStat) -> Json {
    Object(vec![
        ("parts", integer(stat.parts)),
        ("part_bytes", integer(stat.bytes)),
        ("head_bytes", integer(stat.head_bytes)),
        ("oldest_ns", stat.oldest.map_or(Null, |ns| Integer(ns.into()))),
        ("expired_parts", integer(stat.expired_parts)),
        ("evicted_parts", integer(stat.evicted_parts)),
        ("dropped_traces", integer(stat.dropped_traces)),
    ])
}

fn store_json(stat: &store::StoreStat, traces: Json) -> Json {
    let bytes: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    let rows: u64 = stat.parts.iter().map(|part| part.rows).sum();
    Object(vec![
        ("series", integer(stat.series)),
        ("index_bytes", integer(stat.index_bytes)),
        ("head_rows", integer(stat.head_rows)),
        ("head_bytes", integer(stat.head_bytes)),
        ("parts", integer(stat.parts.len() as u64)),
        ("part_rows", integer(rows)),
        ("part_bytes", integer(bytes)),
        ("traces", traces),
        ("retention", report::retention_json(&stat.retention)),
        ("gaps", List(stat.gaps.iter().map(document::gap).collect())),
        ("warnings", List(stat.warnings.iter().cloned().map(Text).collect())),
    ])
}

fn journal_json(stat: &journal::JournalStat) -> Json {
    let subscriber = |point: &journal::Checkpoint| {
        Object(vec![
            ("name", Text(point.name.clone())),
            ("position", integer(point.position)),
            ("lag", integer(stat.watermarks.end.saturating_sub(point.position))),
            ("committed_ns", Integer(point.committed_at.into())),
            ("pins_records", Bool(point.pins_records)),
            ("damaged", Bool(point.is_degraded)),
        ])
    };
    let readers =
        stat.checkpoints.iter().filter(|point| point.kind == journal::CheckpointKind::Subscriber);
    let gap = |gap: &journal::RecordGap| {
        Object(vec![
            ("first", integer(gap.positions.start)),
            ("batches", integer(gap.records())),
            ("reason", Text(gap.reason.to_string())),
        ])
    };
    Object(vec![
        ("id", Text(format!("{:032x}", stat.id))),
        ("created_ns", if stat.created == 0 { Null } else { Integer(stat.created.into()) }),
        ("first", integer(stat.watermarks.first)),
        ("durable", integer(stat.watermarks.durable)),
        ("flushed", integer(stat.watermarks.flushed)),
        ("end", integer(stat.watermarks.end)),
        ("segments", integer(stat.segments as u64)),
        ("segment_bytes", integer(stat.segment_bytes)),
        ("next_segment_bytes", integer(stat.settings.segment_bytes)),
        ("buffered_bytes", integer(stat.buffered_bytes)),
        ("full_reason", stat.full_reason.as_ref().map_or(Null, |reason| Text(reason.to_string()))),
        ("failed", Bool(stat.is_failed)),
        ("subscribers", List(readers.map(subscriber).collect())),
        ("damaged_checkpoints", List(stat.damaged_checkpoints.iter().cloned().map(Text).collect())),
        ("gaps", List(stat.gaps.iter().map(gap).collect())),
    ])
}
