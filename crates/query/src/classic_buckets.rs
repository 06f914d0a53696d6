//! Classic histograms whose buckets were sent as counters, as by remote write 1: `x_bucket` with
//! the label `le`. Read here, they are distributions on explicit bounds.
//!
//! A counter counts the values at or below its bound, so the number of values between two bounds is
//! the difference of two increases, and the counter of `+Inf` counts all. Minimum and maximum are
//! unknown; the sum is the increase of `x_sum` between the same scrapes. Series of buckets have the
//! name of the histogram, the unit in that name, and the label `le`. Histograms whose bounds differ
//! stay apart in the mixture of a column.
//!
//! A series that is both a histogram and buckets is read as a histogram from its first to its last
//! sample, and as buckets before and after.

mod bucket_columns;
mod bucket_counters;
mod bucket_increases;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;

use hist::Mixture;
use model::selector::UNIT as UNIT_TAG;
use model::selector::{KIND, NAME as NAME_TAG};
use model::{Selector, Series, SeriesKind};
use store::{FetchedColumns, ReadView, SeriesEntryRef, TimeColumn, TimeGrid};

use self::bucket_columns::{BucketColumns, BucketRead};
use self::bucket_counters::BucketCounters;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::prometheus_name::unit_of_name;
use crate::prometheus_source::{BOUND, exact_name, has_bound};

/// Suffix of the counters of buckets.
const BUCKET: &str = "_bucket";

/// Columns of distributions.
pub(crate) type DistributionColumnIter<'a> =
    Box<dyn Iterator<Item = Result<TimeColumn<Mixture>>> + 'a>;

/// Columns of the merged distributions of series: of histograms, and of buckets as
/// [`select_buckets`] returns them.
pub fn distribution_columns<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    grid: TimeGrid,
) -> Result<DistributionColumnIter<'a>> {
    columns_with_context(view, series, grid, &|| false)
}

/// As [`distribution_columns`]; the read stops when the query of the context is cancelled.
pub(crate) fn columns_with_context<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    grid: TimeGrid,
    context: &'a dyn QueryContext,
) -> Result<DistributionColumnIter<'a>> {
    read_columns(view, series, BucketRead { grid, cuts_max: u32::MAX, context })
}

/// As [`distribution_columns`], with at most so many cuts of columns whose buckets are not all of
/// the same scrapes. Values of the columns beyond them are left out, which a gap tells.
pub(crate) fn columns_with_cuts<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    grid: TimeGrid,
    cuts_max: u32,
) -> Result<DistributionColumnIter<'a>> {
    read_columns(view, series, BucketRead { grid, cuts_max, context: &|| false })
}

fn read_columns<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    read: BucketRead<'a>,
) -> Result<DistributionColumnIter<'a>> {
    if !series.iter().any(is_counter) {
        let columns = view.histograms(series, read.grid)?;
        return Ok(Box::new(columns.map(|column| column.map_err(Error::from))));
    }
    let columns = BucketColumns::new(view, series, read)?;
    Ok(Box::new(FetchedColumns::new(columns)))
}

/// Histogram series that a selector matches, and the buckets of classic histograms that it means,
/// except those in another unit than the histograms.
pub fn select_distributions(view: &ReadView, selector: &Selector) -> Vec<SeriesEntryRef> {
    let mut found = select_histograms(view, selector);
    let units: BTreeSet<String> =
        found.iter().map(|found| found.series.unit().to_owned()).collect();
    let mut buckets = select_buckets(view, selector);
    buckets.retain(|bucket| units.is_empty() || units.contains(bucket.series.unit()));
    found.extend(buckets);
    found
}

/// Histogram series that a selector matches.
pub(crate) fn select_histograms(view: &ReadView, selector: &Selector) -> Vec<SeriesEntryRef> {
    let mut found = view.select(selector);
    found.retain(|found| matches!(found.series.kind(), SeriesKind::Histogram(_)));
    found
}

/// Selector of the counters of the buckets of the classic histograms that a selector means; `None`
/// if it means none.
pub fn bucket_counters(selector: &Selector) -> Option<Selector> {
    BucketSelector::of(selector).map(|selected| selected.counters)
}

