//! A point of the live stream as one line.

use hist::Bracket;
use render::number_formatter::NumberFormatter;
use render::terminal::{Terminal, TextStyle};
use render::text::{escape_control, plural};
use render::time::precise_time_text;
use serde_json::Value;

/// Line of an event `row`:
/// `2026-11-09 12:00:10Z  latency{host="a"}  120 values, min 1.2 ms, max 340 ms`.
pub fn point_line(point: &Value, terminal: &Terminal) -> String {
    let time = precise_time_text(point["end_ns"].as_i64().unwrap_or(0));
    let labels: Vec<String> = match point["labels"].as_object() {
        Some(labels) => labels
            .iter()
            .map(|(name, value)| format!("{name}={:?}", value.as_str().unwrap_or("")))
            .collect(),
        None => Vec::new(),
    };
    let mut series = point["name"].as_str().unwrap_or("").to_owned();
    if !labels.is_empty() {
        series.push_str(&format!("{{{}}}", labels.join(",")));
    }
    let numbers = NumberFormatter::new(point["unit"].as_str());
    let value = match &point["value"] {
        Value::String(text) => escape_control(text),
        Value::Object(_) => distribution_text(&point["value"], &numbers),
        number => number.as_f64().map_or_else(|| "unknown".to_owned(), |n| numbers.exact(n)),
    };
    let series = terminal.paint(TextStyle::Heading, &escape_control(&series));
    format!("{time}  {series}  {value}\n")
}

fn distribution_text(value: &Value, numbers: &NumberFormatter) -> String {
    let bracket = |name: &str| {
        let bound = |of: &str| value[name][of].as_f64();
        let estimate = bound("estimate")?;
        Some(Bracket {
            lower: bound("lower").unwrap_or(f64::NEG_INFINITY),
            estimate,
            upper: bound("upper").unwrap_or(f64::INFINITY),
        })
    };
    let mut text = plural(value["count"].as_u64().unwrap_or(0), "value", "values");
    for name in ["min", "max"] {
        if let Some(bracket) = bracket(name) {
            text.push_str(&format!(", {name} {}", numbers.range(bracket)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use render::terminal::ColourDepth;

    use super::*;

    #[track_caller]
    fn check(point: &str, expected: &str) {
        let point: Value = serde_json::from_str(point).unwrap();
        let terminal = Terminal { colour_depth: ColourDepth::None, ..Terminal::new(false) };
        assert_eq!(point_line(&point, &terminal), format!("{expected}\n"));
    }

    #[test]
    fn points_are_one_line_each() {
        check(
            r#"{"name":"depth","labels":{},"unit":null,"end_ns":1794225600000000000,"value":3.0}"#,
            "2026-11-09 12:00:00Z  depth  3",
        );
        check(
            r#"{"name":"took","labels":{"host":"a"},"unit":"ms","end_ns":1794225600000000000,
                "value":{"count":2,"min":{"lower":3.0,"estimate":3.0,"upper":3.0},
                         "max":{"lower":40.0,"estimate":40.0,"upper":40.0},"cells":[]}}"#,
            "2026-11-09 12:00:00Z  took{host=\"a\"}  2 values, min 3 ms, max 40 ms",
        );
        check(
            r#"{"name":"version","labels":{},"unit":null,"end_ns":1794225600000000000,
                "value":"1.2\u001b[31m"}"#,
            "2026-11-09 12:00:00Z  version  1.2\\u{1b}[31m",
        );
    }
}
