//! `topdeck post-mortem`: what a process that is gone was doing.

use std::process::ExitCode;

use anyhow::Result;
use inspect::find::{self, MatchPreference};
use inspect::post_mortem;

use crate::command::{print_message, print_stdout};
use crate::process_argument::find_process;

/// Tell what a process that died was doing
///
/// Its file outlives it, kill -9 and abort included: what it had in flight, by age or by what the
/// program said of it, and all it had counted up to its last instruction. Files of processes that
/// died are kept for a day, within 64 MiB; a copy of one (`cp`) is read as well.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name (its latest process that exited), or path of its file [default:
    /// list all]
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
            let process = find_process(process, MatchPreference::Exited)?;
            post_mortem::to_text(process, options.by.as_deref())?
        }
        None => {
            let (processes, problems) = find::find_all();
            problems.iter().for_each(print_message);
            let (text, errors) = post_mortem::latest_dead(processes)?;
            errors.iter().for_each(print_message);
            text
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
