//! Series of a view by selector or ID.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::ControlFlow;

use model::{Selector, Series, SeriesId, SeriesKind};

use super::ReadView;
use crate::error::Result;
use crate::index::{
    SelectedSeries, SeriesEntryRef, SeriesIndex, SeriesKeyRef, SeriesNumber, metric_of_key,
};

/// Series whose keys are read while the index is locked. It is released in between, so that new
/// series can be inserted.
pub(super) const KEYS_AT_ONCE: usize = 1024;
/// Label of the metric's name in queries.
pub(super) const NAME_LABEL: &str = "__name__";

impl ReadView {
    /// Series that match a selector.
    pub fn select(&self, selector: &Selector) -> Vec<SeriesEntryRef> {
        let index = self.inner.index();
        index.select(selector).into_iter().map(|number| index.entry(number)).collect()
    }

    /// Number of series that match a selector.
    pub fn series_count(&self, selector: &Selector) -> usize {
        self.inner.index().select(selector).len()
    }

    /// Series without rows that match a selector: they were deleted or expired. Reads the series
    /// file; meant for messages.
    pub fn select_deleted(&self, selector: &Selector) -> Result<Vec<Series>> {
        self.inner.select_deleted(selector)
    }

    /// Calls `each` for the series that match a selector until it returns false, without collecting
    /// them. Returns the total number of matches.
    pub fn each_series(
        &self,
        selector: &Selector,
        each: &mut dyn FnMut(Series) -> ControlFlow<()>,
    ) -> usize {
        self.each_selected(selector, SeriesIndex::series, each)
    }

    /// The same, with what reads of the series need.
    pub fn each_entry(
        &self,
        selector: &Selector,
        each: &mut dyn FnMut(SeriesEntryRef) -> ControlFlow<()>,
    ) -> usize {
        self.each_selected(selector, SeriesIndex::entry, each)
    }

    fn each_selected<T>(
        &self,
        selector: &Selector,
        read: impl Fn(&SeriesIndex, SeriesNumber) -> T,
        each: &mut dyn FnMut(T) -> ControlFlow<()>,
    ) -> usize {
        let numbers = self.inner.index().select(selector);
        for some in numbers.chunks(KEYS_AT_ONCE) {
            let index = self.inner.index();
            // Some may have been deleted in between.
            let live = some.iter().copied().filter(|number| index.is_live(*number));
            let found: Vec<T> = live.map(|number| read(&index, number)).collect();
            drop(index);
            if found.into_iter().any(|found| each(found).is_break()) {
                break;
            }
        }
        numbers.len()
    }

    /// Calls `each` with the series that match a selector, and their number, until it returns
    /// false. It must not use the view: the index is locked.
    pub fn each_key(
        &self,
        selector: &Selector,
        each: &mut dyn FnMut(usize, SeriesKeyRef<'_>) -> ControlFlow<()>,
    ) {
        let numbers = self.inner.index().select(selector);
        for some in numbers.chunks(KEYS_AT_ONCE) {
            let index = self.inner.index();
            // Some may have been deleted in between.
            let mut live = some.iter().copied().filter(|number| index.is_live(*number));
            if live.any(|number| each(numbers.len(), index.key_ref(number)).is_break()) {
                break;
            }
        }
    }

    /// Series that match a selector, if no two of them can have the same labels: all are of one
    /// metric, with one spelling of its unit. By ascending id. `grow` reserves memory in bytes;
    /// `None` as well if it returns false.
    pub fn select_distinct(
        &self,
        selector: &Selector,
        grow: &mut dyn FnMut(u64) -> bool,
    ) -> Option<Vec<SelectedSeries>> {
        let mut series = self.each_distinct(selector, grow, &mut |_, _| {})?;
        // What is kept of each is then read in the order of the chunks of a part.
        series.sort_unstable_by(SelectedSeries::compare_ids);
        Some(series)
    }

    /// The same; passes the number of each series to `each`.
    pub(super) fn each_distinct(
        &self,
        selector: &Selector,
        grow: &mut dyn FnMut(u64) -> bool,
        each: &mut dyn FnMut(&SeriesIndex, SeriesNumber),
    ) -> Option<Vec<SelectedSeries>> {
        let numbers = self.inner.index().select(selector);
        let bytes = size_of_val(&*numbers)
            .saturating_add(numbers.len().saturating_mul(size_of::<SelectedSeries>()));
        if !grow(bytes as u64) {
            return None;
        }
        let mut selected: Vec<SelectedSeries> = Vec::with_capacity(numbers.len());
        let (mut metric, mut kind): (Vec<u8>, Option<SeriesKind>) = Default::default();
        for some in numbers.chunks(KEYS_AT_ONCE) {
            let index = self.inner.index();
            // A label with this name gives way to the metric's name.
            if index.has_label(NAME_LABEL) {
                return None;
            }
            for &number in some {
                let key = index.key(number);
                // Some may have been deleted in between.
                if key.is_empty() {
                    continue;
                }
                if metric.is_empty() {
                    metric.extend_from_slice(metric_of_key(key));
                }
                if !key.starts_with(&metric) {
                    return None;
                }
                // The metric begins with its kind.
                let kind = *kind.get_or_insert_with(|| index.kind(number));
                selected.push(SelectedSeries { number, id: index.id(number), kind });
                each(&index, number);
            }
        }
        Some(selected)
    }

    /// Calls `each` with a series of each metric (name, unit and kind), perhaps several, until it
    /// returns false; it must not use the view, whose index is locked. `is_over` is asked now and
    /// then whether to stop.
    pub fn each_metric(
        &self,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(SeriesKeyRef<'_>) -> ControlFlow<()>,
    ) {
        let numbers = self.inner.index().select(&Selector::All);
        // Most series are of the same metric as the one before.
        let mut last: Vec<u8> = Vec::new();
        for some in numbers.chunks(KEYS_AT_ONCE) {
            let index = self.inner.index();
            // Some may have been deleted in between.
            for number in some.iter().copied().filter(|number| index.is_live(*number)) {
                let key = index.key(number);
                if !last.is_empty() && key.starts_with(&last) {
                    continue;
                }
                last.clear();
                last.extend_from_slice(metric_of_key(key));
                if each(index.key_ref(number)).is_break() {
                    return;
                }
            }
            drop(index);
            if is_over() {
                return;
            }
        }
    }

    /// Calls `each` with the values that series of numbers or histograms have of a label, in any
    /// order, until it returns false. It must not use the view: the index is locked.
    pub fn each_label_value(&self, label: &str, each: &mut dyn FnMut(&str) -> ControlFlow<()>) {
        self.inner.index().each_label_value(label, each);
    }

    /// Series by id, for reads, if known.
    pub fn select_id(&self, id: &SeriesId) -> Option<SeriesEntryRef> {
        let index = self.inner.index();
        let number = index.number(id)?;
        Some(index.entry(number))
    }

    /// Series by id, if known.
    pub fn series(&self, id: &SeriesId) -> Option<Series> {
        let index = self.inner.index();
        index.number(id).map(|number| index.series(number))
    }
}