/// Maximum number of buckets that [`select_distributions`] returns, without collecting them.
pub fn bucket_count(view: &ReadView, selector: &Selector) -> usize {
    let selected = BucketSelector::of(selector);
    selected.map_or(0, |it| view.each_series(&it.counters, &mut |_| ControlFlow::Break(())))
}

/// Warnings about the buckets among the series that a selector means, as [`select_distributions`]
/// returns them.
pub fn bucket_warnings(
    view: &ReadView,
    selector: &Selector,
    series: &[SeriesEntryRef],
) -> Result<Vec<String>> {
    let Some(first) = series.first() else { return Ok(Vec::new()) };
    let name = first.series.name();
    let buckets = series.iter().filter(|found| is_counter(found)).count();
    let histograms = series.len() - buckets;
    if buckets == 0 {
        let left_out = bucket_count(view, selector);
        return Ok(match left_out {
            0 => Vec::new(),
            _ => vec![format!(
                "{left_out} counters {name}{BUCKET} are left out: their unit is not that of the \
                 histograms {name}; select {name}{BUCKET} to read them"
            )],
        });
    }
    let classic = BucketCounters::group(view, series)?;
    let mut warnings = Vec::new();
    if histograms > 0 {
        let both = classic.iter().filter(|of| of.histogram.is_some()).count();
        warnings.push(format!(
            "{histograms} series {name} are histograms and {} are counters {name}{BUCKET}; {both} \
             are both and read as histograms from their first to their last sample",
            classic.len()
        ));
    }
    let without_total = classic.iter().filter(|of| !of.has_total()).count();
    if without_total > 0 {
        warnings.push(format!(
            "{without_total} of {} series {name}{BUCKET} have no bucket +Inf and no {name}_count: \
             values above their highest bound are not counted",
            classic.len()
        ));
    }
    Ok(warnings)
}

/// Selector of the counters of buckets.
struct BucketSelector<'a> {
    counters: Selector,
    /// Conditions on unit and kind, which are those of the distribution.
    of_distribution: Vec<&'a Selector>,
}

impl<'a> BucketSelector<'a> {
    /// By the name of the histogram, or by that of its buckets, without a condition on their
    /// bounds; `None` otherwise.
    fn of(selector: &'a Selector) -> Option<BucketSelector<'a>> {
        let mut all = Vec::new();
        push_conditions(selector, &mut all);
        let name = all.iter().find_map(|&part| exact_name(part));
        let name = name.filter(|_| !has_bound(selector))?;
        let base = name.strip_suffix(BUCKET).unwrap_or(name);
        let is_of_series = |part: &&Selector| {
            matches!(part, Selector::Tag { name, .. }
                if [NAME_TAG, UNIT_TAG, KIND].contains(&name.as_str()))
        };
        let (mut of_distribution, of_labels): (Vec<&Selector>, Vec<&Selector>) =
            all.into_iter().partition(is_of_series);
        let name_equals = |name: &str| Selector::label_equals(NAME_TAG, name);
        of_distribution.retain(|part| **part != name_equals(name));
        let name = [name_equals(&format!("{base}{BUCKET}"))].into_iter();
        let counters = Selector::and(name.chain(of_labels.into_iter().cloned()).collect());
        Some(BucketSelector { counters, of_distribution })
    }
}

/// Conditions that all must be true; those of an alert are a selector and the labels of its series.
fn push_conditions<'a>(selector: &'a Selector, into: &mut Vec<&'a Selector>) {
    match selector {
        Selector::And(parts) => parts.iter().for_each(|part| push_conditions(part, into)),
        other => into.push(other),
    }
}

/// Series of the buckets of the classic histograms that a selector means: by the name of the
/// histogram, or by that of its buckets without a condition on their bounds.
pub(crate) fn select_buckets(view: &ReadView, selector: &Selector) -> Vec<SeriesEntryRef> {
    let Some(selected) = BucketSelector::of(selector) else { return Vec::new() };
    let mut found = Vec::new();
    view.each_entry(&selected.counters, &mut |counter| {
        let bucket = as_distribution(counter).filter(|bucket| {
            let mut conditions = selected.of_distribution.iter();
            conditions.all(|part| part.matches(&bucket.series))
        });
        found.extend(bucket);
        ControlFlow::Continue(())
    });
    found
}

