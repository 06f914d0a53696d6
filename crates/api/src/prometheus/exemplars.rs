//! `/api/v1/query_exemplars`: exemplars of the series that an expression selects.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use axum::Extension;
use model::SeriesId;
use prometheus_json::{write_labels, write_list, write_number, write_time};
use query::{LabelSet, NamedSeries, StoreSource, promql};
use store::{ExemplarRequest, ReadView, SelectedExemplar};

use super::expression::{OPTIONS, TRUNCATED, parse_error};
use super::{PrometheusError, ResponseExtras, success};
use crate::access::Principal;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::parameters::Parameters;
use crate::query::{EXEMPLAR_LIMIT_MAX, id_text};

/// Why the list is empty for a token without the scope: Grafana asks for exemplars beside each
/// query, and would show an error.
const REFUSED: &str = "exemplars are left out: the token lacks scope exemplars";

pub(super) async fn exemplars(
    context: Context,
    principal: Option<Extension<Principal>>,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let text = parameters.required("query", "a PromQL expression")?.to_owned();
    let now = context.intake.now();
    let start = parameters.time("start", now)?.unwrap_or(i64::MIN);
    let end = parameters.time("end", now)?.unwrap_or(i64::MAX);
    if end < start {
        let what = "invalid parameter \"end\": end timestamp must not be before start time";
        return Err(ApiError::BadRequest(what.to_owned()).into());
    }
    let store = context.queries.store()?;
    let is_refused = principal.is_some_and(|client| client.lacks_exemplars);
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let to_error = |error: query::Error| parse_error("query", &error, &text);
        let expression = promql::parse(&text, &OPTIONS).map_err(to_error)?;
        let mut selectors = Vec::new();
        collect_selectors(&expression, &mut selectors);
        let mut found: BTreeMap<LabelSet, Vec<NamedSeries>> = BTreeMap::new();
        for selector in selectors.into_iter().filter(|_| !is_refused) {
            let selector = promql::selector_of(selector).map_err(to_error)?;
            let source = StoreSource::new(view).with_context(active);
            let named = query::select_named_series(&source, &selector, active)
                .map_err(|error| ApiError::from_query_error(error, &text))?;
            for series in named {
                let same = found.entry(series.labels.clone()).or_default();
                // Several selectors of an expression may match a series.
                if !same.contains(&series) {
                    same.push(series);
                }
            }
        }
        let all = found.values().flatten().map(|series| series.stored.id());
        let request = ExemplarRequest {
            series: all.collect::<HashSet<SeriesId>>(),
            // The end is included.
            range: start..end.saturating_add(1),
            above: f64::NEG_INFINITY,
            up_to: f64::INFINITY,
            limit: EXEMPLAR_LIMIT_MAX,
        };
        let selection = store.select_exemplars(&request, &|_, _| None);
        let mut by_series: BTreeMap<SeriesId, Vec<SelectedExemplar>> = BTreeMap::new();
        let is_cut = selection.matched > selection.exemplars.len() as u64;
        // From the earliest to the latest.
        for selected in selection.exemplars.into_iter().rev() {
            by_series.entry(selected.series).or_default().push(selected);
        }
        let mut extras = ResponseExtras::default();
        extras.warnings.extend(is_refused.then(|| REFUSED.to_owned()));
        extras.warnings.extend(is_cut.then(|| TRUNCATED.to_owned()));
        let has_any = |(_, of): &(&LabelSet, &Vec<NamedSeries>)| {
            of.iter().any(|series| by_series.contains_key(&series.stored.id()))
        };
        success(active.response_buffer(), &extras, |out| {
            write_list(out, found.iter().filter(has_any), |out, (labels, series)| {
                write_series(out, labels, series, &by_series)
            })
        })
    };
    Ok(context.run_light_with_view("prometheus_exemplars", None, work).await?)
}

/// Selectors of an expression, in source order.
fn collect_selectors<'a>(expression: &'a promql::Expr, into: &mut Vec<&'a promql::VectorSelector>) {
    match &expression.kind {
        promql::ExprKind::Selector(selector) | promql::ExprKind::Matrix { selector, .. } => {
            into.push(selector);
        }
        _ => {
            let children = expression.children().into_iter();
            children.for_each(|child| collect_selectors(child, into));
        }
    }
}

fn write_series(
    out: &mut dyn Write,
    labels: &LabelSet,
    series: &[NamedSeries],
    by_series: &BTreeMap<SeriesId, Vec<SelectedExemplar>>,
) -> std::fmt::Result {
    out.write_str("{\"seriesLabels\":")?;
    write_labels(out, labels)?;
    out.write_str(",\"exemplars\":")?;
    let of = |series: &NamedSeries| {
        let found = by_series.get(&series.stored.id()).map_or(&[][..], Vec::as_slice);
        let divisor = series.divisor;
        found.iter().map(move |selected| (selected, divisor)).collect::<Vec<_>>()
    };
    write_list(out, series.iter().flat_map(of), |out, (selected, divisor)| {
        let exemplar = &selected.exemplar;
        let ids =
            [("trace_id", id_text(&exemplar.trace_id)), ("span_id", id_text(&exemplar.span_id))];
        let known = |name: &str| ids.iter().any(|(id, value)| *id == name && value.is_some());
        let attributes = exemplar.attributes.iter().filter(|(name, _)| !known(name));
        let ids = ids.iter().filter_map(|(name, id)| Some((*name, id.as_deref()?)));
        out.write_str("{\"labels\":")?;
        write_labels(out, &LabelSet::new(ids.chain(attributes)))?;
        out.write_str(",\"value\":")?;
        write_number(out, exemplar.value / divisor)?;
        out.write_str(",\"timestamp\":")?;
        write_time(out, exemplar.time)?;
        out.write_char('}')
    })?;
    out.write_char('}')
}
