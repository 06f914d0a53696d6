//! State of a store as text and JSON.

use std::ops::Range;
use std::path::Path;

use render::bytes::format_bytes;
use render::json::Json::{self, List, Null, Object, Text};
use render::json::integer;
use render::table::format_table;
use render::text::{escape_control, plural};
use render::time::precise_time_text;
use render::value_formatter;
use store::{PartInfo, Resolution, StoreStat};

use crate::document::gap;
use crate::gap_text;
use crate::retention::{retention_json, retention_text};

const SCHEMA: u64 = 2;
/// Maximum number of list entries printed.
const LISTED_MAX: usize = 10;

/// State of a store.
pub struct StoreReport {
    /// Parts, head, journal, gaps and retention.
    pub stat: StoreStat,
    /// Time range of the samples.
    pub time_range: Option<Range<i64>>,
    /// Batches in the journal that are not in a part yet.
    pub backlog: u64,
}

/// All parts of one resolution.
struct ResolutionTotals {
    resolution: Resolution,
    parts: u64,
    chunks: u64,
    rows: u64,
    bytes: u64,
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

/// The state as text; `dir` is the directory of the store.
pub fn store_text(dir: &Path, report: &StoreReport) -> String {
    let StoreReport { stat, time_range: extent, backlog } = report;
    let range = match extent {
        Some(range) => {
            format!("{} to {}", precise_time_text(range.start), precise_time_text(range.end))
        }
        None => "no samples".to_owned(),
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
                plural(stat.head_rows, "sample", "samples"),
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
    text.push_str(&format!("\n{}", retention_text(&stat.retention)));
    text.push_str(&list_line("GAP", stat.gaps.iter().map(gap_text)));
    text.push_str(&list_line("NOTE", stat.warnings.iter().map(|note| escape_control(note))));
    text
}

fn parts_table(stat: &StoreStat) -> String {
    let head = ["resolution", "parts", "chunks", "samples", "size", "bytes/sample"];
    let head = head.map(str::to_owned);
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

/// The state as a JSON document.
pub fn store_json(report: &StoreReport) -> Json {
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
        ("retention", retention_json(&stat.retention)),
        ("gaps", List(stat.gaps.iter().map(gap).collect())),
        ("warnings", List(stat.warnings.iter().cloned().map(Text).collect())),
    ])
}
