//! `topdeck diff`: what changed in a process between two moments.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use shm::snapshot::{MetricValue, ProcessMetric};

use crate::command::{escape_control, print_message, print_stdout};
use crate::hist::value_formatter::count;
use crate::journal::format::{format_ns, format_table};
use crate::processes::find::{self, MatchPreference, MatchedProcess};
use crate::processes::process_waiter::{self, ProcessWaiter, WakeReason};
use crate::processes::reference_time::{self, ReferenceTime};
use crate::processes::value_change::{self, ValueChange};
use crate::processes::{report, values};

/// Show what changed in a process between two moments
///
/// With one process: between now and a while later. With two, which may be copies of a file (`cp` is enough) or processes:
/// from the first to the second. Histograms are compared: what was recorded before with what was recorded in between; or, of
/// two different processes, all of one with all of the other.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Its id, the name of its program, or the path of its file
    #[arg(value_name = "PROCESS")]
    first: String,

    /// The same, later; or another
    #[arg(value_name = "LATER")]
    second: Option<String>,

    /// Time between the two samples of one process
    #[arg(long, value_name = "DURATION", default_value = "10s", conflicts_with = "second", value_parser = reference_time::parse_duration)]
    interval: u64,
}

const AFTER: &str = "\
Examples:
  topdeck diff sample --interval 1min
  cp /dev/shm/topdeck-1000/1234-5678.tdk before.tdk   then, later
  topdeck diff ./before.tdk 1234

