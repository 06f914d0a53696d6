//! Growth of a cumulative histogram by its stored increments. *Growth* is the result of `rate`,
//! `increase` or `delta` (Prometheus: extrapolated rate); an *increase* is a sum of increments.
//!
//! The increase of a window is the sum of the increments between its first and its last sample,
//! which one pass over the series yields for all windows: each increment is added to dense counts
//! once and subtracted once. Counts are integers, so the result equals that of `rate.rs`, which
//! subtracts samples, as long as a total is at most 2^53.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use hist::codec::decoded_block::DenseCounts;
use store::{DecodedChunks, HistogramIncrements, IncrementReader};

use crate::error::Result;
use crate::eval::Evaluation;
use crate::eval::series::SeriesGroup;
use crate::histogram::{DenseSum, ResetHint, SchemeConversion};
use crate::labels::LabelSet;
use crate::limits::SAMPLE_BYTES;
use crate::plan::RangeExtension;
use crate::source::SeriesHandle;
use crate::stream::Stream;
use crate::value::StepValue;

use super::rate::{GrowthKind, SampledInterval};
use super::window::RangeWindow;
use super::{RangeFunctionEval, STEPS_UNCHECKED, WindowFn};

/// Maps the growth of a histogram at each step as soon as it is known. The histograms of all steps
/// together take memory that the kernel clears, a quarter of the time of a query.
pub(crate) struct GrowthMapper<'m> {
    map: &'m mut dyn FnMut(&LabelSet, usize, StepValue) -> StepValue,
    /// Whether the streams are of mapped values.
    pub(crate) is_used: bool,
}

impl<'m> GrowthMapper<'m> {
    /// Mapper by labels of the series, step and growth.
    pub(crate) fn new(
        map: &'m mut dyn FnMut(&LabelSet, usize, StepValue) -> StepValue,
    ) -> GrowthMapper<'m> {
        GrowthMapper { map, is_used: false }
    }
}

