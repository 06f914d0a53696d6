//! `topdeck journal cat`: the records there are, to standard output.

use std::process::ExitCode;

use anyhow::{Result, bail};
use journal::StartPosition;

use crate::journal::record_output::{self, RecordOutput, RecordSource};
use crate::journal::{open_read_only, parse};

/// Write records to standard output, each on a line
///
/// Writes what is in the journal when it starts, from the first record kept. With --subscriber it
/// writes what this subscriber has not read, and moves its place.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    output: record_output::Options,

    /// Where to start: begin, end, or a position
    #[arg(long, value_name = "POSITION", value_parser = parse::parse_start, conflicts_with = "subscriber",
        default_value = "begin")]
    from: StartPosition,

    /// Where to end: end (of what is there now), or the position after the last
    #[arg(long, value_name = "POSITION", value_parser = parse::parse_start, default_value = "end")]
    to: StartPosition,
}

const AFTER: &str = "\
Examples:
  topdeck journal cat j
  topdeck journal cat j --from 1000 --to 2000 --positions
  topdeck journal cat j --subscriber store --durability disk >> store.txt
  topdeck journal cat j | topdeck journal append copy --create

Records that are missing (dropped at a limit, or damaged) are told on standard error, where they
would stand: their number, positions, reason, time and producers.

Exit status:
  0  all was written
  1  the journal could not be read, or standard output not written
  2  usage error
  3  all was written that is there, and records were missing";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.output.dir)?;
    let mut source = RecordSource::new(&options.output, &journal, options.from)?;
    let end = record_output::end_position(&journal, options.output.durability);
    let to = match options.to {
        StartPosition::First => record_output::first_position(&journal),
        StartPosition::End => end,
        StartPosition::At(position) if position <= end => position,
        StartPosition::At(position) => bail!(
            "{}: --to {position} is beyond the end, {end}; `topdeck journal tail --follow` waits \
             for more",
            record_output::display_name(&options.output.dir)
        ),
    };
    let mut output = RecordOutput::new(&options.output)?;
    output.write(&mut source, to)?;
    output.finish(source)
}
