//! `topdeck alerts --history`.

use anyhow::{Context as _, Result};
use client::RequestParameters;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::{duration_text, precise_time_text};
use serde_json::Value;

use super::ListOptions;

/// Text of the changes that the options select.
pub(super) fn history(options: &ListOptions) -> Result<String> {
    let mut parameters = options.search_parameters();
    for (name, value) in [("from", &options.from), ("to", &options.to), ("event", &options.event)] {
        parameters = parameters.with_option(name, value.as_ref());
    }
    parameters =
        parameters.with_option("limit", options.limit).with_option("before", options.before);
    let answer = options.server.get("/v1/alerts/history", parameters)?;
    match options.json {
        true => Ok(format!("{answer}\n")),
        false => text(&answer).context("unexpected response of /v1/alerts/history"),
    }
}

impl ListOptions {
    /// Parameters of a search.
    pub(super) fn search_parameters(&self) -> RequestParameters {
        let parameters = RequestParameters::default().with_option("text", self.text.as_ref());
        let parameters = self
            .matcher
            .iter()
            .fold(parameters, |parameters, matcher| parameters.with("matcher", matcher));
        self.severity
            .iter()
            .fold(parameters, |parameters, severity| parameters.with("severity", severity))
    }
}

fn text(answer: &Value) -> Option<String> {
    let changes = answer["history"].as_array()?;
    if changes.is_empty() {
        return Some("no changes\n".to_owned());
    }
    let columns = [
        ("time", false),
        ("event", false),
        ("severity", true),
        ("alert", false),
        ("lasted", true),
        ("by", false),
        ("note", false),
    ];
    let mut table = TextTable::new(&columns);
    for change in changes {
        let labels = change["labels"].as_object()?;
        let others = labels.iter().filter(|(name, _)| *name != "alertname");
        let others: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
        let name = change["name"].as_str()?;
        let seconds = |ns: i64| ns / 1_000_000_000 * 1_000_000_000;
        table.row(vec![
            precise_time_text(change["time_ns"].as_i64()?),
            change["event"].as_str()?.to_owned(),
            change["severity"].as_u64()?.to_string(),
            escape_control(&format!("{name}{{{}}}", others.join(", "))),
            change["duration_ns"]
                .as_i64()
                .map_or_else(String::new, |ns| duration_text(seconds(ns))),
            escape_control(change["by"].as_str()?),
            escape_control(change["note"].as_str()?),
        ]);
    }
    let more = match answer["next"].as_u64() {
        Some(next) => format!("more with --before {next}\n"),
        None => String::new(),
    };
    Some(table.text(&Terminal::new(false)) + &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line_and_older_ones_are_named() {
        let answer = serde_json::json!({
            "history": [{
                "time_ns": 1_700_000_060_000_000_000_i64, "event": "resolved", "severity": 2,
                "name": "Slow", "labels": {"alertname": "Slow", "host": "a"},
                "duration_ns": 61_500_000_000_i64, "by": "ann", "note": "on it",
            }],
            "next": 17,
        });
        let text = text(&answer).expect("a valid response");
        for part in ["resolved", "Slow{host=\"a\"}", "1 min 1 s", "ann", "on it"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("more with --before 17\n"), "{text}");
        let none = serde_json::json!({"history": [], "next": null});
        assert_eq!(super::text(&none).as_deref(), Some("no changes\n"));
    }
}
