//! Rows dropped by retention rules: which days lack rows, and what rollups have of them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use model::{Gap, SeriesId, SeriesKind};

use crate::backend::ChunkLocation;
use crate::error::{Error, Result};
use crate::gather;
use crate::index::SelectedSeries;
use crate::manifest::PartInfo;
use crate::resolution::{DAY, Resolution, interval_start};
use crate::row::Rows;

use super::placement::{Plan, clip_to_days, split_by_days, split_by_intervals};
use super::{ReadView, may_contain};

/// Effect of dropped rows on an answer.
#[derive(Default)]
pub(super) struct DroppedRows {
    pub(super) gaps: Vec<Gap>,
    /// Plans of series that are read differently from the others.
    pub(super) plans: BTreeMap<SeriesId, Plan>,
}

impl DroppedRows {
    pub(super) fn plan_of<'p>(&'p self, series: &SelectedSeries, plan: &'p Plan) -> &'p Plan {
        self.plans.get(&series.id).unwrap_or(plan)
    }

    /// Reads the pieces of a day from a finer resolution.
    pub(super) fn read_instead(
        &mut self,
        series: &SelectedSeries,
        plan: &Plan,
        (day, resolution): (i64, Resolution),
        finer: Resolution,
    ) {
        let plan_of_series = self.plans.entry(series.id).or_insert_with(|| Plan::clone(plan));
        let mut stays = Vec::new();
        for (range, column) in std::mem::take(&mut plan_of_series[resolution as usize]) {
            for piece in split_by_days(&range) {
                let is_meant = interval_start(piece.end, DAY) == day;
                match is_meant {
                    true => plan_of_series[finer as usize].push((piece, column)),
                    false => stays.push((piece, column)),
                }
            }
        }
        plan_of_series[resolution as usize] = stays;
        model::sort::by_key(&mut plan_of_series[finer as usize], |(range, _)| range.start);
    }
}

/// What the rollups of one resolution have of a series and a day.
pub(super) enum RowsOfDay {
    /// All known rows.
    Complete,
    /// Fewer rows than this finer resolution.
    Finer(Resolution),
    /// Fewer rows than a coarser resolution, or an unknown share.
    Missing,
}

/// The base parts that rollups cover, each as its day and number.
pub(super) struct RollupCoverage {
    /// By resolution of the rollups.
    covered: [BTreeSet<(i64, u64)>; 5],
    /// Those of all resolutions that no longer exist.
    gone: BTreeSet<(i64, u64)>,
}

impl ReadView {
    /// Gaps for days whose rows of the required resolution were dropped while other resolutions
    /// retain them. Where a finer resolution has everything known of a series, it is read instead.
    pub(super) fn dropped_gaps(
        &self,
        series: &[&SelectedSeries],
        plan: &Plan,
    ) -> Result<DroppedRows> {
        let coverage = self.rollup_coverage();
        let mut dropped = DroppedRows::default();
        for resolution in Resolution::ALL {
            let covered = &coverage.covered[resolution as usize];
            let mut lacking: BTreeSet<i64> =
                coverage.gone.difference(covered).map(|part| part.0).collect();
            if resolution != Resolution::Base {
                lacking.extend(self.days_with_dropped_series(resolution));
            }
            // Base rows are dropped by partition; a day has several.
            let period = DAY.min(resolution.partition());
            let mut pieces = BTreeMap::new();
            for (range, _) in &plan[resolution as usize] {
                for piece in
                    clip_to_days(range, &lacking).flat_map(|day| split_by_intervals(&day, period))
                {
                    let piece_of_interval =
                        pieces.entry(interval_start(piece.end, period)).or_insert(piece.clone());
                    *piece_of_interval = piece_of_interval.start.min(piece.start)
                        ..piece_of_interval.end.max(piece.end);
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
                        _ if series.kind == SeriesKind::Text => false,
                        Resolution::Base => {
                            !is_told
                                && self.has_rows(series, day, coarser)
                                && self.lacks_rows(series, first)?
                        }
                        _ => match self.rows_of_day(series, day, resolution)? {
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
                    let series = self.name_of(series);
                    let reason = format!(
                        "base rows of {series} were dropped; longer columns are answered from \
                         rollups"
                    );
                    dropped.gaps.push(Gap { start, end, producer: None, lost: None, reason });
                }
            }
        }
        Ok(dropped)
    }

    /// Days whose rollups lost rows of some series to a rule.
    pub(super) fn days_with_dropped_series(
        &self,
        resolution: Resolution,
    ) -> impl Iterator<Item = i64> + '_ {
        let is_meant =
            move |part: &&PartInfo| part.resolution == resolution && part.has_dropped_series;
        self.manifest.parts.values().filter(is_meant).flat_map(|part| part.covers.keys().copied())
    }

