//! Histograms of which a selector matches buckets, and the bounds that they share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use model::SeriesKind;

use super::ClassicSource;
use super::bucket_tables::BucketTables;
use crate::classic_part::{self, BucketBounds};
use crate::histogram::BucketGrid;
use crate::labels::LabelSet;
use crate::source::SourceRead;
use crate::stream::SeriesPoint;

/// Histogram of which a selector matches buckets.
pub(super) struct FoundBuckets {
    /// Labels without `le`.
    pub(super) labels: LabelSet,
    pub(super) kind: SeriesKind,
    pub(super) histogram: Arc<ClassicSource>,
    /// Bounds of its own buckets.
    pub(super) own: BucketBounds,
    /// Bounds of its series, by [`share_bounds`].
    pub(super) bounds: Vec<f64>,
    pub(super) read: BoundsRead,
}

/// What was read to find bounds.
#[derive(Default)]
pub(super) struct BoundsRead {
    pub(super) range: Range<i64>,
    /// Number of samples.
    pub(super) count: usize,
    /// The samples, if they are few.
    pub(super) kept: Option<SourceRead<SeriesPoint>>,
}

impl BoundsRead {
    /// Counts of the buckets with some bounds, in the order of the labels of their series.
    pub(super) fn into_tables(self, bounds: Vec<f64>) -> BucketTables {
        BucketTables::new(bounds, (self.range, self.count), self.kept)
    }
}

impl FoundBuckets {
    /// Whether all of its bounds are edges of fine buckets.
    fn has_only_fine(&self) -> bool {
        !self.own.has_explicit() && self.own.fine_grids().next().is_some()
    }
}

/// Gives histograms of one metric with fine buckets the same bounds, those of the coarsest layout:
/// its edges are edges of every finer one. A bound that only some series have would have too small
/// a sum, and quantiles of such sums would be too high. Returns a warning for each metric whose
/// layouts have no common edges.
pub(super) fn share_bounds(buckets: &mut [FoundBuckets]) -> BTreeSet<String> {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, found) in buckets.iter_mut().enumerate() {
        found.bounds = found.own.all(None);
        if found.has_only_fine() {
            by_name.entry(found.labels.name().to_owned()).or_default().push(at);
        }
    }
    let mut warnings = BTreeSet::new();
    for (name, members) in by_name {
        let own = || members.iter().map(|&at| &buckets[at].own);
        let Some(target) = common_grid(own()) else {
            if members.len() > 1 {
                warnings.insert(layout_warning(&name));
            }
            share_by_grid(buckets, &members);
            continue;
        };
        let mut zero_thresholds: Vec<f64> = own().flat_map(|of| of.zero_thresholds()).collect();
        zero_thresholds.dedup();
        if zero_thresholds.len() > 1 && members.len() > 1 {
            warnings.insert(layout_warning(&name));
        }
        let mut shared: Vec<f64> = own().flat_map(|of| of.all(Some(&target))).collect();
        classic_part::sort_bounds(&mut shared);
        members.iter().for_each(|&at| buckets[at].bounds = shared.clone());
    }
    warnings
}

/// The coarsest of the layouts, if the edges of its buckets are edges of all others.
fn common_grid<'a>(bounds: impl Iterator<Item = &'a BucketBounds>) -> Option<BucketGrid> {
    let mut grids = bounds.flat_map(BucketBounds::fine_grids);
    let first = grids.next()?.clone();
    // Prometheus' exponential edges are off those of other schemes by some units of the last place.
    let is_exponential = |grid: &BucketGrid| matches!(grid, BucketGrid::Exponential(_));
    grids.try_fold(first, |common, grid| match is_exponential(&common) == is_exponential(grid) {
        true => common.common(grid).ok(),
        false => None,
    })
}

/// Gives the same bounds to histograms with the same layout.
fn share_by_grid(buckets: &mut [FoundBuckets], members: &[usize]) {
    let grid = |found: &FoundBuckets| common_grid(std::iter::once(&found.own));
    for &at in members {
        let Some(own) = grid(&buckets[at]) else { continue };
        let same =
            members.iter().map(|&at| &buckets[at]).filter(|of| grid(of).as_ref() == Some(&own));
        let mut shared: Vec<f64> = same.flat_map(|of| of.own.all(Some(&own))).collect();
        classic_part::sort_bounds(&mut shared);
        buckets[at].bounds = shared;
    }
}

fn layout_warning(name: &str) -> String {
    let histogram = name.strip_suffix("_bucket").unwrap_or(name);
    format!(
        "{name}: the selected histograms have bucket layouts without common edges, so a sum by le \
         may be too small, and a quantile of it too high; use histogram_quantile(…, \
         sum(rate({histogram}[…])))"
    )
}

#[cfg(test)]
mod tests {
    use hist::codec::header::Temporality;
    use hist::{Histogram, Scheme};

