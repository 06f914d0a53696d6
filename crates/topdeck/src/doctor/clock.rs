//! `topdeck doctor clock`: cost and error of reading the time.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use client::{print_message, print_stdout};

/// Measure the cost of reading the time and the error of topdeck's clock
///
/// Measures the system's clocks and topdeck's clock for some seconds. The cost is that of the
/// fastest of many rounds. The error is the maximum difference from CLOCK_MONOTONIC in a thousand
/// comparisons; for topdeck's clock the bound that it reports is shown as well.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Warm-up before the measurement, in seconds: the calibration of the clock improves with time
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=3600))]
    warmup: u64,
}

const AFTER: &str = "\
Example:
  topdeck doctor clock --warmup 10

Exit status:
  0  the clock source is the CPU counter
  1  the clock source is the system clock; the reason is printed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    clock::now();
    print_message(format_args!("measuring for about {} s", options.warmup + 2));
    thread::sleep(Duration::from_secs(options.warmup));
    print_stdout(host::clock_table().as_bytes())?;
    Ok(match clock::status().mode {
        clock::ClockMode::Counter => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
