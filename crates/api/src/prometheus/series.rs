//! Series, labels and metadata.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use axum::extract::Path;
use intake::Intake;
use model::{Selector, Series, SeriesKind, selector};
use prometheus_json::write_list;
use query::{LabelSet, NAME, Source as _, StoreSource, StoredMetric, promql};
use store::ReadView;

use super::expression::{TRUNCATED, parse_error};
use super::text_list::TextList;
use super::{PrometheusError, ResponseExtras, success};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::write_text;
use crate::parameters::{Parameters, parse_all};
use crate::query::{EntryBudget, for_each_series, label_value};

/// All `match[]`.
fn match_selectors(parameters: &Parameters) -> Result<Vec<Selector>, ApiError> {
    let one = |text: &str| match_selector("match[]", text);
    parse_all("match[]", parameters.all("match[]"), promql::REGEXES_MAX, one)
}

/// The selector of a parameter.
pub(super) fn match_selector(parameter: &str, text: &str) -> Result<Selector, ApiError> {
    let to_error = |error: query::Error| parse_error(parameter, &error, text);
    let expression = promql::parse(text, &promql::Options::default()).map_err(to_error)?;
    let promql::ExprKind::Selector(selector) = &expression.kind else {
        let what = "is not a selector such as up or {job=\"a\"}";
        return Err(ApiError::BadRequest(format!(
            "invalid parameter {parameter:?}: {text:?} {what}"
        )));
    };
    promql::selector_of(selector).map_err(to_error)
}

/// Whether series of buckets are listed with `le`.
#[derive(Clone, Copy, PartialEq)]
enum BucketList {
    /// Only if a selector has a condition on it.
    IfSelected,
    /// Always.
    All,
}

/// Calls `each` for the series of all selectors, also those that are found only under the names of
/// Prometheus. Without selectors: for all series; one that has other names in Prometheus
/// (OpenTelemetry's, and those in ns, us or ms) again under each of them.
fn for_each_named_series(
    view: &ReadView,
    selectors: &[Selector],
    (buckets, range): (BucketList, Range<i64>),
    active: &ActiveQuery,
    mut each: impl FnMut(&Series) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if selectors.is_empty() {
        return for_each_series(view, &Selector::All, active, |series| {
            each(series)?;
            query::prometheus_series(series).try_for_each(|series| each(&series))
        });
    }
    for_each_series(view, &Selector::or(selectors.to_vec()), active, &mut each)?;
    let source = StoreSource::new(view).with_context(active);
    for selector in selectors {
        let lists_buckets = buckets == BucketList::All || query::selects_buckets(selector);
        let range = lists_buckets.then(|| range.clone());
        let found = query::select_by_prometheus_name(&source, selector, range, active)
            .map_err(|error| ApiError::from_query_error(error, ""))?;
        found.iter().try_for_each(&mut each)?;
    }
    Ok(())
}

