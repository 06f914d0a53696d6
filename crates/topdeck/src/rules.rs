//! `topdeck rules`: rule files of Prometheus and their tests.

mod check;
mod test;

use std::process::ExitCode;

use crate::subcommand_table::subcommands;

/// Check and test rule files
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    Check(check::Options) => check::run,
    Test(test::Options) => test::run,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    options.subcommand.run()
}
