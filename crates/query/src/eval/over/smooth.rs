//! Selectors with `anchored` or `smoothed` that no function is applied to.

use std::sync::Arc;

use crate::error::{Error, Place, Result};
use crate::eval::Evaluation;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::plan::{Extension, Fetch, Ranged, RangedOf};
use crate::stream::{Reading, Readings, Steps, Stream};
use crate::value::Value;

use super::extend;
use super::rate::Growth;
use super::remark::{Remark, Remarks};
use super::window::{Cursors, Float, Histogram, Series, Window, until};

impl Evaluation<'_> {
    /// What lies at each step on the way from the reading before it to the one after it; after the last reading,
    /// that.
    pub(crate) fn smoothed(&mut self, fetch: &Fetch, steps: Steps) -> Result<Vec<Stream>> {
        let (of, place) = (RangedOf::Series(fetch.clone()), fetch.place);
        let ranged = Ranged { of, range: 0, of_counters: false, place };
        let lookback = self.settings.lookback;
        self.map_readings(&ranged, steps, &|evaluation, mut readings| {
            let labels = std::mem::take(&mut readings.labels);
            let series = Series::apart(readings, false);
            let mut cursors = Cursors::default();
            let mut remarks = Remarks::default();
            let point = |time: i64| {
                let moment = fetch.shift.apply(time);
                let (start, end) =
                    (moment.saturating_sub(lookback), moment.saturating_add(lookback));
                let (_, floats, histograms) = cursors.within(&series, start, end);
                match (floats, histograms) {
                    (floats, []) => number_at(floats, moment).map(Value::Number),
                    ([], histograms) => histogram_at(histograms, moment, &mut remarks)
                        .map(|found| Value::Histogram(Arc::new(found))),
                    _ => {
                        remarks.add(Remark::Mixed);
                        None
                    }
                }
            };
            let points = steps.times().map(point).collect();
            remarks.note(labels.name(), place, &mut evaluation.notes);
            let stream = Stream::new(labels, points);
            evaluation.budget.hold(stream.samples())?;
            Ok(Some(stream).filter(|stream| !stream.is_empty()))
        })
    }
}

fn number_at(floats: &[Float], moment: i64) -> Option<f64> {
    let next = until(floats, moment);
    let before = &floats[next.checked_sub(1)?];
    match floats.get(next) {
        Some(after) if before.time < moment => {
            let growth = Growth { is_counter: false, is_rate: false };
            Some(extend::interpolated(before, after, moment, growth))
        }
        _ => Some(before.value),
    }
}

fn histogram_at(
    histograms: &[Histogram],
    moment: i64,
    remarks: &mut Remarks,
) -> Option<FloatHistogram> {
    let next = until(histograms, moment);
    let before = &histograms[next.checked_sub(1)?];
    let mut held = FloatHistogram::clone(&before.value);
    match histograms.get(next) {
        _ if before.time == moment => Some(held),
        None => {
            // The hint is about two readings that follow each other, and here none follows.
            held.hint = ResetHint::Unknown;
            Some(held)
        }
        Some(after) => {
            let are_gauges =
                [before, after].iter().all(|point| point.value.hint == ResetHint::Gauge);
            let growth = Growth { is_counter: !are_gauges, is_rate: false };
            if before.value.grid.is_custom() != after.value.grid.is_custom() {
                remarks.add(Remark::ExponentialWithCustom);
                return None;
            }
            extend::between(before, after, moment, growth, remarks)
        }
    }
}

/// Readings of one stretch of time, with numbers at both of its ends.
pub(crate) fn stretched(
    readings: Readings,
    (start, end): (i64, i64),
    extension: Extension,
    place: Place,
) -> Result<Readings> {
    let (labels, drops_name) = (readings.labels.clone(), readings.drops_name);
    let series = Series::apart(readings, false);
    if !series.histograms.is_empty() {
        let word = if extension == Extension::Smoothed { "smoothed" } else { "anchored" };
        let message = format!("{word} modifier is not supported with histograms");
        return Err(Error::Execution { place, message });
    }
    let (floats, histograms) = (&series.floats[..], &[][..]);
    let (time, range, args) = (end, end.saturating_sub(start), &[][..]);
    let is_running = series.is_running;
    let window =
        Window { place, time, start, end, range, extension, floats, histograms, is_running, args };
    let reading =
        |time: i64, value: f64| Reading { start: None, time, value: Value::Number(value) };
    let readings = match extend::stretched(&window) {
        None => Vec::new(),
        Some((left, inner, right)) => [reading(start, left)]
            .into_iter()
            .chain(inner.map(|float| reading(float.time, float.value)))
            .chain([reading(end, right)])
            .collect(),
    };
    Ok(Readings { labels, drops_name, readings, is_running: false })
}
