//! Read view: consistent snapshot for queries.
//!
//! Every answer is made of rows as they came, or of exact rollups of them; which of the two does not show.
//! What is known to be missing comes with the answer.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use hist::Mixture;
use hist::codec::header::Temporality;
use model::{Gap, Sample, SampleValue, Selector, Series, SeriesId, SeriesKind};

use crate::backend::{ChunkLocation, Part};
use crate::chunk;
use crate::error::{Error, Result};
use crate::gather::{self, GatheredRows, KnownPredecessors};
use crate::grid::{ColumnRun, TimeGrid, overlap_share, plan};
use crate::head::Head;
use crate::manifest::{Manifest, PartInfo};
use crate::merge::{COLUMN_FULL_REASON, ColumnMerge, assign_columns, rows_in_runs};
use crate::resolution::{DAY, Resolution, slot};
use crate::rollup::{deltas_of_day, late_gap};
use crate::row::{NumberSummary, Predecessor, Row, Rows};
use crate::store::{SeriesEntryRef, StoreInner};

/// Columns that are worked on at a time; an answer of more is given in pieces, and takes no more memory.
const COLUMNS_AT_ONCE: u64 = 1024;
/// Columns of one answer at the most.
pub const COLUMNS_MAX: u64 = 10_000_000;

/// Series that are looked for in a part between two looks at whether somebody still waits.
const SERIES_AT_ONCE: usize = 256;

/// Consistent read view.
pub struct ReadView {
    inner: Arc<StoreInner>,
    manifest: Arc<Manifest>,
    heads: Vec<Arc<RwLock<Head>>>,
    /// Days of which rows as they came were dropped, if only in part.
    dropped_days: OnceLock<BTreeSet<i64>>,
    is_cancelled: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

/// What happened in a column of time.
#[derive(Clone, Debug)]
pub struct TimeColumn<T> {
    /// When it begins, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// What happened in it.
    pub value: T,
    /// What is known to be missing in it.
    pub gaps: Vec<Gap>,
}

/// Works out some columns, and what is missing in them.
type ColumnReader<T> =
    fn(&ReadView, &[SeriesQuery], &[Range<i64>], &mut Vec<Gap>) -> Result<Vec<T>>;

/// Takes a checked chunk; what is wrong with it otherwise.
type ChunkVisitor<'a> =
    dyn FnMut(&ChunkLocation, &chunk::ChunkHeader, &[u8]) -> Result<(), String> + 'a;

/// Series of a read.
struct SeriesQuery {
    found: SeriesEntryRef,
    id: SeriesId,
}

impl ReadView {
    pub(crate) fn new(inner: Arc<StoreInner>) -> ReadView {
        let (manifest, heads) = {
            let state = inner.state();
            (Arc::clone(&state.manifest), state.heads())
        };
        ReadView { inner, manifest, heads, dropped_days: OnceLock::new(), is_cancelled: None }
    }

    /// Every read stops with [`Error::Over`] when this says so: it is asked at each part and series. Give it what the
    /// question has.
    pub fn with_cancellation(self, is_over: Arc<dyn Fn() -> bool + Send + Sync>) -> ReadView {
        ReadView { is_cancelled: Some(is_over), ..self }
    }

