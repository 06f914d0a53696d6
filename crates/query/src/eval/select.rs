//! Reads series: the latest sample at each step, and samples of windows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::SeriesKind;
use store::HistogramIncrements;

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::histogram::{FloatHistogram, ResetHint};
use crate::labels::{LabelSet, TYPE, UNIT};
use crate::plan::{RangeExtension, RangeSelection, RangeSource, SeriesFetch};
use crate::source::SeriesHandle;
use crate::stream::{SeriesPoint, SeriesPoints, StepGrid, Stream};
use crate::value::{StepValue, is_stale};

/// Maps the samples of one series.
pub(crate) type MapSamples<'a, T> =
    dyn Fn(&mut Evaluation<'_>, SeriesPoints) -> Result<Option<T>> + Sync + 'a;

/// Samples are read in slices of this length; limits are checked between slices.
const SLICE: i64 = store::DAY;

impl Evaluation<'_> {
    /// Latest sample of each series at each step.
    pub(crate) fn latest(&mut self, fetch: &SeriesFetch, steps: StepGrid) -> Result<Vec<Stream>> {
        if fetch.extension == RangeExtension::Smoothed {
            return self.smoothed_streams(fetch, steps);
        }
        self.latest_by(fetch, steps, |_, sample| Some(sample.value.clone()))
    }

    /// Maps the latest sample of each series at each step.
    pub(crate) fn latest_by(
        &mut self,
        fetch: &SeriesFetch,
        steps: StepGrid,
        of: impl Fn(i64, &SeriesPoint) -> Option<StepValue> + Sync,
    ) -> Result<Vec<Stream>> {
        let lookback = self.settings.lookback;
        let range =
            fetch.shift.apply(steps.start).saturating_sub(lookback)..fetch.shift.apply(steps.end());
        self.report_gaps(&range);
        let series = self.series(fetch, &range)?;
        let retained = AtomicUsize::new(0);
        self.map_series(series, &|evaluation, labels, handles| {
            let mut points = Vec::with_capacity(steps.count);
            let mut latest: Option<SeriesPoint> = None;
            // Values of the steps before a time, up to which the latest sample stays the same.
            let mut until = |time: i64, latest: &Option<SeriesPoint>| {
                while points.len() < steps.count {
                    let step = steps.time(points.len());
                    let timestamp = fetch.shift.apply(step);
                    if timestamp >= time {
                        break;
                    }
                    let fresh = latest.as_ref().filter(|reading| {
                        reading.time > timestamp.saturating_sub(lookback)
                            && !is_stale_marker(&reading.value)
                    });
                    points.push(fresh.and_then(|sample| of(step, sample)));
                }
            };
            let mut resets = ResetDetector::default();
            evaluation.slices(handles, range.clone(), &mut |mut samples| {
                if fetch.detects_resets {
                    resets.mark_resets(&mut samples);
                }
                for sample in samples {
                    until(sample.time, &latest);
                    latest = Some(sample);
                }
                Ok(())
            })?;
            until(i64::MAX, &latest);
            points.resize(steps.count, None);
            let stream = Stream::new(labels, points);
            if stream.is_empty() {
                return Ok(None);
            }
            let before = retained.fetch_add(1, Ordering::Relaxed);
            evaluation.budget.check_capacity(before + 1, steps.count)?;
            evaluation.budget.charge_samples(stream.samples())?;
            Ok(Some(stream))
        })
    }

    /// Maps the samples of each series in the windows of all steps, and those that the range
    /// extension needs. Staleness markers are left out.
    pub(crate) fn map_samples<T: Send>(
        &mut self,
        ranged: &RangeSelection,
        steps: StepGrid,
        map: &MapSamples<'_, T>,
    ) -> Result<Vec<T>> {
        let fetch = match &ranged.source {
            RangeSource::Subquery { .. } => return self.map_subquery(ranged, steps, map),
            RangeSource::Series(fetch) => fetch,
        };
        let range = ranged.samples_range(fetch, steps, self.settings.lookback);
        let series = self.select_samples(fetch, &range)?;
        self.map_series(series, &|evaluation, labels, handles| {
            evaluation.map_series_samples((labels, handles), ranged, fetch, &range, map)
        })
    }

    /// Series that are read in a range, in the order of their labels.
    pub(crate) fn select_samples(
        &mut self,
        fetch: &SeriesFetch,
        range: &Range<i64>,
    ) -> Result<Vec<(LabelSet, Vec<SeriesHandle>)>> {
        self.report_gaps(range);
        self.series(fetch, range)
    }

    /// Maps the samples of one series.
    pub(crate) fn map_series_samples<T>(
        &mut self,
        (labels, handles): (LabelSet, &[SeriesHandle]),
        ranged: &RangeSelection,
        fetch: &SeriesFetch,
        range: &Range<i64>,
        map: &dyn Fn(&mut Evaluation<'_>, SeriesPoints) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut samples = self.samples(handles, range.clone())?;
        if fetch.detects_resets {
            ResetDetector::default().mark_resets(&mut samples);
        }
        samples.retain(|sample| !is_stale_marker(&sample.value));
        let is_delta = |of_histograms: bool| {
            handles.iter().any(|handle| match handle.kind {
                SeriesKind::Histogram(_) => of_histograms && !handle.kind.is_cumulative(),
                SeriesKind::Counter(_) => !of_histograms && !handle.kind.is_cumulative(),
                SeriesKind::Gauge | SeriesKind::Text => false,
            })
        };
        let is_running = ranged.is_for_counters && (is_delta(true) || is_delta(false));
        if is_running {
            for class in [is_histogram, is_number] {
                let mut adds = handles
                    .iter()
                    .filter(|handle| class(handle))
                    .map(|handle| handle.kind != SeriesKind::Gauge && !handle.kind.is_cumulative());
                let first = adds.next();
                if adds.any(|other| Some(other) != first) {
                    let message = format!(
                        "cannot merge {labels}: it was sent both as deltas and as totals; select \
                         one with __kind"
                    );
                    return Err(Error::Execution { span: ranged.span, message });
                }
            }
            self.run_total(&mut samples, is_delta(false), is_delta(true))?;
        }
        let sample_count: u64 = samples.iter().map(|sample| sample.value.samples()).sum();
        self.budget.charge_samples(sample_count)?;
        let samples = SeriesPoints {
            labels,
            drops_name: false,
            points: samples,
            is_running_total: is_running,
        };
        let mapped = map(self, samples)?;
        self.budget.release_samples(sample_count);
        Ok(mapped)
    }

    /// Samples of one cumulative histogram as increments; `None` if the series has other samples
    /// too, or if the source has no increments of them. Staleness markers are left out.
    pub(crate) fn increments(
        &mut self,
        handles: &[SeriesHandle],
        range: &Range<i64>,
    ) -> Result<Option<HistogramIncrements>> {
        let (histograms, numbers): (Vec<SeriesHandle>, Vec<SeriesHandle>) =
            handles.iter().cloned().partition(is_histogram);
        let [histogram] = &histograms[..] else { return Ok(None) };
        if !histogram.kind.is_cumulative() {
            return Ok(None);
        }
        let Some(range) = self.source.time_range(&histograms, range.clone())? else {
            return Ok(None);
        };
        if !numbers.is_empty() {
            let samples = self.samples(&numbers, range.clone())?;
            if samples.iter().any(|sample| !is_stale_marker(&sample.value)) {
                return Ok(None);
            }
        }
        let (increments, gaps) = self.source.increments(histogram, range)?;
        if increments.is_some() {
            self.gaps.extend(gaps);
        }
        Ok(increments)
    }

    /// Reports gaps in a range, whichever series they are in: a read of existing series covers only
    /// the time for which they have rows.
    pub(crate) fn report_gaps(&mut self, range: &Range<i64>) {
        self.gaps.extend(self.source.gaps(range));
    }

    /// Selected series in the order of their labels: numbers and distributions with the same labels
    /// are merged. So are series of several kinds, if a sender has changed the type of a metric; a
    /// warning reports it. Samples are read in `range`.
    pub(crate) fn series(
        &mut self,
        fetch: &SeriesFetch,
        range: &Range<i64>,
    ) -> Result<Vec<(LabelSet, Vec<SeriesHandle>)>> {
        let mut handles = self.source.select_in_range(&fetch.selector, range)?;
        for hint in self.source.take_hints() {
            self.warnings.warn(fetch.span, hint);
        }
        self.budget.check_series(handles.len())?;
        handles.retain(|handle| handle.kind != SeriesKind::Text);
        if self.settings.type_and_unit_labels {
            handles.iter_mut().for_each(|handle| handle.labels = with_type_and_unit(handle));
        }
        handles.sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut series: Vec<(LabelSet, Vec<SeriesHandle>)> = Vec::with_capacity(handles.len());
        for handle in handles {
            match series.last_mut() {
                Some((labels, same)) if *labels == handle.labels => same.push(handle),
                _ => series.push((handle.labels.clone(), vec![handle])),
            }
        }
        if self.keeps_units_apart {
            series = series.into_iter().flat_map(split_by_unit).collect();
        }
        for (labels, handles) in &mut series {
            if handles.len() < 2 {
                continue;
            }
            // Of two samples with the same timestamp, the last one is used.
            handles.sort_by_key(|handle| (rank(handle.kind), handle.key));
            for class in [is_histogram, is_number] {
                let same: Vec<&SeriesHandle> =
                    handles.iter().filter(|handle| class(handle)).collect();
                self.check_single_kind(labels, &same, fetch.span)?;
            }
        }
        Ok(series)
    }

    /// Whether series with the same labels can be merged: a sender may change the kind, not the
    /// unit.
    fn check_single_kind(
        &mut self,
        labels: &LabelSet,
        handles: &[&SeriesHandle],
        span: SourceSpan,
    ) -> Result<()> {
        if handles.len() < 2 {
            return Ok(());
        }
        if let Some((first, other)) = different_units(handles) {
            let unit = other.unit.as_str();
            let message = format!(
                "cannot merge {labels}: it was sent as {} and as {}; select one with __unit, as \
                 in {{__unit=\"{unit}\"}}, or rename or delete the others",
                describe(first),
                describe(other)
            );
            return Err(Error::Execution { span, message });
        }
        let all: Vec<String> = handles.iter().map(|handle| describe(handle)).collect();
        let message = format!(
            "{labels} was sent as {}: the samples are merged; select one with __unit or __kind, \
             as in {{__kind=\"gauge\"}}",
            all.join(" and as ")
        );
        self.warnings.warn(span, message);
        Ok(())
    }

    /// Converts deltas to a counter that started before the first of them; numbers, distributions
    /// or both. Counter functions use only differences.
    fn run_total(
        &self,
        samples: &mut [SeriesPoint],
        of_numbers: bool,
        of_distributions: bool,
    ) -> Result<()> {
        let (mut numbers, mut held) = (0.0, 0);
        let mut histogram: Option<FloatHistogram> = None;
        for sample in samples {
            match sample.value.histogram() {
                None if of_numbers => {
                    numbers += sample.value.number().unwrap_or(0.0);
                    (sample.start, sample.value) = (None, StepValue::Number(numbers));
                }
                Some(more) if of_distributions => {
                    let total = match &mut histogram {
                        None => histogram.insert(FloatHistogram::clone(&more)),
                        Some(total) => {
                            // A different bucket family is a counter reset.
                            if total.add(&more).is_err() {
                                *total = FloatHistogram::clone(&more);
                            }
                            total
                        }
                    };
                    total.hint = ResetHint::Unknown;
                    let total = StepValue::Histogram(Arc::new(total.clone()));
                    // A total has all buckets of the previous totals.
                    self.budget.charge_samples(total.samples())?;
                    held += total.samples();
                    (sample.start, sample.value) = (None, total);
                }
                _ => {}
            }
        }
        self.budget.release_samples(held);
        Ok(())
    }

    /// Samples of series with the same labels, by time.
    pub(crate) fn samples(
        &mut self,
        handles: &[SeriesHandle],
        range: Range<i64>,
    ) -> Result<Vec<SeriesPoint>> {
        let (mut all, mut charged) = (Vec::new(), 0);
        let budget = Arc::clone(&self.budget);
        self.slices(handles, range, &mut |samples| {
            let count = samples.iter().map(|sample| sample.value.samples()).sum();
            budget.charge_samples(count)?;
            charged += count;
            all.extend(samples);
            Ok(())
        })?;
        budget.release_samples(charged);
        Ok(all)
    }

    /// The same, slice by slice.
    fn slices(
        &mut self,
        handles: &[SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(Vec<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        let Some(range) = self.source.time_range(handles, range)? else { return Ok(()) };
        let mut start = range.start;
        while start < range.end {
            self.budget.check_deadline()?;
            let end = start.saturating_add(SLICE).min(range.end);
            let mut samples = Vec::new();
            for handle in handles {
                let read = self.source.samples(handle, start..end)?;
                self.gaps.extend(read.gaps);
                match samples.is_empty() {
                    true => samples = read.values,
                    false => samples.extend(read.values),
                }
            }
            if handles.len() > 1 {
                samples.sort_by_key(|sample| sample.time);
                samples.dedup_by(|later, held| {
                    let is_same = later.time == held.time
                        && later.value.is_distribution() == held.value.is_distribution();
                    if is_same {
                        std::mem::swap(later, held);
                    }
                    is_same
                });
            }
            each(samples)?;
            start = end;
        }
        Ok(())
    }
}

/// Detects counter resets between consecutive histograms.
#[derive(Default)]
struct ResetDetector {
    previous: Option<Arc<FloatHistogram>>,
}

impl ResetDetector {
    /// Sets the hint of each histogram: whether its counter was reset after the previous one.
    fn mark_resets(&mut self, samples: &mut [SeriesPoint]) {
        for sample in samples {
            let StepValue::Histogram(histogram) = &mut sample.value else { continue };
            let original = Arc::clone(histogram);
            let before = self.previous.take().filter(|_| histogram.hint == ResetHint::Unknown);
            if let Some(is_reset) = before.map(|before| histogram.detect_reset(&before)) {
                let hint = if is_reset { ResetHint::Reset } else { ResetHint::NotReset };
                Arc::make_mut(histogram).hint = hint;
            }
            self.previous = Some(original);
        }
    }
}

/// Number of samples at or before a timestamp; `from` is the number at an earlier timestamp. For a
/// fixed timestamp it does not change.
pub(crate) fn advance(readings: &[SeriesPoint], from: usize, timestamp: i64) -> usize {
    let from = if from > 0 && readings[from - 1].time > timestamp { 0 } else { from };
    from + readings[from..].iter().take_while(|reading| reading.time <= timestamp).count()
}

/// Whether a sample is a staleness marker.
pub(crate) fn is_stale_marker(value: &StepValue) -> bool {
    match value {
        StepValue::Number(number) => is_stale(*number),
        StepValue::Histogram(histogram) => is_stale(histogram.sum),
        StepValue::Bracket(_) | StepValue::Distribution(_) => false,
    }
}

/// Order of samples with the same timestamp: a known type comes after a gauge.
fn rank(kind: SeriesKind) -> u8 {
    match kind {
        SeriesKind::Text => 0,
        SeriesKind::Gauge => 1,
        SeriesKind::Counter(_) => 2 + u8::from(kind.is_cumulative()),
        SeriesKind::Histogram(_) => 4 + u8::from(kind.is_cumulative()),
    }
}

fn is_histogram(handle: &SeriesHandle) -> bool {
    matches!(handle.kind, SeriesKind::Histogram(_))
}

fn is_number(handle: &SeriesHandle) -> bool {
    matches!(handle.kind, SeriesKind::Counter(_) | SeriesKind::Gauge)
}

/// Two of the handles with different units, if there are any.
fn different_units<'h>(
    handles: &[&'h SeriesHandle],
) -> Option<(&'h SeriesHandle, &'h SeriesHandle)> {
    let mut with_unit = handles.iter().filter(|handle| !handle.unit.is_empty());
    let first = with_unit.next()?;
    with_unit.find(|other| other.unit != first.unit).map(|other| (*first, *other))
}

/// Series with the same labels but different units, told apart by the labels `__type__` and
/// `__unit__` of Prometheus.
fn split_by_unit(
    (labels, handles): (LabelSet, Vec<SeriesHandle>),
) -> Vec<(LabelSet, Vec<SeriesHandle>)> {
    let differ = [is_histogram, is_number].into_iter().any(|class| {
        let same: Vec<&SeriesHandle> = handles.iter().filter(|handle| class(handle)).collect();
        different_units(&same).is_some()
    });
    if !differ {
        return vec![(labels, handles)];
    }
    let mut split: Vec<(LabelSet, Vec<SeriesHandle>)> = Vec::new();
    for handle in handles {
        let labels = with_type_and_unit(&handle);
        match split.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, same)) => same.push(handle),
            None => split.push((labels, vec![handle])),
        }
    }
    split
}

fn with_type_and_unit(handle: &SeriesHandle) -> LabelSet {
    let kind = match handle.kind {
        SeriesKind::Histogram(_) => "histogram",
        SeriesKind::Counter(_) => "counter",
        SeriesKind::Gauge => "gauge",
        SeriesKind::Text => "",
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

fn describe(handle: &SeriesHandle) -> String {
    let kind = model::selector::kind_name(handle.kind);
    match handle.unit.as_str() {
        "" => kind.to_owned(),
        unit => format!("{kind} in {unit}"),
    }
}
