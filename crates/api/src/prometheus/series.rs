//! Series, labels and metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use axum::extract::Path;
use intake::Intake;
use model::{Selector, Series, SeriesKind};
use query::{LabelSet, NAME, Source as _, StoreSource, StoredMetric, promql};
use store::ReadView;

use super::expression::{TRUNCATED, parse_error};
use super::{PrometheusError, ResponseExtras, success, write_list};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::{BoundedBuffer, JsonBody};
use crate::context::Context;
use crate::json::write_text;
use crate::parameters::{Parameters, parse_all};
use crate::query::{EntryBudget, for_each_series, label_value};

/// All `match[]`.
fn match_selectors(parameters: &Parameters) -> Result<Vec<Selector>, ApiError> {
    let one = |text: &str| {
        let to_error = |error: query::Error| parse_error("match[]", &error, text);
        let expression = promql::parse(text, &promql::Options::default()).map_err(to_error)?;
        let promql::ExprKind::Selector(selector) = &expression.kind else {
            let what = "is not a selector such as up or {job=\"a\"}";
            return Err(ApiError::BadRequest(format!(
                "invalid parameter \"match[]\": {text:?} {what}"
            )));
        };
        promql::selector_of(selector).map_err(to_error)
    };
    parse_all("match[]", parameters.all("match[]"), promql::REGEXES_MAX, one)
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
/// Prometheus; without selectors, for all series, and those of OpenTelemetry, and
/// those in ns, us or ms, under all their names.
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

/// Endpoint that needs a selector.
const SERIES: &str = "prometheus_series";

/// Collects items of all selected series, and responds with the list, truncated at a limit.
/// `collect` is told whether there are selectors.
/// Series of texts are skipped: Prometheus has only numbers and histograms.
async fn list_response<T: Ord>(
    context: Context,
    parameters: Result<Parameters, ApiError>,
    (endpoint, buckets): (&'static str, BucketList),
    collect: impl Fn(&Series, bool, &mut BTreeSet<T>) + Send + 'static,
    write: impl Fn(&mut BoundedBuffer, &T) -> fmt::Result + Send + 'static,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let limit = match parameters.count("limit", 0, usize::MAX)? {
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
        let (mut found, mut entries) = (BTreeSet::new(), EntryBudget::new(active));
        let has_selectors = !selectors.is_empty();
        for_each_named_series(view, &selectors, (buckets, range.clone()), active, |series| {
            if series.kind() != SeriesKind::Text {
                collect(series, has_selectors, &mut found);
            }
            entries.set_count(found.len())
        })?;
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
    let collect = |series: &Series, _: bool, found: &mut BTreeSet<LabelSet>| {
        let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        found.insert(LabelSet::new(pairs.chain([(NAME, series.name())])));
    };
    let write = |out: &mut BoundedBuffer, labels: &LabelSet| {
        out.write_char('{')?;
        for (at, (name, value)) in labels.iter().enumerate() {
            out.write_str(if at > 0 { "," } else { "" })?;
            write_text(out, name)?;
            out.write_char(':')?;
            write_text(out, value)?;
        }
        out.write_char('}')
    };
    list_response(context, parameters, (SERIES, BucketList::All), collect, write).await
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
    let collect = |series: &Series, _: bool, found: &mut BTreeSet<String>| {
        insert_text(NAME, found);
        series.labels().iter().for_each(|(name, _)| insert_text(name, found));
    };
    let endpoint = ("prometheus_labels", BucketList::All);
    list_response(context, parameters, endpoint, collect, |out, text| write_text(out, text)).await
}

pub(super) async fn values(
    context: Context,
    Path(label): Path<String>,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let buckets = if label == "le" { BucketList::All } else { BucketList::IfSelected };
    let collect = move |series: &Series, has_selectors: bool, found: &mut BTreeSet<String>| {
        if let Some(value) = label_value(series, &label) {
            insert_text(value, found);
            let is_histogram = matches!(series.kind(), SeriesKind::Histogram(_));
            if label == NAME && is_histogram && !has_selectors {
                found.extend(query::classic_names(value));
            }
        }
    };
    let endpoint = ("prometheus_values", buckets);
    list_response(context, parameters, endpoint, collect, |out, text| write_text(out, text)).await
}

pub(super) async fn metadata(
    context: Context,
    parameters: Result<Parameters, ApiError>,
) -> Result<JsonBody, PrometheusError> {
    let parameters = parameters?;
    let limit = parameters.count("limit", usize::MAX, usize::MAX)?;
    let per_metric = parameters.count("limit_per_metric", usize::MAX, usize::MAX)?;
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
