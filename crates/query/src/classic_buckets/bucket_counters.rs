//! A classic histogram: the counters of its buckets by bound.
//!
//! Limits: [`BOUNDS_MAX`] bounds and [`LAYOUTS_MAX`] sets of bounds in one read. Bounds come from
//! senders; a merge of histograms with many sets has a part for each that shares no bound with the
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use model::{Selector, selector};
use store::{ReadView, SelectedSeries, SeriesEntryRef};

use super::bucket_increases::{self, Increase};
use super::{DistributionLabels, bound_of, is_counter, labels_of};
use crate::error::{Error, Result};

/// Maximum number of different bounds of a read, and of counters of one histogram. Client libraries
/// have 10 to 30 bounds.
pub(super) const BOUNDS_MAX: usize = 1_000;
/// Maximum number of sets of bounds of a read.
pub(super) const LAYOUTS_MAX: usize = 100;

/// Counters of one histogram.
#[derive(Debug)]
pub(super) struct BucketCounters {
    /// Ascending bounds; the last one is infinite if the number of all values is known.
    pub(super) bounds: Vec<f64>,
    /// Counters, and the positions of their bounds. A bound that is written in two ways, such as
    /// `1` and later `1.0`, has two counters.
    counters: Vec<(usize, SelectedSeries)>,
    /// The counter of the sum of all values, `x_sum`.
    sum: Option<SelectedSeries>,
    /// The histogram of the same name and labels, and the time of its samples. It is read from its
    /// first to its last sample, and the buckets before and after: where the samples of both have
    /// other times, a change in between would count values twice.
    pub(super) histogram: Option<SeriesEntryRef>,
    histogram_range: Option<Range<i64>>,
    /// Positions of the bounds of the last increases.
    pub(super) last_active: Vec<usize>,
}

impl BucketCounters {
    /// Histograms of the counters among some series of one name.
    pub(super) fn group(view: &ReadView, series: &[SeriesEntryRef]) -> Result<Vec<BucketCounters>> {
        let mut by_labels: BTreeMap<DistributionLabels<'_>, Vec<(f64, SelectedSeries)>> =
            BTreeMap::new();
        let (counters, histograms): (Vec<_>, Vec<_>) =
            series.iter().partition(|found| is_counter(found));
        for found in counters {
            if let Some(bound) = bound_of(&found.series) {
                // Zero has one spelling.
                let counter = (bound + 0.0, *found.as_ref());
                by_labels.entry(labels_of(found)).or_default().push(counter);
            }
        }
        let has_total = |found: &[(f64, SelectedSeries)]| found.iter().any(|of| of.0.is_infinite());
        let without_total = by_labels.iter().filter(|(_, found)| !has_total(found));
        let without_total: BTreeSet<OwnedLabels> =
            without_total.map(|(labels, _)| to_owned_labels(labels)).collect();
        let totals = select_parts(view, series, "_count", &without_total);
        let all: BTreeSet<OwnedLabels> =
            by_labels.keys().map(|labels| to_owned_labels(labels)).collect();
        let sums = select_parts(view, series, "_sum", &all);
        let mut histograms: BTreeMap<_, &SeriesEntryRef> =
            model::sort::map(histograms.into_iter().map(|found| (labels_of(found), found)));
        let (mut layouts, mut all_bounds) = (BTreeSet::new(), BTreeSet::new());
        let mut classic = Vec::with_capacity(by_labels.len());
        for (labels, mut found) in by_labels {
            // `x_count` is the bucket `+Inf` of a histogram that has none.
            let owned_labels = to_owned_labels(&labels);
            let total = totals.get(&owned_labels).filter(|_| !has_total(&found));
            found.extend(total.map(|total| (f64::INFINITY, *total)));
            model::sort::by(&mut found, |a, b| a.0.total_cmp(&b.0));
            let mut bounds: Vec<f64> = found.iter().map(|of| of.0).collect();
            bounds.dedup();
            all_bounds.extend(bounds.iter().map(|bound| bound.to_bits()));
            check_limit("bucket bounds (le)", all_bounds.len().max(found.len()), BOUNDS_MAX)?;
            layouts.insert(bounds.iter().map(|bound| bound.to_bits()).collect::<Vec<u64>>());
            check_limit("sets of bucket bounds (le)", layouts.len(), LAYOUTS_MAX)?;
            let histogram = histograms.remove(&labels).cloned();
            let histogram_range = match &histogram {
                Some(histogram) => view.time_range(std::slice::from_ref(histogram))?,
                None => None,
            };
            let position = |bound: f64| bounds.partition_point(|other| *other < bound);
            // A sum of values of both signs falls, which looks as if the counter began anew.
            let is_positive = bounds.first().is_some_and(|bound| *bound >= 0.0);
            classic.push(BucketCounters {
                sum: sums.get(&owned_labels).copied().filter(|_| is_positive),
                counters: found.iter().map(|&(bound, of)| (position(bound), of)).collect(),
                histogram,
                histogram_range,
                last_active: Vec::new(),
                bounds,
            });
        }
        Ok(classic)
    }

