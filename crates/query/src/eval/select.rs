//! Reads series: the latest reading at each step, and readings of stretches of time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::Kind;

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::labels::{Labels, TYPE, UNIT};
use crate::plan::{Extension, Fetch, Ranged, RangedOf};
use crate::source::Handle;
use crate::stream::{Reading, Readings, Steps, Stream};
use crate::value::{Value, is_stale};

/// Takes the readings of one series, and which of how many it is.
pub(crate) type EachReadings<'a> = dyn FnMut(&mut Evaluation<'_>, Readings) -> Result<()> + 'a;

impl Evaluation<'_> {
    /// The latest reading of each series at each step.
    pub(crate) fn latest(&mut self, fetch: &Fetch, steps: Steps) -> Result<Vec<Stream>> {
        if fetch.extension == Extension::Smoothed {
            return self.smoothed(fetch, steps);
        }
        self.latest_by(fetch, steps, |_, reading| Some(reading.value.clone()))
    }

    /// Something of the latest reading of each series at each step.
    pub(crate) fn latest_by(
        &mut self,
        fetch: &Fetch,
        steps: Steps,
        of: impl Fn(i64, &Reading) -> Option<Value>,
    ) -> Result<Vec<Stream>> {
        let lookback = self.settings.lookback;
        let range =
            fetch.shift.apply(steps.start).saturating_sub(lookback)..fetch.shift.apply(steps.end());
        let mut streams = Vec::new();
        for (labels, handles) in self.series(fetch)? {
            let readings = self.fetched(fetch, &handles, range.clone())?;
            let mut points = Vec::with_capacity(steps.count);
            let mut next = 0;
            for time in steps.times() {
                let moment = fetch.shift.apply(time);
                next = advance(&readings, next, moment);
                let latest = next.checked_sub(1).map(|at| &readings[at]);
                let latest =
                    latest.filter(|reading| reading.time > moment.saturating_sub(lookback));
                let latest = latest.filter(|reading| !is_mark(&reading.value));
                points.push(latest.and_then(|reading| of(time, reading)));
            }
            let stream = Stream::new(labels, points);
            if !stream.is_empty() {
                self.budget.hold(stream.samples())?;
                streams.push(stream);
            }
        }
        Ok(streams)
    }

    /// Gives the readings of each series that some step's stretch of time may have, and what its extension needs.
    /// Marks that a series is no more are left out.
    pub(crate) fn each_readings(
        &mut self,
        ranged: &Ranged,
        steps: Steps,
        each: &mut EachReadings<'_>,
    ) -> Result<()> {
        let fetch = match &ranged.of {
            RangedOf::Subquery { .. } => {
                return self.each_of_subquery(ranged, steps, each);
            }
            RangedOf::Series(fetch) => fetch,
        };
        let lookback = self.settings.lookback;
        let (before, after) = match fetch.extension {
            Extension::None => (0, 0),
            Extension::Anchored => (lookback, 0),
            Extension::Smoothed => (lookback, lookback),
        };
        let first = fetch.shift.apply(steps.start).saturating_sub(ranged.range);
        let range =
            first.saturating_sub(before)..fetch.shift.apply(steps.end()).saturating_add(after);
        for (labels, handles) in self.series(fetch)? {
            let mut readings = self.fetched(fetch, &handles, range.clone())?;
            readings.retain(|reading| !is_mark(&reading.value));
            let is_delta = |handle: &Handle| match handle.kind {
                Kind::Histogram(_) | Kind::Counter(_) => !handle.kind.is_cumulative(),
                Kind::Gauge | Kind::Text => false,
            };
            if ranged.of_counters && handles.iter().any(is_delta) {
                run_total(&mut readings);
            }
            let held: u64 = readings.iter().map(|reading| reading.value.samples()).sum();
            self.budget.hold(held)?;
            each(self, Readings { labels, drops_name: false, readings })?;
            self.budget.release(held);
        }
        Ok(())
    }

    /// The series that are meant, by labels: numbers and distributions of the same labels are one.
    pub(crate) fn series(&mut self, fetch: &Fetch) -> Result<BTreeMap<Labels, Vec<Handle>>> {
        let handles = self.source.select(&fetch.selector)?;
        self.budget.series(handles.len())?;
        let mut series: BTreeMap<Labels, Vec<Handle>> = BTreeMap::new();
        for mut handle in handles {
            if handle.kind == Kind::Text {
                continue;
            }
            if self.settings.type_and_unit_labels {
                handle.labels = typed(&handle);
            }
            series.entry(handle.labels.clone()).or_default().push(handle);
        }
        for (labels, handles) in &series {
            let [first, second, ..] = &handles[..] else { continue };
            let both = handles.iter().filter(|handle| matches!(handle.kind, Kind::Histogram(_)));
            let distributions = both.count();
            if distributions > 1 || handles.len() - distributions > 1 {
                let (first, second) = (described(first), described(second));
                let message = format!(
                    "{labels} is measured twice, as {first} and as {second}: \
                     say which with __unit or __kind, as in {{__kind=\"gauge\"}}"
                );
                return Err(Error::Execution { place: fetch.place, message });
            }
        }
        Ok(series)
    }

    fn fetched(
        &mut self,
        fetch: &Fetch,
        handles: &[Handle],
        range: Range<i64>,
    ) -> Result<Vec<Reading>> {
        let mut readings = self.readings(handles, range)?;
        if fetch.looks_for_resets {
            look_for_resets(&mut readings);
        }
        Ok(readings)
    }

    /// Readings of series of the same labels, by time.
    pub(crate) fn readings(
        &mut self,
        handles: &[Handle],
        range: Range<i64>,
    ) -> Result<Vec<Reading>> {
        self.budget.check()?;
        let mut readings = Vec::new();
        for handle in handles {
            let read = self.source.readings(handle, range.clone())?;
            self.gaps.extend(read.gaps);
            match readings.is_empty() {
                true => readings = read.values,
                false => readings.extend(read.values),
            }
        }
        if handles.len() > 1 {
            readings.sort_by_key(|reading| reading.time);
        }
        Ok(readings)
    }
}

