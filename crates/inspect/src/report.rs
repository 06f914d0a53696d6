//! Metrics of a process and their changes, as table rows.

use decode::Unit;
use shm::snapshot::ProcessSeries;

use crate::metric_patterns::MetricPatterns;
use crate::reference_time::ReferenceTime;
use crate::value_change::ValueChange;
use crate::{derived, values};
use render::table::format_table;
use render::text::escape_control;
use render::value_formatter::count;

/// One row per selected metric: name, value, and derived remark.
pub(crate) fn metrics_table(
    metrics: &[ProcessSeries],
    patterns: &MetricPatterns,
    as_of: &ReferenceTime,
) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    for (at, metric) in metrics.iter().enumerate().filter(|(_, metric)| patterns.matches(metric)) {
        let mut value = values::format_value(metric, as_of);
        let remark = derived::derived_remark(metrics, at);
        if !remark.is_empty() {
            value.push_str(&format!(" ({remark})"));
        }
        rows.push([escape_control(&values::series_name(metric)), escape_control(&value)]);
    }
    model::sort::by(&mut rows, Ord::cmp);
    format_table(&rows, [false, false])
}

/// Rate per second; empty if the interval is 0 or the amount is unknown.
pub(crate) fn rate_text(unit: Option<&Unit>, n: f64, over_ns: Option<u64>) -> String {
    match over_ns {
        None | Some(0) => String::new(),
        Some(ns) => values::format_rate(unit, n * 1e9 / ns as f64),
    }
}

/// Text for a counter that decreased between two samples of one process.
pub(crate) const COUNTER_RESET: &str = "counter reset";

/// Row for a change of a metric: name, amount, rate, and more.
pub(crate) fn change_row(
    metric: &ProcessSeries,
    change: &ValueChange,
    over_ns: Option<u64>,
) -> [String; 4] {
    let (unit, formatter) = (values::parse_unit(&metric.unit), values::metric_formatter(metric));
    let times = |n: u64| rate_text(None, n as f64, over_ns);
    let more = |n: u64| format!("+{}", count(n));
    let row = match change {
        ValueChange::Added(by) => {
            let rate = rate_text(unit.as_ref(), by.as_float(), over_ns);
            [format!("+{}", values::format_number(unit.as_ref(), *by)), rate, String::new()]
        }
        ValueChange::Set { by, now } => {
            let sign = if *by < 0.0 { "" } else { "+" };
            let by = match by.is_finite() {
                true => format!("{sign}{}", formatter.exact(*by)),
                false => "changed".to_owned(),
            };
            [by, String::new(), format!("now {}", values::format_number(unit.as_ref(), *now))]
        }
        ValueChange::TextChanged(text) => {
            ["changed".to_owned(), String::new(), format!("now {text:?}")]
        }
        ValueChange::Recorded(of) => {
            let [n, p50, p99, max] = values::distribution_cells(&formatter, of);
            let detail = format!("p50 {p50}, p99 {p99}, max {max}");
            [format!("+{n}"), times(of.count()), detail]
        }
        ValueChange::InFlightChanged { started, finished, now } => {
            let detail = format!("{} finished, now {} in flight", count(*finished), count(*now));
            [format!("{} started", more(*started)), times(*started), detail]
        }
        ValueChange::Heartbeat(beats) => {
            [format!("{} beats", more(*beats)), times(*beats), String::new()]
        }
        ValueChange::CounterReset => [COUNTER_RESET.to_owned(), String::new(), String::new()],
        ValueChange::Unknown(reason) => ["unknown".to_owned(), String::new(), (*reason).to_owned()],
    };
    let [amount, rate, detail] = row;
    [values::series_name(metric), amount, rate, detail].map(|cell| escape_control(&cell))
}
