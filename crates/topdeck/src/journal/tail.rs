//! `topdeck journal tail`: the last records, and those that come.

use std::process::ExitCode;

use anyhow::Result;
use journal::StartPosition;

use crate::journal::open_read_only;
use crate::journal::record_output::{self, RecordOutput, RecordSource, StopReason};

/// Write the last records, and with --follow those that come
///
/// Follows without polling, across restarts of those who append. Ends when nobody reads its output
/// any more, or by a signal; with --subscriber the next run goes on where this one was.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    output: record_output::Options,

    /// How many of the last records to begin with
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 10,
        conflicts_with = "subscriber"
    )]
    lines: u64,

    /// Wait for more, and write it as it comes
    #[arg(short, long)]
    follow: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal tail j
  topdeck journal tail -f -n 0 j | grep ERROR
  topdeck journal tail -f j --subscriber store --durability disk >> store.txt

Exit status:
  0  all was written, or nobody reads on
  1  the journal could not be read, or standard output not written
  2  usage error
  3  all was written that is there, and records were missing; standard error says which";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.output.dir)?;
    let end = record_output::end_position(&journal, options.output.durability);
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
