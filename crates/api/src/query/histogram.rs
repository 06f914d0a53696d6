//! `/v1/histogram`: the merged distribution of a selection.

use std::ops::ControlFlow;

use hist::{LimitInclusion, Mixture};
use query::ThresholdRange;
use query::overview::row_threshold::{RowThreshold, ThresholdOrigin};
use store::{ReadView, TimeGrid};

use super::expected_share::{slos_of_selection, typed_threshold};
use super::{HISTOGRAM, selection};
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::bounded_buffer::JsonBody;
use crate::context::Context;
use crate::json::Json::{self, Integer, List, Null, Object, Text};
use crate::json::{integer, number};
use crate::parameters::{Parameters, SELECTOR_SYNTAX};
use crate::unitless::{left_out_json, split_off_unitless};
use report::document::{count, distribution, gap, statistic};

/// Default quantiles.
const DEFAULT_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

pub(super) async fn histogram(
    context: Context,
    parameters: Parameters,
) -> Result<JsonBody, ApiError> {
    let parameters = parameters.reject_unknown(HISTOGRAM)?;
    let (queries, now) = (context.queries.clone(), context.intake.now());
    let (timeout, shares) = (parameters.timeout()?, quantiles(&parameters)?);
    let requested = parameters.clone();
    let estimate = move |view: &ReadView, _: &ActiveQuery| estimate_rows(&requested, view, now, 1);
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let series_max = queries.settings.limits.series;
        let selection = MetricSelection::resolve(&parameters, view, now, (series_max, active))?;
        let (start, end) = (selection.range.start, selection.range.end);
        let grid = TimeGrid { start, step: end - start, columns: 1 };
        let mut columns = selection::distribution_columns(view, &selection.series, grid)?;
        let mut column = columns.next().expect("BUG: a grid of one column is empty")?;
        // Without an explicit `to`, gaps after the last point are included.
        column.gaps.extend(view.gaps_of(&selection.series, &selection.requested));
        column.gaps.sort_unstable();
        column.gaps.dedup();
        active.check_cancelled()?;
        let quantiles = shares.iter().map(|&share| {
            let value = statistic(column.value.quantile(share));
            Object(vec![("q", number(share)), ("value", value)])
        });
        let slos = queries.thresholds();
        let slos = slos_of_selection(&slos, &selection.series, selection.unit.as_ref());
        let above = selection.thresholds.iter().map(|limit| {
            let RowThreshold { origin, expected_share, .. } = typed_threshold(limit.1, &slos);
            let mut fields = count_above(limit, &column.value);
            fields.push(("expected_share", number(expected_share)));
            if let ThresholdOrigin::Slo(name) = origin {
                fields.push(("slo", Text(name)));
            }
            Object(fields)
        });
        let mut fields = selection.header_fields();
        fields.extend([("start_ns", Integer(start.into())), ("end_ns", Integer(end.into()))]);
        fields.extend(distribution(&column.value));
        fields.extend([
            ("mean", statistic(column.value.mean())),
            ("stddev", statistic(column.value.stddev())),
            ("quantiles", List(quantiles.collect())),
            ("above", List(above.collect())),
            ("gaps", List(column.gaps.iter().map(gap).collect())),
        ]);
        fields.extend(selection.warnings(&column.value));
        active.json_response(&Object(fields))
    };
    context.run_query("histogram", timeout, estimate, work).await
}

/// Estimated number of points that a distribution or a heatmap of this many columns reads.
pub(super) fn estimate_rows(
    parameters: &Parameters,
    view: &ReadView,
    now: i64,
    columns: u64,
) -> u64 {
    let timestamp = |name| parameters.time(name, now).ok().flatten();
    let ends = (timestamp("from"), timestamp("to"));
    let rows = |selector| selection::estimate_rows(view, &selector, ends, columns);
    // The handler reports errors.
    parameters.selectors("selector").map_or(0, rows)
}

fn quantiles(parameters: &Parameters) -> Result<Vec<f64>, ApiError> {
    let shares = parameters.parse_all("q", |text| {
        let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| ApiError::invalid_parameter("q", text, "a quantile from 0 to 1"))
    })?;
    Ok(if shares.is_empty() { DEFAULT_QUANTILES.to_vec() } else { shares })
}

