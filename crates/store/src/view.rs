//! Read view: consistent snapshot for queries.
//!
//! Answers combine base rows and exact rollups of them; the result is the same either way. Known
//! gaps are returned with the answer.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod activity;
mod cumulative;
mod dropped;
pub(crate) mod increment_reader;
pub(crate) mod increments;
mod interval_increases;
pub(crate) mod label_groups;
pub(crate) mod number_rows;
mod opened_part;
mod placement;
pub(crate) mod sample_reader;
mod selection;
mod sums;
pub(crate) mod window_reader;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use hist::Mixture;
use hist::codec::header::Temporality;
use model::selector::kind_name;
use model::{Gap, SeriesKind};

use crate::backend::{ChunkLocation, Part};
use crate::chunk;
use crate::error::{Error, Result};
use crate::gather;
use crate::grid::{TimeGrid, overlap_share};
use crate::head::Head;
use crate::index::{SelectedSeries, SeriesEntryRef};
use crate::inner::StoreInner;
use crate::manifest::{Manifest, PartInfo};
use crate::resolution::{Resolution, interval_start};
use crate::row::{NumberAggregate, Row};
use crate::time_column::{ColumnFetch, FetchedColumns, TimeColumn};

pub use self::activity::SeriesActivity;
use self::dropped::RollupCoverage;
use self::placement::{enclosing_range, overlaps};

/// Columns computed at a time; larger answers are returned in batches and take no more memory.
const COLUMNS_AT_ONCE: u64 = 1024;
/// Maximum columns of an answer.
pub const COLUMNS_MAX: u64 = 10_000_000;

/// Series looked up in a part between two checks for cancellation.
const SERIES_AT_ONCE: usize = 256;

/// Consistent read view.
pub struct ReadView {
    inner: Arc<StoreInner>,
    manifest: Arc<Manifest>,
    heads: Vec<Arc<RwLock<Head>>>,
    coverage: OnceLock<RollupCoverage>,
    /// Days with dropped base rows.
    dropped_days: OnceLock<BTreeSet<i64>>,
    is_cancelled: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// Number of base rows of a selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCount {
    /// The number.
    pub rows: u64,
    /// Whether there may be more: not all series were counted.
    pub is_lower_bound: bool,
}

impl RowCount {
    /// Number of rows after which dry runs stop counting: about a second.
    pub const COUNTED_MAX: u64 = 1_000_000;
}

/// Computes some columns and their gaps.
type ColumnReader<T> =
    fn(&ReadView, &[SelectedSeries], &[Range<i64>], &mut Vec<Gap>) -> Result<Vec<T>>;

/// Processes a checked chunk; returns the cause if it is invalid.
type ChunkVisitor<'a> =
    dyn FnMut(&ChunkLocation, &chunk::ChunkHeader, &[u8]) -> Result<(), String> + 'a;

impl ReadView {
    pub(crate) fn new(inner: Arc<StoreInner>) -> ReadView {
        let (manifest, heads) = {
            let state = inner.state();
            (Arc::clone(&state.manifest), state.heads())
        };
        let (coverage, dropped_days) = (OnceLock::new(), OnceLock::new());
        ReadView { inner, manifest, heads, coverage, dropped_days, is_cancelled: None }
    }

