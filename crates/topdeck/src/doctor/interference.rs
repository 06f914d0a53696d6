//! `topdeck doctor interference`: observer effect of monitoring tools.
//!
//! An operation is done again and again on one processor, alone and beside a reader that is a
//! process of its own on the others. Each run ends with its time or its count. The first run and
//! the last are beside nothing: what lies between the two is noise. A reader ends when this process
//! does. Nobody writes a file, but that this process shows metrics in shared memory, as others do,
//! for readers to read.

mod analysis;
mod cpus;
mod experiment;
mod experiment_report;
mod experiment_run;
mod host_observer;
mod memory_disk;
mod memory_experiment;
mod metrics_observer;
mod observer;
mod observer_process;
mod process_experiment;
mod record_experiment;
mod socket_experiment;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::command::{print_message, print_stdout};
use crate::journal::parse;
use crate::journal::progress_line::ProgressLine;
use cpus::Cpus;
use experiment::Experiment;
use experiment_report::ExperimentReport;
use record_experiment::ExampleMetrics;

/// Measure the observer effect of monitoring tools on this machine
///
/// Opens and closes Unix sockets, starts programs, maps memory, and records into shared memory,
/// some thousand times each: alone, while others look on as `netstat`, `ps` and tools for memory
/// do, and while topdeck's own readers do. Prints how long the operations took, by powers of ten,
/// and what can be said of each reader.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// How long each run takes
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = parse_seconds)]
    seconds: Duration,

    /// Maximum operations of a run [default: as many as there is time for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_operations: Option<u64>,

    /// How many other Unix sockets are held meanwhile, as far as the limit of open files allows
    #[arg(long, value_name = "N", default_value_t = socket_experiment::MOST, value_parser = clap::value_parser!(u64).range(1..=socket_experiment::MOST))]
    sockets: u64,

    /// How much memory the process has while it maps some more: a quarter of what is available at
    /// the most
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse::size)]
    memory: u64,

    /// Run this experiment only
    #[arg(long, value_name = "EXPERIMENT", value_enum)]
    experiment: Option<Experiment>,

    /// Run as the observer of this name until standard input ends: what this program starts itself
    /// for
    #[arg(long, value_name = "READER", hide = true)]
    observer: Option<String>,

    /// Process that the observer reads
    #[arg(long, value_name = "PID", hide = true, default_value_t = std::process::id())]
    observer_pid: u32,
}

const AFTER: &str = "\
Examples:
  topdeck doctor interference
  topdeck doctor interference --experiment memory --memory 2GiB --seconds 5

Exit status:
  0  all was measured, whatever it showed
  1  something could not be measured, and it is said why
  2  usage error";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match (0.01..=600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("expected 0.01 to 600 seconds".to_owned()),
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(name) = &options.observer {
        return observer_process::run_as_observer(name, options.observer_pid);
    }
    // What readers of shared memory read of this process. Where it cannot be, they say so.
    let _shown = ExampleMetrics::create();
    let cpus = Cpus::reserve_one();
    // The clock's thread is started here, and not on the processor that is measured.
    clock::now();
    let experiments = Experiment::ALL.iter().copied();
    let chosen: Vec<Experiment> =
        experiments.filter(|it| options.experiment.is_none_or(|only| only == *it)).collect();
    let runs: usize = chosen.iter().map(|it| 2 + observer::observers_of(*it).count()).sum();
    let time = options.seconds.as_secs_f64() * runs as f64;
    print_message(format_args!("measuring for about {:.0} s, {runs} runs", time.ceil()));
    let mut progress = ProgressLine::new();
    let mut out = String::new();
    let mut all = true;
    for experiment in chosen {
        let section = ExperimentReport::measure(experiment, options, &cpus, &mut progress);
        all &= section.is_complete();
        writeln!(out, "{section}")?;
    }
    progress.clear();
    writeln!(out, "{}", cpus.description())?;
    print_stdout(out.as_bytes())?;
    Ok(match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
