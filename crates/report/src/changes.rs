//! Changes of series as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

/// The response of `/v1/changes`; `None` if it is another document.
pub fn changes_text(answer: &Value) -> Option<String> {
    let changes = answer["changes"].as_array()?;
    if changes.is_empty() {
        return Some("no series changed\n".to_owned());
    }
    let columns =
        [("time", false), ("id", false), ("source", false), ("change", false), ("accepted", false)];
    let mut table = TextTable::new(&columns);
    for change in changes {
        let acceptance = &change["acceptance"];
        let by = acceptance["by"].as_str().map_or_else(String::new, |by| {
            let note = acceptance["note"].as_str().unwrap_or_default();
            let colon = if note.is_empty() { "" } else { ": " };
            format!("{by}{colon}{note}")
        });
        table.row(vec![
            precise_time_text(change["at_ns"].as_i64()?),
            escape_control(change["id"].as_str()?),
            escape_control(change["source"].as_str()?),
            escape_control(change["text"].as_str()?),
            escape_control(&by),
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expect!` removes the indentation that all lines share.
    fn without_indent(text: &str) -> String {
        text.lines().map(|line| format!("{}\n", line.trim_start())).collect()
    }

    #[test]
    fn a_change_is_listed_with_its_acceptance() {
        let answer = serde_json::json!({"changes": [
            {"id": "5d41", "at_ns": 1_700_000_000_000_000_000_i64, "source": "shop",
             "text": "2 series vanished", "acceptance": null},
            {"id": "40c8", "at_ns": 1_700_000_060_000_000_000_i64, "source": "shop",
             "text": "label `lb` disappeared",
             "acceptance": {"at_ns": 1, "by": "ann", "note": "planned"}},
        ]});
        expect_test::expect![[r#"
              time                  id    source  change                  accepted
              2023-11-14 22:13:20Z  5d41  shop    2 series vanished
              2023-11-14 22:14:20Z  40c8  shop    label `lb` disappeared  ann: planned
        "#]]
        .assert_eq(&without_indent(&changes_text(&answer).expect("a valid response")));
        let none = serde_json::json!({"changes": []});
        assert_eq!(changes_text(&none).as_deref(), Some("no series changed\n"));
    }
}