    /// Reads stop with [`crate::Error::Cancelled`] once `is_over` returns true; it is called at
    /// each part and series.
    pub fn with_cancellation(self, is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> ReadView {
        ReadView { is_cancelled: Some(is_over), ..self }
    }

    /// Returns an error if the read is cancelled.
    fn check(&self) -> Result<()> {
        match &self.is_cancelled {
            Some(is_over) if is_over() => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// Time range of the rows of some series, in nanoseconds since the Unix epoch.
    pub fn time_range(&self, series: &[impl AsRef<SelectedSeries>]) -> Result<Option<Range<i64>>> {
        self.rows_range(series, |_| 0)
    }

    /// Time range of the columns that have all rows of some series: a sample of one timestamp, such
    /// as a cumulative one, belongs to the nanosecond before it.
    pub fn complete_range(
        &self,
        series: &[impl AsRef<SelectedSeries>],
    ) -> Result<Option<Range<i64>>> {
        self.rows_range(series, |kind| i64::from(kind != SeriesKind::Histogram(Temporality::Delta)))
    }

    /// End of the newest row of some series, in nanoseconds since the Unix epoch; `None` if they
    /// have no rows. Of rows that were dropped, the end of their finest rollup.
    pub fn latest_end(&self, series: &[impl AsRef<SelectedSeries>]) -> Result<Option<i64>> {
        let in_heads = self.heads().flat_map(|head| {
            let ends = series.iter().filter_map(|series| head.series_range(series.as_ref().number));
            ends.map(|range| range.1).max()
        });
        let mut latest = in_heads.max();
        let mut parts: Vec<&PartInfo> = self.manifest.parts.values().collect();
        model::sort::by_key(&mut parts, |info| (info.resolution, std::cmp::Reverse(info.end)));
        let asked = self.series_queries(series);
        for info in parts {
            // A rollup row ends with its interval, which may end in the future. It counts only if
            // the whole interval follows the finer rows, which were then dropped.
            let period = info.resolution.period().unwrap_or(0);
            let follows = |end: i64| match period {
                0 => latest < Some(end),
                _ => latest <= Some(end.saturating_sub(period)),
            };
            if !follows(info.end) {
                continue;
            }
            let Ok(part) = self.inner.part(info.number) else { continue };
            let mut newest = None;
            for some in asked.chunks(SERIES_AT_ONCE) {
                self.check()?;
                for series in some {
                    let ends = part.find(&series.id)?.into_iter().map(|location| location.end);
                    newest = newest.max(ends.max());
                }
            }
            if newest.is_some_and(follows) {
                latest = newest;
            }
        }
        Ok(latest)
    }

    /// Time range of all rows, taken from part metadata without reading parts; where only rollups
    /// are left it covers whole days.
    pub fn part_range(&self) -> Option<Range<i64>> {
        let live: BTreeSet<u64> = self.manifest.base_parts().map(|part| part.number).collect();
        let says = |part: &&PartInfo| match part.resolution {
            Resolution::Base => true,
            _ => !part.covers.values().flatten().all(|number| live.contains(number)),
        };
        let parts = self.manifest.parts.values().filter(says).map(|part| part.start..part.end);
        let heads =
            self.heads().filter_map(|head| head.time_range()).map(|(start, end)| start..end);
        let all: Vec<Range<i64>> = parts.chain(heads).collect();
        enclosing_range(all.iter())
    }

    /// Estimated number of rows to read for `series` series in a range, at base resolution or from
    /// the coarsest rollups that fit columns of length `step`. Assumes that rows are evenly
    /// distributed over series and time; reads neither parts nor the head.
    pub fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        let fits =
            |part: &&PartInfo| part.resolution.period().is_some_and(|period| Some(period) <= step);
        let coarsest = self.manifest.parts.values().filter(fits).map(|part| part.resolution).max();
        let rows_at = |resolution| {
            self.manifest.parts.values().filter(move |part| Some(part.resolution) == resolution)
        };
        let covered: BTreeSet<u64> =
            rows_at(coarsest).flat_map(|part| part.covers.values().flatten().copied()).collect();
        let base = rows_at(Some(Resolution::Base)).filter(|part| !covered.contains(&part.number));
        let in_parts = rows_at(coarsest).chain(base).map(|part| {
            let share = (series as f64 / part.chunks.max(1) as f64).min(1.0);
            part.rows as f64 * share * overlap_share(&(part.start..part.end), range)
        });
        let in_heads = self.heads().map(|head| head.estimate_rows(series, range)).sum::<f64>();
        // Saturates above the maximum.
        (in_parts.sum::<f64>() + in_heads).ceil() as u64
    }

    /// Time range of rows, with starts extended by `before` of their kind.
    fn rows_range(
        &self,
        series: &[impl AsRef<SelectedSeries>],
        before: impl Fn(SeriesKind) -> i64,
    ) -> Result<Option<Range<i64>>> {
        let queries = self.series_queries(series);
        let mut extent: Option<Range<i64>> = None;
        let mut add = |start: i64, end: i64| {
            let (first, last) = extent.clone().map_or((start, end), |held| (held.start, held.end));
            extent = Some(first.min(start)..last.max(end));
        };
        // Rollup rows are whole intervals: finer rows, where present, give the exact range.
        let mut recorded: BTreeSet<u64> = BTreeSet::new();
        for resolution in Resolution::ALL {
            let parts_of_resolution =
                || self.manifest.parts.values().filter(|part| part.resolution == resolution);
            let made_of = |info: &PartInfo| match resolution {
                Resolution::Base => vec![info.number],
                _ => info.covers.values().flatten().copied().collect(),
            };
            for info in parts_of_resolution()
                .filter(|info| !made_of(info).iter().all(|part| recorded.contains(part)))
            {
                let Ok(part) = self.inner.part(info.number) else { continue };
                for some in queries.chunks(SERIES_AT_ONCE) {
                    self.check()?;
                    for series in some {
                        let kind = series.kind;
                        for location in part.find(&series.id)? {
                            let start = match resolution.period() {
                                None => location.start.saturating_sub(before(kind)),
                                // A row of a gauge starts where its interval ends: a range that
                                // cuts the interval would miss it.
                                Some(period) if starts_with_point(&*part, &location, kind) => {
                                    interval_start(location.start, period)
                                }
                                Some(_) => location.start,
                            };
                            add(start, location.end);
                        }
                    }
                }
            }
            // If a rule dropped series from a part, coarser rows give their range.
            let says_all = |info: &&PartInfo| !info.has_dropped_series;
            recorded.extend(
                parts_of_resolution().filter(says_all).flat_map(made_of).collect::<Vec<_>>(),
            );
        }
        self.check()?;
        for head in self.heads() {
            for series in &queries {
                if let Some((start, end)) = head.series_range(series.number) {
                    add(start.saturating_sub(before(series.kind)), end);
                }
            }
        }
        Ok(extent)
    }

    /// Merged histograms of some series, column by column.
    pub fn histograms<'a>(
        &'a self,
        series: &[impl AsRef<SelectedSeries>],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Mixture>> {
        let kinds = |kind| matches!(kind, SeriesKind::Histogram(_));
        self.columns(series, grid, kinds, "histograms", |view, asked, columns, gaps| {
            view.merge_histograms(asked, columns, false, gaps)
        })
    }

    /// Same as [`Self::histograms`], but a gauge histogram on a column boundary belongs to
    /// the later column. Rollups of topdeck versions that did not keep such values separate have
    /// them in the earlier column.
    pub fn histograms_by_start<'a>(
        &'a self,
        series: &[impl AsRef<SelectedSeries>],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Mixture>> {
        let kinds = |kind| matches!(kind, SeriesKind::Histogram(_));
        self.columns(series, grid, kinds, "histograms", |view, asked, columns, gaps| {
            view.merge_histograms(asked, columns, true, gaps)
        })
    }

    /// Merged numbers of some counters or gauges, column by column; `None` for empty columns. For
    /// counters, the increase.
    pub fn numbers<'a>(
        &'a self,
        series: &[impl AsRef<SelectedSeries>],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Option<NumberAggregate>>> {
        let kinds = |kind| matches!(kind, SeriesKind::Counter(_) | SeriesKind::Gauge);
        self.columns(series, grid, kinds, "numbers", |view, asked, columns, gaps| {
            view.sum_numbers(asked, columns, gaps)
        })
    }

    /// Increases of each of some counters in columns, by time: a row from the sample before the
    /// first increase to the last sample, or of the intervals of rollups; `None` without an
    /// increase. The gaps are those that the read meets; [`Self::gaps_of`] has the recorded ones.
    pub fn increases(
        &self,
        series: &[SelectedSeries],
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Vec<Option<Row<NumberAggregate>>>>> {
        self.check_kinds(series, |kind| matches!(kind, SeriesKind::Counter(_)), "increases")?;
        self.sum_increases(series, columns, gaps)
    }

    fn check_kinds(
        &self,
        series: &[SelectedSeries],
        is_kind: impl Fn(SeriesKind) -> bool,
        expected: &'static str,
    ) -> Result<()> {
        let Some(other) = series.iter().find(|series| !is_kind(series.kind)) else {
            return Ok(());
        };
        let (series, kind) = (self.name_of(other).to_string(), kind_name(other.kind));
        Err(model::Error::Kind { series, kind, found: expected }.into())
    }

    fn columns<'a, T: 'static>(
        &'a self,
        series: &[impl AsRef<SelectedSeries>],
        grid: TimeGrid,
        is_kind: impl Fn(SeriesKind) -> bool,
        expected: &'static str,
        fill: ColumnReader<T>,
    ) -> Result<ColumnIter<'a, T>> {
        if grid.step <= 0 {
            let found = format!("{} ns", grid.step);
            return Err(Error::InvalidSetting {
                name: "column length",
                found,
                expected: "more than 0",
            });
        }
        if grid.columns > COLUMNS_MAX {
            let (found, max) = (grid.columns, COLUMNS_MAX);
            return Err(Error::QueryTooExpensive {
                limit: "columns",
                found,
                max,
                remedy: "use longer columns",
            });
        }
        let queries = self.series_queries(series);
        self.check_kinds(&queries, is_kind, expected)?;
        let stored =
            StoredColumns { view: self, series_queries: queries, grid, read_columns: fill };
        Ok(ColumnIter { columns: FetchedColumns::new(stored) })
    }

    fn series_queries(&self, series: &[impl AsRef<SelectedSeries>]) -> Vec<SelectedSeries> {
        let mut queries: Vec<SelectedSeries> = series.iter().map(|found| *found.as_ref()).collect();
        // Parts store series by id: reading in that order reads a file sequentially.
        queries.sort_unstable_by_key(|series| series.id);
        queries.dedup_by_key(|series| series.id);
        queries
    }

    /// Name and labels of a series, for messages.
    fn name_of<'q>(&'q self, series: &'q SelectedSeries) -> SeriesName<'q> {
        SeriesName { view: self, series }
    }

    /// Number of base rows that ended within a range, as a deletion counts them. Rows are read, so
    /// counting stops after the series with which `max` is reached.
    pub fn count_rows(
        &self,
        series: &[SeriesEntryRef],
        range: &Range<i64>,
        max: u64,
    ) -> Result<RowCount> {
        let mut rows = 0_u64;
        for series in series {
            if rows >= max {
                return Ok(RowCount { rows, is_lower_bound: true });
            }
            // A row belongs to the nanosecond before its end.
            let ends = range.start..range.end.saturating_add(1);
            self.samples(series, ends, &mut |sample| {
                let is_within = range.contains(&sample.end.saturating_sub(1));
                rows = rows.saturating_add(u64::from(is_within));
            })?;
        }
        Ok(RowCount { rows, is_lower_bound: false })
    }

    fn heads(&self) -> impl Iterator<Item = RwLockReadGuard<'_, Head>> {
        self.heads.iter().map(|head| head.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Known gaps within a time range, of any series, by time.
    pub fn gaps(&self, range: &Range<i64>) -> Vec<Gap> {
        sorted(self.known_gaps(range))
    }

    /// Known gaps within a time range that may concern some series, by time. Without series, those
    /// that may concern one that is not stored.
    pub fn gaps_of(&self, series: &[impl AsRef<SelectedSeries>], range: &Range<i64>) -> Vec<Gap> {
        let series: Vec<SelectedSeries> = series.iter().map(|found| *found.as_ref()).collect();
        sorted(self.known_gaps_of(&series, range))
    }

    /// Recorded gaps that touch `range` and may concern some series.
    fn known_gaps_of(&self, series: &[SelectedSeries], range: &Range<i64>) -> Vec<Gap> {
        let mut gaps = self.known_gaps(range);
        self.retain_gaps_of(series, &mut gaps);
        gaps
    }

    /// Leaves out gaps of producers that sent none of some series, and gaps of other series.
    fn retain_gaps_of(&self, series: &[SelectedSeries], gaps: &mut Vec<Gap>) {
        let named = gaps.iter().filter_map(Gap::affected_series);
        let mut others: BTreeSet<String> = named.map(str::to_owned).collect();
        if !series.is_empty() && !others.is_empty() {
            for of in series {
                others.remove(&self.name_of(of).to_string());
            }
            gaps.retain(|gap| gap.affected_series().is_none_or(|series| !others.contains(series)));
        }
        if gaps.iter().all(|gap| gap.affected_producer().is_none()) {
            return;
        }
        let producers = self.inner.index().producers_of(series);
        gaps.retain(|gap| {
            gap.affected_producer().is_none_or(|producer| producers.may_contain(producer))
        });
    }

    /// Recorded gaps that touch `range`.
    fn known_gaps(&self, range: &Range<i64>) -> Vec<Gap> {
        let mut gaps = self.manifest.gaps.clone();
        self.heads().for_each(|head| gaps.extend(head.gaps.iter().cloned()));
        gaps.retain(|gap| overlaps(gap, range));
        gaps
    }
}

fn sorted(mut gaps: Vec<Gap>) -> Vec<Gap> {
    gaps.sort_unstable();
    gaps.dedup();
    gaps
}

/// Whether the first row of a rollup chunk is a gauge value. False for an unreadable chunk;
/// reading its rows reports the damage.
fn starts_with_point(part: &dyn Part, location: &ChunkLocation, kind: SeriesKind) -> bool {
    if location.start == location.end {
        return true;
    }
    if kind != SeriesKind::Histogram(Temporality::Delta) {
        return false;
    }
    let mut bytes = Vec::new();
    let Ok(Ok(header)) = gather::read(part, location, &mut bytes) else { return false };
    let times = chunk::read_times(&header, &bytes);
    times.is_ok_and(|(times, _)| times.first().is_some_and(|(start, end)| start == end))
}

/// Whether a part can have rows that ended within `range`.
fn may_contain(info: &PartInfo, range: &Range<i64>) -> bool {
    info.start <= range.end && range.start < info.end
}

/// Iterator over result columns, read in batches.
pub struct ColumnIter<'a, T> {
    columns: FetchedColumns<StoredColumns<'a, T>>,
}

impl<T> Iterator for ColumnIter<'_, T> {
    type Item = Result<TimeColumn<T>>;

    fn next(&mut self) -> Option<Result<TimeColumn<T>>> {
        self.columns.next()
    }
}

/// Columns of some series.
struct StoredColumns<'a, T> {
    view: &'a ReadView,
    series_queries: Vec<SelectedSeries>,
    grid: TimeGrid,
    read_columns: ColumnReader<T>,
}

