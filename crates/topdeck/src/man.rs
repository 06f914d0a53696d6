//! `topdeck man DIR`: man pages, generated from the same source as `--help`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::command;

/// Write the man pages, one per subcommand
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory of the pages, created if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let dir = &options.dir;
    let written = || format!("cannot write the manual to {}", dir.display());
    fs::create_dir_all(dir).with_context(written)?;
    // The title names the version alone, not the build.
    let mut command = command::clap_command()
        .long_version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true);
    command.build();
    clap_mangen::generate_to(command, dir).with_context(written)?;
    Ok(ExitCode::SUCCESS)
}
