//! `topdeck query`: an expression of PromQL or CAQL, answered from a store.

mod document;
mod plot;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use model::Selector;
use query::promql;
use query::{Answer, Error, Language, Limits, Note, Question, Settings, Stored};
use store::View;

use crate::command::{print, say};
use crate::hist::terminal::Terminal;
use crate::store::{open, told};
use crate::time::{self, Moment};

/// Ask a store anything about whole distributions, in PromQL or CAQL
///
/// Without --from, --step or --to it asks about one moment: the end of the last row of the store. With --from it asks about the
/// time until --to, at each --step. Every statistic of a distribution is given with the bounds that the truth lies
/// in. `exact_increase(latency[5m])` is what happened in exactly those five minutes, merged out of rollups;
/// `rate` and `increase` are Prometheus', which extrapolate.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// What is asked
    #[arg(value_name = "EXPRESSION")]
    expression: String,

    /// The expression is CAQL, not PromQL
    #[arg(long)]
    caql: bool,

    /// From when: 2026-11-09, 2026-11-09T12:30:00Z, -2h
    #[arg(long, value_name = "TIME", value_parser = time::moment, allow_hyphen_values = true)]
    from: Option<Moment>,

    /// Until when, also: now; to the last row, if not said
    #[arg(long, value_name = "TIME", value_parser = time::moment, allow_hyphen_values = true)]
    to: Option<Moment>,

    /// From one moment to the next, such as 5m; about a hundredth of the time, if not said
    #[arg(long, value_name = "LENGTH", value_parser = time::length)]
    step: Option<i64>,

    /// Understand what Prometheus has behind feature flags: experimental functions, durations with operators,
    /// anchored and smoothed ranges, fill
    #[arg(long)]
    experimental: bool,

    /// Draw the answer over time
    #[arg(long, conflicts_with = "json")]
    plot: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    ascii: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// How old the latest reading of a series may be at a moment
    #[arg(long, value_name = "LENGTH", value_parser = time::length, default_value = "5m")]
    lookback: i64,

    /// Samples held in memory at the most; a histogram is one for each bucket and eight
    #[arg(long, value_name = "N", default_value_t = Limits::default().samples)]
    max_samples: u64,

    /// Series that one selector may pick at the most
    #[arg(long, value_name = "N", default_value_t = Limits::default().series)]
    max_series: u64,

    /// Bytes of samples held in memory at the most
    #[arg(long, value_name = "N", default_value_t = Limits::default().bytes)]
    max_bytes: u64,

    /// Moments of an answer at the most
    #[arg(long, value_name = "N", default_value_t = Limits::default().steps)]
    max_steps: u64,

    /// How long an answer may take
    #[arg(long, value_name = "LENGTH", value_parser = time::length, default_value = "2min")]
    timeout: i64,
}

const AFTER: &str = "\
Examples:
  topdeck query s 'histogram_quantile(0.99, sum(exact_increase(latency[5m])))' --from -1d --step 5m
  topdeck query s 'sum by (host) (histogram_count_above(1.5, exact_increase(latency[1h])))' --json
  topdeck query s 'sum(exact_increase(latency[15m]))' --from 2026-11-09 --to 2026-11-10 --plot
  topdeck query s --caql 'find:histogram(\"latency\") | histogram:merge() | histogram:count_above(1.5) | integrate()' --from -1d

docs/query.md has both languages, and what topdeck adds to them.

Exit status:
  0  it is answered, perhaps with notes
  1  there is no such store, the expression is wrong, or a limit was reached
  2  the command line makes no sense";

/// As many steps as a person looks at, where nobody says how many.
const STEPS: i64 = 100;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let view = store.view().map_err(told(&options.dir))?;
    let answer = answer(options, &view)?;
    let text = match (options.json, options.plot) {
        (true, _) => format!("{}\n", document::of(&answer)),
        (_, true) => plot::text(&answer, &options.expression, &Terminal::new(options.ascii))?,
        _ => show::text(&answer, &Terminal::new(options.ascii)),
    };
    print(text.as_bytes())?;
    if !options.json {
        notes(&answer);
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(options: &Options, view: &View) -> Result<Answer> {
    let (start, end, step) = times(options, view)?;
    let question = Question {
        text: &options.expression,
        language: if options.caql { Language::Caql } else { Language::PromQl },
        start,
        end,
        step,
        options: match options.experimental {
            true => promql::Options::all(),
            false => promql::Options::default(),
        },
    };
    let settings = Settings {
        limits: Limits {
            samples: options.max_samples,
            series: options.max_series,
            bytes: options.max_bytes,
            steps: options.max_steps,
        },
        lookback: options.lookback,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        ..Settings::default()
    };
    let (began, most) = (Instant::now(), Duration::from_nanos(options.timeout.unsigned_abs()));
    let is_over = || began.elapsed() > most;
    let source = Stored::new(view);
    query::ask(&source, &question, &settings, &is_over).map_err(|error| match error {
        Error::Store(error) => told(&options.dir)(error),
        other => anyhow!("{}", other.show(&options.expression)),
    })
}

/// The first moment, the last, and from one to the next; 0 for one moment.
fn times(options: &Options, view: &View) -> Result<(i64, i64, i64)> {
    let now = journal::wall_clock()();
    let is_range = options.from.is_some() || options.step.is_some() || options.plot || options.caql;
    let extent = match (options.from, options.to) {
        (Some(_), Some(_)) => None,
        (None, Some(_)) if !is_range => None,
        _ => view.extent(&view.select(&Selector::All)).map_err(told(&options.dir))?,
    };
    let missing = "there is nothing in this store yet; `topdeck import` brings recordings in";
    let end = match options.to {
        Some(to) => to.ns(now),
        None => extent.as_ref().context(missing)?.end,
    };
    if !is_range {
        return Ok((end, end, 0));
    }
    let start = match options.from {
        Some(from) => from.ns(now),
        None => extent.context(missing)?.start,
    };
    if start > end {
        bail!("--from lies after --to (or after the last row, where --to is not said)");
    }
    let step = options.step.unwrap_or_else(|| round_up((end - start) / STEPS));
    Ok((start, end, step))
}

/// The next length that people count in.
fn round_up(length: i64) -> i64 {
    const SECOND: i64 = 1_000_000_000;
    const ROUND_S: [i64; 18] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200,
        86_400,
    ];
    let round = ROUND_S.iter().map(|seconds| seconds * SECOND).find(|round| *round >= length);
    round.unwrap_or_else(|| (length / (86_400 * SECOND) + 1) * 86_400 * SECOND)
}

/// What the answer should not be read without.
fn notes(answer: &Answer) {
    for kind in [Note::Warning, Note::Info] {
        for (message, _) in answer.notes.of(kind) {
            say(message);
        }
    }
    const SHOWN: usize = 5;
    for gap in answer.gaps.iter().take(SHOWN) {
        say(format_args!("missing: {gap}"));
    }
    if let Some(more) = answer.gaps.len().checked_sub(SHOWN + 1) {
        say(format_args!("and {} more gaps; --json has all", more + 1));
    }
}