    /// Whether the number of all values is known.
    pub(super) fn has_total(&self) -> bool {
        self.bounds.last() == Some(&f64::INFINITY)
    }

    /// Time within a range at which the samples of the histogram begin or end.
    pub(super) fn histogram_edge(&self, range: &Range<i64>) -> Option<i64> {
        let of = self.histogram_range.as_ref()?;
        [of.start, of.end].into_iter().find(|time| range.start < *time && *time < range.end)
    }

    /// Whether a range that has no such edge has samples of the histogram.
    pub(super) fn is_both(&self, range: &Range<i64>) -> bool {
        let of = self.histogram_range.as_ref();
        of.is_some_and(|of| of.start <= range.start && range.end <= of.end)
    }

    /// Counters of the buckets, and of the sum.
    pub(super) fn series(&self) -> Vec<SelectedSeries> {
        self.counters.iter().map(|counter| counter.1).chain(self.sum).collect()
    }

    pub(super) fn counter_count(&self) -> usize {
        self.counters.len() + usize::from(self.sum.is_some())
    }

    /// Increase of the sum in a column.
    pub(super) fn sum(
        &self,
        increases: &[Vec<Option<Increase>>],
        column: usize,
    ) -> Option<Increase> {
        self.sum?;
        increases.last()?[column]
    }

    /// Increases in a column by bound, of those by counter and column.
    pub(super) fn by_bound(
        &self,
        increases: &[Vec<Option<Increase>>],
        column: usize,
    ) -> Vec<Option<Increase>> {
        let mut by_bound = vec![None; self.bounds.len()];
        for ((bound, _), columns) in self.counters.iter().zip(increases) {
            if let Some(increase) = &columns[column] {
                bucket_increases::add(&mut by_bound[*bound], *increase);
            }
        }
        by_bound
    }
}

/// Labels of a histogram.
type OwnedLabels = Vec<(String, String)>;

fn to_owned_labels(labels: &[(&str, &str)]) -> OwnedLabels {
    labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Counters of the histograms that are no buckets, by the labels of these.
fn select_parts(
    view: &ReadView,
    series: &[SeriesEntryRef],
    suffix: &str,
    labels: &BTreeSet<OwnedLabels>,
) -> BTreeMap<OwnedLabels, SelectedSeries> {
    let mut parts = BTreeMap::new();
    let Some(first) = series.first().filter(|_| !labels.is_empty()) else { return parts };
    let name = format!("{}{suffix}", first.series.name());
    view.each_entry(&Selector::label_equals(selector::NAME, name), &mut |part| {
        let of = to_owned_labels(&labels_of(&part));
        if is_counter(&part) && labels.contains(&of) {
            parts.insert(of, *part.as_ref());
        }
        ControlFlow::Continue(())
    });
    parts
}

fn check_limit(limit: &'static str, found: usize, max: usize) -> Result<()> {
    if found <= max {
        return Ok(());
    }
    let remedy = "select series with the same bounds, as those of one job".to_owned();
    Err(Error::Limit { limit, found: found as u64, max: max as u64, remedy })
}
