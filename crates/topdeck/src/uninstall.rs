//! `topdeck uninstall`: removes what `topdeck install` made.

use std::path::PathBuf;
use std::process::ExitCode;

use ::install::UninstallOptions;
use anyhow::Result;

use crate::crash::uninstall_with_program;

/// Remove the agent that `topdeck install` installed, with its data and its token
///
/// Data that the server has not received yet are lost.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Print each step and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Directory of the installation, as for `topdeck install`
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

const AFTER: &str = "\
Example:
  topdeck uninstall --dry-run

Exit status:
  0  removed
  1  error, or nothing is installed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (root, is_dry_run) = (options.root.clone(), options.dry_run);
    // The kernel would start a program that is gone.
    if root.is_none() {
        uninstall_with_program(is_dry_run)?;
    }
    ::install::uninstall(&UninstallOptions { root, is_dry_run })?;
    Ok(ExitCode::SUCCESS)
}
