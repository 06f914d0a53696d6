//! `topdeck cardinality`: metrics, labels and label values with the most series.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use store::Cardinality;

use crate::command::print_stdout;
use crate::store::{open, with_dir};
use render::table::format_table;
use render::text::escape_control;
use render::text::plural;
use render::value_formatter;

/// Show which metrics, labels and label values have the most series
///
/// Use it if a store has too many series. A label with about as many values as series, such as a
/// user or request id, creates a series per value.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Number of entries per list
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck cardinality s
  topdeck cardinality s --top 100 --json | jq '.by_label[0]'

Exit status:
  0  success
  1  store not found or in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let cardinality = store.cardinality(options.top as usize).map_err(with_dir(&options.dir))?;
    let text = match options.json {
        true => format!("{}\n", api::document::cardinality::to_json(&cardinality)),
        false => text(&options.dir, &cardinality),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text(dir: &Path, cardinality: &Cardinality) -> String {
    let mut text = format!(
        "{}\n  {} of {}, with {}\n",
        escape_control(&dir.display().to_string()),
        plural(cardinality.series, "series", "series"),
        plural(cardinality.metrics, "metric", "metrics"),
        plural(cardinality.labels, "label", "labels")
    );
    let head = |names: [&str; 2]| names.map(str::to_owned);
    let metrics = cardinality
        .by_metric
        .iter()
        .map(|(name, n)| [escape_control(name), value_formatter::count(*n)]);
    let metrics: Vec<_> = [head(["metric", "series"])].into_iter().chain(metrics).collect();
    let labels = cardinality.by_label.iter().map(|label| {
        [
            escape_control(&label.name),
            value_formatter::count(label.values),
            value_formatter::count(label.series),
        ]
    });
    let labels: Vec<_> =
        [["label", "values", "series"].map(str::to_owned)].into_iter().chain(labels).collect();
    let pairs = cardinality.by_pair.iter().map(|(name, value, n)| {
        [escape_control(&format!("{name}={value:?}")), value_formatter::count(*n)]
    });
    let pairs: Vec<_> = [head(["label and value", "series"])].into_iter().chain(pairs).collect();
    let tables = [
        (metrics.len(), format_table(&metrics, [false, true])),
        (labels.len(), format_table(&labels, [false, true, true])),
        (pairs.len(), format_table(&pairs, [false, true])),
    ];
    for (lines, table) in tables {
        if lines > 1 {
            text.push_str(&format!("\n{table}"));
        }
    }
    text
}
