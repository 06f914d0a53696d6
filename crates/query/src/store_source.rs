//! Query source backed by a store view.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hist::Mixture;
use model::{Gap, Selector, Series, SeriesKind};
use store::{
    ColumnIter, HistogramIncrements, NumberSummary, ReadView, SeriesEntryRef, TimeColumn, TimeGrid,
};

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::histogram::FloatHistogram;
use crate::labels::{LabelSet, NAME};
use crate::limits::SAMPLE_BYTES;
use crate::source::{ColumnRead, SeriesHandle, Source, StoredMetric};
use crate::stream::SeriesPoint;
use crate::value::{StepValue, samples_of};

/// Query source backed by a store view.
pub struct StoreSource<'a> {
    view: &'a ReadView,
    /// Selected series; handles are indices into this list.
    found: Mutex<Vec<Arc<SeriesEntryRef>>>,
    context: &'a dyn QueryContext,
    /// Memory of the selected series, reserved until the source is dropped.
    series_bytes: AtomicU64,
}

/// Memory of a selected series with its labels, about 500 bytes with eight labels.
const SERIES_BYTES: u64 = 512;

impl<'a> StoreSource<'a> {
    /// Source of a view.
    pub fn new(view: &'a ReadView) -> StoreSource<'a> {
        let series_bytes = AtomicU64::new(0);
        StoreSource { view, found: Mutex::default(), context: &|| false, series_bytes }
    }

    /// Sets the query's context, with which a long read stops when the query is cancelled or out of
    /// memory.
    pub fn with_context(mut self, context: &'a dyn QueryContext) -> StoreSource<'a> {
        self.context = context;
        self
    }

    fn resolve_handles(&self, handles: &[&SeriesHandle]) -> Vec<SeriesEntryRef> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().map(|handle| SeriesEntryRef::clone(&found[handle.key])).collect()
    }

    fn columns<T>(
        &self,
        columns: ColumnIter<'_, T>,
        bytes: impl Fn(&T) -> u64,
    ) -> Result<ColumnRead<T>> {
        let (mut values, mut gaps) = (Vec::new(), Vec::new());
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        for column in columns {
            if self.context.is_cancelled() {
                return Err(Error::Timeout);
            }
            let TimeColumn { value, gaps: missing, .. } = column?;
            memory.grow(bytes(&value))?;
            values.push(value);
            for gap in missing {
                if gaps.last() != Some(&gap) {
                    gaps.push(gap);
                }
            }
        }
        Ok(ColumnRead { values, gaps })
    }
}

impl Drop for StoreSource<'_> {
    fn drop(&mut self) {
        self.context.release_memory(*self.series_bytes.get_mut());
    }
}

