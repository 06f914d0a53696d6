//! `topdeck journal stat`: how a journal is, in numbers, and what to do about it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use journal::{AtLimit, Checkpoint, Error, Gap, Kind, Level, Limits, Stat};

use crate::command::{plain, print};
use crate::journal::{show, told, try_open};
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::integer;

/// Show how a journal is: records, segments, limits, subscribers, gaps
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The journal's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal stat j
  topdeck journal stat j --json | jq '.checkpoints[] | {name, behind}'

Exit status:
  0  it was read
  1  there is no journal, or it cannot be opened
  2  the command line makes no sense";

const SCHEMA: u64 = 1;
/// As long as it may take to write what is in the buffer, if whoever does that is well.
const WAIT: Duration = Duration::from_millis(500);

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let open = journal::Options { wait_max: WAIT, ..journal::Options::default() };
    let journal = try_open(&options.dir, &open).map_err(told(&options.dir))?;
    let mut stat = journal.stat().map_err(told(&options.dir))?;
    let mut stalled = false;
    if stat.full.is_none() && !stat.poisoned && stat.marks.flushed < stat.marks.end {
        // What fills a journal that was opened just now, or stops it, nobody has met yet.
        match journal.flush(Level::Process) {
            Err(Error::Full(full)) => stat.full = Some(full),
            Err(Error::Stalled { .. }) => stalled = true,
            Ok(_) | Err(_) => {}
        }
    }
    let text = match options.json {
        true => format!("{}\n", document(&stat)),
        false => text(&options.dir, &stat, stalled),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text(dir: &Path, stat: &Stat, stalled: bool) -> String {
    let (marks, settings) = (&stat.marks, &stat.settings);
    let kept = marks.end - marks.first;
    let part = |upto: u64, what: &str| match marks.end.saturating_sub(upto) {
        0 => "all".to_owned(),
        rest => format!("up to position {upto}; {} {what}", show::records(rest)),
    };
    let limits = &settings.limits;
    let rows = [
        ("records", format!("{}, {}..{}", show::count(kept), marks.first, marks.end)),
        ("in segments", part(marks.flushed, "in the buffer only")),
        ("on disk", part(marks.durable, "a power cut could take")),
        (
            "segments",
            format!("{}, {}{}", stat.segments, show::bytes(stat.segment_bytes), used(stat, limits)),
        ),
        (
            "buffer",
            format!(
                "{} of {}",
                show::bytes(stat.buffered_bytes),
                show::bytes(settings.buffer_bytes)
            ),
        ),
        ("keeps", show::limits(limits)),
        (
            "settings",
            format!(
                "codec {}, segments of {}, at least {} producers remembered",
                show::codec(settings.codec),
                show::bytes(settings.segment_bytes),
                show::count(settings.producers_max.into())
            ),
        ),
        ("created", format!("{}, id {:032x}", show::time(stat.created), stat.id)),
    ];
    let rows = rows.map(|(name, value)| [name.to_owned(), value]);
    let mut text =
        format!("{}\n{}", plain(&dir.display().to_string()), show::table(&rows, [false; 2]));
    for (kind, title) in [(Kind::Subscriber, "subscriber"), (Kind::Mark, "checkpoint")] {
        if stat.checkpoints.iter().any(|checkpoint| checkpoint.kind == kind) {
            text.push_str(&format!("\n{}", checkpoints(stat, kind, title)));
        }
    }
    if stalled {
        text.push_str(&format!("\nSTALLED: {}.\n", show::stalled(&show::typed(dir))));
    }
    for trouble in troubles(dir, stat) {
        text.push_str(&format!("\n{trouble}\n"));
    }
    text
}

fn used(stat: &Stat, limits: &Limits) -> String {
    limits.bytes_max.map_or(String::new(), |most| {
        format!(" of at most {} ({})", show::bytes(most), show::share(stat.segment_bytes, most))
    })
}

/// Subscribers, or checkpoints, as a table.
pub(crate) fn checkpoints(stat: &Stat, kind: Kind, title: &str) -> String {
    let head = [title, "position", "behind", "at a limit", "moved"].map(str::to_owned);
    let rows = stat.checkpoints.iter().filter(|checkpoint| checkpoint.kind == kind);
    let rows = rows.map(|checkpoint| {
        [
            plain(&checkpoint.name),
            checkpoint.position.to_string(),
            show::records(behind(stat, checkpoint)),
            holds(checkpoint, stat.settings.limits.at_limit).to_owned(),
            show::time(checkpoint.moved),
        ]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    show::table(&rows, [false, true, true, false, false])
}

/// Records that it has not passed.
pub(crate) fn behind(stat: &Stat, checkpoint: &Checkpoint) -> u64 {
    stat.marks.end.saturating_sub(checkpoint.position)
}

/// Whether what it has not passed is kept at a limit: only where the journal refuses rather than drop.
pub(crate) fn holds(checkpoint: &Checkpoint, at_limit: AtLimit) -> &'static str {
    let holds = checkpoint.holds && at_limit == AtLimit::Refuse;
    if holds { "holds" } else { "yields" }
}

/// What is not as it should be, and what to do.
fn troubles(dir: &Path, stat: &Stat) -> Vec<String> {
    let dir = show::typed(dir);
    let mut troubles = Vec::new();
    if stat.poisoned {
        troubles.push(
            "STOPPED: a write or sync failed, and nothing is acknowledged since. What was acknowledged before \
             is safe.\n  Look at the disk (dmesg, df); then restart the processes that have the journal open."
                .to_owned(),
        );
    }
    if let Some(full) = &stat.full {
        troubles.push(format!("FULL: {}.", show::full(&dir, full)));
    }
    for name in &stat.damaged_checkpoints {
        let name = plain(name);
        troubles.push(format!(
            "DAMAGED: both copies of the checkpoint {name:?}.\n  \
             `topdeck journal rewind {dir} {name} --to …` sets it anew."
        ));
    }
    for checkpoint in stat.checkpoints.iter().filter(|checkpoint| checkpoint.damaged) {
        let name = plain(&checkpoint.name);
        troubles.push(format!(
            "DAMAGED: one copy of the checkpoint {name:?}; the other is used, and writes both when it moves."
        ));
    }
    troubles.extend(stat.gaps.iter().map(|gap| format!("GAP: {}.", show::gap(gap))));
    troubles
}

fn document(stat: &Stat) -> Json {
    let (marks, settings) = (&stat.marks, &stat.settings);
    let checkpoints = stat.checkpoints.iter().map(|checkpoint| {
        Object(vec![
            ("name", Text(checkpoint.name.clone())),
            ("kind", Text(kind(checkpoint.kind).to_owned())),
            ("position", integer(checkpoint.position)),
            ("behind", integer(behind(stat, checkpoint))),
            ("holds", Bool(checkpoint.holds)),
            ("moved_ns", Json::Integer(checkpoint.moved.into())),
            ("damaged", Bool(checkpoint.damaged)),
        ])
    });
    let optional = |value: Option<u64>| value.map_or(Null, integer);
    let limits = &settings.limits;
    Object(vec![
        ("schema", integer(SCHEMA)),
        ("id", Text(format!("{:032x}", stat.id))),
        ("created_ns", Json::Integer(stat.created.into())),
        (
            "marks",
            Object(vec![
                ("first", integer(marks.first)),
                ("durable", integer(marks.durable)),
                ("flushed", integer(marks.flushed)),
                ("end", integer(marks.end)),
            ]),
        ),
        ("segments", integer(stat.segments as u64)),
        ("segment_bytes", integer(stat.segment_bytes)),
        ("buffered_bytes", integer(stat.buffered_bytes)),
        (
            "settings",
            Object(vec![
                ("codec", Text(show::codec(settings.codec).to_owned())),
                ("buffer_bytes", integer(settings.buffer_bytes)),
                ("segment_bytes", integer(settings.segment_bytes)),
                ("producers_max", integer(settings.producers_max.into())),
                ("bytes_max", optional(limits.bytes_max)),
                ("age_max_ns", optional(limits.age_max.map(|age| age.as_nanos() as u64))),
                ("at_limit", Text(show::at_limit(limits.at_limit).to_owned())),
            ]),
        ),
        ("checkpoints", List(checkpoints.collect())),
        ("damaged_checkpoints", List(stat.damaged_checkpoints.iter().cloned().map(Text).collect())),
        ("gaps", List(stat.gaps.iter().map(gap).collect())),
        ("poisoned", Bool(stat.poisoned)),
        ("full", stat.full.as_ref().map_or(Null, |full| Text(full.to_string()))),
    ])
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Subscriber => "subscriber",
        Kind::Mark => "checkpoint",
    }
}

/// A gap as JSON.
pub(crate) fn gap(gap: &Gap) -> Json {
    let time = |end: fn(&std::ops::RangeInclusive<i64>) -> &i64| {
        gap.time.as_ref().map_or(Null, |range| Json::Integer((*end(range)).into()))
    };
    let producers = gap.producers.iter().map(|part| {
        Object(vec![
            ("producer", integer(part.producer)),
            ("boot", integer(part.boot)),
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
        ("complete", Bool(gap.complete)),
    ])
}
