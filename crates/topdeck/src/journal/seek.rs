//! `topdeck journal seek`: moves a subscriber.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use journal::{CheckpointKind, StartPosition};

use crate::command::print_stdout;
use crate::journal::{format, open_read_only, parse, with_dir};
use render::text::escape_control;
use render::text::shell_quote;

/// Move a subscriber to another position
///
/// What lies between the old place and the new one comes again, or is skipped. Nobody may be
/// reading as this subscriber meanwhile.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The journal's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The subscriber
    #[arg(value_name = "SUBSCRIBER")]
    name: String,

    /// Where to: begin, end, a position, or the name of a checkpoint or of another subscriber
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
  0  it is there, durably
  1  there is no such subscriber or place, or somebody is reading as it
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (dir, name) = (&options.dir, &options.name);
    let journal = open_read_only(dir)?;
    let before = journal.checkpoint(name).map_err(with_dir(dir))?;
    if before.kind == CheckpointKind::Bookmark {
        bail!(
            "{}: {name:?} is a checkpoint, not a subscriber; `topdeck journal checkpoint {} \
             {name} --at …` moves it",
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
        let marks = journal.watermarks();
        // What was passed may have been dropped since, but not what is kept.
        let again = format::format_records(from.min(marks.end) - to);
        format!("{again} will come again")
    } else if to > from {
        format!("{} will be skipped", format::format_records(to - from))
    } else {
        "it was there already".to_owned()
    };
    print_stdout(
        format!("{}: position {from} -> {to}; {what}\n", escape_control(name)).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}
