//! Selection of a query: series, unit, time range.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use decode::{Quantity, Unit};
use hist::Mixture;
use model::Selector;
use query::{StoreSource, ThresholdRange};
use store::{ReadView, SeriesEntryRef, TimeColumn, TimeGrid};

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::parameters::Parameters;

/// Number of metric names listed if a selector matches nothing.
const NAMES_LISTED: usize = 10;

/// Estimated number of points to read of the series that a selector matches, in a range and number
/// of columns, and of values to produce. Reads no data.
pub(crate) fn estimate_rows(
    view: &ReadView,
    selector: &Selector,
    (from, to): (Option<i64>, Option<i64>),
    columns: u64,
) -> u64 {
    let series = view.each_series(selector, &mut |_| ControlFlow::Break(()));
    let series = series.max(query::bucket_count(view, selector)) as u64;
    let Some(all) = view.part_range() else { return 0 };
    let range = from.unwrap_or(all.start).max(all.start)..to.unwrap_or(all.end).min(all.end);
    let length = range.end.saturating_sub(range.start).max(0);
    let step = length / i64::try_from(columns.max(1)).unwrap_or(i64::MAX);
    view.estimate_rows(series, &range, Some(step)).saturating_add(columns)
}

/// Memory of a counter of a bucket, in bytes: its name and labels as selected, and grouped by
/// histogram.
pub(super) const BUCKET_BYTES: usize = 2048;

/// The histogram series that a selector matches, and the buckets of classic histograms that arrived
/// as counters, which [`query::distribution_columns`] reads: at least one, at most the limit. They
/// are counted, and memory is reserved, before they are collected.
pub(crate) fn find_distributions(
    view: &ReadView,
    selector: &Selector,
    series_max: u64,
    active: &ActiveQuery,
) -> Result<Vec<SeriesEntryRef>, ApiError> {
    let mut kind = "";
    let selected = view.each_series(selector, &mut |series| {
        kind = model::selector::kind_name(series.kind());
        ControlFlow::Break(())
    });
    let buckets = query::bucket_count(view, selector);
    for (found, what) in [(selected, "series"), (buckets, "buckets")] {
        if found as u64 > series_max {
            let selector = query::selector_text(selector);
            return Err(ApiError::Unprocessable(format!(
                "series limit ({series_max}, max_series) exceeded: {selector} matches {found} \
                 {what}; select fewer, or raise max_series"
            )));
        }
    }
    active.reserve(buckets.saturating_mul(BUCKET_BYTES))?;
    let found = query::select_distributions(view, selector);
    match (found.is_empty(), selected) {
        (false, _) => Ok(found),
        (true, 0) => Err(ApiError::NotFound(no_match_message(view, selector))),
        (true, selected) => {
            let hint = hint(view, selector).map_or_else(String::new, |hint| format!("; {hint}"));
            let selector = query::selector_text(selector);
            Err(ApiError::NotFound(format!(
                "{selector} matches no histograms, but {selected} series of other kinds, such as \
                 {kind}{hint}"
            )))
        }
    }
}

/// Warnings about the buckets among what [`find_distributions`] found.
pub(crate) fn bucket_warnings(
    view: &ReadView,
    selector: &Selector,
    found: &[SeriesEntryRef],
) -> Result<Vec<String>, ApiError> {
    let warnings = query::bucket_warnings(view, selector, found);
    warnings.map_err(|error| ApiError::from_query_error(error, ""))
}

/// Columns of what [`find_distributions`] found.
pub(crate) fn distribution_columns<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    grid: TimeGrid,
) -> Result<impl Iterator<Item = Result<TimeColumn<Mixture>, ApiError>> + use<'a>, ApiError> {
    let error = |error| ApiError::from_query_error(error, "");
    let columns = query::distribution_columns(view, series, grid).map_err(error)?;
    Ok(columns.map(move |column| column.map_err(error)))
}

/// The range of the gaps within a range that may hide whole series that a selector matches.
pub(crate) fn range_of_gaps(
    view: &ReadView,
    selector: &Selector,
    range: &Range<i64>,
) -> Option<Range<i64>> {
    let mut gaps = view.gaps(range);
    gaps.retain(|gap| gap.may_hide_series_of(selector));
    let start = gaps.iter().map(|gap| gap.start).min()?.max(range.start);
    let end = gaps.iter().map(|gap| gap.end).max()?.min(range.end);
    Some(start..end.max(start.saturating_add(1)))
}

/// What may have been meant. A hint that cannot be read is left out.
fn hint(view: &ReadView, selector: &Selector) -> Option<String> {
    query::selector_hint(&StoreSource::new(view), selector).ok().flatten()
}

