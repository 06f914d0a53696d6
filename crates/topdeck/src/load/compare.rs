//! `topdeck load compare`: two runs side by side, and whether they differ by more than chance.
//!
//! The arithmetic is that of `topdeck compare` ([`query::compare`]): whole seconds are exchanged between the two runs, because requests that
//! follow each other are alike.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use api::json::Json::{Bool, List, Null, Object, Text};
use api::json::{Json, integer, number};
use clap::ValueEnum;
use hist::Mixture;
use query::compare::{Comparison, INTERVALS_MAX};

use crate::command::{plain, print};
use crate::compare::show;
use crate::hist::show::{count, share};
use crate::hist::terminal::{Paint, Terminal};
use crate::journal::show::time;
use crate::load::recorded::Recorded;
use crate::load::report::UNTRUSTED;
use crate::load::statistics::numbers;

/// Compare two runs: how far apart, and is it more than noise?
///
/// Quantiles stand beside each other with the bounds that the truth lies in; those that differ whatever the buckets hide are marked. The
/// chance says how often a random split of all seconds of both runs lies at least as far apart.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// A run, as --json writes it
    #[arg(value_name = "A.json")]
    a: PathBuf,

    /// Another
    #[arg(value_name = "B.json")]
    b: PathBuf,

    /// Which time
    #[arg(long, value_enum, default_value = "response")]
    time: Time,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    ascii: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Time {
    /// From when a request was due to its answer: what users feel
    Response,
    /// From when it was sent to its answer
    Service,
}

const AFTER: &str = "\
Examples:
  topdeck load compare before.json after.json
  topdeck load compare before.json after.json --time service --json

Exit status:
  0  they are compared, whatever came out
  1  a file could not be read, or holds no answers
  2  the command line makes no sense
  3  they are compared, but one of the runs is not to be trusted";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runs = [Recorded::read(&options.a)?, Recorded::read(&options.b)?];
    let paths = [&options.a, &options.b];
    let (at, name) = match options.time {
        Time::Response => (0, "response"),
        Time::Service => (1, "service"),
    };
    for (run, path) in runs.iter().zip(paths) {
        if run.seconds.iter().all(|second| second[at].count() == 0) {
            bail!("{}: no answers to compare", path.display());
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
    print(text.as_bytes())?;
    Ok(match runs.iter().all(|run| run.doubts.is_empty()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(super::UNTRUSTED),
    })
}

/// Compares the times of two runs, in intervals of as many seconds each as it takes.
fn compare(runs: &[Recorded; 2], at: usize) -> Result<Comparison> {
    let longest = runs.iter().map(|run| run.seconds.len()).max().unwrap_or(0);
    let together = longest.div_ceil(INTERVALS_MAX as usize).max(1);
    let intervals = |run: &Recorded| -> Result<Vec<Mixture>> {
        let merged = run.seconds.chunks(together).map(|seconds| {
            let mut interval = Mixture::default();
            for second in seconds {
                interval.add(&second[at]).context("the seconds cannot be put together")?;
            }
            Ok(interval)
        });
        merged.collect()
    };
    let sides = [intervals(&runs[0])?, intervals(&runs[1])?];
    query::compare::of_intervals(sides, "ns").map_err(|error| anyhow::anyhow!("{error}"))
}

fn text(
    runs: &[Recorded; 2],
    names: [String; 2],
    time_name: &str,
    comparison: &Comparison,
    terminal: &Terminal,
) -> String {
    let mut text = String::new();
    for (at, side) in ["A", "B"].into_iter().enumerate() {
        let run = &runs[at];
        let heading = format!("{side}  {}", plain(&names[at]));
        text.push_str(&terminal.paint(Paint::Heading, &heading));
        let began = time(run.began_unix_ns);
        text.push_str(&format!(
            "\n   {}  {}, began {began}\n",
            plain(&run.target),
            plain(&run.schedule)
        ));
        text.push_str(&format!(
            "   {} intended, {} completed ({}), {} failed, {} unfinished\n",
            count(run.intended),
            count(run.completed),
            share(run.completed, run.intended),
            count(run.failed),
            count(run.unfinished),
        ));
        if !run.doubts.is_empty() {
            let doubts = format!("   {UNTRUSTED}: {}", plain(&run.doubts.join("; ")));
            for line in show::wrapped(&doubts, terminal.width.saturating_sub(3)) {
                text.push_str(&format!("   {}\n", terminal.paint(Paint::Max, &line)));
            }
        }
    }
    text.push_str(&format!("\n  {time_name} time\n"));
    text + &show::body(comparison, &numbers(), terminal)
}

fn document(runs: &[Recorded; 2], time_name: &str, comparison: &Comparison) -> Json {
    let side = |at: usize| {
        let run = &runs[at];
        Object(vec![
            ("target", Text(run.target.clone())),
            ("schedule", Text(run.schedule.clone())),
            ("began_unix_ns", Json::Integer(run.began_unix_ns.into())),
            ("trusted", Bool(run.doubts.is_empty())),
            ("doubts", List(run.doubts.iter().cloned().map(Text).collect())),
            ("intended", integer(run.intended)),
            ("completed", integer(run.completed)),
            ("failed", integer(run.failed)),
            ("unfinished", integer(run.unfinished)),
            ("intervals", integer(comparison.sides[at].intervals as u64)),
            ("count", integer(comparison.sides[at].whole.count())),
        ])
    };
    let chance = comparison.chance.map_or(Null, |chance| {
        Object(vec![("value", number(chance.value)), ("splits", integer(chance.splits.into()))])
    });
    Object(vec![
        ("schema", integer(1)),
        ("time", Text(time_name.to_owned())),
        ("unit", Text("ns".to_owned())),
        ("a", side(0)),
        ("b", side(1)),
        ("wasserstein", api::document::bracket(comparison.distance)),
        ("kolmogorov_smirnov", api::document::bracket(comparison.separation)),
        ("superiority", api::document::bracket(comparison.superiority)),
        ("chance", chance),
        (
            "quantiles",
            List(comparison.quantiles.iter().map(api::document::compare::pair).collect()),
        ),
    ])
}
