//! Time grid of a read, and the resolution that answers each piece.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use crate::resolution::Resolution;

/// Grid of equal time columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeGrid {
    /// Start of the first column, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Column width in nanoseconds.
    pub step: i64,
    /// Number of columns.
    pub columns: u64,
}

impl TimeGrid {
    /// Grid that covers a time range: the smallest step that is a whole number of minutes (of
    /// seconds or milliseconds for short ranges) and needs at most `columns` columns, plus one
    /// where the start is rounded down to that unit.
    pub fn covering(range: Range<i64>, columns: u64) -> TimeGrid {
        // The distance between the extreme timestamps exceeds `i64`.
        let until_end =
            |start: i64| i128::from(range.end).saturating_sub(start.into()).max(1) as u64;
        let least = until_end(range.start).div_ceil(columns.max(1)).min(1 << 62) as i64;
        let unit: i64 = match least {
            60_000_000_000.. => 60_000_000_000,
            1_000_000_000.. => 1_000_000_000,
            1_000_000.. => 1_000_000,
            _ => 1,
        };
        let step = ((least as u64).div_ceil(unit as u64) as i64).saturating_mul(unit);
        let start = range.start.saturating_sub(range.start.rem_euclid(unit));
        TimeGrid { start, step, columns: until_end(start).div_ceil(step as u64) }
    }

    /// Time range of a column. A row belongs to the column that contains the last nanosecond before
    /// the row's end.
    pub fn column(&self, at: u64) -> Range<i64> {
        // The distance between the extreme timestamps exceeds `i64`.
        let timestamp = |at: i128| {
            let timestamp =
                i128::from(self.step).saturating_mul(at).saturating_add(self.start.into());
            timestamp.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        timestamp(at.into())..timestamp(i128::from(at).saturating_add(1))
    }

    /// Time range of the grid.
    pub fn range(&self) -> Range<i64> {
        self.start..self.column(self.columns.saturating_sub(1)).end
    }
}

/// Share of a time range that lies within another: 0 to 1.
pub(crate) fn overlap_share(interval: &Range<i64>, range: &Range<i64>) -> f64 {
    // A timestamp counts as one nanosecond long.
    let last = interval.end.max(interval.start.saturating_add(1));
    let (start, end) = (interval.start.max(range.start), last.min(range.end));
    let length = last.saturating_sub(interval.start).max(1);
    end.saturating_sub(start).clamp(0, length) as f64 / length as f64
}

/// A time range and the column that it belongs to.
pub(crate) type ColumnRun = (Range<i64>, usize);

/// For each resolution, the pieces of columns that consist of whole intervals of it and of no
/// coarser one, in order of time.
pub(crate) fn plan(columns: &[Range<i64>]) -> [Vec<ColumnRun>; 5] {
    let mut plan: [Vec<ColumnRun>; 5] = Default::default();
    for (at, column) in columns.iter().enumerate() {
        divide(column.clone(), at, Resolution::Day, &mut plan);
    }
    for runs in &mut plan {
        model::sort::by_key(runs, |(range, _)| range.start);
    }
    plan
}

fn divide(
    range: Range<i64>,
    column: usize,
    resolution: Resolution,
    plan: &mut [Vec<ColumnRun>; 5],
) {
    if range.is_empty() {
        return;
    }
    let Some(period) = resolution.period() else {
        plan[Resolution::Base as usize].push((range, column));
        return;
    };
    // The base is below every rollup.
    let finer = resolution.next_finer().unwrap_or(Resolution::Base);
    let beyond = range.start.rem_euclid(period);
    let first = match beyond {
        0 => Some(range.start),
        _ => range.start.checked_add(period.saturating_sub(beyond)),
    };
    let last = range.end.saturating_sub(range.end.rem_euclid(period));
    match first.filter(|&first| first < last) {
        None => divide(range, column, finer, plan),
        Some(first) => {
            divide(range.start..first, column, finer, plan);
            plan[resolution as usize].push((first..last, column));
            divide(last..range.end, column, finer, plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::resolution::{DAY, HOUR, MINUTE};

    #[test]
    fn shares_are_parts_of_a_stretch() {
        let check = |interval, range, expected: f64| {
            assert_eq!(overlap_share(&interval, &range), expected, "{interval:?} in {range:?}");
        };
        check(0..100, 0..100, 1.0);
        check(0..100, 50..200, 0.5);
        check(0..100, -50..25, 0.25);
        check(0..100, 100..200, 0.0);
        check(7..7, 0..10, 1.0);
        check(i64::MIN..i64::MAX, 0..i64::MAX, 1.0);
    }

    proptest! {
        #[test]
        fn pieces_fill_columns(start in -3 * DAY..3 * DAY, step in 1i64..3 * DAY, columns in 1u64..5) {
            let grid = TimeGrid { start, step, columns };
            let columns: Vec<Range<i64>> = (0..columns).map(|at| grid.column(at)).collect();
            let plan = plan(&columns);
            let mut pieces: Vec<ColumnRun> = plan.iter().flatten().cloned().collect();
            pieces.sort_by_key(|(range, _)| range.start);
            let mut at = start;
            for (range, column) in pieces {
                prop_assert_eq!(range.start, at);
                prop_assert!(columns[column].start <= range.start && range.end <= columns[column].end);
                at = range.end;
            }
            prop_assert_eq!(at, grid.range().end);
            for resolution in Resolution::ROLLUPS {
                let period = resolution.period().unwrap();
                for (range, _) in &plan[resolution as usize] {
                    prop_assert!(range.start % period == 0 && range.end % period == 0);
                }
            }
        }

        #[test]
        fn grids_contain_their_range(start in any::<i32>(), length in 1i64..1 << 50, columns in 1u64..500) {
            let start = i64::from(start) << 20;
            let grid = TimeGrid::covering(start..start + length, columns);
            prop_assert!(grid.columns <= columns + 1, "{:?}", grid);
            prop_assert!(grid.start <= start && grid.range().end >= start + length);
        }
    }

    #[test]
    fn an_hour_and_a_half_is_an_hour_and_six_times_five_minutes() {
        let plan = plan(std::slice::from_ref(&(0..HOUR + 30 * MINUTE)));
        assert_eq!(plan[Resolution::Hour as usize], [(0..HOUR, 0)]);
        assert_eq!(plan[Resolution::FiveMinutes as usize], [(HOUR..HOUR + 30 * MINUTE, 0)]);
    }

    #[test]
    fn a_week_in_112_columns() {
        assert_eq!(
            TimeGrid::covering(0..7 * DAY, 112),
            TimeGrid { start: 0, step: 90 * MINUTE, columns: 112 }
        );
    }
}
