//! `cargo xtask golden`: rewrites what golden tests expect; a person then reviews the diff.

use std::process::ExitCode;

use anyhow::Result;

use crate::line::{Line, TESTS};

/// Run the tests and write what they print as what they expect.
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn run(_: &Options) -> Result<ExitCode> {
    Line::new(TESTS).env("UPDATE_EXPECT", "1").run("golden")?;
    println!("== golden: now read the diff");
    Line::new("git status --short").run("golden")?;
    Ok(ExitCode::SUCCESS)
}