impl<T> ColumnFetch for StoredColumns<'_, T> {
    type Value = T;
    type Error = Error;

    fn column_count(&self) -> u64 {
        self.grid.columns
    }

    fn fetch(&mut self, first: u64) -> Result<Vec<TimeColumn<T>>> {
        let end = self.grid.columns.min(first.saturating_add(COLUMNS_AT_ONCE));
        let ranges: Vec<Range<i64>> = (first..end).map(|at| self.grid.column(at)).collect();
        let Some(all) = enclosing_range(ranges.iter()) else { return Ok(Vec::new()) };
        let mut gaps = self.view.known_gaps_of(&self.series_queries, &all);
        let values = (self.read_columns)(self.view, &self.series_queries, &ranges, &mut gaps)?;
        gaps.sort_unstable();
        gaps.dedup();
        let column = |(range, value): (Range<i64>, T)| TimeColumn {
            start: range.start,
            end: range.end,
            value,
            gaps: gaps.iter().filter(|gap| overlaps(gap, &range)).cloned().collect(),
        };
        Ok(ranges.into_iter().zip(values).map(column).collect())
    }
}

/// Name and labels of a series; its id if it was deleted since it was selected.
struct SeriesName<'a> {
    view: &'a ReadView,
    series: &'a SelectedSeries,
}

impl fmt::Display for SeriesName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, number) = (self.view.inner.index(), self.series.number);
        match index.is_live(number) {
            true => index.series(number).fmt(f),
            false => self.series.id.fmt(f),
        }
    }
}