impl RangeFunctionEval<'_> {
    /// Increments of a series if they give the same result as its samples.
    pub(super) fn increments(
        &self,
        evaluation: &mut Evaluation<'_>,
        handles: &[SeriesHandle],
        range: &Range<i64>,
        growth: GrowthKind,
    ) -> Result<Option<HistogramIncrements>> {
        if !growth.is_counter || self.call.input.extension() != RangeExtension::None {
            return Ok(None);
        }
        let increments = evaluation.increments(handles, range)?;
        let uses_starts = self.kernel.uses_starts && evaluation.settings.start_timestamps;
        Ok(increments.filter(|increments| !(uses_starts && increments.has_starts())))
    }

    /// Growth at each step, mapped; `None` if some increments are not supported.
    pub(super) fn growth(
        &self,
        evaluation: &mut Evaluation<'_>,
        increments: &HistogramIncrements,
        growth: GrowthKind,
        map: &mut dyn FnMut(usize, StepValue) -> StepValue,
    ) -> Result<Option<Vec<Option<StepValue>>>> {
        let conversion = SchemeConversion::new(increments.scheme(), increments.zero_threshold());
        let mut points = vec![None; self.steps.count];
        let is_supported =
            self.each_growth(evaluation, increments, growth, &mut |at, mut grown| {
                let (count, sum, factor) = (grown.count, grown.sum, grown.factor);
                let Some(counts) = grown.counts() else { return false };
                let mut increase = conversion.convert_window(counts, factor);
                (increase.count, increase.sum) = (count * factor, sum * factor);
                increase.hint = ResetHint::Gauge;
                points[at] = Some(map(at, StepValue::Histogram(increase.into())));
                true
            })?;
        if let Some((first, others)) = points.split_first_mut()
            && self.has_fixed_window()
        {
            others.fill(first.clone());
        }
        Ok(is_supported.then_some(points))
    }

    /// Stream of the mapped growth of a series; `None` unless it has increments.
    pub(super) fn mapped(
        &self,
        evaluation: &mut Evaluation<'_>,
        (labels, handles): &SeriesGroup,
        range: &Range<i64>,
        mapper: &mut GrowthMapper<'_>,
    ) -> Result<Option<Vec<Stream>>> {
        let WindowFn::Growth(growth) = self.kernel.work else { return Ok(None) };
        if self.has_fixed_window() {
            return Ok(None);
        }
        let gaps_before = evaluation.gaps.len();
        let Some(increments) = self.increments(evaluation, handles, range, growth)? else {
            return Ok(None);
        };
        let held = increments.held_bytes() as u64 / SAMPLE_BYTES;
        evaluation.budget.charge_samples(held)?;
        let map = &mut |at, value| (mapper.map)(labels, at, value);
        let points = self.growth(evaluation, &increments, growth, map)?;
        evaluation.budget.release_samples(held);
        let Some(points) = points else {
            evaluation.gaps.truncate(gaps_before);
            return Ok(None);
        };
        mapper.is_used = true;
        let stream = self.stream(evaluation, labels.clone(), false, points);
        let streams: Vec<Stream> = stream.into_iter().collect();
        evaluation.retain(&streams, self.steps, &AtomicUsize::new(0))?;
        Ok(Some(streams))
    }

    /// Whether the window is the same for all steps.
    pub(super) fn has_fixed_window(&self) -> bool {
        self.call.input.shift().at.is_some()
    }

    /// Passes the growth at each step, of a fixed window only at the first one. False if some
    /// increments are not supported, or once the closure returns false.
    pub(super) fn each_growth(
        &self,
        evaluation: &mut Evaluation<'_>,
        increments: &HistogramIncrements,
        growth: GrowthKind,
        each: &mut dyn FnMut(usize, WindowGrowth<'_, '_>) -> bool,
    ) -> Result<bool> {
        let mut decoded = std::mem::take(&mut evaluation.decoded_chunks);
        let of = &self.call.input;
        let windows = if self.has_fixed_window() { 1 } else { self.steps.count };
        let mut sums = IncrementSums::new(increments, &mut decoded, windows == 1);
        sums.are_disjoint = windows == 1 || of.range <= self.steps.step;
        let mut is_supported = true;
        for (at, time) in self.steps.times().enumerate().take(windows) {
            if at % STEPS_UNCHECKED == 0 {
                evaluation.budget.check_deadline()?;
            }
            let end = of.shift().apply(time);
            let window = RangeWindow {
                span: self.span,
                time,
                start: end.saturating_sub(of.range),
                end,
                range: of.range,
                extension: RangeExtension::None,
                floats: &[],
                histograms: &[],
                is_running_total: false,
                args: &[],
            };
            let grown = sums.growth(&window, growth);
            is_supported = grown.is_none_or(|grown| each(at, grown)) && sums.is_supported;
            if !is_supported {
                break;
            }
        }
        evaluation.decoded_chunks = decoded;
        Ok(is_supported)
    }
}

/// Sums of increments in windows that move forwards.
struct IncrementSums<'a> {
    increments: &'a HistogramIncrements,
    reader: IncrementReader<'a>,
    /// Samples of the window.
    samples: Range<usize>,
    /// Samples whose increments are in `counts`.
    summed: Range<usize>,
    counts: DenseCounts,
    /// Whether no sample is in two windows.
    are_disjoint: bool,
    /// Whether all increments so far could be read.
    is_supported: bool,
}

