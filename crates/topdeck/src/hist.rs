//! `topdeck hist`: the distribution in files, as text, picture or JSON.
//!
//! The way of a value: [`input`] reads files (or [`memory`] a process) through `collect` into [`group`]s, each one [`whole`]
//! distribution; [`report`] prints a group, with pictures from [`shape`] and [`spectrum`]; [`json`], [`svg`],
//! [`compare`] and [`intervals`] say the same in their own form. [`show`] writes numbers with units.

pub(crate) mod above;
pub(crate) mod axis;
mod compare;
pub(crate) mod curve;
mod decades;
pub(crate) mod group;
mod heat;
pub(crate) mod input;
pub(crate) mod intervals;
pub(crate) mod json;
mod memory;
pub(crate) mod options;
pub(crate) mod plot;
mod report;
mod shape;
pub(crate) mod show;
pub(crate) mod spectrum;
mod svg;
pub(crate) mod terminal;
pub(crate) mod whole;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::command::{print, say};
use crate::hist::input::Collected;
pub(crate) use crate::hist::options::Options;
use crate::hist::terminal::Terminal;

/// Reads, reports, and says what could not be read.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.check();
    let in_memory = memory::meant(options)?;
    let options = in_memory.as_ref().unwrap_or(options);
    let collected = input::collect(options)?;
    let damaged = !collected.troubles.is_empty() || !collected.unread.is_empty();
    if damaged {
        complain(options, &collected);
        if !options.keep_going {
            return Ok(ExitCode::FAILURE);
        }
    }
    if collected.groups.iter().all(|group| group.whole.is_void()) {
        if !damaged || collected.has_skipped() {
            say(collected.nothing(options));
        }
        return Ok(ExitCode::FAILURE);
    }
    let terminal = Terminal::new(options.ascii);
    let text = if options.heatmap {
        heat::text(options, &collected, &terminal)?
    } else if options.json {
        json::document(options, &collected)?
    } else if options.compare {
        compare::text(options, &collected, &terminal)?
    } else {
        report::text(options, &collected, &terminal)?
    };
    if let Some(path) = &options.svg {
        let picture = if options.heatmap {
            heat::svg(options, &collected)?
        } else {
            svg::document(options, &collected.groups)?
        };
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(text.as_bytes())?;
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// As many troubles as a person reads; the rest is counted.
const TROUBLES_SHOWN: usize = 10;

fn complain(options: &Options, collected: &Collected) {
    for unread in &collected.unread {
        say(unread);
    }
    for (file, trouble) in collected.troubles.iter().take(TROUBLES_SHOWN) {
        say(format_args!("{file}: {trouble}"));
    }
    let more = collected.trouble_count.saturating_sub(TROUBLES_SHOWN as u64);
    if more > 0 {
        say(format_args!("{more} more like these"));
    }
    if options.keep_going {
        say("the report is of what could be read");
    } else if collected.trouble_count > 0 {
        let unknown =
            collected.troubles.iter().any(|(_, trouble)| trouble.expected == "a known format");
        let advice = if unknown {
            "name the format with --format"
        } else {
            "mend the input, or report what can be read with --keep-going"
        };
        say(format_args!("nothing is reported; {advice}"));
    }
}

/// A check that the command line makes no sense of: exit status 2 as for any other.
fn usage(message: String) -> ! {
    use clap::CommandFactory as _;
    let mut command = crate::command::Topdeck::command();
    command.build();
    let hist = command.find_subcommand_mut("hist").expect("BUG: hist is a subcommand");
    hist.error(clap::error::ErrorKind::ValueValidation, message).exit()
}
