//! `topdeck hist`: the distribution in files, as text, picture or JSON.
//!
//! [`input`] reads files (or [`process_metrics`] a process) through `collect` into [`group`]s of
//! one merged distribution each; [`report`] prints a group as text or SVG with crate `render`,
//! [`json`] as JSON; [`compare`] and [`intervals`] are reports of their own.

mod compare;
pub(crate) mod group;
mod heat;
pub(crate) mod input;
pub(crate) mod intervals;
pub(crate) mod json;
pub(crate) mod number_recorder;
pub(crate) mod options;
mod process_metrics;
mod report;
pub(crate) mod threshold_count;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::command::{print_message, print_stdout};
use crate::hist::input::CollectedInput;
pub(crate) use crate::hist::options::Options;
use render::terminal::Terminal;

/// Reads, reports, and says what could not be read.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.check();
    let in_memory = process_metrics::resolve_process(options)?;
    let options = in_memory.as_ref().unwrap_or(options);
    let collected = input::collect(options)?;
    let damaged = !collected.errors.is_empty() || !collected.unreadable.is_empty();
    if damaged {
        report_errors(options, &collected);
        if !options.keep_going {
            return Ok(ExitCode::FAILURE);
        }
    }
    if collected.groups.iter().all(|group| group.distribution.is_empty()) {
        if !damaged || collected.has_skipped() {
            print_message(collected.no_data_message(options));
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
            report::svg(options, &collected.groups)?
        };
        fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print_stdout(text.as_bytes())?;
    Ok(if damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// As many troubles as a person reads; the rest is counted.
const ERRORS_SHOWN_MAX: usize = 10;

fn report_errors(options: &Options, collected: &CollectedInput) {
    for unread in &collected.unreadable {
        print_message(unread);
    }
    for (file, trouble) in collected.errors.iter().take(ERRORS_SHOWN_MAX) {
        print_message(format_args!("{file}: {trouble}"));
    }
    let more = collected.error_count.saturating_sub(ERRORS_SHOWN_MAX as u64);
    if more > 0 {
        print_message(format_args!("{more} more like these"));
    }
    if options.keep_going {
        print_message("the report is of what could be read");
    } else if collected.error_count > 0 {
        let unknown =
            collected.errors.iter().any(|(_, trouble)| trouble.expected == "a known format");
        let advice = if unknown {
            "name the format with --format"
        } else {
            "mend the input, or report what can be read with --keep-going"
        };
        print_message(format_args!("nothing is reported; {advice}"));
    }
}

/// A check that usage error of: exit status 2 as for any other.
fn exit_with_usage_error(message: String) -> ! {
    use clap::CommandFactory as _;
    let mut command = crate::command::Topdeck::command();
    command.build();
    let hist = command.find_subcommand_mut("hist").expect("BUG: hist is a subcommand");
    hist.error(clap::error::ErrorKind::ValueValidation, message).exit()
}
