//! `topdeck cardinality`: what there are so many series of.

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

/// Show what a store has many series of: metrics, labels, and values of labels
///
/// Look here when there are too many series: a label with about as many values as series (a user, a
/// request) makes a series of each.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// How many of each
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
  0  it was read
  1  there is no store, or it is in use
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
