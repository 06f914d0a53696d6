//! Rate of growth: `rate`, `increase` and `delta`, extrapolated to the boundaries of the window.

use std::sync::Arc;

use crate::histogram::{BucketGrid, FloatHistogram, ResetHint};
use crate::plan::RangeExtension;
use crate::stream::seconds;
use crate::value::StepValue;

use super::extend;
use super::series_warnings::{HistogramOperation, SeriesWarning, SeriesWarnings};
use super::window::{HasTime, HistogramPoint, RangeWindow};

/// Kind of growth: `rate`, `increase` or `delta`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrowthKind {
    /// A decrease is a counter reset.
    pub(super) is_counter: bool,
    /// Per second.
    pub(super) is_rate: bool,
}

impl GrowthKind {
    pub(crate) const RATE: GrowthKind = GrowthKind { is_counter: true, is_rate: true };
    pub(crate) const INCREASE: GrowthKind = GrowthKind { is_counter: true, is_rate: false };
    pub(crate) const DELTA: GrowthKind = GrowthKind { is_counter: false, is_rate: false };
}

pub(super) fn compute_growth(
    window: &RangeWindow<'_>,
    growth: GrowthKind,
    warnings: &mut SeriesWarnings,
) -> Option<StepValue> {
    if window.is_mixed() {
        warnings.add(SeriesWarning::MixedFloatsHistograms);
        return None;
    }
    match (window.extension, window.histograms.is_empty()) {
        (RangeExtension::None, true) => {
            float_growth(window, growth, warnings).map(StepValue::Number)
        }
        (RangeExtension::None, false) => histogram_growth(window, growth, warnings),
        (_, true) => extend::float_growth(window, growth).map(StepValue::Number),
        (_, false) => extend::histogram_growth(window, growth, warnings),
    }
}

fn float_growth(
    window: &RangeWindow<'_>,
    growth: GrowthKind,
    warnings: &mut SeriesWarnings,
) -> Option<f64> {
    let floats = window.floats;
    let (first, last) = (floats.first()?, floats.last()?);
    let mut increase = last.value - first.value;
    if growth.is_counter {
        for pair in floats.windows(2) {
            let (earlier, later) = (&pair[0], &pair[1]);
            if later.overlaps(earlier) {
                warnings.add(SeriesWarning::StartOverlap);
            }
            if later.value < earlier.value || later.is_restart_after(earlier) {
                increase += earlier.value;
            }
        }
    }
    let span = SampledInterval::from_points(window, floats, growth, first.start)?;
    if span.is_from_start {
        increase += first.value;
    }
    let has_zero = !window.is_running_total && increase > 0.0 && first.value >= 0.0;
    let first_to_growth = has_zero.then(|| first.value / increase);
    Some(increase * span.factor(window, growth, first_to_growth))
}

fn histogram_growth(
    window: &RangeWindow<'_>,
    growth: GrowthKind,
    warnings: &mut SeriesWarnings,
) -> Option<StepValue> {
    let histograms = window.histograms;
    let first = histograms.first()?;
    let mut increase = match histograms.len() {
        1 => None,
        _ => Some(difference(histograms, growth.is_counter, warnings)?),
    };
    let span = SampledInterval::from_points(window, histograms, growth, first.start)?;
    if span.is_from_start {
        match &mut increase {
            None => increase = Some(FloatHistogram::clone(&first.value)),
            Some(increase) => add(increase, &first.value, warnings)?,
        }
    }
    let mut increase = increase?;
    let has_zero = !window.is_running_total && increase.count > 0.0 && first.value.count >= 0.0;
    let first_to_growth = has_zero.then(|| first.value.count / increase.count);
    increase.mul(span.factor(window, growth, first_to_growth));
    Some(StepValue::Histogram(Arc::new(increase)))
}

/// Interval covered by the samples of a window.
pub(super) struct SampledInterval {
    /// Seconds from the first sample, or its start timestamp, to the last sample.
    length: f64,
    /// Whether it starts at the start timestamp of the first sample.
    is_from_start: bool,
    to_start: f64,
    to_end: f64,
    /// Mean distance of samples; 0 for a single sample.
    interval: f64,
}

impl SampledInterval {
    /// `None` if growth is unknown: for a single sample without a start timestamp.
    fn from_points<T: HasTime>(
        window: &RangeWindow<'_>,
        points: &[T],
        growth: GrowthKind,
        first_start: i64,
    ) -> Option<SampledInterval> {
        let (first, last) = (points.first()?.time(), points.last()?.time());
        SampledInterval::new(window, (first, last), points.len() - 1, growth, first_start)
    }

    /// The same for the times of the first and last sample, `between` intervals apart.
    pub(super) fn new(
        window: &RangeWindow<'_>,
        (first, last): (i64, i64),
        between: usize,
        growth: GrowthKind,
        first_start: i64,
    ) -> Option<SampledInterval> {
        let length = seconds(last.saturating_sub(first));
        let interval = if between > 0 { length / between as f64 } else { 0.0 };
        let to_end = seconds(window.end.saturating_sub(last));
        // The start timestamp of the first sample counts as a sample of 0 if it is within the
        // window.
        if growth.is_counter && window.start < first_start && first_start < first {
            let length = seconds(last.saturating_sub(first_start));
            return Some(SampledInterval {
                length,
                is_from_start: true,
                to_start: 0.0,
                to_end,
                interval,
            });
        }
        let to_start = seconds(first.saturating_sub(window.start));
        (between > 0).then_some(SampledInterval {
            length,
            is_from_start: false,
            to_start,
            to_end,
            interval,
        })
    }

