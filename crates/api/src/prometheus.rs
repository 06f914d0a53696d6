//! The Prometheus HTTP API, version 3.15 (prometheus.io/docs/prometheus/latest/querying/api):
//! clients of Prometheus, such as Grafana's data source, work unchanged.
//!
//! Data that Prometheus does not have is mapped: a statistic with bounds is its estimate, a
//! distribution is a native histogram, exponential or with custom buckets, and a gap is a warning.
//! Series endpoints return all known series, regardless of `start` and `end`.

mod exemplars;
mod expression;
mod federate;
mod remote_read;
mod response;
mod series;
mod status;
mod targets;
mod targets_metadata;
#[cfg(test)]
mod tests;
mod text_list;

use std::fmt::Write as _;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use prometheus_json::write_list;

use crate::api_error::ApiError;
use crate::bounded_buffer::{BoundedBuffer, JsonBody};
use crate::json::write_text;
use crate::route::{ApiRoute, Parameter};
use crate::routing;

const TIME: Parameter = Parameter::text("time", "evaluation time; default: now");
const QUERY: Parameter = Parameter::text("query", "PromQL expression").required();
const TIMEOUT: Parameter = Parameter::text("timeout", "evaluation timeout");
const LIMIT: Parameter = Parameter::integer(
    "limit",
    "maximum number of entries, with a warning if there are more; 0: no limit",
);
const LOOKBACK: Parameter =
    Parameter::text("lookback_delta", "maximum age of the latest sample of a series");
const STATS: Parameter = Parameter::text("stats", "accepted and ignored");
const START: Parameter = Parameter::text("start", "start of the range");
const END: Parameter = Parameter::text("end", "end of the range");
const MATCH: Parameter = Parameter::text("match[]", "selector; several are combined by OR").many();

const INSTANT: &[Parameter] = &[QUERY, TIME, TIMEOUT, LIMIT, LOOKBACK, STATS];
const RANGE: &[Parameter] = &[
    QUERY,
    START.required(),
    END.required(),
    Parameter::text("step", "step: a duration, or seconds").required(),
    TIMEOUT,
    LIMIT,
    LOOKBACK,
    STATS,
];
const SERIES: &[Parameter] = &[MATCH, START, END, LIMIT];
const VALUES: &[Parameter] = &[Parameter::text("name", "the label"), MATCH, START, END, LIMIT];
const METADATA: &[Parameter] = &[
    Parameter::text("metric", "metric; default: all"),
    Parameter::integer("limit", "maximum number of metrics"),
    Parameter::integer("limit_per_metric", "maximum number of entries per metric"),
];
const TARGETS: &[Parameter] = &[
    Parameter::text("state", "active (default), dropped or any; no target is ever dropped"),
    Parameter::text("scrapePool", "name of a scrape job; default: all"),
];
const TARGETS_METADATA: &[Parameter] = &[
    Parameter::text("match_target", "selector of the labels of targets; default: all"),
    Parameter::text("metric", "metric; default: all"),
    Parameter::integer("limit", "maximum number of entries"),
];
const FEDERATE: &[Parameter] =
    &[Parameter::text("match[]", "selector; several are combined by OR").many().required()];
const EXEMPLARS: &[Parameter] = &[QUERY, START, END];

