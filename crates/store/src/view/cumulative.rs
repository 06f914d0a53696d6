//! Deltas of cumulative samples, on days with and without rollups.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hist::codec::header::Temporality;
use model::{Gap, SeriesKind};

use crate::chunk;
use crate::error::Result;
use crate::gather::{self, GatheredRows};
use crate::index::SelectedSeries;
use crate::late_samples::late_gap;
use crate::manifest::PartInfo;
use crate::resolution::{DAY, Resolution, interval_start};
use crate::rollup::deltas_of_day;
use crate::row::{Predecessor, Row, Rows};

use super::interval_increases::IntervalIncreases;
use super::placement::{Plan, enclosing_range, join_ranges, split_by_days};
use super::{ReadView, may_contain};

/// Days of a series with and without rollups.
#[derive(Default)]
pub(super) struct RollupCoverage {
    /// Days that have a rollup, by resolution.
    pub(super) rolled: [BTreeSet<i64>; 5],
    pub(super) loose: BTreeMap<i64, UnrolledDay>,
    /// Days whose rollups have source parts that were dropped.
    pub(super) dropped: BTreeSet<i64>,
}

/// How to read a day without complete rollups.
#[derive(Clone, Copy)]
pub(super) enum UnrolledDay {
    /// From base rows only.
    RawOnly,
    /// From the rollup, whose source parts are gone, and base rows that no rollup covers.
    RollupPlusRaw,
}

