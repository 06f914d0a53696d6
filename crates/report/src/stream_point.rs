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
    let bound = |name: &str, of: &str| value[name][of].as_f64();
    let mut text = plural(value["count"].as_u64().unwrap_or(0), "value", "values");
    for name in ["min", "max"] {
        let known = match (bound(name, "lower"), bound(name, "upper")) {
            (Some(lower), Some(upper)) => {
                let estimate = bound(name, "estimate").unwrap_or(upper);
                numbers.range(Bracket { lower, estimate, upper })
            }
            (None, Some(upper)) => format!("at most {}", numbers.exact(upper)),
            (Some(lower), None) => format!("at least {}", numbers.exact(lower)),
            (None, None) => continue,
        };
        text.push_str(&format!(", {name} {known}"));
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

    /// `topdeck tail` of a classic histogram printed "min -infinity to 5.000 ms".
    #[test]
    fn extremes_in_the_outer_buckets_have_one_bound() {
        check(
            r#"{"name":"took","labels":{},"unit":"s","end_ns":1794225600000000000,
                "value":{"count":2,"min":{"lower":null,"estimate":0.005,"upper":0.005},
                         "max":{"lower":10.0,"estimate":10.0,"upper":null},"cells":[]}}"#,
            "2026-11-09 12:00:00Z  took  2 values, min at most 5 ms, max at least 10 s",
        );
    }
}
