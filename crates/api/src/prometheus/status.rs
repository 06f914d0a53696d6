//! Prometheus status endpoints; lists of features topdeck lacks are empty.

use std::fmt::Write as _;

use super::{PrometheusError, ResponseExtras, success};
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, List, Map, Object, Text};
use crate::json::integer;
use crate::parameters::Parameters;

/// Version of Prometheus' language and API; clients detect features by it.
const VERSION: &str = "3.15.0";

pub(super) fn data_response(context: &Context, json: &Json) -> Result<JsonBody, PrometheusError> {
    Ok(success(context.queries.response_buffer(), &ResponseExtras::default(), |out| {
        write!(out, "{json:#}")
    })?)
}

pub(super) fn text_json(text: impl Into<String>) -> Json {
    Text(text.into())
}

pub(super) async fn build_info(context: Context) -> Result<JsonBody, PrometheusError> {
    let fields = vec![
        ("version", text_json(VERSION)),
        ("revision", text_json(concat!("topdeck ", env!("CARGO_PKG_VERSION")))),
        ("branch", text_json("")),
        ("buildUser", text_json("")),
        ("buildDate", text_json("")),
        ("goVersion", text_json("")),
    ];
    data_response(&context, &Object(fields))
}

/// RFC 3339.
pub(super) fn rfc3339(ns: i64) -> Json {
    let text = jiff::Timestamp::from_nanosecond(ns.into()).map(|at| at.to_string());
    text_json(text.unwrap_or_default())
}

pub(super) async fn runtime_info(context: Context) -> Result<JsonBody, PrometheusError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let config = context.queries.config_reload.get();
    let fields = vec![
        ("startTime", rfc3339(context.queries.started_at)),
        ("CWD", text_json("")),
        ("hostname", text_json("")),
        ("serverTime", rfc3339(context.intake.now())),
        ("reloadConfigSuccess", Bool(config.error.is_none())),
        ("lastConfigTime", rfc3339(config.succeeded_at_ns)),
        ("corruptionCount", integer(0)),
        ("goroutineCount", integer(0)),
        ("GOMAXPROCS", integer(threads as u64)),
        ("GOMEMLIMIT", integer(i64::MAX as u64)),
        ("GOGC", text_json("")),
        ("GODEBUG", text_json("")),
        ("storageRetention", text_json("")),
    ];
    data_response(&context, &Object(fields))
}

pub(super) async fn config(context: Context) -> Result<JsonBody, PrometheusError> {
    data_response(&context, &Object(vec![("yaml", text_json(""))]))
}

pub(super) async fn flags(context: Context) -> Result<JsonBody, PrometheusError> {
    data_response(&context, &Map(Vec::new()))
}

pub(super) async fn wal_replay(context: Context) -> Result<JsonBody, PrometheusError> {
    let position = |name| (name, integer(0));
    let fields =
        vec![position("min"), position("max"), position("current"), ("state", text_json("done"))];
    data_response(&context, &Object(fields))
}

pub(super) async fn alertmanagers(context: Context) -> Result<JsonBody, PrometheusError> {
    let none = |name| (name, List(Vec::new()));
    let fields = vec![none("activeAlertmanagers"), none("droppedAlertmanagers")];
    data_response(&context, &Object(fields))
}

/// Default length of each list, as in Prometheus.
const TOP_ENTRIES: usize = 10;

pub(super) async fn tsdb_status(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let top = parameters?.integer("limit", TOP_ENTRIES, 10_000)?;
    let store = context.queries.store()?;
    let queries = context.queries.clone();
    let work = move |_: &_| {
        let cardinality = store.cardinality(top)?;
        let extent = store.view()?.part_range().unwrap_or(0..0);
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
        success(queries.response_buffer(), &ResponseExtras::default(), |out| {
            write!(out, "{fields:#}")
        })
    };
    Ok(context.run_light("prometheus_tsdb", None, work).await?)
}
