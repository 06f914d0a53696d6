//! What Prometheus tells of itself, as far as it can be said of topdeck; empty lists of what topdeck has not.

use std::fmt::Write as _;

use super::{Beside, Failure, success};
use crate::context::Context;
use crate::desk::Written;
use crate::json::Json::{self, Bool, List, Map, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

/// Whose language and API this is: by this version clients know what they may ask.
const VERSION: &str = "3.15.0";

fn data(context: &Context, json: &Json) -> Result<Written, Failure> {
    Ok(success(context.desk.page(), &Beside::default(), |page| write!(page, "{json:#}"))?)
}

fn empty(name: &'static str) -> Json {
    Object(vec![(name, List(Vec::new()))])
}

fn text(text: impl Into<String>) -> Json {
    Text(text.into())
}

pub(super) async fn exemplars(context: Context) -> Result<Written, Failure> {
    data(&context, &List(Vec::new()))
}

pub(super) async fn rules(context: Context) -> Result<Written, Failure> {
    data(&context, &empty("groups"))
}

pub(super) async fn alerts(context: Context) -> Result<Written, Failure> {
    data(&context, &empty("alerts"))
}

pub(super) async fn targets(context: Context) -> Result<Written, Failure> {
    let fields = vec![
        ("activeTargets", List(Vec::new())),
        ("droppedTargets", List(Vec::new())),
        ("droppedTargetCounts", Map(Vec::new())),
    ];
    data(&context, &Object(fields))
}

pub(super) async fn build(context: Context) -> Result<Written, Failure> {
    let fields = vec![
        ("version", text(VERSION)),
        ("revision", text(concat!("topdeck ", env!("CARGO_PKG_VERSION")))),
        ("branch", text("")),
        ("buildUser", text("")),
        ("buildDate", text("")),
        ("goVersion", text("")),
    ];
    data(&context, &Object(fields))
}

/// RFC 3339.
fn time(ns: i64) -> Json {
    let shown = jiff::Timestamp::from_nanosecond(ns.into()).map(|at| at.to_string());
    text(shown.unwrap_or_default())
}

pub(super) async fn runtime(context: Context) -> Result<Written, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let fields = vec![
        ("startTime", time(context.desk.since)),
        ("CWD", text("")),
        ("hostname", text("")),
        ("serverTime", time(context.intake.now())),
        ("reloadConfigSuccess", Bool(true)),
        ("lastConfigTime", time(context.desk.since)),
        ("corruptionCount", integer(0)),
        ("goroutineCount", integer(0)),
        ("GOMAXPROCS", integer(threads as u64)),
        ("GOMEMLIMIT", integer(i64::MAX as u64)),
        ("GOGC", text("")),
        ("GODEBUG", text("")),
        ("storageRetention", text("")),
    ];
    data(&context, &Object(fields))
}

pub(super) async fn config(context: Context) -> Result<Written, Failure> {
    data(&context, &Object(vec![("yaml", text(""))]))
}

pub(super) async fn flags(context: Context) -> Result<Written, Failure> {
    data(&context, &Map(Vec::new()))
}

/// How many of each are told where nobody says, as in Prometheus.
const TOP: usize = 10;

pub(super) async fn tsdb(
    context: Context,
    parameters: Result<Parameters, Refusal>,
) -> Result<Written, Failure> {
    let top = parameters?.count("limit", TOP, 10_000)?;
    let store = context.desk.store()?;
    let desk = context.desk.clone();
    let work = move |_: &_| {
        let cardinality = store.cardinality(top)?;
        let extent = store.view()?.bounds().unwrap_or(0..0);
        let entry = |name: String, value: u64| {
            Object(vec![("name", Text(name)), ("value", integer(value))])
        };
        let ms = |ns: i64| Json::Integer(ns.div_euclid(1_000_000).into());
        let head = Object(vec![
            ("numSeries", integer(cardinality.series)),
            ("numLabelPairs", integer(cardinality.labels)),
            ("chunkCount", integer(0)),
            ("minTime", ms(extent.start)),
            ("maxTime", ms(extent.end)),
        ]);
        let metrics = cardinality.by_metric.into_iter().map(|(name, n)| entry(name, n));
        let values = cardinality.by_label.iter().map(|of| entry(of.name.clone(), of.values));
        let pairs = cardinality.by_pair.iter();
        let pairs = pairs.map(|(name, value, n)| entry(format!("{name}={value}"), *n));
        let fields = Object(vec![
            ("headStats", head),
            ("seriesCountByMetricName", List(metrics.collect())),
            ("labelValueCountByLabelName", List(values.collect())),
            ("memoryInBytesByLabelName", List(Vec::new())),
            ("seriesCountByLabelValuePair", List(pairs.collect())),
        ]);
        success(desk.page(), &Beside::default(), |page| write!(page, "{fields:#}"))
    };
    Ok(context.light("prometheus_tsdb", None, work).await?)
}