impl Source for StoreSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let count = self.view.each_series(selector, &mut |_| ControlFlow::Break(())) as u64;
        let bytes = count.saturating_mul(SERIES_BYTES);
        self.context.reserve_memory(bytes)?;
        self.series_bytes.fetch_add(bytes, Ordering::Relaxed);
        let selection = self.view.select(selector);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.reserve(selection.len());
        let mut labels = LabelSet::default();
        let handle = |selection: SeriesEntryRef| {
            let series = &selection.series;
            labels = label_set(series, &labels);
            let labels = labels.clone();
            let (kind, unit, key) = (series.kind(), series.unit().to_owned(), found.len());
            found.push(Arc::new(selection));
            SeriesHandle { labels, kind, unit, key }
        };
        Ok(selection.into_iter().map(handle).collect())
    }

    fn metrics(&self) -> Result<Vec<StoredMetric>> {
        let mut known: HashMap<String, Vec<(String, SeriesKind)>> = HashMap::new();
        self.view.each_series(&Selector::All, &mut |series| {
            let (name, unit, kind) = (series.name(), series.unit(), series.kind());
            if !known.contains_key(name) {
                known.insert(name.to_owned(), Vec::new());
            }
            if let Some(same) = known.get_mut(name)
                && !same.iter().any(|(other, of)| other == unit && *of == kind)
            {
                same.push((unit.to_owned(), kind));
            }
            match self.context.is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if self.context.is_cancelled() {
            return Err(Error::Timeout);
        }
        let metrics = known.into_iter().flat_map(|(name, same)| {
            same.into_iter().map(move |(unit, kind)| StoredMetric {
                name: name.clone(),
                unit,
                kind,
            })
        });
        Ok(metrics.collect())
    }

    fn time_range(&self, series: &[SeriesHandle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        // For a short range, reading is as fast as the lookup.
        if range.end.saturating_sub(range.start) <= store::DAY {
            return Ok((range.start < range.end).then_some(range));
        }
        let found = self.resolve_handles(&series.iter().collect::<Vec<_>>());
        let Some(extent) = self.view.complete_range(&found)? else { return Ok(None) };
        let start = range.start.max(extent.start);
        let end = range.end.min(extent.end);
        Ok((start < end).then_some(start..end))
    }

    fn gaps(&self, range: &Range<i64>) -> Vec<Gap> {
        self.view.gaps(range)
    }

    fn select_count(&self, selector: &Selector) -> Result<u64> {
        Ok(self.view.each_series(selector, &mut |_| ControlFlow::Break(())) as u64)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.view.estimate_rows(series, range, step)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<ColumnRead<SeriesPoint>> {
        let found = self.resolve_handles(&[series]);
        let mut values = Vec::new();
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let (mut unaccounted, mut grown) = (0, Ok(()));
        let gaps = self.view.samples(&found[0], range, &mut |sample| {
            // The read cannot be stopped: data beyond the memory limit is dropped and the error is
            // returned afterwards.
            if grown.is_err() {
                return;
            }
            let value = match sample.value {
                model::SampleValue::Number(number) => StepValue::Number(number),
                model::SampleValue::Histogram(histogram) if series.kind.is_cumulative() => {
                    StepValue::Histogram(Arc::new(FloatHistogram::from(&*histogram)))
                }
                model::SampleValue::Histogram(histogram) => {
                    StepValue::Distribution(Arc::new(Mixture::from(*histogram)))
                }
                model::SampleValue::Text(_) => return,
            };
            let start = (sample.start < sample.end).then_some(sample.start);
            unaccounted += READING_BYTES + value.samples().saturating_mul(SAMPLE_BYTES);
            if unaccounted >= MEMORY_STEP_BYTES {
                grown = memory.grow(std::mem::take(&mut unaccounted));
            }
            values.push(SeriesPoint { start, time: sample.end, value });
        });
        grown?;
        let gaps = gaps?;
        // Two samples with the same timestamp: deltas of several producers, or a repeated
        // measurement.
        let is_delta = !series.kind.is_cumulative() && series.kind != SeriesKind::Gauge;
        values.dedup_by(|later, held| {
            later.time == held.time && {
                held.value = if is_delta {
                    add_values(&held.value, &later.value)
                } else {
                    later.value.clone()
                };
                true
            }
        });
        Ok(ColumnRead { values, gaps })
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        let found = self.resolve_handles(&[series]);
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let mut grown = Ok(());
        let read = self.view.increments(&found[0], range, &mut |bytes| {
            grown = memory.grow(bytes);
            grown.is_ok()
        });
        grown?;
        Ok(read?)
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<ColumnRead<Mixture>> {
        self.columns(
            self.view.histograms(&self.resolve_handles(series), grid)?,
            bytes_of_distribution,
        )
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<ColumnRead<Mixture>> {
        let columns = self.view.histograms_by_start(&self.resolve_handles(series), grid)?;
        self.columns(columns, bytes_of_distribution)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<ColumnRead<Option<NumberSummary>>> {
        let bytes = |_: &Option<NumberSummary>| size_of::<Option<NumberSummary>>() as u64;
        self.columns(self.view.numbers(&self.resolve_handles(series), grid)?, bytes)
    }
}

/// Labels of a series with its name, which share texts with another set.
fn label_set(series: &Series, similar: &LabelSet) -> LabelSet {
    let pairs = || {
        let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        pairs.filter(|(name, _)| *name != NAME)
    };
    let before_name = pairs().take_while(|(name, _)| *name < NAME).count();
    let sorted =
        pairs().take(before_name).chain([(NAME, series.name())]).chain(pairs().skip(before_name));
    LabelSet::sharing(similar, sorted)
}

fn bytes_of_distribution(mixture: &Mixture) -> u64 {
    samples_of(mixture).saturating_mul(SAMPLE_BYTES)
}

/// Bytes of a sample without its buckets.
const READING_BYTES: u64 = size_of::<SeriesPoint>() as u64;
/// Memory is reserved in steps of this many bytes.
const MEMORY_STEP_BYTES: u64 = 64 << 10;

/// Memory of a read in progress; afterwards the caller accounts for it.
struct ReadMemory<'a> {
    context: &'a dyn QueryContext,
    bytes: u64,
}

impl ReadMemory<'_> {
    fn grow(&mut self, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        self.context.reserve_memory(bytes)
    }
}

impl Drop for ReadMemory<'_> {
    fn drop(&mut self) {
        self.context.release_memory(self.bytes);
    }
}

/// Sum of two values.
fn add_values(a: &StepValue, b: &StepValue) -> StepValue {
    match (a, b) {
        (StepValue::Number(a), StepValue::Number(b)) => StepValue::Number(a + b),
        (StepValue::Distribution(a), StepValue::Distribution(b)) => {
            let mut sum = Mixture::clone(a);
            for part in b.parts() {
                if sum.add(part).is_err() {
                    // More than 2^64 values at one timestamp: the first value is kept.
                    return StepValue::Distribution(Arc::clone(a));
                }
            }
            StepValue::Distribution(Arc::new(sum))
        }
        _ => a.clone(),
    }
}
