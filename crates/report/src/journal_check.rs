//! Result of a check of a journal, as text and JSON.

use std::fmt::Write as _;
use std::path::Path;

use journal::{CheckReport, FileDamage};
use render::bytes::format_bytes;
use render::json::Json::{Bool, List, Object, Text};
use render::json::integer;
use render::text::{escape_control, shell_quote};
use render::value_formatter;

use crate::journal_format;
use crate::journal_stat::gap_json;

/// Maximum number of damaged locations printed; JSON has all.
const DAMAGE_SHOWN_MAX: usize = 20;

/// Result of `topdeck journal verify`, with the remedy.
pub fn verify_text(dir: &Path, report: &CheckReport) -> String {
    let mut text = summary(dir, report, "is", "are");
    if !report.damages.is_empty() {
        let dir = shell_quote(dir);
        text.push_str(&format!(
            "\n`topdeck journal repair {dir}` keeps valid records and quarantines the rest; the \
             journal must not be in use.\n"
        ));
    }
    text
}

/// Result of `topdeck journal repair`.
pub fn repair_text(dir: &Path, report: &CheckReport) -> String {
    let mut text = summary(dir, report, "was", "were");
    text.push('\n');
    for line in &report.repaired {
        text.push_str(&format!("{}\n", escape_control(line)));
    }
    if report.repaired.is_empty() {
        text.push_str("nothing to repair\n");
    }
    text
}

fn summary(dir: &Path, report: &CheckReport, is: &str, are: &str) -> String {
    let mut text = String::new();
    let outcome = match report.damages.len() {
        0 => "intact".to_owned(),
        1 => format!("1 location {is} damaged"),
        n => format!("{} locations {are} damaged", value_formatter::count(n as u64)),
    };
    let plural = |n: u64, what: &str| {
        format!("{} {what}{}", value_formatter::count(n), if n == 1 { "" } else { "s" })
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}: {outcome}", escape_control(&dir.display().to_string()));
    let _ = writeln!(
        text,
        "  {} in {} in {}, {}",
        journal_format::format_records(report.records),
        plural(report.frames, "frame"),
        plural(report.segments, "segment"),
        journal_format::format_positions(&report.positions)
    );
    for damage in report.damages.iter().take(DAMAGE_SHOWN_MAX) {
        let _ = writeln!(text, "  DAMAGED: {}", describe_damage(damage));
    }
    if let Some(more) = report.damages.len().checked_sub(DAMAGE_SHOWN_MAX + 1) {
        let _ = writeln!(
            text,
            "  and {} more; --json lists them all",
            value_formatter::count(more as u64 + 1)
        );
    }
    for gap in report.explained_gaps.iter().take(DAMAGE_SHOWN_MAX) {
        let _ = writeln!(text, "  GAP: {}", journal_format::describe_gap(gap));
    }
    if let Some(more) = report.explained_gaps.len().checked_sub(DAMAGE_SHOWN_MAX + 1) {
        let _ = writeln!(
            text,
            "  and {} gaps more; --json lists them all",
            value_formatter::count(more as u64 + 1)
        );
    }
    if report.torn_bytes > 0 {
        let _ = writeln!(
            text,
            "  {} of a torn write, never acknowledged: not damage",
            format_bytes(report.torn_bytes)
        );
    }
    text
}

fn describe_damage(damage: &FileDamage) -> String {
    let FileDamage { path, bytes, positions, description: what } = damage;
    let path = escape_control(&path.display().to_string());
    let location = match bytes.end.saturating_sub(bytes.start) {
        0 => path,
        n => format!("{path}, bytes {}..{} ({})", bytes.start, bytes.end, format_bytes(n)),
    };
    let lost = match positions.end.saturating_sub(positions.start) {
        0 => "no record is lost".to_owned(),
        n => format!(
            "{} cannot be read, {}",
            journal_format::format_records(n),
            journal_format::format_positions(positions)
        ),
    };
    format!("{location}: {what}; {lost}")
}

