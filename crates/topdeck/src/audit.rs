//! `topdeck audit`: reconciliation of received, stored and lost samples.

use std::process::ExitCode;

use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};

/// Reconcile received, stored and lost samples per producer and stage
///
/// A producer is a source, a client or an agent. A stage is the journal, the store or a remote. The
/// audit shows for each stage how many values the previous stage sent, how many this stage has, and
/// the reason of a difference.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    server: ServerClient,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck audit
  topdeck audit --server https://north.example:7717 --token-file token

Exit status:
  0  every difference is zero or has a reason
  1  the request to topdeck failed
  2  usage error
  3  a difference has no reason";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let audit = options.server.get("/v1/audit", RequestParameters::default())?;
    let text = if options.json { format!("{audit}\n") } else { report::audit_text(&audit) };
    print_stdout(text.as_bytes())?;
    Ok(if audit["reconciled"].as_bool() == Some(true) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    })
}
