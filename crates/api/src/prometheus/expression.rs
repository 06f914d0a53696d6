//! Expression endpoints: instant query, range query, format.

use std::sync::Arc;

use prometheus_json::write_result;
use query::{Language, QueryRequest, Settings, StoreSource, promql};
use store::ReadView;

use super::{PrometheusError, ResponseExtras, response, success};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::write_text;
use crate::parameters::Parameters;

/// Maximum number of steps, as in Prometheus.
const POINTS_MAX: i64 = 11_000;
const MS: i64 = 1_000_000;
const QUERY: &str = "a PromQL expression";
/// Warning at the limit, in Prometheus' words.
pub(super) const TRUNCATED: &str = "results truncated due to limit";

/// Prometheus' features without flags, and those with flags that dashboards use. Averages of
/// quantiles are rejected.
pub(super) const OPTIONS: promql::Options = promql::Options {
    experimental_functions: true,
    duration_expressions: true,
    extended_selectors: true,
    binop_fill: true,
    standard_only: false,
};

/// Parameters of a Prometheus query.
struct PrometheusQueryParams {
    expression: String,
    start: i64,
    end: i64,
    /// 0 for an instant query.
    step: i64,
    limit: usize,
    lookback: Option<i64>,
    timeout: Option<std::time::Duration>,
}

pub(super) async fn instant_query(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let now = context.intake.now();
    let time = millis(parameters.time("time", now)?.unwrap_or(now));
    query_response(&context, PrometheusQueryParams::parse(&parameters, time, time, 0)?).await
}

pub(super) async fn range_query(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let now = context.intake.now();
    let timestamp = |name: &str| {
        parameters.required(name, role::time_expr::TIME_SYNTAX)?;
        Ok::<_, ApiError>(millis(parameters.time(name, now)?.unwrap_or(now)))
    };
    let (start, end) = (timestamp("start")?, timestamp("end")?);
    if end < start {
        let what = "invalid parameter \"end\": end timestamp must not be before start time";
        return Err(ApiError::BadRequest(what.to_owned()).into());
    }
    parameters.required("step", role::time_expr::DURATION_SYNTAX)?;
    let step = match parameters.duration("step")? {
        Some(step) if step >= MS => millis(step),
        _ => {
            let found = parameters.get("step").unwrap_or("");
            return Err(ApiError::invalid_parameter(
                "step",
                found,
                "a duration of at least one millisecond",
            )
            .into());
        }
    };
    if end.saturating_sub(start) / step > POINTS_MAX {
        let what = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing \
                    the query resolution (?step=XX)";
        return Err(ApiError::BadRequest(what.to_owned()).into());
    }
    query_response(&context, PrometheusQueryParams::parse(&parameters, start, end, step)?).await
}

/// Prometheus has millisecond resolution.
fn millis(ns: i64) -> i64 {
    ns.div_euclid(MS).saturating_mul(MS)
}

impl PrometheusQueryParams {
    fn parse(
        parameters: &Parameters,
        start: i64,
        end: i64,
        step: i64,
    ) -> Result<PrometheusQueryParams, ApiError> {
        Ok(PrometheusQueryParams {
            expression: parameters.required("query", QUERY)?.to_owned(),
            start,
            end,
            step,
            limit: parameters.integer("limit", 0, usize::MAX)?,
            lookback: parameters.duration("lookback_delta")?,
            timeout: parameters.timeout()?,
        })
    }

    fn query_request(&self) -> QueryRequest<'_> {
        let &PrometheusQueryParams { expression: ref text, start, end, step, .. } = self;
        QueryRequest { text, language: Language::PromQl, start, end, step, options: OPTIONS }
    }
}

/// A parse error in Prometheus' format.
pub(super) fn parse_error(name: &str, error: &query::Error, text: &str) -> ApiError {
    let (line, column) = error.span().unwrap_or_default().line_and_column(text);
    ApiError::BadRequest(format!(
        "invalid parameter {name:?}: {line}:{column}: parse error: {error}"
    ))
}

async fn query_response(
    context: &Context,
    params: PrometheusQueryParams,
) -> Result<JsonBody, PrometheusError> {
    let (queries, timeout) = (context.queries.clone(), params.timeout);
    let mut settings = Settings {
        limits: queries.settings.limits,
        threads: queries.settings.threads,
        ..Settings::default()
    };
    settings.lookback = params.lookback.unwrap_or(settings.lookback);
    let params = Arc::new(params);
    let (captures, own_settings) = (Arc::clone(&params), settings.clone());
    let estimate = move |view: &ReadView, active: &ActiveQuery| {
        let source = StoreSource::new(view).with_context(active);
        // The evaluation reports errors.
        query::estimate(&source, &captures.query_request(), &own_settings, active).unwrap_or(0)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let PrometheusQueryParams { expression: text, step, limit, .. } = &*params;
        let source = StoreSource::new(view).with_context(active);
        let mut answer = query::execute(&source, &params.query_request(), &settings, active)
            .map_err(|error| match error {
                query::Error::Parse { .. } => parse_error("query", &error, text),
                other => ApiError::from_query_error(other, text),
            })?;
        let is_cut = response::truncate(&mut answer, *limit);
        let mut extras = response::warnings_and_gaps(&answer, text);
        extras.warnings.extend(is_cut.then(|| TRUNCATED.to_owned()));
        if response::is_empty(&answer) {
            // The result is complete without the hints.
            extras.infos.extend(query::unknown_names(&source, text, &OPTIONS).unwrap_or_default());
        }
        success(active.response_buffer(), &extras, |out| write_result(out, &answer, *step != 0))
    };
    Ok(context.run_query("prometheus", timeout, estimate, work).await?)
}

pub(super) async fn format_query(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let queries = context.queries.clone();
    let work = move |_: &ActiveQuery| {
        let text = parameters.required("query", QUERY)?;
        let expression =
            promql::parse(text, &OPTIONS).map_err(|error| parse_error("query", &error, text))?;
        let shown = expression.to_string();
        success(queries.response_buffer(), &ResponseExtras::default(), |out| {
            write_text(out, &shown)
        })
    };
    Ok(context.run_light("prometheus_format", None, work).await?)
}
