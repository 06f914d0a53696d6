//! `/v1/query` and the endpoints for distributions.

mod breakdown;
mod cardinality;
mod compare;
mod exemplars;
mod expected_share;
mod functions;
mod heatmap;
mod histogram;
mod indexed_cells;
mod overview;
mod selection;
mod selection_summary;
mod series;
#[cfg(test)]
mod tests;
mod trace_shape;

use query::{Language, Limits, QueryRequest, QueryResult, ResultData, Settings, StoreSource};
use query::{promql, step};
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::query_service::QueryServiceSettings;
use crate::route::{ApiRoute, FROM, JSON, MAX_SERIES, Parameter, SELECTOR, TIMEOUT, TO};
use crate::routing;
use crate::token::Scope;
use query::maxima::{self, Maxima};
use report::document::{self, CellEncoding};

pub(crate) use exemplars::{LIMIT_MAX as EXEMPLAR_LIMIT_MAX, id_text};
pub(crate) use series::{EntryBudget, for_each_series, label_value};

const LANGUAGE: Parameter = Parameter::text("language", "promql (default) or caql");

const QUERY: &[Parameter] = &[
    Parameter::text("query", "PromQL or CAQL expression").required(),
    LANGUAGE,
    Parameter::text("from", "start of the range; default: an instant query at `to`"),
    Parameter::text("to", "end of the range, or evaluation time; default: now"),
    Parameter::text(
        "step",
        "step; default: the range of the expression's windows, or about 1/100 of the range",
    ),
    Parameter::text("lookback", "maximum age of the latest sample of a series; default: 5m"),
    Parameter::flag("experimental", "enables functions that Prometheus has behind feature flags"),
    Parameter::flag("maxima", "whether percentiles come with their maxima; default: true"),
    TIMEOUT,
    Parameter::integer(
        "max_samples",
        "limit of samples in memory; cannot exceed the server's limit",
    ),
    MAX_SERIES,
    CELLS,
    Parameter::integer(
        "max_bytes",
        "limit of bytes of samples in memory; cannot exceed the server's limit",
    ),
    Parameter::integer("max_steps", "limit of steps; cannot exceed the server's limit"),
];

const CELLS: Parameter =
    Parameter::text("cells", "objects (default), or frames (exact histograms, base64)");

const SELECTION: &[Parameter] = &[SELECTOR.required(), FROM, TO, TIMEOUT];

const HISTOGRAM: &[Parameter] = &[
    SELECTOR.required(),
    FROM,
    TO,
    Parameter::text("q", "quantiles, 0 to 1; default: 0.5, 0.9, 0.99 and 0.999").many(),
    Parameter::text("above", "thresholds to count values above, such as 100ms").many(),
    TIMEOUT,
    MAX_SERIES,
];

const EXEMPLARS: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("from", "start of the range; default: one hour before its end"),
    Parameter::text("to", "end of the range; default: now"),
    Parameter::text("above", "lower bound of the values, exclusive, such as 100ms"),
    Parameter::text("up_to", "upper bound of the values, inclusive; default: none"),
    Parameter::integer(
        "limit",
        "maximum number of exemplars; default 100, at most 10,000; more are sampled by weight",
    ),
    TIMEOUT,
    MAX_SERIES,
];

const HEATMAP: &[Parameter] = &[
    SELECTOR.required(),
    FROM,
    TO,
    Parameter::integer("columns", "number of columns, of equal width except the last"),
    Parameter::text("step", "width of a column; the last one is cut off at the end of the range"),
    Parameter::text("above", "thresholds to count values above, such as 100ms").many(),
    Parameter::integer(
        "max_columns",
        "maximum number of columns, of a round width that is a multiple of the interval of the \
         points; the range is extended to whole columns",
    ),
    Parameter::text(
        "cells",
        "objects (default), indexed (edges has the bounds, columns have pairs of index increment \
         and count), or frames (exact histograms, base64)",
    ),
    TIMEOUT,
    MAX_SERIES,
];

const SERIES: &[Parameter] = &[
    SELECTOR.many(),
    Parameter::text("search", "substring of the name or of a label value, case-insensitive"),
    Parameter::integer("limit", "maximum number of entries; default 1,000, at most 100,000"),
    TIMEOUT,
];