    /// Extrapolation factor of the growth. If the distance of a boundary from the nearest sample is
    /// below 1.1 times the mean sample distance, growth extends to the boundary; otherwise for half
    /// of the mean distance. A counter is not extrapolated below zero: `first_to_growth` is its
    /// first value relative to its growth.
    pub(super) fn factor(
        &self,
        window: &RangeWindow<'_>,
        growth: GrowthKind,
        first_to_growth: Option<f64>,
    ) -> f64 {
        let threshold = self.interval * 1.1;
        let (mut to_start, mut to_end) = (self.to_start, self.to_end);
        if !self.is_from_start {
            if to_start >= threshold {
                to_start = self.interval / 2.0;
            }
            if let Some(ratio) = first_to_growth.filter(|_| growth.is_counter) {
                let to_zero = self.length * ratio;
                if to_zero < to_start {
                    to_start = to_zero;
                }
            }
        }
        if to_end >= threshold {
            to_end = self.interval / 2.0;
        }
        let mut factor = 1.0;
        if self.length != 0.0 {
            factor = (self.length + to_start + to_end) / self.length;
        }
        if growth.is_rate {
            factor /= window.seconds();
        }
        factor
    }
}

/// Difference of the last and the first sample; there are at least two.
fn difference(
    histograms: &[HistogramPoint],
    is_counter: bool,
    warnings: &mut SeriesWarnings,
) -> Option<FloatHistogram> {
    let [first, second, ..] = histograms else { return None };
    let last = &histograms[histograms.len() - 1];
    let is_gauge = |point: &HistogramPoint| point.value.hint == ResetHint::Gauge;
    // The gauge warning concerns only the first and last sample, even if others are incompatible.
    if is_counter && (is_gauge(first) || is_gauge(last)) {
        warnings.add(SeriesWarning::NotCounter);
    }
    // A first sample before a reset does not count, so its buckets may differ.
    let is_reset = |later: &HistogramPoint, earlier: &HistogramPoint, before: &FloatHistogram| {
        later.is_restart_after(earlier) || later.value.detect_reset(before)
    };
    let empty;
    let begin: &FloatHistogram = if is_counter && is_reset(second, first, &first.value) {
        empty = FloatHistogram { grid: second.value.grid.clone(), ..FloatHistogram::default() };
        &empty
    } else {
        &first.value
    };
    let is_custom = begin.grid.is_custom();
    if last.value.grid.is_custom() != is_custom {
        warnings.add(SeriesWarning::ExponentialWithCustom);
        return None;
    }
    let mut new_warnings = SeriesWarnings::default();
    let mut coarsest = schema_of(&begin.grid).min(schema_of(&last.value.grid));
    if is_counter {
        for between in &histograms[1..histograms.len() - 1] {
            if is_gauge(between) {
                new_warnings.add(SeriesWarning::NotCounter);
            }
            coarsest = coarsest.min(schema_of(&between.value.grid));
            if between.value.grid.is_custom() != is_custom {
                warnings.add(SeriesWarning::ExponentialWithCustom);
                return None;
            }
        }
    }
    let mut increase = FloatHistogram::clone(&last.value);
    increase.reduce(coarsest);
    let combined = increase.sub(begin);
    let combined = combined.map_err(|error| warnings.add(error.into())).ok()?;
    new_warnings.add_reconciled(combined, HistogramOperation::Subtraction);
    if is_counter {
        let mut before = begin;
        for pair in histograms.windows(2) {
            let (earlier, later) = (&pair[0], &pair[1]);
            if later.overlaps(earlier) {
                new_warnings.add(SeriesWarning::StartOverlap);
            }
            if is_reset(later, earlier, before) {
                let combined = increase.add(before);
                let combined = combined.map_err(|error| warnings.add(error.into())).ok()?;
                new_warnings.add_reconciled(combined, HistogramOperation::Addition);
            }
            before = &later.value;
        }
    } else if !is_gauge(first) || !is_gauge(last) {
        new_warnings.add(SeriesWarning::NotGauge);
    }
    warnings.append(new_warnings);
    increase.hint = ResetHint::Gauge;
    Some(increase)
}

/// Schema of an exponential grid; for other grids, a value that no schema exceeds.
fn schema_of(grid: &BucketGrid) -> i32 {
    match grid {
        BucketGrid::Exponential(schema) => *schema,
        _ => i32::MAX,
    }
}

/// Adds a histogram, or returns the reason why it is incompatible.
pub(super) fn add(
    sum: &mut FloatHistogram,
    more: &FloatHistogram,
    warnings: &mut SeriesWarnings,
) -> Option<()> {
    let combined = sum.add(more).map_err(|error| warnings.add(error.into())).ok()?;
    warnings.add_reconciled(combined, HistogramOperation::Addition);
    Some(())
}

/// Subtracts a histogram, or returns the reason why it is incompatible.
pub(super) fn sub(
    from: &mut FloatHistogram,
    less: &FloatHistogram,
    warnings: &mut SeriesWarnings,
) -> Option<()> {
    let combined = from.sub(less).map_err(|error| warnings.add(error.into())).ok()?;
    warnings.add_reconciled(combined, HistogramOperation::Subtraction);
    Some(())
}
