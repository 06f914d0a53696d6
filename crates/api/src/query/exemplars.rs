//! `/v1/exemplars`: requests that stand for the values of a selection, and how many these are.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use hist::{Bracket, LimitInclusion, Mixture};
use model::{Selector, Series, SeriesId, SeriesKind};
use store::{
    ExemplarRequest, ExemplarSelection, HOUR, ReadView, SelectedExemplar, Store, TimeGrid,
};

use super::{EXEMPLARS, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Bool, Integer, List, Null, Object, Text};
use crate::json::{integer, number};
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use crate::unitless::{left_out_json, split_off_unitless};
use report::document::{count, labels};

/// Default number of exemplars.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number: some 10 MB of JSON.
pub(crate) const LIMIT_MAX: usize = 10_000;
/// Memory of a selected series with its labels.
const SERIES_BYTES: usize = 512;

pub(super) async fn exemplars(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(EXEMPLARS)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let timeout = parameters.timeout()?;
    parameters.required("selector", SELECTOR_SYNTAX)?;
    let limit = parameters.integer("limit", DEFAULT_LIMIT, LIMIT_MAX)?;
    let range = time_range(&parameters, now)?;
    let store = queries.store()?;
    let (requested, estimated) = (parameters.clone(), range.clone());
    let estimate = move |view: &ReadView, _: &ActiveQuery| {
        let ends = (Some(estimated.start), Some(estimated.end));
        let rows = |selector| selection::estimate_rows(view, &selector, ends, 1);
        requested.selectors("selector").map_or(0, rows)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let series_max = queries.settings.limits.series;
        let series_max = parameters.integer("max_series", series_max, u64::MAX)?.min(series_max);
        let selected = ExemplarSeries::find(&parameters, view, (series_max, active))?;
        let bounds = (selected.above, selected.up_to);
        let (found, values) = selected.select((view, &*store, active), &range, bounds, limit)?;
        let count = values.as_ref().map(|values| count_between(values, &selected));
        let template = queries.settings.trace_url.as_deref();
        active.json_response(&document(&selected, &range, &found, (count, template)))
    };
    context.run_query("exemplars", timeout, estimate, work).await
}

/// The range: the last hour by default.
fn time_range(parameters: &Parameters, now: i64) -> Result<Range<i64>, ApiError> {
    let to = parameters.time("to", now)?.unwrap_or(now);
    let from = parameters.time("from", now)?.unwrap_or(to.saturating_sub(HOUR));
    match from < to && to.checked_sub(from).is_some() {
        true => Ok(from..to),
        false => {
            let found = parameters.get("from").unwrap_or("");
            Err(ApiError::invalid_parameter("from", found, "a time before `to`"))
        }
    }
}

/// Series of a request, and its bounds in their unit.
pub(super) struct ExemplarSeries {
    pub(super) selector: String,
    /// By the id of the stored series: of a classic histogram, that of a bucket.
    series: HashMap<SeriesId, Arc<Series>>,
    /// Number of series; a classic histogram is one.
    count: usize,
    /// Histograms, and buckets of classic ones: none if the selector matches only other kinds.
    distributions: Vec<store::SeriesEntryRef>,
    left_out: Vec<store::SeriesEntryRef>,
    unit: Option<decode::Unit>,
    pub(super) above: f64,
    pub(super) up_to: f64,
}

impl ExemplarSeries {
    pub(super) fn find(
        parameters: &Parameters,
        view: &ReadView,
        (series_max, active): (u64, &ActiveQuery),
    ) -> Result<ExemplarSeries, ApiError> {
        let selector = parameters.selectors("selector")?;
        let reserve = |series: usize| active.reserve(series.saturating_mul(SERIES_BYTES));
        let (mut all, is_distribution) =
            match selection::find_distributions(view, &selector, series_max, active) {
                Ok(found) => (found, true),
                // Exemplars of counters and gauges have no distribution.
                Err(error @ ApiError::NotFound(_)) => {
                    let count = view.each_series(&selector, &mut |_| ControlFlow::Break(()));
                    reserve(count)?;
                    match view.select(&selector) {
                        others if others.is_empty() => return Err(error),
                        others => (others, false),
                    }
                }
                Err(error) => return Err(error),
            };
        if is_distribution {
            reserve(all.len())?;
        }
        active.check_cancelled()?;
        let left_out = if is_distribution { split_off_unitless(&mut all) } else { Vec::new() };
        let unit = selection::common_unit(&selector, &all)?;
        let bound = |name: &str| {
            let all = selection::parse_thresholds(parameters, name, unit.as_ref())?;
            match &all[..] {
                [] => Ok(None),
                [bound] => Ok(Some(bound.1)),
                _ => {
                    let found = parameters.get(name).unwrap_or("");
                    Err(ApiError::invalid_parameter(name, found, "one threshold"))
                }
            }
        };
        let (above, up_to) = (bound("above")?, bound("up_to")?);
        Ok(ExemplarSeries {
            selector: text_of(&selector, parameters),
            series: all.iter().map(|of| (of.as_ref().id(), Arc::clone(&of.series))).collect(),
            count: match is_distribution {
                true => query::distribution_count(&all),
                false => all.len(),
            },
            distributions: if is_distribution { all } else { Vec::new() },
            left_out,
            unit,
            above: above.unwrap_or(f64::NEG_INFINITY),
            up_to: up_to.unwrap_or(f64::INFINITY),
        })
    }

