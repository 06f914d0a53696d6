//! Result of a check of a store as text and JSON.

use std::path::Path;

use render::bytes::format_bytes;
use render::json::Json::{self, Bool, List, Null, Object, Text};
use render::json::integer;
use render::text::{escape_control, plural, shell_quote};
use render::time::precise_time_text;
use render::value_formatter;
use store::{ScrubDamage, ScrubReport};

/// Maximum number of damaged locations printed.
const DAMAGE_SHOWN: usize = 20;

/// The result as text, with remedies; `dir` is the directory of the store, `mend` whether rollups
/// were rebuilt.
pub fn scrub_text(dir: &Path, report: &ScrubReport, mend: bool) -> String {
    let read = format!(
        "read {} with {}, {}",
        plural(report.parts, "part", "parts"),
        plural(report.chunks, "chunk", "chunks"),
        format_bytes(report.bytes)
    );
    if report.damage.is_empty() {
        return format!("{read}: intact, all checksums match\n");
    }
    let mut text = format!("{read}: {}\n", plural(report.damage.len() as u64, "damage", "damages"));
    for damage in report.damage.iter().take(DAMAGE_SHOWN) {
        text.push_str(&format!(
            "  {}: {}{}\n",
            escape_control(&damage.file),
            escape_control(&damage.description),
            loss_text(damage)
        ));
    }
    let more = report.damage.len().saturating_sub(DAMAGE_SHOWN);
    if more > 0 {
        text.push_str(&format!("  and {} more\n", value_formatter::count(more as u64)));
    }
    let dir = shell_quote(dir);
    if !report.rebuilt_days.is_empty() {
        let days: Vec<String> = report.rebuilt_days.iter().map(|&day| date(day)).collect();
        text.push_str(&format!("rollups rebuilt: {}\n", days.join(", ")));
    }
    if !mend && report.damage.iter().any(|damage| damage.is_rebuildable) {
        text.push_str(&format!("`topdeck store scrub {dir}` rebuilds damaged rollups\n"));
    }
    if report.damage.iter().any(|damage| !damage.is_rebuildable) {
        text.push_str(
            "unrecoverable samples: restore a snapshot with `topdeck store restore SNAPSHOT \
             NEW-DIR`\n",
        );
    }
    text
}

fn loss_text(damage: &ScrubDamage) -> String {
    match (damage.is_rebuildable, damage.rows) {
        (true, _) => " (no samples lost)".to_owned(),
        (false, Some(n)) => format!(" ({} lost)", plural(n, "sample", "samples")),
        (false, None) => " (lost samples: unknown)".to_owned(),
    }
}

fn date(day: i64) -> String {
    let text = precise_time_text(day);
    text.split(' ').next().unwrap_or(&text).to_owned()
}

/// The result as a JSON document.
pub fn scrub_json(report: &ScrubReport) -> Json {
    let damage = report.damage.iter().map(|damage| {
        Object(vec![
            ("file", Text(damage.file.clone())),
            ("description", Text(damage.description.clone())),
            ("rows", damage.rows.map_or(Null, integer)),
            ("is_rebuildable", Bool(damage.is_rebuildable)),
        ])
    });
    Object(vec![
        ("schema", integer(2)),
        ("parts", integer(report.parts)),
        ("chunks", integer(report.chunks)),
        ("bytes", integer(report.bytes)),
        ("damage", List(damage.collect())),
        (
            "rebuilt_days_ns",
            List(report.rebuilt_days.iter().map(|&day| Json::Integer(day.into())).collect()),
        ),
    ])
}