const VALUES: &[Parameter] = &[
    Parameter::text("name", "label name; __name, __unit and __kind are those of the metric"),
    SELECTOR.many(),
    Parameter::text("search", "substring of the value, case-insensitive"),
    Parameter::integer("limit", "maximum number of entries; default 1,000, at most 100,000"),
    TIMEOUT,
];

const COMPARE: &[Parameter] = &[
    Parameter::text("a", "series selector of side A").required(),
    Parameter::text("b", "series selector of side B; default: that of side A"),
    FROM,
    TO,
    Parameter::text("from_b", "start of side B; default: that of side A"),
    Parameter::text("to_b", "end of side B; default: that of side A"),
    CELLS,
    TIMEOUT,
    MAX_SERIES,
];

const BREAKDOWN: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("above", "lower bound of the selection, exclusive, such as 100ms").required(),
    Parameter::text("up_to", "upper bound of the selection, inclusive; default: none"),
    Parameter::text("from", "start of the selection; default: that of the baseline"),
    Parameter::text("to", "end of the selection; default: that of the baseline"),
    Parameter::text("baseline_from", "start of the baseline; default: the first point"),
    Parameter::text("baseline_to", "end of the baseline; default: the last point"),
    TIMEOUT,
    MAX_SERIES,
];

const TRACE_SHAPE: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("above", "lower bound of the selection, exclusive; default: none"),
    Parameter::text("up_to", "upper bound of the selection, inclusive; default: none"),
    Parameter::text("from", "start of the selection; default: one hour before its end"),
    Parameter::text("to", "end of the selection; default: now"),
    Parameter::text("baseline_from", "start of the rest; default: that of the selection"),
    Parameter::text("baseline_to", "end of the rest; default: that of the selection"),
    TIMEOUT,
];

const FUNCTIONS: &[Parameter] = &[LANGUAGE];

const OVERVIEW: &[Parameter] = &[
    Parameter::text("threshold", "threshold of a metric, such as latency=250ms").many(),
    Parameter::text(
        "today_from",
        "start of today, in the last two days, rounded down to a quarter of an hour; default: \
         midnight UTC",
    ),
    Parameter::text("group", "services (default), host, or topdeck: its metrics of itself"),
    Parameter::integer("offset", "number of rows before the first one; default 0"),
    Parameter::integer("limit", "maximum number of rows; default 80, at most 5,000"),
    Parameter::text(
        "budget",
        "CPU time for reads; default: 80ms, at most 60s; incomplete counts the rows whose history \
         was not read in it",
    ),
    TIMEOUT,
];

const CARDINALITY: &[Parameter] =
    &[Parameter::integer("top", "entries per list; default 10, at most 10,000"), TIMEOUT];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/query", "Evaluates a PromQL or CAQL expression.", QUERY, || {
        routing::get(query)
    }),
    ApiRoute::post_form("/v1/query", "Evaluates a PromQL or CAQL expression.", QUERY, || {
        routing::post(query)
    }),
    ApiRoute::get(
        "/v1/histogram",
        "Distribution of all values in a range: cells, count, sum, min, max, quantiles.",
        HISTOGRAM,
        || routing::get(histogram::histogram),
    ),
    ApiRoute::get(
        "/v1/exemplars",
        "Requests kept as exemplars of a selection, and the number of values that they stand for.",
        EXEMPLARS,
        || routing::get(exemplars::exemplars),
    )
    .with_scope(Some(Scope::Exemplars)),
    ApiRoute::get(
        "/v1/heatmap",
        "Heatmap: a distribution per column, and their total.",
        HEATMAP,
        || routing::get(heatmap::heatmap),
    ),
    ApiRoute::get(
        "/v1/selection",
        "What a selector matches: series by kind and unit, and the range of their points.",
        SELECTION,
        || routing::get(selection_summary::selection),
    ),
    ApiRoute::get("/v1/series", "Lists series.", SERIES, || routing::get(series::series)),
    ApiRoute::get(
        "/v1/metric_names",
        "Metric names, with kind, unit and number of series.",
        SERIES,
        || routing::get(series::names),
    ),
    ApiRoute::get(
        "/v1/labels",
        "Label names, with their numbers of values and series.",
        SERIES,
        || routing::get(series::labels),
    ),
    ApiRoute::get("/v1/label/{name}/values", "Values of a label.", VALUES, || {
        routing::get(series::values)
    }),
    ApiRoute::get("/v1/compare", "Compares the distributions of two selections.", COMPARE, || {
        routing::get(compare::compare)
    }),
    ApiRoute::get(
        "/v1/breakdown",
        "Breakdown of a heatmap selection by label: labels whose values differ most from the \
         baseline.",
        BREAKDOWN,
        || routing::get(breakdown::breakdown),
    )
    .with_response(
        200,
        JSON,
        "labels by falling divergence; min and max bound all values of the baseline, in unit; null \
         if unknown",
    ),
    ApiRoute::get(
        "/v1/breakdown/trace-shape",
        "Breakdown of a selection by operation: mean self times in the traces of its exemplars \
         and in those of the rest.",
        TRACE_SHAPE,
        || routing::get(trace_shape::trace_shape),
    )
    .with_scope(Some(Scope::Exemplars))
    .with_response(
        200,
        JSON,
        "operations with confidence intervals of 95 %, those that grew most first; none if fewer \
         than traces_min traces of a side are stored",
    ),
    ApiRoute::get(
        "/v1/overview",
        "Metrics and services with distributions by requests above their threshold: now, today, \
         users, how unusual, and a heatmap of the last hour.",
        OVERVIEW,
        || routing::get(overview::overview),
    ),
    ApiRoute::get(
        "/v1/functions",
        "Functions and aggregations of PromQL or CAQL, with their signatures.",
        FUNCTIONS,
        || routing::get(functions::functions),
    ),
    ApiRoute::get(
        "/v1/cardinality",
        "Series cardinality by metric and label.",
        CARDINALITY,
        || routing::get(cardinality::cardinality),
    ),
];

