//! `topdeck in-flight`: operations in flight.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inspect::find::{self, MatchPreference};
use inspect::in_flight;

use crate::command::{print_message, print_stdout};
use crate::process_argument::find_process;
use crate::time;

/// Show operations in flight
///
/// What is stuck is seen here before it ends: a histogram knows an operation only after its end. Of
/// all processes that run, or of one; of one that is gone, ages are as of its last sign of life.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name, or path of its file [default: all running processes]
    #[arg(value_name = "PROCESS")]
    process: Option<String>,

    /// How many there are for each value of a tag or label; also `process` and `metric`
    #[arg(long, value_name = "TAG")]
    by: Option<String>,

    /// Only operations at least this old, such as 1s
    #[arg(long, value_name = "DURATION", value_parser = time::parse_interval)]
    older_than: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Examples:
  topdeck in-flight                        the oldest of all processes
  topdeck in-flight db --by device         how many on which device
  topdeck in-flight --older-than 1s --by process

Exit status:
  0  they are shown; there may be none
  1  there is no such process, or none shows what it has in flight
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut processes = match &options.process {
        Some(process) => vec![find_process(process, MatchPreference::Running)?],
        None => {
            let (processes, problems) = find::find_all();
            problems.iter().for_each(print_message);
            processes.into_iter().filter(|process| process.running_pid().is_some()).collect()
        }
    };
    if processes.is_empty() {
        bail!("no process that shows metrics runs here: {}", find::no_metrics_advice());
    }
    let (mut operations, as_of, errors) = in_flight::gather(&mut processes);
    errors.iter().for_each(print_message);
    if operations.tables == 0 {
        let who = match &processes[..] {
            [one] => format!("{} does not show", one.name()),
            all => format!("none of {} processes shows", all.len()),
        };
        bail!("{who} what it has in flight: a program does with shm::InFlight");
    }
    if let Some(least_ns) = options.older_than {
        operations.retain_older_than(least_ns);
    }
    let by = options.by.as_deref();
    let text = match options.json {
        true => format!("{}\n", in_flight::to_json(by, &operations, &as_of)),
        false => in_flight::to_text(by, &processes, &operations, &as_of),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
