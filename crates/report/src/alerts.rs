//! Status light and alerts as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

/// The response of `/v1/alerts`; `None` if it is another document.
pub fn alerts_text(answer: &Value) -> Option<String> {
    let light = match answer["light"].as_str()? {
        "green" => "green".to_owned(),
        color => format!("{color} {}", answer["light_count"].as_u64()?),
    };
    let warning = |text: &Value| Some(format!("{}\n", escape_control(text.as_str()?)));
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    let warnings: String = warnings.filter_map(warning).collect();
    let alerts = answer["alerts"].as_array()?;
    if alerts.is_empty() {
        return Some(format!("{light}\n{warnings}"));
    }
    let columns = [
        ("fingerprint", false),
        ("state", false),
        ("since", false),
        ("alert", false),
        ("value", true),
        ("why", false),
    ];
    let mut table = TextTable::new(&columns);
    for alert in alerts {
        let labels = alert["labels"].as_object()?;
        let others = labels.iter().filter(|(name, _)| *name != "alertname");
        let others: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
        let name = alert["name"].as_str()?;
        let mut state = alert["state"].as_str()?.to_owned();
        let is_silenced = alert["silenced_by"].as_array().is_some_and(|ids| !ids.is_empty());
        let is_in_maintenance = alert["is_in_maintenance"] == true;
        let marks = [
            ("unknown", !alert["unknown_since_ns"].is_null()),
            ("acknowledged", !alert["acknowledgement"].is_null()),
            ("in maintenance", is_in_maintenance),
            ("silenced", is_silenced && !is_in_maintenance),
        ];
        for (mark, _) in marks.iter().filter(|(_, is_set)| *is_set) {
            state.extend([", ", mark]);
        }
        table.row(vec![
            alert["fingerprint"].as_str()?.to_owned(),
            state,
            precise_time_text(alert["since_ns"].as_i64()?),
            escape_control(&format!("{name}{{{}}}", others.join(", "))),
            match alert["criterion"]["forecast"].as_str() {
                Some(forecast) => escape_control(forecast),
                None => alert["value"].as_f64().map_or_else(String::new, |value| value.to_string()),
            },
            escape_control(alert["why"].as_str()?),
        ]);
    }
    Some(format!("{light}\n{}{warnings}", table.text(&Terminal::new(false))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_listed_with_its_reason() {
        let answer = serde_json::json!({
            "light": "red", "light_count": 1, "alerts": [{
                "name": "Slow", "state": "firing", "labels": {"alertname": "Slow", "host": "a"},
                "value": 2.5, "since_ns": 1_700_000_000_000_000_000_i64,
                "unknown_since_ns": 1_700_000_000_000_000_000_i64, "why": "there is no data",
                "fingerprint": "0cb2f34e1a2b3c4d", "silenced_by": ["a"],
                "acknowledgement": {"by": "ann"},
            }],
            "warnings": ["a.toml:1:1: warning: rule \"B\" matches nothing"],
        });
        let text = alerts_text(&answer).expect("a valid response");
        assert!(text.starts_with("red 1\n"), "{text}");
        let state = "firing, unknown, acknowledged, silenced";
        for part in ["0cb2f34e1a2b3c4d", state, "Slow{host=\"a\"}", "2.5", "there is no data"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut window = answer.clone();
        window["alerts"][0]["is_in_maintenance"] = true.into();
        let text_of_window = alerts_text(&window).expect("a valid response");
        assert!(text_of_window.contains("acknowledged, in maintenance "), "{text_of_window}");
        assert!(text.ends_with("a.toml:1:1: warning: rule \"B\" matches nothing\n"), "{text}");
        let green = serde_json::json!({
            "light": "green", "light_count": 0, "alerts": [], "warnings": [],
        });
        assert_eq!(alerts_text(&green).as_deref(), Some("green\n"));
    }
}