async fn query(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(QUERY)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let (timeout, cells) = (parameters.timeout()?, cell_encoding(&parameters)?);
    let (own, own_queries) = (parameters.clone(), context.queries.clone());
    let estimate = move |view: &ReadView, active: &ActiveQuery| {
        // The evaluation reports errors.
        let asked = QueryParams::parse(&own, now, &own_queries.settings);
        asked.map_or(0, |asked| asked.estimate_rows(view, active))
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let asked = QueryParams::parse(&parameters, now, &queries.settings)?;
        let text = &asked.expression;
        let answer = asked
            .execute(view, text, active)
            .map_err(|error| ApiError::from_query_error(error, text))?;
        let mut room = ResponseBudget::new(queries.settings.max_response_bytes, active);
        room.reserve(document::result::data_bytes(&answer.data))?;
        let maxima = match asked.has_maxima {
            false => Vec::new(),
            true => asked.maxima(view, &answer, active, &mut room)?,
        };
        active.json_response(&document::result::to_json(&answer, &maxima, cells))
    };
    context.run_query("query", timeout, estimate, work).await
}

/// Parameters of a query.
struct QueryParams {
    expression: String,
    language: Language,
    start: i64,
    end: i64,
    step: i64,
    options: promql::Options,
    settings: Settings,
    has_maxima: bool,
}

impl QueryParams {
    fn parse(
        parameters: &Parameters,
        now: i64,
        service: &QueryServiceSettings,
    ) -> Result<QueryParams, ApiError> {
        let text = parameters.required("query", "an expression of PromQL or CAQL")?.to_owned();
        let language = language(parameters)?;
        let options = match parameters.flag("experimental")? {
            true => promql::Options::all(),
            false => promql::Options::default(),
        };
        let end = parameters.time("to", now)?.unwrap_or(now);
        let from = parameters.time("from", now)?;
        let step = parameters.duration("step")?;
        let needs = "a time such as -1h: a step, or CAQL, needs a range";
        let start = match from {
            None if step.is_some() || language == Language::Caql => {
                parameters.required("from", needs)?;
                end
            }
            from => from.unwrap_or(end),
        };
        if start > end {
            let expected = "a time not after `to`";
            return Err(ApiError::invalid_parameter(
                "from",
                parameters.get("from").unwrap_or(""),
                expected,
            ));
        }
        let step = match (from, step) {
            (None, _) => 0,
            (Some(_), Some(step)) => step,
            (Some(_), None) => {
                let length = end.saturating_sub(start);
                step::default_step(&text, language, &options, length, step::STEPS_MAX)
            }
        };
        let mut settings = Settings {
            limits: parse_limits(parameters, service.limits)?,
            threads: service.threads,
            clips_quantiles: true,
            ..Settings::default()
        };
        settings.lookback = parameters.duration("lookback")?.unwrap_or(settings.lookback);
        let has_maxima = parameters.get("maxima").is_none() || parameters.flag("maxima")?;
        Ok(QueryParams {
            expression: text,
            language,
            start,
            end,
            step,
            options,
            settings,
            has_maxima,
        })
    }