    /// Compares the rollups of a resolution with all other resolutions, for one series and day.
    pub(super) fn rows_of_day(
        &self,
        series: &SelectedSeries,
        day: i64,
        requested_resolution: Resolution,
    ) -> Result<RowsOfDay> {
        let kind = series.kind;
        let range = day..day.saturating_add(DAY);
        // The read of the answer reports damage.
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
            // Base rows that no rollup of this resolution covers count too.
            let beside = match kind {
                _ if kind.is_cumulative() => None,
                SeriesKind::Histogram(_) => self.amount_in_base(series, &range, &mut |info| {
                    self.is_not_rolled_up(info, resolution)
                })?,
                _ => self.amount_in_base(series, &range, &mut |info| {
                    self.is_not_rolled_up(info, Resolution::Day)
                })?,
            };
            amounts.push((resolution, rows.amount().saturating_add(beside.unwrap_or(0))));
        }
        // Cumulative samples of a day with dropped samples cannot be compared: their position among
        // those is unknown.
        if !kind.is_cumulative() || self.manifest.has_all_source_parts(day) {
            let amount = self.amount_in_base(series, &range, &mut |_| true)?;
            amounts.extend(amount.map(|amount| (Resolution::Base, amount)));
        }
        let most = amounts.iter().map(|(_, amount)| *amount).max().unwrap_or(0);
        if most == 0 {
            let is_base = |part: &PartInfo| part.resolution == Resolution::Base;
            let is_known = !kind.is_cumulative() || self.manifest.has_all_source_parts(day);
            let are_gone = !is_known && self.has_rows(series, day, is_base);
            return Ok(if are_gone { RowsOfDay::Missing } else { RowsOfDay::Complete });
        }
        let is_best = |resolution: &Resolution| amounts.contains(&(*resolution, most));
        let mut finer =
            Resolution::ALL.into_iter().rev().filter(|&finer| finer <= requested_resolution);
        Ok(match finer.find(is_best) {
            Some(best) if best == requested_resolution => RowsOfDay::Complete,
            Some(finer) => RowsOfDay::Finer(finer),
            None => RowsOfDay::Missing,
        })
    }

    /// Amount in a time range, according to the selected base parts; `None` if one is unreadable.
    pub(super) fn amount_in_base(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        filter: &mut dyn FnMut(&PartInfo) -> bool,
    ) -> Result<Option<u128>> {
        // The read of the answer reports damage.
        let mut gaps = Vec::new();
        let infos =
            self.manifest.base_parts().filter(|info| may_contain(info, range) && filter(info));
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

    /// Whether rollups of a partition hold more of a series than its remaining source rows: some
    /// rows were dropped, even if others arrived since.
    pub(super) fn lacks_rows(&self, series: &SelectedSeries, start: i64) -> Result<bool> {
        let range = start..start.saturating_add(Resolution::Base.partition());
        let kind = series.kind;
        // The read of the answer reports damage.
        let mut gaps = Vec::new();
        let day = interval_start(range.end, DAY);
        let of_day = |resolution, gaps: &mut Vec<Gap>| {
            let mut rows = Rows::none_of_rollup(kind);
            let day = day..day.saturating_add(DAY);
            self.rolled_rows(series, resolution, std::slice::from_ref(&day), gaps, &mut rows)?;
            Ok::<Rows, Error>(rows)
        };
        let mut rolled = Rows::none_of_rollup(kind);
        let mut is_thinned = false;
        for resolution in [Resolution::Hour, Resolution::FiveMinutes, Resolution::Minute] {
            // If a rule dropped rows of one rollup, another may have more.
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
            // A rollup of a whole day does not tell which partition its rows were in.
            return Ok(true);
        }
        rolled.retain(|_, end| range.contains(&end.saturating_sub(1)));
        if kind.is_cumulative() && self.has_interval_without_samples(series, &range, &mut gaps)? {
            return Ok(true);
        }
        let remaining = self.amount_in_base(series, &range, &mut |info| {
            info.partition().start == start && !self.is_not_rolled_up(info, Resolution::Day)
        })?;
        Ok(remaining.is_some_and(|remaining| rolled.amount() > remaining))
    }

    /// Whether the finest rollups of a partition have an interval without remaining samples. Late
    /// samples may have grown by more than the dropped ones.
    pub(super) fn has_interval_without_samples(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        gaps: &mut Vec<Gap>,
    ) -> Result<bool> {
        let kind = series.kind;
        let mut intervals = Rows::none_of_rollup(kind);
        for resolution in [Resolution::Minute, Resolution::FiveMinutes, Resolution::Hour] {
            if intervals.len() == 0 {
                let range = std::slice::from_ref(range);
                self.rolled_rows(series, resolution, range, gaps, &mut intervals)?;
            }
        }
        let remaining = self.base_rows(series, range, |_| true, gaps)?.rows.times();
        let is_left =
            |(start, end): (i64, i64)| remaining.iter().any(|row| start < row.1 && row.1 <= end);
        Ok(!intervals.times().into_iter().all(is_left))
    }

    /// Gaps where base rows of a series were dropped and rollups have them: the range is not empty.
    pub(super) fn dropped_samples(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
    ) -> Result<Vec<Gap>> {
        if !self.has_dropped_rows(range) {
            return Ok(Vec::new());
        }
        let mut plan = Plan::default();
        plan[Resolution::Base as usize].push((range.clone(), 0));
        Ok(self.dropped_gaps(&[series], &plan)?.gaps)
    }

    /// Whether base rows of any series were dropped in a range, of which rollups are left.
    pub(super) fn has_dropped_rows(&self, range: &Range<i64>) -> bool {
        let days = self.dropped_days.get_or_init(|| {
            let live: BTreeSet<u64> = self.manifest.base_parts().map(|part| part.number).collect();
            let covers = self.manifest.parts.values().flat_map(|part| &part.covers);
            covers.filter(|(_, numbers)| !numbers.is_subset(&live)).map(|(&day, _)| day).collect()
        });
        clip_to_days(range, days).next().is_some()
    }

    /// Whether a series has rows of a day in the selected parts. An unreadable part counts as
    /// empty; reading its rows reports the damage.
    pub(super) fn has_rows(
        &self,
        series: &SelectedSeries,
        day: i64,
        filter: impl Fn(&PartInfo) -> bool,
    ) -> bool {
        self.manifest.parts.values().filter(|part| filter(part)).any(|part| {
            let locations = self.inner.part(part.number).and_then(|part| part.find(&series.id));
            let is_of = |location: &ChunkLocation| {
                location.start < day.saturating_add(DAY) && day < location.end
            };
            locations.is_ok_and(|locations| locations.iter().any(is_of))
        })
    }

    /// Whether a base part is in no rollup of `resolution`, or only in one that no longer exists.
    pub(super) fn is_not_rolled_up(&self, info: &PartInfo, resolution: Resolution) -> bool {
        resolution == Resolution::Base
            || !self.rollup_coverage().covered[resolution as usize]
                .contains(&(info.day(), info.number))
    }

    fn rollup_coverage(&self) -> &RollupCoverage {
        self.coverage.get_or_init(|| {
            let mut covered = <[BTreeSet<(i64, u64)>; 5]>::default();
            for part in self.manifest.parts.values() {
                for (&day, numbers) in &part.covers {
                    covered[part.resolution as usize]
                        .extend(numbers.iter().map(|&number| (day, number)));
                }
            }
            let is_live = |&(day, number): &(i64, u64)| {
                let part = self.manifest.parts.get(&number);
                part.is_some_and(|part| part.resolution == Resolution::Base && part.day() == day)
            };
            let gone = covered.iter().flatten().filter(|part| !is_live(part)).copied().collect();
            RollupCoverage { covered, gone }
        })
    }
}
