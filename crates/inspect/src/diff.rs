//! Changes of a process between two snapshots, or differences of two processes, as text.

use std::collections::HashMap;

use render::table::format_table;
use render::text::escape_control;
use render::time::format_ns;
use render::value_formatter::count;
use shm::snapshot::{MetricValue, ProcessSeries};

use crate::find::MatchedProcess;
use crate::reference_time::ReferenceTime;
use crate::value_change::{self, ValueChange};
use crate::{Result, report, values};

/// Compares two files of one process in time, or two processes side by side.
pub fn compare(first: &mut MatchedProcess, second: &mut MatchedProcess) -> Result<String> {
    let (before, after) = (first.attached.metrics()?, second.attached.metrics()?);
    let (first, second) = (&*first, &*second);
    if first.attached.metrics_file().identity != second.attached.metrics_file().identity {
        return Ok(compare_processes([first, second], [&before, &after]));
    }
    let about =
        format!("{}, from {} to {}\n", second.name(), metrics_path(first), metrics_path(second));
    let note = "  How much time lies between is not in the files: no rates.\n";
    Ok(plain_lines(&about) + note + &change_table(&before, &after, None))
}

/// Changes of a process within `over_ns`.
pub fn interval_text(
    process: &MatchedProcess,
    [before, after]: [&[ProcessSeries]; 2],
    over_ns: u64,
) -> String {
    let about = format!("{}, over {}\n", process.name(), format_ns(over_ns as f64));
    plain_lines(&about) + &change_table(before, after, Some(over_ns))
}

fn metrics_path(process: &MatchedProcess) -> String {
    process.attached.metrics_file().path.display().to_string()
}

/// Escapes control characters except line ends.
fn plain_lines(text: &str) -> String {
    escape_control(text.trim_end_matches('\n')) + "\n"
}

/// Identity of a series: name and labels.
fn series_key(metric: &ProcessSeries) -> (&str, &[(String, String)]) {
    (&metric.name, &metric.labels)
}

fn change_table(before: &[ProcessSeries], after: &[ProcessSeries], over_ns: Option<u64>) -> String {
    let known: HashMap<_, &ProcessSeries> =
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
    model::sort::by(&mut rows, Ord::cmp);
    model::sort::by_key(&mut distributions, |(metric, ..)| values::series_name(metric));
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
    let removed_count =
        before.iter().filter(|metric| !now.contains_key(&series_key(metric))).count();
    if removed_count > 0 {
        text.push_str(&format!(
            "\n  {} of before are not there any more.\n",
            count(removed_count as u64)
        ));
    }
    if has_resets(&rows) {
        text.push_str("\n  Some counters were reset: is the first file the later one?\n");
    }
    text
}

fn has_resets(rows: &[[String; 4]]) -> bool {
    rows.iter().any(|row| row[1] == report::COUNTER_RESET)
}

fn distribution(
    name: String,
    when: &str,
    metric: &ProcessSeries,
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

/// Compares two processes by the names of their metrics.
fn compare_processes(processes: [&MatchedProcess; 2], metrics: [&[ProcessSeries]; 2]) -> String {
    let as_of = [0, 1].map(|at| ReferenceTime::for_process(processes[at], metrics[at]));
    let [a, b] = processes.map(MatchedProcess::name);
    let mut text = plain_lines(&format!("{a} and {b} are different processes: side by side\n"));
    let second: HashMap<_, &ProcessSeries> =
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
    model::sort::by(&mut rows, Ord::cmp);
    model::sort::by_key(&mut distributions, |(metric, _)| values::series_name(metric));
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
