//! `topdeck alerts`: active alerts of a server, their acknowledgement, and their end by hand.

mod acknowledge;
mod history;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::escape_control;
use render::time::precise_time_text;
use serde_json::Value;

use crate::output::print_stdout;
use crate::server_client::ServerClient;
use crate::subcommand_table::subcommands;
pub(crate) use acknowledge::AuthorArgument;

/// Show the active alerts of a server, acknowledge and clear them
///
/// One line per pending or firing alert: since when, its value, and why it is in its state. Then
/// the rules whose selectors had no data in the last day, with the nearest name. The first line is
/// the status light: red with the number of firing alerts that nobody acknowledged; amber with the
/// number of pending, acknowledged and unknown ones and of rules that fail; or green.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Option<Command>,

    /// Print JSON, as `/v1/alerts` or `/v1/alerts/history` responds
    #[arg(long)]
    json: bool,

    /// Show changes of state instead, the newest first: when, how long, who acknowledged
    #[arg(long)]
    history: bool,

    /// Text in the name, a label, or the note of an acknowledgement
    #[arg(long)]
    text: Option<String>,

    /// Matcher of labels, such as 'host=~"db.*"'; all must match
    #[arg(long, value_name = "MATCHER")]
    matcher: Vec<String>,

    /// Severity, 1 (worst) to 5; may be repeated
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
    severity: Vec<u8>,

    /// Event of the history, such as `firing`, `resolved` or `acknowledged`
    #[arg(long, requires = "history")]
    event: Option<String>,

    /// Earliest time of the history, such as `-7d`
    #[arg(long, value_name = "TIME", requires = "history", allow_hyphen_values = true)]
    from: Option<String>,

    /// Latest time of the history
    #[arg(long, value_name = "TIME", requires = "history", allow_hyphen_values = true)]
    to: Option<String>,

    /// Number of changes, at most 1000 [default: 100]
    #[arg(long, value_name = "NUMBER", requires = "history")]
    limit: Option<u64>,

    /// Changes before the one with this number
    #[arg(long, value_name = "NUMBER", requires = "history")]
    before: Option<u64>,

    #[command(flatten)]
    server: ServerClient,
}

subcommands! {
    Command:
    Ack(acknowledge::AcknowledgeOptions) => acknowledge::acknowledge,
    Unack(acknowledge::UnacknowledgeOptions) => acknowledge::unacknowledge,
    Clear(acknowledge::ClearOptions) => acknowledge::clear,
}

const AFTER: &str = "\
Examples:
  topdeck alerts
  topdeck alerts --server https://north.example:7717 --token-file token --json
  topdeck alerts --matcher 'host=~\"db.*\"' --severity 1
  topdeck alerts --history --from -7d --text disk
  topdeck alerts ack 0cb2f34e1a2b3c4d --for 2h --note 'disk is replaced'

Exit status:
  0  the status light is green or amber; with --history, the changes are shown
  1  the server was not reached
  2  usage error
  3  the status light is red";

/// Exit status if an alert fires that nobody acknowledged.
const RED: u8 = 3;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(subcommand) = &options.subcommand {
        return subcommand.run();
    }
    if options.history {
        print_stdout(history::history(options)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = options.server.get("/v1/alerts", options.search_parameters())?;
    let text = match options.json {
        true => format!("{answer}\n"),
        false => alerts_text(&answer).context("unexpected response of /v1/alerts")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(if answer["light"] == "red" { ExitCode::from(RED) } else { ExitCode::SUCCESS })
}

fn alerts_text(answer: &Value) -> Option<String> {
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
        let marks = [
            ("unknown", !alert["unknown_since_ns"].is_null()),
            ("acknowledged", !alert["acknowledgement"].is_null()),
            ("silenced", is_silenced),
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
        assert!(text.ends_with("a.toml:1:1: warning: rule \"B\" matches nothing\n"), "{text}");
        let green = serde_json::json!({
            "light": "green", "light_count": 0, "alerts": [], "warnings": [],
        });
        assert_eq!(alerts_text(&green).as_deref(), Some("green\n"));
    }
}