impl ReadView {
    /// Deltas of one series in the planned pieces, in order: histograms, or summaries of numbers.
    /// The slow path, for rows that are not additive. Histograms may be summed up in each of the
    /// columns.
    pub(super) fn deltas_in_pieces(
        &self,
        series: &SelectedSeries,
        plan: &Plan,
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Rows> {
        let kind = series.kind;
        let mut rows = Rows::none_of_rollup(kind);
        let days = self.unrolled_days(series, gaps)?;
        let too_early = self.samples_before_rollups(series, plan, &days, gaps)?;
        // Pieces read from base rows: from all of them, or only from those without rollup.
        let (mut base, mut beside): (Vec<Range<i64>>, Vec<Range<i64>>) = Default::default();
        base.extend(plan[Resolution::Base as usize].iter().map(|(range, _)| range.clone()));
        for resolution in Resolution::ROLLUPS {
            let mut rolled: Vec<Range<i64>> = Vec::new();
            for (range, _) in &plan[resolution as usize] {
                for piece in split_by_days(range) {
                    let day = interval_start(piece.end, DAY);
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
        let mut rollups = IntervalIncreases::default();
        for range in join_ranges(base) {
            if kind.is_cumulative() {
                self.add_too_late(series, &range, &days, gaps)?;
            }
            let is_whole = split_by_days(&range)
                .iter()
                .all(|piece| !days.dropped.contains(&interval_start(piece.end, DAY)));
            if is_whole
                && too_early.is_empty()
                && kind == SeriesKind::Histogram(Temporality::Cumulative)
                && let Some(sums) = self.column_increases(series, &range, columns, gaps)?
            {
                rows.append(sums);
                continue;
            }
            let place = (&range, &days.dropped);
            let read = match kind.is_cumulative() {
                true => rollups.whole_intervals(self, series, place)?,
                false => range.clone(),
            };
            let found = self.base_rows(series, &read, |_| true, gaps)?;
            let mut deltas = self.deltas_since(series, found, read.start, gaps)?;
            if kind.is_cumulative() {
                rollups.remove_differing(self, series, place, &mut deltas, gaps)?;
                deltas.retain(|_, end| {
                    range.contains(&end.saturating_sub(1)) && !too_early.contains(&end)
                });
            }
            rows.append(deltas);
        }
        for range in join_ranges(beside) {
            let is_loose = |info: &PartInfo| self.is_not_rolled_up(info, Resolution::Day);
            let found = self.base_rows(series, &range, is_loose, gaps)?;
            // The position of a sample among dropped ones is unknown.
            match kind.is_cumulative() {
                true => gaps.extend(late_gap(&self.name_of(series), &found.rows, None)),
                false => rows.append(self.deltas_since(series, found, range.start, gaps)?),
            }
        }
        match &mut rows {
            Rows::Histograms(rows) => rows.sort_by_key(Row::time),
            Rows::Aggregates(rows) => rows.sort_by_key(Row::time),
            other => panic!("BUG: deltas are {other:?}"),
        }
        Ok(rows)
    }

    /// Times of samples without rollup before the first interval in rollups, if that interval
    /// cannot be rolled up again: nothing counts their increases. They and the step to that
    /// interval are a gap.
    fn samples_before_rollups(
        &self,
        series: &SelectedSeries,
        plan: &Plan,
        days: &RollupCoverage,
        gaps: &mut Vec<Gap>,
    ) -> Result<BTreeSet<i64>> {
        let last_dropped = days.dropped.last().copied();
        let first_loose = days.loose.keys().next().copied();
        if !series.kind.is_cumulative() || first_loose.is_none() || last_dropped < first_loose {
            return Ok(BTreeSet::new());
        }
        let first_final = self.inner.first_final_interval_end(&self.manifest, &series.id)?;
        let Some(final_end) = first_final else { return Ok(BTreeSet::new()) };
        let is_loose = |info: &PartInfo| self.is_not_rolled_up(info, Resolution::Day);
        let early = self.base_rows(series, &(i64::MIN..final_end), is_loose, gaps)?.rows;
        let gap = late_gap(&self.name_of(series), &early, Some(final_end));
        let is_read = |gap: &Gap| {
            let mut pieces = plan.iter().flatten();
            pieces.any(|(range, _)| range.start < gap.end && gap.start < range.end)
        };
        gaps.extend(gap.filter(is_read));
        Ok(early.times().into_iter().map(|time| time.1).collect())
    }

    /// Gaps for samples without rollup on a day with dropped samples: their increase is unknown.
    pub(super) fn add_too_late(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        days: &RollupCoverage,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        for piece in split_by_days(range) {
            if let Some(UnrolledDay::RollupPlusRaw) =
                days.loose.get(&interval_start(piece.end, DAY))
            {
                let is_not_rolled_up =
                    |info: &PartInfo| self.is_not_rolled_up(info, Resolution::Day);
                let found = self.base_rows(series, &piece, is_not_rolled_up, gaps)?;
                gaps.extend(late_gap(&self.name_of(series), &found.rows, None));
            }
        }
        Ok(())
    }

    pub(super) fn rolled_rows(
        &self,
        series: &SelectedSeries,
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

    /// Base rows as deltas from `start` on.
    pub(super) fn deltas_since(
        &self,
        series: &SelectedSeries,
        gathered: GatheredRows,
        start: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Rows> {
        let kind = series.kind;
        let (mut rows, mut predecessor) = gathered.into_normalized(kind);
        if kind.is_cumulative() && rows.len() > 0 {
            let stored = self.previous_sample(series, start, gaps)?;
            predecessor = self.manifest.predecessor(stored, predecessor);
            // A series that is in no part had no sample that could have been dropped.
            let is_new = u64::from(series.number.0) >= self.manifest.series;
            if predecessor == Predecessor::Unknown && !is_new {
                gaps.extend(self.manifest.without_baseline(&series.id, &mut rows));
            }
        }
        Ok(deltas_of_day(kind, rows, predecessor.into_sample(), start).into_summaries())
    }

    /// The last sample up to `time`, in heads or parts.
    pub(super) fn previous_sample(
        &self,
        series: &SelectedSeries,
        time: i64,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Rows>> {
        let kind = series.kind;
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
            let (rows, _) = self.base_rows(series, &range, |_| true, gaps)?.into_normalized(kind);
            let last = rows.last_sample(time);
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }

    /// Days of a series with rows that no rollup covers.
    pub(super) fn unrolled_days(
        &self,
        series: &SelectedSeries,
        gaps: &mut Vec<Gap>,
    ) -> Result<RollupCoverage> {
        let kind = series.kind;
        let mut days = RollupCoverage::default();
        let live: BTreeSet<u64> = self.manifest.base_parts().map(|part| part.number).collect();
        for part in self.manifest.parts.values().filter(|part| part.resolution != Resolution::Base)
        {
            for (&day, numbers) in &part.covers {
                days.rolled[part.resolution as usize].insert(day);
                if !numbers.is_subset(&live) {
                    days.dropped.insert(day);
                }
            }
        }
        let mut touched: Vec<Range<i64>> = Vec::new();
        for info in self.manifest.base_parts() {
            if self.is_not_rolled_up(info, Resolution::Day) {
                self.check()?;
                let part = self.inner.part(info.number).and_then(|part| {
                    let is_whole = gather::missing_rows(&*part, info)?.is_none();
                    Ok((part.find(&series.id)?, is_whole))
                });
                match part {
                    Ok((locations, true)) => {
                        touched.extend(locations.iter().map(|place| place.start..place.end));
                    }
                    // The unreadable part may contain this series: the read meets the gap.
                    _ => touched.push(info.start..info.end),
                }
            }
        }
        for head in self.heads() {
            touched.extend(head.series_range(series.number).map(|(start, end)| start..end));
        }
        for range in touched {
            let mut next = Some(range.end);
            let mut unrolled: BTreeSet<i64> =
                split_by_days(&(range.start.saturating_sub(1)..range.end.max(range.start)))
                    .iter()
                    .map(|piece| interval_start(piece.end, DAY))
                    .collect();
            unrolled.insert(interval_start(range.end, DAY));
            if kind.is_cumulative() {
                // The delta after the last of these samples starts from it.
                next = self.next_sample_time(series, range.end, gaps)?;
            }
            unrolled.extend(next.map(|time| interval_start(time, DAY)));
            for day in unrolled {
                let how = if days.dropped.contains(&day) {
                    UnrolledDay::RollupPlusRaw
                } else {
                    UnrolledDay::RawOnly
                };
                days.loose.insert(day, how);
            }
        }
        Ok(days)
    }

    /// Time of the first sample after `time`.
    pub(super) fn next_sample_time(
        &self,
        series: &SelectedSeries,
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
