//! Increases of cumulative series by interval, according to rollups and to base rows.
//!
//! They differ on a day of which a retention rule dropped some rows, where a sample arrived after
//! that: no rollup contains it, so the increase until it is part of the increase of the next
//! sample. A column that cuts a interval reads base rows, and its neighbour may read a rollup. Each
//! increase must be in one of them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use model::Gap;

use crate::error::Result;
use crate::index::SelectedSeries;
use crate::resolution::{DAY, MINUTE, Resolution, interval_start};
use crate::row::Rows;

use super::ReadView;
use super::placement::{join_ranges, split_by_days, split_by_intervals};

/// Relative difference of two sums of the same increases, which were added in another order.
const ROUNDING: f64 = 1e-12;

/// Increases of a series and a day in the intervals of its finest rollups.
struct DayRollup {
    period: i64,
    increases: BTreeMap<i64, f64>,
}

/// Rollups of the days with dropped rows, read once for all columns of a series.
#[derive(Default)]
pub(super) struct IntervalIncreases(BTreeMap<i64, Option<DayRollup>>);

impl IntervalIncreases {
    fn day(
        &mut self,
        view: &ReadView,
        series: &SelectedSeries,
        day: i64,
    ) -> Result<&mut Option<DayRollup>> {
        Ok(match self.0.entry(day) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(read_day(view, series, day)?),
        })
    }

    /// Time range whose base rows tell the increases in `range`: on days with dropped base rows,
    /// whole intervals. Both columns that cut a interval then see the same predecessor of each
    /// sample.
    pub(super) fn whole_intervals(
        &mut self,
        view: &ReadView,
        series: &SelectedSeries,
        (range, days): (&Range<i64>, &BTreeSet<i64>),
    ) -> Result<Range<i64>> {
        let mut whole = range.clone();
        for piece in split_by_days(range) {
            let day = interval_start(piece.end, DAY);
            if days.contains(&day)
                && let Some(rollup) = self.day(view, series, day)?
            {
                let intervals = whole_intervals(&piece, rollup.period);
                whole = whole.start.min(intervals.start)..whole.end.max(intervals.end);
            }
        }
        Ok(whole)
    }

    /// Removes increases of base rows in intervals whose rollup has another increase, and reports a
    /// gap for each such interval. `days` are the days with dropped base rows.
    pub(super) fn remove_differing(
        &mut self,
        view: &ReadView,
        series: &SelectedSeries,
        (range, days): (&Range<i64>, &BTreeSet<i64>),
        rows: &mut Rows,
        gaps: &mut Vec<Gap>,
    ) -> Result<()> {
        for piece in split_by_days(range) {
            let day = interval_start(piece.end, DAY);
            if !days.contains(&day) {
                continue;
            }
            // A rollup of a whole day does not tell the increases of its intervals.
            let rollup = self.day(view, series, day)?;
            let Some(DayRollup { period, increases }) = rollup else { continue };
            let whole = whole_intervals(&piece, *period);
            let in_base = base_increases(view, series, &whole, *period)?;
            let starts = split_by_intervals(&whole, *period).into_iter().map(|range| range.start);
            let differing = differing_intervals(starts, increases, &in_base);
            if differing.is_empty() {
                continue;
            }
            rows.retain(|_, end| {
                interval_start(end, DAY) != day
                    || !differing.contains(&interval_start(end, *period))
            });
            let ranges = differing
                .iter()
                .map(|&start| start.max(piece.start)..start.saturating_add(*period).min(piece.end));
            let name = view.name_of(series);
            gaps.extend(join_ranges(ranges.collect()).into_iter().map(|Range { start, end }| {
                let reason = format!(
                    "base rows of {name} differ from its rollups: some were dropped, or arrived \
                     after others were dropped; longer columns are answered from rollups"
                );
                Gap { start, end, producer: None, lost: None, reason }
            }));
        }
        Ok(())
    }
}

