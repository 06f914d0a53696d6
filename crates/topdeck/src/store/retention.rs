//! `topdeck store retention`: shows or replaces the retention rules.

use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::print_stdout;
use render::json::Json::Object;
use render::json::integer;
use report::{retention_json, retention_text};
use store::RetentionRule;

use crate::store::retention_rules;

/// Show or replace the retention rules
///
/// A rule is a resolution, a duration and optionally a selector: samples of that resolution and of
/// these series expire that long after their end. Resolutions are base (samples as received) and
/// the exact rollups 1m, 5m, 1h and 1d. The first rule that matches the resolution and series of a
/// sample applies; samples without a rule are kept forever. Base samples expire only after their
/// day has been rolled up. Expired samples are deleted by the next `topdeck store maintain`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// New rules, such as 'base 30d' or '1h forever {host="x"}'; they replace all existing ones
    #[arg(value_name = "RULE", value_parser = retention_rules::parse_rule)]
    rules: Vec<RetentionRule>,

    /// Remove all rules: samples are kept forever
    #[arg(long, conflicts_with = "rules")]
    clear: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck store retention s
  topdeck store retention s 'base 7d {env=\"test\"}' 'base 30d' '1m 30d' '5m 1y'
  topdeck store retention s --clear

Exit status:
  0  the rules are shown, or changed durably
  1  store not found or in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let describe_error = with_dir(&options.dir);
    if options.clear || !options.rules.is_empty() {
        store.set_retention(options.rules.clone()).map_err(&describe_error)?;
    }
    let keep = store.stat().map_err(&describe_error)?.retention;
    let text = match options.json {
        true => {
            format!(
                "{}\n",
                Object(vec![("schema", integer(2)), ("retention", retention_json(&keep))])
            )
        }
        false => retention_text(&keep),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
