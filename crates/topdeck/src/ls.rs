//! `topdeck ls`: the processes of this host that show metrics.

use std::process::ExitCode;

use anyhow::Result;
use shm::ProcessState;

use crate::command::{escape_control, print_message, print_stdout};
use crate::hist::value_formatter::count;
use crate::journal::format::format_table;
use crate::processes::find::{self, MatchedProcess};
use crate::processes::listing;

/// List the processes that show metrics in shared memory
///
/// Those of this host that run, in containers too, as far as their files may be read: programs that use topdeck's library,
/// Performance Co-Pilot's, or run in a Java virtual machine. Nothing is asked of the processes themselves.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Those that are gone and whose files are kept, too
    #[arg(long)]
    all: bool,
}

const AFTER: &str = "\
States:
  runs      it runs
  ended     it ended as it meant to
  died      it was killed, or died: `topdeck post-mortem` tells what it was doing
  replaced  it became another program, or made a later file
  unknown   it is in a namespace where nobody here can see whether it runs

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
    let (gone, running): (Vec<&MatchedProcess>, Vec<&MatchedProcess>) =
        processes.iter().partition(|process| process.running_pid().is_none());
    let others = (!options.all && !gone.is_empty()).then(|| hidden_summary(&gone));
    let none_runs = running.is_empty();
    let mut text = String::new();
    if options.all || !none_runs {
        let heading = ["pid", "program", "format", "user", "since", "series", "state", "memory"];
        let mut rows = vec![heading.map(str::to_owned)];
        let wanted = processes.iter_mut().filter(|it| options.all || it.running_pid().is_some());
        rows.extend(wanted.map(process_row));
        let right = [true, false, false, false, false, true, false, true];
        text.push_str(&format_table(&rows, right));
    } else {
        text.push_str("  no process that shows metrics runs\n");
    }
    text.extend(others);
    print_stdout(text.as_bytes())?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn process_row(process: &mut MatchedProcess) -> [String; 8] {
    let series = listing::series_count_text(process);
    [
        process.attached.pid().to_string(),
        escape_control(process.program()),
        process.attached.metrics_file().format.name().to_owned(),
        escape_control(&listing::owner_name(process)),
        listing::start_text(process),
        series,
        process.state_text().to_owned(),
        listing::memory_text(process),
    ]
}

/// How many are not shown, and where to see them.
fn hidden_summary(gone: &[&MatchedProcess]) -> String {
    let of = |fate| gone.iter().filter(|it| it.attached.metrics_file().state == fate).count();
    let parts = [
        (of(ProcessState::Terminated), "died"),
        (of(ProcessState::Exited), "ended"),
        (of(ProcessState::Replaced), "were replaced"),
        (of(ProcessState::Unknown), "may run elsewhere"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", count(n as u64))).collect();
    format!("  Not listed: {}; --all lists them.\n", parts.join(", "))
}
