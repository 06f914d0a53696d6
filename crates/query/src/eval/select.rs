//! Reads series: the latest reading at each step, and readings of stretches of time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::Kind;

use crate::error::{Error, Place, Result};
use crate::eval::Evaluation;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::labels::{Labels, TYPE, UNIT};
use crate::plan::{Extension, Fetch, Ranged, RangedOf};
use crate::source::Handle;
use crate::stream::{Reading, Readings, Steps, Stream};
use crate::value::{Value, is_stale};

/// Makes something of the readings of one series.
pub(crate) type MapReadings<'a, T> =
    dyn Fn(&mut Evaluation<'_>, Readings) -> Result<Option<T>> + Sync + 'a;

/// Readings are taken so long a time at once: between, limits are looked at.
const SLICE: i64 = store::DAY;

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
        of: impl Fn(i64, &Reading) -> Option<Value> + Sync,
    ) -> Result<Vec<Stream>> {
        let lookback = self.settings.lookback;
        let range =
            fetch.shift.apply(steps.start).saturating_sub(lookback)..fetch.shift.apply(steps.end());
        self.tell_gaps(&range);
        let series = self.series(fetch)?;
        let kept = AtomicUsize::new(0);
        self.map_series(series, &|evaluation, labels, handles| {
            let mut points = Vec::with_capacity(steps.count);
            let mut latest: Option<Reading> = None;
            // Values of the steps whose moment comes before a time: until then, the latest stays what it is.
            let mut until = |time: i64, latest: &Option<Reading>| {
                while points.len() < steps.count {
                    let step = steps.time(points.len());
                    let moment = fetch.shift.apply(step);
                    if moment >= time {
                        break;
                    }
                    let fresh = latest.as_ref().filter(|reading| {
                        reading.time > moment.saturating_sub(lookback) && !is_mark(&reading.value)
                    });
                    points.push(fresh.and_then(|reading| of(step, reading)));
                }
            };
            let mut resets = Resets::default();
            evaluation.slices(handles, range.clone(), &mut |mut readings| {
                if fetch.looks_for_resets {
                    resets.look(&mut readings);
                }
                for reading in readings {
                    until(reading.time, &latest);
                    latest = Some(reading);
                }
                Ok(())
            })?;
            until(i64::MAX, &latest);
            points.resize(steps.count, None);
            let stream = Stream::new(labels, points);
            if stream.is_empty() {
                return Ok(None);
            }
            let before = kept.fetch_add(1, Ordering::Relaxed);
            evaluation.budget.room(before + 1, steps.count)?;
            evaluation.budget.hold(stream.samples())?;
            Ok(Some(stream))
        })
    }

    /// Makes something of the readings of each series that some step's stretch of time may have, and what its
    /// extension needs. Marks that a series is no more are left out.
    pub(crate) fn map_readings<T: Send>(
        &mut self,
        ranged: &Ranged,
        steps: Steps,
        map: &MapReadings<'_, T>,
    ) -> Result<Vec<T>> {
        let fetch = match &ranged.of {
            RangedOf::Subquery { .. } => return self.map_subquery(ranged, steps, map),
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
        self.tell_gaps(&range);
        let series = self.series(fetch)?;
        self.map_series(series, &|evaluation, labels, handles| {
            let mut readings = evaluation.readings(handles, range.clone())?;
            if fetch.looks_for_resets {
                Resets::default().look(&mut readings);
            }
            readings.retain(|reading| !is_mark(&reading.value));
            let is_delta = |of_histograms: bool| {
                handles.iter().any(|handle| match handle.kind {
                    Kind::Histogram(_) => of_histograms && !handle.kind.is_cumulative(),
                    Kind::Counter(_) => !of_histograms && !handle.kind.is_cumulative(),
                    Kind::Gauge | Kind::Text => false,
                })
            };
            let is_running = ranged.of_counters && (is_delta(true) || is_delta(false));
            if is_running {
                for class in [is_histogram, is_number] {
                    let mut adds = handles.iter().filter(|handle| class(handle)).map(|handle| {
                        handle.kind != Kind::Gauge && !handle.kind.is_cumulative()
                    });
                    let first = adds.next();
                    if adds.any(|other| Some(other) != first) {
                        let message = format!(
                            "{labels} was sent as what was added since the reading before and as what there is: \
                             one does not follow the other. say which with __kind"
                        );
                        return Err(Error::Execution { place: ranged.place, message });
                    }
                }
                evaluation.run_total(&mut readings, is_delta(false), is_delta(true))?;
            }
            let held: u64 = readings.iter().map(|reading| reading.value.samples()).sum();
            evaluation.budget.hold(held)?;
            let readings = Readings { labels, drops_name: false, readings, is_running };
            let mapped = map(evaluation, readings)?;
            evaluation.budget.release(held);
            Ok(mapped)
        })
    }

    /// Tells what is missing of a range, of whatever series: what is read of those that are there
    /// says it of the time that they have rows of alone.
    pub(crate) fn tell_gaps(&mut self, range: &Range<i64>) {
        self.gaps.extend(self.source.gaps(range));
    }

    /// The series that are meant, by labels: numbers and distributions of the same labels are one.
    /// So are series of several kinds, where a sender has changed what it says of a metric: a
    /// warning says so.
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
        for (labels, handles) in &mut series {
            if handles.len() < 2 {
                continue;
            }
            // Of two readings of one moment the last one counts.
            handles.sort_by_key(|handle| (rank(handle.kind), handle.key));
            for class in [is_histogram, is_number] {
                let same: Vec<&Handle> = handles.iter().filter(|handle| class(handle)).collect();
                self.check_same(labels, &same, fetch.place)?;
            }
        }
        Ok(series)
    }

    /// Whether series of the same labels can be read as one: a sender may change the kind, not the
    /// unit.
    fn check_same(&mut self, labels: &Labels, handles: &[&Handle], place: Place) -> Result<()> {
        let [first, second, ..] = handles else { return Ok(()) };
        let mut units = handles.iter().map(|handle| &*handle.unit).filter(|unit| !unit.is_empty());
        let unit = units.next();
        if units.any(|other| unit != Some(other)) {
            let (first, second) = (described(first), described(second));
            let message = format!(
                "{labels} is measured twice, as {first} and as {second}: \
                 say which with __unit or __kind, as in {{__kind=\"gauge\"}}"
            );
            return Err(Error::Execution { place, message });
        }
        let all: Vec<String> = handles.iter().map(|handle| described(handle)).collect();
        let message = format!(
            "{labels} was sent as {}: readings of both are taken together; \
             say which with __unit or __kind, as in {{__kind=\"gauge\"}}",
            all.join(" and as ")
        );
        self.notes.warn(place, message);
        Ok(())
    }

    /// Makes of what happened between readings what a counter would show that began before the first of them; of
    /// numbers, of distributions, or of both. Functions of counters look at differences alone.
    fn run_total(
        &self,
        readings: &mut [Reading],
        of_numbers: bool,
        of_distributions: bool,
    ) -> Result<()> {
        let (mut numbers, mut held) = (0.0, 0);
        let mut histogram: Option<FloatHistogram> = None;
        for reading in readings {
            match reading.value.histogram() {
                None if of_numbers => {
                    numbers += reading.value.number().unwrap_or(0.0);
                    (reading.start, reading.value) = (None, Value::Number(numbers));
                }
                Some(more) if of_distributions => {
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
                    let total = Value::Histogram(Arc::new(total.clone()));
                    // A total has all the buckets that any before it had.
                    self.budget.hold(total.samples())?;
                    held += total.samples();
                    (reading.start, reading.value) = (None, total);
                }
                _ => {}
            }
        }
        self.budget.release(held);
        Ok(())
    }

    /// Readings of series of the same labels, by time.
    pub(crate) fn readings(
        &mut self,
        handles: &[Handle],
        range: Range<i64>,
    ) -> Result<Vec<Reading>> {
        let (mut all, mut held) = (Vec::new(), 0);
        let budget = Arc::clone(&self.budget);
        self.slices(handles, range, &mut |readings| {
            let samples = readings.iter().map(|reading| reading.value.samples()).sum();
            budget.hold(samples)?;
            held += samples;
            all.extend(readings);
            Ok(())
        })?;
        budget.release(held);
        Ok(all)
    }

    /// The same, slice of time after slice.
    fn slices(
        &mut self,
        handles: &[Handle],
        range: Range<i64>,
        each: &mut dyn FnMut(Vec<Reading>) -> Result<()>,
    ) -> Result<()> {
        let Some(range) = self.source.extent(handles, range)? else { return Ok(()) };
        let mut start = range.start;
        while start < range.end {
            self.budget.check()?;
            let end = start.saturating_add(SLICE).min(range.end);
            let mut readings = Vec::new();
            for handle in handles {
                let read = self.source.readings(handle, start..end)?;
                self.gaps.extend(read.gaps);
                match readings.is_empty() {
                    true => readings = read.values,
                    false => readings.extend(read.values),
                }
            }
            if handles.len() > 1 {
                readings.sort_by_key(|reading| reading.time);
                readings.dedup_by(|later, held| {
                    let is_same = later.time == held.time
                        && later.value.is_distribution() == held.value.is_distribution();
                    if is_same {
                        std::mem::swap(later, held);
                    }
                    is_same
                });
            }
            each(readings)?;
            start = end;
        }
        Ok(())
    }
}

