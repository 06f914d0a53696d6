//! `topdeck hist`: distribution of values in files, as text, charts or JSON.
//!
//! [`input`] reads files (or [`process_metrics`] a process) through `collect` into [`group`]s of
//! one merged distribution each; [`report`] prints a group as text or SVG with crate `render`,
//! [`json`] as JSON; [`compare`] and [`intervals`] are separate reports.

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

/// Reads the input, prints the report, and reports read errors.
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

/// Maximum number of errors printed; the rest is counted.
const ERRORS_SHOWN_MAX: usize = 10;

fn report_errors(options: &Options, collected: &CollectedInput) {
    for unread in &collected.unreadable {
        print_message(unread);
    }
    for (file, error) in collected.errors.iter().take(ERRORS_SHOWN_MAX) {
        print_message(format_args!("{file}: {error}"));
    }
    let more = collected.error_count.saturating_sub(ERRORS_SHOWN_MAX as u64);
    if more > 0 {
        print_message(format_args!("{more} similar errors"));
    }
    if options.keep_going {
        print_message("reporting the readable part");
    } else if collected.error_count > 0 {
        let unknown = collected.errors.iter().any(|(_, error)| error.expected == "a known format");
        let advice = if unknown {
            "set the format with --format"
        } else {
            "repair the input, or report the readable part with --keep-going"
        };
        print_message(format_args!("nothing reported; {advice}"));
    }
}

/// Reports a usage error of a check that clap cannot do: exit status 2.
fn exit_with_usage_error(message: String) -> ! {
    use clap::CommandFactory as _;
    let mut command = crate::command::Topdeck::command();
    command.build();
    let hist = command.find_subcommand_mut("hist").expect("BUG: hist is a subcommand");
    hist.error(clap::error::ErrorKind::ValueValidation, message).exit()
}
