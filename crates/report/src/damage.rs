//! Reported and acknowledged damage of a server as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

fn entries<'a>(status: &'a Value, key: &str) -> &'a [Value] {
    status[key].as_array().map_or(&[][..], Vec::as_slice)
}

fn text_of(entry: &Value, key: &str) -> String {
    escape_control(entry[key].as_str().unwrap_or(""))
}

fn time_of(entry: &Value, key: &str) -> String {
    precise_time_text(entry[key].as_i64().unwrap_or(0))
}

/// Damage and skipped records of `/v1/status`.
pub fn damage_text(status: &Value) -> String {
    let mut reported =
        TextTable::new(&[("found", false), ("location", false), ("lost", true), ("remedy", false)]);
    let mut count = 0;
    for it in entries(status, "damage").iter().filter(|it| it["acknowledged"] == false) {
        count += 1;
        let lost = format!("{} records", it["records"].as_u64().unwrap_or(0));
        reported.row(vec![
            time_of(it, "since_ns"),
            text_of(it, "location"),
            lost,
            text_of(it, "remedy"),
        ]);
    }
    for it in entries(status, "quarantined").iter().filter(|it| it["acknowledged"] == false) {
        count += 1;
        let panicked = format!("panicked: {}", text_of(it, "reason"));
        reported.row(vec![time_of(it, "since_ns"), text_of(it, "input"), String::new(), panicked]);
    }
    let terminal = Terminal::new(false);
    let mut text = match count {
        0 => "no damage that is not acknowledged\n".to_owned(),
        _ => reported.text(&terminal),
    };
    let acknowledged = entries(status, "acknowledged_damage");
    if acknowledged.is_empty() {
        return text;
    }
    let mut table = TextTable::new(&[
        ("acknowledged", false),
        ("found", false),
        ("location", false),
        ("lost", true),
        ("note", false),
    ]);
    for it in acknowledged {
        table.row(vec![
            time_of(it, "acknowledged_ns"),
            time_of(it, "found_ns"),
            text_of(it, "location"),
            format!("{} records", it["records"].as_u64().unwrap_or(0)),
            text_of(it, "note"),
        ]);
    }
    text.push('\n');
    text + &table.text(&terminal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn acknowledged_damage_is_listed_below_what_is_reported() {
        let none = json!({"damage": [], "quarantined": [], "acknowledged_damage": []});
        assert_eq!(damage_text(&none), "no damage that is not acknowledged\n");
        let status = json!({
            "damage": [
                {"location": "records 3..4 of the journal", "records": 1, "remedy": "repair",
                 "since_ns": 0, "acknowledged": true},
                {"location": "records 8..9 of the journal", "records": 1, "remedy": "repair",
                 "since_ns": 0, "acknowledged": false},
            ],
            "quarantined": [
                {"input": "rolling up day 7", "reason": "a count overflows", "since_ns": 0,
                 "acknowledged": false},
            ],
            "acknowledged_damage": [
                {"location": "records 3..4 of the journal", "records": 1, "found_ns": 0,
                 "acknowledged_ns": 60_000_000_000_i64, "note": "disk replaced"},
            ],
        });
        let text = damage_text(&status);
        let (reported, acknowledged) = text.split_once("\n\n").unwrap();
        assert!(reported.contains("records 8..9") && reported.contains("rolling up day 7"));
        assert!(reported.contains("panicked: a count overflows"), "{reported}");
        assert!(!reported.contains("records 3..4"), "{text}");
        assert!(acknowledged.contains("records 3..4") && acknowledged.contains("disk replaced"));
        assert_eq!(acknowledged.lines().count(), 2, "{text}");
    }
}