/// Intervals in which base rows have another increase than rollups. Intervals that differ one after
/// the other agree if their sums are equal: all are read from base rows, and the increase that a
/// rollup has in a later interval is counted once.
fn differing_intervals(
    starts: impl Iterator<Item = i64>,
    rollup: &BTreeMap<i64, f64>,
    base: &BTreeMap<i64, f64>,
) -> BTreeSet<i64> {
    let is_equal = |(a, b): (f64, f64)| (a - b).abs() <= ROUNDING * a.abs().max(b.abs());
    let mut differing = BTreeSet::new();
    let (mut run, mut sums): (Vec<i64>, (f64, f64)) = (Vec::new(), (0.0, 0.0));
    for start in starts {
        let of = |increases: &BTreeMap<i64, f64>| increases.get(&start).copied().unwrap_or(0.0);
        let interval = (of(rollup), of(base));
        match is_equal(interval) {
            true if interval == (0.0, 0.0) => {}
            true => {
                differing.extend(std::mem::take(&mut run));
                sums = (0.0, 0.0);
            }
            false => {
                run.push(start);
                sums = (sums.0 + interval.0, sums.1 + interval.1);
                if is_equal(sums) {
                    run.clear();
                    sums = (0.0, 0.0);
                }
            }
        }
    }
    differing.extend(run);
    differing
}

/// The intervals that contain a time range.
fn whole_intervals(range: &Range<i64>, period: i64) -> Range<i64> {
    let start = range.start.saturating_sub(range.start.rem_euclid(period));
    start..interval_start(range.end, period).saturating_add(period)
}

/// `None` if the series has rows in the rollup of the day, but in no finer one, or if a rollup is
/// unreadable.
fn read_day(view: &ReadView, series: &SelectedSeries, day: i64) -> Result<Option<DayRollup>> {
    let range = day..day.saturating_add(DAY);
    for resolution in Resolution::ROLLUPS {
        let (mut rows, mut gaps) = (Rows::none_of_rollup(series.kind), Vec::new());
        let range = std::slice::from_ref(&range);
        view.rolled_rows(series, resolution, range, &mut gaps, &mut rows)?;
        if !gaps.is_empty() || resolution == Resolution::Day && rows.len() > 0 {
            return Ok(None);
        }
        let period = resolution.period().unwrap_or(DAY);
        if rows.len() > 0 {
            return Ok(Some(DayRollup { period, increases: by_interval(&rows, period) }));
        }
    }
    // All samples of the series arrived after rows of their day were dropped.
    Ok(Some(DayRollup { period: MINUTE, increases: BTreeMap::new() }))
}

fn base_increases(
    view: &ReadView,
    series: &SelectedSeries,
    intervals: &Range<i64>,
    period: i64,
) -> Result<BTreeMap<i64, f64>> {
    // The read of the answer reports damage.
    let mut gaps = Vec::new();
    let rows = view.base_rows(series, intervals, |_| true, &mut gaps)?;
    Ok(by_interval(&view.deltas_since(series, rows, intervals.start, &mut gaps)?, period))
}

/// Sums of counters or numbers of values in histograms, by interval.
fn by_interval(rows: &Rows, period: i64) -> BTreeMap<i64, f64> {
    let mut increases = BTreeMap::new();
    let mut add = |end: i64, increase: f64| {
        *increases.entry(interval_start(end, period)).or_insert(0.0) += increase;
    };
    match rows {
        Rows::Histograms(rows) => {
            rows.iter().for_each(|row| add(row.end, row.value.count() as f64));
        }
        Rows::Aggregates(rows) => rows.iter().for_each(|row| add(row.end, row.value.sum.value())),
        other => panic!("BUG: {other:?} are neither increases nor rollups"),
    }
    increases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_differ_agree_if_their_sums_are_equal() {
        let check = |rollup: &[f64], base: &[f64], expected: &[i64]| {
            let by_interval = |increases: &[f64]| (0..).zip(increases.iter().copied()).collect();
            let intervals = 0..rollup.len() as i64;
            let found = differing_intervals(intervals, &by_interval(rollup), &by_interval(base));
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{rollup:?} {base:?}");
        };
        check(&[1.0, 2.0], &[1.0, 2.0], &[]);
        // A late sample in the interval of the next one, in the interval before it, and alone.
        check(&[0.0, 3.0, 1.0], &[0.0, 3.0, 1.0], &[]);
        check(&[0.0, 0.0, 3.0, 1.0], &[1.0, 0.0, 2.0, 1.0], &[]);
        check(&[0.0, 0.0], &[1.0, 0.0], &[0]);
        // The next sample follows the one before the late one.
        check(&[0.0, 3.0], &[1.0, 3.0], &[0]);
        check(&[3.0, 1.0, 1.0], &[0.0, 1.0, 1.0], &[0]);
        check(&[0.1 + 0.2], &[0.3], &[]);
    }
}
