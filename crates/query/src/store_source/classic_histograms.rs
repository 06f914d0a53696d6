//! Classic histograms as series of a store source: handles of distributions whose buckets are
//! stored as counters.

use std::collections::{BTreeMap, HashSet};
use std::sync::{PoisonError, RwLock};

use model::{Selector, SeriesKind};
use store::{ReadView, SelectedSeries, SeriesEntryRef};

use crate::classic_buckets::{
    DistributionLabels, bound_of, is_counter, labels_of, select_buckets, select_histograms,
};
use crate::labels::{LabelSet, NAME};
use crate::source::SeriesHandle;

/// First key of their handles; a store has fewer series.
const FIRST_KEY: usize = 1 << 40;
/// Memory of a selected bucket. Its labels are shared with the index.
pub(super) const BUCKET_BYTES: u64 = 2048;

/// Selected classic histograms. Each has its buckets, and the histogram of the same name and labels
/// if it is stored, too.
#[derive(Default)]
pub(super) struct ClassicHistograms(RwLock<Vec<Vec<SeriesEntryRef>>>);

/// Whether a handle is one of a classic histogram.
pub(super) fn is_classic(handle: &SeriesHandle) -> bool {
    handle.key >= FIRST_KEY
}

impl ClassicHistograms {
    /// Adds those that a selector means to the series that match it. A histogram with the labels of
    /// one of them is part of it. Buckets whose unit is not that of the histograms are left out.
    pub(super) fn select(
        &self,
        view: &ReadView,
        selector: &Selector,
        found: &mut Vec<SeriesHandle>,
    ) {
        let is_histogram = |handle: &SeriesHandle| matches!(handle.kind, SeriesKind::Histogram(_));
        let has_histograms = found.iter().any(is_histogram);
        let units: Vec<&str> =
            found.iter().filter(|of| is_histogram(of)).map(|of| of.unit.as_str()).collect();
        let mut buckets = select_buckets(view, selector);
        buckets.retain(|bucket| units.is_empty() || units.contains(&bucket.series.unit()));
        let histograms = match has_histograms && !buckets.is_empty() {
            true => select_histograms(view, selector),
            false => Vec::new(),
        };
        let mut classic: BTreeMap<(DistributionLabels<'_>, &str), Vec<SeriesEntryRef>> =
            BTreeMap::new();
        for bucket in &buckets {
            let identity = (labels_of(bucket), bucket.series.unit());
            classic.entry(identity).or_default().push(bucket.clone());
        }
        for histogram in &histograms {
            if let Some(same) = classic.get_mut(&(labels_of(histogram), histogram.series.unit())) {
                same.push(histogram.clone());
            }
        }
        if classic.is_empty() {
            return;
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut both: HashSet<(LabelSet, String)> = HashSet::new();
        for ((labels, unit), series) in classic {
            let first = &series[0].series;
            let labels = LabelSet::new(labels.into_iter().chain([(NAME, first.name())]));
            let (kind, unit, key) = (first.kind(), unit.to_owned(), FIRST_KEY + all.len());
            if !series.iter().all(is_counter) {
                both.insert((labels.clone(), unit.clone()));
            }
            found.push(SeriesHandle { labels, kind, unit, key });
            all.push(series);
        }
        found.retain(|handle| {
            let is_part = || both.contains(&(handle.labels.clone(), handle.unit.clone()));
            is_classic(handle) || !is_histogram(handle) || !is_part()
        });
        model::sort::by(found, |a, b| a.labels.cmp(&b.labels));
    }

    /// Series of some handles. A read of them does not hold the lock.
    pub(super) fn series(&self, handles: &[&SeriesHandle]) -> Vec<SeriesEntryRef> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keys = handles.iter().filter_map(|handle| handle.key.checked_sub(FIRST_KEY));
        keys.flat_map(|key| all[key].iter().cloned()).collect()
    }

    /// Series whose rows are those of the distribution: a scrape has a sample of each bucket, so
    /// the one with the highest bound stands for all.
    pub(super) fn with_rows(&self, handle: &SeriesHandle) -> Vec<SelectedSeries> {
        let series = self.series(&[handle]);
        let bounds = series.iter().filter(|found| is_counter(found));
        let bounds = bounds.filter_map(|found| Some((bound_of(&found.series)?, found)));
        let highest = bounds.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, found)| found);
        let histograms = series.iter().filter(|found| !is_counter(found));
        highest.into_iter().chain(histograms).map(|found| *found.as_ref()).collect()
    }
}
