//! Assignment of rows to columns, and ranges of time.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::ops::Range;

use model::Gap;

use crate::grid::ColumnRun;
use crate::resolution::{DAY, Resolution};

/// Assignment of rows to columns.
#[derive(Clone, Copy)]
pub(super) struct Placement<'a> {
    pub(super) columns: &'a [Range<i64>],
    /// A gauge value on a column boundary belongs to the later column.
    pub(super) points_by_start: bool,
}

/// Stands for the time before the first column; only gauge values at its end are used.
pub(super) const BEFORE_FIRST: usize = usize::MAX;

impl Placement<'_> {
    /// The gap as an answer shows it: of the time before the first column, only the last timestamp
    /// matters.
    pub(super) fn shown(self, gap: Gap) -> Gap {
        match self.columns.first() {
            Some(&Range { start, .. }) if gap.end <= start => {
                Gap { start, end: start.saturating_add(1), ..gap }
            }
            _ => gap,
        }
    }

    /// Extends a plan by the time before the first column, whose last timestamp may belong to that
    /// column.
    pub(super) fn extend_with_points(self, mut plan: Plan) -> Plan {
        let first = self.columns.first().filter(|_| self.points_by_start);
        if let Some(&Range { start, .. }) = first {
            // The coarsest resolution that keeps such values separate is retained longest.
            let periods = Resolution::ROLLUPS.map(|rollup| (rollup, rollup.period().unwrap_or(1)));
            let coarsest = periods.iter().rev().find(|(_, period)| start.rem_euclid(*period) == 0);
            let (resolution, period) = coarsest.copied().unwrap_or((Resolution::Base, 1));
            plan[resolution as usize]
                .insert(0, (start.saturating_sub(period)..start, BEFORE_FIRST));
        }
        plan
    }

    /// Column of a row, by its start and end, that ended in `column`.
    pub(super) fn column_of(self, (start, end): (i64, i64), column: usize) -> Option<usize> {
        if !self.points_by_start || start < end {
            return (column != BEFORE_FIRST).then_some(column);
        }
        let at = self.columns.partition_point(|column| column.end <= end);
        self.columns.get(at).filter(|column| column.contains(&end)).map(|_| at)
    }
}

/// Pieces of columns to read, by resolution.
pub(super) type Plan = [Vec<ColumnRun>; 5];

pub(super) fn overlaps(gap: &Gap, range: &Range<i64>) -> bool {
    gap.start < range.end && range.start < gap.end.max(gap.start.saturating_add(1))
}

pub(super) fn enclosing_range<'a>(
    ranges: impl Iterator<Item = &'a Range<i64>>,
) -> Option<Range<i64>> {
    ranges.cloned().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

/// Splits a time range by days.
pub(super) fn split_by_days(range: &Range<i64>) -> Vec<Range<i64>> {
    split_by_intervals(range, DAY)
}

/// The pieces of a time range that lie in some days.
pub(super) fn clip_to_days(
    range: &Range<i64>,
    days: &BTreeSet<i64>,
) -> impl Iterator<Item = Range<i64>> {
    let Range { start, end } = range.clone();
    days.range(start.saturating_sub(DAY).min(end)..end)
        .map(move |&day| start.max(day)..end.min(day.saturating_add(DAY)))
        .filter(|piece| !piece.is_empty())
}

/// Splits a time range by intervals of `period`.
pub(super) fn split_by_intervals(range: &Range<i64>, period: i64) -> Vec<Range<i64>> {
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

/// Joins adjacent ranges.
pub(super) fn join_ranges(mut ranges: Vec<Range<i64>>) -> Vec<Range<i64>> {
    model::sort::by_key(&mut ranges, |range| range.start);
    let mut joined: Vec<Range<i64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

pub(super) fn column_of(columns: &[Range<i64>], end: i64) -> Option<usize> {
    let at = columns.partition_point(|column| column.end < end);
    columns.get(at).filter(|column| column.contains(&end.saturating_sub(1))).map(|_| at)
}
