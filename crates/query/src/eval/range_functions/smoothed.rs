//! Selectors with the modifier `anchored` or `smoothed`, without a function.

use std::sync::Arc;

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::{RangeExtension, RangeSelection, RangeSource, SeriesFetch};
use crate::stream::{SeriesPoint, SeriesPoints, StepGrid, Stream};
use crate::value::StepValue;

use super::extend;
use super::rate::GrowthKind;
use super::series_warnings::{SeriesWarning, SeriesWarnings};
use super::window::{
    FloatPoint, HistogramPoint, RangeWindow, SeriesSamples, WindowCursors, count_until,
};

impl Evaluation<'_> {
    /// Value at each step, interpolated between the samples before and after it; after the last
    /// sample, its value.
    pub(crate) fn smoothed_streams(
        &mut self,
        fetch: &SeriesFetch,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let (of, span) = (RangeSource::Series(fetch.clone()), fetch.span);
        let ranged = RangeSelection { source: of, range: 0, is_for_counters: false, span };
        let lookback = self.settings.lookback;
        self.map_samples(&ranged, steps, &|evaluation, mut samples| {
            let labels = std::mem::take(&mut samples.labels);
            let series = SeriesSamples::split(samples, false);
            let mut cursors = WindowCursors::default();
            let mut warnings = SeriesWarnings::default();
            let point = |time: i64| {
                let timestamp = fetch.shift.apply(time);
                let (start, end) =
                    (timestamp.saturating_sub(lookback), timestamp.saturating_add(lookback));
                let (_, floats, histograms) = cursors.advance(&series, start, end);
                match (floats, histograms) {
                    (floats, []) => number_at(floats, timestamp).map(StepValue::Number),
                    ([], histograms) => histogram_at(histograms, timestamp, &mut warnings)
                        .map(|found| StepValue::Histogram(Arc::new(found))),
                    _ => {
                        warnings.add(SeriesWarning::MixedFloatsHistograms);
                        None
                    }
                }
            };
            let points = steps.times().map(point).collect();
            warnings.emit(labels.name(), span, &mut evaluation.warnings);
            let stream = Stream::new(labels, points);
            evaluation.budget.charge_samples(stream.samples())?;
            Ok(Some(stream).filter(|stream| !stream.is_empty()))
        })
    }
}

fn number_at(floats: &[FloatPoint], timestamp: i64) -> Option<f64> {
    let next = count_until(floats, timestamp);
    let before = &floats[next.checked_sub(1)?];
    match floats.get(next) {
        Some(after) if before.time < timestamp => {
            let growth = GrowthKind { is_counter: false, is_rate: false };
            Some(extend::interpolate(before, after, timestamp, growth))
        }
        _ => Some(before.value),
    }
}

fn histogram_at(
    histograms: &[HistogramPoint],
    timestamp: i64,
    warnings: &mut SeriesWarnings,
) -> Option<FloatHistogram> {
    let next = count_until(histograms, timestamp);
    let before = &histograms[next.checked_sub(1)?];
    let mut copy = FloatHistogram::clone(&before.value);
    match histograms.get(next) {
        _ if before.time == timestamp => Some(copy),
        None => {
            // A reset hint is about two successive samples; these are not successive.
            copy.hint = ResetHint::Unknown;
            Some(copy)
        }
        Some(after) => {
            let are_gauges =
                [before, after].iter().all(|point| point.value.hint == ResetHint::Gauge);
            let growth = GrowthKind { is_counter: !are_gauges, is_rate: false };
            if before.value.grid.is_custom() != after.value.grid.is_custom() {
                warnings.add(SeriesWarning::ExponentialWithCustom);
                return None;
            }
            extend::interpolate_histograms(before, after, timestamp, growth, warnings)
        }
    }
}

/// Samples of one window, with floats at both boundaries.
pub(crate) fn interpolate_at_ends(
    samples: SeriesPoints,
    (start, end): (i64, i64),
    extension: RangeExtension,
    span: SourceSpan,
) -> Result<SeriesPoints> {
    let (labels, drops_name) = (samples.labels.clone(), samples.drops_name);
    let series = SeriesSamples::split(samples, false);
    if !series.histograms.is_empty() {
        let word = if extension == RangeExtension::Smoothed { "smoothed" } else { "anchored" };
        let message = format!("{word} modifier is not supported with histograms");
        return Err(Error::Execution { span, message });
    }
    let (floats, histograms) = (&series.floats[..], &[][..]);
    let (time, range, args) = (end, end.saturating_sub(start), &[][..]);
    let is_running = series.is_running_total;
    let window = RangeWindow {
        span,
        time,
        start,
        end,
        range,
        extension,
        floats,
        histograms,
        is_running_total: is_running,
        args,
    };
    let sample =
        |time: i64, value: f64| SeriesPoint { start: None, time, value: StepValue::Number(value) };
    let samples = match extend::interpolated_ends(&window) {
        None => Vec::new(),
        Some((left, inner, right)) => [sample(start, left)]
            .into_iter()
            .chain(inner.map(|float| sample(float.time, float.value)))
            .chain([sample(end, right)])
            .collect(),
    };
    Ok(SeriesPoints { labels, drops_name, points: samples, is_running_total: false })
}
