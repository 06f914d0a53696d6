//! `topdeck journal limit`: how much is kept, changed later.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use journal::{LimitPolicy, Limits};

use crate::command::print_stdout;
use crate::journal::parse::{self, OptionalLimit};
use crate::journal::{format, open_read_only, with_dir};

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
    #[arg(long, value_name = "SIZE|none", value_parser = parse::parse_size_limit)]
    max_bytes: Option<OptionalLimit<u64>>,

    /// How long records may be kept, such as 7d; none: for ever
    #[arg(long, value_name = "TIME|none", value_parser = parse::parse_age_limit)]
    max_age: Option<OptionalLimit<Duration>>,

    /// Policy at a limit when a subscriber still needs the oldest records
    #[arg(long, value_name = "POLICY", value_parser = parse::limit_policy_parser())]
    on_full: Option<LimitPolicy>,
}

const AFTER: &str = "\
Examples:
  topdeck journal limit j
  topdeck journal limit j --max-bytes 20GiB
  topdeck journal limit j --max-age 7d --on-full drop-oldest

Exit status:
  0  it is shown, or changed durably
  1  there is no journal, or the limit is too low
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.dir)?;
    let before = journal.stat().map_err(with_dir(&options.dir))?.settings.limits;
    let limits = Limits {
        bytes_max: options.max_bytes.map_or(before.bytes_max, |most| most.0),
        age_max: options.max_age.map_or(before.age_max, |most| most.0),
        on_full: options.on_full.unwrap_or(before.on_full),
    };
    if limits != before {
        journal.set_limits(limits).map_err(with_dir(&options.dir))?;
    }
    print_stdout(format!("it keeps {}\n", format::describe_limits(&limits)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
