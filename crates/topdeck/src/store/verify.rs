//! `topdeck store verify` and `scrub`: check all checksums; repair.

use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::{ProgressLine, print_stdout};
use report::{scrub_json, scrub_text};

use crate::journal::parse;

/// Verify a store: read everything and report damage, without changes
#[derive(clap::Args)]
#[command(after_long_help = VERIFY_AFTER)]
pub(crate) struct StoreVerifyOptions {
    #[command(flatten)]
    args: VerifyArgs,
}

const VERIFY_AFTER: &str = "\
Examples:
  topdeck store verify s
  topdeck store verify s --rate 20MiB --json

Exit status:
  0  the store is intact
  1  something is damaged, or the store was not found or is in use
  2  usage error";

/// Verify a store and rebuild damaged rollups
///
/// A damaged rollup is rebuilt from base samples if they exist. Damaged base samples are lost
/// unless a snapshot has them; queries of their time range return results without them and report
/// the gap.
#[derive(clap::Args)]
#[command(after_long_help = SCRUB_AFTER)]
pub(crate) struct ScrubOptions {
    #[command(flatten)]
    args: VerifyArgs,
}

const SCRUB_AFTER: &str = "\
Examples:
  topdeck store scrub s
  topdeck store scrub s --rate 20MiB

Exit status:
  0  the store is intact, or was repaired
  1  something cannot be repaired, or the store was not found or is in use
  2  usage error";

#[derive(clap::Args)]
struct VerifyArgs {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Read rate limit per second, such as 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    rate: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn verify(options: &StoreVerifyOptions) -> Result<ExitCode> {
    run_check(&options.args, false)
}

pub(crate) fn scrub(options: &ScrubOptions) -> Result<ExitCode> {
    run_check(&options.args, true)
}

fn run_check(options: &VerifyArgs, mend: bool) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let mut progress = ProgressLine::new();
    let mut each = |at: store::ScrubProgress| progress.bar(at.bytes, at.bytes_total);
    let report = match mend {
        true => store.scrub(options.rate, &mut each),
        false => store.verify(options.rate, &mut each),
    };
    progress.clear();
    let report = report.map_err(describe_error)?;
    let text = match options.json {
        true => format!("{}\n", scrub_json(&report)),
        false => scrub_text(&options.dir, &report, mend),
    };
    print_stdout(text.as_bytes())?;
    let is_sound = report.damage.iter().all(|damage| mend && damage.is_rebuildable);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
