//! Query source backed by a store view.

mod classic_histograms;
mod samples_ahead;
mod store_number_groups;

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hist::Mixture;
use model::{Gap, Sample, Selector, SeriesKind};
use store::{
    HistogramIncrements, LastNumber, NumberAggregate, ReadView, SampleReader, SelectedSeries,
    TimeColumn, TimeGrid, WindowReader, WindowRows,
};

use self::classic_histograms::{BUCKET_BYTES, ClassicHistograms, is_classic};
use self::samples_ahead::SamplesAhead;
use self::store_number_groups::StoreNumberGroups;
use crate::classic_buckets::{bucket_count, columns_with_context};
use crate::compare::merge_error;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::histogram::FloatHistogram;
use crate::labels::{LabelSet, LabelTableBuilder, NAME};
use crate::limits::SAMPLE_BYTES;
use crate::source::{
    FreshCount, NumberGroups, SeriesHandle, Source, SourceRead, StoredMetric, WindowSource,
};
use crate::stream::SeriesPoint;
use crate::value::{StepValue, is_stale, samples_of};

/// Query source backed by a store view.
pub struct StoreSource<'a> {
    view: &'a ReadView,
    /// Selected series; handles are indices into this list.
    found: RwLock<Vec<SelectedSeries>>,
    classic: ClassicHistograms,
    context: &'a dyn QueryContext,
    /// Memory of the selected series, reserved until the source is dropped.
    series_bytes: AtomicU64,
    ahead: RwLock<Option<Arc<SamplesAhead>>>,
}

/// Memory of a selected series with its labels, about 500 bytes with eight labels.
const SERIES_BYTES: u64 = 512;

