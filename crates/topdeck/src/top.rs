//! `topdeck top`: live view of all processes of this host that export metrics in shared memory.

mod screen;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use client::{print_message, print_stdout};

use crate::time;
use inspect::top::app_state::AppState;
use inspect::top::detail_selection::DetailSelection;
use inspect::top::process_monitor::ProcessMonitor;
use inspect::top::{no_process_message, once, sample_all};

/// Live view of all processes that export metrics in shared memory
///
/// A row shows a process with its most used latency histogram: rate, p50, p99 and maximum of the
/// last interval, p99 over the last minute, operations in flight, and errors. Enter opens the
/// process with all its metrics, and then a histogram in full. Reading does not interrupt or slow
/// down the processes.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Interval, 100ms to 10s; the keys + and - change it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: u64,

    /// Only processes with this text in their program name, or with this process ID
    #[arg(long, value_name = "NAME|PID")]
    process: Option<String>,

    /// Print one interval as a text table and exit
    #[arg(long)]
    once: bool,
}

const AFTER: &str = "\
Keys: up and down, Enter: open, q: back, s: sort, r: reverse, /: filter,
space: pause, + and -: interval, ?: help.

Examples:
  topdeck top
  topdeck top --process shop --interval 200ms
  topdeck top --once

Exit status:
  0  success
  1  no process exports metrics (--once), or standard output is not a terminal
  2  usage error";

const INTERVALS_NS: std::ops::RangeInclusive<i64> = 100_000_000..=10_000_000_000;

fn interval(text: &str) -> Result<u64, String> {
    let ns = time::parse_duration(text)?;
    if !INTERVALS_NS.contains(&ns) {
        return Err("expected 100ms to 10s".to_owned());
    }
    Ok(ns.unsigned_abs())
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut state = AppState::new(options.interval);
    let mut monitor = ProcessMonitor::new(options.process.clone());
    if options.once {
        return print_once(options, &mut state, &mut monitor);
    }
    if !io::stdout().is_terminal() {
        bail!("standard output is not a terminal; --once prints one table");
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        bail!("cannot draw on a terminal with TERM=dumb; --once prints one table");
    }
    screen::run_screen(&mut state, &mut monitor)?;
    Ok(ExitCode::SUCCESS)
}

fn print_once(
    options: &Options,
    state: &mut AppState,
    monitor: &mut ProcessMonitor,
) -> Result<ExitCode> {
    // The most used metric of a process is known only after the second sample.
    sample_all(state, monitor, &DetailSelection::all(), false);
    let nothing = |state: &AppState, monitor: &ProcessMonitor| {
        monitor.errors.iter().for_each(print_message);
        if state.is_empty() {
            print_message(no_process_message(options.process.as_deref()));
        }
        state.is_empty()
    };
    if nothing(state, monitor) {
        return Ok(ExitCode::FAILURE);
    }
    std::thread::sleep(Duration::from_nanos(state.interval_ns));
    sample_all(state, monitor, &DetailSelection::all(), false);
    print_stdout(once::snapshot_text(state).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
