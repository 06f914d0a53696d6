//! `topdeck diff`: difference of a process between two samples.

use std::process::ExitCode;

use anyhow::{Result, bail};
use client::{print_message, print_stdout};
use inspect::diff;
use inspect::find::MatchPreference;

use crate::process_argument::find_process;
use crate::process_waiter::{self, ProcessWaiter, WakeReason};
use crate::time;

/// Show what changed in a process between two samples
///
/// With one process: takes two samples, --interval apart. With two arguments, processes or copies
/// of metrics files (made with `cp`): shows the change from the first to the second. Histograms are
/// compared: values recorded before the first sample with values recorded between the samples. For
/// two different processes all values of both are compared.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name, or path of a metrics file
    #[arg(value_name = "PROCESS")]
    first: String,

    /// Later metrics file, or another process
    #[arg(value_name = "LATER")]
    second: Option<String>,

    /// Time between the two samples of one process
    #[arg(long, value_name = "DURATION", default_value = "10s", conflicts_with = "second", value_parser = time::parse_interval)]
    interval: u64,
}

const AFTER: &str = "\
Examples:
  topdeck diff sample --interval 1min
  cp /dev/shm/topdeck-1000/1234-5678.tdk before.tdk   then, later
  topdeck diff ./before.tdk 1234

Exit status:
  0  success, with or without changes
  1  process not found
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let text = match &options.second {
        None => diff_interval(options)?,
        Some(second) => {
            let mut first = find_process(&options.first, MatchPreference::Running)?;
            let mut second = find_process(second, MatchPreference::Running)?;
            diff::compare(&mut first, &mut second)?
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn diff_interval(options: &Options) -> Result<String> {
    let mut process = find_process(&options.first, MatchPreference::Running)?;
    let alarm = ProcessWaiter::new(&process)?;
    let start_ns = clock::now();
    let before = process.attached.metrics()?;
    match alarm.wait_until(start_ns.saturating_add(options.interval))? {
        WakeReason::Interrupted => bail!("interrupted"),
        WakeReason::ProcessExited => print_message(process_waiter::exit_message(&process)),
        WakeReason::Timeout => {}
    }
    let over_ns = clock::now() - start_ns;
    let after = process.attached.metrics()?;
    Ok(diff::interval_text(&process, [&before, &after], over_ns))
}
