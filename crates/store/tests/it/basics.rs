//! Path of a sample: ingest, head, parts, rollups, and reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::Selector;
use store::{DAY, HOUR, MINUTE, ReadView, Resolution, SeriesEntryRef, TimeGrid};

use crate::fixture::{StoreFixture, columns, histogram, ingest, latency, sample};

#[test]
fn sample_is_counted_once() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    let (a, b) = (latency("a"), latency("b"));
    for minute in 0..2 * 24 * 60 {
        let (start, end) = (minute * MINUTE, (minute + 1) * MINUTE);
        let value = histogram(&[minute as f64 + 1.0, 5.0]);
        ingest(
            &store,
            minute as u64,
            &[(&a, sample(start, end, value.clone())), (&b, sample(start, end, value))],
        );
    }
    let check = |store: &store::Store, when: &str| {
        for step in [MINUTE, 7 * MINUTE, HOUR, 90 * MINUTE, DAY] {
            let grid = TimeGrid { start: 0, step, columns: (2 * DAY / step) as u64 };
            let mut total = 0;
            for (at, column) in columns(store, "latency", grid).into_iter().enumerate() {
                let minutes = step / MINUTE;
                assert_eq!(
                    column.value.count(),
                    4 * minutes as u64,
                    "{when}: column {at} of {step} ns"
                );
                let last = (at as i64 + 1) * minutes;
                assert_eq!(
                    column.value.max().unwrap().estimate,
                    (last as f64).max(5.0),
                    "{when}: {at} of {step}"
                );
                assert_eq!(column.gaps, []);
                total += column.value.count();
            }
            assert!(total > 0);
        }
    };
    check(&store, "in the head");
    store.flush().unwrap();
    check(&store, "flushed");
    world.set_now(3 * DAY);
    assert!(store.maintain().unwrap());
    check(&store, "rolled up");
    let parts = store.stat().unwrap().parts;
    let days = parts.iter().filter(|part| part.resolution == Resolution::Day).count();
    assert_eq!(days, 2, "{parts:#?}");
    assert!(!store.maintain().unwrap());
    drop(store);
    let store = world.open().unwrap();
    check(&store, "opened again");
    // The first batch again: a duplicate.
    ingest(&store, 0, &[(&a, sample(0, MINUTE, histogram(&[1.0])))]);
    check(&store, "after a repeat");
}

#[test]
fn rows_of_a_read_are_estimated() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    let (a, b) = (latency("a"), latency("b"));
    for minute in 0..24 * 60 {
        let (start, end) = (minute * MINUTE, (minute + 1) * MINUTE);
        let value = histogram(&[1.0]);
        let rows = [(&a, sample(start, end, value.clone())), (&b, sample(start, end, value))];
        ingest(&store, minute as u64, &rows);
    }
    let check = |when: &str, range: std::ops::Range<i64>, step, expected: u64| {
        let view = store.view().unwrap();
        assert_eq!(view.estimate_rows(1, &range, step), expected, "{when}");
        assert_eq!(view.estimate_rows(2, &range, step), 2 * expected, "{when}");
        // There are no more series.
        assert_eq!(view.estimate_rows(3, &range, step), 2 * expected, "{when}");
    };
    check("head", 0..DAY, None, 24 * 60);
    check("head", HOUR..3 * HOUR, Some(HOUR), 120);
    check("head", DAY..2 * DAY, None, 0);
    store.flush().unwrap();
    check("base", 0..DAY, None, 24 * 60);
    check("base", HOUR..3 * HOUR, Some(HOUR), 120);
    world.set_now(3 * DAY);
    assert!(store.maintain().unwrap());
    check("rollups", HOUR..3 * HOUR, None, 120);
    check("rollups", HOUR..3 * HOUR, Some(HOUR), 2);
}

#[test]
fn rollup_keeps_the_time_range() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    let a = latency("a");
    let (start, end) = (15 * HOUR + 7, 15 * HOUR + MINUTE);
    ingest(&store, 1, &[(&a, sample(start, end, histogram(&[1.0])))]);
    let extent = || {
        let view = store.view().unwrap();
        let series = view.select(&model::Selector::All);
        view.time_range(&series).unwrap()
    };
    assert_eq!(extent(), Some(start..end), "in the head");
    world.set_now(3 * DAY);
    assert!(store.maintain().unwrap());
    assert_eq!(extent(), Some(start..end), "rolled up");
    // Without base rows the finest rollup answers.
    let keep = |resolution| store::RetentionRule {
        resolution,
        duration: Some(1),
        selector: model::Selector::All,
    };
    store.set_retention(vec![keep(Resolution::Base)]).unwrap();
    assert!(store.maintain().unwrap());
    assert_eq!(extent(), Some(15 * HOUR..end), "only rollups");
}

