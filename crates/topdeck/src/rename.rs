//! `topdeck rename`: renames series of a server, or changes their unit.

use std::process::ExitCode;

use answers::store_dir::parse_selector;
use anyhow::Result;
use client::{RequestParameters, ServerClient, print_stdout};
use model::Selector;
use render::text::plural;
use store::RowCount;

use crate::retire::{answer_count, series_text};

/// Rename series of a server, or change their unit
///
/// Copies all samples durably under the new name, then deletes the old ones. Values are not
/// converted: --unit corrects a wrong unit. Without --yes it only prints what would change. Series
/// whose older samples exist only as rollups cannot be renamed, nor can samples onto samples of the
/// same times.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// A selector
    #[arg(value_name = "SELECTOR", value_parser = parse_selector)]
    selector: Selector,

    /// New metric name [default: unchanged]
    #[arg(value_name = "NAME", required_unless_present = "unit")]
    name: Option<String>,

    /// New unit, such as ms; none removes it [default: unchanged]
    #[arg(long)]
    unit: Option<String>,

    /// Confirm the change
    #[arg(long)]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck rename 'latency{host=\"test\"}' latency_test
  topdeck rename 'latency{host=\"test\"}' latency_test --yes
  topdeck rename 'and(__name:latency,__unit:ms)' --unit s --yes     corrects a wrong unit

A server requires a token with the scope admin, except on loopback.

Exit status:
  0  the series are renamed, durably; without --yes: they can be renamed
  1  nothing was renamed: server or series not found, or the rename is not possible
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let parameters = RequestParameters::default()
        .with("selector", &options.selector)
        .with_option("name", options.name.as_ref())
        .with_option("unit", options.unit.as_ref())
        .with("dry_run", !options.yes);
    let answer = options.server.post_form("/v1/series/rename", parameters)?;
    let series = plural(answer_count(&answer, "series"), "series", "series");
    let mut text = match options.yes {
        true => {
            let samples = plural(answer_count(&answer, "rows"), "sample", "samples");
            format!("renamed {series}, {samples}\n")
        }
        false => {
            let (old, new) = (&answer["examples"][0], &answer["renamed"][0]);
            let example = format!("{} to {}", series_text(old), series_text(new));
            let mark = if answer_count(&answer, "series") > 1 { ", such as" } else { ":" };
            let samples = report::sample_count_text(RowCount {
                rows: answer_count(&answer, "rows"),
                is_lower_bound: answer["rows_is_lower_bound"] == true,
            });
            format!("would rename {series}, {samples}{mark} {example}; --yes renames\n")
        }
    };
    let notes = answer["notes"].as_array().into_iter().flatten();
    notes.filter_map(|note| note.as_str()).for_each(|note| text.push_str(&format!("  {note}\n")));
    if options.json {
        text = format!("{answer}\n");
    }
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
