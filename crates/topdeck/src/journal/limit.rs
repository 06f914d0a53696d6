//! `topdeck journal limit`: how much is kept, changed later.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use journal::{AtLimit, Limits};

use crate::command::print;
use crate::journal::parse::{self, AtMost};
use crate::journal::{open_to_read, show, told};

/// Show or change how much a journal keeps
///
/// Processes that have it open follow when they open it next.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The journal's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// How much may be kept, at least two segments; none: as much as the disk holds
    #[arg(long, value_name = "SIZE|none", value_parser = parse::size_limit)]
    max_bytes: Option<AtMost<u64>>,

    /// How long records may be kept, such as 7d; none: for ever
    #[arg(long, value_name = "TIME|none", value_parser = parse::age_limit)]
    max_age: Option<AtMost<Duration>>,

    /// What happens at a limit when somebody still needs the oldest records
    #[arg(long, value_parser = parse::at_limit())]
    at_limit: Option<AtLimit>,
}

const AFTER: &str = "\
Examples:
  topdeck journal limit j
  topdeck journal limit j --max-bytes 20GiB
  topdeck journal limit j --max-age 7d --at-limit drop-oldest

Exit status:
  0  it is shown, or changed durably
  1  there is no journal, or the limit is too low
  2  the command line makes no sense";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_to_read(&options.dir)?;
    let before = journal.stat().map_err(told(&options.dir))?.settings.limits;
    let limits = Limits {
        bytes_max: options.max_bytes.map_or(before.bytes_max, |most| most.0),
        age_max: options.max_age.map_or(before.age_max, |most| most.0),
        at_limit: options.at_limit.unwrap_or(before.at_limit),
    };
    if limits != before {
        journal.set_limits(limits).map_err(told(&options.dir))?;
    }
    print(format!("it keeps {}\n", show::limits(&limits)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
