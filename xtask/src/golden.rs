//! `cargo xtask golden`: rewrites expected outputs of golden tests; review the diff.

use std::process::ExitCode;

use anyhow::Result;

use crate::command_line::CommandLine;
use crate::part_log::PartLog;
use crate::suite;

/// Run the tests and store their output as the expected output
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<ExitCode> {
    let log = PartLog::console("golden");
    suite::write_golden(&log)?;
    log.note("review the diff");
    CommandLine::new("git status --short").run(&log)?;
    Ok(ExitCode::SUCCESS)
}
