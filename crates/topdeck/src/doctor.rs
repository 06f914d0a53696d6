//! `topdeck doctor`: measurements of this machine, and checks of its servers.

mod checks;
mod clock;
mod overhead;
mod postgres;
mod readers;

use std::process::ExitCode;

use anyhow::Result;

use crate::subcommand_table::subcommands;

/// Measure this machine: clock, overhead, process table; or try checks and PostgreSQL
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: DoctorCommand,
}

subcommands! {
    DoctorCommand:
    Checks(checks::Options) => checks::run,
    Clock(clock::Options) => clock::run,
    Overhead(overhead::Options) => overhead::run,
    Postgres(postgres::Options) => postgres::run,
    Readers(readers::Options) => readers::run,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}
