//! `topdeck journal stat`: state of a journal, with remedies.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::print_stdout;
use journal::{Error, Level};
use report::journal_stat::{stat_json, stat_text};

use crate::journal::{try_open, with_dir};

/// Show the state of a journal: records, segments, limits, subscribers, gaps
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal stat j
  topdeck journal stat j --json | jq '.checkpoints[] | {name, lag}'

Exit status:
  0  success
  1  journal not found, or it cannot be opened
  2  usage error";

/// Time that a healthy process needs to write the buffer to a segment.
const WAIT: Duration = Duration::from_millis(500);

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let open = journal::Options { append_timeout: WAIT, ..journal::Options::default() };
    let journal = try_open(&options.dir, &open).map_err(with_dir(&options.dir))?;
    let mut stat = journal.stat().map_err(with_dir(&options.dir))?;
    let mut stalled = false;
    if stat.full_reason.is_none()
        && !stat.is_failed
        && stat.watermarks.flushed < stat.watermarks.end
    {
        // A reason that the journal is full or stopped is not known yet after opening it; a flush
        // detects it.
        match journal.flush(Level::Process) {
            Err(Error::Full(full)) => stat.full_reason = Some(full),
            Err(Error::AppendTimeout { .. }) => stalled = true,
            Ok(_) | Err(_) => {}
        }
    }
    let text = match options.json {
        true => format!("{}\n", stat_json(&stat)),
        false => stat_text(&options.dir, &stat, stalled),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
