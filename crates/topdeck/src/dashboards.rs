//! `topdeck dashboards`: dashboards of the page. `import` converts those of Grafana.

mod import;

use std::process::ExitCode;

use crate::subcommand_table::subcommands;

/// Import dashboards of Grafana
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

subcommands! {
    Command:
    Import(import::Options) => import::run,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    options.subcommand.run()
}
