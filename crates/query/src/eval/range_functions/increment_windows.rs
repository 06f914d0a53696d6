//! GrowthKind of a cumulative histogram by its stored increments.
//!
//! The increase of a window is the sum of the increments between its first and its last sample,
//! which one pass over the series yields for all windows: each increment is added to dense counts
//! once and subtracted once. Counts are integers, so the result equals that of `rate.rs`, which
//! subtracts samples, as long as a total is at most 2^53.

use std::ops::Range;

use hist::codec::decoded_block::CountWindow;
use store::{DecodedChunks, HistogramIncrements, IncrementReader};

use crate::error::Result;
use crate::eval::Evaluation;
use crate::histogram::{ResetHint, SchemeConversion};
use crate::plan::RangeExtension;
use crate::source::SeriesHandle;
use crate::value::StepValue;

use super::rate::{GrowthKind, SampledInterval};
use super::window::RangeWindow;
use super::{RangeFunctionEval, STEPS_UNCHECKED};

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

    /// GrowthKind at each step; `None` if some increments are not supported.
    pub(super) fn growth(
        &self,
        evaluation: &mut Evaluation<'_>,
        increments: &HistogramIncrements,
        growth: GrowthKind,
    ) -> Result<Option<Vec<Option<StepValue>>>> {
        let mut decoded = std::mem::take(&mut evaluation.decoded_chunks);
        let of = &self.call.input;
        let is_fixed = of.shift().at.is_some();
        let is_single = is_fixed || self.steps.count == 1;
        let mut sums = IncrementSums::new(increments, &mut decoded, is_single);
        let mut points: Vec<Option<StepValue>> = Vec::with_capacity(self.steps.count);
        for (at, time) in self.steps.times().enumerate() {
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
            let point = match points.last() {
                // A fixed window is the same for all steps.
                Some(point) if is_fixed => point.clone(),
                _ => sums.growth(&window, growth),
            };
            points.push(point);
        }
        let is_supported = sums.is_supported;
        evaluation.decoded_chunks = decoded;
        Ok(is_supported.then_some(points))
    }
}

/// Sums of increments in windows that move forwards.
struct IncrementSums<'a> {
    increments: &'a HistogramIncrements,
    reader: IncrementReader<'a>,
    conversion: SchemeConversion,
    /// Samples of the window.
    samples: Range<usize>,
    /// Samples whose increments are in `counts`.
    summed: Range<usize>,
    counts: CountWindow,
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
            conversion: SchemeConversion::new(increments.scheme(), increments.zero_threshold()),
            samples: 0..0,
            summed: 0..0,
            counts: increments.window(),
            is_supported: true,
        }
    }

    fn growth(&mut self, window: &RangeWindow<'_>, growth: GrowthKind) -> Option<StepValue> {
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
        let Some((count, sum, before)) = self.sum(first, last) else {
            self.is_supported = false;
            return None;
        };
        let zero = (count > 0.0).then(|| before as f64 / count);
        let factor = interval.factor(window, growth, zero);
        let mut increase = self.conversion.convert_window(&self.counts, factor);
        (increase.count, increase.sum) = (count * factor, sum * factor);
        increase.hint = ResetHint::Gauge;
        Some(StepValue::Histogram(increase.into()))
    }

    /// Sums the increments between two samples. Returns the number and the sum of their values, and
    /// the number of values at the first sample; `None` if they cannot be read.
    fn sum(&mut self, first: usize, last: usize) -> Option<(f64, f64, u64)> {
        let (samples, held) = (first + 1..last + 1, self.summed.clone());
        let (gone, new) = (samples.start - held.start, samples.end - held.end);
        let overlaps = samples.start < held.end;
        self.reader.move_to(&samples);
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
        if !is_supported {
            return None;
        }
        let (count, sum) = self.count_and_sum(first, last)?;
        Some((count, sum, self.reader.total(first)?))
    }

    /// Number and sum of the values between two samples. Operations are done in the order of
    /// `rate.rs`: a sample before a reset is added to what follows.
    fn count_and_sum(&mut self, first: usize, last: usize) -> Option<(f64, f64)> {
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
        Some((count, sum))
    }
}
