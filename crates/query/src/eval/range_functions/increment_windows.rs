//! Growth of a cumulative histogram by its stored increments.
//!
//! The increase of a window is the sum of the increments between its first and its last sample,
//! which one pass over the series yields for all windows: each increment is added to dense counts
//! once and subtracted once. Counts are integers, so the result equals that of `rate.rs`, which
//! subtracts samples, as long as a total is at most 2^53.

use std::ops::Range;

use hist::codec::decoded_block::CountWindow;
use store::HistogramIncrements;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::histogram::{ResetHint, SchemeConversion};
use crate::labels::LabelSet;
use crate::plan::RangeExtension;
use crate::source::SeriesHandle;
use crate::stream::Stream;
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

    /// Growth at each step; `None` if there is none at any step.
    pub(super) fn growth(
        &self,
        evaluation: &Evaluation<'_>,
        labels: LabelSet,
        increments: &HistogramIncrements,
        growth: GrowthKind,
    ) -> Result<Option<Stream>> {
        let mut sums = IncrementSums::new(increments);
        let mut points: Vec<Option<StepValue>> = Vec::with_capacity(self.steps.count);
        let of = &self.call.input;
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
                Some(point) if of.shift().at.is_some() => point.clone(),
                _ => sums.growth(&window, growth),
            };
            points.push(point);
        }
        Ok(self.stream(evaluation, labels, false, points))
    }
}

/// Sums of increments in windows that move forwards.
struct IncrementSums<'a> {
    increments: &'a HistogramIncrements,
    conversion: SchemeConversion,
    /// Samples of the window.
    samples: Range<usize>,
    /// Samples whose increments are in `counts`.
    summed: Range<usize>,
    counts: CountWindow,
}

impl IncrementSums<'_> {
    fn new(increments: &HistogramIncrements) -> IncrementSums<'_> {
        IncrementSums {
            increments,
            conversion: SchemeConversion::new(increments.scheme(), increments.zero_threshold()),
            samples: 0..0,
            summed: 0..0,
            counts: increments.window(),
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
        self.sum(first + 1..last + 1);
        let mut increase = self.conversion.convert_window(&self.counts);
        let (count, sum) = self.count_and_sum(first, last);
        (increase.count, increase.sum, increase.hint) = (count, sum, ResetHint::Gauge);
        let zero = (count > 0.0).then(|| self.increments.totals()[first] as f64 / count);
        increase.mul(interval.factor(window, growth, zero));
        Some(StepValue::Histogram(increase.into()))
    }

    /// Sums the increments of some samples.
    fn sum(&mut self, samples: Range<usize>) {
        let held = self.summed.clone();
        let (gone, new) = (samples.start - held.start, samples.end - held.end);
        let overlaps = samples.start < held.end;
        if overlaps && gone + new < samples.len() {
            self.increments.add(held.end..samples.end, false, &mut self.counts);
            self.increments.add(held.start..samples.start, true, &mut self.counts);
        } else if samples != held {
            self.counts.clear();
            self.increments.add(samples.clone(), false, &mut self.counts);
        }
        self.summed = samples;
    }

    /// Number and sum of the values between two samples. Operations are done in the order of
    /// `rate.rs`: a sample before a reset is added to what follows.
    fn count_and_sum(&self, first: usize, last: usize) -> (f64, f64) {
        let (totals, sums) = (self.increments.totals(), self.increments.sums());
        let resets = self.increments.resets();
        let resets = &resets[resets.partition_point(|&at| at <= first)..];
        let resets = &resets[..resets.partition_point(|&at| at <= last)];
        let (mut count, mut sum) = (totals[last] as f64, sums[last]);
        if resets.first() != Some(&(first + 1)) {
            count -= totals[first] as f64;
            sum -= sums[first];
        }
        for &reset in resets.iter().filter(|&&reset| reset > first + 1) {
            count += totals[reset - 1] as f64;
            sum += sums[reset - 1];
        }
        (count, sum)
    }
}
