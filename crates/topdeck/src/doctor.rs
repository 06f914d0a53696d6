//! `topdeck doctor`: what this machine is like, measured.

mod clock;
mod interference;
mod viewers;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Measure what this machine does to measurements
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Clock(clock::Options),
    Interference(interference::Options),
    Viewers(viewers::Options),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Clock(options) => clock::run(options),
        What::Interference(options) => interference::run(options),
        What::Viewers(options) => viewers::run(options),
    }
}
