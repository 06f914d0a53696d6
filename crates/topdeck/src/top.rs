//! `topdeck top`: every process of this host that shows metrics in shared memory, as it goes.
//!
//! The way of a number: [`watch`] finds processes and reads what they show, [`look`], as closely as is shown, [`close`]; [`interval`] says what happened between
//! two looks, [`series`], [`process`] and [`board`] keep that and know what is selected; [`columns`] and [`table`] write it,
//! [`view`] draws the screen and [`once`] the text. Only [`watch`] and [`screen`] touch the world.

mod ansi;
mod app_state;
mod column_table;
mod columns;
mod detail_selection;
mod distribution;
#[cfg(test)]
mod fixtures;
mod keys;
mod metric_interval;
mod once;
mod page_view;
mod partial_value;
mod process_history;
mod process_monitor;
mod process_sample;
mod screen;
mod series_history;
mod sort_order;
mod sparkline;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::{print_message, print_stdout};
use crate::time;
use crate::top::app_state::AppState;
use crate::top::detail_selection::DetailSelection;
use crate::top::process_monitor::ProcessMonitor;

/// Show all processes that have metrics in shared memory, as they go
///
/// A row is a process with the busiest of its timing histograms: how often, p50, p99 and the maximum of the last second, and
/// p99 over the last minute; what is in flight, and errors. Enter opens the process with all its metrics, and then a
/// histogram in full. Nothing is asked of the processes: they are read, and do not notice.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// How long an interval is, 100ms to 10s; the keys + and - change it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    interval: u64,

    /// Only processes with this in the name of their program, or of this id
    #[arg(long, value_name = "NAME|PID")]
    process: Option<String>,

    /// One table as text, of one interval, and the end: for scripts
    #[arg(long)]
    once: bool,
}

const AFTER: &str = "\
Keys: up and down, Enter opens, q goes back, s sorts, r reverses, / filters, space pauses, + and - change the interval, ? helps.

Examples:
  topdeck top
  topdeck top --process shop --interval 200ms
  topdeck top --once

Exit status:
  0  all was shown
  1  no process shows anything (--once), or there is no terminal
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
    let mut board = AppState::new(options.interval);
    let mut watch = ProcessMonitor::new(options.process.clone());
    if options.once {
        return print_once(options, &mut board, &mut watch);
    }
    if !io::stdout().is_terminal() {
        bail!("standard output is no terminal; --once writes one table as text");
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        bail!(
            "TERM=dumb says that the terminal cannot be drawn on; --once writes one table as text"
        );
    }
    screen::run_screen(&mut board, &mut watch)?;
    Ok(ExitCode::SUCCESS)
}

/// Why nothing is shown, and what to do.
fn no_process_message(asked: Option<&str>) -> String {
    match asked {
        None => "no process of this host shows metrics in shared memory that may be read: a program does once it uses the crate shm, \
                 or runs on a Java virtual machine"
            .to_owned(),
        Some(asked) => format!(
            "no process with {asked:?} in the name of its program, or as its id, shows metrics in shared memory that may be read; \
             `topdeck ls` lists those that do"
        ),
    }
}

fn print_once(
    options: &Options,
    board: &mut AppState,
    watch: &mut ProcessMonitor,
) -> Result<ExitCode> {
    // Which metric is the busiest of its process is known only after the second look.
    screen::sample_all(board, watch, &DetailSelection::all(), false);
    let nothing = |board: &AppState, watch: &ProcessMonitor| {
        watch.errors.iter().for_each(print_message);
        if board.processes.is_empty() {
            print_message(no_process_message(options.process.as_deref()));
        }
        board.processes.is_empty()
    };
    if nothing(board, watch) {
        return Ok(ExitCode::FAILURE);
    }
    std::thread::sleep(Duration::from_nanos(board.interval_ns));
    screen::sample_all(board, watch, &DetailSelection::all(), false);
    print_stdout(once::snapshot_text(board).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
