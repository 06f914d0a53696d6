//! Exact range deltas from rollups, without extrapolation.
//!
//! A store sums up adjacent columns. Overlapping windows are composed of shorter columns, each of
//! which is read once. If that needs too many columns, because step and range have a small common
//! divisor, columns have the length of the step and the remainder of each window is read
//! separately.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hist::Mixture;
use model::{Gap, SeriesKind};
use store::{NumberAggregate, TimeGrid};

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::eval::series::SeriesGroup;
use crate::labels::LabelSet;
use crate::plan::ExactRange;
use crate::sliding::sliding_sums;
use crate::source::{SeriesHandle, SourceRead};
use crate::stream::{StepGrid, Stream, seconds};
use crate::value::{StepValue, samples_of};

impl Evaluation<'_> {
    pub(crate) fn exact(&mut self, exact: &ExactRange, steps: StepGrid) -> Result<Vec<Stream>> {
        let mut handles: Vec<SeriesHandle> = Vec::new();
        let shift = exact.fetch.shift;
        let range = shift.apply(steps.start).saturating_sub(exact.range)..shift.apply(steps.end());
        for (labels, mut same) in self.exact_series(exact, &range)? {
            let is_count = |handle: &SeriesHandle| matches!(handle.kind, SeriesKind::Counter(_));
            if same.iter().any(is_count) {
                let all = same.len();
                same.retain(|handle| handle.kind != SeriesKind::Gauge);
                if same.len() < all {
                    let message = format!(
                        "{labels}: gauge samples are left out, because gauges are not summable \
                         over time"
                    );
                    self.warnings.warn(exact.fetch.span, message);
                }
            }
            handles.extend(same);
        }
        if let Some(standard) = &exact.standard_expr {
            let is_delta = |handle: &SeriesHandle| match handle.kind {
                SeriesKind::Histogram(_) => !handle.kind.is_cumulative(),
                _ => false,
            };
            if !handles.iter().all(is_delta) || exact.fetch.shift.at.is_some() {
                return self.streams(standard, steps);
            }
        }
        if let Some(gauge) = handles.iter().find(|handle| handle.kind == SeriesKind::Gauge) {
            let message = format!(
                "{} is a gauge, which is not summable over time; use avg_over_time or \
                 max_over_time",
                gauge.labels
            );
            return Err(Error::Execution { span: exact.fetch.span, message });
        }
        if handles.is_empty() {
            // A series whose rows are all lost is not found; it is reported as a gap.
            self.report_gaps(&exact.fetch.selector, &[], &range);
            return Ok(Vec::new());
        }
        self.exact_streams(exact, handles, steps)
    }

    /// Deltas of series, merged by the labels of the grouping.
    pub(crate) fn exact_streams(
        &mut self,
        exact: &ExactRange,
        handles: Vec<SeriesHandle>,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        // Distributions and numbers with the same name form two groups.
        let mut groups: BTreeMap<(LabelSet, bool), Vec<&SeriesHandle>> = BTreeMap::new();
        for handle in &handles {
            let labels = match &exact.grouping {
                Some(grouping) => grouping.group_labels(&handle.labels),
                None => handle.labels.clone(),
            };
            let is_histogram = matches!(handle.kind, SeriesKind::Histogram(_));
            groups.entry((labels, is_histogram)).or_default().push(handle);
        }
        // Threads share the groups, or the series of a single group.
        let packs = if groups.len() > 1 { 1 } else { PACKS_MAX };
        let groups: Vec<_> = groups.into_iter().collect();
        let retained = AtomicUsize::new(0);
        let streams =
            self.map_parallel(&groups, &|evaluation, ((labels, is_histogram), series)| {
                let points = match is_histogram {
                    true => evaluation.distributions(exact, (series, packs), steps)?,
                    false => evaluation.sums(exact, series, steps)?,
                };
                let mut stream = Stream::new(labels.clone(), points);
                evaluation.drop_name(&mut stream);
                let stream = (!stream.is_empty()).then_some(stream);
                evaluation.retain(stream.as_slice(), steps, &retained)?;
                Ok(stream)
            })?;
        self.merge_equal_labels(streams, exact.fetch.span)
    }

    /// Selected series. Functions of topdeck find classic histograms by the name of the histogram,
    /// those of Prometheus do not.
    fn exact_series(&mut self, exact: &ExactRange, range: &Range<i64>) -> Result<Vec<SeriesGroup>> {
        if exact.finds_classic() {
            let buckets = self.source.bucket_count(&exact.fetch.selector);
            self.budget.check_series(usize::try_from(buckets).unwrap_or(usize::MAX))?;
        }
        let mut handles = self.source.select_in_range(&exact.fetch.selector, range)?;
        if exact.finds_classic() {
            self.source.add_classic(&exact.fetch.selector, &mut handles)?;
        }
        self.series_of(handles, &exact.fetch)
    }

    fn distributions(
        &mut self,
        exact: &ExactRange,
        (series, packs): (&[&SeriesHandle], usize),
        steps: StepGrid,
    ) -> Result<Vec<Option<StepValue>>> {
        let add = |merged_columns: &mut Mixture, more: &Mixture| {
            more.components().iter().try_for_each(|part| merged_columns.add(part)).map_err(
                |error| Error::Execution {
                    span: exact.fetch.span,
                    message: format!("{error}; use a shorter range or fewer series"),
                },
            )
        };
        let (columns, merged_columns) = self.columns(exact, steps, |evaluation, grid| {
            evaluation.merged_histograms((series, packs), grid, &add)
        })?;
        let windows = self.windows(columns, merged_columns, add)?;
        let value = |mixture: Option<Mixture>| {
            let mixture = mixture.filter(|mixture| !mixture.components().is_empty())?;
            let value = StepValue::Distribution(Arc::new(mixture));
            match exact.is_rate {
                false => Some(value),
                true => {
                    let mut histogram = Arc::unwrap_or_clone(value.histogram()?);
                    histogram.div(seconds(exact.range));
                    Some(StepValue::Histogram(Arc::new(histogram)))
                }
            }
        };
        Ok(windows.into_iter().map(value).collect())
    }

    /// Merged histograms of all series, read in packs. The number of packs does not depend on
    /// threads, and they are merged in their order, so neither does the result.
    fn merged_histograms(
        &mut self,
        (series, packs): (&[&SeriesHandle], usize),
        grid: TimeGrid,
        add: &dyn Fn(&mut Mixture, &Mixture) -> Result<()>,
    ) -> Result<SourceRead<Mixture>> {
        let pack = series.len().div_ceil(packs).max(PACK_SERIES_MIN);
        let packs: Vec<&[&SeriesHandle]> = series.chunks(pack).collect();
        let mut reads = self
            .map_parallel(&packs, &|evaluation, pack| {
                let read = evaluation.source.histograms(pack, grid)?;
                evaluation.budget.charge_samples(read.values.iter().map(samples_of).sum())?;
                Ok(Some(read))
            })?
            .into_iter();
        let Some(mut merged) = reads.next() else {
            return self.source.histograms(series, grid);
        };
        let mut charged: u64 = merged.values.iter().map(samples_of).sum();
        for read in reads {
            charged += read.values.iter().map(samples_of).sum::<u64>();
            merged.gaps.extend(read.gaps);
            for (column, more) in merged.values.iter_mut().zip(&read.values) {
                add(column, more)?;
            }
        }
        self.budget.release_samples(charged);
        Ok(merged)
    }

    fn sums(
        &mut self,
        exact: &ExactRange,
        series: &[&SeriesHandle],
        steps: StepGrid,
    ) -> Result<Vec<Option<StepValue>>> {
        let (columns, merged_columns) =
            self.columns(exact, steps, |evaluation, grid| evaluation.source.numbers(series, grid))?;
        let add = |merged_columns: &mut Option<NumberAggregate>, more: &Option<NumberAggregate>| {
            match (merged_columns.as_mut(), more) {
                (Some(merged_columns), Some(more)) => merged_columns.add(more),
                (None, _) => *merged_columns = *more,
                (Some(_), None) => {}
            }
            Ok(())
        };
        let windows = self.windows(columns, merged_columns, add)?;
        let divisor = if exact.is_rate { seconds(exact.range) } else { 1.0 };
        let value = |summary: Option<Option<NumberAggregate>>| {
            let summary = summary.flatten().filter(|summary| summary.count > 0)?;
            Some(StepValue::Number(summary.sum.value() / divisor))
        };
        Ok(windows.into_iter().map(value).collect())
    }

    /// Columns of the windows of the steps, and their sample count.
    fn columns<T: SampleCost>(
        &mut self,
        exact: &ExactRange,
        steps: StepGrid,
        read: impl Fn(&mut Evaluation<'_>, TimeGrid) -> Result<SourceRead<T>>,
    ) -> Result<(StepWindows<T>, u64)> {
        let (range, shift) = (exact.range, exact.fetch.shift);
        let count = if shift.at.is_some() { 1 } else { steps.count };
        let copies = steps.count / count;
        let step = if count == 1 { range } else { steps.step };
        let start = shift.apply(steps.start).saturating_sub(range);
        let mut sample = ColumnCursor {
            evaluation: self,
            read,
            columns: Vec::new(),
            gaps: Vec::new(),
            charged_samples: 0,
        };
        let of = |columns: Vec<T>, each: usize, apart: usize, rests: Vec<T>| StepWindows {
            columns,
            each,
            stride: apart,
            remainders: rests,
            count,
            copies,
        };
        // Windows with unread gaps between them are read one by one.
        let step_windows = if step > range {
            sample.read_spaced(start, step, range, count)?;
            of(std::mem::take(&mut sample.columns), 1, 1, Vec::new())
        } else {
            let unit = gcd(step, range);
            let (each, apart) = ((range / unit) as usize, (step / unit) as usize);
            let columns =
                (count as u64 - 1).saturating_mul(apart as u64).saturating_add(each as u64);
            let (full_steps, rest) = (range / step, range % step);
            let fewer = count as u64 - 1 + full_steps as u64;
            if rest == 0 || columns / COLUMN_RATIO_MAX <= fewer {
                sample.read_adjacent(TimeGrid { start, step: unit, columns })?;
                of(std::mem::take(&mut sample.columns), each, apart, Vec::new())
            } else {
                sample.read_spaced(start, step, rest, count)?;
                let rests = std::mem::take(&mut sample.columns);
                let start = start.saturating_add(rest);
                sample.read_adjacent(TimeGrid { start, step, columns: fewer })?;
                of(std::mem::take(&mut sample.columns), full_steps as usize, 1, rests)
            }
        };
        let ColumnCursor { gaps, charged_samples: held, .. } = sample;
        self.gaps.extend(gaps);
        Ok((step_windows, held))
    }

    /// Delta of each window. Afterwards, the columns are no longer charged.
    fn windows<T: SampleCost>(
        &self,
        step_windows: StepWindows<T>,
        mut sample_count: u64,
        add: impl Fn(&mut T, &T) -> Result<()>,
    ) -> Result<Vec<Option<T>>> {
        let windows = windows(step_windows, add, |window| {
            sample_count += window.samples();
            self.budget.charge_samples(window.samples())
        })?;
        self.budget.release_samples(sample_count);
        Ok(windows)
    }
}

