//! Work that panics is retried, then quarantined and reported, while all other data stay exact.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use journal::{Supervisor, supervisor};
use model::Selector;
use store::{DAY, Store};

use crate::fixture::{DIR, StoreFixture, histogram, identity, ingest, latency, sample};

fn open(world: &StoreFixture, supervisor: &Supervisor) -> Store {
    let mut options = world.options();
    options.journal.supervisor = supervisor.clone();
    Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap()
}

/// Batches 1 to 3, of one row each: 10, 20 and 30 values.
fn ingest_three(store: &Store) {
    for n in 1..=3 {
        let values = vec![5.0; 10 * n as usize];
        ingest(
            store,
            n,
            &[(&latency("a"), sample(10 * n as i64, 10 * n as i64 + 1, histogram(&values)))],
        );
    }
}

/// Number of values in the rows of a host, in order.
fn counts(store: &Store, host: &str) -> Vec<u64> {
    let view = store.view().unwrap();
    let mut counts = Vec::new();
    for found in view.select(&Selector::parse(&format!("latency{{host=\"{host}\"}}")).unwrap()) {
        let mut each = |sample: model::Sample| match sample.value {
            model::SampleValue::Histogram(histogram) => counts.push(histogram.count()),
            other => panic!("{other:?}"),
        };
        view.samples(&found, i64::MIN..i64::MAX, &mut each).unwrap();
    }
    counts
}

#[test]
fn panic_within_a_record_counts_it_once() {
    let world = StoreFixture::new();
    let supervisor = Supervisor::with_injected_panics(&[("store record 1", 2)]);
    let store = open(&world, &supervisor);
    ingest_three(&store);
    assert_eq!(counts(&store, "a"), [10, 20, 30]);
    store.flush().unwrap();
    assert_eq!(counts(&store, "a"), [10, 20, 30]);
    assert_eq!(store.stat().unwrap().gaps, []);
    assert_eq!(supervisor.quarantined(), []);
}

#[test]
fn poison_record_is_quarantined_with_a_gap() {
    let world = StoreFixture::new();
    let supervisor = Supervisor::with_injected_panics(&[("store record 1", u32::MAX)]);
    let store = open(&world, &supervisor);
    ingest_three(&store);
    let check = |store: &Store| {
        assert_eq!(counts(store, "a"), [10, 30]);
        let gaps = store.stat().unwrap().gaps;
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert_eq!((gaps[0].producer, gaps[0].lost), (Some(7), Some(1)));
        assert!(gaps[0].reason.contains("(position 1): processing panicked"), "{}", gaps[0].reason);
    };
    check(&store);
    let quarantined = supervisor.quarantined();
    assert_eq!(quarantined[0].name, "record 1 of the journal");
    assert_eq!(quarantined[0].reason, "thrown at store record 1");
    let files = world.disk.list(&Path::new(DIR).join("quarantine")).unwrap();
    assert_eq!(files, ["1.batch"]);
    drop(store);
    // A process that did not see the panic skips the record too, and reports it.
    let supervisor = Supervisor::default();
    let store = open(&world, &supervisor);
    assert_eq!(supervisor.quarantined()[0].name, "record 1 of the journal");
    check(&store);
    store.flush().unwrap();
    check(&store);
    // The batch is known: sent again it is a duplicate.
    let mut batch = model::BatchWriter::default();
    batch.series(&latency("a"));
    batch.sample(&sample(20, 21, histogram(&[5.0; 20]))).unwrap();
    let ack = store.ingest(Some(identity(2)), &batch.finish(), journal::Level::Disk).unwrap();
    assert!(ack.is_duplicate);
    check(&store);
}

#[test]
fn panic_during_flush_repeats_no_rows() {
    let world = StoreFixture::new();
    let supervisor = Supervisor::with_injected_panics(&[("store record 1", 1)]);
    let store = open(&world, &supervisor);
    ingest(&store, 1, &[(&latency("a"), sample(10, 11, histogram(&[5.0; 10])))]);
    store.flush().unwrap();
    ingest(&store, 2, &[(&latency("a"), sample(20, 21, histogram(&[5.0; 20])))]);
    assert_eq!(counts(&store, "a"), [10, 20]);
}

#[test]
fn unsealable_series_is_quarantined() {
    let world = StoreFixture::new();
    let id = latency("a").id();
    let supervisor = Supervisor::with_injected_panics(&[(&format!("store flush {id}"), u32::MAX)]);
    let store = open(&world, &supervisor);
    ingest_three(&store);
    ingest(&store, 4, &[(&latency("b"), sample(40, 41, histogram(&[5.0; 40])))]);
    for _ in 0..3 {
        let error = store.flush().unwrap_err().to_string();
        assert!(error.contains("thrown at store flush"), "{error}");
        assert_eq!(counts(&store, "a"), [10, 20, 30], "until it is given up");
    }
    store.flush().unwrap();
    assert_eq!((counts(&store, "a"), counts(&store, "b")), (vec![], vec![40]));
    let stat = store.stat().unwrap();
    assert_eq!(stat.head_rows, 0, "the journal is free");
    let [gap] = &stat.gaps[..] else { panic!("{:?}", stat.gaps) };
    assert!(gap.reason.contains("latency"), "{gap:?}");
    assert_eq!(gap.lost, Some(3), "rows");
    assert!(gap.reason.contains("60 values"), "{gap:?}");
    assert_eq!(supervisor.quarantined()[0].name, format!("series {id} of the head"));
    // Later rows are tried again.
    ingest(&store, 5, &[(&latency("a"), sample(50, 51, histogram(&[5.0; 50])))]);
    assert_eq!(counts(&store, "a"), [50]);
}

