//! Histograms of which a selector matches buckets, and the bounds that they share.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::SeriesKind;

use super::ClassicSource;
use crate::classic_part::{self, BucketBounds};
use crate::histogram::BucketGrid;
use crate::labels::LabelSet;

/// Histogram of which a selector matches buckets.
pub(super) struct FoundBuckets {
    /// Labels without `le`.
    pub(super) labels: LabelSet,
    pub(super) kind: SeriesKind,
    pub(super) histogram: Arc<ClassicSource>,
    pub(super) bounds: BucketBounds,
}

/// Gives histograms of one metric with the same fine buckets the same bounds: a bound that only
/// some series have would have too small a sum, and quantiles of such sums would be too high.
/// Returns a warning for each metric whose fine buckets differ: its bounds cannot be the same.
pub(super) fn share_bounds(buckets: &mut [FoundBuckets]) -> BTreeSet<String> {
    let mut shared: Vec<(String, BucketGrid, Vec<f64>)> = Vec::new();
    for FoundBuckets { labels, bounds, .. } in buckets.iter() {
        let Some(grid) = bounds.grid() else { continue };
        match shared.iter_mut().find(|of| of.0 == labels.name() && of.1 == *grid) {
            Some((_, _, all)) => all.extend(&bounds.all),
            None => shared.push((labels.name().to_owned(), grid.clone(), bounds.all.clone())),
        }
    }
    shared.iter_mut().for_each(|(_, _, all)| classic_part::sort_bounds(all));
    for FoundBuckets { labels, bounds, .. } in buckets.iter_mut() {
        let Some(grid) = bounds.grid() else { continue };
        let same = shared.iter().find(|of| of.0 == labels.name() && of.1 == *grid);
        if let Some((_, _, all)) = same {
            bounds.all = all.clone();
        }
    }
    let is_alone = |name: &str| buckets.iter().filter(|of| of.labels.name() == name).count() == 1;
    let differing = buckets.iter().filter(|of| {
        let name = of.labels.name();
        let grids = shared.iter().filter(|of| of.0 == name).count();
        (grids > 1 || of.bounds.has_changed_grid()) && !is_alone(name)
    });
    differing.map(|of| layout_warning(of.labels.name())).collect()
}

fn layout_warning(name: &str) -> String {
    let histogram = name.strip_suffix("_bucket").unwrap_or(name);
    format!(
        "{name}: the selected histograms have different bucket layouts, so a sum by le may be too \
         small, and a quantile of it too high; use histogram_quantile(…, sum(rate({histogram}[…])))"
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
        let mut bounds = BucketBounds::default();
        bounds.add(&FloatHistogram::from(&histogram));
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let (handles, unit) = (Vec::new(), "s".to_owned());
        FoundBuckets {
            labels: LabelSet::new([(NAME, name.to_owned())]),
            kind,
            histogram: Arc::new(ClassicSource { handles, unit, divisor: 1.0, read: None }),
            bounds,
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
        let bounds = buckets.each_ref().map(|of| of.bounds.all.clone());
        let shared = vec![1.0, 2.0, 8.0, 16.0, f64::INFINITY];
        let alone = [vec![64.0, 128.0, f64::INFINITY], vec![5.0, f64::INFINITY]];
        assert_eq!(bounds[..2], [shared.clone(), shared]);
        assert_eq!(bounds[2..], alone);
        let mut buckets =
            [found("x_bucket", exp(), &[1.5]), found("x_bucket", Scheme::exp2(3).unwrap(), &[1.5])];
        let warnings = share_bounds(&mut buckets);
        assert!(warnings.len() == 1 && warnings.first().unwrap().contains("sum(rate(x[…]))"));
    }
}
