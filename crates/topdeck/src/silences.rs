//! `topdeck silences`: silences and maintenance windows of a server.

mod add;
mod expire;
mod list;

use std::process::ExitCode;

use anyhow::Result;

use crate::subcommand_table::subcommands;

/// List, add and expire silences and maintenance windows of a server
///
/// Alerts that a silence matches are not sent. When it ends, contacts are notified of those that
/// still fire. A silence that recurs is a maintenance window.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    List(list::Options) => list::run,
    Add(add::Options) => add::run,
    Expire(expire::Options) => expire::run,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}
