//! Classic histograms whose buckets were sent as counters, as by remote write 1: `x_bucket` with
//! the label `le`. Read here, they are distributions on explicit bounds.
//!
//! A counter counts the values at or below its bound, so the number of values between two bounds is
//! the difference of two increases, and the counter of `+Inf` counts all. Minimum, maximum and sum
//! are unknown. Series of buckets have the name of the histogram, the unit in that name, and the
//! label `le`. Histograms whose bounds differ are merged on the bounds that they share.

use std::collections::{BTreeMap, BTreeSet};

use hist::{Histogram, HistogramParts, Mixture, Scheme, TrackedValue};
use model::selector::UNIT as UNIT_TAG;
use model::selector::{KIND, NAME as NAME_TAG};
use model::{Gap, HISTOGRAM_COUNT_MAX, Selector, Series, SeriesKind};
use store::{ColumnIter, NumberAggregate, ReadView, SeriesEntryRef, TimeColumn, TimeGrid};

use crate::error::{Error, Result, SourceSpan};
use crate::prometheus_name::unit_of_name;
use crate::prometheus_source::{BOUND, conditions, exact_name, has_bound};

/// Suffix of the counters of buckets.
const BUCKET: &str = "_bucket";

/// Reason of a gap.
const TOO_MANY_VALUES: &str = "the counters of its buckets rose by more than 2^56";

/// Columns of distributions.
pub(crate) type DistributionColumnIter<'a> =
    Box<dyn Iterator<Item = Result<TimeColumn<Mixture>>> + 'a>;

/// Columns of the merged distributions of series: of histograms, or of buckets as
/// [`select_buckets`] returns them.
pub fn distribution_columns<'a>(
    view: &'a ReadView,
    series: &[SeriesEntryRef],
    grid: TimeGrid,
) -> Result<DistributionColumnIter<'a>> {
    if series.iter().all(|found| matches!(found.as_ref().kind, SeriesKind::Histogram(_))) {
        let columns = view.histograms(series, grid)?;
        return Ok(Box::new(columns.map(|column| column.map_err(Error::from))));
    }
    let layouts = layouts(series).into_iter().map(|(scheme, buckets)| {
        let counts = buckets.iter().map(|series| Ok(view.numbers(series, grid)?));
        Ok(LayoutColumns { scheme, counts: counts.collect::<Result<_>>()? })
    });
    let layouts = layouts.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(BucketColumns { layouts }))
}

/// Series of the buckets of the classic histograms that a selector means: by the name of the
/// histogram, or by that of its buckets without a condition on their bounds.
pub fn select_buckets(view: &ReadView, selector: &Selector) -> Vec<SeriesEntryRef> {
    let Some(name) = exact_name(selector).filter(|_| !has_bound(selector)) else {
        return Vec::new();
    };
    let base = name.strip_suffix(BUCKET).unwrap_or(name);
    // Unit and kind are those of the distribution.
    let is_of_series = |part: &&Selector| {
        matches!(part, Selector::Tag { name, .. }
            if [NAME_TAG, UNIT_TAG, KIND].contains(&name.as_str()))
    };
    let (of_series, of_labels): (Vec<_>, Vec<_>) =
        conditions(selector).iter().partition(is_of_series);
    let name_equals = |name: &str| Selector::label_equals(NAME_TAG, name);
    let counters = [name_equals(&format!("{base}{BUCKET}"))].into_iter();
    let counters = Selector::and(counters.chain(of_labels.into_iter().cloned()).collect());
    let is_name = |part: &&Selector| **part == name_equals(name);
    let found = view.select(&counters).into_iter().filter_map(as_distribution);
    found
        .filter(|found| {
            let mut others = of_series.iter().filter(|part| !is_name(part));
            others.all(|part| part.matches(&found.series))
        })
        .collect()
}

/// Series of the buckets of all classic histograms.
pub(crate) fn all_buckets(view: &ReadView) -> Vec<SeriesEntryRef> {
    let Ok(has_bound) = Selector::label_matches(BOUND, ".+") else { return Vec::new() };
    view.select(&has_bound).into_iter().filter_map(as_distribution).collect()
}

