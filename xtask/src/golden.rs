//! `cargo xtask golden`: rewrites what golden tests expect; a person then reviews the diff.

use std::process::ExitCode;

use anyhow::Result;

use crate::line::Line;
use crate::log::Log;
use crate::suite;

/// Run the tests and write what they print as what they expect.
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<ExitCode> {
    let log = Log::console("golden");
    suite::write_golden(&log)?;
    log.note("now read the diff");
    Line::new("git status --short").run(&log)?;
    Ok(ExitCode::SUCCESS)
}
