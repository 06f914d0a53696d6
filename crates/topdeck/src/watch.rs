//! `topdeck watch`: changes of a process per interval.

use std::process::ExitCode;

use anyhow::{Result, bail};
use client::print_stdout;
use inspect::find::MatchPreference;
use inspect::metric_patterns::MetricPatterns;
use inspect::watch::{self, WatchSummary};

use crate::process_argument::find_process;
use crate::process_waiter::{self, ProcessWaiter, WakeReason};
use crate::time;

/// Show the changes of a process per interval
///
/// Per interval: the increase and rate of counters, and the distribution of histograms in this
/// interval alone: count, p50, p99 and max; ~ marks a maximum of which only the bucket is known.
/// Runs until the process exits, or ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Process ID, program name, or path of a metrics file
    #[arg(value_name = "PROCESS")]
    process: String,

    /// Only these metrics; * is a wildcard
    #[arg(value_name = "METRIC")]
    metrics: Vec<String>,

    /// Interval, 1ms or more
    #[arg(short, long, value_name = "DURATION", default_value = "1s", value_parser = watch_interval)]
    interval: u64,

    /// Stop after this number of intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

const AFTER: &str = "\
Examples:
  topdeck watch sample
  topdeck watch -i 10ms sample 'answer_*' queue_depth

An interval that was sampled late is merged with the next one. This is reported, counted at the
end, and visible in the duration beside the time.

Exit status:
  0  the process exited, the number of intervals was reached, or ctrl-C was pressed
  1  process not found, or it is not running
  2  usage error";

const INTERVAL_MIN_NS: u64 = 1_000_000;

fn watch_interval(text: &str) -> Result<u64, String> {
    match time::parse_interval(text) {
        Ok(ns) if ns >= INTERVAL_MIN_NS => Ok(ns),
        Ok(_) => Err("the interval must be at least 1ms".to_owned()),
        // The message for 0 does not mention a minimum.
        Err(reason) => Err(format!("{reason}; the interval must be at least 1ms")),
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut process = find_process(&options.process, MatchPreference::Running)?;
    let waiter = ProcessWaiter::new(&process)?;
    let patterns = MetricPatterns::new(&options.metrics);
    let start_ns = clock::now();
    let (mut before, mut before_ns) = (process.attached.metrics()?, start_ns);
    if !options.metrics.is_empty() && !before.iter().any(|metric| patterns.matches(metric)) {
        bail!("{}", patterns.no_match_message(&process.name(), &before));
    }
    let (mut summary, mut next) = (WatchSummary::default(), 1);
    let reason = loop {
        let woken =
            waiter.wait_until(start_ns.saturating_add(options.interval.saturating_mul(next)))?;
        if woken == WakeReason::Interrupted {
            break "interrupted".to_owned();
        }
        let now_ns = clock::now();
        let now = match process.attached.metrics() {
            // The file may be deleted when the process exits.
            Err(_) if woken == WakeReason::ProcessExited => {
                break process_waiter::exit_message(&process);
            }
            now => now?,
        };
        let passed = ((now_ns - start_ns) / options.interval).max(next);
        let late = if woken == WakeReason::Timeout { passed - next } else { 0 };
        let rows = watch::change_rows(&before, &now, &patterns, now_ns - before_ns);
        summary.intervals += 1 + late;
        summary.delayed += late;
        summary.unchanged += u64::from(rows.is_empty());
        print_stdout(watch::change_lines(&rows, now_ns - before_ns, late).as_bytes())?;
        if woken == WakeReason::ProcessExited {
            break process_waiter::exit_message(&process);
        }
        if options.count.is_some_and(|count| summary.intervals >= count) {
            break "done".to_owned();
        }
        (before, before_ns, next) = (now, now_ns, passed + 1);
    };
    print_stdout(watch::summary_text(&reason, &summary).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_below_the_minimum_is_rejected() {
        assert_eq!(watch_interval("1ms"), Ok(1_000_000));
        for text in ["0", "0ms", "999us", "5"] {
            let reason = watch_interval(text).expect_err(text);
            assert!(reason.ends_with("the interval must be at least 1ms"), "{reason}");
        }
    }
}