    use super::*;
    use crate::histogram::FloatHistogram;
    use crate::labels::NAME;

    fn found(name: &str, scheme: Scheme, values: &[f64]) -> FoundBuckets {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        let mut own = BucketBounds::default();
        own.add(&FloatHistogram::from(&histogram));
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let (handles, unit) = (Vec::new(), "s".to_owned());
        FoundBuckets {
            labels: LabelSet::new([(NAME, name.to_owned())]),
            kind,
            histogram: Arc::new(ClassicSource { handles, unit, divisor: 1.0 }),
            own,
            bounds: Vec::new(),
            read: BoundsRead::default(),
        }
    }

    /// `histogram_quantile(0.99, sum by (le) (rate(x_bucket[5m])))` over several series answered
    /// with the greatest bound: each series had only the bounds of its own values.
    #[test]
    fn series_that_are_summed_by_bound_have_the_same_bounds() {
        let exp = || Scheme::exp2(0).unwrap();
        let mut buckets = [
            found("x_bucket", exp(), &[1.5]),
            found("x_bucket", exp(), &[12.0]),
            found("y_bucket", exp(), &[100.0]),
            found("x_bucket", Scheme::explicit(&[5.0]).unwrap(), &[1.0]),
        ];
        assert_eq!(share_bounds(&mut buckets), BTreeSet::new());
        let bounds = buckets.each_ref().map(|of| of.bounds.clone());
        let shared = vec![1.0, 2.0, 8.0, 16.0, f64::INFINITY];
        let alone = [vec![64.0, 128.0, f64::INFINITY], vec![5.0, f64::INFINITY]];
        assert_eq!(bounds[..2], [shared.clone(), shared]);
        assert_eq!(bounds[2..], alone);
    }

    fn log_linear() -> Scheme {
        Scheme::log_linear2(3).unwrap()
    }

    /// Sums by `le` of exponential histograms with different layouts were too small at most bounds.
    #[test]
    fn series_with_different_layouts_have_the_bounds_of_the_coarsest() {
        let exp = |scale| Scheme::exp2(scale).unwrap();
        for scale in [(0, 3, -1), (0, 0, -2), (8, 1, 1)] {
            let layouts = [exp(scale.0), exp(scale.1), exp(scale.2)];
            let values = [vec![0.0, 0.3, 1.5], vec![1.7, 300.0, -2.5], vec![12.0]];
            // The unit is another one than that of the stored values, or not.
            for divisor in [1.0, 1e9] {
                let layouts = layouts.clone().map(|layout| layout.divide(divisor));
                check_sums(&layouts, &values, divisor);
            }
        }
        check_sums(&[log_linear(), Scheme::log_linear2(6).unwrap()], &[vec![1.3], vec![99.0]], 1.0);
    }

    /// Sums of counts by bound are those of the merged histogram.
    #[track_caller]
    fn check_sums(layouts: &[Scheme], values: &[Vec<f64>], divisor: f64) {
        let histogram = |layout: &Scheme, values: &[f64]| {
            let mut histogram = Histogram::new(layout.clone());
            values.iter().for_each(|&value| histogram.record(value / divisor));
            FloatHistogram::from(&histogram)
        };
        let histograms: Vec<FloatHistogram> =
            layouts.iter().zip(values).map(|(layout, values)| histogram(layout, values)).collect();
        let scaled =
            |values: &Vec<f64>| values.iter().map(|value| value / divisor).collect::<Vec<_>>();
        let mut buckets: Vec<FoundBuckets> = layouts
            .iter()
            .zip(values)
            .map(|(layout, values)| found("x_bucket", layout.clone(), &scaled(values)))
            .collect();
        assert_eq!(share_bounds(&mut buckets), BTreeSet::new());
        let mut merged = histograms[0].clone();
        histograms[1..].iter().for_each(|more| _ = merged.add(more).unwrap());
        assert!(buckets[0].bounds.len() > 2);
        for bound in buckets[0].bounds.clone() {
            assert!(buckets.iter().all(|of| of.bounds == buckets[0].bounds));
            let part = crate::classic_part::ClassicPart::Bucket(bound);
            let counts = histograms.iter().map(|histogram| part.value(histogram));
            let sum: Option<f64> = counts.sum();
            assert_eq!(sum, part.value(&merged), "{layouts:?}: up to {bound}");
            assert!(sum.is_some());
        }
    }

    #[test]
    fn layouts_without_common_edges_are_a_warning() {
        let mut buckets = [
            found("x_bucket", Scheme::exp2(3).unwrap(), &[1.5]),
            found("x_bucket", log_linear(), &[1.5]),
            found("x_bucket", log_linear(), &[20.0]),
        ];
        let warnings = share_bounds(&mut buckets);
        assert!(warnings.len() == 1 && warnings.first().unwrap().contains("sum(rate(x[…]))"));
        assert_eq!(buckets[1].bounds, buckets[2].bounds);
    }
}
