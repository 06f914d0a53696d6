//! `topdeck alerts`: active alerts of a server, their acknowledgement, and their end by hand.

mod acknowledge;
mod history;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{ServerClient, print_stdout};
use report::alerts_text;

use crate::subcommand_table::subcommands;
pub(crate) use acknowledge::AuthorArgument;

/// Show the active alerts of a server, acknowledge and clear them
///
/// One line per pending or firing alert: severity, since when, value and threshold, what the
/// condition is, and why the alert is in its state if that is more than the condition. Then
/// the rules whose selectors had no data in the last day, with the nearest name. The first line is
/// the status light: red with the number of firing alerts that nobody acknowledged; amber with the
/// number of pending, acknowledged and unknown ones and of rules that fail; or green.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Option<Command>,

    #[command(flatten)]
    list: ListOptions,
}

// No doc comment: it would replace the description of `topdeck alerts`.
#[derive(clap::Args)]
struct ListOptions {
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
    /// Show the active alerts, as without a subcommand
    List(ListOptions) => list,
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
    match &options.subcommand {
        Some(subcommand) => subcommand.run(),
        None => list(&options.list),
    }
}

fn list(options: &ListOptions) -> Result<ExitCode> {
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
