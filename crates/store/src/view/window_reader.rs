//! Windows of series that end at the same time: what they share is looked up once.
//!
//! A read also says which rows the window has, so that a reader of the same window at a later time
//! knows whether its rows are still the same, and need not read them. Rows are compared by their
//! number and by where they are: heads only grow, parts never change, and a flush moves the rows of
//! a head to a part. If it moves them to several parts, or combines some, they are read again.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use hist::Mixture;

use crate::backend::Part;
use crate::chunk;
use crate::error::Result;
use crate::gather;
use crate::grid::TimeGrid;
use crate::head::{Head, HeadId};
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::merge::ColumnMerge;
use crate::resolution::Resolution;
use crate::row::Rows;

use super::{ReadView, may_contain};

/// Reads windows of series: rows that ended after the start of a range, up to its end. Gaps are not
/// reported.
pub struct WindowReader<'v> {
    view: &'v ReadView,
    range: Range<i64>,
    /// Base parts that may have rows of the range, or later; `None` if rollups or damaged parts
    /// may have some of the range.
    parts: Option<Vec<WindowPart>>,
}

/// A part that may have rows of a window, or later ones.
struct WindowPart {
    part: Arc<dyn Part>,
    source: RowSource,
}

/// Where rows are, or were before they were flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RowSource {
    Head(HeadId),
    /// A part that does not have exactly the rows of a head of this process.
    Part(u64),
}

/// Which rows the window of some series has, and until when, if nothing arrives.
#[derive(Clone, Debug)]
pub struct WindowRows {
    generation: u64,
    /// Hash of the numbers of the series.
    series: u64,
    is_cumulative: bool,
    /// Number of rows of the series in heads and in those parts; none is zero.
    counts: Vec<(RowSource, u64)>,
    /// Number of those in heads.
    head_rows: u64,
    range: Range<i64>,
    /// The window has other rows if it ends at this time or later.
    same_before: i64,
    newest_end: Option<i64>,
}

impl ReadView {
    /// Reader of windows of series.
    pub fn window_reader(&self, range: Range<i64>) -> WindowReader<'_> {
        let parts = self.window_parts(&range);
        WindowReader { view: self, range, parts }
    }

    fn window_parts(&self, range: &Range<i64>) -> Option<Vec<WindowPart>> {
        let is_rollup = |info: &PartInfo| info.resolution != Resolution::Base;
        if self.manifest.parts.values().any(|info| is_rollup(info) && may_contain(info, range)) {
            return None;
        }
        let mut parts = Vec::new();
        for info in self.manifest.base_parts().filter(|info| info.end > range.start) {
            let part = self.inner.part(info.number).ok()?;
            if gather::missing_rows(&*part, info).ok()?.is_some() {
                return None;
            }
            let head = self.inner.state().flushed_heads.get(&info.number).copied();
            let source = head.map_or(RowSource::Part(info.number), RowSource::Head);
            parts.push(WindowPart { part, source });
        }
        Some(parts)
    }
}

