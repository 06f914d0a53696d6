//! `topdeck journal checkpoint`: named positions.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use client::print_stdout;
use journal::{Checkpoint, CheckpointKind, Error, StartPosition};
use report::{journal_format, journal_stat};

use crate::journal::{open_read_only, parse, with_dir};
use render::text::escape_control;
use render::text::shell_quote;
use render::time::format_time;

/// List, set, show and remove named positions for `topdeck journal seek`
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Name of the checkpoint, 1 to 80 bytes; without further options it is shown
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Set or move it: begin, end, or a position
    #[arg(long, value_name = "POSITION", value_parser = parse::parse_start, requires = "name")]
    at: Option<StartPosition>,

    /// Let the limits drop records after a new checkpoint; by default they are retained for it
    #[arg(long, requires = "at")]
    droppable: bool,

    /// Remove it
    #[arg(long, requires = "name", conflicts_with = "at")]
    remove: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal checkpoint j
  topdeck journal checkpoint j before-release --at end --droppable
  topdeck journal seek j store --to before-release
  topdeck journal checkpoint j before-release --remove

Exit status:
  0  success
  1  journal or checkpoint not found
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let dir = &options.dir;
    let journal = open_read_only(dir)?;
    let (dir_text, quoted) = (dir.display(), shell_quote(dir));
    let stat = |journal: &journal::Journal| journal.stat().map_err(with_dir(dir));
    let Some(name) = &options.name else {
        let stat = stat(&journal)?;
        let text = match stat
            .checkpoints
            .iter()
            .any(|checkpoint| checkpoint.kind == CheckpointKind::Plain)
        {
            true => journal_stat::checkpoint_table(&stat, CheckpointKind::Plain, "checkpoint"),
            false => format!(
                "no checkpoints; set one with `topdeck journal checkpoint {quoted} NAME --at end`\n"
            ),
        };
        print_stdout(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let before = match journal.checkpoint(name) {
        Ok(checkpoint) if checkpoint.kind == CheckpointKind::Subscriber => bail!(
            "{dir_text}: {name:?} belongs to a subscriber; move it with `topdeck journal \
             seek`, or remove it with `topdeck journal subscribers {quoted} remove {name}`"
        ),
        Ok(checkpoint) => Some(checkpoint),
        Err(Error::NoCheckpoint { .. }) if options.at.is_some() => None,
        Err(Error::NoCheckpoint { .. }) => bail!(
            "{dir_text}: checkpoint {name:?} not found; set it with `topdeck journal checkpoint \
             {quoted} {name} --at end`"
        ),
        Err(error) => return Err(with_dir(dir)(error)),
    };
    let text = match (options.at, before) {
        (Some(at), None) => {
            let set =
                journal.add_checkpoint(name, at, !options.droppable).map_err(with_dir(dir))?;
            format!(
                "{}: set at position {}; records after it are {} when a limit is reached\n",
                escape_control(name),
                set.position,
                journal_stat::at_limit(&set, stat(&journal)?.settings.limits.on_full)
            )
        }
        (Some(_), Some(Checkpoint { pins_records: true, .. })) if options.droppable => {
            bail!(
                "{dir_text}: checkpoint {name:?} pins records; remove it and set it again with \
                 --droppable"
            )
        }
        (Some(at), Some(before)) => {
            let set = journal.set_checkpoint(name, at).map_err(with_dir(dir))?;
            format!("{}: position {} -> {}\n", escape_control(name), before.position, set.position)
        }
        (None, _) if options.remove => {
            journal.remove_checkpoint(name).map_err(with_dir(dir))?;
            format!("{}: removed\n", escape_control(name))
        }
        (None, Some(checkpoint)) => {
            let stat = stat(&journal)?;
            format!(
                "{}: position {}, {} behind the end, set {}; records after it are {} when a limit is reached\n",
                escape_control(name),
                checkpoint.position,
                journal_format::format_records(journal_stat::lag_records(&stat, &checkpoint)),
                format_time(checkpoint.committed_at),
                journal_stat::at_limit(&checkpoint, stat.settings.limits.on_full)
            )
        }
        (None, None) => unreachable!("BUG: rejected above"),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
