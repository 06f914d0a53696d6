//! `/v1/query` and the endpoints for distributions.

mod breakdown;
mod cardinality;
mod compare;
mod functions;
mod heatmap;
mod histogram;
mod indexed_cells;
mod selection;
mod series;
#[cfg(test)]
mod tests;

use axum::routing;
use query::promql::{self, Expr, ExprKind};
use query::{Language, Limits, QueryRequest, QueryResult, ResultData, Settings, StoreSource};
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::document;
use crate::maxima::{self, MaxQuery, Maxima};
use crate::parameters::Parameters;
use crate::query_service::QueryServiceSettings;
use crate::route::{ApiRoute, FROM, MAX_SERIES, Parameter, SELECTOR, TIMEOUT, TO};

pub(crate) use series::{EntryBudget, for_each_series, label_value};

const LANGUAGE: Parameter = Parameter::text("language", "promql, the default, or caql");

const QUERY: &[Parameter] = &[
    Parameter::text("query", "the expression").required(),
    LANGUAGE,
    Parameter::text("from", "when it begins; without it, one moment is asked about"),
    Parameter::text("to", "when it ends, or which moment; now, if not said"),
    Parameter::text(
        "step",
        "from one moment to the next; as long as the windows of the expression or about a hundredth of the time, if not said",
    ),
    Parameter::text("lookback", "how old the latest reading of a series may be; 5m, if not said"),
    Parameter::flag("experimental", "understand what Prometheus has behind feature flags"),
    Parameter::flag("no_maxima", "leave out the maxima that stand beside percentiles"),
    TIMEOUT,
    Parameter::integer("max_samples", "samples held in memory; no more than is set"),
    MAX_SERIES,
    Parameter::integer("max_bytes", "bytes of samples held in memory; no more than is set"),
    Parameter::integer("max_steps", "moments of an answer; no more than is set"),
];

const HISTOGRAM: &[Parameter] = &[
    SELECTOR.required(),
    FROM,
    TO,
    Parameter::text(
        "q",
        "shares to tell quantiles of, 0 to 1; 0.5, 0.9, 0.99 and 0.999 if not said",
    )
    .many(),
    Parameter::text("above", "limits to tell how many values are above, such as 100ms").many(),
    TIMEOUT,
    MAX_SERIES,
];

const HEATMAP: &[Parameter] = &[
    SELECTOR.required(),
    FROM,
    TO,
    Parameter::integer("columns", "exactly so many columns, of equal length but for the last"),
    Parameter::text("step", "the length of a column; the last one is cut off at the end"),
    Parameter::text("above", "limits to tell how many values are above, such as 100ms").many(),
    Parameter::text(
        "cells",
        "objects; or indexed: edges has their ends, columns pairs of step and count",
    ),
    TIMEOUT,
    MAX_SERIES,
];

const SERIES: &[Parameter] = &[
    SELECTOR.many(),
    Parameter::text("text", "what a name or a label's value contains, in whatever case"),
    Parameter::integer("limit", "as many as are told; 1,000 if not said, 100,000 at the most"),
    TIMEOUT,
];

const VALUES: &[Parameter] = &[
    Parameter::text("name", "the label; __name, __unit and __kind are the metric's"),
    SELECTOR.many(),
    Parameter::text("text", "what a value contains, in whatever case"),
    Parameter::integer("limit", "as many as are told; 1,000 if not said, 100,000 at the most"),
    TIMEOUT,
];

const COMPARE: &[Parameter] = &[
    Parameter::text("a", "which series are side A").required(),
    Parameter::text("b", "which series are side B; those of side A, if not said"),
    FROM,
    TO,
    Parameter::text("from_b", "when side B begins, if not as side A"),
    Parameter::text("to_b", "when side B ends, if not as side A"),
    TIMEOUT,
    MAX_SERIES,
];

const BREAKDOWN: &[Parameter] = &[
    SELECTOR.required(),
    Parameter::text("above", "values above this are in the rectangle, such as 100ms").required(),
    Parameter::text("up_to", "values up to this are in it; all that are above, if not said"),
    Parameter::text("from", "when the rectangle begins; as the picture, if not said"),
    Parameter::text("to", "when the rectangle ends; as the picture, if not said"),
    Parameter::text("picture_from", "when the picture begins; with the first row, if not said"),
    Parameter::text("picture_to", "when the picture ends; with the last row, if not said"),
    TIMEOUT,
    MAX_SERIES,
];

const FUNCTIONS: &[Parameter] = &[LANGUAGE];

