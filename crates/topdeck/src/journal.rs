//! `topdeck journal`: commands of the durable log.
//!
//! One file per subcommand. [`parse`] parses sizes and positions; [`record_output`] writes records
//! to standard output, [`record_splitter`] splits input into records.

mod append;
mod bench;
mod cat;
mod check;
mod checkpoint;
mod create;
mod limit;
pub(crate) mod parse;
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
use client::print_message;
use journal::{Error, Journal};
use report::journal_format;

use crate::subcommand_table::subcommands;
use render::bytes::humanize_sizes;
use render::text::shell_quote;
use render::time::format_duration;

/// Durable record log with named subscribers
///
/// A journal is a directory. An appended record has a position, is acknowledged at a durability
/// level (process: survives kill -9; disk: survives a power loss), and is retained until every
/// subscriber has read it. Several processes may append and read concurrently, and may be killed at
/// any time.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

const AFTER: &str = "\
Examples:
  topdeck journal create /tmp/j                            create one
  topdeck journal subscribers /tmp/j add store             retain what `store` has not read
  printf '%s\\n' one two | topdeck journal append /tmp/j    append two records
  topdeck journal cat /tmp/j --subscriber store            read them; the next time only new ones
  topdeck journal tail -f /tmp/j                           watch
  topdeck journal stat /tmp/j                              show its state

Exit status:
  0  success
  1  error, or verify found damage, or a durability level was not reached
  2  usage error
  3  cat or tail: records are missing; standard error has their positions and reasons";

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

/// Reports a usage error of a check that clap cannot do: exit status 2.
fn exit_with_usage_error(subcommand: &str, message: String) -> ! {
    crate::usage_error::exit_with_usage_error(&format!("journal {subcommand}"), message)
}

/// Opens a journal, and reports records lost since it was last open.
fn open(dir: &Path) -> Result<Journal> {
    try_open(dir, &journal::Options::default()).map_err(with_dir(dir))
}

/// Opens a journal without becoming its segment writer, so that a stopped reader (Ctrl-Z on
/// `tail -f`) blocks nobody.
fn open_read_only(dir: &Path) -> Result<Journal> {
    let options = journal::Options { has_background_thread: false, ..journal::Options::default() };
    try_open(dir, &options).map_err(with_dir(dir))
}

fn try_open(dir: &Path, options: &journal::Options) -> Result<Journal, Error> {
    let journal = Journal::open(Arc::new(disk::OsDisk), dir, options)?;
    let report = journal.recovery_report();
    for gap in &report.gaps {
        print_message(format_args!(
            "{}: recovered on open: {}",
            dir.display(),
            journal_format::describe_gap(gap)
        ));
    }
    for file in &report.damaged_files {
        print_message(format_args!("{}: recovered on open: {file}", dir.display()));
    }
    Ok(journal)
}

/// Error of the journal with its directory, mentioned once, and with a remedy if the library does
/// not know it.
fn with_dir(dir: &Path) -> impl Fn(Error) -> anyhow::Error {
    let (name, quoted) = (dir.display().to_string(), shell_quote(dir));
    move |error| {
        let text = match &error {
            // These name the file or directory themselves.
            Error::Io { .. }
            | Error::NotFound { .. }
            | Error::AlreadyExists { .. }
            | Error::SettingsLost { .. }
            | Error::Version { .. }
            | Error::InUse { .. }
            | Error::TooManyHandles { .. }
            | Error::CheckpointCorrupt { .. } => return anyhow!("{error}"),
            Error::Full(full) => {
                format!("journal is full: {}", journal_format::full_message(&quoted, full))
            }
            Error::AppendTimeout { waited } => {
                format!(
                    "the buffer was full for {}: {}",
                    format_duration(*waited),
                    journal_format::stalled_message(&quoted)
                )
            }
            Error::InvalidSetting { .. } => humanize_sizes(&error.to_string()),
            Error::NoCheckpoint { .. } => format!(
                "{error}; `topdeck journal subscribers {quoted}` and `topdeck journal checkpoint \
                 {quoted}` list them"
            ),
            Error::CheckpointLocked { .. } => format!("{error}; stop it first"),
            other => other.to_string(),
        };
        anyhow!("{name}: {text}")
    }
}
