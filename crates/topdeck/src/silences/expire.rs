//! `topdeck silences expire`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient};
use http::Method;

/// End silences now: contacts are notified of alerts that still fire
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Ids, as `topdeck silences list` prints them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck silences expire 0b2f3c1e-7d44-4b0e-9a51-3c8f5f0d6a10

A server requires a token with the scope alerts, except on loopback.

Exit status:
  0  the silences have ended, durably; also if they had ended before
  1  no such silence, or the server was not reached
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for id in &options.ids {
        if !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            bail!("cannot expire silence {id:?}: not an id; see `topdeck silences list`");
        }
        let path = format!("/v1/silences/{id}");
        options.server.request(Method::DELETE, &path, RequestParameters::default())?;
    }
    Ok(ExitCode::SUCCESS)
}
