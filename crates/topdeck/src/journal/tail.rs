//! `topdeck journal tail`: writes the last records, and new ones.

use std::process::ExitCode;

use anyhow::Result;
use journal::StartPosition;

use crate::journal::open_read_only;
use crate::journal::record_output::{self, RecordOutput, RecordSource, StopReason};

/// Print the last records; with --follow, wait for new ones
///
/// Follows without polling, across restarts of appending processes. Ends when the reader of
/// standard output closes it, or by a signal. With --subscriber the next run continues where this
/// one stopped.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    output: record_output::Options,

    /// Number of records to start with
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 10,
        conflicts_with = "subscriber"
    )]
    lines: u64,

    /// Wait for new records
    #[arg(short, long)]
    follow: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal tail j
  topdeck journal tail -f -n 0 j | grep ERROR
  topdeck journal tail -f j --subscriber store --durability disk >> store.txt

Exit status:
  0  all records were written, or standard output was closed
  1  the journal could not be read, or standard output could not be written
  2  usage error
  3  all existing records were written, and some were missing; standard error has the reasons";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.output.dir)?;
    let end = record_output::level_end(&journal, options.output.durability);
    let from = end.saturating_sub(options.lines).max(record_output::first_position(&journal));
    let mut source = RecordSource::new(&options.output, &journal, StartPosition::At(from))?;
    let mut output = RecordOutput::new(&options.output)?;
    let to = if options.follow { u64::MAX } else { end };
    while output.write(&mut source, to)? == StopReason::EndOfData && options.follow {
        if !output.wait(&mut source)? {
            return Ok(ExitCode::SUCCESS);
        }
    }
    output.finish(source)
}
