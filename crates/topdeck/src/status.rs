//! `topdeck status`: whether a server needs action, and what it holds.

use std::process::ExitCode;

use crate::overview::alarms_of_server;
use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};
use render::terminal::Terminal;
use report::{StatusProblem, status_problems, status_text};
use serde_json::{Value, json};

/// Show whether a server needs action
///
/// Begins with what needs action, as the page's view Status does: first what loses or rejects data,
/// then targets that are down, sources that are silent and remotes that do not accept data, then
/// firing alerts of severity page and spent error budgets. Then uptime, disk, series and journal.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck status
  topdeck status --server https://north.example:7717 --token-file token --json | jq .problems

Exit status:
  0  nothing needs action
  1  the server was not reached
  2  usage error
  3  something needs action";

/// Exit status if something needs action.
const NEEDS_ACTION: u8 = 3;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let status = options.server.get("/v1/status", RequestParameters::default())?;
    let mut problems = status_problems(&status);
    problems.extend(alarms_of_server(&options.server).problems());
    let text = match options.json {
        true => {
            let listed: Vec<Value> = problems.iter().map(to_json).collect();
            format!("{}\n", json!({"schema": 1, "problems": listed}))
        }
        false => status_text(&status, &problems, &Terminal::new(false)),
    };
    print_stdout(text.as_bytes())?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NEEDS_ACTION) })
}

fn to_json(StatusProblem { what, action }: &StatusProblem) -> Value {
    json!({"what": what, "action": action})
}
