//! Increments of one long window: rollups have the sum of those of whole days, so the chunks of
//! those days are not read, but for the first one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::ops::Range;

use hist::codec::decoded_block::CountWindow;
use hist::{DoubleDouble, Histogram, Mixture};

use crate::backend::ChunkLocation;
use crate::chunk;
use crate::error::Result;
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::merge::ColumnMerge;
use crate::resolution::{DAY, HOUR, Resolution, interval_start};
use crate::row::Predecessor;

use super::increments::{
    HistogramIncrements, IncrementPiece, IncrementsBuilder, PieceContent, TOTAL_BITS_MAX,
    counts_after,
};
use super::opened_part::OpenedPart;
use super::placement::{Placement, Plan};
use super::{ReadView, may_contain};

/// Chunks of a series on days of a window that rollups cover, by time.
struct CoveredChunks<'v> {
    parts: Vec<OpenedPart<'v>>,
    /// Positions of parts, and chunks.
    chunks: Vec<(usize, ChunkLocation)>,
    /// End of the last of the days. The window has all their samples after its start.
    end: i64,
    /// Whether the first of the days has samples before the window.
    is_cut: bool,
}

impl ReadView {
    /// Increments in a range of which those of whole days are one increment. `None` if rollups do
    /// not tell it: then read all increments.
    pub(super) fn rolled_up_increments(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        reserve: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<HistogramIncrements>> {
        if range.end.saturating_sub(range.start) <= HOUR {
            return Ok(None);
        }
        let mut builder = IncrementsBuilder::default();
        let Some(covered) = self.covered_chunks(series, range)? else { return Ok(None) };
        if !self.add_days(series, range, &covered, &mut builder, reserve)? {
            return Ok(None);
        }
        let rest = covered.end..range.end;
        let mut damage = Vec::new();
        let is_read = match rest.is_empty() {
            true => reserve(builder.held_bytes as u64),
            false => self.add_all_increments(series, &rest, &mut builder, &mut damage, reserve)?,
        };
        Ok(if is_read && damage.is_empty() { builder.finish() } else { None })
    }

    /// `None` if there are none, or if one of them may be damaged or overlap another.
    fn covered_chunks(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
    ) -> Result<Option<CoveredChunks<'_>>> {
        self.check()?;
        let days = self.rolled_up_days();
        // Rows from here on may be in no rollup.
        let mut covered_end = i64::MAX;
        for head in self.heads() {
            if let Some((start, _)) = head.series_range(series.number) {
                covered_end = covered_end.min(interval_start(start, DAY));
            }
        }
        let first_day = interval_start(range.start.saturating_add(1), DAY);
        let last_end = interval_start(range.end, DAY).saturating_add(DAY);
        let (mut parts, mut chunks) = (Vec::new(), Vec::new());
        for info in self.manifest.base_parts() {
            if !may_contain(info, &(first_day..last_end)) {
                continue;
            }
            if !days.contains(&info.day()) {
                covered_end = covered_end.min(info.day());
                continue;
            }
            let part = self.open_part(info);
            let Some(locations) = part.locations(&series.id) else { return Ok(None) };
            let number = parts.len();
            chunks.extend(locations.into_iter().map(|location| (number, location)));
            parts.push(part);
        }
        chunks.sort_by_key(|(_, location)| location.start);
        if !chunks.windows(2).all(|pair| pair[0].1.end < pair[1].1.start) {
            return Ok(None);
        }
        // A window that ends before the last sample of its day ends at an earlier day.
        let is_end_cut = chunks.last().is_some_and(|(_, last)| last.end > range.end);
        let end = match is_end_cut {
            true => range.end.saturating_sub(range.end.rem_euclid(DAY)),
            false => last_end,
        };
        let end = end.min(covered_end);
        let outside = chunks.partition_point(|(_, location)| location.end <= range.start);
        let Some((_, first)) = chunks.get(outside) else { return Ok(None) };
        let day = interval_start(first.end, DAY);
        let is_cut = chunks[..outside].iter().any(|(_, location)| location.end > day);
        chunks.drain(..outside);
        chunks.retain(|(_, location)| location.end <= end);
        Ok((!chunks.is_empty()).then_some(CoveredChunks { parts, chunks, end, is_cut }))
    }

