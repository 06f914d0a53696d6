//! `topdeck doctor`: what this machine is like, measured.

mod clock;
mod interference;
mod readers;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Measure what this machine does to measurements
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: DoctorCommand,
}

#[derive(Subcommand)]
enum DoctorCommand {
    Clock(clock::Options),
    Interference(interference::Options),
    Viewers(readers::Options),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.subcommand {
        DoctorCommand::Clock(options) => clock::run(options),
        DoctorCommand::Interference(options) => interference::run(options),
        DoctorCommand::Viewers(options) => readers::run(options),
    }
}
