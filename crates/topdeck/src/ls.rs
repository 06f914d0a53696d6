//! `topdeck ls`: processes of this host that export metrics.

use std::process::ExitCode;

use anyhow::Result;
use client::{print_message, print_stdout};
use inspect::{find, ls};

/// List the processes that export metrics in shared memory
///
/// Lists running processes of this host and its containers whose files are readable: programs that
/// use topdeck's library or Performance Co-Pilot's, or run in a Java virtual machine. The processes
/// themselves are not accessed.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Include processes that have ended and whose files still exist
    #[arg(long)]
    all: bool,
}

const AFTER: &str = "\
States:
  running     running
  exited      exited cleanly
  terminated  killed or crashed: `topdeck post-mortem` shows its last state
  replaced    executed another program (exec), or created a newer file
  unknown     in another PID namespace, so its state is not visible

Environment:
  TOPDECK_SHM  directory to search in addition to /run/topdeck and /dev/shm

Exit status:
  0  at least one process was found
  1  no process was found, or a file could not be read
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (mut processes, problems) = find::find_all();
    problems.iter().for_each(print_message);
    if processes.is_empty() {
        print_message(format_args!("no process exports metrics: {}", find::no_metrics_advice()));
        return Ok(ExitCode::FAILURE);
    }
    print_stdout(ls::to_text(&mut processes, options.all).as_bytes())?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
