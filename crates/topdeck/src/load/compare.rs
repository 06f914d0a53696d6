//! `topdeck load compare`: compares two runs and tests whether they differ.
//!
//! Uses the statistics of `topdeck compare` ([`query::compare`]): whole seconds are permuted
//! between the runs, because consecutive requests are correlated.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use api::json::Json::{Bool, List, Null, Object, Text};
use api::json::{Json, integer, number};
use clap::ValueEnum;
use client::print_stdout;
use hist::Mixture;
use query::compare::{Comparison, INTERVALS_MAX};
use render::text::{escape_control, wrap_text};

use load::report::run_report::INVALID;
use load::report::statistics::estimate_formatter;
use load::report::stored_run::StoredRun;
use render::terminal::{Terminal, TextStyle};
use render::time::format_time;
use render::value_formatter::{count, share};
use report::comparison_body;

/// Compare two runs and test whether the difference is significant
///
/// Quantiles are shown side by side with their bounds; differences that exceed the bucket width are
/// marked. The p-value is the share of random permutations of the seconds of both runs that differ
/// at least as much.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// First run, written by --json
    #[arg(value_name = "A.json")]
    a: PathBuf,

    /// Second run, written by --json
    #[arg(value_name = "B.json")]
    b: PathBuf,

    /// Time to compare
    #[arg(long, value_enum, default_value = "response")]
    time: ComparedTime,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    ascii: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ComparedTime {
    /// From the scheduled time to the response
    Response,
    /// From the time it was sent to the response
    Service,
}

const AFTER: &str = "\
Examples:
  topdeck load compare before.json after.json
  topdeck load compare before.json after.json --time service --json

Exit status:
  0  the runs were compared, whatever the result
  1  a file could not be read, or contains no responses
  2  usage error
  3  the runs were compared, but one of them is invalid";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runs = [StoredRun::read(&options.a)?, StoredRun::read(&options.b)?];
    let paths = [&options.a, &options.b];
    let (at, name) = match options.time {
        ComparedTime::Response => (0, "response"),
        ComparedTime::Service => (1, "service"),
    };
    for (run, path) in runs.iter().zip(paths) {
        if run.seconds.iter().all(|second| second[at].count() == 0) {
            bail!("{}: no responses to compare", path.display());
        }
    }
    let comparison = compare(&runs, at)?;
    let text = match options.json {
        true => format!("{}\n", document(&runs, name, &comparison)),
        false => {
            let names = paths.map(|path| path.display().to_string());
            text(&runs, names, name, &comparison, &Terminal::new(options.ascii))
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(match runs.iter().all(|run| run.invalid_reasons.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(super::INVALID_RESULT),
    })
}

/// Compares the times of two runs. Long runs are split into intervals of several seconds.
fn compare(runs: &[StoredRun; 2], at: usize) -> Result<Comparison> {
    let longest = runs.iter().map(|run| run.seconds.len()).max().unwrap_or(0);
    let together = longest.div_ceil(INTERVALS_MAX as usize).max(1);
    let intervals = |run: &StoredRun| -> Result<Vec<Mixture>> {
        let merged = run.seconds.chunks(together).map(|seconds| {
            let mut interval = Mixture::default();
            for second in seconds {
                interval.add(&second[at]).context("cannot merge the seconds")?;
            }
            Ok(interval)
        });
        merged.collect()
    };
    let sides = [intervals(&runs[0])?, intervals(&runs[1])?];
    query::compare::compare_intervals(sides, "ns").map_err(|error| anyhow::anyhow!("{error}"))
}

fn text(
    runs: &[StoredRun; 2],
    names: [String; 2],
    time_name: &str,
    comparison: &Comparison,
    terminal: &Terminal,
) -> String {
    let mut text = String::new();
    for (at, side) in ["A", "B"].into_iter().enumerate() {
        let run = &runs[at];
        let heading = format!("{side}  {}", escape_control(&names[at]));
        text.push_str(&terminal.paint(TextStyle::Heading, &heading));
        let started = format_time(run.start_unix_ns);
        text.push('\n');
        let about = format!(
            "{}  {}, started {started}",
            escape_control(&run.target),
            escape_control(&run.schedule)
        );
        for line in wrap_text(&about, terminal.width.saturating_sub(3)) {
            text.push_str(&format!("   {line}\n"));
        }
        text.push_str(&format!(
            "   {} scheduled, {} completed ({}), {} failed, {} unfinished\n",
            count(run.scheduled),
            count(run.completed),
            share(run.completed, run.scheduled),
            count(run.failed),
            count(run.unfinished),
        ));
        if !run.invalid_reasons.is_empty() {
            let reasons =
                format!("   {INVALID}: {}", escape_control(&run.invalid_reasons.join("; ")));
            for line in wrap_text(&reasons, terminal.width.saturating_sub(3)) {
                text.push_str(&format!("   {}\n", terminal.paint(TextStyle::Max, &line)));
            }
        }
    }
    text.push_str(&format!("\n  {time_name} time\n"));
    text + &comparison_body(comparison, &estimate_formatter(), terminal)
}

fn document(runs: &[StoredRun; 2], time_name: &str, comparison: &Comparison) -> Json {
    let side = |at: usize| {
        let run = &runs[at];
        Object(vec![
            ("target", Text(run.target.clone())),
            ("schedule", Text(run.schedule.clone())),
            ("start_unix_ns", Json::Integer(run.start_unix_ns.into())),
            ("valid", Bool(run.invalid_reasons.is_empty())),
            ("invalid_reasons", List(run.invalid_reasons.iter().cloned().map(Text).collect())),
            ("scheduled", integer(run.scheduled)),
            ("completed", integer(run.completed)),
            ("failed", integer(run.failed)),
            ("unfinished", integer(run.unfinished)),
            ("intervals", integer(comparison.sides[at].intervals as u64)),
            ("count", integer(comparison.sides[at].mixture.count())),
        ])
    };
    let chance = comparison.permutation_test.map_or(Null, |chance| {
        Object(vec![
            ("p_value", number(chance.value)),
            ("permutations", integer(chance.splits.into())),
        ])
    });
    Object(vec![
        ("schema", integer(2)),
        ("time", Text(time_name.to_owned())),
        ("unit", Text("ns".to_owned())),
        ("a", side(0)),
        ("b", side(1)),
        ("wasserstein", report::document::bracket(comparison.distance)),
        ("ks_statistic", report::document::bracket(comparison.ks_statistic)),
        (
            "probability_of_superiority",
            report::document::bracket(comparison.probability_of_superiority),
        ),
        ("permutation_test", chance),
        (
            "quantiles",
            List(comparison.quantiles.iter().map(report::document::compare::pair_json).collect()),
        ),
    ])
}