    /// Adds the increments of covered chunks: up to the first sample of the window, or the end of a
    /// day that begins before it, as they are, and the sum of the others. False if that is not
    /// possible.
    fn add_days(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        covered: &CoveredChunks<'_>,
        builder: &mut IncrementsBuilder,
        reserve: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let Some((first, others)) = covered.chunks.split_first() else { return Ok(false) };
        let Some((_, last)) = covered.chunks.last() else { return Ok(false) };
        let day = interval_start(first.1.end, DAY);
        let rows = |chunks: &[(usize, ChunkLocation)]| {
            let rows = chunks.iter().map(|(_, location)| location.rows as usize);
            rows.fold(0_usize, usize::saturating_add)
        };
        if covered.is_cut {
            let from = day.saturating_add(DAY);
            let rest = others.partition_point(|(_, location)| location.end <= from);
            let later = others.get(rest..).unwrap_or_default();
            let mut damage = Vec::new();
            // Without a whole day after it there is nothing to save.
            if later.is_empty()
                || !self.add_all_increments(
                    series,
                    &(range.start..from),
                    builder,
                    &mut damage,
                    reserve,
                )?
                || !damage.is_empty()
            {
                return Ok(false);
            }
            let has_starts = builder.increments.as_ref().is_none_or(|held| held.has_starts());
            let Some(sum) = self.rollup_sum(series, from..covered.end)?.filter(|_| !has_starts)
            else {
                return Ok(false);
            };
            return Ok(builder.push_rollup(last.end, rows(later), &sum, None));
        }
        let Some((before, samples)) = self.add_first(series, range, covered, builder)? else {
            return Ok(false);
        };
        let samples = samples.saturating_add(rows(others));
        if samples == 0 {
            return Ok(true);
        }
        let Some(sum) = self.rollup_sum(series, day..covered.end)? else { return Ok(false) };
        Ok(builder.push_rollup(last.end, samples, &sum, Some(&before)))
    }

    /// Adds the first sample of a window, which is in the first chunk of its day. Returns the sample
    /// before that chunk, from which the rollup of the day starts, and the number of samples in the
    /// chunk after the first; `None` if rollups may start from another sample.
    fn add_first(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        covered: &CoveredChunks<'_>,
        builder: &mut IncrementsBuilder,
    ) -> Result<Option<(Histogram, usize)>> {
        let mut bytes = Vec::new();
        let first = covered.chunks.first().and_then(|(part, location)| {
            let header = covered.parts.get(*part)?.read(location, &mut bytes)?;
            chunk::decode_increments(&header, &bytes).ok().flatten()
        });
        let Some(chunk) = first else { return Ok(None) };
        let at = chunk.times.partition_point(|time| time.1 <= range.start);
        let Some(&(_, end)) = chunk.times.get(at) else { return Ok(None) };
        // Rollups count a sample whole that starts after the one before it.
        let has_starts = chunk.times.iter().any(|(start, end)| start < end);
        let before = match (&chunk.predecessor, chunk.is_base_predecessor) {
            (Predecessor::Sample(_), true) => chunk.predecessor.time().map(|time| time.0),
            // The first sample of all is in no rollup.
            (Predecessor::Nothing, false) => Some(i64::MIN),
            _ => None,
        };
        let Some(before) = before else { return Ok(None) };
        if has_starts
            || !chunk.times.is_sorted_by(|a, b| a.1 < b.1)
            || !self.has_none_between(series, (before, chunk.first_time().0))
        {
            return Ok(None);
        }
        let (base, rows) = (chunk.base.clone(), chunk.times.len());
        let is_added = builder.push_chunk(chunk, &(range.start..end));
        let later = rows.saturating_sub(at).saturating_sub(1);
        Ok(is_added.then_some((base, later)))
    }

    /// Whether no stored sample of a series is between two times: one that arrived late is the
    /// predecessor of the later one, whatever its chunk records.
    fn has_none_between(&self, series: &SelectedSeries, (after, before): (i64, i64)) -> bool {
        let is_between = |location: &ChunkLocation| after < location.end && location.end < before;
        self.manifest
            .base_parts()
            .filter(|info| info.end > after && info.start < before)
            .map(|info| self.open_part(info).locations(&series.id))
            .all(|locations| locations.is_some_and(|all| !all.iter().any(is_between)))
    }

    /// Sum of the rollups of whole days; `None` if one is damaged.
    fn rollup_sum(&self, series: &SelectedSeries, range: Range<i64>) -> Result<Option<Mixture>> {
        let mut plan = Plan::default();
        plan[Resolution::Day as usize].push((range.clone(), 0));
        let placement = Placement { columns: std::slice::from_ref(&range), points_by_start: false };
        let (mut merge, mut damage) = (ColumnMerge::new(1), Vec::new());
        self.add_rollups(&[series], &plan, placement, &mut damage, &mut merge)?;
        let merged = merge.finish();
        let is_whole = damage.is_empty() && merged.full_columns.is_empty();
        Ok(merged.columns.into_iter().next().filter(|_| is_whole))
    }