    fn execute(
        &self,
        view: &ReadView,
        text: &str,
        active: &ActiveQuery,
    ) -> query::Result<QueryResult> {
        let source = StoreSource::new(view).with_context(active);
        query::execute(&source, &self.query_request(text), &self.settings, active)
    }

    fn estimate_rows(&self, view: &ReadView, active: &ActiveQuery) -> u64 {
        let source = StoreSource::new(view).with_context(active);
        let question = self.query_request(&self.expression);
        query::estimate(&source, &question, &self.settings, active).unwrap_or(0)
    }

    fn query_request<'a>(&self, text: &'a str) -> QueryRequest<'a> {
        let &QueryParams { language, start, end, step, options, .. } = self;
        QueryRequest { text, language, start, end, step, options }
    }

    /// The maxima for percentiles. A failed maximum query is ignored, except for timeouts and
    /// memory limits.
    fn maxima(
        &self,
        view: &ReadView,
        answer: &QueryResult,
        active: &ActiveQuery,
        room: &mut ResponseBudget<'_>,
    ) -> Result<Vec<Maxima>, ApiError> {
        let (ResultData::Vector(streams) | ResultData::Matrix(streams)) = &answer.data else {
            return Ok(Vec::new());
        };
        let wanted = maxima::max_queries(&self.expression, self.language, &self.options);
        let mut maxima = Vec::new();
        for wanted in wanted {
            let found = self.execute(view, &wanted.expression, active);
            active.check_cancelled()?;
            let found = found.ok().and_then(|found| Maxima::new(wanted, found, streams));
            if let Some(found) = found {
                room.reserve(document::result::streams_bytes(&found.streams))?;
                maxima.push(found);
            }
        }
        Ok(maxima)
    }
}

/// Encoding of the buckets in the response.
fn cell_encoding(parameters: &Parameters) -> Result<CellEncoding, ApiError> {
    match parameters.get("cells") {
        None | Some("objects") => Ok(CellEncoding::Objects),
        Some("frames") => Ok(CellEncoding::Frames),
        Some(other) => Err(ApiError::invalid_parameter("cells", other, "objects or frames")),
    }
}

fn language(parameters: &Parameters) -> Result<Language, ApiError> {
    match parameters.get("language") {
        None | Some("promql") => Ok(Language::PromQl),
        Some("caql") => Ok(Language::Caql),
        Some(other) => Err(ApiError::invalid_parameter("language", other, "promql or caql")),
    }
}

/// Limits of a query: the requested ones, at most the configured ones.
fn parse_limits(parameters: &Parameters, set: Limits) -> Result<Limits, ApiError> {
    let limit =
        |name, most: u64| Ok::<u64, ApiError>(parameters.integer(name, most, u64::MAX)?.min(most));
    Ok(Limits {
        samples: limit("max_samples", set.samples)?,
        series: limit("max_series", set.series)?,
        bytes: limit("max_bytes", set.bytes)?,
        steps: limit("max_steps", set.steps)?,
    })
}

/// Memory budget of a response under construction, maxima included.
struct ResponseBudget<'a> {
    remaining: usize,
    max: usize,
    query: &'a ActiveQuery,
}

impl ResponseBudget<'_> {
    fn new(max: usize, active: &ActiveQuery) -> ResponseBudget<'_> {
        ResponseBudget { remaining: max, max, query: active }
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), ApiError> {
        let left = self.remaining.checked_sub(bytes).ok_or_else(|| {
            ApiError::Unprocessable(format!(
                "size limit ({} bytes) of the response with maxima exceeded; use a longer step, a \
                 shorter range or fewer series, or set maxima=false",
                self.max
            ))
        })?;
        self.remaining = left;
        self.query.reserve(bytes)
    }
}
