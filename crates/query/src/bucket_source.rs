//! Query source in which classic histograms whose buckets are counters are distributions, for
//! breakdowns and comparisons. PromQL reads such buckets as they are stored, as Prometheus does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use hist::Mixture;
use model::{Gap, Selector, SeriesKind};
use store::{NumberAggregate, ReadView, SeriesEntryRef, TimeGrid};

use crate::classic_buckets::{distribution_columns, labels_of, select_buckets};
use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::labels::{LabelSet, NAME};
use crate::source::{ColumnRead, SeriesHandle, Source};
use crate::store_source::StoreSource;
use crate::stream::SeriesPoint;

/// Query source of a store view that reads only columns of distributions.
pub struct BucketSource<'a> {
    view: &'a ReadView,
    stored: StoreSource<'a>,
    /// Buckets of the selected classic histograms; keys of handles from [`FIRST_KEY`] on are
    /// indices into this list.
    classic: RwLock<Vec<Vec<SeriesEntryRef>>>,
}

/// First key of a classic histogram; a store has fewer series.
const FIRST_KEY: usize = 1 << 40;

impl<'a> BucketSource<'a> {
    /// Source of a view; a long read stops when the query of the context is cancelled.
    pub fn new(view: &'a ReadView, context: &'a dyn QueryContext) -> BucketSource<'a> {
        let stored = StoreSource::new(view).with_context(context);
        BucketSource { view, stored, classic: RwLock::default() }
    }

    /// Handles of classic histograms: buckets that differ only in their bounds are one.
    fn select_classic(&self, selector: &Selector) -> Vec<SeriesHandle> {
        let buckets = select_buckets(self.view, selector);
        let mut histograms: BTreeMap<_, Vec<SeriesEntryRef>> = BTreeMap::new();
        for found in &buckets {
            histograms.entry(labels_of(found)).or_default().push(found.clone());
        }
        let mut classic = self.classic.write().unwrap_or_else(PoisonError::into_inner);
        let handle = |(labels, buckets): (Vec<(&str, &str)>, Vec<SeriesEntryRef>)| {
            let series = &buckets[0].series;
            let labels = labels.into_iter().chain([(NAME, series.name())]);
            let handle = SeriesHandle {
                labels: LabelSet::new(labels),
                kind: series.kind(),
                unit: series.unit().to_owned(),
                key: FIRST_KEY + classic.len(),
            };
            classic.push(buckets);
            handle
        };
        histograms.into_iter().map(handle).collect()
    }
}

impl Source for BucketSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let stored = self.stored.select(selector)?;
        let is_histogram = |handle: &SeriesHandle| matches!(handle.kind, SeriesKind::Histogram(_));
        if stored.iter().any(is_histogram) {
            return Ok(stored);
        }
        let classic = self.select_classic(selector);
        Ok(if classic.is_empty() { stored } else { classic })
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        match series.iter().any(|handle| handle.key >= FIRST_KEY) {
            true => self.view.gaps(range),
            false => self.stored.gaps(series, range),
        }
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<ColumnRead<SeriesPoint>> {
        match series.key >= FIRST_KEY {
            true => Err(without_samples()),
            false => self.stored.samples(series, range),
        }
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<ColumnRead<Mixture>> {
        if series.iter().all(|handle| handle.key < FIRST_KEY) {
            return self.stored.histograms(series, grid);
        }
        let classic = self.classic.read().unwrap_or_else(PoisonError::into_inner);
        let buckets = series.iter().filter_map(|handle| handle.key.checked_sub(FIRST_KEY));
        let buckets: Vec<SeriesEntryRef> =
            buckets.flat_map(|key| classic[key].iter().cloned()).collect();
        let mut read = ColumnRead { values: Vec::new(), gaps: Vec::new() };
        for column in distribution_columns(self.view, &buckets, grid)? {
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
    ) -> Result<ColumnRead<Option<NumberAggregate>>> {
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
