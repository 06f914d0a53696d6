//! Status light and alerts as text.

use hist::Bracket;
use render::number_formatter::NumberFormatter;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::{escape_control, wrap_text};
use render::time::precise_time_text;
use serde_json::Value;

use crate::overview_alarms::{alert_names, firing_text};

/// Maximum length of a value, and of a state with what is known of it, in a row; longer ones are
/// below it.
const CELL_MAX: usize = 20;
/// Indentation of the lines below a row.
const INDENT: usize = 4;

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
    let terminal = Terminal::new(false);
    let columns = [
        ("alert", false),
        ("state", false),
        ("severity", false),
        ("since", false),
        ("value", true),
        ("threshold", true),
    ];
    let mut table = TextTable::new(&columns);
    let instances = firing_instances(alerts);
    for alert in alerts {
        add_alert(&mut table, alert, terminal.width)?;
    }
    Some(format!("{light}\n{instances}{}{warnings}", table.text(&terminal)))
}

/// `3 alerts firing (4 instances)`, where the rows are more than the alerts.
fn firing_instances(alerts: &[Value]) -> String {
    let firing: Vec<&Value> = alerts.iter().filter(|alert| alert["state"] == "firing").collect();
    match alert_names(&firing).len() < firing.len() {
        true => format!("{}\n", firing_text(&firing)),
        false => String::new(),
    }
}

/// Adds the row of an alert. What may be long is below it, in lines that fit the terminal.
fn add_alert(table: &mut TextTable, alert: &Value, width: usize) -> Option<()> {
    let labels = alert["labels"].as_object()?;
    let others = labels.iter().filter(|(name, _)| *name != "alertname");
    let others: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
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
    // The states of most alerts are short; the others would make all rows wide.
    let marks = match state.chars().count() > CELL_MAX {
        true => state.split_off(alert["state"].as_str()?.len()),
        false => String::new(),
    };
    let name = alert["name"].as_str()?;
    let labels = escape_control(&others.join(", "));
    let named = escape_control(&format!("{name}{{{labels}}}"));
    let (named, labels) = match named.chars().count() + INDENT <= width {
        true => (named, String::new()),
        false => (escape_control(name), labels),
    };
    // A forecast is a sentence.
    let (value, sentence) = match value_text(alert) {
        value if value.chars().count() > CELL_MAX => (String::new(), value),
        value => (value, String::new()),
    };
    table.row(vec![
        named,
        state,
        severity_text(alert),
        precise_time_text(since_ns(alert)?),
        value,
        threshold_text(alert),
    ]);
    let fingerprint = alert["fingerprint"].as_str()?;
    let lines = [
        sentence,
        marks.trim_start_matches(", ").to_owned(),
        labels,
        condition_text(alert),
        reason_text(alert["why"].as_str()?),
        format!("fingerprint {fingerprint}"),
    ];
    for line in lines.iter().flat_map(|text| wrap_text(text, width.saturating_sub(INDENT))) {
        table.remark(format!("  {line}"));
    }
    Some(())
}

/// Since when it is in its state: a firing alert was pending before.
fn since_ns(alert: &Value) -> Option<i64> {
    let fired_ns = alert["fired_ns"].as_i64().filter(|_| alert["state"] == "firing");
    fired_ns.or_else(|| alert["since_ns"].as_i64())
}

/// Severity of the criterion, or the label of the rule.
fn severity_text(alert: &Value) -> String {
    let label = || alert["labels"]["severity"].as_str().map(escape_control);
    alert["severity"]
        .as_u64()
        .map(|severity| severity.to_string())
        .or_else(label)
        .unwrap_or_default()
}

/// Value in the unit of the criterion, or the forecast in words.
fn value_text(alert: &Value) -> String {
    let criterion = &alert["criterion"];
    if let Some(forecast) = criterion["forecast"].as_str() {
        return escape_control(forecast);
    }
    let bound = |name: &str| number(&criterion[name]);
    match (bound("lower"), bound("estimate"), bound("upper"), number(&alert["value"])) {
        (Some(lower), Some(estimate), Some(upper), _) => {
            criterion_formatter(alert).range(Bracket { lower, estimate, upper })
        }
        (.., Some(value)) => NumberFormatter::new(None).estimate(value),
        _ => String::new(),
    }
}

fn threshold_text(alert: &Value) -> String {
    // The times of a forecast are in its sentence.
    let threshold = number(&alert["criterion"]["threshold"]);
    let threshold = threshold.filter(|_| alert["criterion"]["forecast"].is_null());
    threshold.map_or_else(String::new, |number| criterion_formatter(alert).exact(number))
}

fn criterion_formatter(alert: &Value) -> NumberFormatter {
    NumberFormatter::new(alert["criterion"]["unit"].as_str().filter(|unit| !unit.is_empty()))
}

/// The criterion that holds, with how many streams are absent; of other rules their summary, or
/// else the expression.
fn condition_text(alert: &Value) -> String {
    let annotation = |name: &str| alert["annotations"][name].as_str();
    let texts = match alert["criterion"]["text"].as_str() {
        Some(text) => [Some(text), annotation("absent")],
        None => [annotation("summary").or(alert["query"].as_str()), None],
    };
    let texts: Vec<&str> = texts.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    escape_control(&texts.join(": "))
}

/// Why the alert is in its state; empty if that is only that its condition holds.
fn reason_text(why: &str) -> String {
    let is_condition = why.starts_with("the condition holds since") && !why.contains(';');
    if is_condition { String::new() } else { escape_control(why) }
}

