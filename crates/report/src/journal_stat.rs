//! State of a journal as text and JSON.

use std::path::Path;

use journal::{Checkpoint, CheckpointKind, JournalStat, LimitPolicy, Limits, RecordGap};
use render::bytes::format_bytes;
use render::json::Json::{self, Bool, List, Null, Object, Text};
use render::json::integer;
use render::table::format_table;
use render::text::{escape_control, shell_quote};
use render::time::format_time;
use render::value_formatter;

use crate::journal_format;

const SCHEMA: u64 = 2;

/// The state as text, with remedies; `dir` is the directory of the journal.
pub fn stat_text(dir: &Path, stat: &JournalStat, stalled: bool) -> String {
    let (watermarks, settings) = (&stat.watermarks, &stat.settings);
    let retained_records = watermarks.end - watermarks.first;
    let part = |up_to: u64, what: &str| match watermarks.end.saturating_sub(up_to) {
        0 => "all".to_owned(),
        rest => format!("up to position {up_to}; {} {what}", journal_format::format_records(rest)),
    };
    let limits = &settings.limits;
    let rows = [
        (
            "records",
            format!(
                "{}, {}..{}",
                value_formatter::count(retained_records),
                watermarks.first,
                watermarks.end
            ),
        ),
        ("flushed", part(watermarks.flushed, "buffered")),
        ("durable", part(watermarks.durable, "not yet synced")),
        (
            "segments",
            format!(
                "{}, {}{}",
                stat.segments,
                format_bytes(stat.segment_bytes),
                usage_text(stat, limits)
            ),
        ),
        (
            "buffer",
            format!(
                "{} of {}",
                format_bytes(stat.buffered_bytes),
                format_bytes(settings.buffer_bytes)
            ),
        ),
        ("retention", journal_format::describe_limits(limits)),
        (
            "settings",
            format!(
                "compression {}, segments of {}, deduplication of about {} producers",
                journal_format::compression_name(settings.compression),
                format_bytes(settings.segment_bytes),
                value_formatter::count(settings.dedup_producers.into())
            ),
        ),
        ("created", format!("{}, id {:032x}", format_time(stat.created), stat.id)),
    ];
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    let mut text = format!(
        "{}\n{}",
        escape_control(&dir.display().to_string()),
        format_table(&rows, [false; 2])
    );
    for (kind, title) in
        [(CheckpointKind::Subscriber, "subscriber"), (CheckpointKind::Plain, "checkpoint")]
    {
        if stat.checkpoints.iter().any(|checkpoint| checkpoint.kind == kind) {
            text.push_str(&format!("\n{}", checkpoint_table(stat, kind, title)));
        }
    }
    if stalled {
        text.push_str(&format!(
            "\nSTALLED: {}.\n",
            journal_format::stalled_message(&shell_quote(dir))
        ));
    }
    for problem in problem_lines(dir, stat) {
        text.push_str(&format!("\n{problem}\n"));
    }
    text
}

fn usage_text(stat: &JournalStat, limits: &Limits) -> String {
    limits.bytes_max.map_or(String::new(), |most| {
        format!(
            " of at most {} ({})",
            format_bytes(most),
            value_formatter::share(stat.segment_bytes, most)
        )
    })
}

