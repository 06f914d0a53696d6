//! Column grid of a heatmap: as many columns as fit, of a round width, aligned with the rows.
//!
//! A row belongs to the column in which it ends. If the column width were not a multiple of the row
//! period, the number of rows per column would vary, and the heatmap would show stripes that are
//! not in the data.

use std::ops::Range;

use store::{DAY, HOUR, MINUTE, SECOND, TimeGrid};

/// Round column widths: those above a second divide a day, or are days.
const ROUND_STEPS_NS: [i64; 40] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    SECOND,
    2 * SECOND,
    3 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    20 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    3 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    45 * MINUTE,
    HOUR,
    90 * MINUTE,
    2 * HOUR,
    3 * HOUR,
    4 * HOUR,
    6 * HOUR,
    8 * HOUR,
    12 * HOUR,
];

/// With so many rows per column, one row more or less is not visible.
const MIN_ROWS: i64 = 12;

/// Period of the rows of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPeriod {
    /// Period in nanoseconds.
    pub(crate) interval: i64,
    /// Start of a row.
    pub(crate) first: i64,
    /// Whether all rows have exactly this length.
    pub(crate) is_steady: bool,
}

impl RowPeriod {
    /// Period of rows given as start and end, sorted by end. `None` for a single row without
    /// length.
    pub(crate) fn detect(rows: &[(i64, i64)]) -> Option<RowPeriod> {
        let (first, last) = (rows.first()?, rows.last()?);
        let mut lengths: Vec<i64> = rows.iter().map(|(start, end)| end - start).collect();
        if lengths.iter().all(|&length| length == 0) {
            // Irregular samples: their distance counts.
            lengths = rows.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        }
        lengths.retain(|&length| length > 0);
        lengths.sort_unstable();
        let median = *lengths.get(lengths.len() / 2)?;
        let equal = lengths.iter().filter(|&&length| length == median).count();
        if equal * 10 >= lengths.len() * 9 {
            return Some(RowPeriod { interval: median, first: first.0, is_steady: true });
        }
        // The mean of consecutive rows is better: its error does not accumulate.
        let mean = (last.1 - first.0) / rows.len() as i64;
        let follows = (mean - median).abs() <= median / 4;
        let interval = if follows { mean.max(1) } else { median };
        Some(RowPeriod { interval, first: first.0, is_steady: false })
    }
}

/// Column grid and its offset to the shown grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnGrid {
    pub(crate) grid: TimeGrid,
    /// Offset of the columns, so that rows that are slightly late are counted in their own column.
    pub(crate) offset: i64,
}

impl ColumnGrid {
    /// At most `most` columns over `range`, plus one if its ends are not round.
    pub(crate) fn covering(
        range: Range<i64>,
        rhythm: Option<RowPeriod>,
        most: usize,
    ) -> ColumnGrid {
        let length = range.end.saturating_sub(range.start).max(1);
        let least = (length as u64).div_ceil(most.max(1) as u64) as i64;
        let Some(RowPeriod { interval, first, is_steady }) = rhythm else {
            return ColumnGrid::aligned(&range, round_step(least, 1).unwrap_or(least));
        };
        if is_steady {
            if let Some(step) = round_step(least, interval) {
                return ColumnGrid::aligned(&range, step);
            }
        } else if let Some(step) = round_step(least, 1).filter(|step| *step >= MIN_ROWS * interval)
        {
            return ColumnGrid::aligned(&range, step);
        }
        let rows = (least as u64).div_ceil(interval as u64) as i64;
        let step = rows.saturating_mul(interval);
        let late = if is_steady { 0 } else { interval / 2 };
        let phase = range.start.saturating_sub(first).rem_euclid(interval);
        let start = range.start.saturating_sub(phase);
        // Allows the last row to be late, too.
        let length = range.end.saturating_sub(start).saturating_sub(late).max(1);
        let columns = (length as u64).div_ceil(step as u64);
        ColumnGrid { grid: TimeGrid { start, step, columns }, offset: late }
    }

    /// Columns that start at multiples of their width.
    fn aligned(range: &Range<i64>, step: i64) -> ColumnGrid {
        let start = range.start.saturating_sub(range.start.rem_euclid(step));
        let length = range.end.saturating_sub(start).max(1);
        let columns = (length as u64).div_ceil(step as u64);
        ColumnGrid { grid: TimeGrid { start, step, columns }, offset: 0 }
    }

