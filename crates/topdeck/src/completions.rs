//! `topdeck completions SHELL`: completion scripts.

use std::process::ExitCode;

use anyhow::Result;
use clap_complete::Shell;
use client::print_stdout;

use crate::command;

/// Print a completion script for a shell
///
/// Load it from where your shell looks, for instance:
///   topdeck completions bash > ~/.local/share/bash-completion/completions/topdeck
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command::clap_command(), "topdeck", &mut script);
    print_stdout(&script)?;
    Ok(ExitCode::SUCCESS)
}
