//! All that a process shows, and what happened to it, as rows of a table.

use collect::Unit;
use shm::show::Metric;

use crate::command::plain;
use crate::hist::show::count;
use crate::journal::show::table;
use crate::processes::change::Change;
use crate::processes::moment::AsOf;
use crate::processes::pattern::Patterns;
use crate::processes::{derived, values};

/// One row for each metric that is wanted: its name, its value and what follows from it and others.
pub(crate) fn metrics(metrics: &[Metric], wanted: &Patterns, as_of: &AsOf) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    for (at, metric) in metrics.iter().enumerate().filter(|(_, metric)| wanted.take(metric)) {
        let mut value = values::value(metric, as_of);
        let remark = derived::remark(metrics, at);
        if !remark.is_empty() {
            value.push_str(&format!(" ({remark})"));
        }
        rows.push([plain(&values::series(metric)), plain(&value)]);
    }
    rows.sort();
    table(&rows, [false, false])
}

/// How often, or how much, in a second; nothing where no time lies between the looks, or nobody knows how much.
pub(crate) fn rate(unit: Option<&Unit>, n: f64, over_ns: Option<u64>) -> String {
    match over_ns {
        None | Some(0) => String::new(),
        Some(ns) => values::rate(unit, n * 1e9 / ns as f64),
    }
}

/// What is said of what cannot be, if the looks are in their order and of one process.
pub(crate) const BACK: &str = "less than before";

/// One row for what happened to a metric: name, how much, how much in a second, and more.
pub(crate) fn change(metric: &Metric, change: &Change, over_ns: Option<u64>) -> [String; 4] {
    let (unit, show) = (values::unit(&metric.unit), values::show(metric));
    let times = |n: u64| rate(None, n as f64, over_ns);
    let more = |n: u64| format!("+{}", count(n));
    let row = match change {
        Change::Counted(by) => {
            let rate = rate(unit.as_ref(), by.as_float(), over_ns);
            [format!("+{}", values::number(unit.as_ref(), *by)), rate, String::new()]
        }
        Change::Set { by, now } => {
            let sign = if *by < 0.0 { "" } else { "+" };
            let by = match by.is_finite() {
                true => format!("{sign}{}", show.exact(*by)),
                false => "changed".to_owned(),
            };
            [by, String::new(), format!("now {}", values::number(unit.as_ref(), *now))]
        }
        Change::Said(text) => ["changed".to_owned(), String::new(), format!("now {text:?}")],
        Change::Recorded(of) => {
            let [n, p50, p99, max] = values::distribution(&show, of);
            let detail = format!("p50 {p50}, p99 {p99}, max {max}");
            [format!("+{n}"), times(of.count()), detail]
        }
        Change::Flowed { began, ended, now } => {
            let detail = format!("{} ended, now {} in flight", count(*ended), count(*now));
            [format!("{} began", more(*began)), times(*began), detail]
        }
        Change::Beat(beats) => [format!("{} beats", more(*beats)), times(*beats), String::new()],
        Change::Back => [BACK.to_owned(), String::new(), String::new()],
        Change::Unknown(why) => ["unknown".to_owned(), String::new(), (*why).to_owned()],
    };
    let [how_much, rate, detail] = row;
    [values::series(metric), how_much, rate, detail].map(|cell| plain(&cell))
}
