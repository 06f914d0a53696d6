//! All metrics of a process, as text and as JSON. Schema: `docs/shm.md`. Fields are only added; a
//! change of meaning gets another `schema`.

use render::json::Json::{self, Integer, List, Null, Object, Text};
use render::json::statistics::{bracket, fields as bracket_fields, labels, statistic};
use render::json::{integer, number};
use shm::snapshot::{MetricValue, NumericValue, ProcessSeries};

use crate::find::MatchedProcess;
use crate::metric_patterns::MetricPatterns;
use crate::reference_time::ReferenceTime;
use crate::{derived, listing, report, values};
use render::text::escape_control;

const SCHEMA: u64 = 2;
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// Heading, and a table of the selected metrics.
pub fn to_text(
    process: &MatchedProcess,
    metrics: &[ProcessSeries],
    patterns: &MetricPatterns,
    as_of: &ReferenceTime,
) -> String {
    let mut text = String::new();
    for line in listing::heading_lines(process) {
        text.push_str(&format!("{}\n", escape_control(&line)));
    }
    text.push_str(&format!("  {}\n\n", escape_control(&as_of.sentence())));
    text.push_str(&report::metrics_table(metrics, patterns, as_of));
    text
}

/// Selected metrics as JSON.
pub fn to_json(
    process: &MatchedProcess,
    metrics: &[ProcessSeries],
    patterns: &MetricPatterns,
    as_of: &ReferenceTime,
) -> String {
    let matched = metrics.iter().enumerate().filter(|(_, metric)| patterns.matches(metric));
    let series = matched.map(|(at, _)| metric_json(metrics, at, as_of));
    let document = Object(vec![
        ("schema", integer(SCHEMA)),
        ("process", process_json(process)),
        ("as_of_ns", as_of.unix_ns.map_or(Null, |ns| Integer(ns.into()))),
        ("as_of", Text(as_of.basis.clone())),
        ("metrics", List(series.collect())),
    ]);
    format!("{document}\n")
}

fn process_json(process: &MatchedProcess) -> Json {
    let attached = &process.attached;
    let this_process = attached.reader().map(|reader| reader.process());
    let count = |n: Option<u64>| n.map_or(Null, integer);
    let this_process = this_process.as_ref();
    Object(vec![
        ("pid", integer(attached.pid().into())),
        ("program", Text(process.program().to_owned())),
        ("command", Text(attached.command().to_owned())),
        ("format", Text(attached.metrics_file().format.name().to_owned())),
        ("state", Text(process.state_text().to_owned())),
        ("file", Text(attached.metrics_file().path.display().to_string())),
        ("start_time_ns", this_process.map_or(Null, |of| Integer(of.created_unix_ns.into()))),
        ("lost_values", count(this_process.map(|of| of.lost_values))),
        ("rejected_series", count(this_process.map(|of| of.rejected_series))),
        ("threads_without_own_lane", count(this_process.map(|of| of.shared_lane_threads))),
    ])
}

fn metric_json(metrics: &[ProcessSeries], at: usize, as_of: &ReferenceTime) -> Json {
    let metric = &metrics[at];
    let related = metric.related_metric.and_then(|index| metrics.get(index));
    let names = metric.labels.iter().map(|(name, value)| (&name[..], &value[..]));
    let mut fields = vec![
        ("name", Text(metric.name.clone())),
        ("labels", labels(names)),
        ("unit", Text(metric.unit.clone())),
        ("help", Text(metric.help.clone())),
        ("role", Text(metric.role.name().to_owned())),
        ("related_metric", related.map_or(Null, |related| Text(values::series_name(related)))),
        ("note", Text(derived::derived_remark(metrics, at))),
    ];
    fields.extend(value_json(&metric.value, as_of));
    Object(fields)
}

fn value_json(of: &MetricValue, as_of: &ReferenceTime) -> Vec<(&'static str, Json)> {
    let age = |start_ns: u64| as_of.age_ns(start_ns).map_or(Null, integer);
    let kind = |kind: &str| ("kind", Text(kind.to_owned()));
    match of {
        MetricValue::Counter(n) => vec![kind("counter"), ("value", numeric_json(*n))],
        MetricValue::Gauge(n) => vec![kind("gauge"), ("value", numeric_json(*n))],
        MetricValue::Text(text) => vec![kind("text"), ("value", Text(text.clone()))],
        MetricValue::Histogram(of) => {
            let quantiles = QUANTILES.iter().map(|&q| {
                let mut fields = vec![("q", number(q))];
                fields.extend(of.quantile(q).map(bracket_fields).unwrap_or_default());
                Object(fields)
            });
            vec![
                kind("histogram"),
                ("count", integer(of.count())),
                ("sum", bracket(of.sum())),
                ("min", statistic(of.min())),
                ("mean", statistic(of.mean())),
                ("max", statistic(of.max())),
                ("quantiles", List(quantiles.collect())),
            ]
        }
        MetricValue::InFlight(of) => vec![
            kind("in_flight"),
            ("count", integer(of.count())),
            ("untracked", integer(of.count_untracked())),
            ("started", integer(of.started)),
            ("finished", integer(of.ended)),
            ("oldest_age_ns", of.operations.first().map_or(Null, |oldest| age(oldest.start_ns))),
        ],
        MetricValue::Heartbeat(of) => vec![
            kind("heartbeat"),
            ("count", integer(of.beats)),
            ("last_age_ns", if of.beats > 0 { age(of.last_ns) } else { Null }),
            ("interval_ns", if of.every_ns > 0 { integer(of.every_ns) } else { Null }),
        ],
        MetricValue::Unknown(reason) => {
            vec![kind("unknown"), ("reason", Text((*reason).to_owned()))]
        }
        _ => {
            vec![kind("unknown"), ("reason", Text("a kind that this command does not know".into()))]
        }
    }
}

fn numeric_json(n: NumericValue) -> Json {
    match n {
        NumericValue::Unsigned(n) => integer(n),
        NumericValue::Signed(n) => Integer(n.into()),
        NumericValue::Float(x) => number(x),
    }
}
