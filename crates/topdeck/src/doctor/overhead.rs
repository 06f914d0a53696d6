//! `topdeck doctor overhead`: overhead of monitoring tools for what they observe.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use client::{ProgressLine, print_message, print_stdout};
use host::overhead::{self, Experiment, ExperimentSettings, SOCKETS_MAX};

use crate::background;
use crate::journal::parse;

/// Measure the overhead that monitoring tools cause on this machine
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
    #[arg(long, value_name = "N", default_value_t = SOCKETS_MAX, value_parser = clap::value_parser!(u64).range(1..=SOCKETS_MAX))]
    sockets: u64,

    /// Memory of the process while it maps more, at most a quarter of the available memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse::size)]
    memory: u64,

    /// Run this experiment only
    #[arg(long, value_name = "EXPERIMENT", value_parser = experiment_parser())]
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
  topdeck doctor overhead
  topdeck doctor overhead --experiment memory --memory 2GiB --seconds 5

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

fn experiment_parser() -> impl clap::builder::TypedValueParser<Value = Experiment> {
    let value = |experiment: &Experiment| {
        let (name, about) = experiment.argument();
        PossibleValue::new(name).help(about)
    };
    PossibleValuesParser::new(Experiment::ALL.iter().map(value)).map(|name| {
        let found = Experiment::ALL.iter().find(|experiment| experiment.argument().0 == name);
        *found.expect("BUG: clap let a name pass")
    })
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(name) = &options.observer {
        let spawn = |wait| background::spawn("end of input", wait).map(drop);
        overhead::run_as_observer(name, options.observer_pid, spawn)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = ExperimentSettings {
        duration: options.seconds,
        max_operations: options.max_operations,
        sockets: options.sockets,
        memory_bytes: options.memory,
    };
    let experiments = Experiment::ALL.iter().copied();
    let chosen: Vec<Experiment> =
        experiments.filter(|it| options.experiment.is_none_or(|only| only == *it)).collect();
    let runs = overhead::run_count(&chosen);
    let time = options.seconds.as_secs_f64() * runs as f64;
    print_message(format_args!("measuring for about {:.0} s, {runs} runs", time.ceil()));
    let mut progress = ProgressLine::new();
    let report = overhead::measure(&chosen, &settings, &mut |run| {
        progress.show(|_| run.to_owned());
    });
    progress.clear();
    print_stdout(report.text.as_bytes())?;
    Ok(match report.is_complete {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
