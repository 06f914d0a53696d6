//! `topdeck journal cat`: writes the existing records to standard output.

use std::process::ExitCode;

use anyhow::{Result, bail};
use journal::StartPosition;

use crate::journal::record_output::{self, RecordOutput, RecordSource};
use crate::journal::{exit_with_usage_error, open_read_only, parse};

/// Print records, one per line
///
/// Prints the records that exist at the start of the command, from the first retained record. A
/// record may contain newlines; --null ends records with a zero byte instead.
/// With --subscriber it prints what this subscriber has not read, and advances its position.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(flatten)]
    output: record_output::Options,

    /// First record: begin, end, or a position
    #[arg(long, value_name = "POSITION", value_parser = parse::parse_start, conflicts_with = "subscriber",
        default_value = "begin")]
    from: StartPosition,

    /// End: begin, end (of the current records), or the position after the last record
    #[arg(long, value_name = "POSITION", value_parser = parse::parse_start, default_value = "end")]
    to: StartPosition,
}

const AFTER: &str = "\
Examples:
  topdeck journal cat j
  topdeck journal cat j --from 1000 --to 2000 --positions
  topdeck journal cat j --subscriber store --durability disk >> store.txt
  topdeck journal cat j | topdeck journal append copy --create

Missing records (dropped by retention, or damaged) are reported on standard error when their
position is reached: their number, positions, reason, time and producers.

Exit status:
  0  all records were written
  1  the journal could not be read, or standard output could not be written
  2  usage error
  3  all existing records were written, and some were missing";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.output.dir)?;
    let mut source = RecordSource::new(&options.output, &journal, options.from)?;
    let end = record_output::level_end(&journal, options.output.durability);
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
    // A subscriber may have read beyond --to already; the end that was asked for by its name may be
    // behind --from end, as records are not durable at once.
    let start = source.position();
    if to < start && options.output.subscriber.is_none() && options.to != StartPosition::End {
        exit_with_usage_error(
            "cat",
            format!("--to is position {to}, before --from, {start}; exchange them"),
        );
    }
    let mut output = RecordOutput::new(&options.output)?;
    output.write(&mut source, to)?;
    output.finish(source)
}