    /// An error if nobody waits any more.
    fn check(&self) -> Result<()> {
        match &self.is_cancelled {
            Some(is_over) if is_over() => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    /// The series that a selector picks.
    pub fn select(&self, selector: &Selector) -> Vec<SeriesEntryRef> {
        let index = self.inner.index();
        let found = |number| SeriesEntryRef { number, series: index.series(number) };
        index.select(selector).into_iter().map(found).collect()
    }

    /// The series that a selector picks among those that have no rows any more: they were deleted, or are kept no
    /// longer. Reads the file of series: for messages.
    pub fn select_deleted(&self, selector: &Selector) -> Result<Vec<Series>> {
        self.inner.select_deleted(selector)
    }

    /// Goes through the series that a selector picks until `each` says to stop, without holding all of them. How many
    /// it picks in all.
    pub fn each_series(
        &self,
        selector: &Selector,
        each: &mut dyn FnMut(Series) -> ControlFlow<()>,
    ) -> usize {
        /// Between two of so many, others may take in new series.
        const AT_ONCE: usize = 1024;
        let numbers = self.inner.index().select(selector);
        for some in numbers.chunks(AT_ONCE) {
            let index = self.inner.index();
            // Some may have been deleted meanwhile.
            let live = some.iter().copied().filter(|number| index.is_live(*number));
            let series: Vec<Series> = live.map(|number| index.series(number)).collect();
            drop(index);
            if series.into_iter().any(|series| each(series).is_break()) {
                break;
            }
        }
        numbers.len()
    }

    /// The series of a number, if it is known.
    pub fn series(&self, id: &SeriesId) -> Option<Series> {
        let index = self.inner.index();
        index.number(id).map(|number| index.series(number))
    }

    /// From when to when there are rows of some series, in nanoseconds since the Unix epoch.
    pub fn time_range(&self, series: &[SeriesEntryRef]) -> Result<Option<Range<i64>>> {
        self.rows_range(series, |_| 0)
    }

    /// Which columns have all rows of some series: what was read at a moment, as what grows is, belongs to the
    /// nanosecond before it.
    pub fn complete_range(&self, series: &[SeriesEntryRef]) -> Result<Option<Range<i64>>> {
        self.rows_range(series, |kind| i64::from(kind != SeriesKind::Histogram(Temporality::Delta)))
    }

    /// From when to when there are rows at all, as parts say without being read; where only rollups are left it is
    /// whole days.
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

    /// About how many rows of so many series there are to be read of a range, as they came, or of
    /// the coarsest rollups that fit in columns as long as `step`. Parts and the head are not read:
    /// each has as many rows of every series and in every moment as it has on average.
    pub fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        let fits =
            |part: &&PartInfo| part.resolution.period().is_some_and(|period| Some(period) <= step);
        let coarsest = self.manifest.parts.values().filter(fits).map(|part| part.resolution).max();
        let own = |resolution| {
            self.manifest.parts.values().filter(move |part| Some(part.resolution) == resolution)
        };
        let covered: BTreeSet<u64> =
            own(coarsest).flat_map(|part| part.covers.values().flatten().copied()).collect();
        let base = own(Some(Resolution::Base)).filter(|part| !covered.contains(&part.number));
        let in_parts = own(coarsest).chain(base).map(|part| {
            let share = (series as f64 / part.chunks.max(1) as f64).min(1.0);
            part.rows as f64 * share * overlap_share(&(part.start..part.end), range)
        });
        let in_heads = self.heads().map(|head| head.estimate_rows(series, range)).sum::<f64>();
        // What is more than fits, fits barely.
        (in_parts.sum::<f64>() + in_heads).ceil() as u64
    }

    /// The rows of kinds that lie `before` their start begin so much earlier.
    fn rows_range(
        &self,
        series: &[SeriesEntryRef],
        before: impl Fn(SeriesKind) -> i64,
    ) -> Result<Option<Range<i64>>> {
        let asked = self.series_queries(series);
        let mut extent: Option<Range<i64>> = None;
        let mut add = |start: i64, end: i64| {
            let (first, last) = extent.clone().map_or((start, end), |held| (held.start, held.end));
            extent = Some(first.min(start)..last.max(end));
        };
        // A rollup's rows are whole slots: what finer rows are there of says it better.
        let mut told: BTreeSet<u64> = BTreeSet::new();
        for resolution in Resolution::ALL {
            let own = || self.manifest.parts.values().filter(|part| part.resolution == resolution);
            let made_of = |info: &PartInfo| match resolution {
                Resolution::Base => vec![info.number],
                _ => info.covers.values().flatten().copied().collect(),
            };
            for info in own().filter(|info| !made_of(info).iter().all(|part| told.contains(part))) {
                let Ok(part) = self.inner.part(info.number) else { continue };
                for some in asked.chunks(SERIES_AT_ONCE) {
                    self.check()?;
                    for series in some {
                        let kind = series.found.series.kind();
                        for place in part.find(&series.id)? {
                            let start = match resolution.period() {
                                None => place.start.saturating_sub(before(kind)),
                                // A row of a moment begins where its slot ends: a range that cuts
                                // the slot would not have it.
                                Some(period) if starts_with_point(&*part, &place, kind) => {
                                    slot(place.start, period)
                                }
                                Some(_) => place.start,
                            };
                            add(start, place.end);
                        }
                    }
                }
            }
            // Of a series that a rule took out of a part, coarser rows say it.
            let says_all = |info: &&PartInfo| !info.has_dropped_series;
            told.extend(own().filter(says_all).flat_map(made_of).collect::<Vec<_>>());
        }
        self.check()?;
        for head in self.heads() {
            for series in &asked {
                if let Some((start, end)) = head.series_range(series.found.number) {
                    add(start.saturating_sub(before(series.found.series.kind())), end);
                }
            }
        }
        Ok(extent)
    }

    /// Distributions of some series of histograms, put together, column by column.
    pub fn histograms<'a>(
        &'a self,
        series: &[SeriesEntryRef],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Mixture>> {
        let kinds = |kind| matches!(kind, SeriesKind::Histogram(_));
        self.columns(series, grid, kinds, "histograms", |view, asked, columns, gaps| {
            view.merge_histograms(asked, columns, false, gaps)
        })
    }

    /// The same, but a distribution of a moment belongs to the column that begins by then, and not
    /// to the one that ends by then. Of days that were rolled up by a topdeck that did not keep
    /// them apart, rollups have it in the column before.
    pub fn histograms_by_start<'a>(
        &'a self,
        series: &[SeriesEntryRef],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Mixture>> {
        let kinds = |kind| matches!(kind, SeriesKind::Histogram(_));
        self.columns(series, grid, kinds, "histograms", |view, asked, columns, gaps| {
            view.merge_histograms(asked, columns, true, gaps)
        })
    }

    /// Numbers of some series of counts or gauges, put together, column by column; `None` where there are none.
    /// Of cumulative counts it is the increase.
    pub fn numbers<'a>(
        &'a self,
        series: &[SeriesEntryRef],
        grid: TimeGrid,
    ) -> Result<ColumnIter<'a, Option<NumberSummary>>> {
        let kinds = |kind| matches!(kind, SeriesKind::Counter(_) | SeriesKind::Gauge);
        self.columns(series, grid, kinds, "numbers", |view, asked, columns, gaps| {
            view.sum_numbers(asked, columns, gaps)
        })
    }

