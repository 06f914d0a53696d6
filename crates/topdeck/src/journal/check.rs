//! `topdeck journal verify` and `repair`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use client::{ProgressLine, print_stdout};
use report::journal_check::{check_json, repair_text, verify_text};

use crate::journal::with_dir;

/// Verify a journal: read everything and report damage, without changes
///
/// The journal may be in use.
#[derive(clap::Args)]
#[command(after_long_help = VERIFY_AFTER)]
pub(crate) struct JournalVerifyOptions {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const VERIFY_AFTER: &str = "\
Examples:
  topdeck journal verify j
  topdeck journal verify j --json | jq .damages

Exit status:
  0  the journal is intact
  1  something is damaged or could not be read
  2  usage error";

/// Repair a journal: keep valid records, quarantine damaged bytes, report lost positions
///
/// The journal must not be in use. Removed bytes go to the directory quarantine in the journal's
/// directory and are never deleted.
#[derive(clap::Args)]
#[command(after_long_help = REPAIR_AFTER)]
pub(crate) struct JournalRepairOptions {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const REPAIR_AFTER: &str = "\
Examples:
  topdeck journal verify j && echo intact || topdeck journal repair j

Exit status:
  0  the journal is intact
  1  it is in use, or could not be repaired
  2  usage error";

pub(crate) fn verify(options: &JournalVerifyOptions) -> Result<ExitCode> {
    let mut progress = ProgressLine::new();
    let report = journal::verify(&disk::OsDisk, &options.dir, &mut |far| {
        progress.bar(far.done_bytes, far.total_bytes);
    })
    .map_err(with_dir(&options.dir))?;
    progress.clear();
    let text = if options.json { check_json(&report) } else { verify_text(&options.dir, &report) };
    print_stdout(text.as_bytes())?;
    Ok(if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn repair(options: &JournalRepairOptions) -> Result<ExitCode> {
    let mut progress = ProgressLine::new();
    let report = journal::repair(&disk::OsDisk, &options.dir, &mut |far| {
        progress.bar(far.done_bytes, far.total_bytes);
    })
    .map_err(with_dir(&options.dir))?;
    progress.clear();
    let text = if options.json { check_json(&report) } else { repair_text(&options.dir, &report) };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