/// A rollup row ends with its interval: the daily one of today ends at midnight, hours from now.
#[test]
fn latest_data_is_not_in_the_future_after_a_deletion() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    let (kept, deleted) = (latency("kept"), latency("deleted"));
    let end = 15 * HOUR + MINUTE + 7;
    let taken = || sample(end - MINUTE, end, histogram(&[1.0]));
    ingest(&store, 1, &[(&kept, taken()), (&deleted, taken())]);
    world.set_now(end + MINUTE);
    let latest = |host: &str| {
        let view = store.view().unwrap();
        let host = model::Selector::label_equals("host", host);
        view.latest_end(&view.select(&host)).unwrap()
    };
    assert_eq!(latest("kept"), Some(end));
    let of_deleted = model::Selector::label_equals("host", "deleted");
    assert_eq!(store.delete(&of_deleted, 0..end + 1).unwrap().rows, 1);
    let view = store.view().unwrap();
    let rolled_up = view.part_range().is_some_and(|range| range.end == end);
    assert!(rolled_up, "{:?}", view.part_range());
    assert_eq!((latest("kept"), latest("deleted")), (Some(end), None));
    // Rows without base rows end with the finest rollup that has them.
    world.set_now(3 * DAY);
    let keep = |resolution| store::RetentionRule {
        resolution,
        duration: Some(1),
        selector: model::Selector::All,
    };
    store.set_retention(vec![keep(Resolution::Base)]).unwrap();
    while store.maintain().unwrap() {}
    assert!((end..=16 * HOUR).contains(&latest("kept").unwrap()), "{:?}", latest("kept"));
}

/// A store with many parts, rollups and rows in memory, of delta and cumulative series.
fn full_store(store: &store::Store) -> Vec<model::Series> {
    let bytes = |host: &str| {
        let kind = model::SeriesKind::Counter(hist::codec::header::Temporality::Cumulative);
        model::Series::new("bytes", kind).with_label("host", host).validate().unwrap()
    };
    let series = vec![latency("a"), latency("b"), bytes("a"), bytes("b")];
    for day in 0..6i64 {
        let end = day * DAY + HOUR;
        let value = |at: usize| match at {
            0 | 1 => sample(end - MINUTE, end, histogram(&[1.0])),
            _ => sample(end, end, day as f64),
        };
        let samples: Vec<_> =
            series.iter().enumerate().map(|(at, series)| (series, value(at))).collect();
        ingest(store, day as u64 + 1, &samples);
        if day < 5 {
            store.flush().unwrap();
        }
    }
    series
}

#[test]
fn cancelled_reads_stop() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    full_store(&store);
    let check = |what: &str,
                 selector: &str,
                 read: &dyn Fn(&ReadView, &[SeriesEntryRef]) -> store::Result<()>| {
        let selector = model::Selector::parse(selector).unwrap();
        let mut looks = 0;
        // Cancelled at the first check, at the second, and so on until the read completes.
        for patience in 0.. {
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&asked);
            let is_over = move || counted.fetch_add(1, Ordering::Relaxed) >= patience;
            let view = store.view().unwrap().with_cancellation(Arc::new(is_over));
            let found = view.select(&selector);
            match read(&view, &found) {
                Ok(()) => break,
                Err(store::Error::Cancelled) => {}
                Err(error) => panic!("{what}: {error}"),
            }
            looks = asked.load(Ordering::Relaxed);
            assert_eq!(looks, patience + 1, "{what}: nothing is read after it is over");
        }
        assert!(looks >= 5, "{what}: looked {looks} times in five parts and the head");
    };
    let grids = [(DAY, 6), (HOUR + 1, 6 * 24)];
    let grids = grids.map(|(step, columns)| TimeGrid { start: 0, step, columns });
    let everything = |when: &str| {
        check(&format!("{when}, extent"), "*", &|view, found| view.time_range(found).map(drop));
        for grid in grids {
            check(&format!("{when}, histograms, {}", grid.step), "latency", &|view, found| {
                view.histograms(found, grid)?.try_for_each(|column| column.map(drop))
            });
            check(&format!("{when}, numbers, {}", grid.step), "bytes", &|view, found| {
                view.numbers(found, grid)?.try_for_each(|column| column.map(drop))
            });
        }
        check(&format!("{when}, samples"), "bytes", &|view, found| {
            view.samples(&found[0], 0..7 * DAY, &mut |_| {}).map(drop)
        });
    };
    everything("parts");
    world.set_now(5 * DAY + 2 * HOUR);
    store.maintain().unwrap();
    everything("rolled up");
}