/// Calls `each` with each classic histogram whose buckets are counters and that a selector matches
/// by the name of the histogram, once and without `le`, until it breaks.
pub fn each_classic_histogram(
    view: &ReadView,
    selector: &Selector,
    each: &mut dyn FnMut(&Series) -> ControlFlow<()>,
) {
    let Ok(has_bound) = Selector::label_matches(BOUND, ".+") else { return };
    let named = exact_name(selector)
        .map(|name| Selector::label_equals(NAME_TAG, format!("{name}{BUCKET}")));
    let counters = Selector::and([has_bound].into_iter().chain(named).collect());
    // Hashes instead of labels: a store may have many.
    let mut known = BTreeSet::new();
    view.each_entry(&counters, &mut |counter| {
        let Some(bucket) = as_distribution(counter) else { return ControlFlow::Continue(()) };
        let of = &bucket.series;
        let labels = of.labels().iter().filter(|(name, _)| name != BOUND).cloned();
        let histogram = Series::new(of.name(), of.kind()).with_unit(of.unit()).with_labels(labels);
        let Ok(histogram) = histogram.validate() else { return ControlFlow::Continue(()) };
        let mut hasher = DefaultHasher::new();
        histogram.canonical_key().hash(&mut hasher);
        match selector.matches(&histogram) && known.insert(hasher.finish()) {
            true => each(&histogram),
            false => ControlFlow::Continue(()),
        }
    });
}

/// Calls `each` with the series of the buckets of all classic histograms.
pub(crate) fn each_bucket(view: &ReadView, each: &mut dyn FnMut(SeriesEntryRef)) {
    let Ok(has_bound) = Selector::label_matches(BOUND, ".+") else { return };
    view.each_entry(&has_bound, &mut |counter| {
        as_distribution(counter).into_iter().for_each(&mut *each);
        ControlFlow::Continue(())
    });
}

/// Number of series with bounds, at least that of the buckets.
pub(crate) fn bound_count(view: &ReadView) -> usize {
    let Ok(has_bound) = Selector::label_matches(BOUND, ".+") else { return 0 };
    view.each_series(&has_bound, &mut |_| ControlFlow::Break(()))
}

/// Number of series: buckets that differ only in their bounds are one.
pub fn distribution_count(series: &[SeriesEntryRef]) -> usize {
    match series.iter().any(is_counter) {
        true => series.iter().map(labels_of).collect::<BTreeSet<_>>().len(),
        false => series.len(),
    }
}

pub(crate) fn is_counter(found: &SeriesEntryRef) -> bool {
    matches!(found.as_ref().kind, SeriesKind::Counter(_))
}

/// A bucket with the name and unit of its histogram; `None` if a series is none.
fn as_distribution(mut found: SeriesEntryRef) -> Option<SeriesEntryRef> {
    let of = &found.series;
    let SeriesKind::Counter(temporality) = of.kind() else { return None };
    let name = of.name().strip_suffix(BUCKET).filter(|name| !name.is_empty())?;
    bound_of(of)?;
    let series = Series::new(name, SeriesKind::Histogram(temporality))
        .with_unit(unit_of_name(name))
        .with_labels(of.labels().iter().cloned());
    found.series = series.validate().ok()?.into();
    Some(found)
}

pub(crate) fn bound_of(series: &Series) -> Option<f64> {
    // No value is at or below -Inf; nothing compares with NaN.
    series.label(BOUND)?.parse().ok().filter(|bound: &f64| *bound > f64::NEG_INFINITY)
}

/// Name, labels and unit of the distribution, as of a series.
pub(crate) fn distribution_name(found: &SeriesEntryRef) -> String {
    let of = &found.series;
    let labels = of.labels().iter().filter(|(name, _)| name != BOUND).cloned();
    let series = Series::new(of.name(), of.kind()).with_unit(of.unit()).with_labels(labels);
    series.validate().map_or_else(|_| of.to_string(), |series| series.to_string())
}

/// Labels of a distribution: names and values.
pub(crate) type DistributionLabels<'a> = Vec<(&'a str, &'a str)>;

/// Labels of the distribution.
pub(crate) fn labels_of(found: &SeriesEntryRef) -> DistributionLabels<'_> {
    let labels = found.series.labels().iter().filter(|(name, _)| name != BOUND);
    labels.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