/// Alternatives for the error text: metrics received from outside before own metrics.
fn no_match_message(view: &ReadView, selector: &Selector) -> String {
    let is_self_metric = |name: &str| name.starts_with("topdeck_") || name.starts_with("host_");
    let mut names: BTreeSet<(bool, String)> = BTreeSet::new();
    let n = view.each_series(&Selector::All, &mut |series| {
        let name = series.name();
        names.insert((is_self_metric(name), name.to_owned()));
        if names.len() > 2 * NAMES_LISTED {
            names.pop_last();
        }
        ControlFlow::Continue(())
    });
    let missing = match range_of_gaps(view, selector, &(i64::MIN..i64::MAX)) {
        None => "",
        Some(_) => "; its data may be in a gap",
    };
    let typed = query::selector_text(selector);
    if n == 0 {
        return format!("{typed} matches no series: the store is empty{missing}");
    }
    if let Some(hint) = hint(view, selector) {
        return format!("{typed} matches no series; {hint}{missing}");
    }
    let more = if names.len() > NAMES_LISTED { "; /v1/metric_names lists all" } else { "" };
    let names: Vec<String> = names.into_iter().take(NAMES_LISTED).map(|(_, name)| name).collect();
    format!("{typed} matches no series; existing metrics: {}{more}{missing}", names.join(", "))
}

/// The common unit of the series.
pub(crate) fn common_unit(
    selector: &Selector,
    found: &[SeriesEntryRef],
) -> Result<Option<Unit>, ApiError> {
    let first = found.first().map_or("", |found| found.series.unit());
    let named = |unit: &str| if unit.is_empty() { "none".to_owned() } else { unit.to_owned() };
    match found.iter().find(|found| found.series.unit() != first) {
        None if first.is_empty() => Ok(None),
        None => {
            let other = || Unit::Other(first.to_owned());
            Ok(Some(Unit::parse(first).filter(|unit| unit.name() == first).unwrap_or_else(other)))
        }
        Some(other) => Err(ApiError::Unprocessable(format!(
            "{}: the series have different units ({}, {}); select one, as in '{}', or delete or \
             rename the others",
            query::selector_text(selector),
            named(first),
            named(other.series.unit()),
            query::unit_selector_text(
                selector,
                if first.is_empty() { other.series.unit() } else { first },
            ),
        ))),
    }
}

/// Thresholds, in the unit of the values.
pub(crate) fn parse_thresholds(
    parameters: &Parameters,
    name: &str,
    unit: Option<&Unit>,
) -> Result<Vec<(String, f64)>, ApiError> {
    thresholds_in(parameters, name, unit, |quantity| quantity.value_in(unit))
}

/// Thresholds if there are no values: each in its own unit.
pub(crate) fn thresholds_without_values(
    parameters: &Parameters,
    name: &str,
) -> Result<Vec<(String, f64)>, ApiError> {
    thresholds_in(parameters, name, None, |quantity| quantity.value_in(quantity.unit()))
}

/// Warnings about limits that are below or above all values of a distribution.
pub(crate) fn limit_warnings(
    limits: &[(String, f64)],
    unit: Option<&Unit>,
    values: Option<(f64, f64)>,
) -> Vec<String> {
    let Some(values) = values else { return Vec::new() };
    let unit = unit.map(ToString::to_string);
    let is_bare = |text: &str| Quantity::parse(text).is_some_and(|found| found.unit().is_none());
    let warning = |(text, limit): &(String, f64)| {
        ThresholdRange::threshold_warning(
            (text.as_str(), *limit),
            values,
            unit.as_deref(),
            is_bare(text),
        )
    };
    limits.iter().filter_map(warning).collect()
}

fn thresholds_in(
    parameters: &Parameters,
    name: &str,
    unit: Option<&Unit>,
    in_unit: impl Fn(&Quantity) -> Option<f64>,
) -> Result<Vec<(String, f64)>, ApiError> {
    parameters.parse_all(name, |text| {
        let quantity = Quantity::parse(text)
            .ok_or_else(|| ApiError::invalid_parameter(name, text, "a quantity such as 100ms"))?;
        let value = in_unit(&quantity).ok_or_else(|| {
            let expected = match unit {
                Some(unit) => format!("a quantity in the unit of the values, {unit}"),
                None => "a plain number: the values have no unit".to_owned(),
            };
            ApiError::invalid_parameter(name, text, &expected)
        })?;
        Ok((text.to_owned(), value))
    })
}

/// Bound of a time range: parameter name and value.
pub(crate) type RangeBound<'a> = (&'a str, Option<i64>);

/// The range between two parameters; default: the range of the data.
pub(crate) fn resolve_range(
    view: &ReadView,
    found: &[SeriesEntryRef],
    (from, to): (RangeBound<'_>, RangeBound<'_>),
) -> Result<Range<i64>, ApiError> {
    let range = match (from.1, to.1) {
        (Some(start), Some(end)) => start..end,
        (start, end) => {
            let extent = view.complete_range(found)?;
            let Some(extent) = extent else {
                let reason = "the series have no data yet";
                return Err(ApiError::NotFound(reason.to_owned()));
            };
            start.unwrap_or(extent.start)..end.unwrap_or(extent.end)
        }
    };
    let time_text = |ns: i64| jiff::Timestamp::from_nanosecond(ns.into()).map(|at| at.to_string());
    match range.start < range.end && range.end.checked_sub(range.start).is_some() {
        true => Ok(range),
        false => Err(ApiError::BadRequest(format!(
            "parameters {} and {}: empty range from {} to {}; the end is exclusive; default: the \
             range of the data",
            from.0,
            to.0,
            time_text(range.start).unwrap_or_default(),
            time_text(range.end).unwrap_or_default()
        ))),
    }
}
