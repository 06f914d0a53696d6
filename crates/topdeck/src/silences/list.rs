//! `topdeck silences list`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{RequestParameters, ServerClient, print_stdout};
use report::silences_text;

/// List silences: active ones, then those that will be active
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// List expired ones too, which are kept for 5 days
    #[arg(long)]
    expired: bool,

    /// Print JSON, as `/v1/silences` responds
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck silences list
  topdeck silences list --expired --json

Exit status:
  0  the silences are printed
  1  the server was not reached
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut answer = options.server.get("/v1/silences", RequestParameters::default())?;
    if !options.expired
        && let Some(silences) = answer["silences"].as_array_mut()
    {
        silences.retain(|silence| silence["state"] != "expired");
    }
    let text = match options.json {
        true => format!("{answer}\n"),
        false => silences_text(&answer).context("unexpected response of /v1/silences")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