const CARDINALITY: &[Parameter] =
    &[Parameter::integer("top", "how many of each; 10 if not said, 10,000 at the most"), TIMEOUT];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/query", "Answers an expression of PromQL or CAQL.", QUERY, || {
        routing::get(query)
    }),
    ApiRoute::post_form("/v1/query", "Answers an expression of PromQL or CAQL.", QUERY, || {
        routing::post(query)
    }),
    ApiRoute::get(
        "/v1/histogram",
        "One distribution of all that series have in a time: cells, count, sum, extremes, quantiles.",
        HISTOGRAM,
        || routing::get(histogram::histogram),
    ),
    ApiRoute::get(
        "/v1/heatmap",
        "Columns of a heatmap, each a whole distribution; the total is their sum.",
        HEATMAP,
        || routing::get(heatmap::heatmap),
    ),
    ApiRoute::get("/v1/series", "Series that are known.", SERIES, || routing::get(series::series)),
    ApiRoute::get(
        "/v1/names",
        "Names of metrics, with kind, unit and how many series.",
        SERIES,
        || routing::get(series::names),
    ),
    ApiRoute::get(
        "/v1/labels",
        "Names of labels, with how many values and series.",
        SERIES,
        || routing::get(series::labels),
    ),
    ApiRoute::get("/v1/label/{name}/values", "Values of a label.", VALUES, || {
        routing::get(series::values)
    }),
    ApiRoute::get("/v1/compare", "Two selections side by side.", COMPARE, || {
        routing::get(compare::compare)
    }),
    ApiRoute::get("/v1/explain", "What sets a rectangle of a heatmap apart.", BREAKDOWN, || {
        routing::get(breakdown::breakdown)
    }),
    ApiRoute::get(
        "/v1/functions",
        "Functions and aggregations of PromQL or CAQL, with what they take.",
        FUNCTIONS,
        || routing::get(functions::functions),
    ),
    ApiRoute::get("/v1/cardinality", "What there is how many series of.", CARDINALITY, || {
        routing::get(cardinality::cardinality)
    }),
];

async fn query(context: Context, parameters: Parameters) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(QUERY)?;
    let (desk, now) = (context.queries.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    let (own, own_desk) = (parameters.clone(), context.queries.clone());
    let estimate = move |view: &ReadView, asking: &ActiveQuery| {
        // What is wrong with it is told when it is worked on.
        let asked = QueryParams::parse(&own, now, &own_desk.settings);
        asked.map_or(0, |asked| asked.estimate_rows(view, asking))
    };
    let work = move |view: &ReadView, asking: &ActiveQuery| {
        let asked = QueryParams::parse(&parameters, now, &desk.settings)?;
        let text = &asked.expression;
        let answer = asked
            .execute(view, text, asking)
            .map_err(|error| ApiError::from_query_error(error, text))?;
        let mut room = ResponseBudget::new(desk.settings.max_response_bytes, asking);
        room.reserve(document::result::data_bytes(&answer.data))?;
        let maxima = match asked.no_maxima {
            true => Vec::new(),
            false => asked.maxima(view, &answer, asking, &mut room)?,
        };
        asking.json_response(&document::result::to_json(&answer, &maxima))
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
    no_maxima: bool,
}

impl QueryParams {
    fn parse(
        parameters: &Parameters,
        now: i64,
        desk: &QueryServiceSettings,
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
        let needs = "a time such as -1h: a step, or CAQL, is over a stretch of time";
        let start = match from {
            None if step.is_some() || language == Language::Caql => {
                parameters.required("from", needs)?;
                end
            }
            from => from.unwrap_or(end),
        };
        if start > end {
            let expected = "a time that is not after to";
            return Err(ApiError::invalid_parameter(
                "from",
                parameters.get("from").unwrap_or(""),
                expected,
            ));
        }
        let step = match (from, step) {
            (None, _) => 0,
            (Some(_), Some(step)) => step,
            (Some(_), None) => default_step(&text, language, &options, end.saturating_sub(start)),
        };
        let mut settings = Settings {
            limits: parse_limits(parameters, desk.limits)?,
            threads: desk.threads,
            ..Settings::default()
        };
        settings.lookback = parameters.duration("lookback")?.unwrap_or(settings.lookback);
        let no_maxima = parameters.flag("no_maxima")?;
        Ok(QueryParams {
            expression: text,
            language,
            start,
            end,
            step,
            options,
            settings,
            no_maxima,
        })
    }

    fn execute(
        &self,
        view: &ReadView,
        text: &str,
        asking: &ActiveQuery,
    ) -> query::Result<QueryResult> {
        let source = StoreSource::new(view).with_context(asking);
        query::execute(&source, &self.query_request(text), &self.settings, asking)
    }

    fn estimate_rows(&self, view: &ReadView, asking: &ActiveQuery) -> u64 {
        let source = StoreSource::new(view).with_context(asking);
        let question = self.query_request(&self.expression);
        query::estimate(&source, &question, &self.settings, asking).unwrap_or(0)
    }

    fn query_request<'a>(&self, text: &'a str) -> QueryRequest<'a> {
        let &QueryParams { language, start, end, step, options, .. } = self;
        QueryRequest { text, language, start, end, step, options }
    }

    /// The maxima that belong beside percentiles. One that cannot be had spoils no answer, but for want of time or room.
    fn maxima(
        &self,
        view: &ReadView,
        answer: &QueryResult,
        asking: &ActiveQuery,
        room: &mut ResponseBudget<'_>,
    ) -> Result<Vec<Maxima>, ApiError> {
        let (ResultData::Vector(streams) | ResultData::Matrix(streams)) = &answer.data else {
            return Ok(Vec::new());
        };
        let wanted = match self.language {
            Language::PromQl => maxima::max_queries(&self.expression, &self.options),
            Language::Caql => maxima::max_queries_caql(&self.expression),
        };
        let mut maxima = Vec::new();
        for MaxQuery { expression: question, is_per_stream: is_beside, by } in wanted {
            let found = self.execute(view, &question, asking);
            asking.check_cancelled()?;
            if let Ok(QueryResult {
                data: ResultData::Vector(of) | ResultData::Matrix(of),
                unit,
                ..
            }) = found
            {
                room.reserve(document::result::streams_bytes(&of))?;
                let mut found = Maxima {
                    expression: question,
                    streams: of,
                    unit,
                    is_per_stream: is_beside,
                    by,
                };
                found.is_per_stream =
                    streams.iter().any(|stream| found.stream_for(&stream.labels).is_some());
                maxima.push(found);
            }
        }
        Ok(maxima)
    }
}