/// Says of each histogram whether its counter began anew after the one before.
fn look_for_resets(readings: &mut [Reading]) {
    let mut before: Option<Arc<FloatHistogram>> = None;
    for reading in readings {
        let Value::Histogram(histogram) = &mut reading.value else { continue };
        let original = Arc::clone(histogram);
        let is_reset = before.filter(|_| histogram.hint == ResetHint::Unknown);
        if let Some(is_reset) = is_reset.map(|before| histogram.detect_reset(&before)) {
            let hint = if is_reset { ResetHint::Reset } else { ResetHint::NotReset };
            Arc::make_mut(histogram).hint = hint;
        }
        before = Some(original);
    }
}

/// Makes of what happened between readings what a counter would show that began before the first of them.
/// Functions of counters look at differences alone.
fn run_total(readings: &mut [Reading]) {
    let mut numbers = 0.0;
    let mut histogram: Option<FloatHistogram> = None;
    for reading in readings {
        reading.start = None;
        match reading.value.histogram() {
            None => {
                numbers += reading.value.number().unwrap_or(0.0);
                reading.value = Value::Number(numbers);
            }
            Some(more) => {
                let total = match &mut histogram {
                    None => histogram.insert(FloatHistogram::clone(&more)),
                    Some(total) => {
                        // Of another family of buckets: a counter that begins anew.
                        if total.add(&more).is_err() {
                            *total = FloatHistogram::clone(&more);
                        }
                        total
                    }
                };
                total.hint = ResetHint::Unknown;
                reading.value = Value::Histogram(Arc::new(total.clone()));
            }
        }
    }
}

/// How many readings were made until a moment; `from` were until an earlier one. With a fixed moment it stays.
pub(crate) fn advance(readings: &[Reading], from: usize, moment: i64) -> usize {
    let from = if from > 0 && readings[from - 1].time > moment { 0 } else { from };
    from + readings[from..].iter().take_while(|reading| reading.time <= moment).count()
}

/// Whether a reading only says that the series is no more.
pub(crate) fn is_mark(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_stale(*number),
        Value::Histogram(histogram) => is_stale(histogram.sum),
        Value::Bracket(_) | Value::Distribution(_) => false,
    }
}

fn typed(handle: &Handle) -> Labels {
    let kind = match handle.kind {
        Kind::Histogram(_) => "histogram",
        Kind::Counter(_) => "counter",
        Kind::Gauge => "gauge",
        Kind::Text => "",
    };
    let labels = match handle.labels.get(TYPE) {
        "" => handle.labels.with(TYPE, kind),
        _ => handle.labels.clone(),
    };
    match (labels.get(UNIT), handle.unit.as_str()) {
        ("", unit) if !unit.is_empty() => labels.with(UNIT, unit),
        _ => labels,
    }
}

fn described(handle: &Handle) -> String {
    let kind = model::selector::kind_word(handle.kind);
    match handle.unit.as_str() {
        "" => kind.to_owned(),
        unit => format!("{kind} in {unit}"),
    }
}
