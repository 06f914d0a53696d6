//! Which share of the values is expected above a threshold: above one of an SLO what its objective
//! allows, above any other what an overview expects. Overview and distributions have it from here,
//! so that they expect the same of one threshold.

use decode::Unit;
use query::overview::row_threshold::RowThreshold;
use role::MetricThreshold;
use store::SeriesEntryRef;

/// SLOs of all series of a metric that have some labels, with their thresholds in a unit.
pub(super) fn slos_of<'a>(
    slos: &'a [MetricThreshold],
    (metric, unit): (&str, Option<&Unit>),
    has_label: impl Fn(&str, &str) -> bool,
) -> Vec<(f64, &'a MetricThreshold)> {
    let includes = |slo: &&MetricThreshold| {
        slo.metric == metric && slo.labels.iter().all(|(name, value)| has_label(name, value))
    };
    let found = slos.iter().filter(includes);
    found.filter_map(|slo| Some((slo.limit.value_in(unit)?, slo))).collect()
}

/// A threshold that was typed: that of the SLO with most labels among those that have the same.
pub(super) fn typed_threshold(limit: f64, slos: &[(f64, &MetricThreshold)]) -> RowThreshold {
    let same = slos.iter().filter(|(value, _)| *value == limit);
    match same.max_by_key(|(_, slo)| slo.labels.len()) {
        Some((_, slo)) => RowThreshold::of_slo(limit, &slo.slo, slo.bad_share),
        None => RowThreshold::of_user(limit),
    }
}

/// SLOs that include all of the selected series.
pub(super) fn slos_of_selection<'a>(
    slos: &'a [MetricThreshold],
    series: &[SeriesEntryRef],
    unit: Option<&Unit>,
) -> Vec<(f64, &'a MetricThreshold)> {
    let Some(metric) = series.first().map(|first| first.series.name()) else { return Vec::new() };
    if series.iter().any(|one| one.series.name() != metric) {
        return Vec::new();
    }
    let has_label =
        |name: &str, value: &str| series.iter().all(|one| one.series.label(name) == Some(value));
    slos_of(slos, (metric, unit), has_label)
}
