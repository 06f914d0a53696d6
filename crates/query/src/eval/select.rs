//! Reads series: the latest sample at each step, and samples of windows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Selector, SeriesKind};
use store::HistogramIncrements;

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::eval::series::SeriesGroup;
use crate::eval::series_merge::{is_histogram, is_number, rank, split_by_unit, with_type_and_unit};
use crate::histogram::{FloatHistogram, ResetHint};
use crate::plain_numbers::remove_plain_numbers;
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
        let series = self.series(fetch, &range)?;
        self.report_gaps(&fetch.selector, &series, &range);
        let retained = AtomicUsize::new(0);
        let map = |evaluation: &mut Evaluation<'_>,
                   pack: &[SeriesGroup],
                   streams: &mut Vec<Stream>| {
            let mut latest: Vec<LatestPoints> = pack.iter().map(|_| Default::default()).collect();
            let mut resets: Vec<ResetDetector> = pack.iter().map(|_| Default::default()).collect();
            // Values of the steps before a time, up to which the latest sample stays the same.
            let until = |time: i64, latest: &mut LatestPoints| {
                while latest.points.len() < steps.count {
                    let step = steps.time(latest.points.len());
                    let timestamp = fetch.shift.apply(step);
                    if timestamp >= time {
                        break;
                    }
                    let fresh = latest.sample.as_ref().filter(|reading| {
                        reading.time > timestamp.saturating_sub(lookback)
                            && !is_stale_marker(&reading.value)
                    });
                    latest.points.push(fresh.and_then(|sample| of(step, sample)));
                }
            };
            evaluation.slices(&groups(pack), range.clone(), &mut |at, mut samples| {
                if fetch.detects_resets {
                    resets[at].mark_resets(&mut samples);
                }
                for sample in samples {
                    until(sample.time, &mut latest[at]);
                    latest[at].sample = Some(sample);
                }
                Ok(())
            })?;
            for ((labels, _), mut latest) in pack.iter().zip(latest) {
                until(i64::MAX, &mut latest);
                latest.points.resize(steps.count, None);
                let stream = Stream::new(labels.clone(), latest.points);
                streams.extend((!stream.is_empty()).then_some(stream));
            }
            evaluation.retain(streams, steps, &retained)
        };
        let mut all = Vec::new();
        self.with_read_ahead(&series, &range, &mut |evaluation, series| {
            all.extend(evaluation.map_packs(series, &range, steps, &map)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Charges new streams to the budget; `retained` streams are kept.
    pub(crate) fn retain(
        &self,
        new: &[Stream],
        steps: StepGrid,
        retained: &AtomicUsize,
    ) -> Result<()> {
        let before = retained.fetch_add(new.len(), Ordering::Relaxed);
        self.budget.check_capacity(before + new.len(), steps.count)?;
        self.budget.charge_samples(new.iter().map(Stream::samples).sum())
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
        let mut all = Vec::new();
        self.with_read_ahead(&series, &range, &mut |evaluation, series| {
            let mapped =
                evaluation.map_packs(series, &range, steps, &|evaluation, pack, made| {
                    let read = (ranged, fetch);
                    let charged = evaluation.map_pack_samples(pack, read, &range, made, map)?;
                    evaluation.budget.release_samples(charged);
                    Ok(())
                })?;
            all.extend(mapped);
            Ok(())
        })?;
        Ok(all)
    }

    /// Series that are read in a range, in the order of their labels.
    pub(crate) fn select_samples(
        &mut self,
        fetch: &SeriesFetch,
        range: &Range<i64>,
    ) -> Result<Vec<SeriesGroup>> {
        let series = self.series(fetch, range)?;
        self.report_gaps(&fetch.selector, &series, range);
        Ok(series)
    }

    /// Maps the samples of each series of a pack. Returns their number, which is charged.
    pub(crate) fn map_pack_samples<T>(
        &mut self,
        pack: &[SeriesGroup],
        (ranged, fetch): (&RangeSelection, &SeriesFetch),
        range: &Range<i64>,
        made: &mut Vec<T>,
        map: &dyn Fn(&mut Evaluation<'_>, SeriesPoints) -> Result<Option<T>>,
    ) -> Result<u64> {
        let mut read: Vec<Vec<SeriesPoint>> = vec![Vec::new(); pack.len()];
        let charged = self.read_samples(&groups(pack), range.clone(), &mut read)?;
        for (series, samples) in pack.iter().zip(read) {
            made.extend(self.map_series_samples(series, (ranged, fetch), samples, map)?);
        }
        Ok(charged)
    }

    /// Maps the samples of one series, which are charged.
    fn map_series_samples<T>(
        &mut self,
        (labels, handles): &SeriesGroup,
        (ranged, fetch): (&RangeSelection, &SeriesFetch),
        mut samples: Vec<SeriesPoint>,
        map: &dyn Fn(&mut Evaluation<'_>, SeriesPoints) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let count = |samples: &[SeriesPoint]| -> u64 {
            samples.iter().map(|sample| sample.value.samples()).sum()
        };
        let charged = count(&samples);
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
                        "cannot merge {labels}: it was sent both as deltas and as cumulative \
                         values; select one with __kind"
                    );
                    return Err(Error::Execution { span: ranged.span, message });
                }
            }
            self.run_total(&mut samples, is_delta(false), is_delta(true))?;
        }
        // Totals of deltas may be larger.
        let more = count(&samples).saturating_sub(charged);
        if more > 0 {
            self.budget.charge_samples(more)?;
        }
        let samples = SeriesPoints {
            labels: labels.clone(),
            drops_name: false,
            points: samples,
            is_running_total: is_running,
        };
        let mapped = map(self, samples)?;
        if more > 0 {
            self.budget.release_samples(more);
        }
        Ok(mapped)
    }

    /// Samples of one cumulative histogram as increments; `None` if the series has other samples
    /// too, or if the source has no increments of them. Staleness markers are left out.
    pub(crate) fn increments(
        &mut self,
        handles: &[SeriesHandle],
        range: &Range<i64>,
    ) -> Result<Option<HistogramIncrements>> {
        if !handles.iter().any(is_histogram) {
            return Ok(None);
        }
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

    /// Reports gaps in a range: a read of existing series covers only the time for which they have
    /// rows, and a series whose rows are all missing is not found. Of a series that a gap names,
    /// the selector tells whether it is meant.
    pub(crate) fn report_gaps(
        &mut self,
        selector: &Selector,
        series: &[SeriesGroup],
        range: &Range<i64>,
    ) {
        let handles: Vec<&SeriesHandle> = series.iter().flat_map(|(_, same)| same).collect();
        let mut gaps = self.source.gaps(&handles, range);
        if handles.is_empty() {
            gaps.retain(|gap| gap.may_concern(selector));
        }
        self.gaps.extend(gaps);
    }

    /// Selected series in the order of their labels: numbers and distributions with the same labels
    /// are merged. So are series of several kinds, if a sender has changed the type of a metric; a
    /// warning reports it. Series without a unit beside others are left out. Samples are read in
    /// `range`.
    pub(crate) fn series(
        &mut self,
        fetch: &SeriesFetch,
        range: &Range<i64>,
    ) -> Result<Vec<SeriesGroup>> {
        let handles = self.source.select_in_range(&fetch.selector, range)?;
        self.series_of(handles, fetch)
    }

    /// The same, of selected series.
    pub(crate) fn series_of(
        &mut self,
        mut handles: Vec<SeriesHandle>,
        fetch: &SeriesFetch,
    ) -> Result<Vec<SeriesGroup>> {
        for hint in self.source.take_hints() {
            self.warnings.warn(fetch.span, hint);
        }
        self.budget.check_series(handles.len())?;
        handles.retain(|handle| handle.kind != SeriesKind::Text);
        if !self.keeps_units_apart
            && let Some(warning) = remove_plain_numbers(&mut handles)
        {
            self.warnings.warn(fetch.span, warning);
        }
        if self.settings.type_and_unit_labels {
            handles.iter_mut().for_each(|handle| handle.labels = with_type_and_unit(handle));
        }
        model::sort::by(&mut handles, |a, b| a.labels.cmp(&b.labels));
        let mut series: Vec<SeriesGroup> = Vec::with_capacity(handles.len());
        for handle in handles {
            match series.last_mut() {
                Some((labels, same)) if *labels == handle.labels => same.push(handle),
                _ => series.push((handle.labels.clone(), vec![handle])),
            }
        }
        if self.keeps_units_apart && series.iter().any(|(_, handles)| handles.len() > 1) {
            series = series.into_iter().flat_map(split_by_unit).collect();
        }
        for (labels, handles) in &mut series {
            if handles.len() < 2 {
                continue;
            }
            // Of two samples with the same timestamp, the last one is used.
            model::sort::by_key(handles, |handle| (rank(handle.kind), handle.key));
            for class in [is_histogram, is_number] {
                let same: Vec<&SeriesHandle> =
                    handles.iter().filter(|handle| class(handle)).collect();
                self.check_single_kind(labels, &same, fetch.span)?;
            }
        }
        Ok(series)
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
        let mut all = [Vec::new()];
        let charged = self.read_samples(&[handles], range, &mut all)?;
        self.budget.release_samples(charged);
        let [all] = all;
        Ok(all)
    }

    /// Appends the samples of groups of series with the same labels, by time, and charges them.
    fn read_samples(
        &mut self,
        groups: &[&[SeriesHandle]],
        range: Range<i64>,
        all: &mut [Vec<SeriesPoint>],
    ) -> Result<u64> {
        let (budget, mut charged, mut uncharged) = (Arc::clone(&self.budget), 0, 0);
        self.slices(groups, range, &mut |at, samples| {
            uncharged += samples.iter().map(|sample| sample.value.samples()).sum::<u64>();
            if uncharged >= SAMPLES_UNCHARGED || at + 1 == groups.len() {
                budget.charge_samples(uncharged)?;
                charged += std::mem::take(&mut uncharged);
            }
            match all[at].is_empty() {
                true => all[at] = samples,
                false => all[at].extend(samples),
            }
            Ok(())
        })?;
        Ok(charged)
    }

    /// Samples of groups of series with the same labels, slice by slice. Of several groups, the
    /// range is one slice.
    fn slices(
        &mut self,
        groups: &[&[SeriesHandle]],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, Vec<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        let range = match groups {
            [handles] => self.source.time_range(handles, range)?,
            _ => (range.start < range.end).then_some(range),
        };
        let Some(range) = range else { return Ok(()) };
        let group_of: Vec<usize> = (0..groups.len())
            .flat_map(|group| std::iter::repeat_n(group, groups[group].len()))
            .collect();
        let handles: Vec<&SeriesHandle> = groups.iter().copied().flatten().collect();
        let (budget, mut unchecked) = (Arc::clone(&self.budget), 0);
        let mut start = range.start;
        while start < range.end {
            budget.check_deadline()?;
            let end = start.saturating_add(SLICE).min(range.end);
            let (mut gaps, mut same) = (Vec::new(), Vec::new());
            self.source.each_samples(&handles, start..end, &mut |at, mut read| {
                gaps.extend(read.gaps);
                unchecked += read.values.len() as u64;
                if unchecked >= SAMPLES_UNCHARGED {
                    budget.check_deadline()?;
                    unchecked = 0;
                }
                let group = group_of[at];
                if groups[group].len() == 1 {
                    return each(group, read.values);
                }
                same.append(&mut read.values);
                if group_of.get(at + 1) == Some(&group) {
                    return Ok(());
                }
                let mut samples = std::mem::take(&mut same);
                samples.sort_by_key(|sample: &SeriesPoint| sample.time);
                samples.dedup_by(|later, held| {
                    let is_same = later.time == held.time
                        && later.value.is_distribution() == held.value.is_distribution();
                    if is_same {
                        std::mem::swap(later, held);
                    }
                    is_same
                });
                each(group, samples)
            })?;
            self.gaps.extend(gaps);
            start = end;
        }
        Ok(())
    }
}

/// Samples that are read between two charges or checks of the deadline.
const SAMPLES_UNCHARGED: u64 = 4096;

/// The latest sample of a series, and its values at the steps so far.
#[derive(Default)]
struct LatestPoints {
    points: Vec<Option<StepValue>>,
    sample: Option<SeriesPoint>,
}

fn groups(pack: &[SeriesGroup]) -> Vec<&[SeriesHandle]> {
    pack.iter().map(|(_, handles)| handles.as_slice()).collect()
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
