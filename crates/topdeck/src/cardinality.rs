//! `topdeck cardinality`: metrics, labels and label values with the most series.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use client::{ServerClient, print_stdout};
use report::CsvTable;

use answers::AnswerSource;

/// Show which metrics, labels and label values have the most series
///
/// Use it if a store has too many series. A label with about as many values as series, such as a
/// user or request id, creates a series per value.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the store [default: the local server]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Number of entries per list
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per metric, label and label value
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck cardinality s
  topdeck cardinality                       asks the local server
  topdeck cardinality s --top 100 --json | jq '.by_label[0]'

Exit status:
  0  success
  1  store not found or in use, or the server was not reached
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let source = AnswerSource::open(options.dir.as_deref(), &options.server)?;
    let cardinality = source.cardinality(options.top)?;
    let document = || report::document::cardinality::to_json(&cardinality);
    let text = match (options.json, options.csv) {
        (true, _) => format!("{}\n", document()),
        (_, true) => report::document_csv(CsvTable::Cardinality, &document()),
        _ => report::cardinality_text(&source.name(), &cardinality),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
