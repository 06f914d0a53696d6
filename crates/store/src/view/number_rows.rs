//! Rows of many series of numbers in a short range, part by part: what takes most of a read of each
//! series by itself, the search of a chunk and a system call to read it, is done for all of them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cmp::Reverse;
use std::ops::Range;

use hist::codec::header::Temporality;
use model::{Gap, Sample, SampleValue, SeriesId, SeriesKind};

use crate::chunk::NumberDecoder;
use crate::error::Result;
use crate::gather;
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::row::{Row, Rows};

use super::opened_part::part_gap;
use super::{ReadView, SERIES_AT_ONCE};

/// Samples of series of numbers in a range, in memory.
#[derive(Debug)]
pub struct NumberRows {
    rows: Vec<Row<f64>>,
    /// End of the rows of each series.
    ends: Vec<u32>,
    /// Gaps of chunks, by position of their series.
    gaps: Vec<(u32, Gap)>,
}

/// Memory of a row while all of them are read, in bytes: with the position of its series, and again
/// in the order of the series.
const ROW_BYTES: u64 = (size_of::<(u32, Row<f64>)>() + size_of::<Row<f64>>()) as u64;
/// Memory of a series meanwhile: its id, its position, and a chunk.
const SERIES_BYTES: u64 = 100;
/// Rows between two calls for more memory.
const ROWS_AT_ONCE: u64 = 4096;

impl NumberRows {
    /// Rows of a series by end, and then by start; the series by its position.
    pub fn rows(&self, at: usize) -> &[Row<f64>] {
        let end = |at: usize| self.ends.get(at).map_or(0, |&end| end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.rows.get(start..end(at)).unwrap_or_default()
    }

    /// Gaps of all series.
    pub fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().map(|(_, gap)| gap)
    }

    /// Calls `each` with the samples of a series by end, as [`super::ReadView::samples`] does; the
    /// series by its position. Returns the gaps.
    pub fn samples(&self, at: usize, each: &mut dyn FnMut(Sample)) -> Vec<Gap> {
        for &Row { start, end, value } in self.rows(at) {
            each(Sample { start, end, value: SampleValue::Number(value) });
        }
        let first = self.gaps.partition_point(|(of, _)| (*of as usize) < at);
        let of_series = self.gaps.iter().skip(first).take_while(|(of, _)| *of as usize == at);
        of_series.map(|(_, gap)| gap.clone()).collect()
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> u64 {
        let (rows, ends) = (size_of_val(&*self.rows), size_of_val(&*self.ends));
        (rows as u64).saturating_add(ends as u64)
    }
}

/// The last sample of a series of numbers in a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LastNumber {
    /// None.
    Missing,
    /// The sample.
    At(Row<f64>),
    /// Several deltas that ended at this time.
    Deltas(i64),
}

impl LastNumber {
    fn end(&self) -> Option<i64> {
        match self {
            LastNumber::Missing => None,
            LastNumber::At(Row { end, .. }) | LastNumber::Deltas(end) => Some(*end),
        }
    }

    /// Adds a sample of a series of this kind. Of samples of the same time, the one with the later
    /// start counts, then the greater one, as [`Rows::normalize`] and readers have it.
    fn add(&mut self, row: &Row<f64>, kind: impl FnOnce() -> Option<SeriesKind>) {
        match self {
            LastNumber::At(held) if held.end == row.end => match kind() {
                Some(SeriesKind::Counter(Temporality::Delta)) => {
                    *self = LastNumber::Deltas(row.end);
                }
                _ => {
                    let by_start = row.start.cmp(&held.start);
                    if by_start.then_with(|| row.value.total_cmp(&held.value)).is_gt() {
                        *held = *row;
                    }
                }
            },
            _ if self.end() < Some(row.end) => *self = LastNumber::At(*row),
            _ => {}
        }
    }
}

/// Rows of a read: position of the series, and the row.
type RowTaker<'a> = dyn FnMut(usize, Row<f64>) -> bool + 'a;

