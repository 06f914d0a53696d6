//! `topdeck snapshot`: a copy of a running topdeck's store, which goes on running.

use std::process::ExitCode;

use anyhow::Result;
use http::Method;

use crate::command::print_stdout;
use crate::server_client;
use render::text::escape_control;

/// Make a snapshot of a running topdeck
///
/// The copy is made in the folder `snapshots` of what it keeps, takes no room until the two differ,
/// and holds all that was acknowledged before. `topdeck restore` makes a running topdeck of it
/// again. For a store that is not in use there is `topdeck store snapshot`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The snapshot's name
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    server: server_client::ServerClient,
}

const AFTER: &str = "\
Example:
  topdeck snapshot before-the-upgrade

Exit status:
  0  the snapshot is there, durably
  1  it could not be made
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let name: String = options
        .name
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let made = options.server.request(Method::POST, &format!("/v1/snapshots?name={name}"))?;
    let folder = made["path"].as_str().unwrap_or("its folder of snapshots");
    print_stdout(format!("made a snapshot in {}\n", escape_control(folder)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