    /// Part of `range` before the store range, as one column; it is added to the first one.
    pub(crate) fn before_store_range(&self, range: &Range<i64>) -> Option<TimeGrid> {
        let length = self.store_grid().start.min(range.end).saturating_sub(range.start);
        (length > 0).then_some(TimeGrid { start: range.start, step: length, columns: 1 })
    }

    /// Grid of the store query.
    pub(crate) fn store_grid(&self) -> TimeGrid {
        TimeGrid { start: self.grid.start.saturating_add(self.offset), ..self.grid }
    }
}

/// Smallest round width from `least` on that is a multiple of `of`; `None` if that is far too long.
fn round_step(least: i64, of: i64) -> Option<i64> {
    let days = |least: i64| (least as u64).div_ceil(DAY as u64) as i64 * DAY;
    let step_min = least.max(of);
    let some = ROUND_STEPS_NS.into_iter().find(|&step| step >= step_min && step % of == 0);
    let step = some.or_else(|| Some(days(step_min)).filter(|step| step % of == 0))?;
    (step / 3 <= step_min).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        range: Range<i64>,
        rhythm: Option<(i64, bool)>,
        most: usize,
        expected: (i64, i64, u64),
    ) {
        let first = range.start;
        let rhythm = rhythm.map(|(interval, is_steady)| RowPeriod { interval, first, is_steady });
        let ColumnGrid { grid, .. } = ColumnGrid::covering(range.clone(), rhythm, most);
        assert_eq!((grid.start, grid.step, grid.columns), expected);
        assert!(grid.columns <= most as u64 + 1);
        assert!(grid.start <= range.start);
    }

    #[test]
    fn columns_have_round_lengths() {
        check(0..7 * DAY, None, 112, (0, 90 * MINUTE, 112));
        check(0..7 * DAY, None, 146, (0, 90 * MINUTE, 112));
        check(DAY + 7..2 * DAY, None, 100, (DAY, 15 * MINUTE, 96));
        check(0..365 * DAY, None, 100, (0, 4 * DAY, 92));
        check(17..18, None, 100, (17, 1, 1));
    }

    #[test]
    fn columns_hold_whole_rows() {
        check(0..HOUR, Some((MINUTE, true)), 146, (0, MINUTE, 60));
        check(0..DAY, Some((MINUTE, true)), 146, (0, 10 * MINUTE, 144));
        check(0..DAY, Some((10 * MINUTE, true)), 100, (0, 20 * MINUTE, 72));
        // No round width is a multiple of seven seconds.
        check(3..700 * SECOND, Some((7 * SECOND, true)), 60, (3, 14 * SECOND, 50));
        check(0..DAY, Some((1_001_000_000, false)), 100, (0, 15 * MINUTE, 96));
    }

    #[test]
    fn jittered_rows_stay_in_their_columns() {
        let mut rows = Vec::new();
        let mut end = 5 * SECOND;
        for at in 0..60 {
            let start = end;
            end += SECOND + [3_000_000, -2_000_000, 1_000_000, 0][at % 4];
            rows.push((start, end));
        }
        let rhythm = RowPeriod::detect(&rows).unwrap();
        assert!(!rhythm.is_steady);
        let steps = ColumnGrid::covering(rows[0].0..end, Some(rhythm), 100);
        let asked = steps.store_grid();
        let columns: Vec<i64> =
            rows.iter().map(|row| (row.1 - 1 - asked.start).div_euclid(asked.step)).collect();
        assert_eq!(columns, (0..60).collect::<Vec<i64>>());
        assert_eq!(steps.grid.columns, 60);
        // Shorter rows of another series may end before the first column.
        let early = steps.before_store_range(&(rows[0].0..end)).unwrap();
        assert_eq!((early.start, early.range().end), (rows[0].0, asked.start));
        assert_eq!(ColumnGrid::covering(0..HOUR, None, 100).before_store_range(&(0..HOUR)), None);
    }

    #[test]
    fn row_period_is_detected() {
        let steady = |interval, first| Some(RowPeriod { interval, first, is_steady: true });
        assert_eq!(RowPeriod::detect(&[]), None);
        assert_eq!(RowPeriod::detect(&[(5, 5)]), None);
        assert_eq!(RowPeriod::detect(&[(0, 60), (60, 120), (180, 240)]), steady(60, 0));
        assert_eq!(RowPeriod::detect(&[(60, 60), (120, 120), (180, 180)]), steady(60, 60));
    }
}
