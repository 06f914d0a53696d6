//! `topdeck rules list`: the rules of a server with their states.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{RequestParameters, ServerClient, print_stdout};
use report::rules_text;

/// List the rules of a server with their states
///
/// One line per rule: its state, the number of its pending and firing alerts, its group, and why
/// its last evaluation failed, or that its selectors had no data in the last day. Then the problems
/// of rule files, whose rules are not evaluated.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Print JSON, as `/api/v1/rules` responds
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck rules list
  topdeck rules list --server https://north.example:7717 --token-file token --json

Exit status:
  0  the rules are listed
  1  the server was not reached
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let answer = options.server.get("/api/v1/rules", RequestParameters::default())?;
    let text = match options.json {
        true => format!("{answer}\n"),
        false => rules_text(&answer).context("unexpected response of /api/v1/rules")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
