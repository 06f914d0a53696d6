//! `topdeck store retention`: how long rows are kept, shown and changed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use store::RetentionRule;

use crate::command::print_stdout;
use crate::store::{open, retention_rules, with_dir};
use api::json::Json::{self, List, Null, Object, Text};
use api::json::integer;

/// Show or replace the retention rules
///
/// A rule is a resolution, a length of time and perhaps a selector: rows of that resolution and of
/// those series go so long after they ended. Resolutions are base (rows as they came) and the exact
/// rollups 1m, 5m, 1h and 1d. The first rule that names a row's resolution and series counts; what
/// no rule names stays for ever. Base rows go only when their day has been rolled up. What is too
/// old goes with the next `topdeck store maintain`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The rules that replace those there are, such as 'base 30d' or '1h forever {host="x"}'
    #[arg(value_name = "RULE", value_parser = retention_rules::parse_rule)]
    rules: Vec<RetentionRule>,

    /// Remove all rules: everything is kept for ever
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
  0  they are shown, or changed durably
  1  there is no store, or it is in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let told = with_dir(&options.dir);
    if options.clear || !options.rules.is_empty() {
        store.set_retention(options.rules.clone()).map_err(&told)?;
    }
    let keep = store.stat().map_err(&told)?.retention;
    let text = match options.json {
        true => {
            format!("{}\n", Object(vec![("schema", integer(2)), ("retention", rules_json(&keep))]))
        }
        false => retention_rules::rules_text(&keep),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Rules as JSON.
pub(crate) fn rules_json(keep: &[RetentionRule]) -> Json {
    let rule = |keep: &RetentionRule| {
        Object(vec![
            ("rule", Text(retention_rules::format_rule(keep))),
            ("resolution", Text(keep.resolution.name().to_owned())),
            ("duration_ns", keep.duration.map_or(Null, |ns| Json::Integer(ns.into()))),
            ("selector", Text(keep.selector.to_string())),
        ])
    };
    List(keep.iter().map(rule).collect())
}
