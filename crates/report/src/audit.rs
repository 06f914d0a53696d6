//! An audit as text: what each stage received, acknowledged and stored of each producer.

use render::table::format_table;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

/// What the numbers of the table are.
const UNIT: &str = "counts are values as they were sent: each sample of a cumulative histogram \
                    has all values since its start\n";

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
    text.push_str(UNIT);
    for producer in json_array(&audit["producers"]) {
        let name = escape_control(producer["name"].as_str().unwrap_or(""));
        let source = &producer["source"];
        for dropped in json_array(&source["dropped"]) {
            let reason = escape_control(dropped["reason"].as_str().unwrap_or(""));
            text.push_str(&format!("{name}: {} values dropped: {reason}\n", dropped["values"]));
        }
        if let Some(problem) = source["last_problem"]["text"].as_str() {
            let time = source["last_problem"]["time_ns"].as_i64();
            let time = time.map_or_else(String::new, precise_time_text);
            text.push_str(&format!(
                "{name}: last problem at {time}: {}\n",
                escape_control(problem)
            ));
        }
    }
    for note in json_array(&audit["warnings"]) {
        text.push_str(&format!("{}\n", escape_control(note.as_str().unwrap_or(""))));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Only the client was told what was rejected.
    #[test]
    fn dropped_values_and_the_last_problem_of_a_sender_are_printed() {
        let text = "metric \"a\":\u{7} bad";
        let last_problem = json!({ "time_ns": 1_794_225_600_000_000_000_i64, "text": text });
        let dropped = json!([{ "reason": "rejected: invalid samples", "values": 3 }]);
        let source = json!({ "dropped": dropped, "last_problem": last_problem });
        let silent = json!({ "dropped": [], "last_problem": null });
        let audit = json!({ "producers": [
            { "name": "otlp", "source": source, "stages": [] },
            { "name": "record", "source": silent, "stages": [] },
        ] });
        let text = audit_text(&audit);
        let expected = "otlp: 3 values dropped: rejected: invalid samples\n\
                        otlp: last problem at 2026-11-09 12:00:00Z: metric \"a\":\\u{7} bad\n";
        assert!(text.ends_with(&format!("{UNIT}{expected}")), "{text}");
    }
}