/// The result of either as JSON.
pub fn check_json(report: &CheckReport) -> String {
    let damages = report.damages.iter().map(|damage| {
        Object(vec![
            ("path", Text(damage.path.display().to_string())),
            ("first_byte", integer(damage.bytes.start)),
            ("end_byte", integer(damage.bytes.end)),
            ("first", integer(damage.positions.start)),
            ("end", integer(damage.positions.end)),
            ("description", Text(damage.description.to_owned())),
        ])
    });
    let document = Object(vec![
        ("schema", integer(2)),
        ("intact", Bool(report.damages.is_empty())),
        ("segments", integer(report.segments)),
        ("frames", integer(report.frames)),
        ("records", integer(report.records)),
        ("first", integer(report.positions.start)),
        ("end", integer(report.positions.end)),
        ("damages", List(damages.collect())),
        ("torn_bytes", integer(report.torn_bytes)),
        ("known_gaps", List(report.explained_gaps.iter().map(gap_json).collect())),
        ("repaired", List(report.repaired.iter().cloned().map(Text).collect())),
    ]);
    format!("{document}\n")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn damaged_report() -> CheckReport {
        let mut report = CheckReport::default();
        report.segments = 2;
        report.frames = 30;
        report.records = 4000;
        report.positions = 0..4100;
        report.damages = vec![
            FileDamage {
                path: "j/segments/0000000000000000.seg".into(),
                bytes: 4096..8192,
                positions: 1000..1100,
                description: "a frame whose checksum is wrong",
            },
            FileDamage {
                path: "j/checkpoints/store".into(),
                bytes: 0..0,
                positions: 0..0,
                description: "one of its two copies is damaged",
            },
        ];
        report.torn_bytes = 17;
        report
    }

    #[track_caller]
    fn check(text: String, expected: Expect) {
        expected.assert_eq(&text);
    }

    #[test]
    fn damage_has_a_position_and_its_loss() {
        check(
            verify_text(Path::new("j"), &damaged_report()),
            expect![[r#"
            j: 2 locations are damaged
              4,000 records in 30 frames in 2 segments, positions 0..4100
              DAMAGED: j/segments/0000000000000000.seg, bytes 4096..8192 (4 KiB): a frame whose checksum is wrong; 100 records cannot be read, positions 1000..1100
              DAMAGED: j/checkpoints/store: one of its two copies is damaged; no record is lost
              17 B of a torn write, never acknowledged: not damage

            `topdeck journal repair j` keeps valid records and quarantines the rest; the journal must not be in use.
        "#]],
        );
    }

    #[test]
    fn repair_reports_its_actions() {
        let mut report = damaged_report();
        report.repaired =
            vec!["100 records are lost; 4 KiB were put into j/quarantine/x".to_owned()];
        check(
            repair_text(Path::new("j"), &report),
            expect![[r#"
                j: 2 locations were damaged
                  4,000 records in 30 frames in 2 segments, positions 0..4100
                  DAMAGED: j/segments/0000000000000000.seg, bytes 4096..8192 (4 KiB): a frame whose checksum is wrong; 100 records cannot be read, positions 1000..1100
                  DAMAGED: j/checkpoints/store: one of its two copies is damaged; no record is lost
                  17 B of a torn write, never acknowledged: not damage

                100 records are lost; 4 KiB were put into j/quarantine/x
            "#]],
        );
        check(
            repair_text(Path::new("j"), &CheckReport::default()),
            expect![[r#"
            j: intact
              0 records in 0 frames in 0 segments, positions 0..0

            nothing to repair
        "#]],
        );
    }

    #[test]
    fn json_has_all() {
        check(
            check_json(&damaged_report()),
            expect![[r#"
            {
              "schema": 2,
              "intact": false,
              "segments": 2,
              "frames": 30,
              "records": 4000,
              "first": 0,
              "end": 4100,
              "damages": [
                {
                  "path": "j/segments/0000000000000000.seg",
                  "first_byte": 4096,
                  "end_byte": 8192,
                  "first": 1000,
                  "end": 1100,
                  "description": "a frame whose checksum is wrong"
                },
                {
                  "path": "j/checkpoints/store",
                  "first_byte": 0,
                  "end_byte": 0,
                  "first": 0,
                  "end": 0,
                  "description": "one of its two copies is damaged"
                }
              ],
              "torn_bytes": 17,
              "known_gaps": [],
              "repaired": []
            }
        "#]],
        );
    }
}