/// Number of series: buckets that differ only in their bounds are one.
pub(crate) fn distribution_count(series: &[SeriesEntryRef]) -> usize {
    match series.iter().any(|found| matches!(found.as_ref().kind, SeriesKind::Counter(_))) {
        true => series.iter().map(labels_of).collect::<BTreeSet<_>>().len(),
        false => series.len(),
    }
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

fn bound_of(series: &Series) -> Option<f64> {
    // No value is at or below -Inf; nothing compares with NaN.
    series.label(BOUND)?.parse().ok().filter(|bound: &f64| *bound > f64::NEG_INFINITY)
}

pub(crate) fn labels_of(found: &SeriesEntryRef) -> Vec<(&str, &str)> {
    let labels = found.series.labels().iter().filter(|(name, _)| name != BOUND);
    labels.map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Series by the bounds that their histograms have, and by bound.
fn layouts(series: &[SeriesEntryRef]) -> Vec<(Scheme, Vec<Vec<SeriesEntryRef>>)> {
    let mut histograms: BTreeMap<_, Vec<(f64, &SeriesEntryRef)>> = BTreeMap::new();
    for found in series {
        if let Some(bound) = bound_of(&found.series) {
            histograms.entry(labels_of(found)).or_default().push((bound, found));
        }
    }
    let mut layouts: BTreeMap<Vec<u64>, (Scheme, Vec<Vec<SeriesEntryRef>>)> = BTreeMap::new();
    for mut buckets in histograms.into_values() {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut bounds: Vec<f64> = buckets.iter().map(|bucket| bucket.0).collect();
        bounds.dedup();
        let finite: Vec<f64> = bounds.iter().copied().filter(|bound| bound.is_finite()).collect();
        // Without a finite bound nothing is known of the values.
        let Ok(scheme) = Scheme::explicit(&finite) else { continue };
        let key = bounds.iter().map(|bound| bound.to_bits()).collect();
        let (_, by_bound) =
            layouts.entry(key).or_insert_with(|| (scheme, vec![Vec::new(); bounds.len()]));
        // A bound that is written in two ways, such as `1` and later `1.0`, has two series.
        for (same, of_bound) in by_bound.iter_mut().zip(buckets.chunk_by(|a, b| a.0 == b.0)) {
            same.extend(of_bound.iter().map(|(_, found)| (*found).clone()));
        }
    }
    layouts.into_values().collect()
}

/// Increases of the buckets of histograms with the same bounds.
struct LayoutColumns<'a> {
    scheme: Scheme,
    /// By ascending bound.
    counts: Vec<ColumnIter<'a, Option<NumberAggregate>>>,
}

struct BucketColumns<'a> {
    layouts: Vec<LayoutColumns<'a>>,
}

impl Iterator for BucketColumns<'_> {
    type Item = Result<TimeColumn<Mixture>>;

    fn next(&mut self) -> Option<Result<TimeColumn<Mixture>>> {
        let mut sum: Option<TimeColumn<Mixture>> = None;
        for layout in &mut self.layouts {
            let column = match layout.next_column()? {
                Ok(column) => column,
                Err(error) => return Some(Err(error)),
            };
            let all = sum.get_or_insert_with(|| TimeColumn {
                start: column.start,
                end: column.end,
                value: Mixture::default(),
                gaps: Vec::new(),
            });
            if let Err(error) = all.value.add(&column.value) {
                return Some(Err(invalid(&error)));
            }
            all.gaps.extend(column.gaps);
            all.gaps.sort();
            all.gaps.dedup();
        }
        sum.map(Ok)
    }
}

impl LayoutColumns<'_> {
    fn next_column(&mut self) -> Option<Result<TimeColumn<Histogram>>> {
        let (mut counts, mut below, mut gaps) = (Vec::new(), 0_u64, Vec::new());
        let mut range = None;
        for bucket in &mut self.counts {
            let column = match bucket.next()? {
                Ok(column) => column,
                Err(error) => return Some(Err(error.into())),
            };
            range = Some((column.start, column.end));
            gaps.extend(column.gaps);
            let increase = column.value.map_or(0.0, |numbers| numbers.sum.value());
            // Counters of one scrape that arrived in part: no bucket has fewer values than those
            // below it.
            let up_to = (increase.round().max(0.0) as u64).max(below);
            counts.push(up_to - below);
            below = up_to;
        }
        let (start, end) = range?;
        if below > HISTOGRAM_COUNT_MAX {
            let (producer, lost, reason) = (None, None, TOO_MANY_VALUES.to_owned());
            gaps.push(Gap { start, end, producer, lost, reason });
            counts.clear();
        }
        let parts = HistogramParts {
            positive: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
            sum: TrackedValue::Absent,
            ..HistogramParts::new(self.scheme.clone())
        };
        let value = Histogram::from_parts(parts).map_err(|error| invalid(&error));
        Some(value.map(|value| TimeColumn { start, end, value, gaps }))
    }
}

fn invalid(error: &dyn std::fmt::Display) -> Error {
    let message = format!("cannot merge buckets: {error}; use a shorter range or fewer series");
    Error::Execution { span: SourceSpan::default(), message }
}
