//! Rules with their states as text.

use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use serde_json::Value;

/// The response of `/api/v1/rules`; `None` if it is another document.
pub fn rules_text(answer: &Value) -> Option<String> {
    let groups = answer["data"]["groups"].as_array()?;
    let warnings = answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let warnings: String = warnings.map(|text| format!("{}\n", escape_control(text))).collect();
    if groups.is_empty() {
        return Some(format!("no rules\n{warnings}"));
    }
    let columns =
        [("state", false), ("alerts", true), ("rule", false), ("group", false), ("problem", false)];
    let mut table = TextTable::new(&columns);
    for group in groups {
        for rule in group["rules"].as_array()? {
            // Recording rules have neither a state nor alerts.
            let alerts = rule["alerts"].as_array().map_or(0, Vec::len);
            table.row(vec![
                rule["state"].as_str().unwrap_or("recording").to_owned(),
                alerts.to_string(),
                escape_control(rule["name"].as_str()?),
                escape_control(&format!(
                    "{} ({})",
                    group["name"].as_str()?,
                    group["file"].as_str()?
                )),
                escape_control(
                    rule["lastError"].as_str().or(rule["warning"].as_str()).unwrap_or(""),
                ),
            ]);
        }
    }
    Some(table.text(&Terminal::new(false)) + &warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_listed_with_its_state_and_error() {
        let answer = serde_json::json!({"data": {"groups": [{
            "name": "shop", "file": "shop.toml", "rules": [
                {"type": "alerting", "name": "Slow", "state": "firing", "alerts": [{}, {}],
                 "lastError": "no unit"},
                {"type": "recording", "name": "a:b", "warning": "no data"},
            ],
        }]}});
        let text = rules_text(&answer).expect("a valid response");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["firing", "2", "Slow", "shop", "(shop.toml)", "no", "unit"]));
        let unmatched = vec!["recording", "0", "a:b", "shop", "(shop.toml)", "no", "data"];
        assert!(lines.contains(&unmatched), "{text}");
        let broken = "shop.toml:1:1: error: cannot parse expression";
        let none = serde_json::json!({"data": {"groups": []}, "warnings": [broken]});
        assert_eq!(rules_text(&none), Some(format!("no rules\n{broken}\n")));
        let none = serde_json::json!({"data": {"groups": []}});
        assert_eq!(rules_text(&none).as_deref(), Some("no rules\n"));
    }
}