impl WindowReader<'_> {
    /// Merged histograms of some series in the window, and its rows; `None` for these if a later
    /// window must be read in any case.
    pub fn histogram(
        &self,
        series: &[impl AsRef<SelectedSeries>],
    ) -> Result<(Mixture, Option<WindowRows>)> {
        let is_plain = series.iter().all(|series| !series.as_ref().kind.is_cumulative());
        match &self.parts {
            Some(parts) if is_plain => match self.merge_rows(series, parts)? {
                Some((mixture, rows)) => Ok((mixture, Some(rows))),
                None => Ok((self.merge_columns(series)?, None)),
            },
            _ => {
                // Rows that arrive in between are not among these.
                let rows = self.rows(series);
                Ok((self.merge_columns(series)?, rows))
            }
        }
    }

    /// Rows of some series of any kind in the window, without their values.
    pub fn rows(&self, series: &[impl AsRef<SelectedSeries>]) -> Option<WindowRows> {
        let parts = self.parts.as_ref()?;
        let series = self.view.series_queries(series);
        let mut rows = self.no_rows(&series);
        for head in self.view.heads() {
            series.iter().for_each(|series| rows.add_head(&head, series));
        }
        let mut bytes = Vec::new();
        for WindowPart { part, source } in parts {
            for series in &series {
                let locations = part.find(&series.id).ok()?;
                for location in locations {
                    rows.add_rows(*source, location.rows.into());
                    if location.end <= self.range.start {
                        continue;
                    }
                    let header = gather::read(&**part, &location, &mut bytes).ok()?.ok()?;
                    let (times, _) = chunk::read_times(&header, &bytes).ok()?;
                    times.into_iter().for_each(|(_, end)| rows.add_end(end));
                }
            }
        }
        Some(rows.finish())
    }

    /// Whether the window has the rows that an earlier one of the same length had, so that it has
    /// the same values.
    pub fn is_same(&self, before: &WindowRows, series: &[impl AsRef<SelectedSeries>]) -> bool {
        let Some(parts) = &self.parts else { return false };
        let length = |range: &Range<i64>| range.end.saturating_sub(range.start);
        let is_in_time = before.range.end <= self.range.end && self.range.end < before.same_before;
        if !is_in_time || length(&before.range) != length(&self.range) {
            return false;
        }
        let series = self.view.series_queries(series);
        let mut now = self.no_rows(&series);
        if now.series != before.series {
            return false;
        }
        for head in self.view.heads() {
            series.iter().for_each(|series| now.count_head(&head, series));
        }
        if now.generation == before.generation {
            let is_known = |count| before.counts.contains(count);
            return now.head_rows == before.head_rows && now.counts.iter().all(is_known);
        }
        // The increase of a sample depends on the one before it, which may be before the window.
        if before.is_cumulative {
            return false;
        }
        for WindowPart { part, source } in parts {
            for series in &series {
                let Ok(locations) = part.find(&series.id) else { return false };
                for location in locations {
                    now.add_rows(*source, location.rows.into());
                }
            }
        }
        now.counts.sort_unstable();
        now.counts == before.counts
    }

    fn no_rows(&self, series: &[SelectedSeries]) -> WindowRows {
        let mut hasher = DefaultHasher::new();
        series.iter().for_each(|series| series.number.hash(&mut hasher));
        WindowRows {
            generation: self.view.manifest.generation,
            series: hasher.finish(),
            is_cumulative: series.iter().any(|series| series.kind.is_cumulative()),
            counts: Vec::new(),
            head_rows: 0,
            range: self.range.clone(),
            same_before: i64::MAX,
            newest_end: None,
        }
    }

    /// Merges base rows that are not cumulative; `None` if a chunk is damaged.
    fn merge_rows(
        &self,
        series: &[impl AsRef<SelectedSeries>],
        parts: &[WindowPart],
    ) -> Result<Option<(Mixture, WindowRows)>> {
        let series = self.view.series_queries(series);
        let mut rows = self.no_rows(&series);
        let mut merge = ColumnMerge::new(1);
        let mut bytes = Vec::new();
        for WindowPart { part, source } in parts {
            for series in &series {
                self.view.check()?;
                let Ok(locations) = part.find(&series.id) else { return Ok(None) };
                for location in locations {
                    rows.add_rows(*source, location.rows.into());
                    if location.end <= self.range.start {
                        continue;
                    }
                    let read = gather::read(&**part, &location, &mut bytes);
                    let Ok(Ok(header)) = read else { return Ok(None) };
                    let Ok((times, block)) = chunk::read_times(&header, &bytes) else {
                        return Ok(None);
                    };
                    // Times are ordered by end.
                    let from = times.partition_point(|time| time.1 <= self.range.start);
                    let to = times.partition_point(|time| time.1 <= self.range.end);
                    let last = to.saturating_sub(1).max(from);
                    for at in [from, last, to] {
                        times.get(at).into_iter().for_each(|time| rows.add_end(time.1));
                    }
                    if from < to && merge.add_block(block, &[(from..to, 0)]).is_err() {
                        return Ok(None);
                    }
                }
            }
        }
        for head in self.view.heads() {
            for series in &series {
                self.view.check()?;
                rows.add_head(&head, series);
                let found = head.rows_of(series.number, series.kind, &self.range);
                let Some(Rows::Histograms(found)) = found else { continue };
                found.into_iter().for_each(|row| merge.add(0, row.value));
            }
        }
        let mixture = merge.finish().columns.pop().unwrap_or_default();
        Ok(Some((mixture, rows.finish())))
    }

    fn merge_columns(&self, series: &[impl AsRef<SelectedSeries>]) -> Result<Mixture> {
        let Range { start, end } = self.range;
        let grid = TimeGrid { start, step: end.saturating_sub(start), columns: 1 };
        let column = self.view.histograms(series, grid)?.next().transpose()?;
        Ok(column.map(|column| column.value).unwrap_or_default())
    }
}

impl WindowRows {
    /// End of the newest row of the window.
    pub fn newest_end(&self) -> Option<i64> {
        self.newest_end
    }

    /// Counts the rows of a series in a head, and notes when the window has others of them.
    fn add_head(&mut self, head: &Head, series: &SelectedSeries) {
        self.count_head(head, series);
        head.row_ends(series.number, series.kind).for_each(|end| self.add_end(end));
    }

    fn count_head(&mut self, head: &Head, series: &SelectedSeries) {
        let count = head.row_count(series.number);
        self.head_rows = self.head_rows.saturating_add(count);
        self.add_rows(RowSource::Head(head.id), count);
    }

    fn add_rows(&mut self, source: RowSource, count: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == source) {
            Some((_, total)) => *total = total.saturating_add(count),
            None if count > 0 => self.counts.push((source, count)),
            None => {}
        }
    }

    /// Notes that a row ended at a time: the window loses it when it begins there, or gets it when
    /// it ends there.
    fn add_end(&mut self, end: i64) {
        let Range { start, end: now } = self.range;
        if start < end && end <= now {
            self.newest_end = self.newest_end.max(Some(end));
        }
        let change = match end {
            end if end <= start => return,
            end if end <= now => end.saturating_add(now.saturating_sub(start)),
            end => end,
        };
        self.same_before = self.same_before.min(change);
    }

    /// Many of these are kept: they take as little memory as possible.
    fn finish(mut self) -> WindowRows {
        self.counts.sort_unstable();
        self.counts.shrink_to_fit();
        self
    }
}
