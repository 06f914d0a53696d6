//! Columns of a day of which a retention rule dropped some quarters: no increase is in two of them.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// Increase of both series in a time range: from the last of some samples before it to the last of
/// some samples in it. Values grow by one a second.
fn expected(before: &BTreeSet<i64>, inside: &BTreeSet<i64>, start: i64, end: i64) -> u64 {
    let last = |of: &BTreeSet<i64>, time: i64| of.range(..=time).next_back().copied();
    let Some(last_inside) = last(inside, end) else { return 0 };
    // The increase of the first sample is unknown.
    let from = last(before, start).or(inside.first().copied()).unwrap_or(last_inside);
    ((last_inside - from) / SECOND).max(0) as u64
}

/// Increases of the columns of a grid, each read by itself, as PromQL reads windows.
pub(super) fn by_column(growing: &GrowingFixture, grid: TimeGrid) -> Vec<((u64, u64), Vec<Gap>)> {
    let column = |at| {
        let start = grid.column(at).start;
        let one = TimeGrid { start, step: grid.step, columns: 1 };
        let (increases, gaps) = growing.increases(one);
        (increases[0], gaps)
    };
    (0..grid.columns).map(column).collect()
}

/// Checks that columns together have at most the increase of all samples, and that a column
/// without a gap has that of its samples. `late` are the samples that may be in no rollup.
#[track_caller]
pub(super) fn check_columns(
    growing: &GrowingFixture,
    (timely, late): (&BTreeSet<i64>, &BTreeSet<i64>),
    grid: TimeGrid,
    what: &str,
) {
    let all: BTreeSet<i64> = timely.union(late).copied().collect();
    let mut sum = (0, 0);
    for (at, ((number, histogram), gaps)) in by_column(growing, grid).into_iter().enumerate() {
        let column = grid.column(at as u64);
        // Each late sample may be ignored: then its increase is that of the next one.
        let bounds = [(&all, timely), (timely, &all)];
        let [least, most] =
            bounds.map(|(before, inside)| expected(before, inside, column.start, column.end));
        let from = (column.start - BEGIN) / SECOND;
        let context = format!(
            "{what}: {number} and {histogram}, not from {least} to {most}, in the column of {} s \
             from {from} s: {gaps:?}",
            grid.step / SECOND
        );
        assert!(number.max(histogram) <= most, "too much: {context}");
        assert!(least <= number.min(histogram) || !gaps.is_empty(), "{context}");
        sum = (sum.0 + number, sum.1 + histogram);
    }
    let most = expected(&all, &all, grid.start, grid.range().end);
    assert!(sum.0.max(sum.1) <= most, "{what}: {sum:?} in all columns, more than {most}");
}

/// The sample at 12:30:10 arrives after the first quarter of its day was dropped. The column that
/// ends at 12:30:30 cuts its minute; the next sample is in the column after it.
#[test]
fn a_late_sample_of_a_partly_dropped_day_is_counted_once() {
    for has_start_times in [false, true] {
        let mut growing = GrowingFixture::new(has_start_times);
        for hour in 1..=24 {
            growing.read(BEGIN + hour * HOUR);
        }
        growing.world.set_now(BEGIN + 2 * DAY);
        growing.settle();
        growing.set_base_retention(2 * DAY - 6 * HOUR);
        assert_eq!(growing.base_rows_before(BEGIN + 6 * HOUR), 0);
        growing.read(BEGIN + 12 * HOUR + 30 * MINUTE + 10 * SECOND);
        let start = BEGIN + 11 * HOUR + 30 * MINUTE + 30 * SECOND;
        let grid = TimeGrid { start, step: HOUR, columns: 3 };
        for what in ["in memory", "flushed", "rolled up"] {
            let columns = by_column(&growing, grid);
            let context = format!("{what}, has start times: {has_start_times}: {columns:?}");
            let sum = columns.iter().map(|(column, _)| column.0).sum::<u64>();
            assert_eq!(sum, 3 * 3600, "{context}");
            assert!(
                columns.iter().all(|((number, histogram), _)| number == histogram),
                "{context}"
            );
            assert!(!columns[0].1.is_empty(), "the late sample is a gap: {context}");
            match what {
                "in memory" => growing.store.flush().unwrap(),
                _ => growing.settle(),
            }
        }
    }
}

/// A sample, and whether the store is flushed after it.
#[derive(Clone, Copy, Debug)]
struct ArrivingSample {
    /// Seconds since [`BEGIN`], or from the start of a column.
    second: i64,
    /// Column in whose start the sample is near.
    column: Option<i64>,
    is_sealed: bool,
}

impl ArrivingSample {
    fn end(self, grid: TimeGrid) -> i64 {
        let from = match self.column {
            None => BEGIN,
            Some(at) => grid.start + at * grid.step - 30 * SECOND,
        };
        from + self.second * SECOND
    }
}

/// Samples at any time, and such that a column cuts their minute.
fn arriving(count: Range<usize>) -> impl Strategy<Value = Vec<ArrivingSample>> {
    let place = prop_oneof![
        (1..2 * DAY / SECOND).prop_map(|second| (second, None::<i64>)),
        (0i64..60, 1i64..24).prop_map(|(second, column)| (second, Some(column))),
    ];
    let sample = (place, prop::bool::weighted(0.25))
        .prop_map(|((second, column), is_sealed)| ArrivingSample { second, column, is_sealed });
    prop::collection::vec(sample, count)
}

fn read_all(
    growing: &mut GrowingFixture,
    arriving: &[ArrivingSample],
    grid: TimeGrid,
    (known, after): (&BTreeSet<i64>, i64),
) -> BTreeSet<i64> {
    let mut samples = BTreeSet::new();
    for sample in arriving {
        let end = sample.end(grid);
        let is_inside = after < end && end <= BEGIN + 2 * DAY;
        if is_inside && !known.contains(&end) && samples.insert(end) {
            growing.read(end);
        }
        if sample.is_sealed {
            growing.store.flush().unwrap();
        }
    }
    samples
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_increase_is_in_two_columns(
        timely in arriving(1..30),
        late in arriving(0..12),
        quarters in 1i64..8,
        (offset, step) in (0i64..HOUR / SECOND, 60i64..12 * HOUR / SECOND),
    ) {
        let mut growing = GrowingFixture::new(false);
        let (start, step) = (BEGIN + offset * SECOND, step * SECOND);
        let columns = (2 * DAY as u64).div_ceil(step as u64).min(24);
        let grid = TimeGrid { start, step, columns };
        let mut timely = read_all(&mut growing, &timely, grid, (&BTreeSet::new(), BEGIN));
        growing.world.set_now(BEGIN + 2 * DAY + HOUR);
        growing.settle();
        growing.set_base_retention(2 * DAY + HOUR - quarters * 6 * HOUR);
        let left = BEGIN + quarters * 6 * HOUR;
        assert_eq!(growing.base_rows_before(left - 1), 0);
        check_columns(&growing, (&timely, &BTreeSet::new()), grid, "dropped");
        let arrived = read_all(&mut growing, &late, grid, (&timely, left));
        // Nothing of the next day was dropped: its samples are rolled up as usual.
        let day_end = left + (BEGIN - left).rem_euclid(DAY);
        let (late, in_time) = arrived.into_iter().partition(|&end| end <= day_end);
        let late: BTreeSet<i64> = late;
        timely.extend::<BTreeSet<i64>>(in_time);
        check_columns(&growing, (&timely, &late), grid, "late samples in memory");
        growing.settle();
        check_columns(&growing, (&timely, &late), grid, "late samples rolled up");
    }
}