/// Subscribers or checkpoints as a table.
pub fn checkpoint_table(stat: &JournalStat, kind: CheckpointKind, title: &str) -> String {
    let head = [title, "position", "lag", "limit reached", "committed"].map(str::to_owned);
    let rows = stat.checkpoints.iter().filter(|checkpoint| checkpoint.kind == kind);
    let rows = rows.map(|checkpoint| {
        [
            escape_control(&checkpoint.name),
            checkpoint.position.to_string(),
            journal_format::format_records(lag_records(stat, checkpoint)),
            at_limit(checkpoint, stat.settings.limits.on_full).to_owned(),
            format_time(checkpoint.committed_at),
        ]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    format_table(&rows, [false, true, true, false, false])
}

/// Number of records that it has not passed.
pub fn lag_records(stat: &JournalStat, checkpoint: &Checkpoint) -> u64 {
    stat.watermarks.end.saturating_sub(checkpoint.position)
}

/// What happens to records after the checkpoint when a limit is reached: retained only if it pins
/// them and the journal rejects appends when it is full.
pub fn at_limit(checkpoint: &Checkpoint, on_full: LimitPolicy) -> &'static str {
    let retained = checkpoint.pins_records && on_full == LimitPolicy::Reject;
    if retained { "retained" } else { "droppable" }
}

/// Problems and remedies.
fn problem_lines(dir: &Path, stat: &JournalStat) -> Vec<String> {
    let dir = shell_quote(dir);
    let mut problems = Vec::new();
    if stat.is_failed {
        problems.push(
            "STOPPED: a write or sync failed, and nothing has been acknowledged since. Records \
             acknowledged before are safe.\n  Check the disk (dmesg, df), then restart the \
             processes that have the journal open."
                .to_owned(),
        );
    }
    if let Some(full) = &stat.full_reason {
        problems.push(format!("FULL: {}.", journal_format::full_message(&dir, full)));
    }
    for name in &stat.damaged_checkpoints {
        let name = escape_control(name);
        problems.push(format!(
            "DAMAGED: both copies of checkpoint {name:?} are corrupt.\n  \
             Set it again with `topdeck journal seek {dir} {name} --to …`."
        ));
    }
    for checkpoint in stat.checkpoints.iter().filter(|checkpoint| checkpoint.is_degraded) {
        let name = escape_control(&checkpoint.name);
        problems.push(format!(
            "DEGRADED: one copy of checkpoint {name:?} is corrupt; the next commit repairs it."
        ));
    }
    problems
        .extend(stat.gaps.iter().map(|gap| format!("GAP: {}.", journal_format::describe_gap(gap))));
    problems
}

/// The state as a JSON document.
pub fn stat_json(stat: &JournalStat) -> Json {
    let (watermarks, settings) = (&stat.watermarks, &stat.settings);
    let checkpoints = stat.checkpoints.iter().map(|checkpoint| {
        Object(vec![
            ("name", Text(checkpoint.name.clone())),
            ("kind", Text(kind_name(checkpoint.kind).to_owned())),
            ("position", integer(checkpoint.position)),
            ("lag", integer(lag_records(stat, checkpoint))),
            ("pins_records", Bool(checkpoint.pins_records)),
            ("committed_ns", Json::Integer(checkpoint.committed_at.into())),
            ("damaged", Bool(checkpoint.is_degraded)),
        ])
    });
    let optional = |value: Option<u64>| value.map_or(Null, integer);
    let limits = &settings.limits;
    Object(vec![
        ("schema", integer(SCHEMA)),
        ("id", Text(format!("{:032x}", stat.id))),
        ("created_ns", Json::Integer(stat.created.into())),
        (
            "watermarks",
            Object(vec![
                ("first", integer(watermarks.first)),
                ("durable", integer(watermarks.durable)),
                ("flushed", integer(watermarks.flushed)),
                ("end", integer(watermarks.end)),
            ]),
        ),
        ("segments", integer(stat.segments as u64)),
        ("segment_bytes", integer(stat.segment_bytes)),
        ("buffered_bytes", integer(stat.buffered_bytes)),
        (
            "settings",
            Object(vec![
                (
                    "compression",
                    Text(journal_format::compression_name(settings.compression).to_owned()),
                ),
                ("buffer_bytes", integer(settings.buffer_bytes)),
                ("segment_bytes", integer(settings.segment_bytes)),
                ("dedup_producers", integer(settings.dedup_producers.into())),
                ("max_bytes", optional(limits.bytes_max)),
                ("max_age_ns", optional(limits.age_max.map(|age| age.as_nanos() as u64))),
                ("on_full", Text(journal_format::limit_policy_name(limits.on_full).to_owned())),
            ]),
        ),
        ("checkpoints", List(checkpoints.collect())),
        ("damaged_checkpoints", List(stat.damaged_checkpoints.iter().cloned().map(Text).collect())),
        ("gaps", List(stat.gaps.iter().map(gap_json).collect())),
        ("failed", Bool(stat.is_failed)),
        ("full_reason", stat.full_reason.as_ref().map_or(Null, |full| Text(full.to_string()))),
    ])
}

fn kind_name(kind: CheckpointKind) -> &'static str {
    match kind {
        CheckpointKind::Subscriber => "subscriber",
        CheckpointKind::Plain => "checkpoint",
    }
}

/// Gap as JSON.
pub(crate) fn gap_json(gap: &RecordGap) -> Json {
    let time = |end: fn(&std::ops::RangeInclusive<i64>) -> &i64| {
        gap.time.as_ref().map_or(Null, |range| Json::Integer((*end(range)).into()))
    };
    let producers = gap.producers.iter().map(|part| {
        Object(vec![
            ("producer", integer(part.producer)),
            ("epoch", integer(part.epoch)),
            ("first_sequence", integer(*part.sequences.start())),
            ("last_sequence", integer(*part.sequences.end())),
            ("records", integer(part.records)),
        ])
    });
    Object(vec![
        ("first", integer(gap.positions.start)),
        ("end", integer(gap.positions.end)),
        ("records", integer(gap.records())),
        ("reason", Text(gap.reason.to_string())),
        ("from_ns", time(std::ops::RangeInclusive::start)),
        ("to_ns", time(std::ops::RangeInclusive::end)),
        ("producers", List(producers.collect())),
        ("complete", Bool(gap.is_complete)),
    ])
}
