//! `topdeck slo`: budgets of the service level objectives of a server.

mod list;
mod show;

use std::process::ExitCode;

use crate::subcommand_table::subcommands;

/// Show service level objectives and their budgets
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Option<Command>,

    #[command(flatten)]
    list: list::ListOptions,
}

subcommands! {
    Command:
    /// Show all objectives, as without a subcommand
    List(list::ListOptions) => list::run,
    Show(show::Options) => show::run,
}

const AFTER: &str = "\
Examples:
  topdeck slo
  topdeck slo --csv > slos.csv
  topdeck slo show checkout --threshold 300ms
  topdeck slo show checkout --from -90d --json

Exit status:
  0  success
  1  the server was not reached
  2  usage error
  3  a budget is spent";

/// Exit status if a budget is spent.
const SPENT: u8 = 3;

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.subcommand {
        Some(subcommand) => subcommand.run(),
        None => list::run(&options.list),
    }
}