/// A number; NaN and infinities are texts.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
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
        let below = "    unknown, acknowledged, silenced\n    there is no data\n    \
                     fingerprint 0cb2f34e1a2b3c4d\n";
        for part in ["  Slow{host=\"a\"}  firing  ", "2.5", below] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut window = answer.clone();
        window["alerts"][0]["is_in_maintenance"] = true.into();
        let text_of_window = alerts_text(&window).expect("a valid response");
        assert!(text_of_window.contains("acknowledged, in maintenance\n"), "{text_of_window}");
        assert!(text.ends_with("a.toml:1:1: warning: rule \"B\" matches nothing\n"), "{text}");
        let green = serde_json::json!({
            "light": "green", "light_count": 0, "alerts": [], "warnings": [],
        });
        assert_eq!(alerts_text(&green).as_deref(), Some("green\n"));
    }

    /// The header said "since" the alert was pending, and its states when it fired.
    #[test]
    fn a_firing_alert_has_the_time_since_which_it_fires_and_windows_of_an_slo_are_one() {
        let second = 1_700_000_000_000_000_000_i64;
        let alert = |state: &str, window: &str| {
            serde_json::json!({
                "name": "SloBudgetBurn", "state": state, "file": "slo", "why": "",
                "labels": {"alertname": "SloBudgetBurn", "slo": "pay", "window": window},
                "since_ns": second, "fired_ns": second + 10_000_000_000, "fingerprint": "0c",
            })
        };
        let answer = serde_json::json!({
            "light": "red", "light_count": 2,
            "alerts": [alert("firing", "1h"), alert("firing", "6h")],
        });
        let text = alerts_text(&answer).expect("a valid response");
        assert!(text.starts_with("red 2\n1 alert firing (2 instances)\n"), "{text}");
        assert!(text.contains("2023-11-14 22:13:30Z"), "{text}");
        let mut one = answer.clone();
        one["alerts"] = serde_json::json!([alert("pending", "1h")]);
        let text = alerts_text(&one).expect("a valid response");
        assert!(text.contains("2023-11-14 22:13:20Z") && !text.contains("instance"), "{text}");
    }

    /// A user saw `0.3`, `0.4913169319826339` and `15`, each with "the condition holds since …".
    #[test]
    fn an_alert_is_listed_with_its_severity_condition_unit_and_threshold() {
        let alert = |fields: Value| {
            let mut alert = serde_json::json!({
                "name": "Slow", "state": "firing", "labels": {"alertname": "Slow"},
                "annotations": {}, "since_ns": 1_700_000_000_000_000_000_i64,
                "fingerprint": "0cb2f34e1a2b3c4d", "query": "checkout",
                "why": "the condition holds since 2023-11-14 22:13:20Z",
            });
            let fields = fields.as_object().expect("an object").clone();
            alert.as_object_mut().expect("an object").extend(fields);
            alert
        };
        let check = |fields: Value, expected: &str| {
            let answer = serde_json::json!({
                "light": "red", "light_count": 1, "alerts": [alert(fields)], "warnings": [],
            });
            let text = alerts_text(&answer).expect("a valid response");
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(Terminal::new(false).width), "{text}");
            let (_, row) = text.rsplit_once("firing").expect("a row");
            let (row, id) = row.split_once("    fingerprint ").expect("a last line");
            assert_eq!(id, "0cb2f34e1a2b3c4d\n");
            let cells: Vec<&str> =
                row.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
            // A line that goes on.
            let cells = cells.join(" | ").replace(", | ", ", ");
            assert_eq!(cells.trim(), expected, "{text}");
        };
        let quantile = serde_json::json!({
            "value": 0.491_316_931_982_633_9, "severity": 1, "criterion": {
                "text": "quantile 0.99 above 250ms of checkout within 5 min", "unit": "s",
                "lower": 0.48, "estimate": 0.491_316_931_982_633_9, "upper": 0.5,
                "threshold": 0.25,
            },
        });
        check(
            quantile,
            "1 | 2023-11-14 22:13:20Z | 480.0 to 500.0 ms | 250 ms | quantile 0.99 above 250ms of \
             checkout within 5 min",
        );
        let absent = serde_json::json!({
            "value": 2, "severity": 2, "annotations": {"absent": "2 of 2 streams have no data"},
            "criterion": {
                "text": "absence after 10 min", "unit": "", "threshold": null,
                "lower": 2, "estimate": 2, "upper": 2,
            },
        });
        check(
            absent,
            "2 | 2023-11-14 22:13:20Z | 2 | absence after 10 min: 2 of 2 streams have no data",
        );
        let promql = serde_json::json!({
            "value": 15.000_000_1, "labels": {"alertname": "Slow", "severity": "page"},
            "annotations": {"summary": "The budget burns at 15 times"},
        });
        check(promql, "page | 2023-11-14 22:13:20Z | 15.00 | The budget burns at 15 times");
        let labels: serde_json::Map<String, Value> =
            (1..=9).map(|n| (format!("label_{n}"), format!("value_{n}").into())).collect();
        let wide = serde_json::json!({"value": null, "labels": labels});
        let pairs: Vec<String> = (1..=9).map(|n| format!("label_{n}=\"value_{n}\"")).collect();
        check(wide, &format!("2023-11-14 22:13:20Z | {} | checkout", pairs.join(", ")));
        let plain = serde_json::json!({"value": null, "why": "there is no data"});
        check(plain, "2023-11-14 22:13:20Z | checkout | there is no data");
    }
}
