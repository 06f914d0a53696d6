//! `topdeck journal rewind`: a subscriber's place, moved by hand.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use journal::{Kind, Start};

use crate::command::{plain, print};
use crate::journal::{open_to_read, parse, show, told};

/// Move a subscriber back, or forward
///
/// What lies between the old place and the new one comes again, or is skipped. Nobody may be reading
/// as this subscriber meanwhile.
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
    #[arg(long, value_name = "PLACE", required = true)]
    to: String,
}

const AFTER: &str = "\
Examples:
  topdeck journal rewind j store --to begin
  topdeck journal rewind j store --to 1000
  topdeck journal checkpoint j before-release --at end   … and later:
  topdeck journal rewind j store --to before-release

Exit status:
  0  it is there, durably
  1  there is no such subscriber or place, or somebody is reading as it
  2  the command line makes no sense";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (dir, name) = (&options.dir, &options.name);
    let journal = open_to_read(dir)?;
    let before = journal.checkpoint(name).map_err(told(dir))?;
    if before.kind == Kind::Mark {
        bail!(
            "{}: {name:?} is a checkpoint, not a subscriber; `topdeck journal checkpoint {} {name} --at …` moves it",
            dir.display(),
            show::typed(dir)
        );
    }
    let start = match parse::start(&options.to) {
        Ok(start) => start,
        Err(_) => Start::At(journal.checkpoint(&options.to).map_err(told(dir))?.position),
    };
    let after = journal.set_checkpoint(name, start).map_err(told(dir))?;
    let (from, to) = (before.position, after.position);
    let what = if to < from {
        let marks = journal.marks();
        // What was passed may have been dropped since, but not what is kept.
        let again = show::records(from.min(marks.end) - to);
        format!("{again} will come again")
    } else if to > from {
        format!("{} will be skipped", show::records(to - from))
    } else {
        "it was there already".to_owned()
    };
    print(format!("{}: position {from} -> {to}; {what}\n", plain(name)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
