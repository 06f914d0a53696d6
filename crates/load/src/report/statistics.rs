//! Statistics of a run, for text and HTML.

use crate::{Failure, RunResult, Tally, format_rate};
use decode::Unit;
use hist::{Bracket, Histogram};

use crate::report::run_plan::RunPlan;
use render::number_formatter::{EstimateNote, NumberFormatter};
use render::value_formatter::{self, ValueFormatter, count};

/// Percentiles in reports, the maximum last; mean and count follow.
pub(crate) const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Format of times.
pub(crate) fn time_formatter() -> ValueFormatter {
    ValueFormatter::new(Some(&Unit::Nanoseconds))
}

/// Format of times that may be estimates.
pub fn estimate_formatter() -> NumberFormatter {
    NumberFormatter::new(Some("ns"))
}

/// Names, histograms and descriptions of all times.
pub fn times(tally: &Tally) -> [(&'static str, &Histogram, &'static str); 5] {
    [
        ("response", &tally.response, "scheduled time to response"),
        ("service", &tally.service, "sent to response"),
        ("queue time", &tally.queue_time, "scheduled time to sent"),
        ("generator lag", &tally.generator_lag, "scheduled time to dispatch (generator lag)"),
        ("failure", &tally.failure, "scheduled time to failure"),
    ]
}

/// A table: column names and rows.
pub struct StatisticsTable {
    /// Column names.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
    /// Footnote.
    pub note: Option<String>,
}

/// The quantile of level `q`; 1 is the maximum.
pub(crate) fn quantile_or_max(histogram: &Histogram, q: f64) -> Option<Bracket> {
    if q >= 1.0 { histogram.max() } else { histogram.quantile(q) }
}

pub(crate) fn quantile_or_max_name(q: f64) -> String {
    if q >= 1.0 { "max".to_owned() } else { value_formatter::quantile_name(q) }
}

/// Table of percentiles of all times. Time to failure is included if there are failures.
pub(crate) fn percentiles(tally: &Tally) -> StatisticsTable {
    let [measured @ .., failure] = times(tally);
    let times = measured.into_iter().chain((failure.1.count() > 0).then_some(failure));
    let times: Vec<_> = times.collect();
    let (formatter, mut note) = (estimate_formatter(), EstimateNote::default());
    let mut value = |of: Option<Bracket>| {
        of.map_or("-".to_owned(), |bracket| {
            note.add(bracket);
            formatter.value_with_mark(bracket)
        })
    };
    let mut rows = Vec::new();
    for q in QUANTILES {
        let cells = times.iter().map(|(_, of, _)| value(quantile_or_max(of, q)));
        rows.push([quantile_or_max_name(q)].into_iter().chain(cells).collect());
    }
    let cells = times.iter().map(|(_, of, _)| value(of.mean()));
    rows.push(["mean".to_owned()].into_iter().chain(cells).collect());
    let cells = times.iter().map(|(_, of, _)| count(of.count()));
    rows.push(["count".to_owned()].into_iter().chain(cells).collect());
    let names = times.iter().map(|time| time.0.to_owned());
    let head = [String::new()].into_iter().chain(names).collect();
    StatisticsTable { head, rows, note: note.text("the JSON") }
}

/// Table of response times per request.
pub(crate) fn per_request(run: &RunResult) -> StatisticsTable {
    let levels = [0.5, 0.99, 0.999, 1.0];
    let formatter = estimate_formatter();
    let rows = run.per_request.iter().map(|(name, of)| {
        let text = |bracket| formatter.value_with_mark(bracket);
        let value = |q: f64| quantile_or_max(of, q).map_or("-".to_owned(), text);
        let values = levels.into_iter().map(value);
        [name.clone(), count(of.count())].into_iter().chain(values).collect()
    });
    let names = ["response", "count"].map(str::to_owned).into_iter();
    let head = names.chain(levels.into_iter().map(quantile_or_max_name)).collect();
    StatisticsTable { head, rows: rows.collect(), note: None }
}

/// Outcomes of all scheduled requests: name, count, share, description.
pub(crate) fn count_rows(tally: &Tally) -> Vec<[String; 4]> {
    let row = |name: &str, n: u64, about: &str| {
        [name.to_owned(), count(n), value_formatter::share(n, tally.scheduled), about.to_owned()]
    };
    let mut rows = vec![
        row("scheduled", tally.scheduled, "requests"),
        row("completed", tally.completed, "successful responses"),
        row("failed", tally.failures(), "error or no response; no response time"),
    ];
    for failure in Failure::ALL.iter().filter(|one| tally.failed[**one as usize] > 0) {
        rows.push(row(&format!("  {failure}"), tally.failed[*failure as usize], ""));
    }
    rows.push(row("unfinished", tally.unfinished, "no response at the end; counted by age"));
    if tally.not_sent + tally.observed_late > 0 {
        rows.push(row("not sent", tally.not_sent, "scheduled during a generator stall"));
        rows.push(row("observed late", tally.observed_late, "response during a generator stall"));
    }
    rows
}

/// Details of the first failure of each kind.
pub(crate) fn first_errors(run: &RunResult) -> Vec<(Failure, &str)> {
    let all = Failure::ALL.into_iter().zip(&run.first_errors);
    let known = all.filter(|(failure, _)| run.tally.failed[*failure as usize] > 0);
    known.filter_map(|(failure, detail)| Some((failure, detail.as_deref()?))).collect()
}

fn limit(of: Option<u64>) -> String {
    of.map_or_else(|| "unlimited".to_owned(), count)
}

/// Further values: name and text.
pub(crate) fn facts(run: &RunResult, plan: &RunPlan) -> Vec<(&'static str, String)> {
    let tally = &run.tally;
    let seconds = run.duration_ns.max(1) as f64 * 1e-9;
    let threads_ns = run.duration_ns.max(1) as f64 * plan.settings.threads as f64;
    let busy = tally.cpu_ns as f64 / threads_ns * 100.0;
    let (unit, verb, limit_of) = match plan.is_command() {
        true => ("processes", "started", "process"),
        false => ("connections", "opened", "connection"),
    };
    let requests = |n: u64| {
        let unit = if n == 1 { "request" } else { "requests" };
        format!("{} {unit}", count(n))
    };
    vec![
        ("rate", format!("{} completed", format_rate(tally.completed as f64 / seconds))),
        ("in flight", format!("peak {} (unlimited)", requests(tally.in_flight_peak))),
        (
            unit,
            format!(
                "{} {verb}, peak {}, limit {}",
                count(tally.connections_opened),
                count(tally.connections_peak),
                count(plan.settings.max_connections as u64)
            ),
        ),
        (
            "open files",
            format!(
                "up to {} needed, soft limit {}, hard limit {}",
                count(run.files.required),
                limit(run.files.soft_limit),
                limit(run.files.hard_limit)
            ),
        ),
        ("queued", format!("{} at the {limit_of} limit", requests(tally.queued_requests))),
        ("generator", format!("CPU {busy:.1} %")),
    ]
}
