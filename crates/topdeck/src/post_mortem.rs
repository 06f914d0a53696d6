//! `topdeck post-mortem`: what a process that is gone was doing.

use std::process::ExitCode;

use anyhow::{Result, bail};
use shm::ProcessState;

use crate::command::{escape_control, print_message, print_stdout};
use crate::hist::value_formatter::count;
use crate::in_flight::LISTED_MAX;
use crate::journal::format::format_table;
use crate::processes::find::{self, MatchPreference, MatchedProcess};
use crate::processes::metric_patterns::MetricPatterns;
use crate::processes::operations::Operations;
use crate::processes::reference_time::{self, ReferenceTime};
use crate::processes::{listing, report};

/// Tell what a process that died was doing
///
/// Its file outlives it, kill -9 and abort included: what it had in flight, by age or by what the program said of it, and all
/// it had counted up to its last instruction. Files of processes that died are kept for a day, within 64 MiB; a copy of one
/// (`cp`) is read as well.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name (its latest process that exited), or path of its file [default: list all]
    #[arg(value_name = "PROCESS")]
    process: Option<String>,

    /// How many operations it had in flight for each value of a tag or label
    #[arg(long, value_name = "TAG", requires = "process")]
    by: Option<String>,
}

const AFTER: &str = "\
Examples:
  topdeck post-mortem                    who died
  topdeck post-mortem db --by device     on which devices its operations were

Exit status:
  0  it is told
  1  nobody of that name is gone, or nobody died
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let text = match &options.process {
        Some(process) => {
            report(find::find_one(process, MatchPreference::Exited)?, options.by.as_deref())?
        }
        None => latest_dead()?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The dead, the latest first.
fn latest_dead() -> Result<String> {
    let (mut processes, problems) = find::find_all();
    problems.iter().for_each(print_message);
    processes.retain(|process| process.attached.metrics_file().state == ProcessState::Terminated);
    if processes.is_empty() {
        bail!(
            "no process that showed metrics died here and has its file kept; `topdeck ls --all` lists all there are"
        );
    }
    let heading = ["pid", "program", "since", "in flight", "oldest", "latest sign of life"];
    let mut rows = vec![heading.map(str::to_owned)];
    for process in &mut processes {
        let (since, program, pid) = (
            listing::start_text(process),
            escape_control(process.program()),
            process.attached.pid().to_string(),
        );
        let metrics = match process.attached.metrics() {
            Ok(metrics) => metrics,
            Err(error) => {
                print_message(error);
                continue;
            }
        };
        let as_of = ReferenceTime::for_process(process, &metrics);
        let mut operations = Operations::default();
        operations.add(&process.name(), &metrics, &as_of);
        let (in_flight, oldest) = match operations.tables {
            0 => ("not shown".to_owned(), String::new()),
            _ => (count(operations.count()), operations.oldest_age()),
        };
        let sign = as_of.unix_ns.map_or_else(|| "unknown".to_owned(), reference_time::time_ms_text);
        rows.push([pid, program, since, in_flight, oldest, sign]);
    }
    Ok(format_table(&rows, [true, false, false, true, true, false]))
}

fn report(mut process: MatchedProcess, by: Option<&str>) -> Result<String> {
    if process.running_pid().is_some() {
        let pid = process.attached.pid();
        bail!(
            "{} runs; see it with `topdeck cat {pid}` or `topdeck in-flight {pid}`",
            process.name()
        );
    }
    let metrics = process.attached.metrics()?;
    let as_of = ReferenceTime::for_process(&process, &metrics);
    let mut operations = Operations::default();
    operations.add(&process.name(), &metrics, &as_of);
    let mut lines = listing::heading_lines(&process);
    if let Some(reader) = process.attached.reader()
        && !process.is_copy
    {
        lines.push(format!("  end      {}", reference_time::exit_text(&reader.process())));
    }
    lines.push(format!("  ages     {}", as_of.sentence()));
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("{}\n", escape_control(&line)));
    }
    text.push('\n');
    text.push_str(&match (operations.tables, operations.count()) {
        (0, _) => "It did not show what it had in flight.\n".to_owned(),
        (_, 0) => "Nothing was in flight.\n".to_owned(),
        (_, 1) => "1 operation was in flight:\n".to_owned(),
        (_, n) => format!("{} operations were in flight:\n", count(n)),
    });
    if let Some(by) = by.filter(|_| operations.count() > 0) {
        text.push_str(&operations.group_table(by));
    } else if !operations.list.is_empty() {
        text.push_str(&operations.oldest_table(LISTED_MAX));
    }
    let shown = if by.is_some() { operations.list.len() } else { LISTED_MAX };
    for line in operations.omissions(shown) {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("\nWhat it showed:\n");
    match metrics.is_empty() {
        true => text.push_str("  nothing\n"),
        false => text.push_str(&report::metrics_table(&metrics, &MetricPatterns::new(&[]), &as_of)),
    }
    Ok(text)
}
