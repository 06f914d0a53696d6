//! `topdeck rules`: rule files of Prometheus and their tests.

mod check;
mod replay;
mod test;

use std::process::ExitCode;

use crate::subcommand_table::subcommands;

/// Check, test and replay rule files
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    Check(check::Options) => check::run,
    Replay(replay::Options) => replay::run,
    Test(test::Options) => test::run,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    options.subcommand.run()
}