/// Finds all values of a label. Those of the name, unit and kind are the same for all series of a
/// metric: `each` gets one series of each metric, under all its names. Those of other labels are
/// passed to `each_value` from the index; `each` gets only the series that have other names in
/// Prometheus, under these, which may have other labels.
fn for_each_value_of(
    view: &ReadView,
    label: &str,
    active: &ActiveQuery,
    each: &mut dyn FnMut(&Series) -> Result<(), ApiError>,
    each_value: &mut dyn FnMut(&str) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let source = StoreSource::new(view).with_context(active);
    let metrics =
        source.metrics().map_err(|error| ApiError::from_query_error(error, ""))?.into_iter();
    let is_of_metric = matches!(label, NAME | selector::NAME | selector::UNIT | selector::KIND);
    for StoredMetric { name, unit, kind } in metrics {
        let conditions = [
            (selector::NAME, name.clone()),
            (selector::UNIT, unit.clone()),
            (selector::KIND, selector::kind_name(kind).to_owned()),
        ];
        let Ok(metric) = Series::new(name, kind).with_unit(unit).validate() else { continue };
        if is_of_metric {
            each(&metric)?;
            query::prometheus_series(&metric).try_for_each(|series| each(&series))?;
        } else if query::prometheus_series(&metric).next().is_some() {
            let is_equal =
                |(name, value): &(&str, String)| Selector::label_equals(*name, value.as_str());
            let of_metric = Selector::and(conditions.iter().map(is_equal).collect());
            for_each_series(view, &of_metric, active, |series| {
                query::prometheus_series(series).try_for_each(|series| each(&series))
            })?;
        }
    }
    if is_of_metric {
        return Ok(());
    }
    let mut outcome = Ok(());
    view.each_label_value(label, &mut |value| {
        outcome = each_value(value);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    outcome
}

/// Endpoint that needs a selector.
const SERIES: &str = "prometheus_series";

/// What a list is made of.
struct ListRequest<'a> {
    view: &'a ReadView,
    selectors: &'a [Selector],
    range: Range<i64>,
    active: &'a ActiveQuery,
}

impl ListRequest<'_> {
    /// Items of all selected series, in order. Series of texts are skipped: Prometheus has only
    /// numbers and histograms.
    fn collect<T: Ord>(
        &self,
        buckets: BucketList,
        collect: impl Fn(&Series, &mut BTreeSet<T>),
    ) -> Result<Vec<T>, ApiError> {
        let (range, mut entries) = (self.range.clone(), EntryBudget::new(self.active));
        let mut found = BTreeSet::new();
        for_each_named_series(
            self.view,
            self.selectors,
            (buckets, range),
            self.active,
            |series| {
                if series.kind() != SeriesKind::Text {
                    collect(series, &mut found);
                }
                entries.set_count(found.len())
            },
        )?;
        Ok(found.into_iter().collect())
    }

    /// Values of a label of all series, under all their names.
    fn values(&self, label: &str) -> Result<Vec<String>, ApiError> {
        let (list, entries) =
            (RefCell::new(TextList::default()), RefCell::new(EntryBudget::new(self.active)));
        let add = |value: &str| {
            list.borrow_mut().add(value);
            entries.borrow_mut().set_count(list.borrow().len())
        };
        let mut add_of = |series: &Series| {
            let Some(value) = label_value(series, label) else { return Ok(()) };
            if series.kind() == SeriesKind::Text {
                return Ok(());
            }
            if label == NAME && matches!(series.kind(), SeriesKind::Histogram(_)) {
                query::classic_names(value).try_for_each(|name| add(&name))?;
            }
            add(value)
        };
        for_each_value_of(self.view, label, self.active, &mut add_of, &mut { add })?;
        Ok(list.take().finish())
    }
}

/// Responds with the list that `collect` returns, truncated at a limit.
async fn list_response<T>(
    context: Context,
    parameters: Result<Parameters, ApiError>,
    endpoint: &'static str,
    collect: impl Fn(&ListRequest<'_>) -> Result<Vec<T>, ApiError> + Send + 'static,
    write: impl Fn(&mut dyn fmt::Write, &T) -> fmt::Result + Send + 'static,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let limit = match parameters.integer("limit", 0, usize::MAX)? {
        0 => usize::MAX,
        limit => limit,
    };
    let now = context.intake.now();
    let start = parameters.time("start", now)?.unwrap_or(i64::MIN);
    let range = start..parameters.time("end", now)?.unwrap_or(i64::MAX);
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let selectors = match_selectors(&parameters)?;
        if endpoint == SERIES && selectors.is_empty() {
            return Err(ApiError::BadRequest("no match[] parameter provided".to_owned()));
        }
        let request = ListRequest { view, selectors: &selectors, range: range.clone(), active };
        let found = collect(&request)?;
        let mut extras = ResponseExtras::default();
        extras.warnings.extend((found.len() > limit).then(|| TRUNCATED.to_owned()));
        success(active.response_buffer(), &extras, |out| {
            write_list(out, found.iter().take(limit), write)
        })
    };
    Ok(context.run_light_with_view(endpoint, None, work).await?)
}

pub(super) async fn series(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let collect = |request: &ListRequest<'_>| {
        request.collect(BucketList::All, |series, found| {
            let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
            found.insert(LabelSet::new(pairs.chain([(NAME, series.name())])));
        })
    };
    let write = |out: &mut dyn fmt::Write, labels: &LabelSet| {
        out.write_char('{')?;
        for (at, (name, value)) in labels.iter().enumerate() {
            out.write_str(if at > 0 { "," } else { "" })?;
            write_text(out, name)?;
            out.write_char(':')?;
            write_text(out, value)?;
        }
        out.write_char('}')
    };
    list_response(context, parameters, SERIES, collect, write).await
}

