//! `topdeck hist`: distribution of values in files, as text, charts or JSON.
//!
//! Crate `report` reads the files, or the metrics of a process ([`process_metrics`]), and draws
//! them.

pub(crate) mod options;
mod process_metrics;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::{print_message, print_stdout};

pub(crate) use crate::hist::options::Options;
use render::terminal::Terminal;
use report::distribution::{self, CollectedInput};

/// Reads the input, prints the report, and reports read errors.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.check();
    let with_process = process_metrics::resolve_process(options)?;
    let options = with_process.as_ref().unwrap_or(options);
    let report_options = options.report();
    let collected = match &options.process_metrics {
        None => distribution::collect(&report_options)?,
        Some(metrics) => {
            let mut read = Ok(());
            let collected =
                distribution::collect_snapshot(&report_options, |sink| read = metrics.read(sink))?;
            read?;
            collected
        }
    };
    let damaged = !collected.errors.is_empty() || !collected.unreadable.is_empty();
    if damaged {
        report_errors(options, &collected);
        if !options.keep_going {
            return Ok(ExitCode::FAILURE);
        }
    }
    if collected.groups.iter().all(|group| group.distribution.is_empty()) {
        if !damaged || collected.has_skipped() {
            print_message(collected.no_data_message(&report_options));
        }
        return Ok(ExitCode::FAILURE);
    }
    let terminal = Terminal::new(options.ascii);
    let text = if options.heatmap {
        distribution::heatmap_text(&report_options, &collected, &terminal)?
    } else if options.json {
        distribution::distribution_json(&report_options, &collected)?
    } else if options.compare {
        distribution::comparison_text(&report_options, &collected, &terminal)?
    } else {
        distribution::distribution_text(&report_options, &collected, &terminal)?
    };
    if let Some(path) = &options.svg {
        let picture = if options.heatmap {
            distribution::heatmap_svg(&report_options, &collected)?
        } else {
            distribution::distribution_svg(&report_options, &collected.groups)?
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
            report::distribution::format_remedy()
        } else {
            "repair the input, or report the readable part with --keep-going".to_owned()
        };
        print_message(format_args!("nothing reported; {advice}"));
    }
}

/// Reports a usage error of a check that clap cannot do: exit status 2.
fn exit_with_usage_error(message: String) -> ! {
    crate::usage_error::exit_with_usage_error("hist", message)
}
