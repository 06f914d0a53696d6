//! Snapshots and verification.

use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use sim::SimDisk;
use store::{DAY, HOUR, MINUTE, Store, TimeGrid};

use crate::fixture::{DIR, StoreFixture, columns, histogram, ingest, latency, sample, settings};

const WEEK: TimeGrid = TimeGrid { start: 0, step: DAY, columns: 7 };

/// A store with two rolled-up days and one that is not.
fn filled_store(world: &StoreFixture) -> Store {
    let store = world.open().unwrap();
    for hour in 0..60 {
        let (start, end) = (hour * HOUR, (hour + 1) * HOUR);
        ingest(
            &store,
            hour as u64,
            &[(&latency("a"), sample(start, end, histogram(&[hour as f64 + 1.0, 7.0])))],
        );
    }
    world.set_now(2 * DAY + HOUR);
    store.flush().unwrap();
    store.maintain().unwrap();
    store
}

fn counts(store: &Store) -> Vec<u64> {
    columns(store, "latency", WEEK).iter().map(|column| column.value.count()).collect()
}

#[test]
fn a_snapshot_is_a_store_of_its_own() {
    let world = StoreFixture::new();
    let store = filled_store(&world);
    let expected = counts(&store);
    let snapshot = store.snapshot(&world.disk, Path::new("/snapshot")).unwrap();
    assert_eq!((snapshot.series, snapshot.parts), (1, store.stat().unwrap().parts.len() as u64));
    assert!(store.snapshot(&world.disk, Path::new("/snapshot")).is_err(), "it is there already");
    ingest(&store, 100, &[(&latency("a"), sample(0, MINUTE, histogram(&[1.0])))]);
    store.flush().unwrap();
    assert_eq!(counts(&store)[0], expected[0] + 1);
    drop(store);

    Store::restore(&world.disk, Path::new("/snapshot"), Path::new("/other"), &settings()).unwrap();
    let restored = world.open_at("/other").unwrap();
    assert_eq!(counts(&restored), expected);
    // Batches in the snapshot are recognised as duplicates; later ones are not.
    ingest(&restored, 59, &[(&latency("a"), sample(0, MINUTE, histogram(&[1.0])))]);
    ingest(&restored, 100, &[(&latency("a"), sample(0, MINUTE, histogram(&[1.0])))]);
    assert_eq!(counts(&restored)[0], expected[0] + 1);
    // A store is not a snapshot, and nothing is overwritten.
    assert!(Store::restore(&world.disk, Path::new(DIR), Path::new("/third"), &settings()).is_err());
    assert!(
        Store::restore(&world.disk, Path::new("/snapshot"), Path::new("/other"), &settings())
            .is_err()
    );
}

#[test]
fn damage_is_found_and_rollups_are_rebuilt() {
    let disk = SimDisk::new(1);
    let world = StoreFixture::on_disk(Arc::new(disk.process()) as Arc<dyn Disk>);
    let store = filled_store(&world);
    let expected = counts(&store);
    let report = store.verify(None, &mut |_| {}).unwrap();
    assert_eq!(report.damage, []);
    assert_eq!(report.parts, store.stat().unwrap().parts.len() as u64);
    let days = |store: &Store| {
        let parts = store.stat().unwrap().parts;
        parts
            .into_iter()
            .filter(|part| part.resolution == store::Resolution::Day)
            .map(|part| part.number)
            .collect::<Vec<_>>()
    };
    let damaged = days(&store)[0];
    drop(store);
    let path = format!("{DIR}/parts/{damaged:016x}.part");
    disk.flip_bit(Path::new(&path), 90, 3);

    let store = world.open().unwrap();
    let column = &columns(&store, "latency", WEEK)[0];
    assert_eq!((column.value.count(), column.gaps.len()), (0, 1), "{:?}", column.gaps);
    assert_eq!(counts(&store)[1..], expected[1..], "neighbours are served");
    let report = store.verify(None, &mut |_| {}).unwrap();
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    assert!(
        report.damage[0].file.contains(&format!("{damaged:016x}"))
            && report.damage[0].is_rebuildable
    );
    assert_eq!(store.scrub(None, &mut |_| {}).unwrap().rebuilt_days.len(), 1);
    assert_eq!(counts(&store), expected);
    assert_eq!(store.verify(None, &mut |_| {}).unwrap().damage, []);
}

