//! `topdeck journal subscribers`: lists, adds and removes subscribers.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Subcommand;
use client::print_stdout;
use journal::{CheckpointKind, StartPosition};
use report::{journal_format, journal_stat};

use crate::journal::{open_read_only, parse, with_dir};
use render::text::escape_control;
use render::text::shell_quote;

/// List, add and remove subscribers
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(subcommand)]
    subcommand: Option<SubscriberCommand>,
}

#[derive(Subcommand)]
enum SubscriberCommand {
    /// Add a subscriber
    Add {
        /// Name of the subscriber, 1 to 80 bytes
        #[arg(value_name = "NAME")]
        name: String,
        /// Start position: begin, end, or a position
        #[arg(long, value_name = "POSITION", default_value = "begin", value_parser = parse::parse_start)]
        at: StartPosition,
        /// Let the limits drop records that it has not read; it receives a gap for them
        ///
        /// By default a journal that has reached its limit rejects appends instead.
        #[arg(long)]
        droppable: bool,
    },
    /// Remove a subscriber; records that only it has not read are no longer retained
    Remove {
        /// Name of the subscriber
        #[arg(value_name = "NAME")]
        name: String,
    },
}

const AFTER: &str = "\
Examples:
  topdeck journal subscribers j
  topdeck journal subscribers j add store
  topdeck journal subscribers j add dashboard --at end --droppable
  topdeck journal subscribers j remove dashboard

Exit status:
  0  success
  1  journal or subscriber not found, or the subscriber is in use
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let dir = &options.dir;
    let journal = open_read_only(dir)?;
    let on_full = |journal: &journal::Journal| {
        journal.stat().map(|stat| stat.settings.limits.on_full).map_err(with_dir(dir))
    };
    let text = match &options.subcommand {
        None => {
            let stat = journal.stat().map_err(with_dir(dir))?;
            match stat
                .checkpoints
                .iter()
                .any(|checkpoint| checkpoint.kind == CheckpointKind::Subscriber)
            {
                true => {
                    journal_stat::checkpoint_table(&stat, CheckpointKind::Subscriber, "subscriber")
                }
                false => format!(
                    "no subscribers; add one with `topdeck journal subscribers {} add NAME`\n",
                    shell_quote(dir)
                ),
            }
        }
        Some(SubscriberCommand::Add { name, at, droppable }) => {
            let added = journal.add_subscriber(name, *at, !droppable).map_err(with_dir(dir))?;
            let behind = journal.watermarks().end.saturating_sub(added.position);
            format!(
                "{}: subscribed at position {}, {} to read; unread records are {} when a limit is reached\n",
                escape_control(name),
                added.position,
                journal_format::format_records(behind),
                journal_stat::at_limit(&added, on_full(&journal)?)
            )
        }
        Some(SubscriberCommand::Remove { name }) => {
            // Of a damaged one only the name is known.
            let kind = journal.checkpoint(name).map(|checkpoint| checkpoint.kind);
            if let Ok(CheckpointKind::Plain) = kind {
                bail!(
                    "{}: checkpoint {name:?} is not a subscriber; remove it with `topdeck journal \
                     checkpoint {} {name} --remove`",
                    dir.display(),
                    shell_quote(dir)
                );
            }
            journal.remove_checkpoint(name).map_err(with_dir(dir))?;
            format!("{}: removed\n", escape_control(name))
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
