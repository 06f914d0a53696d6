//! Silences as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

/// The response of `/v1/silences`; `None` if it is another document.
pub fn silences_text(answer: &Value) -> Option<String> {
    let silences = answer["silences"].as_array()?;
    if silences.is_empty() {
        return Some("no silences\n".to_owned());
    }
    let columns = ["id", "state", "ends", "matchers", "recurs", "author", "comment"];
    let mut table = TextTable::new(&columns.map(|name| (name, false)));
    for silence in silences {
        let text = |name: &str| silence[name].as_str().map(escape_control);
        let matchers = silence["matchers"].as_array()?.iter();
        let matchers: Vec<&str> = matchers.filter_map(Value::as_str).collect();
        let recurs = !silence["time_intervals"].as_array()?.is_empty();
        table.row(vec![
            text("id")?,
            text("state")?,
            silence["ends_ns"].as_i64().map_or_else(|| "never".to_owned(), precise_time_text),
            escape_control(&matchers.join(", ")),
            if recurs { "yes" } else { "" }.to_owned(),
            text("author")?,
            text("comment")?,
        ]);
    }
    Some(table.text(&Terminal::new(false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_listed_with_its_matchers() {
        let answer = serde_json::json!({"silences": [{
            "id": "a-b", "state": "active", "ends_ns": 1_700_000_000_000_000_000_i64,
            "matchers": ["host=\"a\"", "zone!=\"b\""], "time_intervals": [], "author": "ann",
            "comment": "two\nlines",
        }, {
            "id": "c", "state": "pending", "ends_ns": null, "matchers": ["host=\"c\""],
            "time_intervals": [{}], "author": "ben", "comment": "",
        }]});
        let text = silences_text(&answer).expect("a valid response");
        for part in ["a-b", "active", "2023-11-14", "host=\"a\", zone!=\"b\"", "never", "yes"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("two\nlines"), "{text}");
        let none = serde_json::json!({"silences": []});
        assert_eq!(silences_text(&none).as_deref(), Some("no silences\n"));
    }
}