impl ReadView {
    /// Samples of many series of counters or gauges that ended in a range. `grow` reserves memory
    /// in bytes. `None` if it returns false, if other series are among them, or if the range has
    /// gaps or dropped rows, which concern each series in a different way.
    pub fn number_rows(
        &self,
        series: &[SelectedSeries],
        range: &Range<i64>,
        grow: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<NumberRows>> {
        if !grow((series.len() as u64).saturating_mul(SERIES_BYTES)) {
            return Ok(None);
        }
        let (mut found, mut gaps, mut unreserved) = (Vec::new(), Vec::new(), 0u64);
        let is_read = self.each_number(series, range, None, &mut gaps, &mut |at, row| {
            found.push((at as u32, row));
            unreserved = unreserved.saturating_add(1);
            unreserved < ROWS_AT_ONCE
                || grow(std::mem::take(&mut unreserved).saturating_mul(ROW_BYTES))
        })?;
        model::sort::by_key(&mut gaps, |(at, _)| *at);
        let kinds = |at: usize| series.get(at).map(|series| series.kind);
        Ok(is_read.then(|| in_series_order(found, series.len(), kinds, gaps)))
    }

    /// The last sample of each of many series of counters or gauges that ended in a range; `None`
    /// as [`Self::number_rows`], and if a chunk is damaged.
    pub fn last_numbers(
        &self,
        series: &[SelectedSeries],
        range: &Range<i64>,
        grow: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<LastNumber>>> {
        let bytes = SERIES_BYTES.saturating_add(size_of::<LastNumber>() as u64);
        if !grow((series.len() as u64).saturating_mul(bytes)) {
            return Ok(None);
        }
        let mut last = vec![LastNumber::Missing; series.len()];
        let mut gaps = Vec::new();
        let is_read = self.each_number(series, range, Some(&mut last), &mut gaps, &mut |_, _| true);
        Ok((is_read? && gaps.is_empty()).then_some(last))
    }

    /// Passes the rows of series to `take`, heads first, then parts from the last one on, until it
    /// returns false. Returns false then, and if the series cannot be read together. With `last`,
    /// notes the last sample of each series there, and leaves out chunks that end before it.
    fn each_number(
        &self,
        series: &[SelectedSeries],
        range: &Range<i64>,
        last: Option<&mut [LastNumber]>,
        gaps: &mut Vec<(u32, Gap)>,
        take: &mut RowTaker<'_>,
    ) -> Result<bool> {
        let is_number = |series: &SelectedSeries| {
            matches!(series.kind, SeriesKind::Counter(_) | SeriesKind::Gauge)
        };
        if !series.iter().all(is_number)
            || !self.known_gaps(range).is_empty()
            || self.has_dropped_rows(range)
        {
            return Ok(false);
        }
        let mut read = NumberRead { view: self, series, range, last, take };
        if !read.heads()? {
            return Ok(false);
        }
        let (ids, positions) = by_id(series);
        let mut infos: Vec<&PartInfo> = self.manifest.base_parts().collect();
        infos.retain(|info| info.end > range.start && info.start <= range.end);
        model::sort::by_key(&mut infos, |info| Reverse(info.end));
        for info in infos {
            if !read.part(info, &ids, &positions, gaps)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Ids of series, ascending, and the positions of their series.
fn by_id(series: &[SelectedSeries]) -> (Vec<SeriesId>, Vec<u32>) {
    let id = |at: u32| series.get(at as usize).map(|series| series.id);
    // Ids are hashes: their first bytes decide nearly every comparison.
    let mut keys: Vec<(u64, u32)> =
        series.iter().zip(0..).map(|(series, at)| (series.id.prefix(), at)).collect();
    let order = |a: &(u64, u32), b: &(u64, u32)| a.0.cmp(&b.0).then_with(|| id(a.1).cmp(&id(b.1)));
    keys.sort_unstable_by(order);
    let positions: Vec<u32> = keys.into_iter().map(|(_, at)| at).collect();
    (positions.iter().filter_map(|at| id(*at)).collect(), positions)
}

/// A read of many series.
struct NumberRead<'r, 't> {
    view: &'r ReadView,
    series: &'r [SelectedSeries],
    range: &'r Range<i64>,
    last: Option<&'r mut [LastNumber]>,
    take: &'r mut RowTaker<'t>,
}

impl NumberRead<'_, '_> {
    /// Adds a row of a series, by its position, if it is in the range.
    fn add(&mut self, at: usize, row: Row<f64>) -> bool {
        // A row belongs to the nanosecond before its end.
        if !self.range.contains(&row.end.saturating_sub(1)) {
            return true;
        }
        if let Some(last) = self.last.as_mut().and_then(|last| last.get_mut(at)) {
            last.add(&row, || self.series.get(at).map(|series| series.kind));
        }
        (self.take)(at, row)
    }

    fn heads(&mut self) -> Result<bool> {
        let series = self.series;
        let mut found: Vec<(usize, Row<f64>)> = Vec::new();
        for (some, first) in series.chunks(SERIES_AT_ONCE).zip((0..).step_by(SERIES_AT_ONCE)) {
            // Both it and `take` may wait: no head is locked meanwhile.
            self.view.check()?;
            for head in self.view.heads() {
                let mut rows = Rows::Numbers(Vec::new());
                for (series, at) in some.iter().zip(first..) {
                    head.add_rows(series.number, self.range, &mut rows, series.kind);
                    let Rows::Numbers(of_series) = &mut rows else { continue };
                    found.extend(of_series.drain(..).map(|row| (at, row)));
                }
            }
            if !found.drain(..).all(|(at, row)| self.add(at, row)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a part; series by ascending id, with their positions.
    fn part(
        &mut self,
        info: &PartInfo,
        ids: &[SeriesId],
        positions: &[u32],
        gaps: &mut Vec<(u32, Gap)>,
    ) -> Result<bool> {
        let (view, range) = (self.view, self.range);
        let Ok(part) = view.inner.part(info.number) else { return Ok(false) };
        // The ordinary path makes a gap of what is damaged.
        if !matches!(gather::missing_rows(&*part, info), Ok(None)) {
            return Ok(false);
        }
        let (mut of_series, mut locations) = (Vec::new(), Vec::new());
        let looked = part.find_all(ids, &mut |at, location| {
            let Some(&at) = positions.get(at) else { return };
            let is_touched = location.end > range.start && location.start <= range.end;
            let held = self.last.as_ref().and_then(|last| last.get(at as usize)?.end());
            if is_touched && held.is_none_or(|held| held <= location.end) {
                of_series.push(at);
                locations.push(*location);
            }
        });
        if looked.is_err() {
            return Ok(false);
        }
        let (mut decoder, mut is_taken) = (NumberDecoder::default(), true);
        part.read_all(&locations, &mut |number, bytes| {
            if number.is_multiple_of(SERIES_AT_ONCE) {
                view.check()?;
            }
            let found = of_series.get(number).zip(locations.get(number));
            let Some((&at, location)) = found else { return Ok(()) };
            let missing = |reason: String| gather::missing_chunk(&*part, location, &reason);
            let rows = bytes.map_err(|error| missing(error.to_string())).and_then(|bytes| {
                let header = gather::check(&*part, location, bytes)?;
                decoder.decode(&header, bytes).map_err(|reason| {
                    let reason = format!("chunk at byte {}: {reason}", location.offset);
                    part_gap(info, &reason)
                })
            });
            match rows {
                Err(gap) => gaps.push((at, gap)),
                Ok(mut rows) => {
                    is_taken = is_taken && rows.all(|row| self.add(at as usize, row));
                }
            }
            Ok(())
        })?;
        Ok(is_taken)
    }
}

/// Rows series by series, those of a series by time and each once.
fn in_series_order(
    found: Vec<(u32, Row<f64>)>,
    series: usize,
    kind: impl Fn(usize) -> Option<SeriesKind>,
    gaps: Vec<(u32, Gap)>,
) -> NumberRows {
    // Where the next row of each series goes.
    let mut ends = vec![0u32; series];
    for (at, _) in &found {
        if let Some(count) = ends.get_mut(*at as usize) {
            *count = count.saturating_add(1);
        }
    }
    let mut total = 0u32;
    for count in &mut ends {
        let start = total;
        total = total.saturating_add(*count);
        *count = start;
    }
    let nothing = Row { start: 0, end: 0, value: 0.0 };
    let mut rows = vec![nothing; found.len()];
    for (at, row) in found {
        let Some(next) = ends.get_mut(at as usize) else { continue };
        if let Some(place) = rows.get_mut(*next as usize) {
            *place = row;
        }
        *next = next.saturating_add(1);
    }
    // Parts that do not overlap are read from the last one on.
    let (mut kept, mut start) = (0usize, 0usize);
    for (at, end_of_series) in ends.iter_mut().enumerate() {
        let end = *end_of_series as usize;
        let mut count = end.saturating_sub(start);
        if let Some(of_series) = rows.get_mut(start..end)
            && !of_series.is_sorted_by(|a, b| a.time() < b.time())
            && let Some(kind) = kind(at)
        {
            let mut normalized = Rows::Numbers(of_series.to_vec());
            normalized.normalize(kind);
            if let Rows::Numbers(normalized) = normalized {
                count = normalized.len();
                of_series.iter_mut().zip(normalized).for_each(|(place, row)| *place = row);
            }
        }
        if kept != start {
            for from in start..start.saturating_add(count) {
                rows.swap(kept.saturating_add(from.saturating_sub(start)), from);
            }
        }
        kept = kept.saturating_add(count);
        start = end;
        *end_of_series = kept as u32;
    }
    rows.truncate(kept);
    NumberRows { rows, ends, gaps }
}