    /// Exemplars of a range with values between bounds, and all values that they stand for.
    pub(super) fn select(
        &self,
        (view, store, active): (&ReadView, &Store, &ActiveQuery),
        range: &Range<i64>,
        (above, up_to): (f64, f64),
        limit: usize,
    ) -> Result<(ExemplarSelection, Option<Mixture>), ApiError> {
        let stat = store.exemplar_stat();
        // Exemplars stand for the values of the time of which they are complete.
        let covered = range.start.max(stat.covered_from)..range.end;
        let values = self.values(view, &covered)?;
        active.check_cancelled()?;
        let series = self.series.keys().copied().collect();
        let request = ExemplarRequest { series, range: range.clone(), above, up_to, limit };
        let count_above = |limit: f64, inclusion: LimitInclusion| {
            Some(values.as_ref()?.count_above(limit, inclusion).estimate as f64)
        };
        // All that match are ranked at once.
        let ranked = stat.exemplars.saturating_mul(ExemplarRequest::CANDIDATE_BYTES);
        active.reserve(usize::try_from(ranked).unwrap_or(usize::MAX))?;
        Ok((store.select_exemplars(&request, &count_above), values))
    }

    /// All values of a range; `None` if the series have no distribution, or the range is empty.
    fn values(&self, view: &ReadView, range: &Range<i64>) -> Result<Option<Mixture>, ApiError> {
        if self.distributions.is_empty() || range.is_empty() {
            return Ok(None);
        }
        let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
        let mut columns = selection::distribution_columns(view, &self.distributions, grid)?;
        let column = columns.next().expect("BUG: a grid of one column is empty")?;
        Ok(Some(column.value))
    }
}

fn text_of(selector: &Selector, parameters: &Parameters) -> String {
    parameters.get("selector").map_or_else(|| query::selector_text(selector), str::to_owned)
}

/// Number of values within the bounds.
fn count_between(values: &Mixture, selected: &ExemplarSeries) -> Bracket<u64> {
    let exact = |n| Bracket { lower: n, estimate: n, upper: n };
    let above = match selected.above {
        f64::NEG_INFINITY => exact(values.count()),
        above => values.count_above(above, LimitInclusion::Exclusive),
    };
    let beyond = match selected.up_to {
        f64::INFINITY => exact(0),
        up_to => values.count_above(up_to, LimitInclusion::Exclusive),
    };
    Bracket {
        lower: above.lower.saturating_sub(beyond.upper),
        estimate: above.estimate.saturating_sub(beyond.estimate),
        upper: above.upper.saturating_sub(beyond.lower),
    }
}

fn document(
    selected: &ExemplarSeries,
    range: &Range<i64>,
    found: &ExemplarSelection,
    (count_within, template): (Option<Bracket<u64>>, Option<&str>),
) -> Json {
    let bound = |bound: f64| if bound.is_finite() { number(bound) } else { Null };
    let exemplar = |one| exemplar_json(one, &selected.series, template);
    let mut fields = vec![
        ("schema", integer(1)),
        ("selector", Text(selected.selector.clone())),
        ("series", integer(selected.count as u64)),
        ("unit", selected.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ("start_ns", Integer(range.start.into())),
        ("end_ns", Integer(range.end.into())),
        ("above", bound(selected.above)),
        ("up_to", bound(selected.up_to)),
        ("count", count_within.map_or(Null, count)),
        ("kept", integer(found.matched)),
        ("kept_from_ns", Integer(found.covered_from.into())),
        ("exemplars", List(found.exemplars.iter().map(exemplar).collect())),
    ];
    if !selected.left_out.is_empty() {
        fields.push(("left_out", left_out_json(&selected.left_out)));
    }
    Object(fields)
}

fn exemplar_json(
    selected: &SelectedExemplar,
    series: &HashMap<SeriesId, Arc<Series>>,
    template: Option<&str>,
) -> Json {
    let exemplar = &selected.exemplar;
    let trace_id = id_text(&exemplar.trace_id);
    let span_id = id_text(&exemplar.span_id);
    let of = series.get(&selected.series);
    // The bucket of a classic histogram is no label of its requests.
    let is_bucket = of.is_some_and(|series| matches!(series.kind(), SeriesKind::Histogram(_)));
    let pairs = of.map_or(&[][..], |series| series.labels()).iter();
    let pairs = pairs.filter(|(name, _)| !is_bucket || name != "le");
    let url = template.zip(trace_id.as_ref()).map(|(template, trace)| {
        let span = span_id.as_deref().unwrap_or_default();
        template.replace("{trace_id}", trace).replace("{span_id}", span)
    });
    let text = |text: Option<String>| text.map_or(Null, Text);
    Object(vec![
        ("time_ns", Integer(exemplar.time.into())),
        ("value", number(exemplar.value)),
        ("weight", selected.weight.map_or(Null, number)),
        ("is_maximum", Bool(selected.is_maximum)),
        (
            "cell",
            Object(vec![
                ("lower", number(selected.cell.start)),
                ("upper", number(selected.cell.end)),
            ]),
        ),
        ("trace_id", text(trace_id)),
        ("span_id", text(span_id)),
        ("trace_url", text(url)),
        ("metric", text(of.map(|series| series.name().to_owned()))),
        ("labels", labels(pairs.map(|(name, value)| (name.as_str(), value.as_str())))),
        ("attributes", labels(exemplar.attributes.iter())),
        ("source", Text(exemplar.source.name().to_owned())),
    ])
}

/// An id as hexadecimal digits; `None` for zeros.
pub(crate) fn id_text(id: &[u8]) -> Option<String> {
    let is_known = id.iter().any(|&byte| byte != 0);
    is_known.then(|| id.iter().map(|byte| format!("{byte:02x}")).collect())
}
