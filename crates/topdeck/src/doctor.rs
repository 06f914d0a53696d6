//! `topdeck doctor`: what this machine is like, measured.

mod clock;
mod interference;
mod readers;

use std::process::ExitCode;

use anyhow::Result;

use crate::command::subcommands;

/// Measure what this machine does to measurements
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: DoctorCommand,
}

subcommands! {
    DoctorCommand:
    Clock(clock::Options) => clock::run,
    Interference(interference::Options) => interference::run,
    Readers(readers::Options) => readers::run,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}
