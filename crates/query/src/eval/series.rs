//! Maps series sequentially or on several threads.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use model::SeriesKind;
use store::DecodedChunks;

use crate::error::{Error, Result};
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::query_warnings::QueryWarnings;
use crate::source::SeriesHandle;
use crate::stream::StepGrid;

/// Labels, and the series that have them.
pub(crate) type SeriesGroup = (LabelSet, Vec<SeriesHandle>);

/// Maps a pack of series and appends the results.
type MapPack<'a, T> =
    dyn Fn(&mut Evaluation<'_>, &[SeriesGroup], &mut Vec<T>) -> Result<()> + Sync + 'a;

/// Series of numbers that are read together. Their samples are in memory at one time.
const PACK_SERIES: usize = 64;
/// Points of the series that are read together. They are charged at the end.
const PACK_POINTS: usize = 1024;
/// Longest range in which series are read together: samples of a longer one take more time and
/// memory than what a read looks up.
const PACK_RANGE_MAX: i64 = 15 * store::MINUTE;

/// Series of numbers from which on their samples are read ahead.
pub(crate) const AHEAD_SERIES_MIN: usize = 512;
/// Estimated samples that are read ahead at a time: 56 MiB while they are read, then 24 MiB.
pub(crate) const AHEAD_SAMPLES: u64 = 1 << 20;
/// Longest range that is read ahead.
pub(crate) const AHEAD_RANGE_MAX: i64 = 6 * store::HOUR;

/// Whether all series are of numbers.
pub(crate) fn are_numbers(series: &[SeriesGroup]) -> bool {
    let mut handles = series.iter().flat_map(|(_, handles)| handles);
    !handles.any(|handle| matches!(handle.kind, SeriesKind::Histogram(_)))
}

/// Consecutive series that are read together: some of numbers, or one of histograms.
fn packs<'s>(
    series: &'s [SeriesGroup],
    range: &Range<i64>,
    steps: StepGrid,
) -> Vec<&'s [SeriesGroup]> {
    if range.end.saturating_sub(range.start) > PACK_RANGE_MAX {
        return series.chunks(1).collect();
    }
    // Series of histograms are alone: neither of two neighbours is one.
    let of_one_class = series.chunk_by(|a, b| {
        are_numbers(std::slice::from_ref(a)) && are_numbers(std::slice::from_ref(b))
    });
    let pack = (PACK_POINTS / steps.count.max(1)).clamp(1, PACK_SERIES);
    of_one_class.flat_map(|series| series.chunks(pack)).collect()
}

impl Evaluation<'_> {
    /// Maps series that are read in a range, pack by pack. Results in the order of the series. On
    /// error, the error of the earliest pack that was started.
    pub(crate) fn map_packs<T: Send>(
        &mut self,
        series: &[SeriesGroup],
        range: &Range<i64>,
        steps: StepGrid,
        map: &MapPack<'_, T>,
    ) -> Result<Vec<T>> {
        let made = self.map_parallel(&packs(series, range, steps), &|evaluation, pack| {
            let mut made = Vec::with_capacity(pack.len());
            map(evaluation, pack, &mut made)?;
            Ok(Some(made))
        })?;
        Ok(made.into_iter().flatten().collect())
    }

    /// Calls `each` with consecutive series, until all are done. Samples of very many series of
    /// numbers are read ahead.
    pub(crate) fn with_read_ahead(
        &mut self,
        series: &[SeriesGroup],
        range: &Range<i64>,
        each: &mut dyn FnMut(&mut Self, &[SeriesGroup]) -> Result<()>,
    ) -> Result<()> {
        let length = range.end.saturating_sub(range.start);
        if series.len() < AHEAD_SERIES_MIN || length > AHEAD_RANGE_MAX || !are_numbers(series) {
            return each(self, series);
        }
        let rows = self.source.estimate_rows(series.len() as u64, range, None);
        let at_once = AHEAD_SAMPLES.saturating_mul(series.len() as u64) / rows.max(1);
        let at_once = usize::try_from(at_once).unwrap_or(usize::MAX);
        if at_once < AHEAD_SERIES_MIN {
            return each(self, series);
        }
        for some in series.chunks(at_once) {
            let handles: Vec<&SeriesHandle> = some.iter().flat_map(|(_, same)| same).collect();
            self.source.read_ahead(&handles, range)?;
            let done = each(self, some);
            self.source.end_read_ahead();
            done?;
        }
        Ok(())
    }

    /// Maps any items. Results in the order of the items.
    pub(crate) fn map_parallel<I: Sync, T: Send>(
        &mut self,
        items: &[I],
        map: &(dyn Fn(&mut Evaluation<'_>, &I) -> Result<Option<T>> + Sync),
    ) -> Result<Vec<T>> {
        let threads = self.settings.threads.min(items.len());
        if threads < 2 {
            let made = items.iter().map(|item| map(self, item));
            return made.filter_map(Result::transpose).collect();
        }
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = || {
            let mut evaluation = Evaluation {
                source: self.source,
                settings: self.settings,
                budget: Arc::clone(&self.budget),
                warnings: QueryWarnings::default(),
                gaps: Vec::new(),
                shared: HashMap::new(),
                is_range_of_one_step: false,
                keeps_units_apart: false,
                decoded_chunks: DecodedChunks::default(),
            };
            let mut made: Vec<(usize, Result<T, Error>)> = Vec::new();
            // Each index is taken once, in any order; joining the threads synchronises the results.
            while !has_failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { break };
                match map(&mut evaluation, item) {
                    Ok(None) => {}
                    Ok(Some(value)) => made.push((at, Ok(value))),
                    Err(error) => {
                        has_failed.store(true, Ordering::Relaxed);
                        made.push((at, Err(error)));
                    }
                }
            }
            (made, evaluation.warnings, evaluation.gaps)
        };
        let workers: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let mut all = Vec::with_capacity(items.len());
        for (made, notes, gaps) in workers {
            all.extend(made);
            self.warnings.append(notes);
            self.gaps.extend(gaps);
        }
        model::sort::by_key(&mut all, |(at, _)| *at);
        all.into_iter().map(|(_, made)| made).collect()
    }
}
