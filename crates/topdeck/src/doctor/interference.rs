//! `topdeck doctor interference`: observer effect of monitoring tools.
//!
//! An operation is repeated on one CPU: without an observer, and while an observer process runs on
//! the other CPUs. A run ends after its time or its number of operations. The first and the last
//! run are baselines without an observer; their difference is noise. An observer exits with this
//! process. No files are written, except that this process exports metrics in shared memory for
//! observers to read.

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
/// thousands of times each: without an observer, while observers read what `netstat`, `ps` and
/// memory tools read, and while topdeck's own readers run. Prints the durations of the operations
/// by powers of ten, and a conclusion per observer.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Duration of each run, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = parse_seconds)]
    seconds: Duration,

    /// Maximum number of operations per run [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_operations: Option<u64>,

    /// Number of other Unix sockets held open, within the limit of open files
    #[arg(long, value_name = "N", default_value_t = socket_experiment::MOST, value_parser = clap::value_parser!(u64).range(1..=socket_experiment::MOST))]
    sockets: u64,

    /// Memory of the process while it maps more, at most a quarter of the available memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse::size)]
    memory: u64,

    /// Run this experiment only
    #[arg(long, value_name = "EXPERIMENT", value_enum)]
    experiment: Option<Experiment>,

    /// Run as the observer of this name until standard input ends (internal)
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
  0  everything was measured, whatever the result
  1  something could not be measured; the reason is printed
  2  usage error";

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    match (0.01..=600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("expected a number of seconds from 0.01 to 600".to_owned()),
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(name) = &options.observer {
        return observer_process::run_as_observer(name, options.observer_pid);
    }
    // Metrics of this process for the shared memory observers. They report an error if it fails.
    let _shown = ExampleMetrics::create();
    let cpus = Cpus::reserve_one();
    // Starts the thread of the clock here and not on the measured CPU.
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
