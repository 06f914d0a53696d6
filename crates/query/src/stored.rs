//! A store, as questions read it.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

use hist::Mixture;
use model::{Gap, Kind, Selector};
use store::{Column, Columns, Found, Grid, Summary, View};

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::histogram::FloatHistogram;
use crate::labels::{Labels, NAME};
use crate::limits::BYTES_OF_SAMPLE;
use crate::source::{Handle, Read, Source};
use crate::stream::Reading;
use crate::value::{Value, samples_of};

/// What a store has at one moment.
pub struct Stored<'a> {
    view: &'a View,
    /// What was picked: handles have places in it.
    found: Mutex<Vec<Arc<Found>>>,
    context: &'a dyn QueryContext,
}

impl<'a> Stored<'a> {
    /// Reads from a view.
    pub fn new(view: &'a View) -> Stored<'a> {
        Stored { view, found: Mutex::default(), context: &|| false }
    }

    /// Stops in the middle of a long read when nobody waits for it any more, or when there is no
    /// memory for it. Give it what the question has.
    pub fn within(self, context: &'a dyn QueryContext) -> Stored<'a> {
        Stored { context, ..self }
    }

    fn found(&self, handles: &[&Handle]) -> Vec<Found> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().map(|handle| Found::clone(&found[handle.key])).collect()
    }

    fn columns<T>(&self, columns: Columns<'_, T>, bytes: impl Fn(&T) -> u64) -> Result<Read<T>> {
        let (mut values, mut gaps) = (Vec::new(), Vec::new());
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        for column in columns {
            if self.context.is_over() {
                return Err(Error::Time);
            }
            let Column { value, gaps: missing, .. } = column?;
            memory.grow(bytes(&value))?;
            values.push(value);
            for gap in missing {
                if gaps.last() != Some(&gap) {
                    gaps.push(gap);
                }
            }
        }
        Ok(Read { values, gaps })
    }
}

impl Source for Stored<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<Handle>> {
        let picked = self.view.select(selector);
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = |picked: Found| {
            let series = &picked.series;
            let pairs = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = Labels::new(pairs.chain([(NAME, series.name())]));
            let (kind, unit, key) = (series.kind(), series.unit().to_owned(), found.len());
            found.push(Arc::new(picked));
            Handle { labels, kind, unit, key }
        };
        Ok(picked.into_iter().map(handle).collect())
    }

    fn extent(&self, series: &[Handle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        // A short range is read as fast as it is asked about.
        if range.end.saturating_sub(range.start) <= store::DAY {
            return Ok((range.start < range.end).then_some(range));
        }
        let found = self.found(&series.iter().collect::<Vec<_>>());
        let Some(extent) = self.view.stretch(&found)? else { return Ok(None) };
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

    fn rows_about(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.view.rows_about(series, range, step)
    }

    fn readings(&self, series: &Handle, range: Range<i64>) -> Result<Read<Reading>> {
        let found = self.found(&[series]);
        let mut values = Vec::new();
        let mut memory = ReadMemory { context: self.context, bytes: 0 };
        let (mut unaccounted, mut grown) = (0, Ok(()));
        let gaps = self.view.samples(&found[0], range, &mut |sample| {
            // There is no way to stop it: what there is no memory for is dropped, and then the
            // error told.
            if grown.is_err() {
                return;
            }
            let value = match sample.value {
                model::Value::Number(number) => Value::Number(number),
                model::Value::Histogram(histogram) if series.kind.is_cumulative() => {
                    Value::Histogram(Arc::new(FloatHistogram::from(&*histogram)))
                }
                model::Value::Histogram(histogram) => {
                    Value::Distribution(Arc::new(Mixture::from(*histogram)))
                }
                model::Value::Text(_) => return,
            };
            let start = (sample.start < sample.end).then_some(sample.start);
            unaccounted += READING_BYTES + value.samples().saturating_mul(BYTES_OF_SAMPLE);
            if unaccounted >= READ_BYTES_AT_ONCE {
                grown = memory.grow(std::mem::take(&mut unaccounted));
            }
            values.push(Reading { start, time: sample.end, value });
        });
        grown?;
        let gaps = gaps?;
        // Two samples of the same moment: deltas of several producers, or an instant that was measured twice.
        let is_delta = !series.kind.is_cumulative() && series.kind != Kind::Gauge;
        values.dedup_by(|later, held| {
            later.time == held.time && {
                held.value =
                    if is_delta { both(&held.value, &later.value) } else { later.value.clone() };
                true
            }
        });
        Ok(Read { values, gaps })
    }

    fn histograms(&self, series: &[&Handle], grid: Grid) -> Result<Read<Mixture>> {
        self.columns(self.view.histograms(&self.found(series), grid)?, bytes_of_distribution)
    }

    fn histograms_by_start(&self, series: &[&Handle], grid: Grid) -> Result<Read<Mixture>> {
        let columns = self.view.histograms_by_start(&self.found(series), grid)?;
        self.columns(columns, bytes_of_distribution)
    }

    fn numbers(&self, series: &[&Handle], grid: Grid) -> Result<Read<Option<Summary>>> {
        let bytes = |_: &Option<Summary>| size_of::<Option<Summary>>() as u64;
        self.columns(self.view.numbers(&self.found(series), grid)?, bytes)
    }
}

fn bytes_of_distribution(mixture: &Mixture) -> u64 {
    samples_of(mixture).saturating_mul(BYTES_OF_SAMPLE)
}

/// Bytes of a reading beside its buckets.
const READING_BYTES: u64 = size_of::<Reading>() as u64;
/// After so many bytes of readings memory is taken for them.
const READ_BYTES_AT_ONCE: u64 = 64 << 10;

/// Memory of a read while it goes on: afterwards whoever asked for it accounts for it.
struct ReadMemory<'a> {
    context: &'a dyn QueryContext,
    bytes: u64,
}

impl ReadMemory<'_> {
    fn grow(&mut self, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        self.context.grow(bytes)
    }
}

impl Drop for ReadMemory<'_> {
    fn drop(&mut self) {
        self.context.shrink(self.bytes);
    }
}

/// What happened in both.
fn both(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(a + b),
        (Value::Distribution(a), Value::Distribution(b)) => {
            let mut sum = Mixture::clone(a);
            for part in b.parts() {
                if sum.add(part).is_err() {
                    // More than 2^64 values at one moment: what was first stands.
                    return Value::Distribution(Arc::clone(a));
                }
            }
            Value::Distribution(Arc::new(sum))
        }
        _ => a.clone(),
    }
}
