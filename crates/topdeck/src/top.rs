//! `topdeck top`: every process of this host that shows metrics in shared memory, as it goes.

mod screen;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::{print_message, print_stdout};
use crate::time;
use inspect::top::app_state::AppState;
use inspect::top::detail_selection::DetailSelection;
use inspect::top::process_monitor::ProcessMonitor;
use inspect::top::{no_process_message, once, sample_all};

/// Show all processes that have metrics in shared memory, as they go
///
/// A row is a process with the busiest of its timing histograms: how often, p50, p99 and the
/// maximum of the last second, and p99 over the last minute; what is in flight, and errors. Enter
/// opens the process with all its metrics, and then a histogram in full. Nothing is asked of the
/// processes: they are read, and do not notice.
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

fn print_once(
    options: &Options,
    board: &mut AppState,
    watch: &mut ProcessMonitor,
) -> Result<ExitCode> {
    // Which metric is the busiest of its process is known only after the second look.
    sample_all(board, watch, &DetailSelection::all(), false);
    let nothing = |board: &AppState, watch: &ProcessMonitor| {
        watch.errors.iter().for_each(print_message);
        if board.is_empty() {
            print_message(no_process_message(options.process.as_deref()));
        }
        board.is_empty()
    };
    if nothing(board, watch) {
        return Ok(ExitCode::FAILURE);
    }
    std::thread::sleep(Duration::from_nanos(board.interval_ns));
    sample_all(board, watch, &DetailSelection::all(), false);
    print_stdout(once::snapshot_text(board).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