    /// Days whose base rows are all there and all in rollups.
    fn rolled_up_days(&self) -> &BTreeSet<i64> {
        self.rolled_up_days.get_or_init(|| {
            let covered = self.rollup_coverage();
            let base = || self.manifest.base_parts();
            let is_covered =
                |info: &PartInfo| !self.is_not_rolled_up(info, Resolution::Day, &covered);
            let mut days: BTreeSet<i64> = base().map(PartInfo::day).collect();
            for info in base().filter(|info| info.has_dropped_series || !is_covered(info)) {
                days.remove(&info.day());
            }
            let live: BTreeSet<u64> = base().map(|info| info.number).collect();
            for part in self.manifest.parts.values() {
                for (day, numbers) in &part.covers {
                    if part.has_dropped_series || !numbers.is_subset(&live) {
                        days.remove(day);
                    }
                }
            }
            days
        })
    }
}

impl IncrementsBuilder {
    /// Appends the last of some samples that follow those so far, with the sum of the increments
    /// since the sample `before`, or since the last one; false if they are not like those.
    fn push_rollup(
        &mut self,
        end: i64,
        samples: usize,
        rollup: &Mixture,
        before: Option<&Histogram>,
    ) -> bool {
        let last = self.last.take();
        let Some(increments) = &mut self.increments else { return false };
        let Some(&last_sum) = increments.sums.last() else { return false };
        let (mut counts, mut sum) = (CountWindow::default(), DoubleDouble::ZERO);
        match rollup.parts() {
            [] => {}
            [one] => {
                let is_like = one.scheme() == increments.scheme()
                    && one.zero_threshold() == increments.zero_threshold()
                    && one.count() >> TOTAL_BITS_MAX == 0;
                let exact = one.tracked_sum().exact().filter(|_| is_like);
                let Some(exact) = exact.filter(|_| counts.add_histogram(one)) else { return false };
                sum = exact;
            }
            _ => return false,
        }
        let mut from = DoubleDouble::new(last_sum);
        let mut increase = counts.buckets();
        if let Some(before) = before {
            let mut window = CountWindow::default();
            let no_sum = before.is_empty().then_some(DoubleDouble::ZERO);
            let first_sum = before.tracked_sum().value().or(no_sum);
            let until_last = last.filter(|_| window.add_histogram(before));
            let until_last = until_last.and_then(|last| last.increase_since(&window));
            let Some(((buckets, zero), first_sum)) = until_last.zip(first_sum) else {
                return false;
            };
            let mut window = CountWindow::default();
            if !window.extend_to_buckets(&buckets) {
                return false;
            }
            buckets.iter().for_each(|&(index, count)| window.add_count(index, count));
            window.add_zeros(zero);
            let Some(rest) = counts.increase_since(&window) else { return false };
            (increase, from) = (rest, first_sum);
        }
        let (buckets, zero) = increase;
        let total = from.plus(sum);
        if !total.value().is_finite() || !increments.window.extend_to_buckets(&buckets) {
            return false;
        }
        let at = increments.times.len();
        increments.rolled_up = Some((at, samples.saturating_sub(1)));
        self.held_bytes = self.held_bytes.saturating_add(size_of_val(buckets.as_slice()));
        let count = buckets.iter().fold(zero, |sum, (_, count)| sum.saturating_add(*count));
        let content = PieceContent::Rollup { buckets, zero, count };
        increments.pieces.push(IncrementPiece { samples: at..at.saturating_add(1), content });
        self.push_time((end, end), total.value())
    }

    /// Whether a chunk with these counts before its first sample may follow: the counts after a
    /// rollup are not stored, and are fewer if there was a reset within it.
    pub(super) fn continues_rollup(&mut self, base: &Histogram) -> bool {
        let Some(increments) = &self.increments else { return true };
        let Some((last, others)) = increments.pieces.split_last() else { return true };
        let PieceContent::Rollup { count, .. } = last.content else { return true };
        let before = match others.last().map(|piece| &piece.content) {
            None => increments.first_total,
            Some(PieceContent::Difference { total, .. }) => Some(*total),
            Some(PieceContent::Rollup { .. }) => None,
            Some(PieceContent::Chunk(chunk)) => {
                let rows = chunk.rows.end;
                let counts = counts_after(&mut self.decoded, (&chunk.base, &chunk.block), rows);
                counts.map(|counts| counts.total())
            }
        };
        before.is_some_and(|before| before.saturating_add(count) == base.count())
    }
}
