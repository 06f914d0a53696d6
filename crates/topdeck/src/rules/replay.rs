//! `topdeck rules replay`: what the rules of a file would have done over stored data.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::alerts::{RuleFileTexts, read_rule_texts};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use client::{RequestParameters, ServerClient, print_stderr, print_stdout};
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::{escape_control, plural};
use render::time::precise_time_text;
use serde_json::{Value, json};

use crate::time::{self, TimeExpr};

/// Path of replays.
const PATH: &str = "/v1/rules/replay";

/// Show what the rules of a file would have done over the data of a server
///
/// Evaluates the rules at past times as the server would have, and prints for each alert when it
/// would have been pending, firing and resolved. Nothing is stored, and nobody is notified.
///
/// Groups are evaluated at the times of those of the server if FILE has the path that the server
/// uses. Templates see no external labels and no external URL.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Rule file of Prometheus (YAML), or of own rules (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Start of the range: 2026-11-09T12:30:00Z, -2d [default: 7 days before the end]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End of the range [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Length of the range up to its end, such as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration, conflicts_with = "from")]
    last: Option<i64>,

    /// Name of a rule; other alerts are left out. Repeatable
    #[arg(long, value_name = "NAME")]
    rule: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck rules replay slow.yaml
  topdeck rules replay shop.toml --last 12h
  topdeck rules replay slow.yaml --last 12h --rule Slow
  topdeck rules replay slow.yaml --from 2026-11-01 --to 2026-11-08 --server https://north:7717

Exit status:
  0  the rules were replayed
  1  the file cannot be read, the server was not reached, or a rule failed or has an error
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let texts = read_rule_texts(&options.file)?;
    let now = journal::wall_clock()();
    let to_ns = options.to.map_or(now, |to| to.to_unix_ns(now));
    let from_ns = match (options.from, options.last) {
        (Some(from), _) => Some(from.to_unix_ns(now)),
        (None, last) => last.map(|last| to_ns.saturating_sub(last)),
    };
    let mut parameters =
        RequestParameters::default().with("file", absolute(&options.file).display());
    if options.to.is_some() {
        parameters = parameters.with_ns("to", to_ns);
    }
    if let Some(from_ns) = from_ns {
        parameters = parameters.with_ns("from", from_ns);
    }
    for rule in &options.rule {
        parameters = parameters.with("rule", rule);
    }
    let is_toml = options.file.extension().is_some_and(|extension| extension == "toml");
    let RuleFileTexts { rules, files } = texts;
    let (content_type, body) = match (files.is_empty(), is_toml) {
        (false, _) => {
            ("application/json", json!({ "rules": rules, "files": files }).to_string().into())
        }
        (true, true) => ("application/toml", Bytes::from(rules)),
        (true, false) => ("application/yaml", Bytes::from(rules)),
    };
    let answer =
        options.server.post_with_progress(PATH, parameters, content_type, body, progress_text)?;
    let has_problems = print_problems(&answer);
    let text = match options.json {
        true => format!("{answer}\n"),
        false => replay_text(&answer).context("unexpected response of /v1/rules/replay")?,
    };
    print_stdout(text.as_bytes())?;
    let rules = answer["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let has_failed = rules.iter().any(|rule| rule["failures"] != 0);
    Ok(if has_problems || has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The server names groups by the path of their file.
fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// `4,000 of 10,080 evaluations`; empty if the server is not replaying yet.
fn progress_text(answer: &Value) -> Option<String> {
    let (done, total) = (answer["evaluations"].as_u64()?, answer["total"].as_u64()?);
    let evaluations = plural(total, "evaluation", "evaluations");
    Some(format!("{done} of {evaluations}"))
}

/// Prints problems of the file. Returns whether one is an error.
fn print_problems(answer: &Value) -> bool {
    let problems = answer["problems"].as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<&str> = problems.iter().filter_map(|problem| problem["text"].as_str()).collect();
    for text in &texts {
        print_stderr(&format!("{}\n", escape_control(text)));
    }
    texts.iter().any(|text| text.contains(": error: "))
}

fn replay_text(answer: &Value) -> Option<String> {
    let time = |name: &str| answer[name].as_i64().map(precise_time_text);
    let mut out = format!("{} to {}\n", time("from_ns")?, time("to_ns")?);
    for rule in answer["rules"].as_array()? {
        let (name, summary) = (rule["name"].as_str()?, rule["summary"].as_str()?);
        out.push_str(&format!("\n{}\n", escape_control(&format!("{name}: {summary}"))));
        let mut table = TextTable::new(&[("time", false), ("state", false), ("alert", false)]);
        let mut rows = Vec::new();
        for alert in rule["alerts"].as_array()? {
            let labels = alert["labels"].as_object()?;
            let others = labels.iter().filter(|(name, _)| *name != "alertname");
            let others: Vec<String> =
                others.map(|(name, value)| format!("{name}={value}")).collect();
            let labels = escape_control(&format!("{{{}}}", others.join(", ")));
            for change in alert["transitions"].as_array()? {
                let unknown = if change["is_unknown"] == true { ", unknown" } else { "" };
                let state = format!("{}{unknown}", change["state"].as_str()?);
                rows.push((change["at_ns"].as_i64()?, state, labels.clone()));
            }
            let omitted = alert["omitted_transitions"].as_u64()?;
            if omitted > 0 {
                let last_ns = rows.last().map_or(0, |row| row.0);
                let more = plural(omitted, "more change", "more changes");
                rows.push((last_ns, more, labels));
            }
        }
        model::sort::by(&mut rows, Ord::cmp);
        for (at_ns, state, labels) in &rows {
            table.row(vec![precise_time_text(*at_ns), state.clone(), labels.clone()]);
        }
        if !rows.is_empty() {
            out.push_str(&table.text(&Terminal::new(false)));
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_sentence_and_its_changes() {
        let answer = serde_json::json!({
            "from_ns": 1_700_000_000_000_000_000_i64, "to_ns": 1_700_003_600_000_000_000_i64,
            "rules": [{"name": "Slow", "summary": "would have fired 1 time, 2 min in all",
                "failures": 0, "alerts": [{
                    "labels": {"alertname": "Slow", "host": "a"}, "omitted_transitions": 0,
                    "transitions": [
                        {"at_ns": 1_700_000_060_000_000_000_i64, "state": "firing", "value": 2.0,
                         "is_unknown": false},
                        {"at_ns": 1_700_000_180_000_000_000_i64, "state": "inactive",
                         "value": 2.0, "is_unknown": false}],
                }]}],
        });
        let text = replay_text(&answer).expect("a valid response");
        expect_test::expect![[r#"
            2023-11-14 22:13:20Z to 2023-11-14 23:13:20Z

            Slow: would have fired 1 time, 2 min in all
              time                  state     alert
              2023-11-14 22:14:20Z  firing    {host="a"}
              2023-11-14 22:16:20Z  inactive  {host="a"}
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn progress_is_shown_while_it_is_known() {
        let answer = serde_json::json!({"evaluations": 4000, "total": 10080});
        assert_eq!(progress_text(&answer).as_deref(), Some("4000 of 10,080 evaluations"));
        assert_eq!(progress_text(&serde_json::json!({"evaluations": null})), None);
    }
}
