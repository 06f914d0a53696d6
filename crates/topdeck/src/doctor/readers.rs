//! `topdeck doctor readers`: cost of several readers of the process table.
//!
//! topdeck reads the process table once and publishes it in memory; each reader copies it from
//! there. With `ps` each reader reads all of `/proc`. CPU time includes user and system time.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use client::{print_message, print_stdout};
use host::{ProcessCollector, table_readers};

/// Measure the cost of several readers of the process table, with topdeck and with ps
///
/// Reads the process table and publishes it, lets each reader read the published table, and starts
/// ps once per reader. Prints the CPU time of both.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Concurrent readers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    readers: u32,

    /// Samples per reader
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
}

const AFTER: &str = "\
Examples:
  topdeck doctor readers
  topdeck doctor readers --readers 1

Exit status:
  0  success
  1  something could not be measured; the reason is printed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut processes = ProcessCollector::new();
    if let Some(note) = processes.fallback_reason() {
        print_message(format_args!("{note}"));
    }
    processes.read().context("cannot read the process table")?;
    let count = processes.rows().len();
    let ours = table_readers::measure_published(options.readers, options.samples, &mut processes)?;
    let samples = u64::from(options.readers) * u64::from(options.samples);
    let readers = options.readers;
    let mut lines = format!(
        "{count} processes, {readers} readers, {} samples each; total CPU time, user and \
         system\n\n",
        options.samples
    );
    lines += &format!("  topdeck, one reads, {readers} copy      {}\n", cost_text(ours, samples));
    let status = match table_readers::measure_ps(options.readers, options.samples) {
        Ok(theirs) => {
            lines += &format!(
                "  ps auxww, {readers} read                {}\n\n",
                cost_text(theirs, samples)
            );
            let times = theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9);
            lines += &format!("topdeck uses {times:.0} times less CPU time.\n");
            ExitCode::SUCCESS
        }
        Err(error) => {
            lines += &format!("  ps auxww: not measured: {error}\n");
            ExitCode::FAILURE
        }
    };
    print_stdout(lines.as_bytes())?;
    Ok(status)
}

fn cost_text(spent: Duration, samples: u64) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:10.3} ms, {:8.4} ms a sample", ms(spent), ms(spent) / samples as f64)
}