/// Number of values above each limit.
pub(super) fn counts_above(limits: &[(String, f64)], mixture: &Mixture) -> Json {
    List(limits.iter().map(|limit| Object(count_above(limit, mixture))).collect())
}

fn count_above((written, limit): &(String, f64), mixture: &Mixture) -> Vec<(&'static str, Json)> {
    vec![
        ("text", Text(written.clone())),
        ("threshold", number(*limit)),
        ("count", count(mixture.count_above(*limit, LimitInclusion::Exclusive))),
    ]
}

/// Selected histogram series of one unit, and the time range.
pub(super) struct MetricSelection {
    pub(super) selector: String,
    pub(super) series: Vec<store::SeriesEntryRef>,
    /// Series without a unit that are not read.
    left_out: Vec<store::SeriesEntryRef>,
    pub(super) unit: Option<decode::Unit>,
    pub(super) range: std::ops::Range<i64>,
    /// The requested range, unbounded by default.
    pub(super) requested: std::ops::Range<i64>,
    pub(super) thresholds: Vec<(String, f64)>,
    /// Warnings about its buckets.
    bucket_warnings: Vec<String>,
}

impl MetricSelection {
    pub(super) fn resolve(
        parameters: &Parameters,
        view: &ReadView,
        now: i64,
        (series_max, active): (u64, &ActiveQuery),
    ) -> Result<MetricSelection, ApiError> {
        let written = parameters.required("selector", SELECTOR_SYNTAX)?.to_owned();
        let selector = parameters.selectors("selector")?;
        let series_max = parameters.integer("max_series", series_max, u64::MAX)?.min(series_max);
        let ends = (("from", parameters.time("from", now)?), ("to", parameters.time("to", now)?));
        let total_range = ends.0.1.unwrap_or(i64::MIN)..ends.1.1.unwrap_or(i64::MAX);
        let picks_nothing = view.each_series(&selector, &mut |_| ControlFlow::Break(())) == 0
            && query::bucket_count(view, &selector) == 0;
        // A selector does not match a series whose points are all missing; its gaps have the range.
        let missing = selection::range_of_gaps(view, &selector, &total_range);
        let mut found = match picks_nothing && missing.is_some() {
            true => Vec::new(),
            false => selection::find_distributions(view, &selector, series_max, active)?,
        };
        let left_out = split_off_unitless(&mut found);
        let bucket_warnings = selection::bucket_warnings(view, &selector, &found)?;
        let unit = selection::common_unit(&selector, &found)?;
        let above = match found.is_empty() {
            true => selection::thresholds_without_values(parameters, "above")?,
            false => selection::parse_thresholds(parameters, "above", unit.as_ref())?,
        };
        let range = match (selection::resolve_range(view, &found, ends), missing) {
            (Err(ApiError::NotFound(_)), Some(missing)) => missing,
            (range, _) => range?,
        };
        Ok(MetricSelection {
            selector: written,
            series: found,
            left_out,
            unit,
            range,
            requested: total_range,
            thresholds: above,
            bucket_warnings,
        })
    }

    /// Last field of the document: warnings about the buckets and the limits, if there are any.
    pub(super) fn warnings(&self, values: &Mixture) -> Option<(&'static str, Json)> {
        let unit = self.unit.as_ref().map(ToString::to_string);
        let bounds = query::differing_bounds_warning(&values.differing_bounds(), unit.as_deref());
        let values = ThresholdRange::values_of(values);
        let limits = selection::limit_warnings(&self.thresholds, self.unit.as_ref(), values);
        let warnings = self.bucket_warnings.iter().cloned().chain(bounds).chain(limits);
        let texts = warnings.map(Text).collect::<Vec<Json>>();
        (!texts.is_empty()).then_some(("warnings", List(texts)))
    }

    /// First fields of the document.
    pub(super) fn header_fields(&self) -> Vec<(&'static str, Json)> {
        let mut fields = vec![
            ("schema", integer(2)),
            ("selector", Text(self.selector.clone())),
            ("series", integer(query::distribution_count(&self.series) as u64)),
            ("unit", self.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ];
        if !self.left_out.is_empty() {
            fields.push(("left_out", left_out_json(&self.left_out)));
        }
        fields
    }
}