#[test]
fn columns_over_a_stretch_have_the_first_sample() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    let kind = model::SeriesKind::Counter(hist::codec::header::Temporality::Cumulative);
    let bytes = model::Series::new("bytes", kind).validate().unwrap();
    // It counts from an hour before its first sample.
    ingest(&store, 1, &[(&bytes, sample(14 * HOUR, 15 * HOUR, 3.0))]);
    ingest(&store, 2, &[(&bytes, sample(14 * HOUR, 16 * HOUR, 5.0))]);
    ingest(&store, 3, &[(&latency("a"), sample(17 * HOUR, 18 * HOUR, histogram(&[1.0])))]);
    let check = |when: &str| {
        let view = store.view().unwrap();
        assert_eq!(view.part_range(), Some(15 * HOUR..18 * HOUR), "{when}");
        let found = view.select(&model::Selector::parse("bytes").unwrap());
        assert_eq!(view.time_range(&found).unwrap(), Some(15 * HOUR..16 * HOUR), "{when}");
        let stretch = view.complete_range(&found).unwrap().unwrap();
        assert_eq!(stretch, 15 * HOUR - 1..16 * HOUR, "{when}");
        let grid = TimeGrid { start: stretch.start, step: stretch.end - stretch.start, columns: 1 };
        let column = view.numbers(&found, grid).unwrap().next().unwrap().unwrap();
        assert_eq!(column.value.unwrap().sum.value(), 5.0, "{when}");
        let found = view.select(&model::Selector::parse("latency").unwrap());
        assert_eq!(view.complete_range(&found).unwrap(), Some(17 * HOUR..18 * HOUR), "{when}");
    };
    check("in the head");
    world.set_now(3 * DAY);
    assert!(store.maintain().unwrap());
    check("rolled up");
}

#[test]
fn the_first_distribution_of_a_moment_is_found() {
    let world = StoreFixture::new();
    let begin = 20_000 * DAY;
    world.set_now(begin);
    let store = world.open().unwrap();
    // As gauge histograms are received, or deltas without a start.
    for at in 0..12 {
        let end = begin + at * HOUR;
        ingest(&store, at as u64 + 1, &[(&latency("a"), sample(end, end, histogram(&[1.0])))]);
    }
    for what in ["in memory", "in a part"] {
        let view = store.view().unwrap();
        let found = view.select(&Selector::parse("latency").unwrap());
        let stretch = view.complete_range(&found).unwrap().unwrap();
        assert_eq!(stretch, begin - 1..begin + 11 * HOUR, "{what}");
        let whole =
            TimeGrid { start: stretch.start, step: stretch.end - stretch.start, columns: 1 };
        assert_eq!(columns(&store, "latency", whole)[0].value.count(), 12, "{what}");
        store.flush().unwrap();
    }
}

/// A storage other than files holds everything a store writes except manifest and journal.
#[test]
fn a_store_on_another_storage_is_opened_again() {
    let world = StoreFixture::in_memory();
    let store = world.open().unwrap();
    let series = full_store(&store);
    world.set_now(10 * DAY);
    while store.maintain().unwrap() {}
    let before = store.stat().unwrap();
    assert!(before.parts.iter().any(|part| part.resolution != store::Resolution::Base));
    drop(store);
    let parts = world.disk.list(std::path::Path::new("/store/parts")).unwrap();
    assert_eq!(parts, Vec::<String>::new(), "none of them is a file");
    let store = world.open().unwrap();
    let after = store.stat().unwrap();
    assert_eq!((after.series, after.parts.len()), (series.len() as u64, before.parts.len()));
    assert!(store.verify(None, &mut |_| {}).unwrap().damage.is_empty());
    let deleted = store.delete(&model::Selector::All, i64::MIN..i64::MAX).unwrap();
    assert_eq!(deleted.series, after.series);
    drop(store);
    assert_eq!(world.open().unwrap().stat().unwrap().series, 0);
}
