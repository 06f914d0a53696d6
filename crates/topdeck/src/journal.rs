//! `topdeck journal`: commands of the durable log.
//!
//! One file per subcommand. [`parse`] reads sizes and positions, [`show`] writes them; [`output`]
//! brings records to standard output, [`input`] cuts what is appended into records, [`progress`]
//! says on a terminal how far something has come.

mod append;
mod bench;
mod cat;
mod check;
mod checkpoint;
mod create;
pub(crate) mod format;
mod limit;
pub(crate) mod parse;
pub(crate) mod progress_line;
mod record_output;
mod record_splitter;
mod seek;
mod stat;
mod subscribers;
mod tail;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use journal::{Error, Journal};

use crate::command::{print_message, subcommands};
use render::bytes::humanize_sizes;
use render::text::shell_quote;
use render::time::format_duration;

/// Keep records in a durable log, and read them with named subscribers
///
/// A journal is a folder. What is appended to it has a position, is acknowledged at a level
/// (process: survives kill -9; disk: survives a power cut), and is kept until every subscriber has
/// read it. Several processes may append to it and read it at once, and may be killed at any
/// moment.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

const AFTER: &str = "\
Examples:
  topdeck journal create /tmp/j                            make one
  topdeck journal subscribers /tmp/j add store             what `store` has not read is kept
  printf '%s\\n' one two | topdeck journal append /tmp/j    append two records
  topdeck journal cat /tmp/j --subscriber store            read them; next time, only what is new
  topdeck journal tail -f /tmp/j                           watch
  topdeck journal stat /tmp/j                              how it is

Exit status:
  0  success
  1  something failed, or verify found damage, or a level was not reached
  2  usage error
  3  cat or tail: records were missing; standard error says which, and why";

subcommands! {
    Command:
    Create(create::Options) => create::run,
    Append(append::Options) => append::run,
    Cat(cat::Options) => cat::run,
    Tail(tail::Options) => tail::run,
    Stat(stat::Options) => stat::run,
    Subscribers(subscribers::Options) => subscribers::run,
    Checkpoint(checkpoint::Options) => checkpoint::run,
    Seek(seek::Options) => seek::run,
    Limit(limit::Options) => limit::run,
    Verify(check::JournalVerifyOptions) => check::verify,
    Repair(check::JournalRepairOptions) => check::repair,
    Bench(bench::Options) => bench::run,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}

/// Opens a journal, and says what was lost since it was open last, if anything was.
fn open(dir: &Path) -> Result<Journal> {
    try_open(dir, &journal::Options::default()).map_err(with_dir(dir))
}

/// The same for a command that reads: it leaves the writing to others, so that one that is stopped
/// (Ctrl-Z on a `tail -f`) keeps nobody waiting.
fn open_read_only(dir: &Path) -> Result<Journal> {
    let options = journal::Options { has_background_thread: false, ..journal::Options::default() };
    try_open(dir, &options).map_err(with_dir(dir))
}

fn try_open(dir: &Path, options: &journal::Options) -> Result<Journal, Error> {
    let journal = Journal::open(Arc::new(disk::OsDisk), dir, options)?;
    let opened = journal.recovery_report();
    for gap in &opened.gaps {
        print_message(format_args!(
            "{}: found on opening: {}",
            dir.display(),
            format::describe_gap(gap)
        ));
    }
    for file in &opened.damaged_files {
        print_message(format_args!("{}: found on opening: {file}", dir.display()));
    }
    Ok(journal)
}

/// An error of the journal with the folder it is about, once, and what to do where the library
/// cannot know.
fn with_dir(dir: &Path) -> impl Fn(Error) -> anyhow::Error {
    let (name, typed) = (dir.display().to_string(), shell_quote(dir));
    move |error| {
        let text = match &error {
            // These name the file or folder themselves.
            Error::Io { .. }
            | Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::SettingsLost { .. }
            | Error::Version { .. }
            | Error::InUse { .. }
            | Error::TooManyHandles { .. }
            | Error::CheckpointCorrupt { .. } => return anyhow!("{error}"),
            Error::Full(full) => {
                format!("the journal is full: {}", format::full_message(&typed, full))
            }
            Error::AppendTimeout { waited } => {
                format!(
                    "its buffer stayed full for {}: {}",
                    format_duration(*waited),
                    format::stalled_message(&typed)
                )
            }
            Error::InvalidSetting { .. } => humanize_sizes(&error.to_string()),
            Error::NoCheckpoint { .. } => format!(
                "{error}; `topdeck journal subscribers {typed}` and `topdeck journal checkpoint \
                 {typed}` list them"
            ),
            Error::SubscriberBusy { .. } => format!("{error}; end that one first"),
            other => other.to_string(),
        };
        anyhow!("{name}: {text}")
    }
}
