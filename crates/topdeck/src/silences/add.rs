//! `topdeck silences add`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use client::{ServerClient, print_stdout};
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
    Ok(ExitCode::SUCCESS)
}
