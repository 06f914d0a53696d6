//! `topdeck cat`: all metrics of a running or ended process.

use std::process::ExitCode;

use anyhow::{Result, bail};
use client::print_stdout;
use inspect::cat;
use inspect::find::MatchPreference;
use inspect::metric_patterns::MetricPatterns;
use inspect::reference_time::ReferenceTime;

use crate::process_argument::find_process;

/// Show all metrics of a process
///
/// Reads shared memory; the process is neither interrupted nor slowed down. Quantiles have an error
/// of at most 1.08 %; counts and the maximum are exact. If a program declares relations between its
/// metrics (usage and capacity, hits and misses of a cache), derived values are shown beside them.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Its id, the name of its program, or the path of its file
    #[arg(value_name = "PROCESS")]
    process: String,

    /// Only these metrics; * is a wildcard, as in 'cache_*' or 'took{*route="home"*}'
    #[arg(value_name = "METRIC")]
    metrics: Vec<String>,

    /// Print JSON, with the bounds of every statistic
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck cat sample
  topdeck cat 1234 'cache_*'
  topdeck cat --json /dev/shm/topdeck-1000/1234-5678.tdk

Exit status:
  0  success
  1  process or metric not found
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut process = find_process(&options.process, MatchPreference::Running)?;
    let metrics = process.attached.metrics()?;
    let as_of = ReferenceTime::for_process(&process, &metrics);
    let patterns = MetricPatterns::new(&options.metrics);
    if !metrics.iter().any(|metric| patterns.matches(metric)) {
        bail!("{}", patterns.no_match_message(&process.name(), &metrics));
    }
    if options.json {
        print_stdout(cat::to_json(&process, &metrics, &patterns, &as_of).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = cat::to_text(&process, &metrics, &patterns, &as_of);
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