/// Whether counters began anew, looked for reading by reading.
#[derive(Default)]
struct Resets {
    before: Option<Arc<FloatHistogram>>,
}

impl Resets {
    /// Says of each histogram whether its counter began anew after the one before.
    fn look(&mut self, readings: &mut [Reading]) {
        for reading in readings {
            let Value::Histogram(histogram) = &mut reading.value else { continue };
            let original = Arc::clone(histogram);
            let before = self.before.take().filter(|_| histogram.hint == ResetHint::Unknown);
            if let Some(is_reset) = before.map(|before| histogram.detect_reset(&before)) {
                let hint = if is_reset { ResetHint::Reset } else { ResetHint::NotReset };
                Arc::make_mut(histogram).hint = hint;
            }
            self.before = Some(original);
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

/// In which order readings of one moment are taken: what a sender has learnt to say of a metric is
/// more than a gauge.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Text => 0,
        Kind::Gauge => 1,
        Kind::Counter(_) => 2 + u8::from(kind.is_cumulative()),
        Kind::Histogram(_) => 4 + u8::from(kind.is_cumulative()),
    }
}

fn is_histogram(handle: &Handle) -> bool {
    matches!(handle.kind, Kind::Histogram(_))
}

fn is_number(handle: &Handle) -> bool {
    matches!(handle.kind, Kind::Counter(_) | Kind::Gauge)
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