/// Inserts a text, copied only if new.
fn insert_text(text: &str, found: &mut BTreeSet<String>) {
    if !found.contains(text) {
        found.insert(text.to_owned());
    }
}

pub(super) async fn labels(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let collect = |request: &ListRequest<'_>| {
        request.collect(BucketList::All, |series, found| {
            insert_text(NAME, found);
            series.labels().iter().for_each(|(name, _)| insert_text(name, found));
        })
    };
    let write = |out: &mut dyn fmt::Write, text: &String| write_text(out, text);
    list_response(context, parameters, "prometheus_labels", collect, write).await
}

pub(super) async fn values(
    context: Context,
    Path(label): Path<String>,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let buckets = if label == "le" { BucketList::All } else { BucketList::IfSelected };
    let collect = move |request: &ListRequest<'_>| match request.selectors {
        [] => request.values(&label),
        _ => request.collect(buckets, |series, found| {
            label_value(series, &label).into_iter().for_each(|value| insert_text(value, found));
        }),
    };
    let write = |out: &mut dyn fmt::Write, text: &String| write_text(out, text);
    list_response(context, parameters, "prometheus_values", collect, write).await
}

pub(super) async fn metadata(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let limit = parameters.integer("limit", usize::MAX, usize::MAX)?;
    let per_metric = parameters.integer("limit_per_metric", usize::MAX, usize::MAX)?;
    let metric = parameters.get("metric");
    let name = |name| Selector::label_equals(model::selector::NAME, name);
    let selectors: Vec<Selector> = metric.map(name).into_iter().collect();
    let intake = context.intake.clone();
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let mut found: BTreeMap<String, BTreeSet<(&str, String)>> = BTreeMap::new();
        let mut entries = EntryBudget::new(active);
        let buckets = (BucketList::IfSelected, i64::MIN..i64::MAX);
        for_each_named_series(view, &selectors, buckets, active, |series| {
            let kind = match series.kind() {
                SeriesKind::Histogram(_) => "histogram",
                SeriesKind::Counter(_) => "counter",
                SeriesKind::Gauge => "gauge",
                SeriesKind::Text => return Ok(()),
            };
            let metadata = (kind, series.unit().to_owned());
            match found.get_mut(series.name()) {
                Some(entry) => drop(entry.insert(metadata)),
                None => drop(found.insert(series.name().to_owned(), BTreeSet::from([metadata]))),
            }
            entries.set_count(found.len())
        })?;
        let translated = translated_descriptions(view, active, &intake)?;
        success(active.response_buffer(), &ResponseExtras::default(), |out| {
            out.write_char('{')?;
            for (at, (name, all)) in found.iter().take(limit).enumerate() {
                out.write_str(if at > 0 { "," } else { "" })?;
                write_text(out, name)?;
                out.write_char(':')?;
                let help = intake.description(name).or_else(|| translated.get(name).cloned());
                write_list(out, all.iter().take(per_metric), |out, (kind, unit)| {
                    write!(out, "{{\"type\":\"{kind}\",\"unit\":")?;
                    write_text(out, unit)?;
                    out.write_str(",\"help\":")?;
                    write_text(out, help.as_deref().unwrap_or_default())?;
                    out.write_char('}')
                })?;
            }
            out.write_char('}')
        })
    };
    Ok(context.run_light_with_view("prometheus_metadata", None, work).await?)
}

/// Descriptions of metrics of OpenTelemetry by the names that Prometheus gives them.
fn translated_descriptions(
    view: &ReadView,
    active: &ActiveQuery,
    intake: &Intake,
) -> Result<BTreeMap<String, Arc<str>>, ApiError> {
    let source = StoreSource::new(view).with_context(active);
    let metrics =
        source.metrics().map_err(|error| ApiError::from_query_error(error, ""))?.into_iter();
    let mut described = BTreeMap::new();
    for StoredMetric { name, unit, kind } in metrics {
        let Some(text) = intake.description(&name) else { continue };
        let Ok(series) = Series::new(name, kind).with_unit(unit).validate() else { continue };
        let names = query::prometheus_series(&series).map(|series| series.name().to_owned());
        described.extend(names.map(|name| (name, Arc::clone(&text))));
    }
    Ok(described)
}
