//! `topdeck ls`: the processes of this host that show metrics.

use std::process::ExitCode;

use anyhow::Result;
use shm::Fate;

use crate::command::{plain, print, say};
use crate::hist::show::count;
use crate::journal::show::table;
use crate::processes::find::{self, Process};
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
  2  the command line makes no sense";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (mut processes, problems) = find::all();
    problems.iter().for_each(say);
    if processes.is_empty() {
        say(format_args!("no process shows metrics here: {}", find::advice()));
        return Ok(ExitCode::FAILURE);
    }
    let (gone, running): (Vec<&Process>, Vec<&Process>) =
        processes.iter().partition(|process| process.runs_as().is_none());
    let others = (!options.all && !gone.is_empty()).then(|| others(&gone));
    let none_runs = running.is_empty();
    let mut text = String::new();
    if options.all || !none_runs {
        let heading = ["pid", "program", "format", "user", "since", "series", "state", "memory"];
        let mut rows = vec![heading.map(str::to_owned)];
        let wanted = processes.iter_mut().filter(|it| options.all || it.runs_as().is_some());
        rows.extend(wanted.map(row));
        let right = [true, false, false, false, false, true, false, true];
        text.push_str(&table(&rows, right));
    } else {
        text.push_str("  no process that shows metrics runs\n");
    }
    text.extend(others);
    print(text.as_bytes())?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(process: &mut Process) -> [String; 8] {
    let series = listing::series(process);
    [
        process.attached.pid().to_string(),
        plain(process.program()),
        process.attached.found().format.name().to_owned(),
        plain(&listing::user(process)),
        listing::since(process),
        series,
        process.state().to_owned(),
        listing::memory(process),
    ]
}

/// How many are not shown, and where to see them.
fn others(gone: &[&Process]) -> String {
    let of = |fate| gone.iter().filter(|it| it.attached.found().fate == fate).count();
    let parts = [
        (of(Fate::Died), "died"),
        (of(Fate::Ended), "ended"),
        (of(Fate::Replaced), "were replaced"),
        (of(Fate::Unknown), "may run elsewhere"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let parts: Vec<String> = parts.map(|(n, what)| format!("{} {what}", count(n as u64))).collect();
    format!("  Not listed: {}; --all lists them.\n", parts.join(", "))
}