Exit status:
  0  it is shown; there may be no change
  1  there is no such process
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let text = match &options.second {
        None => diff_interval(options)?,
        Some(second) => {
            let mut first = find::find_one(&options.first, MatchPreference::Running)?;
            let mut second = find::find_one(second, MatchPreference::Running)?;
            let (before, after) = (first.attached.metrics()?, second.attached.metrics()?);
            if first.attached.metrics_file().identity == second.attached.metrics_file().identity {
                let about = format!(
                    "{}, from {} to {}\n",
                    second.name(),
                    metrics_path(&first),
                    metrics_path(&second)
                );
                let note = "  How much time lies between is not in the files: no rates.\n";
                plain_lines(&about) + note + &change_table(&before, &after, None)
            } else {
                compare_processes([&first, &second], [&before, &after])
            }
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn metrics_path(process: &MatchedProcess) -> String {
    process.attached.metrics_file().path.display().to_string()
}

/// Control characters escaped, but for the end of the line.
fn plain_lines(text: &str) -> String {
    escape_control(text.trim_end_matches('\n')) + "\n"
}

fn diff_interval(options: &Options) -> Result<String> {
    let mut process = find::find_one(&options.first, MatchPreference::Running)?;
    let alarm = ProcessWaiter::new(&process)?;
    let start_ns = clock::now();
    let before = process.attached.metrics()?;
    match alarm.wait_until(start_ns.saturating_add(options.interval))? {
        WakeReason::Interrupted => bail!("interrupted"),
        WakeReason::ProcessExited => print_message(process_waiter::exit_message(&process)),
        WakeReason::Timeout => {}
    }
    let over_ns = clock::now() - start_ns;
    let after = process.attached.metrics()?;
    let about = format!("{}, over {}\n", process.name(), format_ns(over_ns as f64));
    Ok(plain_lines(&about) + &change_table(&before, &after, Some(over_ns)))
}

/// A series: name and labels.
fn series_key(metric: &ProcessMetric) -> (&str, &[(String, String)]) {
    (&metric.name, &metric.labels)
}

fn change_table(before: &[ProcessMetric], after: &[ProcessMetric], over_ns: Option<u64>) -> String {
    let known: HashMap<_, &ProcessMetric> =
        before.iter().map(|metric| (series_key(metric), metric)).collect();
    let (mut rows, mut distributions, mut unchanged) = (Vec::new(), Vec::new(), 0);
    for metric in after {
        let earlier = known.get(&series_key(metric));
        match value_change::change_between(earlier.map(|metric| &metric.value), &metric.value) {
            None => unchanged += 1,
            Some(ValueChange::Recorded(between)) => {
                let before = earlier.map(|metric| &metric.value);
                distributions.push((metric, before, MetricValue::Histogram(between)));
            }
            Some(change) => rows.push(report::change_row(metric, &change, over_ns)),
        }
    }
    rows.sort();
    distributions.sort_by_key(|(metric, ..)| values::series_name(metric));
    let mut text = String::new();
    let is_any = !rows.is_empty() || !distributions.is_empty();
    if !is_any {
        text.push_str(&format!("  Nothing changed in {} series.\n", count(unchanged)));
    } else if !rows.is_empty() {
        text.push('\n');
        text.push_str(&format_table(&rows, [false, true, true, false]));
    }
    if !distributions.is_empty() {
        let mut rows = vec![["", "", "count", "rate", "p50", "p99", "max"].map(str::to_owned)];
        for (metric, before, between) in &distributions {
            let name = escape_control(&values::series_name(metric));
            rows.push(distribution(name, "before", metric, *before, None));
            rows.push(distribution(String::new(), "between", metric, Some(between), over_ns));
        }
        text.push('\n');
        text.push_str(&format_table(&rows, [false, false, true, true, true, true, true]));
    }
    if is_any && unchanged > 0 {
        text.push_str(&format!("\n  {} others did not change.\n", count(unchanged)));
    }
    let now: HashMap<_, ()> = after.iter().map(|metric| (series_key(metric), ())).collect();
    let gone = before.iter().filter(|metric| !now.contains_key(&series_key(metric))).count();
    if gone > 0 {
        text.push_str(&format!("\n  {} of before are not there any more.\n", count(gone as u64)));
    }
    if has_resets(&rows) {
        text.push_str("\n  Some hold less than before: is the first the later?\n");
    }
    text
}

fn has_resets(rows: &[[String; 4]]) -> bool {
    rows.iter().any(|row| row[1] == report::COUNTER_RESET)
}

fn distribution(
    name: String,
    when: &str,
    metric: &ProcessMetric,
    value: Option<&MetricValue>,
    over_ns: Option<u64>,
) -> [String; 7] {
    let Some(MetricValue::Histogram(of)) = value else {
        let none = || "none".to_owned();
        return [name, when.to_owned(), "0".to_owned(), String::new(), none(), none(), none()];
    };
    let [n, p50, p99, max] = values::distribution_cells(&values::metric_formatter(metric), of);
    let rate = report::rate_text(None, of.count() as f64, over_ns);
    [name, when.to_owned(), n, rate, p50, p99, max]
}

/// Two processes that have nothing in common but names.
fn compare_processes(processes: [&MatchedProcess; 2], metrics: [&[ProcessMetric]; 2]) -> String {
    let as_of = [0, 1].map(|at| ReferenceTime::for_process(processes[at], metrics[at]));
    let [a, b] = processes.map(MatchedProcess::name);
    let mut text = plain_lines(&format!("{a} and {b} are different processes: side by side\n"));
    let second: HashMap<_, &ProcessMetric> =
        metrics[1].iter().map(|metric| (series_key(metric), metric)).collect();
    let (mut rows, mut distributions) = (Vec::new(), Vec::new());
    let mut only = [0u64, metrics[1].len() as u64];
    for metric in metrics[0] {
        let Some(other) = second.get(&series_key(metric)) else {
            only[0] += 1;
            continue;
        };
        only[1] = only[1].saturating_sub(1);
        match (&metric.value, &other.value) {
            (MetricValue::Histogram(_), MetricValue::Histogram(_)) => {
                distributions.push((metric, *other))
            }
            _ => rows.push([
                escape_control(&values::series_name(metric)),
                escape_control(&values::format_value(metric, &as_of[0])),
                escape_control(&values::format_value(other, &as_of[1])),
            ]),
        }
    }
    rows.sort();
    distributions.sort_by_key(|(metric, _)| values::series_name(metric));
    if !rows.is_empty() {
        rows.insert(0, [String::new(), escape_control(&a), escape_control(&b)]);
        text.push('\n');
        text.push_str(&format_table(&rows, [false, true, true]));
    }
    if !distributions.is_empty() {
        let mut rows = vec![["", "", "count", "", "p50", "p99", "max"].map(str::to_owned)];
        for (metric, other) in distributions {
            let name = escape_control(&values::series_name(metric));
            rows.push(distribution(name, &escape_control(&a), metric, Some(&metric.value), None));
            rows.push(distribution(
                String::new(),
                &escape_control(&b),
                other,
                Some(&other.value),
                None,
            ));
        }
        text.push('\n');
        text.push_str(&format_table(&rows, [false, false, true, true, true, true, true]));
    }
    for (n, name) in only.into_iter().zip([&a, &b]).filter(|(n, _)| *n > 0) {
        text.push_str(&plain_lines(&format!("  {} are in {name} alone.", count(n))));
    }
    text
}