/// Packs of the series of a group, each with columns of its own until they are merged.
const PACKS_MAX: usize = 8;
/// Minimum series of a pack. What a read looks up once is then a small part of it.
const PACK_SERIES_MIN: usize = 32;
/// Maximum number of columns as a multiple of the number of steps.
const COLUMN_RATIO_MAX: u64 = 8;
/// Columns per read; a store processes this many at a time.
const COLUMNS_AT_ONCE: u64 = 1024;

/// Sample cost of a value towards limits.
trait SampleCost: Clone {
    fn samples(&self) -> u64;
}

impl SampleCost for Mixture {
    fn samples(&self) -> u64 {
        samples_of(self)
    }
}

impl SampleCost for Option<NumberAggregate> {
    fn samples(&self) -> u64 {
        // Memory of this many numbers.
        5
    }
}

/// Reads columns and accounts for their samples.
struct ColumnCursor<'a, 'b, T, F> {
    evaluation: &'a mut Evaluation<'b>,
    read: F,
    columns: Vec<T>,
    gaps: Vec<Gap>,
    /// Sample count of all columns that were read.
    charged_samples: u64,
}

impl<T, F> ColumnCursor<'_, '_, T, F>
where
    T: SampleCost,
    F: Fn(&mut Evaluation<'_>, TimeGrid) -> Result<SourceRead<T>>,
{
    /// Reads columns of one length whose starts are a step apart.
    fn read_spaced(&mut self, start: i64, step: i64, length: i64, count: usize) -> Result<()> {
        for at in 0..count as i64 {
            let start = start.saturating_add(step.saturating_mul(at));
            self.read_chunk(TimeGrid { start, step: length, columns: 1 })?;
        }
        Ok(())
    }

    /// Reads adjacent columns.
    fn read_adjacent(&mut self, grid: TimeGrid) -> Result<()> {
        let mut next = 0;
        while next < grid.columns {
            let columns = COLUMNS_AT_ONCE.min(grid.columns - next);
            self.read_chunk(TimeGrid { start: grid.column(next).start, step: grid.step, columns })?;
            next += columns;
        }
        Ok(())
    }

    fn read_chunk(&mut self, grid: TimeGrid) -> Result<()> {
        self.evaluation.budget.check_deadline()?;
        let SourceRead { values, gaps } = (self.read)(self.evaluation, grid)?;
        let sample_count: u64 = values.iter().map(SampleCost::samples).sum();
        self.evaluation.budget.charge_samples(sample_count)?;
        self.charged_samples += sample_count;
        self.columns.extend(values);
        self.gaps.extend(gaps);
        Ok(())
    }
}

/// Columns and the windows of steps made of them.
struct StepWindows<T> {
    columns: Vec<T>,
    /// Columns per window.
    each: usize,
    /// Columns between the starts of successive windows.
    stride: usize,
    /// Remainder of each window before its columns; empty if there is none.
    remainders: Vec<T>,
    /// Number of windows.
    count: usize,
    /// Number of steps for each window.
    copies: usize,
}

/// Sums the columns of each window; each result is repeated for its steps.
fn windows<T: Clone, E>(
    step_windows: StepWindows<T>,
    add: impl Fn(&mut T, &T) -> Result<(), E>,
    mut hold: impl FnMut(&T) -> Result<(), E>,
) -> Result<Vec<Option<T>>, E> {
    let StepWindows { columns, each, stride: apart, remainders: rests, count, copies } =
        step_windows;
    if each == 1 && copies == 1 && rests.is_empty() {
        return Ok(columns.into_iter().step_by(apart).map(Some).collect());
    }
    let mut windows =
        sliding_sums(&columns, (0..count).map(|at| at * apart..at * apart + each), &add)?;
    for (window, rest) in windows.iter_mut().zip(&rests) {
        match window {
            Some(window) => add(window, rest)?,
            None => *window = Some(rest.clone()),
        }
    }
    for window in windows.iter().flatten() {
        (0..copies).try_for_each(|_| hold(window))?;
    }
    Ok(match copies {
        1 => windows,
        _ => windows.into_iter().flat_map(|sum| std::iter::repeat_n(sum, copies)).collect(),
    })
}

/// Greatest common divisor.
fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_are_sums_of_their_columns(
            each in 1usize..9, apart in 1usize..9, count in 1usize..20, seed in 0u64..1000,
        ) {
            let columns: Vec<u64> =
                (0..(count - 1) * apart + each).map(|at| (at as u64 + 1) * 7919 % (seed + 13)).collect();
            let expected: Vec<Option<u64>> = (0..count)
                .map(|at| Some(columns[at * apart..at * apart + each].iter().sum()))
                .collect();
            let step_windows = StepWindows { columns, each, stride: apart, remainders: Vec::new(), count, copies: 1 };
            let add = |held: &mut u64, more: &u64| {
                *held += more;
                Ok::<(), ()>(())
            };
            prop_assert_eq!(windows(step_windows, add, |_| Ok(())), Ok(expected));
        }
    }

    #[test]
    fn fixed_window_is_shared_by_all_steps() {
        let (columns, rests) = (vec![1, 2], Vec::new());
        let step_windows =
            StepWindows { columns, each: 2, stride: 2, remainders: rests, count: 1, copies: 3 };
        let add = |held: &mut u64, more: &u64| {
            *held += more;
            Ok::<(), ()>(())
        };
        assert_eq!(windows(step_windows, add, |_| Ok(())), Ok(vec![Some(3); 3]));
    }
}
