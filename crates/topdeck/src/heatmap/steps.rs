//! Columns for a picture: as many as there is room for, as long as people count, and in step with the rows.
//!
//! Rows belong to the column that they end in. Columns that are not a whole number of rows long would hold now
//! more of them, now fewer, and the picture would show stripes that are not in the data.

use std::ops::Range;

use store::Grid;

use crate::hist::intervals::NS_PER_S;

const MINUTE: i64 = 60 * NS_PER_S;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Lengths that people count in: those above a second divide a day, or are days.
const ROUND_NS: [i64; 40] = [
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
    NS_PER_S,
    2 * NS_PER_S,
    3 * NS_PER_S,
    5 * NS_PER_S,
    10 * NS_PER_S,
    15 * NS_PER_S,
    20 * NS_PER_S,
    30 * NS_PER_S,
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

/// So many rows to a column, and one more or less does not show.
const ROWS_MANY: i64 = 12;

/// How long rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// In nanoseconds.
    pub(crate) interval: i64,
    /// When one of them began.
    pub(crate) first: i64,
    /// Whether all are as long, and not only about so.
    pub(crate) is_steady: bool,
}

impl Rhythm {
    /// Of rows by their begin and end, in the order of their ends. `None` of one row that has no length.
    pub(crate) fn of(rows: &[(i64, i64)]) -> Option<Rhythm> {
        let (first, last) = (rows.first()?, rows.last()?);
        let mut lengths: Vec<i64> = rows.iter().map(|(start, end)| end - start).collect();
        if lengths.iter().all(|&length| length == 0) {
            // Read now and then: what counts is how far apart.
            lengths = rows.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        }
        lengths.retain(|&length| length > 0);
        lengths.sort_unstable();
        let median = *lengths.get(lengths.len() / 2)?;
        let equal = lengths.iter().filter(|&&length| length == median).count();
        if equal * 10 >= lengths.len() * 9 {
            return Some(Rhythm { interval: median, first: first.0, is_steady: true });
        }
        // Of many that follow each other the mean is the better: its error does not add up.
        let mean = (last.1 - first.0) / rows.len() as i64;
        let follows = (mean - median).abs() <= median / 4;
        let interval = if follows { mean.max(1) } else { median };
        Some(Rhythm { interval, first: first.0, is_steady: false })
    }
}

/// Columns, and how much later than they are shown to begin they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) grid: Grid,
    /// Rows that come about on time are then counted in the column that they are of.
    pub(crate) late: i64,
}

impl Steps {
    /// At most `most` columns over `range`, but for one more where its ends are not round.
    pub(crate) fn over(range: Range<i64>, rhythm: Option<Rhythm>, most: usize) -> Steps {
        let length = range.end.saturating_sub(range.start).max(1);
        let least = (length as u64).div_ceil(most.max(1) as u64) as i64;
        let Some(Rhythm { interval, first, is_steady }) = rhythm else {
            return Steps::round(&range, round(least, 1).unwrap_or(least));
        };
        if is_steady {
            if let Some(step) = round(least, interval) {
                return Steps::round(&range, step);
            }
        } else if let Some(step) = round(least, 1).filter(|step| *step >= ROWS_MANY * interval) {
            return Steps::round(&range, step);
        }
        let rows = (least as u64).div_ceil(interval as u64) as i64;
        let step = rows.saturating_mul(interval);
        let late = if is_steady { 0 } else { interval / 2 };
        let phase = range.start.saturating_sub(first).rem_euclid(interval);
        let start = range.start.saturating_sub(phase);
        // The last row may be a little late, too.
        let length = range.end.saturating_sub(start).saturating_sub(late).max(1);
        let columns = (length as u64).div_ceil(step as u64);
        Steps { grid: Grid { start, step, columns }, late }
    }

    /// Columns that begin at whole multiples of their length.
    fn round(range: &Range<i64>, step: i64) -> Steps {
        let start = range.start.saturating_sub(range.start.rem_euclid(step));
        let length = range.end.saturating_sub(start).max(1);
        let columns = (length as u64).div_ceil(step as u64);
        Steps { grid: Grid { start, step, columns }, late: 0 }
    }

    /// What of `range` lies before all that is asked of the store, as one column; it is of the
    /// first one.
    pub(crate) fn early(&self, range: &Range<i64>) -> Option<Grid> {
        let length = self.asked().start.min(range.end).saturating_sub(range.start);
        (length > 0).then_some(Grid { start: range.start, step: length, columns: 1 })
    }

    /// What is asked of the store.
    pub(crate) fn asked(&self) -> Grid {
        Grid { start: self.grid.start.saturating_add(self.late), ..self.grid }
    }
}

/// The least round length from `least` that is a whole number of `of`; `None` if that is far too long.
fn round(least: i64, of: i64) -> Option<i64> {
    let days = |least: i64| (least as u64).div_ceil(DAY as u64) as i64 * DAY;
    let wanted = least.max(of);
    let some = ROUND_NS.into_iter().find(|&step| step >= wanted && step % of == 0);
    let step = some.or_else(|| Some(days(wanted)).filter(|step| step % of == 0))?;
    (step / 3 <= wanted).then_some(step)
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
        let rhythm = rhythm.map(|(interval, is_steady)| Rhythm { interval, first, is_steady });
        let Steps { grid, .. } = Steps::over(range.clone(), rhythm, most);
        assert_eq!((grid.start, grid.step, grid.columns), expected);
        assert!(grid.columns <= most as u64 + 1);
        assert!(grid.start <= range.start);
    }

    #[test]
    fn columns_are_as_people_count() {
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
        // Nothing round is a multiple of seven seconds.
        check(3..700 * NS_PER_S, Some((7 * NS_PER_S, true)), 60, (3, 14 * NS_PER_S, 50));
        check(0..DAY, Some((1_001_000_000, false)), 100, (0, 15 * MINUTE, 96));
    }

    #[test]
    fn jittering_rows_stay_in_their_columns() {
        let mut rows = Vec::new();
        let mut end = 5 * NS_PER_S;
        for at in 0..60 {
            let start = end;
            end += NS_PER_S + [3_000_000, -2_000_000, 1_000_000, 0][at % 4];
            rows.push((start, end));
        }
        let rhythm = Rhythm::of(&rows).unwrap();
        assert!(!rhythm.is_steady);
        let steps = Steps::over(rows[0].0..end, Some(rhythm), 100);
        let asked = steps.asked();
        let columns: Vec<i64> =
            rows.iter().map(|row| (row.1 - 1 - asked.start).div_euclid(asked.step)).collect();
        assert_eq!(columns, (0..60).collect::<Vec<i64>>());
        assert_eq!(steps.grid.columns, 60);
        // Shorter rows of another series may end before the first column.
        let early = steps.early(&(rows[0].0..end)).unwrap();
        assert_eq!((early.start, early.range().end), (rows[0].0, asked.start));
        assert_eq!(Steps::over(0..HOUR, None, 100).early(&(0..HOUR)), None);
    }

    #[test]
    fn rows_have_a_rhythm() {
        let steady = |interval, first| Some(Rhythm { interval, first, is_steady: true });
        assert_eq!(Rhythm::of(&[]), None);
        assert_eq!(Rhythm::of(&[(5, 5)]), None);
        assert_eq!(Rhythm::of(&[(0, 60), (60, 120), (180, 240)]), steady(60, 0));
        assert_eq!(Rhythm::of(&[(60, 60), (120, 120), (180, 180)]), steady(60, 60));
    }
}
