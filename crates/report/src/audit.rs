//! An audit as text: what each stage received, acknowledged and stored of each producer.

use render::table::format_table;
use render::text::escape_control;
use serde_json::Value;

fn json_array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn count_text(value: &Value) -> String {
    value["values"].as_u64().map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

/// A row per producer and stage, and the warnings, of a document of `/v1/audit`.
pub fn audit_text(audit: &Value) -> String {
    let mut rows = vec![
        ["producer", "stage", "received", "acknowledged", "stored", "reason"].map(str::to_owned),
    ];
    for producer in json_array(&audit["producers"]) {
        let name = match producer["name"].as_str() {
            Some("") | None => producer["id"].as_str().unwrap_or("others"),
            Some(name) => name,
        };
        for (at, line) in json_array(&producer["stages"]).iter().enumerate() {
            let text = |key: &str| escape_control(line[key].as_str().unwrap_or(""));
            rows.push([
                if at == 0 { escape_control(name) } else { String::new() },
                text("stage"),
                count_text(&line["received"]),
                count_text(&line["acknowledged"]),
                count_text(&line["stored"]),
                text("reason"),
            ]);
        }
    }
    let mut text = format_table(&rows, [false, false, true, true, true, false]);
    for note in json_array(&audit["warnings"]) {
        text.push_str(&format!("{}\n", escape_control(note.as_str().unwrap_or(""))));
    }
    text
}
