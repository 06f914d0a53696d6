//! Description of a process: owner, start time, memory of its file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::find::MatchedProcess;
use render::bytes::format_bytes;
use render::time::format_time;
use render::time::precise_time_text;
use render::value_formatter::count;

/// Creation time of the metrics file; unknown for formats without one.
pub(crate) fn created_text(process: &MatchedProcess) -> String {
    match process.attached.reader() {
        Some(reader) => format_time(reader.process().created_unix_ns),
        None => "unknown".to_owned(),
    }
}

/// Owner of the file, by name if there is one.
pub(crate) fn owner_name(process: &MatchedProcess) -> String {
    let Ok(found) = fs::metadata(&process.attached.metrics_file().path) else {
        return "unknown".to_owned();
    };
    let uid = found.uid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}

/// Memory of the file.
pub(crate) fn memory_text(process: &MatchedProcess) -> String {
    let found = fs::metadata(&process.attached.metrics_file().path);
    found.map_or_else(|_| "unknown".to_owned(), |found| format_bytes(found.blocks() * 512))
}

/// Number of series.
pub(crate) fn series_count_text(process: &mut MatchedProcess) -> String {
    let known = match process.attached.reader() {
        Some(reader) => Ok(reader.len()),
        None => process.attached.metrics().map(|metrics| metrics.len()),
    };
    known.map_or_else(|_| "unknown".to_owned(), |series| count(series as u64))
}

/// First lines of a report on a process: identity, and lost records.
pub(crate) fn heading_lines(process: &MatchedProcess) -> Vec<String> {
    let attached = &process.attached;
    let format = attached.metrics_file().format.name();
    let mut lines = vec![format!("{}, {}, {format}", process.name(), process.state_text())];
    if !attached.command().is_empty() {
        lines.push(format!("  command  {}", attached.command()));
    }
    lines.push(format!("  file     {}", attached.metrics_file().path.display()));
    let Some(reader) = attached.reader() else { return lines };
    let of = reader.process();
    lines.push(format!(
        "  since    {}",
        precise_time_text(of.created_unix_ns / 1_000_000 * 1_000_000)
    ));
    let notes = [
        (of.lost_values, "values lost for lack of space"),
        (
            of.rejected_series,
            "series rejected for lack of space: missing, or counted in overflow=\"true\" of their \
             name",
        ),
        (of.shared_lane_threads, "threads share a lane and record more slowly"),
    ];
    for (n, what) in notes.into_iter().filter(|(n, _)| *n > 0) {
        lines.push(format!("  note     {} {what}", count(n)));
    }
    lines
}
