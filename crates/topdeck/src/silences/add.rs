//! `topdeck silences add`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use client::{RequestParameters, ServerClient, print_message, print_stdout};
use query::edit_distance;
use render::text::escape_control;
use serde_json::{Value, json};

use crate::alerts::AuthorArgument;

/// Add a silence, or a maintenance window that recurs, and print its id
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Matcher of labels, such as severity=page or host=~"db.*"; all must match an alert
    #[arg(value_name = "MATCHER", required = true)]
    matchers: Vec<String>,

    /// Time until it ends, from its start
    #[arg(long = "for", value_name = "DURATION")]
    length: Option<String>,

    /// Start (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,

    /// End (RFC 3339)
    #[arg(long, value_name = "TIME", conflicts_with = "length")]
    to: Option<String>,

    /// Time interval in which it is active, as JSON; repeatable
    #[arg(long = "time-interval", value_name = "JSON")]
    time_intervals: Vec<String>,

    /// Take its time out of the budgets of the SLOs whose alerts it matches
    #[arg(long)]
    corrects_slos: bool,

    /// Reason
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,

    #[command(flatten)]
    author: AuthorArgument,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck silences add host=db1 --for 2h --comment 'disk is replaced'
  topdeck silences add job=backup --time-interval '{\"weekdays\": [\"sunday\"], \"times\":
    [{\"start_time\": \"02:00\", \"end_time\": \"04:00\"}], \"location\": \"Europe/Berlin\"}'

  topdeck silences add slo=checkout --corrects-slos --for 2h --comment 'move of the database'

A silence without a time interval needs --for or --to. A server requires a token with the scope
alerts, except on loopback.

Exit status:
  0  the silence is stored, durably
  1  the silence is invalid, or the server was not reached
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.length.is_none() && options.to.is_none() && options.time_intervals.is_empty() {
        bail!("a silence needs an end; add --for 2h, or --to with a time");
    }
    let intervals = options.time_intervals.iter().map(|text| {
        serde_json::from_str::<Value>(text)
            .with_context(|| format!("cannot read --time-interval {text:?}: it is not JSON"))
    });
    let mut body = json!({
        "matchers": options.matchers,
        "time_intervals": intervals.collect::<Result<Vec<_>>>()?,
        "comment": options.comment,
    });
    if options.corrects_slos {
        body["corrects_slos"] = json!(true);
    }
    let author = options.author.name();
    let optional = [
        ("for", &options.length),
        ("starts_at", &options.from),
        ("ends_at", &options.to),
        ("author", &author),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let body = body.to_string();
    let answer = options.server.post("/v1/silences", "application/json", body.into())?;
    let id = answer["silence"]["id"].as_str().context("unexpected response of /v1/silences")?;
    print_stdout(format!("{id}\n").as_bytes())?;
    let get = |path: &str| options.server.get(path, RequestParameters::default());
    if let (Ok(alerts), Ok(rules)) = (get("/v1/alerts"), get("/api/v1/rules")) {
        unmatched_texts(&options.matchers, &alerts, &rules).iter().for_each(print_message);
    }
    Ok(ExitCode::SUCCESS)
}

/// Matchers with `=` whose label no active alert has and no rule sets, such as a misspelt
/// `slo=chekout`. None are named if an alert has all of them.
fn unmatched_texts(matchers: &[String], alerts: &Value, rules: &Value) -> Vec<String> {
    let exact = matchers.iter().filter_map(|matcher| {
        let (label, value) = matcher.split_once('=')?;
        let is_exact = !label.ends_with('!') && !value.starts_with('~');
        is_exact.then(|| (label.trim(), value.trim().trim_matches('"')))
    });
    let exact: Vec<(&str, &str)> = exact.collect();
    let items = |list: &'_ Value| list.as_array().cloned().unwrap_or_default();
    let active: Vec<Value> = items(&alerts["alerts"]);
    let has_all =
        |alert: &Value| exact.iter().all(|(label, value)| alert["labels"][*label] == **value);
    if active.iter().any(has_all) {
        return Vec::new();
    }
    let groups = items(&rules["data"]["groups"]);
    let rules: Vec<Value> = groups.iter().flat_map(|group| items(&group["rules"])).collect();
    let unmatched = exact.into_iter().filter_map(|(label, value)| {
        let of_labels = active.iter().chain(&rules).map(|one| &one["labels"][label]);
        let names = rules.iter().filter(|_| label == "alertname").map(|rule| &rule["name"]);
        let known: Vec<&str> = of_labels.chain(names).filter_map(Value::as_str).collect();
        if known.contains(&value) {
            return None;
        }
        let max = 1 + value.chars().count().min(40) / 3;
        let near = known.iter().filter_map(|name| Some((edit_distance(value, name, max)?, name)));
        let near = near.min().map_or_else(String::new, |(_, name)| {
            format!("; did you mean {label}={}?", escape_control(name))
        });
        let label = escape_control(&format!("{label}={value}"));
        Some(format!("no alert has {label} now, and no rule sets it{near}"))
    });
    unmatched.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matcher_that_no_alert_and_no_rule_has_is_named() {
        let alerts = json!({"alerts": [{"labels": {"alertname": "Slow", "host": "db1"}}]});
        let rules = json!({"data": {"groups": [{"rules": [
            {"name": "Slow", "labels": {"severity": "page"}},
            {"name": "Burn", "labels": {"slo": "checkout"}},
        ]}]}});
        let check = |matchers: &[&str], expected: &[&str]| {
            let matchers: Vec<String> = matchers.iter().map(|one| (*one).to_owned()).collect();
            assert_eq!(unmatched_texts(&matchers, &alerts, &rules), expected, "{matchers:?}");
        };
        check(
            &["slo=chekout"],
            &["no alert has slo=chekout now, and no rule sets it; did you mean slo=checkout?"],
        );
        check(&["host=db1", "alertname=\"Slow\""], &[]);
        check(&["slo=checkout", "alertname=Burn", "severity!=page", "slo=~chek.*"], &[]);
        check(&["zone=a"], &["no alert has zone=a now, and no rule sets it"]);
    }
}
