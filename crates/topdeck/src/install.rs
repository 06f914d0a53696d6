//! `topdeck install`: the agent on this host.

use std::path::PathBuf;
use std::process::ExitCode;

use ::install::InstallOptions;
use anyhow::Result;

/// Install the agent on this host and enroll it at a server
///
/// The script that a server has at /install.sh runs it: `topdeck token DIR enroll` on the server
/// prints the line to paste. The program copies itself to /usr/local/bin, exchanges the enrollment
/// token for a token of this host, writes settings with a source for each program that it knows,
/// starts the agent, and waits until the server has received a batch. If a step fails, all of them
/// are undone. A second run updates the program and changes nothing else.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// URL of the server
    #[arg(long, value_name = "URL")]
    server: String,

    /// Public key of the server, as for curl's --pinnedpubkey; repeatable [default: the CAs of the
    /// system]
    #[arg(long = "pin", value_name = "PIN")]
    pins: Vec<String>,

    /// Name of this host [default: its hostname]
    #[arg(long)]
    name: Option<String>,

    /// Open no port: programs of this host cannot send to the agent
    #[arg(long)]
    no_listen: bool,

    /// Print each step and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Install below a directory, as the current user, without systemd
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

const AFTER: &str = "\
The enrollment token is in the environment variable TOPDECK_ENROLLMENT_TOKEN, or typed in.

Examples:
  topdeck install --server https://north.example:7717
  topdeck install --server https://north.example:7717 --dry-run

Exit status:
  0  installed, or up to date
  1  error; nothing is left
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ::install::install(&InstallOptions {
        server: options.server.clone(),
        pins: options.pins.clone(),
        name: options.name.clone(),
        root: options.root.clone(),
        no_listen: options.no_listen,
        is_dry_run: options.dry_run,
    })?;
    Ok(ExitCode::SUCCESS)
}
