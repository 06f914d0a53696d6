//! `topdeck journal limit`: shows or changes the retention.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::print_stdout;
use journal::{LimitPolicy, Limits};
use report::journal_format;

use crate::journal::parse::{self, OptionalLimit};
use crate::journal::{open_read_only, with_dir};

/// Show or change the retention of a journal
///
/// Processes that have it open apply the change when they reopen it.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Size retention, at least two segments; none: limited by the disk
    #[arg(long, value_name = "SIZE|none", value_parser = parse::parse_size_limit)]
    max_size: Option<OptionalLimit<u64>>,

    /// Time retention, such as 7d; none: unlimited
    #[arg(long, value_name = "TIME|none", value_parser = parse::parse_age_limit)]
    max_age: Option<OptionalLimit<Duration>>,

    /// Policy when a limit is reached and a subscriber still needs the oldest records
    #[arg(long, value_name = "POLICY", value_parser = parse::limit_policy_parser())]
    on_full: Option<LimitPolicy>,
}

const AFTER: &str = "\
Examples:
  topdeck journal limit j
  topdeck journal limit j --max-size 20GiB
  topdeck journal limit j --max-age 7d --on-full drop-oldest

Exit status:
  0  the retention is shown, or changed durably
  1  journal not found, or the limit is too low
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let journal = open_read_only(&options.dir)?;
    let before = journal.stat().map_err(with_dir(&options.dir))?.settings.limits;
    let limits = Limits {
        bytes_max: options.max_size.map_or(before.bytes_max, |most| most.0),
        age_max: options.max_age.map_or(before.age_max, |most| most.0),
        on_full: options.on_full.unwrap_or(before.on_full),
    };
    if limits != before {
        journal.set_limits(limits).map_err(with_dir(&options.dir))?;
    }
    print_stdout(format!("retention: {}\n", journal_format::describe_limits(&limits)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