fn language(parameters: &Parameters) -> Result<Language, ApiError> {
    match parameters.get("language") {
        None | Some("promql") => Ok(Language::PromQl),
        Some("caql") => Ok(Language::Caql),
        Some(other) => Err(ApiError::invalid_parameter("language", other, "promql or caql")),
    }
}

/// What a question may cost: as is asked for, and no more than is set.
fn parse_limits(parameters: &Parameters, set: Limits) -> Result<Limits, ApiError> {
    let limit =
        |name, most: u64| Ok::<u64, ApiError>(parameters.count(name, most, u64::MAX)?.min(most));
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
    fn new(max: usize, asking: &ActiveQuery) -> ResponseBudget<'_> {
        ResponseBudget { remaining: max, max, query: asking }
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), ApiError> {
        let left = self.remaining.checked_sub(bytes).ok_or_else(|| {
            ApiError::Unprocessable(format!(
                "the answer and its maxima take more than {} bytes; ask for longer steps, a shorter time or fewer series, or set no_maxima",
                self.max
            ))
        })?;
        self.remaining = left;
        self.query.reserve(bytes)
    }
}

/// As many steps as a person looks at, where nobody says how many.
const DEFAULT_STEPS: i64 = 100;

/// From one moment to the next, where nobody says: as long as the windows that the expression asks for, which then
/// touch, if these are not too many; else about a hundredth.
fn default_step(text: &str, language: Language, options: &promql::Options, length: i64) -> i64 {
    let window = match language {
        Language::Caql => None,
        Language::PromQl => common_window(text, options),
    };
    match window {
        Some(window) if length / window <= 2 * DEFAULT_STEPS => window,
        _ => round_up(length / DEFAULT_STEPS),
    }
}

/// The length of the windows in an expression, if all are equally long.
fn common_window(text: &str, options: &promql::Options) -> Option<i64> {
    fn collect_windows(expr: &Expr, found: &mut Vec<Option<i64>>) {
        if let ExprKind::Matrix { range, .. } = &expr.kind {
            found.push(range.resolve(0, 0).ok());
        }
        expr.children().into_iter().for_each(|child| collect_windows(child, found));
    }
    let mut found = Vec::new();
    collect_windows(&promql::parse(text, options).ok()?, &mut found);
    found.dedup();
    match found[..] {
        [Some(one)] if one > 0 => Some(one),
        _ => None,
    }
}

/// The next length that people count in.
fn round_up(length: i64) -> i64 {
    const ROUND_STEPS_S: [i64; 18] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200,
        86_400,
    ];
    let round =
        ROUND_STEPS_S.iter().map(|seconds| seconds * store::SECOND).find(|round| *round >= length);
    round.unwrap_or_else(|| (length / store::DAY + 1).saturating_mul(store::DAY))
}
