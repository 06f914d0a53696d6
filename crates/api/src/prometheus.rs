//! The API of Prometheus, as of 3.15 (prometheus.io/docs/prometheus/latest/querying/api), so that what asks Prometheus
//! can ask topdeck: Grafana's data source works as it is.
//!
//! What Prometheus does not know is told in its words: a statistic with bounds is its likeliest value, a distribution
//! is a native histogram, or one of custom buckets, and what is known to be missing is a warning. Series are those
//! that are known, whatever `start` and `end` say.

mod about;
mod answer;
mod ask;
mod number;
mod series;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use axum::response::{IntoResponse, Response};
use axum::routing;
use http::{HeaderValue, header};

use crate::desk::{Page, Written};
use crate::json::write_text;
use crate::openapi::{Parameter, Route};
use crate::refusal::Refusal;

const TIME: Parameter = Parameter::text("time", "the moment that is asked about; now, if not said");
const QUERY: Parameter = Parameter::text("query", "an expression of PromQL").required();
const TIMEOUT: Parameter = Parameter::text("timeout", "how long the answer may take at the most");
const LIMIT: Parameter =
    Parameter::integer("limit", "as many are told, with a warning if there are more; 0 for all");
const LOOKBACK: Parameter =
    Parameter::text("lookback_delta", "how old the latest reading of a series may be");
const STATS: Parameter = Parameter::text("stats", "taken and not heeded");
const START: Parameter = Parameter::text("start", "when it begins");
const END: Parameter = Parameter::text("end", "when it ends");
const MATCH: Parameter =
    Parameter::text("match[]", "a selector; of several, what any of them picks").many();

const INSTANT: &[Parameter] = &[QUERY, TIME, TIMEOUT, LIMIT, LOOKBACK, STATS];
const RANGE: &[Parameter] = &[
    QUERY,
    START.required(),
    END.required(),
    Parameter::text("step", "from one moment to the next: a length, or seconds").required(),
    TIMEOUT,
    LIMIT,
    LOOKBACK,
    STATS,
];
const SERIES: &[Parameter] = &[MATCH, START, END, LIMIT];
const VALUES: &[Parameter] = &[Parameter::text("name", "the label"), MATCH, START, END, LIMIT];
const METADATA: &[Parameter] = &[
    Parameter::text("metric", "of which metric; of all, if not said"),
    Parameter::integer("limit", "as many metrics are told"),
    Parameter::integer("limit_per_metric", "as many of each"),
];
const EXEMPLARS: &[Parameter] = &[QUERY, START, END];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/api/v1/query", "As Prometheus: an expression at one moment.", INSTANT, || {
        routing::get(ask::instant)
    }),
    Route::form("/api/v1/query", "As Prometheus: an expression at one moment.", INSTANT, || {
        routing::post(ask::instant)
    }),
    Route::get("/api/v1/query_range", "As Prometheus: an expression over time.", RANGE, || {
        routing::get(ask::range)
    }),
    Route::form("/api/v1/query_range", "As Prometheus: an expression over time.", RANGE, || {
        routing::post(ask::range)
    }),
    Route::get(
        "/api/v1/format_query",
        "As Prometheus: the expression, set in order.",
        &[QUERY],
        || routing::get(ask::format),
    ),
    Route::form(
        "/api/v1/format_query",
        "As Prometheus: the expression, set in order.",
        &[QUERY],
        || routing::post(ask::format),
    ),
    Route::get("/api/v1/series", "As Prometheus: series by selectors.", SERIES, || {
        routing::get(series::series)
    }),
    Route::form("/api/v1/series", "As Prometheus: series by selectors.", SERIES, || {
        routing::post(series::series)
    }),
    Route::get("/api/v1/labels", "As Prometheus: names of labels.", SERIES, || {
        routing::get(series::labels)
    }),
    Route::form("/api/v1/labels", "As Prometheus: names of labels.", SERIES, || {
        routing::post(series::labels)
    }),
    Route::get("/api/v1/label/{name}/values", "As Prometheus: values of a label.", VALUES, || {
        routing::get(series::values)
    }),
    Route::get("/api/v1/metadata", "As Prometheus: types and units of metrics.", METADATA, || {
        routing::get(series::metadata)
    }),
    Route::get("/api/v1/query_exemplars", "As Prometheus: there are none.", EXEMPLARS, || {
        routing::get(about::exemplars)
    }),
    Route::form("/api/v1/query_exemplars", "As Prometheus: there are none.", EXEMPLARS, || {
        routing::post(about::exemplars)
    }),
    Route::get("/api/v1/rules", "As Prometheus: there are none.", &[], || {
        routing::get(about::rules)
    }),
    Route::get("/api/v1/alerts", "As Prometheus: there are none.", &[], || {
        routing::get(about::alerts)
    }),
    Route::get("/api/v1/targets", "As Prometheus: there are none.", &[], || {
        routing::get(about::targets)
    }),
    Route::get("/api/v1/status/buildinfo", "As Prometheus: whose API this is.", &[], || {
        routing::get(about::build)
    }),
    Route::get("/api/v1/status/runtimeinfo", "As Prometheus: since when it runs.", &[], || {
        routing::get(about::runtime)
    }),
    Route::get("/api/v1/status/config", "As Prometheus: an empty configuration.", &[], || {
        routing::get(about::config)
    }),
    Route::get("/api/v1/status/flags", "As Prometheus: there are none.", &[], || {
        routing::get(about::flags)
    }),
    Route::get(
        "/api/v1/status/tsdb",
        "As Prometheus: how many series there are of what.",
        &[Parameter::integer("limit", "how many of each")],
        || routing::get(about::tsdb),
    ),
];

/// What is told beside the data.
#[derive(Debug, Default)]
struct Beside {
    warnings: Vec<String>,
    infos: Vec<String>,
}

/// An answer around data that `write` writes.
fn success(
    mut page: Page,
    beside: &Beside,
    write: impl FnOnce(&mut Page) -> std::fmt::Result,
) -> Result<Written, Refusal> {
    let all = |page: &mut Page| {
        page.write_str("{\"status\":\"success\",\"data\":")?;
        write(page)?;
        for (name, texts) in [("warnings", &beside.warnings), ("infos", &beside.infos)] {
            if !texts.is_empty() {
                write!(page, ",\"{name}\":")?;
                write_list(page, texts, |page, text| write_text(page, text))?;
            }
        }
        page.write_char('}')
    };
    match all(&mut page) {
        Ok(()) => Ok(Written(page.text)),
        Err(_) => Err(page.refusal()),
    }
}

fn write_list<T>(
    page: &mut Page,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Page, T) -> std::fmt::Result,
) -> std::fmt::Result {
    page.write_char('[')?;
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            page.write_char(',')?;
        }
        write(page, item)?;
    }
    page.write_char(']')
}

/// A refusal as Prometheus tells it.
#[derive(Debug)]
struct Failure(Refusal);

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure(refusal)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let kind = match &self.0 {
            Refusal::Bad(_) => "bad_data",
            Refusal::Execution(_) => "execution",
            Refusal::Time(_) => "timeout",
            Refusal::Busy { .. } => "unavailable",
            Refusal::Missing(_) | Refusal::Changed(_) => "not_found",
            Refusal::Internal(_) => "internal",
        };
        let mut body = format!("{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":");
        write_text(&mut body, self.0.what()).expect("a String takes all");
        body.push('}');
        let mut response = (self.0.status(), Written(body)).into_response();
        if let Refusal::Busy { after, .. } = self.0 {
            let after = HeaderValue::from(after.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
    }
}