#[test]
fn gaps_of_a_series_that_cannot_be_sealed_count_the_rows_of_each_day() {
    let world = StoreFixture::new();
    let id = latency("a").id();
    let supervisor = Supervisor::with_injected_panics(&[(&format!("store flush {id}"), u32::MAX)]);
    let store = open(&world, &supervisor);
    ingest_three(&store);
    let late = sample(2 * DAY + 10, 2 * DAY + 11, histogram(&[5.0; 7]));
    ingest(&store, 4, &[(&latency("a"), late)]);
    let other = sample(DAY + 10, DAY + 11, histogram(&[5.0; 40]));
    ingest(&store, 5, &[(&latency("b"), other)]);
    for _ in 0..3 {
        store.flush().unwrap_err();
    }
    store.flush().unwrap();
    let mut gaps = store.stat().unwrap().gaps;
    gaps.sort();
    // On the day between, only another series has rows.
    assert_eq!(gaps.iter().map(|gap| gap.lost).collect::<Vec<_>>(), [Some(3), Some(1)], "{gaps:?}");
    assert_eq!(counts(&store, "b"), [40]);
}

#[test]
fn rollup_panic_is_reported_and_other_days_continue() {
    let world = StoreFixture::new();
    let now = Arc::new(AtomicI64::new(0));
    let read = Arc::clone(&now);
    let left = std::sync::atomic::AtomicU32::new(3);
    let failpoint_hook: supervisor::FailpointHook = Arc::new(move |point: &str| {
        let take = |left: u32| left.checked_sub(1);
        let is_it = point == "store rolling up day 1";
        if is_it && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            panic!("a count overflows");
        }
    });
    let supervisor = Supervisor::new(supervisor::SupervisorSettings {
        clock: Arc::new(move || read.load(Ordering::SeqCst)),
        failpoint_hook: Some(failpoint_hook),
        ..Default::default()
    });
    let store = open(&world, &supervisor);
    for day in 1..=2 {
        let start = day * DAY + 1;
        ingest(&store, day as u64, &[(&latency("a"), sample(start, start + 1, histogram(&[5.0])))]);
    }
    world.set_now(9 * DAY);
    store.flush().unwrap();
    let rolled = || {
        let parts = store.stat().unwrap().parts;
        let mut days: Vec<i64> =
            parts.iter().flat_map(|part| part.covers.keys()).map(|day| day / DAY).collect();
        days.sort_unstable();
        days.dedup();
        days
    };
    const MINUTE: i64 = 60_000_000_000;
    for (attempt, wait) in [(1, 0), (2, MINUTE), (3, 2 * MINUTE)] {
        now.fetch_add(wait, Ordering::SeqCst);
        let error = store.maintain().unwrap_err().to_string();
        assert!(error.starts_with("rolling up day 1 panicked"), "{error}");
        assert_eq!(rolled(), [2]);
        assert_eq!(supervisor.quarantined().len(), usize::from(attempt == 3));
        store.maintain().unwrap();
        assert_eq!(rolled(), [2], "it is left alone");
    }
    assert_eq!(supervisor.quarantined()[0].name, "rolling up day 1");
    now.fetch_add(4 * MINUTE, Ordering::SeqCst);
    assert!(store.maintain().unwrap());
    assert_eq!(rolled(), [1, 2]);
    assert_eq!(supervisor.quarantined(), []);
}

#[test]
fn panicked_thread_restarts_and_flushes() {
    let world = StoreFixture::new();
    world.set_now(9 * DAY);
    let supervisor = Supervisor::with_injected_panics(&[("store", 2)]);
    let mut options = world.options();
    options.journal.supervisor = supervisor.clone();
    options.has_background_thread = true;
    let store = Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap();
    ingest_three(&store);
    // The thread flushes a closed partition on its own.
    while supervisor.restarts("store") < 2 || store.stat().unwrap().head_rows > 0 {
        std::thread::yield_now();
    }
    assert_eq!(counts(&store, "a"), [10, 20, 30]);
    assert_eq!(store.stat().unwrap().gaps, []);
}

#[test]
fn scrub_panic_is_reported_and_other_parts_are_scrubbed() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    for n in 1..=2 {
        let rows = histogram(&[5.0; 10]);
        ingest(&store, n, &[(&latency("a"), sample(10 * n as i64, 10 * n as i64 + 1, rows))]);
        store.flush().unwrap();
    }
    let parts: Vec<u64> = store.stat().unwrap().parts.iter().map(|part| part.number).collect();
    drop(store);
    let looked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, first) = (Arc::clone(&looked), format!("store check {:016x}", parts[0]));
    let failpoint_hook: supervisor::FailpointHook = Arc::new(move |point: &str| {
        if point.starts_with("store check") {
            seen.lock().unwrap().push(point.to_owned());
            assert_ne!(point, first, "a count overflows");
        }
    });
    let settings = supervisor::SupervisorSettings {
        failpoint_hook: Some(failpoint_hook),
        ..Default::default()
    };
    let supervisor = Supervisor::new(settings);
    let mut options = world.options();
    options.journal.supervisor = supervisor.clone();
    options.has_background_thread = true;
    let store = Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap();
    let second = format!("store check {:016x}", parts[1]);
    while !looked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).contains(&second) {
        std::thread::yield_now();
    }
    let quarantined = supervisor.quarantined();
    assert_eq!(quarantined[0].name, format!("checking part {:016x}", parts[0]));
    assert_eq!(supervisor.restarts("store"), 0, "the thread goes on");
    assert_eq!(counts(&store, "a"), [10, 10]);
}
