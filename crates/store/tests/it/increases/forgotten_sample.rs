//! Samples whose increase is unknown, which no rollup counts: when they are dropped, the increase
//! after them is a gap, not 0.

use std::ops::Range;

use super::*;

/// Values grow by one a second; the store can be opened again.
fn reopened(growing: GrowingFixture) -> GrowingFixture {
    let GrowingFixture { world, store, has_start_times, batches } = growing;
    drop(store);
    let store = world.open().unwrap();
    GrowingFixture { world, store, has_start_times, batches }
}

/// Checks that a time range has the increase of its samples, or a gap.
#[track_caller]
fn check_gap(growing: &GrowingFixture, range: Range<i64>, what: &str) {
    for columns in [1, 2, 24] {
        let step = (range.end - range.start) / columns as i64;
        let grid = TimeGrid { start: range.start, step, columns };
        let (grown, gaps) = growing.increases(grid);
        assert_ne!(gaps.len(), 0, "{what}, {columns} columns: {grown:?}");
    }
}

/// Number of samples of the counter in a time range, and the gaps.
fn samples(growing: &GrowingFixture, range: Range<i64>) -> (usize, usize) {
    let view = growing.store.view().unwrap();
    let series = view.select(&Selector::parse("requests").unwrap()).remove(0);
    let mut count = 0;
    let gaps = view.samples(&series, range, &mut |_| count += 1).unwrap();
    (count, gaps.len())
}

#[test]
fn the_increase_after_a_single_sample_that_was_dropped_is_a_gap_and_not_0() {
    for is_reopened in [false, true] {
        let mut growing = GrowingFixture::new(false);
        growing.read(BEGIN + HOUR);
        growing.world.set_now(BEGIN + 2 * DAY + HOUR);
        growing.settle();
        growing.set_base_retention(DAY);
        assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
        if is_reopened {
            growing = reopened(growing);
        }
        assert_eq!(growing.store.stat().unwrap().series, 3, "a rollup has them");
        assert_eq!(samples(&growing, BEGIN..BEGIN + DAY), (0, 1), "a dropped sample is a gap");
        let days = TimeGrid { start: BEGIN, step: DAY, columns: 1 };
        assert_eq!(growing.increases(days).0, [(0, 0)], "a first sample has no increase");
        growing.read(BEGIN + 2 * DAY + HOUR);
        growing.read(BEGIN + 2 * DAY + 2 * HOUR);
        for what in ["in memory", "flushed", "rolled up"] {
            let what = format!("{what}, reopened: {is_reopened}");
            check_gap(&growing, BEGIN + 2 * DAY..BEGIN + 3 * DAY, &what);
            check_gap(&growing, BEGIN..BEGIN + 3 * DAY, &what);
            let after = TimeGrid { start: BEGIN + 2 * DAY + HOUR, step: HOUR, columns: 1 };
            assert_eq!(growing.increases(after), (vec![(3600, 3600)], vec![]), "{what}");
            match &what[..6] {
                "in mem" => growing.store.flush().unwrap(),
                _ => {
                    growing.world.set_now(BEGIN + 3 * DAY + HOUR);
                    growing.settle();
                }
            }
        }
    }
}

/// The sample arrives after rows of other series of its day were dropped: no rollup counts it.
#[test]
fn the_increase_after_a_late_sample_that_was_dropped_is_a_gap_and_not_0() {
    let mut growing = GrowingFixture::new(false);
    ingest(&growing.store, 1, &[(&other(), sample(BEGIN + HOUR, BEGIN + HOUR, 1.0))]);
    growing.batches = 1;
    growing.world.set_now(BEGIN + 2 * DAY + HOUR);
    growing.settle();
    growing.set_base_retention(DAY);
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
    growing.read(BEGIN + 12 * HOUR);
    growing.settle();
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0, "the late sample is dropped too");
    growing = reopened(growing);
    growing.read(BEGIN + 2 * DAY + HOUR);
    for what in ["in memory", "flushed"] {
        check_gap(&growing, BEGIN + 2 * DAY..BEGIN + 3 * DAY, what);
        growing.store.flush().unwrap();
    }
}

#[test]
fn a_series_is_new_again_when_its_rollups_have_expired_too() {
    let mut growing = GrowingFixture::new(false);
    growing.read(BEGIN + HOUR);
    growing.world.set_now(BEGIN + 2 * DAY + HOUR);
    growing.settle();
    let rule = |resolution| {
        let selector = Selector::parse("*").unwrap();
        RetentionRule { resolution, duration: Some(DAY), selector }
    };
    growing.store.set_retention(Resolution::ALL.map(rule).to_vec()).unwrap();
    growing.world.set_now(BEGIN + 90 * DAY);
    growing.settle();
    growing.world.set_now(BEGIN + 900 * DAY);
    growing.settle();
    assert_eq!(growing.store.stat().unwrap().series, 0);
    growing.read(BEGIN + 900 * DAY);
    growing.read(BEGIN + 900 * DAY + HOUR);
    let grid = TimeGrid { start: BEGIN + 899 * DAY, step: 2 * DAY, columns: 1 };
    assert_eq!(growing.increases(grid), (vec![(3600, 3600)], vec![]));
}
