//! Time to delete very many series; their memory is released.

use std::sync::Arc;
use std::time::Instant;

use disk::{Disk, OsDisk};
use hist::codec::header::Temporality;
use journal::Level;
use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use store::{CardinalityLimits, DAY, HOUR, Options, Store};

use crate::fixture::histogram;

const DAYS: i64 = 3;

fn series(name: &str, n: u64) -> Series {
    let kind = match n % 3 {
        0 => SeriesKind::Histogram(Temporality::Delta),
        1 => SeriesKind::Counter(Temporality::Cumulative),
        _ => SeriesKind::Gauge,
    };
    let host = format!("host-{n:06}.example.net");
    let (zone, kind_name) = (format!("zone-{}", n % 24), format!("{name}_{}", n % 3));
    let series = Series::new(kind_name, kind).with_label("host", host);
    series.with_label("zone", zone).validate().unwrap()
}

/// Stores three days of series, one row a day, and deletes all but a thousand that existed before.
fn check(count: u64) {
    let dir = std::env::temp_dir().join(format!("topdeck-deletion-{:x}", journal::random_id()));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    Store::create(&disk, &dir, &journal::Settings::default()).unwrap();
    let options = Options {
        has_background_thread: false,
        clock: Arc::new(|| (DAYS + 2) * DAY),
        limits: CardinalityLimits {
            max_label_values: count + 1000,
            ..CardinalityLimits::default()
        },
        ..Options::default()
    };
    let store = Store::open(disk, &dir, &options).unwrap();
    for day in 0..DAYS {
        let all =
            (0..1000).map(|n| series("kept", n)).chain((0..count).map(|n| series("flood", n)));
        let all: Vec<Series> = all.collect();
        for some in all.chunks(10_000) {
            let mut batch = BatchWriter::default();
            for series in some {
                batch.series(series);
                let (start, end) = (day * DAY, day * DAY + HOUR);
                let (start, value) = match series.kind() {
                    SeriesKind::Histogram(_) => {
                        (start, SampleValue::Histogram(Box::new(histogram(&[5.0]))))
                    }
                    kind if kind.is_cumulative() => (0, SampleValue::Number(end as f64)),
                    _ => (end, SampleValue::Number(end as f64)),
                };
                batch.sample(&Sample { start, end, value }).unwrap();
            }
            let _ack = store.ingest(None, &batch.finish(), Level::Memory).unwrap();
        }
        store.flush().unwrap();
    }
    while store.maintain().unwrap() {}
    assert_eq!(store.stat().unwrap().series, count + 1000);
    let flood = Selector::label_matches("__name", "flood.*").unwrap();
    let began = Instant::now();
    let deleted = store.delete(&flood, i64::MIN..i64::MAX).unwrap();
    println!("{count} series deleted in {:?}", began.elapsed());
    assert_eq!((deleted.series, deleted.rows), (count, count * DAYS as u64));
    assert_eq!(
        (store.stat().unwrap().series, store.view().unwrap().select(&flood).len()),
        (1000, 0)
    );
    let deleted = |selector| store.view().unwrap().select_deleted(selector).unwrap().len() as u64;
    assert_eq!(
        (deleted(&flood), deleted(&Selector::label_matches("__name", "kept.*").unwrap())),
        (count, 0)
    );
    let label = &store.cardinality(1).unwrap().by_label[0];
    assert_eq!((label.name.as_str(), label.values), ("host", 1000));
    drop(store);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn deleted_series_free_their_label_values() {
    check(2_000);
}

/// Times are printed, not asserted.
#[test]
#[ignore = "soak: 143,000 series on a real disk, a minute"]
fn soak_very_many_series_are_deleted() {
    check(143_000);
}

/// 64-bit times are accepted: arithmetic on them must not overflow.
#[test]
fn rows_at_i64_limits_are_rolled_up_and_deleted() {
    let world = crate::fixture::StoreFixture::new();
    let store = world.open().unwrap();
    let day = 20_000 * DAY;
    let mut batch = BatchWriter::default();
    let series = crate::fixture::latency("a");
    batch.series(&series);
    let value = || SampleValue::Histogram(Box::new(histogram(&[5.0])));
    // Two rows of one day, the first of maximum length; and the last possible timestamp.
    for (start, end) in [
        (day + HOUR - i64::MAX, day + HOUR),
        (day + HOUR, day + 2 * HOUR),
        (i64::MAX - 1, i64::MAX),
    ] {
        batch.sample(&Sample { start, end, value: value() }).unwrap();
    }
    let _ack = store.ingest(None, &batch.finish(), Level::Disk).unwrap();
    store.flush().unwrap();
    world.set_now(day + 3 * DAY);
    while store.maintain().unwrap() {}
    assert_eq!(store.stat().unwrap().warnings, [""; 0]);
    let deleted = store.delete(&Selector::All, i64::MIN..i64::MAX).unwrap();
    assert_eq!((deleted.rows, deleted.series), (3, 1));
}
