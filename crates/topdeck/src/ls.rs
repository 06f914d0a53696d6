//! `topdeck ls`: the processes of this host that show metrics.

use std::process::ExitCode;

use anyhow::Result;
use inspect::{find, ls};

use crate::command::{print_message, print_stdout};

/// List the processes that show metrics in shared memory
///
/// Those of this host that run, in containers too, as far as their files may be read: programs that
/// use topdeck's library, Performance Co-Pilot's, or run in a Java virtual machine. Nothing is
/// asked of the processes themselves.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Those that are gone and whose files are kept, too
    #[arg(long)]
    all: bool,
}

const AFTER: &str = "\
States:
  running     it runs
  exited      it exited cleanly
  terminated  it was killed or crashed: `topdeck post-mortem` tells what it was doing
  replaced    it became another program (exec), or made a later file
  unknown     it is in a namespace where nobody here can see whether it runs

Environment:
  TOPDECK_SHM  a folder to look at, beside /run/topdeck and /dev/shm

Exit status:
  0  there are some
  1  there are none, or a file could not be read
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (mut processes, problems) = find::find_all();
    problems.iter().for_each(print_message);
    if processes.is_empty() {
        print_message(format_args!("no process shows metrics here: {}", find::no_metrics_advice()));
        return Ok(ExitCode::FAILURE);
    }
    print_stdout(ls::to_text(&mut processes, options.all).as_bytes())?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
