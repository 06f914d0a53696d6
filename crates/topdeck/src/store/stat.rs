//! `topdeck store stat`: state of a store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use model::Selector;
use store::{PartInfo, Resolution, StoreStat};

use crate::command::print_stdout;
use crate::store::retention;
use crate::store::{open, retention_rules, row_count_text, with_dir};
use api::json::Json::{self, List, Null, Object, Text};
use api::json::integer;
use render::bytes::format_bytes;
use render::table::format_table;
use render::text::escape_control;
use render::text::plural;
use render::time::precise_time_text;
use render::value_formatter;

/// Show the state of a store: series, parts, time range, journal, gaps, retention
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck store stat s
  topdeck store stat s --json | jq '.resolutions[] | {resolution, bytes_per_row}'

Exit status:
  0  success
  1  store not found or in use
  2  usage error";

const SCHEMA: u64 = 2;
/// Maximum number of list entries printed.
const LISTED_MAX: usize = 10;

/// Input of the report.
struct StoreReport {
    stat: StoreStat,
    /// Time range of the rows.
    time_range: Option<std::ops::Range<i64>>,
    /// Batches in the journal that are not in a part yet.
    backlog: u64,
}

/// All parts of one resolution.
struct ResolutionTotals {
    resolution: Resolution,
    parts: u64,
    chunks: u64,
    rows: u64,
    bytes: u64,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let view = store.view().map_err(&describe_error)?;
    let extent = view.time_range(&view.select(&Selector::All)).map_err(&describe_error)?;
    let stat = store.stat().map_err(&describe_error)?;
    let subscriber = stat.journal.checkpoints.iter().find(|point| point.name == "store");
    let backlog = subscriber.map_or(0, |point| stat.journal.watermarks.end - point.position);
    let report = StoreReport { stat, time_range: extent, backlog };
    let text = match options.json {
        true => format!("{}\n", stat_json(&report)),
        false => stat_text(&options.dir, &report),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn resolution_totals(parts: &[PartInfo]) -> Vec<ResolutionTotals> {
    let sum = |resolution| {
        let parts_of_resolution = || parts.iter().filter(move |part| part.resolution == resolution);
        ResolutionTotals {
            resolution,
            parts: parts_of_resolution().count() as u64,
            chunks: parts_of_resolution().map(|part| part.chunks).sum(),
            rows: parts_of_resolution().map(|part| part.rows).sum(),
            bytes: parts_of_resolution().map(|part| part.bytes).sum(),
        }
    };
    Resolution::ALL.into_iter().map(sum).filter(|sum| sum.parts > 0).collect()
}

fn stat_text(dir: &Path, report: &StoreReport) -> String {
    let StoreReport { stat, time_range: extent, backlog } = report;
    let range = match extent {
        Some(range) => {
            format!("{} to {}", precise_time_text(range.start), precise_time_text(range.end))
        }
        None => "no rows".to_owned(),
    };
    let total: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    let lines = [
        ("time", range),
        (
            "series",
            format!(
                "{}, index {} in memory",
                value_formatter::count(stat.series),
                format_bytes(stat.index_bytes)
            ),
        ),
        (
            "head",
            format!(
                "{} in {} of memory",
                row_count_text(stat.head_rows),
                format_bytes(stat.head_bytes)
            ),
        ),
        (
            "journal",
            format!(
                "{} that {} not flushed yet",
                plural(*backlog, "batch", "batches"),
                if *backlog == 1 { "is" } else { "are" }
            ),
        ),
        (
            "parts",
            format!("{}, {}", value_formatter::count(stat.parts.len() as u64), format_bytes(total)),
        ),
    ];
    let lines = lines.map(|(name, value)| [name.to_owned(), value]);
    let mut text = format!(
        "{}\n{}",
        escape_control(&dir.display().to_string()),
        format_table(&lines, [false; 2])
    );
    if !stat.parts.is_empty() {
        text.push('\n');
        text.push_str(&parts_table(stat));
    }
    text.push_str(&format!("\n{}", retention_rules::rules_text(&stat.retention)));
    text.push_str(&list_line("GAP", stat.gaps.iter().map(report::gap_text)));
    text.push_str(&list_line("NOTE", stat.warnings.iter().map(|note| escape_control(note))));
    text
}

fn parts_table(stat: &StoreStat) -> String {
    let head = ["resolution", "parts", "chunks", "rows", "size", "bytes/row"].map(str::to_owned);
    let rows = resolution_totals(&stat.parts).into_iter().map(|sum| {
        [
            sum.resolution.name().to_owned(),
            value_formatter::count(sum.parts),
            value_formatter::count(sum.chunks),
            value_formatter::count(sum.rows),
            format_bytes(sum.bytes),
            format!("{:.1}", sum.bytes as f64 / sum.rows.max(1) as f64),
        ]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    format_table(&rows, [false, true, true, true, true, true])
}

fn list_line(word: &str, all: impl ExactSizeIterator<Item = String>) -> String {
    let (mut text, n) = (String::new(), all.len());
    for one in all.take(LISTED_MAX) {
        text.push_str(&format!("\n{word}: {one}.\n"));
    }
    if n > LISTED_MAX {
        text.push_str(&format!("\n… and {} more; --json lists all.\n", n - LISTED_MAX));
    }
    text
}

fn stat_json(report: &StoreReport) -> Json {
    let StoreReport { stat, time_range: extent, backlog } = report;
    let time = |ns: Option<i64>| ns.map_or(Null, |ns| Json::Integer(ns.into()));
    let sums = resolution_totals(&stat.parts).into_iter().map(|sum| {
        Object(vec![
            ("resolution", Text(sum.resolution.name().to_owned())),
            ("parts", integer(sum.parts)),
            ("chunks", integer(sum.chunks)),
            ("rows", integer(sum.rows)),
            ("bytes", integer(sum.bytes)),
            ("bytes_per_row", Json::Number(sum.bytes as f64 / sum.rows.max(1) as f64)),
        ])
    });
    let parts = stat.parts.iter().map(|part| {
        Object(vec![
            ("number", integer(part.number)),
            ("resolution", Text(part.resolution.name().to_owned())),
            ("start_ns", Json::Integer(part.start.into())),
            ("end_ns", Json::Integer(part.end.into())),
            ("bytes", integer(part.bytes)),
            ("chunks", integer(part.chunks)),
            ("rows", integer(part.rows)),
        ])
    });
    Object(vec![
        ("schema", integer(SCHEMA)),
        ("from_ns", time(extent.as_ref().map(|range| range.start))),
        ("to_ns", time(extent.as_ref().map(|range| range.end))),
        ("series", integer(stat.series)),
        ("index_bytes", integer(stat.index_bytes)),
        ("head_rows", integer(stat.head_rows)),
        ("head_bytes", integer(stat.head_bytes)),
        ("journal_backlog_batches", integer(*backlog)),
        ("journal_segment_bytes", integer(stat.journal.segment_bytes)),
        ("resolutions", List(sums.collect())),
        ("parts", List(parts.collect())),
        ("retention", retention::rules_json(&stat.retention)),
        ("gaps", List(stat.gaps.iter().map(report::document::gap).collect())),
        ("warnings", List(stat.warnings.iter().cloned().map(Text).collect())),
    ])
}
