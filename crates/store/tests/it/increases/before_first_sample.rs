//! Samples that arrive before the first one of a series, after the rows of that one were dropped:
//! the increase to it is in no rollup, so it is a gap, and nothing is counted twice.

use std::collections::BTreeSet;

use super::partly_dropped_day::{by_column, check_columns};
use super::*;

/// Samples of day 1 every ten minutes, dropped wholly or in part, then late samples of day 0.
#[track_caller]
fn check(has_start_times: bool, has_day_before: bool, retained: i64) {
    let mut growing = GrowingFixture::new(has_start_times);
    if has_day_before {
        ingest(&growing.store, 1, &[(&other(), sample(BEGIN + HOUR, BEGIN + HOUR, 1.0))]);
        growing.batches = 1;
    }
    let first = BEGIN + DAY + 9 * HOUR + 20 * MINUTE;
    let timely: BTreeSet<i64> = (0..80).map(|at| first + at * STEP).collect();
    let last = first + 79 * STEP;
    timely.iter().for_each(|&end| growing.read(end));
    growing.world.set_now(BEGIN + 3 * DAY);
    growing.settle();
    growing.set_base_retention(retained);
    assert_eq!(growing.base_rows_before(BEGIN + DAY + 12 * HOUR), 0, "the first is dropped");
    let late = BTreeSet::from([BEGIN + 18 * HOUR, BEGIN + 21 * HOUR + 45 * MINUTE]);
    late.iter().for_each(|&end| growing.read(end));
    for what in ["in memory", "flushed", "rolled up", "dropped"] {
        let what = format!(
            "{what}, start times: {has_start_times}, day before: {has_day_before}, {retained} ns"
        );
        for step in [DAY, 6 * HOUR, HOUR, STEP] {
            let columns = (2 * DAY / step) as u64;
            let grid = TimeGrid { start: BEGIN, step, columns };
            if has_start_times {
                // Rollups hold all of it: the first sample counts from the start.
                let sum = by_column(&growing, grid).iter().map(|(sums, _)| sums.0).sum::<u64>();
                assert_eq!(sum, ((last - BEGIN) / SECOND) as u64, "{what}, by {step} ns");
            } else {
                check_columns(&growing, (&timely, &late), grid, &what);
            }
            let start = first - (first - BEGIN - 1) % step - 1;
            let (_, gaps) = by_column(&growing, TimeGrid { start, step, columns: 1 }).remove(0);
            assert_ne!(gaps.len(), 0, "{what}: no gap in {step} ns of the first sample");
        }
        match what.split(',').next() {
            Some("in memory") => growing.store.flush().unwrap(),
            Some("flushed") => growing.settle(),
            _ => growing.set_base_retention(HOUR),
        }
    }
}

#[test]
fn the_increase_to_a_first_sample_that_was_dropped_is_a_gap() {
    for has_day_before in [false, true] {
        // Day 1 is dropped wholly, or but for its last quarter.
        for retained in [DAY, DAY + 7 * HOUR] {
            check(false, has_day_before, retained);
        }
    }
}

#[test]
fn a_sample_before_the_first_one_with_the_same_start_is_not_counted_twice() {
    for has_day_before in [false, true] {
        for retained in [DAY, DAY + 7 * HOUR] {
            check(true, has_day_before, retained);
        }
    }
}
