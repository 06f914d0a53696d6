//! `topdeck journal seek`: moves a subscriber.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use client::print_stdout;
use journal::{CheckpointKind, StartPosition};
use report::journal_format;

use crate::journal::{open_read_only, parse, with_dir};
use render::text::escape_control;
use render::text::shell_quote;

/// Move a subscriber to another position
///
/// Records between the old and the new position are read again, or are skipped. The subscriber must
/// not be in use.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Name of the subscriber
    #[arg(value_name = "SUBSCRIBER")]
    name: String,

    /// Target: begin, end, a position, or the name of a checkpoint or of another subscriber
    #[arg(long, value_name = "POSITION", required = true)]
    to: String,
}

const AFTER: &str = "\
Examples:
  topdeck journal seek j store --to begin
  topdeck journal seek j store --to 1000
  topdeck journal checkpoint j before-release --at end   … and later:
  topdeck journal seek j store --to before-release

Exit status:
  0  the position is durable
  1  subscriber or target not found, or the subscriber is in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (dir, name) = (&options.dir, &options.name);
    let journal = open_read_only(dir)?;
    let before = journal.checkpoint(name).map_err(with_dir(dir))?;
    if before.kind == CheckpointKind::Plain {
        bail!(
            "{}: checkpoint {name:?} is not a subscriber; move it with `topdeck journal \
             checkpoint {} {name} --at …`",
            dir.display(),
            shell_quote(dir)
        );
    }
    let start = match parse::parse_start(&options.to) {
        Ok(start) => start,
        Err(_) => {
            StartPosition::At(journal.checkpoint(&options.to).map_err(with_dir(dir))?.position)
        }
    };
    let after = journal.set_checkpoint(name, start).map_err(with_dir(dir))?;
    let (from, to) = (before.position, after.position);
    let what = if to < from {
        let watermarks = journal.watermarks();
        // Records passed may have been dropped since, but not retained ones.
        let again = journal_format::format_records(from.min(watermarks.end) - to);
        format!("{again} will be read again")
    } else if to > from {
        format!("{} will be skipped", journal_format::format_records(to - from))
    } else {
        "unchanged".to_owned()
    };
    print_stdout(
        format!("{}: position {from} -> {to}; {what}\n", escape_control(name)).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}
