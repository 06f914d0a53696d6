//! `topdeck rules`: rule files and their tests, and the rules of a server.

mod check;
mod list;
mod replay;
mod test;

use std::process::ExitCode;

use crate::subcommand_table::subcommands;

/// Check, test and replay rule files, list rules
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    Check(check::Options) => check::run,
    List(list::Options) => list::run,
    Replay(replay::Options) => replay::run,
    Test(test::Options) => test::run,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    options.subcommand.run()
}