const REMOTE_READ: ApiRoute = ApiRoute {
    method: "post",
    body: Some(("application/x-protobuf", "a read request, snappy-compressed; at most 1 MiB")),
    ..ApiRoute::get("/api/v1/read", "Prometheus remote read, as samples.", &[], || {
        routing::post(remote_read::read)
    })
}
.with_response(200, "application/x-protobuf", "a read response, snappy-compressed");

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/api/v1/query", "Prometheus API: instant query.", INSTANT, || {
        routing::get(expression::instant_query)
    }),
    ApiRoute::post_form("/api/v1/query", "Prometheus API: instant query.", INSTANT, || {
        routing::post(expression::instant_query)
    }),
    ApiRoute::get("/api/v1/query_range", "Prometheus API: range query.", RANGE, || {
        routing::get(expression::range_query)
    }),
    ApiRoute::post_form("/api/v1/query_range", "Prometheus API: range query.", RANGE, || {
        routing::post(expression::range_query)
    }),
    ApiRoute::get(
        "/api/v1/format_query",
        "Prometheus API: formats an expression.",
        &[QUERY],
        || routing::get(expression::format_query),
    ),
    ApiRoute::post_form(
        "/api/v1/format_query",
        "Prometheus API: formats an expression.",
        &[QUERY],
        || routing::post(expression::format_query),
    ),
    ApiRoute::get("/api/v1/series", "Prometheus API: series by selectors.", SERIES, || {
        routing::get(series::series)
    }),
    ApiRoute::post_form("/api/v1/series", "Prometheus API: series by selectors.", SERIES, || {
        routing::post(series::series)
    }),
    ApiRoute::get("/api/v1/labels", "Prometheus API: label names.", SERIES, || {
        routing::get(series::labels)
    }),
    ApiRoute::post_form("/api/v1/labels", "Prometheus API: label names.", SERIES, || {
        routing::post(series::labels)
    }),
    ApiRoute::get(
        "/api/v1/label/{name}/values",
        "Prometheus API: values of a label.",
        VALUES,
        || routing::get(series::values),
    ),
    ApiRoute::get("/api/v1/metadata", "Prometheus API: metric metadata.", METADATA, || {
        routing::get(series::metadata)
    }),
    ApiRoute::get(
        "/api/v1/query_exemplars",
        "Prometheus API: exemplars of the series of an expression.",
        EXEMPLARS,
        || routing::get(exemplars::exemplars),
    ),
    ApiRoute::post_form(
        "/api/v1/query_exemplars",
        "Prometheus API: exemplars of the series of an expression.",
        EXEMPLARS,
        || routing::post(exemplars::exemplars),
    ),
    ApiRoute::get("/api/v1/targets", "Scrape targets and their state.", TARGETS, || {
        routing::get(targets::targets)
    }),
    ApiRoute::get(
        "/api/v1/targets/metadata",
        "Prometheus API: metadata of the metrics of scrape targets.",
        TARGETS_METADATA,
        || routing::get(targets_metadata::targets_metadata),
    ),
    ApiRoute::get(
        "/federate",
        "The latest samples of selected series, for Prometheus to scrape.",
        FEDERATE,
        || routing::get(federate::federate),
    )
    .with_response(200, "text/plain", "Prometheus text format 0.0.4"),
    REMOTE_READ,
    ApiRoute::get("/api/v1/status/buildinfo", "Prometheus API: build information.", &[], || {
        routing::get(status::build_info)
    }),
    ApiRoute::get(
        "/api/v1/status/runtimeinfo",
        "Prometheus API: runtime information.",
        &[],
        || routing::get(status::runtime_info),
    ),
    ApiRoute::get(
        "/api/v1/status/config",
        "Prometheus API compatibility; an empty configuration.",
        &[],
        || routing::get(status::config),
    ),
    ApiRoute::get(
        "/api/v1/status/flags",
        "Prometheus API compatibility; always empty.",
        &[],
        || routing::get(status::flags),
    ),
    ApiRoute::get(
        "/api/v1/status/walreplay",
        "Prometheus API compatibility; the server answers once its journal is read.",
        &[],
        || routing::get(status::wal_replay),
    ),
    ApiRoute::get(
        "/api/v1/alertmanagers",
        "Prometheus API compatibility; always empty: topdeck notifies contacts itself.",
        &[],
        || routing::get(status::alertmanagers),
    ),
    ApiRoute::get(
        "/api/v1/status/tsdb",
        "Prometheus API: series cardinality.",
        &[Parameter::integer("limit", "maximum number of entries per list")],
        || routing::get(status::tsdb_status),
    ),
];

/// Warnings and infos of a response.
#[derive(Debug, Default)]
struct ResponseExtras {
    warnings: Vec<String>,
    infos: Vec<String>,
}

/// A success response around data that `write` writes.
fn success(
    mut out: BoundedBuffer,
    extras: &ResponseExtras,
    write: impl FnOnce(&mut BoundedBuffer) -> std::fmt::Result,
) -> Result<JsonBody, ApiError> {
    let all = |out: &mut BoundedBuffer| {
        out.write_str("{\"status\":\"success\",\"data\":")?;
        write(out)?;
        for (name, texts) in [("warnings", &extras.warnings), ("infos", &extras.infos)] {
            if !texts.is_empty() {
                write!(out, ",\"{name}\":")?;
                write_list(out, texts, |out, text| write_text(out, text))?;
            }
        }
        out.write_char('}')
    };
    match all(&mut out) {
        Ok(()) => Ok(JsonBody(out.text)),
        Err(_) => Err(out.into_error()),
    }
}

/// API error in Prometheus' format.
#[derive(Debug)]
pub(crate) struct PrometheusError(ApiError);

impl From<ApiError> for PrometheusError {
    fn from(refusal: ApiError) -> PrometheusError {
        PrometheusError(refusal)
    }
}

impl IntoResponse for PrometheusError {
    fn into_response(self) -> Response {
        let kind = match &self.0 {
            ApiError::BadRequest(_) => "bad_data",
            ApiError::Unprocessable(_) => "execution",
            ApiError::Timeout(_) => "timeout",
            ApiError::TooManyRequests { .. } | ApiError::ShuttingDown => "unavailable",
            ApiError::NotFound(_) | ApiError::PreconditionFailed(_) => "not_found",
            ApiError::Internal(_) => "internal",
        };
        let mut body = format!("{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":");
        write_text(&mut body, self.0.message()).expect("BUG: writing to a String failed");
        body.push('}');
        let mut response = (self.0.status(), JsonBody(body)).into_response();
        if let Some(after) = self.0.retry_after() {
            let after = HeaderValue::from(after.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}