    fn columns<'a, T: 'static>(
        &'a self,
        series: &[SeriesEntryRef],
        grid: TimeGrid,
        is_kind: impl Fn(SeriesKind) -> bool,
        expected: &'static str,
        fill: ColumnReader<T>,
    ) -> Result<ColumnIter<'a, T>> {
        if grid.step <= 0 {
            let found = format!("{} ns", grid.step);
            return Err(Error::InvalidSetting {
                name: "a column's length",
                found,
                expected: "more than nothing",
            });
        }
        if grid.columns > COLUMNS_MAX {
            let (found, max) = (grid.columns, COLUMNS_MAX);
            return Err(Error::QueryTooExpensive {
                limit: "columns",
                found,
                max,
                remedy: "ask for longer columns",
            });
        }
        if let Some(other) = series.iter().find(|found| !is_kind(found.series.kind())) {
            let (series, kind) = (other.series.to_string(), other.series.kind().name());
            return Err(model::Error::Kind { series, kind, found: expected }.into());
        }
        let asked = self.series_queries(series);
        Ok(ColumnIter {
            view: self,
            series_queries: asked,
            grid,
            next: 0,
            ready: Vec::new().into_iter(),
            read_columns: fill,
        })
    }

    fn series_queries(&self, series: &[SeriesEntryRef]) -> Vec<SeriesQuery> {
        let index = self.inner.index();
        let mut asked: Vec<SeriesQuery> = series
            .iter()
            .map(|found| SeriesQuery { found: found.clone(), id: index.id(found.number) })
            .collect();
        // Parts hold series by id: read in that order, a file is read from its front to its end.
        asked.sort_unstable_by_key(|series| series.id);
        asked.dedup_by_key(|series| series.id);
        asked
    }

    /// Rows of one series as they came, in the order of their ends.
    pub fn samples(
        &self,
        series: &SeriesEntryRef,
        range: Range<i64>,
        each: &mut dyn FnMut(Sample),
    ) -> Result<Vec<Gap>> {
        let kind = series.series.kind();
        let id = self.inner.index().id(series.number);
        let mut gaps = self.known_gaps(&range);
        let asked = SeriesQuery { found: SeriesEntryRef::clone(series), id };
        gaps.extend(self.dropped_samples(&asked, &range)?);
        let partition = Resolution::Base.partition();
        let mut starts: BTreeSet<i64> =
            self.manifest.base_parts().map(|part| part.partition().start).collect();
        starts.extend(self.heads().flat_map(|head| head.partitions().collect::<Vec<_>>()));
        for start in starts {
            let piece = start.max(range.start)..start.saturating_add(partition).min(range.end);
            if piece.is_empty() {
                continue;
            }
            let gathered = self.base_rows(&asked, &piece, |_| true, &mut gaps)?;
            for_each_sample(gathered.into_settled(kind).0, each);
        }
        Ok(gaps)
    }

    fn heads(&self) -> impl Iterator<Item = RwLockReadGuard<'_, Head>> {
        self.heads.iter().map(|head| head.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known to be missing in some time, of whatever series, by time.
    pub fn gaps(&self, range: &Range<i64>) -> Vec<Gap> {
        let mut gaps = self.known_gaps(range);
        gaps.sort();
        gaps.dedup();
        gaps
    }

    /// Gaps that are remembered, and touch `range`.
    fn known_gaps(&self, range: &Range<i64>) -> Vec<Gap> {
        let mut gaps = self.manifest.gaps.clone();
        self.heads().for_each(|head| gaps.extend(head.gaps.iter().cloned()));
        gaps.retain(|gap| overlaps(gap, range));
        gaps
    }

    /// Gives each chunk of a series in a part that touches `range`, checked; what is damaged becomes a gap.
    fn chunks(
        &self,
        info: &PartInfo,
        id: &SeriesId,
        range: &Range<i64>,
        gaps: &mut Vec<Gap>,
        each: &mut ChunkVisitor<'_>,
    ) -> Result<()> {
        self.check()?;
        let whole = |why: String| Gap {
            start: info.start,
            end: info.end,
            producer: None,
            lost: None,
            reason: format!("part {:016x}: {why}", info.number),
        };
        let found = self
            .inner
            .part(info.number)
            .and_then(|part| part.find(id).map(|places| (part, places)))
            .and_then(|(part, places)| Ok((gather::missing_rows(&*part, info)?, part, places)));
        let (part, places) = match found {
            Ok((missing, part, places)) => {
                gaps.extend(missing);
                (part, places)
            }
            Err(error) => {
                gaps.push(whole(error.to_string()));
                return Ok(());
            }
        };
        let mut bytes = Vec::new();
        for place in places {
            // A row belongs to the nanosecond before its end.
            if place.end <= range.start || place.start > range.end {
                continue;
            }
            let read = gather::read(&*part, &place, &mut bytes).unwrap_or_else(|error| {
                Err(gather::missing_chunk(&*part, &place, &error.to_string()))
            });
            match read {
                Err(gap) => gaps.push(gap),
                Ok(header) => {
                    if let Err(why) = each(&place, &header, &bytes) {
                        gaps.push(whole(format!("chunk at byte {}: {why}", place.offset)));
                    }
                }
            }
        }
        Ok(())
    }

    /// All rows of the base that ended within `range`, out of parts that are wanted and out of the heads.
    fn base_rows(
        &self,
        series: &SeriesQuery,
        range: &Range<i64>,
        wanted: impl Fn(&PartInfo) -> bool,
        gaps: &mut Vec<Gap>,
    ) -> Result<GatheredRows> {
        let kind = series.found.series.kind();
        let mut rows = Rows::empty_for(kind);
        let mut predecessors = KnownPredecessors::default();
        self.check()?;
        for info in self.manifest.base_parts() {
            if info.end <= range.start || info.start > range.end || !wanted(info) {
                continue;
            }
            self.chunks(info, &series.id, range, gaps, &mut |_, header, bytes| {
                let (mut more, mut predecessor) = chunk::decode(header, bytes)?;
                if kind.is_cumulative() {
                    // Where the range cuts a chunk, its first row there follows one of the chunk.
                    let before = more.last_reading(range.start);
                    predecessor = before.map_or(predecessor, Predecessor::Reading);
                }
                more.retain(|_, end| range.contains(&end.saturating_sub(1)));
                predecessors.add(&more, predecessor);
                rows.append(more);
                Ok(())
            })?;
        }
        for head in self.heads() {
            if let Some(more) = head.rows_of(series.found.number, kind, range) {
                rows.append(more);
            }
        }
        Ok(GatheredRows { rows, predecessors })
    }

    /// Days of which rows are kept, but not those that some piece needs: they are not empty. Where
    /// finer rows have all that is known of a series, they are read instead.
    fn dropped_gaps(
        &self,
        series: &[&SeriesQuery],
        plan: &Plan,
        covered: &CoveredParts,
    ) -> Result<DroppedRows> {
        let live: BTreeSet<(i64, u64)> =
            self.manifest.base_parts().map(|part| (part.day(), part.number)).collect();
        let known: BTreeSet<(i64, u64)> = covered.iter().flatten().copied().collect();
        let mut dropped = DroppedRows::default();
        for resolution in Resolution::ALL {
            let is_there = |part: &(i64, u64)| {
                live.contains(part) || covered[resolution as usize].contains(part)
            };
            let mut lacking: BTreeSet<i64> =
                known.iter().filter(|part| !is_there(part)).map(|part| part.0).collect();
            if resolution != Resolution::Base {
                lacking.extend(self.days_with_dropped_series(resolution));
            }
            // Rows as they came go by partitions, of which a day has several.
            let period = DAY.min(resolution.partition());
            let mut pieces = BTreeMap::new();
            for (range, _) in &plan[resolution as usize] {
                for piece in
                    clip_to_days(range, &lacking).flat_map(|day| split_by_slots(&day, period))
                {
                    let held = pieces.entry(slot(piece.end, period)).or_insert(piece.clone());
                    *held = held.start.min(piece.start)..held.end.max(piece.end);
                }
            }
            for (first, Range { start, end }) in pieces {
                let day = first.saturating_sub(first.rem_euclid(DAY));
                let coarser = |part: &PartInfo| {
                    part.resolution > resolution && part.covers.contains_key(&day)
                };
                let mut is_told = false;
                for &series in series {
                    self.check()?;
                    let lacks = match resolution {
                        // Texts have no rollups.
                        _ if series.found.series.kind() == SeriesKind::Text => false,
                        Resolution::Base => {
                            !is_told
                                && self.has_rows(series, day, coarser)
                                && self.lacks_rows(series, first, covered)?
                        }
                        _ => match self.rows_of_day(series, day, resolution, covered)? {
                            RowsOfDay::Complete => false,
                            RowsOfDay::Finer(finer) => {
                                dropped.read_instead(series, plan, (day, resolution), finer);
                                false
                            }
                            RowsOfDay::Missing => true,
                        },
                    };
                    if !lacks || is_told {
                        continue;
                    }
                    is_told = true;
                    let series = &series.found.series;
                    let reason = format!(
                        "rows of {series} finer than rollups were dropped; rollups answer for longer columns"
                    );
                    dropped.gaps.push(Gap { start, end, producer: None, lost: None, reason });
                }
            }
        }
        Ok(dropped)
    }

    /// Days of whose rollups a rule took rows of some series.
    fn days_with_dropped_series(&self, resolution: Resolution) -> impl Iterator<Item = i64> + '_ {
        let is_meant =
            move |part: &&PartInfo| part.resolution == resolution && part.has_dropped_series;
        self.manifest.parts.values().filter(is_meant).flat_map(|part| part.covers.keys().copied())
    }

    /// Whether the rollups of a resolution have as much of a series and a day as any other
    /// resolution has.
    fn rows_of_day(
        &self,
        series: &SeriesQuery,
        day: i64,
        wanted: Resolution,
        covered: &CoveredParts,
    ) -> Result<RowsOfDay> {
        let kind = series.found.series.kind();
        let range = day..day.saturating_add(DAY);
        // Whoever reads them for an answer says what is damaged.
        let mut gaps = Vec::new();
        let mut amounts: Vec<(Resolution, u128)> = Vec::new();
        for resolution in Resolution::ROLLUPS {
            let mut rows = Rows::none_of_rollup(kind);
            self.rolled_rows(
                series,
                resolution,
                std::slice::from_ref(&range),
                &mut gaps,
                &mut rows,
            )?;
            // What is in no rollup of the resolution is read beside it.
            let beside = match kind {
                _ if kind.is_cumulative() => None,
                SeriesKind::Histogram(_) => self.amount_in_base(series, &range, &mut |info| {
                    self.is_not_rolled_up(info, resolution, covered)
                })?,
                _ => self.amount_in_base(series, &range, &mut |info| {
                    self.is_not_rolled_up(info, Resolution::Day, covered)
                })?,
            };
            amounts.push((resolution, rows.amount().saturating_add(beside.unwrap_or(0))));
        }
        // Readings of a day of which some are gone are no measure: between which of those they lie
        // is not known.
        if !kind.is_cumulative() || self.manifest.has_all_sources(day) {
            let amount = self.amount_in_base(series, &range, &mut |_| true)?;
            amounts.extend(amount.map(|amount| (Resolution::Base, amount)));
        }
        let most = amounts.iter().map(|(_, amount)| *amount).max().unwrap_or(0);
        if most == 0 {
            let is_base = |part: &PartInfo| part.resolution == Resolution::Base;
            let is_known = !kind.is_cumulative() || self.manifest.has_all_sources(day);
            let are_gone = !is_known && self.has_rows(series, day, is_base);
            return Ok(if are_gone { RowsOfDay::Missing } else { RowsOfDay::Complete });
        }
        let is_best = |resolution: &Resolution| amounts.contains(&(*resolution, most));
        let mut finer = Resolution::ALL.into_iter().rev().filter(|&finer| finer <= wanted);
        Ok(match finer.find(is_best) {
            Some(best) if best == wanted => RowsOfDay::Complete,
            Some(finer) => RowsOfDay::Finer(finer),
            None => RowsOfDay::Missing,
        })
    }

    /// How much happened in a stretch of time according to the parts of the base that are wanted;
    /// `None` if one cannot be read.
    fn amount_in_base(
        &self,
        series: &SeriesQuery,
        range: &Range<i64>,
        wanted: &mut dyn FnMut(&PartInfo) -> bool,
    ) -> Result<Option<u128>> {
        // Whoever reads them for an answer says what is damaged.
        let mut gaps = Vec::new();
        let infos =
            self.manifest.base_parts().filter(|info| may_contain(info, range) && wanted(info));
        let found = self.inner.parts(infos, &mut gaps);
        let found =
            found.and_then(|parts| gather::gather_rows(&parts, &series.id, range, &mut gaps));
        Ok(match found {
            Ok(Some(rows)) => {
                Some(self.deltas_since(series, rows, range.start, &mut gaps)?.amount())
            }
            Ok(None) => Some(0),
            Err(_) => None,
        })
    }

    /// Whether rollups of a partition hold more of a series than the rows that are left of those
    /// they were made of: some were dropped, although others came since.
    fn lacks_rows(&self, series: &SeriesQuery, start: i64, covered: &CoveredParts) -> Result<bool> {
        let range = start..start.saturating_add(Resolution::Base.partition());
        let kind = series.found.series.kind();
        // Whoever reads them for an answer says what is damaged.
        let mut gaps = Vec::new();
        let day = slot(range.end, DAY);
        let of_day = |resolution, gaps: &mut Vec<Gap>| {
            let mut rows = Rows::none_of_rollup(kind);
            let day = day..day.saturating_add(DAY);
            self.rolled_rows(series, resolution, std::slice::from_ref(&day), gaps, &mut rows)?;
            Ok::<Rows, Error>(rows)
        };
        let mut rolled = Rows::none_of_rollup(kind);
        let mut is_thinned = false;
        for resolution in [Resolution::Hour, Resolution::FiveMinutes, Resolution::Minute] {
            // Of one that a rule took rows out of, another one may have more.
            is_thinned |= self.days_with_dropped_series(resolution).any(|held| held == day);
            if rolled.len() == 0 || is_thinned {
                let rows = of_day(resolution, &mut gaps)?;
                if rolled.len() == 0 || rows.amount() > rolled.amount() {
                    rolled = rows;
                }
            }
        }
        let is_short = is_thinned && of_day(Resolution::Day, &mut gaps)?.amount() > rolled.amount();
        if rolled.len() == 0 || is_short {
            // A rollup of the whole day does not say which part of it rows were in.
            return Ok(true);
        }
        rolled.retain(|_, end| range.contains(&end.saturating_sub(1)));
        if kind.is_cumulative() && self.lacks_readings(series, &range, &mut gaps)? {
            return Ok(true);
        }
        let left = self.amount_in_base(series, &range, &mut |info| {
            info.partition().start == start
                && !self.is_not_rolled_up(info, Resolution::Day, covered)
        })?;
        Ok(left.is_some_and(|left| rolled.amount() > left))
    }

    /// Whether the finest rollups of a partition have a slot in which no reading is left. Readings
    /// that came late may have grown by more than those that were dropped.
    fn lacks_readings(
        &self,
        series: &SeriesQuery,
        range: &Range<i64>,
        gaps: &mut Vec<Gap>,
    ) -> Result<bool> {
        let kind = series.found.series.kind();
        let mut slots = Rows::none_of_rollup(kind);
        for resolution in [Resolution::Minute, Resolution::FiveMinutes, Resolution::Hour] {
            if slots.len() == 0 {
                let range = std::slice::from_ref(range);
                self.rolled_rows(series, resolution, range, gaps, &mut slots)?;
            }
        }
        let left = self.base_rows(series, range, |_| true, gaps)?.rows.times();
        let is_left =
            |(start, end): (i64, i64)| left.iter().any(|row| start < row.1 && row.1 <= end);
        Ok(!slots.times().into_iter().all(is_left))
    }

    /// Where rows of a series as they came were dropped and rollups have them: it is not empty
    /// there.
    fn dropped_samples(&self, series: &SeriesQuery, range: &Range<i64>) -> Result<Vec<Gap>> {
        let days = self.dropped_days.get_or_init(|| {
            let live: BTreeSet<u64> = self.manifest.base_parts().map(|part| part.number).collect();
            let covers = self.manifest.parts.values().flat_map(|part| &part.covers);
            covers.filter(|(_, numbers)| !numbers.is_subset(&live)).map(|(&day, _)| day).collect()
        });
        if clip_to_days(range, days).next().is_none() {
            return Ok(Vec::new());
        }
        let mut plan = Plan::default();
        plan[Resolution::Base as usize].push((range.clone(), 0));
        Ok(self.dropped_gaps(&[series], &plan, &self.rollup_coverage())?.gaps)
    }

    /// Whether a series has rows of a day in parts that are wanted. A part that cannot be read has none: who
    /// reads its rows says so.
    fn has_rows(&self, series: &SeriesQuery, day: i64, wanted: impl Fn(&PartInfo) -> bool) -> bool {
        self.manifest.parts.values().filter(|part| wanted(part)).any(|part| {
            let places = self.inner.part(part.number).and_then(|part| part.find(&series.id));
            let is_of =
                |place: &ChunkLocation| place.start < day.saturating_add(DAY) && day < place.end;
            places.is_ok_and(|places| places.iter().any(is_of))
        })
    }

    /// What is in no rollup yet, or in one that is not there.
    fn is_not_rolled_up(
        &self,
        info: &PartInfo,
        resolution: Resolution,
        covered: &CoveredParts,
    ) -> bool {
        resolution == Resolution::Base
            || !covered[resolution as usize].contains(&(info.day(), info.number))
    }

    fn rollup_coverage(&self) -> CoveredParts {
        let mut covered = CoveredParts::default();
        for part in self.manifest.parts.values() {
            for (&day, numbers) in &part.covers {
                covered[part.resolution as usize]
                    .extend(numbers.iter().map(|&number| (day, number)));
            }
        }
        covered
    }

    fn merge_histograms(
        &self,
        series: &[SeriesQuery],
        columns: &[Range<i64>],
        points_by_start: bool,
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Mixture>> {
        let plan = plan(columns);
        let placement = Placement { columns, points_by_start };
        let mut merge = ColumnMerge::new(columns.len());
        let covered = self.rollup_coverage();
        let (adding, readings): (Vec<&SeriesQuery>, Vec<&SeriesQuery>) =
            series.iter().partition(|series| !series.found.series.kind().is_cumulative());
        if !adding.is_empty() {
            let plan = placement.extend_with_points(plan.clone());
            let dropped = self.dropped_gaps(&adding, &plan, &covered)?;
            gaps.extend(dropped.gaps.iter().map(|gap| placement.shown(gap.clone())));
            let (own, others): (Vec<&SeriesQuery>, Vec<&SeriesQuery>) =
                adding.iter().partition(|series| dropped.plans.contains_key(&series.id));
            let own =
                own.iter().map(|series| (std::slice::from_ref(series), &dropped.plans[&series.id]));
            for (series, plan) in own.chain([(&others[..], &plan)]) {
                self.add_rollups(series, plan, placement, gaps, &mut merge)?;
                self.add_base(series, plan, &covered, placement, gaps, &mut merge)?;
            }
        }
        let dropped = self.dropped_gaps(&readings, &plan, &covered)?;
        for series in readings {
            let plan = dropped.plan_of(series, &plan);
            let Rows::Histograms(rows) = self.deltas_in_pieces(series, plan, &covered, gaps)?
            else {
                panic!("BUG: steps of histograms are histograms")
            };
            for row in rows {
                if let Some(column) = column_of(columns, row.end) {
                    merge.add(column, &row.value);
                }
            }
        }
        gaps.extend(dropped.gaps);
        let merged = merge.finish();
        gaps.extend(merged.full_columns.into_iter().map(|at| {
            let Range { start, end } = columns[at].clone();
            Gap { start, end, producer: None, lost: None, reason: COLUMN_FULL_REASON.to_owned() }
        }));
        Ok(merged.columns)
    }

    /// Histograms of rollups, as far as the plan wants them.
    fn add_rollups(
        &self,
        series: &[&SeriesQuery],
        plan: &Plan,
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        for info in self.manifest.parts.values() {
            let runs = &plan[info.resolution as usize];
            if info.resolution == Resolution::Base
                || !runs.iter().any(|(range, _)| may_contain(info, range))
            {
                continue;
            }
            self.add_part(info, series, runs, placement, gaps, merge)?;
        }
        Ok(())
    }

    /// Histograms as they came: where no rollup is wanted, and what is in none.
    fn add_base(
        &self,
        series: &[&SeriesQuery],
        plan: &Plan,
        covered: &CoveredParts,
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        for info in self.manifest.base_parts() {
            let mut runs: Vec<ColumnRun> = Vec::new();
            for resolution in Resolution::ALL {
                if self.is_not_rolled_up(info, resolution, covered) {
                    runs.extend(
                        plan[resolution as usize]
                            .iter()
                            .filter(|(range, _)| may_contain(info, range))
                            .cloned(),
                    );
                }
            }
            if !runs.is_empty() {
                runs.sort_by_key(|(range, _)| range.start);
                self.add_part(info, series, &runs, placement, gaps, merge)?;
            }
        }
        let mut runs: Vec<&ColumnRun> = plan.iter().flatten().collect();
        runs.sort_by_key(|(range, _)| range.start);
        let Some(range) = enclosing_range(runs.iter().map(|(range, _)| range)) else {
            return Ok(());
        };
        for head in self.heads() {
            for series in series {
                self.check()?;
                let rows = head.rows_of(series.found.number, series.found.series.kind(), &range);
                let Some(Rows::Histograms(rows)) = rows else { continue };
                for row in rows {
                    let at = runs.partition_point(|(range, _)| range.end < row.end);
                    let run = runs.get(at).filter(|run| run.0.contains(&row.end.saturating_sub(1)));
                    let column =
                        run.and_then(|run| placement.column_of((row.start, row.end), run.1));
                    if let Some(column) = column {
                        merge.add(column, &row.value);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_part(
        &self,
        info: &PartInfo,
        series: &[&SeriesQuery],
        runs: &[ColumnRun],
        placement: Placement<'_>,
        gaps: &mut Vec<Gap>,
        merge: &mut ColumnMerge,
    ) -> Result<()> {
        let Some(range) = enclosing_range(runs.iter().map(|(range, _)| range)) else {
            return Ok(());
        };
        for series in series {
            self.chunks(info, &series.id, &range, gaps, &mut |place, header, bytes| {
                let after = runs.partition_point(|(range, _)| range.end < place.start);
                if runs.get(after).is_none_or(|(range, _)| range.start >= place.end) {
                    return Ok(());
                }
                let (times, block) = chunk::read_times(header, bytes)?;
                let rows = rows_in_runs(&times, runs);
                let rows = match placement.points_by_start {
                    true => assign_columns(rows, &times, |time, column| {
                        placement.column_of(time, column)
                    }),
                    false => rows,
                };
                merge.add_block(block, &rows)
            })?;
        }
        Ok(())
    }

    fn sum_numbers(
        &self,
        series: &[SeriesQuery],
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Vec<Option<NumberSummary>>> {
        let plan = plan(columns);
        let covered = self.rollup_coverage();
        let dropped = self.dropped_gaps(&series.iter().collect::<Vec<_>>(), &plan, &covered)?;
        let mut sums: Vec<Option<NumberSummary>> = vec![None; columns.len()];
        for series in series {
            let plan = dropped.plan_of(series, &plan);
            let Rows::Summaries(rows) = self.deltas_in_pieces(series, plan, &covered, gaps)? else {
                panic!("BUG: numbers put together are summaries")
            };
            for row in rows {
                if let Some(column) = column_of(columns, row.end) {
                    match &mut sums[column] {
                        Some(sum) => sum.add(&row.value),
                        empty => *empty = Some(row.value),
                    }
                }
            }
        }
        gaps.extend(dropped.gaps);
        Ok(sums)
    }

    /// What happened in the planned pieces, of one series, in order: histograms, or summaries of numbers. The
    /// slower way, for what does not simply add up.
    fn deltas_in_pieces(
        &self,
        series: &SeriesQuery,
        plan: &Plan,
        covered: &CoveredParts,
        gaps: &mut Vec<Gap>,
    ) -> Result<Rows> {
        let kind = series.found.series.kind();
        let mut rows = Rows::none_of_rollup(kind);
        let days = self.unrolled_days(series, covered, gaps)?;
        // Pieces that rows are read of as they came: all of them, or only those that no rollup has.
        let (mut base, mut beside): (Vec<Range<i64>>, Vec<Range<i64>>) = Default::default();
        base.extend(plan[Resolution::Base as usize].iter().map(|(range, _)| range.clone()));
        for resolution in Resolution::ROLLUPS {
            let mut rolled: Vec<Range<i64>> = Vec::new();
            for (range, _) in &plan[resolution as usize] {
                for piece in split_by_days(range) {
                    let day = slot(piece.end, DAY);
                    let has_rollup = days.rolled[resolution as usize].contains(&day);
                    match days.loose.get(&day) {
                        _ if !has_rollup => base.push(piece),
                        None => rolled.push(piece),
                        Some(UnrolledDay::RawOnly) => base.push(piece),
                        Some(UnrolledDay::RollupPlusRaw) => {
                            rolled.push(piece.clone());
                            beside.push(piece);
                        }
                    }
                }
            }
            self.rolled_rows(series, resolution, &join_ranges(rolled), gaps, &mut rows)?;
        }
        for range in join_ranges(base) {
            if kind.is_cumulative() {
                self.add_too_late(series, &range, &days, covered, gaps)?;
            }
            let found = self.base_rows(series, &range, |_| true, gaps)?;
            rows.append(self.deltas_since(series, found, range.start, gaps)?);
        }
        for range in join_ranges(beside) {
            let is_loose = |info: &PartInfo| self.is_not_rolled_up(info, Resolution::Day, covered);
            let found = self.base_rows(series, &range, is_loose, gaps)?;
            // Between which of those that are gone a reading lies is not known any more.
            match kind.is_cumulative() {
                true => gaps.extend(late_gap(&series.found.series, &found.rows)),
                false => rows.append(self.deltas_since(series, found, range.start, gaps)?),
            }
        }
        match &mut rows {
            Rows::Histograms(rows) => rows.sort_by_key(Row::time),
            Rows::Summaries(rows) => rows.sort_by_key(Row::time),
            other => panic!("BUG: what happened is {other:?}"),
        }
        Ok(rows)
    }

    /// Readings that are in no rollup of a day of which others are gone: what they grew by is not
    /// known.
    fn add_too_late(
        &self,
        series: &SeriesQuery,
        range: &Range<i64>,
        days: &RollupCoverage,
        covered: &CoveredParts,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        for piece in split_by_days(range) {
            if let Some(UnrolledDay::RollupPlusRaw) = days.loose.get(&slot(piece.end, DAY)) {
                let is_not_rolled_up =
                    |info: &PartInfo| self.is_not_rolled_up(info, Resolution::Day, covered);
                let found = self.base_rows(series, &piece, is_not_rolled_up, gaps)?;
                gaps.extend(late_gap(&series.found.series, &found.rows));
            }
        }
        Ok(())
    }

    fn rolled_rows(
        &self,
        series: &SeriesQuery,
        resolution: Resolution,
        ranges: &[Range<i64>],
        gaps: &mut Vec<Gap>,
        rows: &mut Rows,
    ) -> Result<()> {
        let Some(hull) = enclosing_range(ranges.iter()) else { return Ok(()) };
        for info in self.manifest.parts.values().filter(|info| info.resolution == resolution) {
            if !may_contain(info, &hull) {
                continue;
            }
            self.chunks(info, &series.id, &hull, gaps, &mut |_, header, bytes| {
                let (mut more, _) = chunk::decode(header, bytes)?;
                more.retain(|_, end| {
                    ranges.iter().any(|range| range.contains(&end.saturating_sub(1)))
                });
                rows.append(more);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Rows of the base as what happened from `start` on.
    fn deltas_since(
        &self,
        series: &SeriesQuery,
        gathered: GatheredRows,
        start: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Rows> {
        let kind = series.found.series.kind();
        let (mut rows, mut predecessor) = gathered.into_settled(kind);
        if kind.is_cumulative() && rows.len() > 0 {
            let stored = self.previous_sample(series, start, gaps)?;
            predecessor = self.manifest.predecessor(stored, predecessor);
            // A series of which nothing is in a part had no reading that could have been dropped.
            let is_new = u64::from(series.found.number.0) >= self.manifest.series;
            if predecessor == Predecessor::Unknown && !is_new {
                gaps.extend(self.manifest.without_baseline(&series.id, &mut rows));
            }
        }
        Ok(match deltas_of_day(kind, rows, predecessor.into_reading(), start) {
            Rows::Numbers(rows) => {
                let summary = |row: Row<f64>| Row {
                    start: row.start,
                    end: row.end,
                    value: NumberSummary::of_number(row.value),
                };
                Rows::Summaries(rows.into_iter().map(summary).collect())
            }
            rows => rows,
        })
    }

    /// The last reading up to `time`, wherever it is.
    fn previous_sample(
        &self,
        series: &SeriesQuery,
        time: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Rows>> {
        let kind = series.found.series.kind();
        let mut partitions: BTreeSet<i64> = self
            .manifest
            .base_parts()
            .filter(|part| part.start <= time)
            .map(|part| part.partition().start)
            .collect();
        for head in self.heads() {
            partitions.extend(head.partitions().filter(|&start| start < time));
        }
        for start in partitions.into_iter().rev() {
            let range = start..start.saturating_add(Resolution::Base.partition()).min(time);
            let (rows, _) = self.base_rows(series, &range, |_| true, gaps)?.into_settled(kind);
            let last = rows.last_reading(time);
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// Which days of a series have rows that are in no rollup.
    fn unrolled_days(
        &self,
        series: &SeriesQuery,
        covered: &CoveredParts,
        gaps: &mut Vec<Gap>,
    ) -> Result<RollupCoverage> {
        let kind = series.found.series.kind();
        let mut days = RollupCoverage::default();
        let live: BTreeSet<u64> = self.manifest.base_parts().map(|part| part.number).collect();
        let mut gone: BTreeSet<i64> = BTreeSet::new();
        for part in self.manifest.parts.values().filter(|part| part.resolution != Resolution::Base)
        {
            for (&day, numbers) in &part.covers {
                days.rolled[part.resolution as usize].insert(day);
                if !numbers.is_subset(&live) {
                    gone.insert(day);
                }
            }
        }
        let mut touched: Vec<Range<i64>> = Vec::new();
        for info in self.manifest.base_parts() {
            if self.is_not_rolled_up(info, Resolution::Day, covered) {
                self.check()?;
                let part = self.inner.part(info.number).and_then(|part| {
                    let is_whole = gather::missing_rows(&*part, info)?.is_none();
                    Ok((part.find(&series.id)?, is_whole))
                });
                match part {
                    Ok((places, true)) => {
                        touched.extend(places.iter().map(|place| place.start..place.end));
                    }
                    // What it had may have been of this series: whoever reads it meets the gap.
                    _ => touched.push(info.start..info.end),
                }
            }
        }
        for head in self.heads() {
            touched.extend(head.series_range(series.found.number).map(|(start, end)| start..end));
        }
        for range in touched {
            let mut next = Some(range.end);
            let mut unrolled: BTreeSet<i64> =
                split_by_days(&(range.start.saturating_sub(1)..range.end.max(range.start)))
                    .iter()
                    .map(|piece| slot(piece.end, DAY))
                    .collect();
            unrolled.insert(slot(range.end, DAY));
            if kind.is_cumulative() {
                // The step after the last of these readings begins with it.
                next = self.next_sample_time(series, range.end, gaps)?;
            }
            unrolled.extend(next.map(|time| slot(time, DAY)));
            for day in unrolled {
                let how = if gone.contains(&day) {
                    UnrolledDay::RollupPlusRaw
                } else {
                    UnrolledDay::RawOnly
                };
                days.loose.insert(day, how);
            }
        }
        Ok(days)
    }

    /// When the first reading after `time` was made.
    fn next_sample_time(
        &self,
        series: &SeriesQuery,
        time: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<i64>> {
        let mut partitions: BTreeSet<i64> = self
            .manifest
            .base_parts()
            .filter(|part| part.end > time)
            .map(|part| part.partition().start)
            .collect();
        for head in self.heads() {
            let after = |start: &i64| start.saturating_add(Resolution::Base.partition()) > time;
            partitions.extend(head.partitions().filter(after));
        }
        for start in partitions {
            let range = start.max(time)..start.saturating_add(Resolution::Base.partition());
            let rows = self.base_rows(series, &range, |_| true, gaps)?.rows;
            if let Some(end) = rows.times().iter().map(|time| time.1).min() {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }
}

/// Whether the first row of a chunk of a rollup is a value of a moment. Of a chunk that cannot be read
/// nobody knows; whoever reads its rows says so.
fn starts_with_point(part: &dyn Part, place: &ChunkLocation, kind: SeriesKind) -> bool {
    if place.start == place.end {
        return true;
    }
    if kind != SeriesKind::Histogram(Temporality::Delta) {
        return false;
    }
    let mut bytes = Vec::new();
    let Ok(Ok(header)) = gather::read(part, place, &mut bytes) else { return false };
    let times = chunk::read_times(&header, &bytes);
    times.is_ok_and(|(times, _)| times.first().is_some_and(|(start, end)| start == end))
}

/// Assignment of rows to columns.
#[derive(Clone, Copy)]
struct Placement<'a> {
    columns: &'a [Range<i64>],
    /// A value of a moment belongs to the column that begins by then.
    points_by_start: bool,
}

/// For each resolution the pieces of columns that are read of it.
type Plan = [Vec<ColumnRun>; 5];

/// What rollups have of a series and a day.
enum RowsOfDay {
    /// As much as there is.
    Complete,
    /// Less than these, which are finer.
    Finer(Resolution),
    /// Less than coarser ones, or than nobody knows.
    Missing,
}

/// What rows that were dropped mean for an answer.
#[derive(Default)]
struct DroppedRows {
    gaps: Vec<Gap>,
    /// Of series that are read otherwise than others.
    plans: BTreeMap<SeriesId, Plan>,
}

impl DroppedRows {
    fn plan_of<'p>(&'p self, series: &SeriesQuery, plan: &'p Plan) -> &'p Plan {
        self.plans.get(&series.id).unwrap_or(plan)
    }

    /// The pieces of a day are read of a finer resolution.
    fn read_instead(
        &mut self,
        series: &SeriesQuery,
        plan: &Plan,
        (day, resolution): (i64, Resolution),
        finer: Resolution,
    ) {
        let own = self.plans.entry(series.id).or_insert_with(|| Plan::clone(plan));
        let mut stays = Vec::new();
        for (range, column) in std::mem::take(&mut own[resolution as usize]) {
            for piece in split_by_days(&range) {
                let is_meant = slot(piece.end, DAY) == day;
                match is_meant {
                    true => own[finer as usize].push((piece, column)),
                    false => stays.push((piece, column)),
                }
            }
        }
        own[resolution as usize] = stays;
        own[finer as usize].sort_by_key(|(range, _)| range.start);
    }
}

/// Stands for the time before the first column, of which only values of its last moment are wanted.
const BEFORE_FIRST: usize = usize::MAX;

impl Placement<'_> {
    /// A gap where an answer shows it: what is missing of the time before could only be of the
    /// first column's first moment.
    fn shown(self, gap: Gap) -> Gap {
        match self.columns.first() {
            Some(&Range { start, .. }) if gap.end <= start => {
                Gap { start, end: start.saturating_add(1), ..gap }
            }
            _ => gap,
        }
    }

    /// A plan that also has what may lie between the time before and the first column.
    fn extend_with_points(self, mut plan: Plan) -> Plan {
        let first = self.columns.first().filter(|_| self.points_by_start);
        if let Some(&Range { start, .. }) = first {
            // The coarsest that keeps such a value apart is what retention leaves.
            let periods = Resolution::ROLLUPS.map(|rollup| (rollup, rollup.period().unwrap_or(1)));
            let coarsest = periods.iter().rev().find(|(_, period)| start.rem_euclid(*period) == 0);
            let (resolution, period) = coarsest.copied().unwrap_or((Resolution::Base, 1));
            plan[resolution as usize]
                .insert(0, (start.saturating_sub(period)..start, BEFORE_FIRST));
        }
        plan
    }

    /// The column of a row, by its start and end, that ended in `column`.
    fn column_of(self, (start, end): (i64, i64), column: usize) -> Option<usize> {
        if !self.points_by_start || start < end {
            return (column != BEFORE_FIRST).then_some(column);
        }
        let at = self.columns.partition_point(|column| column.end <= end);
        self.columns.get(at).filter(|column| column.contains(&end)).map(|_| at)
    }
}

/// Day and number of the base parts that are in a rollup, by resolution.
type CoveredParts = [BTreeSet<(i64, u64)>; 5];

/// Days with and without rollups of a series.
#[derive(Default)]
struct RollupCoverage {
    /// Days that have a rollup, by resolution.
    rolled: [BTreeSet<i64>; 5],
    loose: BTreeMap<i64, UnrolledDay>,
}

/// How a day without complete rollups is read.
#[derive(Clone, Copy)]
enum UnrolledDay {
    /// All of it as it came.
    RawOnly,
    /// What the rollup was made of is gone: the rollup, and what is in none.
    RollupPlusRaw,
}

fn overlaps(gap: &Gap, range: &Range<i64>) -> bool {
    gap.start < range.end && range.start < gap.end.max(gap.start.saturating_add(1))
}

/// Whether a part can have rows that ended within `range`.
fn may_contain(info: &PartInfo, range: &Range<i64>) -> bool {
    info.start <= range.end && range.start < info.end
}

fn enclosing_range<'a>(ranges: impl Iterator<Item = &'a Range<i64>>) -> Option<Range<i64>> {
    ranges.cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

/// A stretch of time in pieces that each lie in one day.
fn split_by_days(range: &Range<i64>) -> Vec<Range<i64>> {
    split_by_slots(range, DAY)
}

/// The pieces of a stretch of time that lie in some days.
fn clip_to_days(range: &Range<i64>, days: &BTreeSet<i64>) -> impl Iterator<Item = Range<i64>> {
    let Range { start, end } = range.clone();
    days.range(start.saturating_sub(DAY).min(end)..end)
        .map(move |&day| start.max(day)..end.min(day.saturating_add(DAY)))
        .filter(|piece| !piece.is_empty())
}

/// A stretch of time in pieces that each lie in one slot of a length.
fn split_by_slots(range: &Range<i64>, period: i64) -> Vec<Range<i64>> {
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let next =
            start.saturating_add(period.saturating_sub(start.rem_euclid(period))).min(range.end);
        pieces.push(start..next);
        start = next;
    }
    pieces
}

/// Ranges that touch as one.
fn join_ranges(mut ranges: Vec<Range<i64>>) -> Vec<Range<i64>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<i64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn column_of(columns: &[Range<i64>], end: i64) -> Option<usize> {
    let at = columns.partition_point(|column| column.end < end);
    columns.get(at).filter(|column| column.contains(&end.saturating_sub(1))).map(|_| at)
}

/// Iterator over result columns, read in batches.
pub struct ColumnIter<'a, T> {
    view: &'a ReadView,
    series_queries: Vec<SeriesQuery>,
    grid: TimeGrid,
    next: u64,
    ready: std::vec::IntoIter<TimeColumn<T>>,
    read_columns: ColumnReader<T>,
}

impl<T> ColumnIter<'_, T> {
    fn fetch_next(&mut self) -> Result<()> {
        let end = self.grid.columns.min(self.next.saturating_add(COLUMNS_AT_ONCE));
        let ranges: Vec<Range<i64>> = (self.next..end).map(|at| self.grid.column(at)).collect();
        self.next = end;
        let Some(all) = enclosing_range(ranges.iter()) else { return Ok(()) };
        let mut gaps = self.view.known_gaps(&all);
        let values = (self.read_columns)(self.view, &self.series_queries, &ranges, &mut gaps)?;
        gaps.sort();
        gaps.dedup();
        let column = |(range, value): (Range<i64>, T)| TimeColumn {
            start: range.start,
            end: range.end,
            value,
            gaps: gaps.iter().filter(|gap| overlaps(gap, &range)).cloned().collect(),
        };
        self.ready = ranges.into_iter().zip(values).map(column).collect::<Vec<_>>().into_iter();
        Ok(())
    }
}

impl<T> Iterator for ColumnIter<'_, T> {
    type Item = Result<TimeColumn<T>>;

    fn next(&mut self) -> Option<Result<TimeColumn<T>>> {
        if let Some(column) = self.ready.next() {
            return Some(Ok(column));
        }
        if self.next >= self.grid.columns {
            return None;
        }
        if let Err(error) = self.fetch_next() {
            self.next = self.grid.columns;
            return Some(Err(error));
        }
        self.ready.next().map(Ok)
    }
}

fn for_each_sample(rows: Rows, each: &mut dyn FnMut(Sample)) {
    match rows {
        Rows::Histograms(rows) | Rows::Cumulative(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Histogram(Box::new(value)) });
            }
        }
        Rows::Numbers(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Number(value) });
            }
        }
        Rows::Texts(rows) => {
            for Row { start, end, value } in rows {
                each(Sample { start, end, value: SampleValue::Text(value) });
            }
        }
        Rows::Summaries(_) => panic!("BUG: the base has no rollups"),
    }
}