impl<'a> StoreSource<'a> {
    /// Source of a view.
    pub fn new(view: &'a ReadView) -> StoreSource<'a> {
        let (series_bytes, ahead) = Default::default();
        let (found, classic) = Default::default();
        StoreSource { view, found, classic, context: &|| false, series_bytes, ahead }
    }

    /// Sets the query's context, with which a long read stops when the query is cancelled or out of
    /// memory.
    pub fn with_context(mut self, context: &'a dyn QueryContext) -> StoreSource<'a> {
        self.context = context;
        self
    }

    /// Series of handles; those of a classic histogram are several.
    fn resolve_handles(&self, handles: &[&SeriesHandle]) -> Vec<SelectedSeries> {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        let stored = handles.iter().filter(|handle| !is_classic(handle));
        let mut all: Vec<SelectedSeries> = stored.map(|handle| found[handle.key]).collect();
        if handles.iter().any(|handle| is_classic(handle)) {
            all.extend(self.classic.series(handles).iter().map(|series| *series.as_ref()));
        }
        all
    }

    fn reserve_series(&self, bytes: u64) -> Result<()> {
        self.series_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.context.reserve_memory(bytes)
    }

    /// Rows of a classic histogram, without their values.
    fn read_classic_rows(
        &self,
        reader: &mut SampleReader<'_>,
        handle: &SeriesHandle,
    ) -> Result<SourceRead<SeriesPoint>> {
        let mut all = SourceRead { values: Vec::new(), gaps: Vec::new() };
        for series in self.classic.with_rows(handle) {
            let read = self.points(series.kind, |take| reader.samples(&series, take))?;
            all.values.extend(read.values);
            all.gaps.extend(read.gaps);
        }
        all.values.sort_by_key(|point| point.time);
        Ok(all)
    }

    /// Columns of distributions: those of the stored histograms, and of classic ones.
    fn distributions(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
        stored: &dyn Fn(&[SelectedSeries]) -> Result<SourceRead<Mixture>>,
    ) -> Result<SourceRead<Mixture>> {
        if !series.iter().any(|handle| is_classic(handle)) {
            return stored(&self.resolve_handles(series));
        }
        let classic = self.classic.series(series);
        let columns = columns_with_context(self.view, &classic, grid, self.context)?;
        let mut all = self.columns(columns, bytes_of_distribution)?;
        let others: Vec<&SeriesHandle> =
            series.iter().copied().filter(|handle| !is_classic(handle)).collect();
        if !others.is_empty() {
            let more = stored(&self.resolve_handles(&others))?;
            all.gaps.extend(more.gaps);
            for (sum, more) in all.values.iter_mut().zip(&more.values) {
                more.components()
                    .iter()
                    .try_for_each(|histogram| sum.add(histogram))
                    .map_err(merge_error)?;
            }
        }
        Ok(all)
    }

    fn replace_ahead(&self, ahead: Option<Arc<SamplesAhead>>) {
        let mut held = self.ahead.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = std::mem::replace(&mut *held, ahead) {
            self.context.release_memory(before.bytes());
        }
    }

    /// Samples of one series, which `read` passes one by one.
    fn points(
        &self,
        kind: SeriesKind,
        read: impl FnOnce(&mut dyn FnMut(Sample)) -> store::Result<Vec<Gap>>,
    ) -> Result<SourceRead<SeriesPoint>> {
        let mut values: Vec<SeriesPoint> = Vec::new();
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let (mut unaccounted, mut grown) = (0, Ok(()));
        let gaps = read(&mut |sample| {
            // The read cannot be stopped: data beyond the memory limit is dropped and the error is
            // returned afterwards.
            if grown.is_err() {
                return;
            }
            let value = match sample.value {
                model::SampleValue::Number(number) => StepValue::Number(number),
                model::SampleValue::Histogram(histogram) if kind.is_cumulative() => {
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
        let is_delta = !kind.is_cumulative() && kind != SeriesKind::Gauge;
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
        Ok(SourceRead { values, gaps })
    }

    fn columns<T, E>(
        &self,
        columns: impl Iterator<Item = std::result::Result<TimeColumn<T>, E>>,
        bytes: impl Fn(&T) -> u64,
    ) -> Result<SourceRead<T>>
    where
        Error: From<E>,
    {
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
        Ok(SourceRead { values, gaps })
    }
}

impl Drop for StoreSource<'_> {
    fn drop(&mut self) {
        self.end_read_ahead();
        self.context.release_memory(*self.series_bytes.get_mut());
    }
}

impl Source for StoreSource<'_> {
    /// In the order of their labels.
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let mut reserved: Option<Result<()>> = None;
        let mut labels = LabelTableBuilder::default();
        let mut selection: Vec<(SelectedSeries, String)> = Vec::new();
        self.view.each_key(selector, &mut |count, series| {
            let reserve = || self.reserve_series((count as u64).saturating_mul(SERIES_BYTES));
            if reserved.get_or_insert_with(reserve).is_err() {
                return ControlFlow::Break(());
            }
            let pairs = || series.labels().filter(|(name, _)| *name != NAME.as_bytes());
            let before_name = |(name, _): &(&[u8], _)| *name < NAME.as_bytes();
            let sorted = pairs()
                .take_while(before_name)
                .chain([(NAME.as_bytes(), series.name)])
                .chain(pairs().skip_while(before_name));
            labels.add_set(sorted);
            selection.push((series.selected, series.unit.to_owned()));
            ControlFlow::Continue(())
        });
        reserved.transpose()?;
        let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
        found.reserve(selection.len());
        let handle = |(at, labels): (usize, LabelSet)| {
            let (series, unit) = &mut selection[at];
            let (kind, unit, key) = (series.kind, std::mem::take(unit), found.len());
            found.push(*series);
            SeriesHandle { labels, kind, unit, key }
        };
        Ok(LabelSet::of_selection(labels).map(handle).collect())
    }

    fn bucket_count(&self, selector: &Selector) -> u64 {
        bucket_count(self.view, selector) as u64
    }

    fn add_classic(&self, selector: &Selector, found: &mut Vec<SeriesHandle>) -> Result<()> {
        // Under the name of counters, buckets are the counters as which they are stored.
        if found.iter().any(|handle| matches!(handle.kind, SeriesKind::Counter(_))) {
            return Ok(());
        }
        let buckets = self.bucket_count(selector);
        if buckets > 0 {
            self.reserve_series(buckets.saturating_mul(BUCKET_BYTES))?;
            self.classic.select(self.view, selector, found);
        }
        Ok(())
    }

    fn metrics(&self) -> Result<Vec<StoredMetric>> {
        let mut metrics: Vec<StoredMetric> = Vec::new();
        let mut known: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        let is_over = || self.context.is_cancelled();
        self.view.each_metric(&is_over, &mut |series| {
            let is_one = |metric: &StoredMetric| {
                metric.name.as_bytes() == series.name
                    && metric.unit == series.unit
                    && metric.kind == series.selected.kind
            };
            if !known.contains_key(series.name) {
                known.insert(series.name.to_vec(), Vec::new());
            }
            let Some(same) = known.get_mut(series.name) else {
                return ControlFlow::Continue(());
            };
            if !same.iter().any(|at| is_one(&metrics[*at])) {
                let name = String::from_utf8_lossy(series.name).into_owned();
                let (unit, kind) = (series.unit.to_owned(), series.selected.kind);
                metrics.push(StoredMetric { name, unit, kind });
                same.push(metrics.len() - 1);
            }
            ControlFlow::Continue(())
        });
        if self.context.is_cancelled() {
            return Err(Error::Timeout);
        }
        Ok(metrics)
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

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        // Mostly there is none, and which series are meant does not matter.
        match self.view.gaps(range).is_empty() {
            true => Vec::new(),
            false => self.view.gaps_of(&self.resolve_handles(series), range),
        }
    }

    fn select_count(&self, selector: &Selector) -> Result<u64> {
        Ok(self.view.series_count(selector) as u64)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.view.estimate_rows(series, range, step)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        let mut samples = SourceRead { values: Vec::new(), gaps: Vec::new() };
        self.each_samples(&[series], range, &mut |_, read| {
            samples = read;
            Ok(())
        })?;
        Ok(samples)
    }

    fn each_samples(
        &self,
        series: &[&SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, SourceRead<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        let ahead = self.ahead.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(ahead) = ahead.filter(|ahead| ahead.range == range)
            && let Some(positions) = ahead.positions_of(series)
        {
            for (at, (handle, position)) in series.iter().zip(positions).enumerate() {
                let samples = |take: &mut dyn FnMut(Sample)| Ok(ahead.rows.samples(position, take));
                each(at, self.points(handle.kind, samples)?)?;
            }
            return Ok(());
        }
        let mut reader = self.view.sample_reader(range);
        for (at, handle) in series.iter().enumerate() {
            if is_classic(handle) {
                each(at, self.read_classic_rows(&mut reader, handle)?)?;
                continue;
            }
            let found = self.found.read().unwrap_or_else(PoisonError::into_inner)[handle.key];
            each(at, self.points(found.kind, |take| reader.samples(&found, take))?)?;
        }
        Ok(())
    }

    fn read_ahead(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Result<()> {
        self.end_read_ahead();
        // The rows of a classic histogram are those of several series.
        if series.iter().any(|handle| is_classic(handle)) {
            return Ok(());
        }
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let found = self.resolve_handles(series);
        let rows = self.view.number_rows(&found, range, &mut |bytes| {
            memory.bytes + bytes <= AHEAD_BYTES_MAX && memory.try_grow(bytes)
        })?;
        drop(memory);
        let Some(rows) = rows else { return Ok(()) };
        let Some(ahead) = SamplesAhead::new(range.clone(), series, rows) else { return Ok(()) };
        if self.context.try_reserve_memory(ahead.bytes()) {
            self.replace_ahead(Some(Arc::new(ahead)));
        }
        Ok(())
    }

    fn end_read_ahead(&self) {
        self.replace_ahead(None);
    }

    fn count_fresh(&self, selector: &Selector, range: &Range<i64>) -> Result<Option<FreshCount>> {
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let mut grow = |bytes| memory.grow(bytes).is_ok();
        let Some(found) = self.view.select_distinct(selector, &mut grow) else { return Ok(None) };
        let Some(last) = self.view.last_numbers(&found, range, &mut grow)? else { return Ok(None) };
        // Whether the sum of deltas is a staleness marker depends on all of them.
        if last.iter().any(|last| matches!(last, LastNumber::Deltas(_))) {
            return Ok(None);
        }
        let is_fresh =
            |last: &&LastNumber| matches!(last, LastNumber::At(row) if !is_stale(row.value));
        let fresh = last.iter().filter(is_fresh).count() as u64;
        Ok(Some(FreshCount { selected: found.len() as u64, fresh }))
    }

    fn number_groups(
        &self,
        selector: &Selector,
        range: &Range<i64>,
        series_min: u64,
        keeps: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Box<dyn NumberGroups + '_>>> {
        let groups = match self.select_count(selector)? {
            count if count < series_min => None,
            count => StoreNumberGroups::select(self, (selector, count), range, keeps)?,
        };
        Ok(groups.map(|groups| Box::new(groups) as Box<dyn NumberGroups + '_>))
    }

    fn texts(&self, series: &SeriesHandle, range: Range<i64>) -> Result<Vec<(i64, String)>> {
        let found = self.resolve_handles(&[series]);
        let mut texts = Vec::new();
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let mut grown = Ok(());
        self.view.samples(&found[0], range, &mut |sample| {
            let model::SampleValue::Text(text) = sample.value else { return };
            if grown.is_ok() {
                grown = memory.grow(READING_BYTES + text.len() as u64);
                texts.push((sample.end, text));
            }
        })?;
        grown?;
        Ok(texts)
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        if is_classic(series) {
            return Ok((None, Vec::new()));
        }
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

    fn windows(&self, range: Range<i64>) -> Option<Box<dyn WindowSource + '_>> {
        let reader = self.view.window_reader(range.clone());
        Some(Box::new(StoreWindows { source: self, reader, range }))
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        self.distributions(series, grid, &|stored| {
            self.columns(self.view.histograms(stored, grid)?, bytes_of_distribution)
        })
    }

    fn histograms_by_start(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        self.distributions(series, grid, &|stored| {
            self.columns(self.view.histograms_by_start(stored, grid)?, bytes_of_distribution)
        })
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        let bytes = |_: &Option<NumberAggregate>| size_of::<Option<NumberAggregate>>() as u64;
        self.columns(self.view.numbers(&self.resolve_handles(series), grid)?, bytes)
    }
}

/// Maximum memory for samples that are read ahead.
const AHEAD_BYTES_MAX: u64 = 128 << 20;
/// Windows of a store view.
struct StoreWindows<'s> {
    source: &'s StoreSource<'s>,
    reader: WindowReader<'s>,
    range: Range<i64>,
}

impl WindowSource for StoreWindows<'_> {
    fn histogram(&self, series: &[&SeriesHandle]) -> Result<(Mixture, Option<WindowRows>)> {
        if self.source.context.is_cancelled() {
            return Err(Error::Timeout);
        }
        if series.iter().any(|handle| is_classic(handle)) {
            // Rows that arrive in between are not among these.
            let rows = self.rows(series);
            let Range { start, end } = self.range;
            let grid = TimeGrid { start, step: end.saturating_sub(start), columns: 1 };
            let values = self.source.histograms(series, grid)?.values;
            return Ok((values.into_iter().next().unwrap_or_default(), rows));
        }
        let found = self.reader.histogram(&self.source.resolve_handles(series))?;
        let mut memory = ReadMemory { context: self.source.context, bytes: 0 };
        memory.grow(bytes_of_distribution(&found.0))?;
        Ok(found)
    }

    fn rows(&self, series: &[&SeriesHandle]) -> Option<WindowRows> {
        self.reader.rows(&self.source.resolve_handles(series))
    }

    fn is_same(&self, before: &WindowRows, series: &[&SeriesHandle]) -> bool {
        self.reader.is_same(before, &self.source.resolve_handles(series))
    }
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

    /// Grows for a read that is not needed.
    fn try_grow(&mut self, bytes: u64) -> bool {
        let has_grown = self.context.try_reserve_memory(bytes);
        self.bytes += if has_grown { bytes } else { 0 };
        has_grown
    }
}

impl Drop for ReadMemory<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.context.release_memory(self.bytes);
        }
    }
}

/// Sum of two values.
fn add_values(a: &StepValue, b: &StepValue) -> StepValue {
    match (a, b) {
        (StepValue::Number(a), StepValue::Number(b)) => StepValue::Number(a + b),
        (StepValue::Distribution(a), StepValue::Distribution(b)) => {
            let mut sum = Mixture::clone(a);
            for part in b.components() {
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