impl<'a> IncrementSums<'a> {
    fn new(
        increments: &'a HistogramIncrements,
        decoded: &'a mut DecodedChunks,
        is_single: bool,
    ) -> IncrementSums<'a> {
        IncrementSums {
            increments,
            reader: IncrementReader::new(increments, decoded, is_single),
            samples: 0..0,
            summed: 0..0,
            counts: increments.window(),
            are_disjoint: false,
            is_supported: true,
        }
    }

    fn growth(
        &mut self,
        window: &RangeWindow<'_>,
        growth: GrowthKind,
    ) -> Option<WindowGrowth<'_, 'a>> {
        let times = self.increments.times();
        let Range { start, end } = &mut self.samples;
        while times.get(*end).is_some_and(|&time| time <= window.end) {
            *end += 1;
        }
        while *start < *end && times[*start] <= window.start {
            *start += 1;
        }
        let (first, last) = (self.samples.start, self.samples.end.checked_sub(1)?);
        if first >= last {
            return None;
        }
        let interval = SampledInterval::new(
            window,
            (times[first], times[last]),
            last - first,
            growth,
            times[first],
        )?;
        let samples = first + 1..last + 1;
        self.reader.move_to(&samples);
        let Some((count, sum, before)) = self.totals(first, last) else {
            self.is_supported = false;
            return None;
        };
        let first_to_growth = (count > 0.0).then(|| before as f64 / count);
        let factor = interval.factor(window, growth, first_to_growth);
        Some(WindowGrowth { sums: self, samples, count, sum, factor })
    }

    /// Sums the increments of some samples in `counts`; false if they cannot be read.
    fn sum(&mut self, samples: Range<usize>) -> bool {
        let held = self.summed.clone();
        let (gone, new) = (samples.start - held.start, samples.end - held.end);
        let overlaps = samples.start < held.end;
        let (reader, counts) = (&mut self.reader, &mut self.counts);
        let is_supported = if overlaps && gone + new < samples.len() {
            reader.add(held.start..samples.start, true, counts)
                && reader.add(held.end..samples.end, false, counts)
        } else if samples != held {
            counts.clear();
            reader.add(samples.clone(), false, counts)
        } else {
            true
        };
        self.summed = samples;
        is_supported
    }

    /// Number and sum of the values between two samples, and the number of values at the first
    /// one; `None` if they cannot be read. Operations are done in the order of `rate.rs`: a sample
    /// before a reset is added to what follows.
    fn totals(&mut self, first: usize, last: usize) -> Option<(f64, f64, u64)> {
        let sums = self.increments.sums();
        let resets = self.increments.resets();
        let resets = &resets[resets.partition_point(|&at| at <= first)..];
        let resets = &resets[..resets.partition_point(|&at| at <= last)];
        let (mut count, mut sum) = (self.reader.total(last)? as f64, sums[last]);
        if resets.first() != Some(&(first + 1)) {
            count -= self.reader.total(first)? as f64;
            sum -= sums[first];
        }
        for &reset in resets.iter().filter(|&&reset| reset > first + 1) {
            count += self.reader.total(reset - 1)? as f64;
            sum += sums[reset - 1];
        }
        Some((count, sum, self.reader.total(first)?))
    }
}

/// Growth within a window: its counts, their number and sum have to be multiplied by the factor.
pub(super) struct WindowGrowth<'s, 'a> {
    sums: &'s mut IncrementSums<'a>,
    samples: Range<usize>,
    count: f64,
    sum: f64,
    factor: f64,
}

impl WindowGrowth<'_, '_> {
    /// Counts; `None` if they cannot be read.
    fn counts(&mut self) -> Option<&DenseCounts> {
        self.sums.sum(self.samples.clone()).then_some(&self.sums.counts)
    }

    /// Adds the growth to a sum; false if that is not possible, after which the sum is undefined.
    #[must_use]
    pub(super) fn add_to(mut self, sum: &mut DenseSum) -> bool {
        let (count, factor) = (self.count, self.factor);
        sum.add_totals(count * factor, self.sum * factor);
        let is_added = match sum.integer_counts(count, factor) {
            Some(integers) if self.sums.are_disjoint => {
                integers.extend_to_window(&self.sums.counts)
                    && self.sums.reader.add(self.samples, false, integers)
            }
            Some(integers) => self.counts().is_some_and(|counts| integers.add_window(counts)),
            None => self.counts().map(|counts| sum.add_counts(counts, factor)).is_some(),
        };
        is_added && sum.is_bounded()
    }
}
