//! Query source in which classic histograms whose buckets are counters are distributions, for
//! breakdowns and comparisons. PromQL reads such buckets as they are stored, as Prometheus does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use hist::Mixture;
use model::{Gap, Selector};
use store::{NumberAggregate, ReadView, SeriesEntryRef, TimeGrid};

use crate::classic_buckets::{
    DistributionLabels, distribution_columns, is_counter, labels_of, select_distributions,
};
use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::labels::{LabelSet, NAME};
use crate::source::{SeriesHandle, Source, SourceRead};
use crate::store_source::StoreSource;
use crate::stream::SeriesPoint;

/// Query source of a store view that reads only columns of distributions.
pub struct BucketSource<'a> {
    view: &'a ReadView,
    stored: StoreSource<'a>,
    /// Series of selected distributions, at least one of which has buckets; keys of handles from
    /// [`FIRST_KEY`] on are indices into this list.
    selected: RwLock<Vec<Vec<SeriesEntryRef>>>,
}

/// First key of such a distribution; a store has fewer series.
const FIRST_KEY: usize = 1 << 40;

impl<'a> BucketSource<'a> {
    /// Source of a view; a long read stops when the query of the context is cancelled.
    pub fn new(view: &'a ReadView, context: &'a dyn QueryContext) -> BucketSource<'a> {
        let stored = StoreSource::new(view).with_context(context);
        BucketSource { view, stored, selected: RwLock::default() }
    }

    /// Handles of distributions: a histogram and buckets that differ only in their bounds are one.
    fn add_distributions(&self, found: &[SeriesEntryRef]) -> Vec<SeriesHandle> {
        let mut distributions: BTreeMap<(DistributionLabels<'_>, &str), Vec<SeriesEntryRef>> =
            BTreeMap::new();
        for found in found {
            let identity = (labels_of(found), found.series.unit());
            distributions.entry(identity).or_default().push(found.clone());
        }
        let mut selected = self.selected.write().unwrap_or_else(PoisonError::into_inner);
        let mut handles = Vec::with_capacity(distributions.len());
        for ((labels, unit), found) in distributions {
            let series = &found[0].series;
            let labels = labels.into_iter().chain([(NAME, series.name())]);
            handles.push(SeriesHandle {
                labels: LabelSet::new(labels),
                kind: series.kind(),
                unit: unit.to_owned(),
                key: FIRST_KEY + selected.len(),
            });
            selected.push(found);
        }
        handles
    }
}

impl BucketSource<'_> {
    /// Series of distributions. A read of them does not hold the lock.
    fn selected_series(&self, handles: &[&SeriesHandle]) -> Vec<SeriesEntryRef> {
        let selected = self.selected.read().unwrap_or_else(PoisonError::into_inner);
        let keys = handles.iter().filter_map(|handle| handle.key.checked_sub(FIRST_KEY));
        keys.flat_map(|key| selected[key].iter().cloned()).collect()
    }
}

impl Source for BucketSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let found = select_distributions(self.view, selector);
        match found.iter().any(is_counter) {
            true => Ok(self.add_distributions(&found)),
            false => self.stored.select(selector),
        }
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        match series.iter().any(|handle| handle.key >= FIRST_KEY) {
            true => self.view.gaps_of(&self.selected_series(series), range),
            false => self.stored.gaps(series, range),
        }
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        match series.key >= FIRST_KEY {
            true => Err(without_samples()),
            false => self.stored.samples(series, range),
        }
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        if series.iter().all(|handle| handle.key < FIRST_KEY) {
            return self.stored.histograms(series, grid);
        }
        let found = self.selected_series(series);
        let mut read = SourceRead { values: Vec::new(), gaps: Vec::new() };
        for column in distribution_columns(self.view, &found, grid)? {
            let column = column?;
            read.values.push(column.value);
            read.gaps.extend(column.gaps);
        }
        Ok(read)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        match series.iter().any(|handle| handle.key >= FIRST_KEY) {
            true => Err(without_samples()),
            false => self.stored.numbers(series, grid),
        }
    }
}

fn without_samples() -> Error {
    let message = "cannot read samples of buckets: they are read in columns only".to_owned();
    Error::Execution { span: SourceSpan::default(), message }
}