#[test]
fn finer_than_retained_is_a_gap() {
    let world = StoreFixture::new();
    let store = filled_store(&world);
    let keep = store::RetentionRule {
        resolution: store::Resolution::Base,
        duration: Some(2 * DAY),
        selector: model::Selector::All,
    };
    store.set_retention(vec![keep]).unwrap();
    ingest(&store, 200, &[(&latency("a"), sample(9 * DAY, 9 * DAY + HOUR, histogram(&[3.0])))]);
    world.set_now(20 * DAY);
    store.flush().unwrap();
    while store.maintain().unwrap() {}
    let seconds = TimeGrid { start: 0, step: 20_000_000_000, columns: 3 * 60 * 24 };
    let fine = columns(&store, "latency", seconds);
    assert!(fine.iter().all(|column| column.value.count() == 0 && !column.gaps.is_empty()));
    assert!(fine[0].gaps[0].reason.contains("longer columns"), "{}", fine[0].gaps[0]);
    let hours = columns(&store, "latency", TimeGrid { start: 0, step: HOUR, columns: 24 });
    assert!(hours.iter().all(|column| column.value.count() == 2 && column.gaps.is_empty()));
    // A day without rows is empty, not unknown.
    let empty = columns(&store, "latency", TimeGrid { start: 5 * DAY, step: MINUTE, columns: 10 });
    assert!(empty.iter().all(|column| column.gaps.is_empty()));
}

#[test]
fn store_scrubs_in_background() {
    let disk = SimDisk::new(1);
    let world = StoreFixture::on_disk(Arc::new(disk.process()) as Arc<dyn Disk>);
    drop(filled_store(&world));
    let parts = world.open().unwrap().stat().unwrap().parts;
    let path = |number: u64| format!("{DIR}/parts/{number:016x}.part");
    // A missing part does not stop the scrub of the others.
    world.disk.remove(Path::new(&path(parts[0].number))).unwrap();
    let number = parts[1].number;
    disk.flip_bit(Path::new(&path(number)), 90, 3);
    let options = store::Options { scrub_bytes_per_second: 1 << 30, ..world.options() };
    let options = store::Options { has_background_thread: true, ..options };
    let store = Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap();
    let is_noted = || {
        store.stat().unwrap().warnings.iter().any(|note| note.contains(&format!("{number:016x}")))
    };
    let noted = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        is_noted()
    });
    assert!(noted, "{:?}", store.stat().unwrap().warnings);
}

#[test]
fn store_opens_without_redundant_files() {
    let checkpoint = Path::new("/store/journal/checkpoints/store");
    for lost in ["manifest", "manifest.copy", "checkpoint", "checkpoint's bytes"] {
        let world = StoreFixture::new();
        let store = filled_store(&world);
        // Not flushed: only the journal has it.
        let more = sample(6 * DAY, 6 * DAY + MINUTE, histogram(&[3.0]));
        ingest(&store, 100, &[(&latency("a"), more)]);
        let expected = counts(&store);
        drop(store);
        match lost {
            "checkpoint" => world.disk.remove(checkpoint).unwrap(),
            "checkpoint's bytes" => {
                let file = world.disk.open(checkpoint, disk::OpenMode::Write).unwrap();
                let zeros = vec![0; file.len().unwrap() as usize];
                file.write_all_at(&zeros, 0).unwrap();
            }
            name => world.disk.remove(&Path::new(DIR).join(name)).unwrap(),
        }
        let store = world.open().unwrap();
        assert_eq!(counts(&store), expected, "{lost}");
        let notes = store.stat().unwrap().warnings;
        assert_eq!(notes.len(), 1, "{lost}: {notes:?}");
        drop(store);
        assert!(world.open().unwrap().stat().unwrap().warnings.is_empty(), "{lost}");
    }
}
