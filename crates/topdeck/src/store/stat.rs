//! `topdeck store stat`: state of a store.

use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::print_stdout;
use model::Selector;
use report::{StoreReport, store_json, store_text};

/// Show the state of a store: series, parts, time range, journal, gaps, retention
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck store stat s
  topdeck store stat s --json | jq '.resolutions[] | {resolution, bytes_per_row}'

Exit status:
  0  success
  1  store not found or in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let view = store.view().map_err(&describe_error)?;
    let extent = view.time_range(&view.select(&Selector::All)).map_err(&describe_error)?;
    let stat = store.stat().map_err(&describe_error)?;
    let subscriber = stat.journal.checkpoints.iter().find(|point| point.name == "store");
    let backlog = subscriber.map_or(0, |point| stat.journal.watermarks.end - point.position);
    let report = StoreReport { stat, time_range: extent, backlog };
    let text = match options.json {
        true => format!("{}\n", store_json(&report)),
        false => store_text(&options.dir, &report),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
