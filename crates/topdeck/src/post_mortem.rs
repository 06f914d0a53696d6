//! `topdeck post-mortem`: last state of a process that has ended.

use std::process::ExitCode;

use anyhow::Result;
use client::{print_message, print_stdout};
use inspect::find::{self, MatchPreference};
use inspect::post_mortem;

use crate::process_argument::find_process;

/// Show the last state of a terminated process
///
/// The metrics file outlives its process, also after kill -9 and abort. It has the operations in
/// flight, by age or by tag, and all metrics up to the last instruction. Files of terminated
/// processes are kept for a day, up to 64 MiB in total; a copy of a file (`cp`) can be read as
/// well.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name (its latest process that exited), or path of its file [default:
    /// list all]
    #[arg(value_name = "PROCESS")]
    process: Option<String>,

    /// Count operations in flight per value of a tag or label
    #[arg(long, value_name = "TAG", requires = "process")]
    by: Option<String>,
}

const AFTER: &str = "\
Examples:
  topdeck post-mortem                    list terminated processes
  topdeck post-mortem db --by device     count its operations per device

Exit status:
  0  success
  1  no exited process of that name, or no terminated process
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let text = match &options.process {
        Some(process) => {
            let process = find_process(process, MatchPreference::Exited)?;
            post_mortem::to_text(process, options.by.as_deref())?
        }
        None => {
            let (processes, problems) = find::find_all();
            problems.iter().for_each(print_message);
            let (text, errors) = post_mortem::terminated_table(processes)?;
            errors.iter().for_each(print_message);
            text
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
