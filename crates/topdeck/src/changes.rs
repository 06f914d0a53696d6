//! `topdeck changes`: series that vanished, and what replaced them.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use client::{RequestParameters, ServerClient, print_stdout};
use render::text::escape_control;
use report::changes_text;
use serde_json::Value;

use crate::time::{self, TimeExpr};

/// List series that vanished from a server and what replaced them, or accept such a change
///
/// A series has vanished when it sent nothing for five of its intervals. New series of the same
/// source and name are matched with it by their labels, so that a label that was dropped or renamed
/// is one line. Charts show the changes, too.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Start of the list: 2026-11-09T12:30:00Z, -2d [default: a week ago]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// Leave out changes that somebody accepted
    #[arg(long)]
    open: bool,

    /// Accept the change with this id
    #[arg(long, value_name = "ID", conflicts_with_all = ["from", "open"])]
    accept: Option<String>,

    /// Note of the acceptance
    #[arg(long, value_name = "TEXT", requires = "accept")]
    note: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck changes --open
  topdeck changes --accept 5d4140c8e2f9b1a7 --note 'load balancers were merged'

A server requires a token with the scope read (ingest, to accept), except on loopback.

Exit status:
  0  the changes were listed, or the change is accepted
  1  the server was not reached, or it knows no such change
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let answer = match &options.accept {
        Some(id) => accept(options, id)?,
        None => list(options)?,
    };
    let text = match (options.json, &options.accept) {
        (true, _) => format!("{answer}\n"),
        (false, Some(_)) => {
            let text = answer["change"]["text"].as_str().context("unexpected response")?;
            format!("accepted: {}\n", escape_control(text))
        }
        (false, None) => changes_text(&answer).context("unexpected response of /v1/changes")?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn accept(options: &Options, id: &str) -> Result<Value> {
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        bail!("invalid id {id:?}; `topdeck changes` lists the ids");
    }
    let body = serde_json::json!({"note": options.note.clone().unwrap_or_default()});
    let path = format!("/v1/changes/{id}/accept");
    options.server.post(&path, "application/json", Bytes::from(body.to_string()))
}

fn list(options: &Options) -> Result<Value> {
    let now = journal::wall_clock()();
    let mut parameters = RequestParameters::default();
    if let Some(from) = options.from {
        parameters = parameters.with_ns("from", from.to_unix_ns(now));
    }
    if options.open {
        parameters = parameters.with("open", "true");
    }
    options.server.get("/v1/changes", parameters)
}
