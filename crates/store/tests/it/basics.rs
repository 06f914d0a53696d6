//! The way of a sample: in, through the head, into parts and rollups, and out.

use store::{DAY, Grid, HOUR, MINUTE, Resolution};

use crate::world::{World, columns, histogram, ingest, latency, sample};

#[test]
fn a_sample_is_counted_once_wherever_it_is() {
    let world = World::new();
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
            let grid = Grid { start: 0, step, columns: (2 * DAY / step) as u64 };
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
    store.seal().unwrap();
    check(&store, "sealed");
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
    // The first batch once more: it is known.
    ingest(&store, 0, &[(&a, sample(0, MINUTE, histogram(&[1.0])))]);
    check(&store, "after a repeat");
}

#[test]
fn rows_reach_as_far_as_they_did_when_their_day_is_rolled_up() {
    let world = World::new();
    let store = world.open().unwrap();
    let a = latency("a");
    let (start, end) = (15 * HOUR + 7, 15 * HOUR + MINUTE);
    ingest(&store, 1, &[(&a, sample(start, end, histogram(&[1.0])))]);
    let extent = || {
        let view = store.view().unwrap();
        let series = view.select(&model::Selector::All);
        view.extent(&series).unwrap()
    };
    assert_eq!(extent(), Some(start..end), "in the head");
    world.set_now(3 * DAY);
    assert!(store.maintain().unwrap());
    assert_eq!(extent(), Some(start..end), "rolled up");
    // Without the base, the finest rollup says it.
    let keep =
        |resolution| store::Keep { resolution, duration: Some(1), selector: model::Selector::All };
    store.set_keep(vec![keep(Resolution::Base)]).unwrap();
    assert!(store.maintain().unwrap());
    assert_eq!(extent(), Some(15 * HOUR..end), "only rollups");
}
