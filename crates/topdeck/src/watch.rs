//! `topdeck watch`: what changes in a process, interval by interval.

use std::process::ExitCode;

use anyhow::{Result, bail};
use inspect::find::MatchPreference;
use inspect::metric_patterns::MetricPatterns;
use inspect::watch::{self, WatchSummary};

use crate::command::print_stdout;
use crate::process_argument::find_process;
use crate::process_waiter::{self, ProcessWaiter, WakeReason};
use crate::time;

/// Show what changes in a process, interval by interval
///
/// For each interval, what was counted and how often that is in a second, and of histograms the
/// distribution of that interval alone: count, p50, p99 and max, of which ~ says that only its
/// bucket is known. Goes on until the process ends, or ctrl-C.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Its id, the name of its program, or the path of its file
    #[arg(value_name = "PROCESS")]
    process: String,

    /// Only these metrics; * stands for anything
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

An interval that was not looked at in time is made one with the next, which is told, counted at the end, and
in the length that stands beside the time.

Exit status:
  0  the process ended, the intervals are over, or ctrl-C was pressed
  1  there is no such process, or it does not run
  2  usage error";

const INTERVAL_MIN_NS: u64 = 1_000_000;

fn watch_interval(text: &str) -> Result<u64, String> {
    match time::parse_interval(text) {
        Ok(ns) if ns >= INTERVAL_MIN_NS => Ok(ns),
        Ok(_) => Err("an interval is 1ms at the least".to_owned()),
        // Of nought nobody says that it is a length.
        Err(why) => Err(format!("{why}; an interval is 1ms at the least")),
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut process = find_process(&options.process, MatchPreference::Running)?;
    let alarm = ProcessWaiter::new(&process)?;
    let wanted = MetricPatterns::new(&options.metrics);
    let start_ns = clock::now();
    let (mut before, mut before_ns) = (process.attached.metrics()?, start_ns);
    if !options.metrics.is_empty() && !before.iter().any(|metric| wanted.matches(metric)) {
        bail!("{}", wanted.no_match_message(&process.name(), &before));
    }
    let (mut seen, mut next) = (WatchSummary::default(), 1);
    let why = loop {
        let woken =
            alarm.wait_until(start_ns.saturating_add(options.interval.saturating_mul(next)))?;
        if woken == WakeReason::Interrupted {
            break "interrupted".to_owned();
        }
        let now_ns = clock::now();
        let now = match process.attached.metrics() {
            // The file may go with its process.
            Err(_) if woken == WakeReason::ProcessExited => {
                break process_waiter::exit_message(&process);
            }
            now => now?,
        };
        let passed = ((now_ns - start_ns) / options.interval).max(next);
        let late = if woken == WakeReason::Timeout { passed - next } else { 0 };
        let rows = watch::change_rows(&before, &now, &wanted, now_ns - before_ns);
        seen.intervals += 1 + late;
        seen.delayed += late;
        seen.unchanged += u64::from(rows.is_empty());
        print_stdout(watch::change_lines(&rows, now_ns - before_ns, late).as_bytes())?;
        if woken == WakeReason::ProcessExited {
            break process_waiter::exit_message(&process);
        }
        if options.count.is_some_and(|count| seen.intervals >= count) {
            break "done".to_owned();
        }
        (before, before_ns, next) = (now, now_ns, passed + 1);
    };
    print_stdout(watch::summary_text(&why, &seen).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_below_the_minimum_is_rejected() {
        assert_eq!(watch_interval("1ms"), Ok(1_000_000));
        for text in ["0", "0ms", "999us", "5"] {
            let why = watch_interval(text).expect_err(text);
            assert!(why.ends_with("an interval is 1ms at the least"), "{why}");
        }
    }
}
