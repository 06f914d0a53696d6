//! `topdeck snapshot`: snapshot of the store of a running topdeck.

use std::process::ExitCode;

use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};
use http::Method;

use render::text::escape_control;

/// Create a snapshot of a running topdeck
///
/// The snapshot is created in the directory `snapshots` of the data directory. It takes no space
/// until the store changes, and contains everything acknowledged before. `topdeck restore` creates
/// a data directory from it. For a store that is not in use there is `topdeck store snapshot`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Name of the snapshot
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Example:
  topdeck snapshot before-the-upgrade

Exit status:
  0  the snapshot is durable
  1  the snapshot could not be created
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let parameters = RequestParameters::default().with("name", &options.name);
    let response = options.server.request(Method::POST, "/v1/snapshots", parameters)?;
    let dir = response["path"].as_str().unwrap_or("the directory of snapshots");
    print_stdout(format!("created a snapshot in {}\n", escape_control(dir)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
