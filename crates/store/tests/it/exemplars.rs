//! Exemplars survive a kill, a flush and a damaged file; a batch is counted once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use disk::OpenMode;
use journal::Level;
use model::{BatchWriter, Exemplar, ExemplarAttributes, ExemplarSource, Selector, SeriesId};
use sim::{DiskOperation, Fault, FaultKind, SimDisk};
use store::{ExemplarRequest, HOUR, MINUTE, Store};

use crate::fixture::{DIR, StoreFixture, histogram, identity, latency, sample};

const NOW: i64 = 100 * HOUR;

fn exemplar(minutes: i64, value: f64) -> Exemplar {
    Exemplar {
        time: NOW - minutes * MINUTE,
        value,
        trace_id: u128::from(value as u64).to_be_bytes(),
        span_id: [1; 8],
        attributes: ExemplarAttributes::new([("user", "u1")]).0,
        source: ExemplarSource::Otlp,
    }
}

/// Ingests a histogram of a series with exemplars.
fn ingest(store: &Store, sequence: u64, host: &str, exemplars: &[Exemplar]) -> bool {
    let series = latency(host);
    let mut batch = BatchWriter::default();
    batch.series(&series);
    let values: Vec<f64> = exemplars.iter().map(|exemplar| exemplar.value).collect();
    batch.sample(&sample(NOW - MINUTE, NOW, histogram(&values))).unwrap();
    exemplars.iter().for_each(|exemplar| batch.exemplar(series.id(), exemplar));
    let identity = Some(identity(sequence));
    store.ingest(identity, &batch.finish(), Level::Process).unwrap().is_duplicate
}

fn request(hosts: &[&str]) -> ExemplarRequest {
    ExemplarRequest {
        series: hosts.iter().map(|host| latency(host).id()).collect::<HashSet<SeriesId>>(),
        range: NOW - HOUR..NOW + 1,
        above: f64::NEG_INFINITY,
        up_to: f64::INFINITY,
        limit: 100,
    }
}

/// Values of the exemplars, from the smallest.
fn values(store: &Store, hosts: &[&str]) -> Vec<f64> {
    let found = store.select_exemplars(&request(hosts), &|_, _| None).exemplars;
    let mut values: Vec<f64> = found.iter().map(|selected| selected.exemplar.value).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn fixture() -> (SimDisk, StoreFixture) {
    let disk = SimDisk::new(1);
    let world = StoreFixture::on_disk(Arc::new(disk.process()));
    world.set_now(NOW);
    (disk, world)
}

#[test]
fn exemplars_survive_a_kill_from_the_journal_and_from_their_file() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    assert!(!ingest(&store, 1, "a", &[exemplar(2, 1.0), exemplar(2, 1000.0)]));
    assert_eq!(values(&store, &["a"]), [1.0, 1000.0]);
    // Without background threads a drop is a kill: nothing is flushed.
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(values(&store, &["a"]), [1.0, 1000.0], "from the journal");
    store.flush().unwrap();
    ingest(&store, 2, "a", &[exemplar(1, 50.0)]);
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(values(&store, &["a"]), [1.0, 50.0, 1000.0], "from the file and the journal");
    let stat = store.exemplar_stat();
    assert_eq!((stat.exemplars, stat.counts.duplicate), (3, 0));
    // An hour later they are gone, from the file too.
    world.set_now(NOW + HOUR);
    assert_eq!(values(&store, &["a"]), [0.0; 0]);
    store.flush().unwrap();
    drop(store);
    world.set_now(NOW);
    assert_eq!(values(&world.open().unwrap(), &["a"]), [0.0; 0]);
}

#[test]
fn a_repeated_batch_adds_no_exemplar() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    assert!(!ingest(&store, 1, "a", &[exemplar(1, 5.0)]));
    assert!(ingest(&store, 1, "a", &[exemplar(1, 5.0)]), "the client repeats it");
    assert_eq!(store.exemplar_stat().counts.kept, 1);
    // A client without an identity repeats it as another batch.
    assert!(!ingest(&store, 2, "a", &[exemplar(1, 5.0)]));
    assert_eq!(values(&store, &["a"]), [5.0]);
    assert_eq!(store.exemplar_stat().counts.duplicate, 1);
}

#[test]
fn exemplars_of_deleted_series_are_deleted_on_disk_too() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, "a", &[exemplar(3, 1.0), exemplar(1, 2.0)]);
    ingest(&store, 2, "b", &[exemplar(3, 3.0)]);
    let selector = Selector::label_equals("host", "a");
    store.delete(&selector, NOW - 2 * MINUTE..NOW + 1).unwrap();
    assert_eq!(values(&store, &["a", "b"]), [1.0, 3.0]);
    drop(store);
    assert_eq!(values(&world.open().unwrap(), &["a", "b"]), [1.0, 3.0]);
}

#[test]
fn exemplars_of_unknown_series_are_counted() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    let mut batch = BatchWriter::default();
    batch.exemplar(latency("never").id(), &exemplar(1, 1.0));
    let _ack = store.ingest(Some(identity(1)), &batch.finish(), Level::Process).unwrap();
    let stat = store.exemplar_stat();
    assert_eq!((stat.exemplars, stat.counts.unknown_series), (0, 1));
}

#[test]
fn store_opens_with_a_damaged_file_of_exemplars() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, "a", &[exemplar(1, 1.0)]);
    store.flush().unwrap();
    drop(store);
    let path = Path::new(DIR).join("exemplars");
    let file = world.disk.open(&path, OpenMode::Create).unwrap();
    file.write_all_at(&[0xff], 30).unwrap();
    drop(file);
    let store = world.open().unwrap();
    assert_eq!(values(&store, &["a"]), [0.0; 0]);
    let warnings = store.stat().unwrap().warnings;
    assert!(warnings.iter().any(|text| text.contains("exemplars are missing")), "{warnings:?}");
    assert_eq!(store.stat().unwrap().series, 1, "samples are intact");
}

/// Stores without exemplars have no file of them, and their batches are those of earlier releases.
#[test]
fn without_sections_nothing_is_written() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, "a", &[]);
    store.flush().unwrap();
    let names = world.disk.list(Path::new(DIR)).unwrap();
    assert!(!names.contains(&"exemplars".to_owned()), "{names:?}");
    assert_eq!(store.exemplar_stat().bytes, 0);
}

fn manifest_title(world: &StoreFixture) -> String {
    let bytes = disk::read_file(&*world.disk, &Path::new(DIR).join("manifest"), 1 << 20).unwrap();
    String::from_utf8(bytes.unwrap()).unwrap().lines().next().unwrap().to_owned()
}

/// A release that does not read exemplars would reject the samples of their batches, too: it must
/// not open the store before it is flushed.
#[test]
fn earlier_releases_open_the_store_only_without_sections_in_its_journal() {
    let (_disk, world) = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, "a", &[]);
    assert_eq!(manifest_title(&world), "topdeck store 3");
    ingest(&store, 2, "a", &[exemplar(2, 1.0)]);
    assert_eq!(manifest_title(&world), "topdeck store 4");
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(manifest_title(&world), "topdeck store 4", "the batch is still in the journal");
    store.flush().unwrap();
    assert_eq!(manifest_title(&world), "topdeck store 3");
    ingest(&store, 3, "a", &[]);
    assert_eq!(manifest_title(&world), "topdeck store 3");
    ingest(&store, 4, "a", &[exemplar(1, 2.0)]);
    assert_eq!(manifest_title(&world), "topdeck store 4");
    assert_eq!(values(&store, &["a"]), [1.0, 2.0]);
}

/// Attributes may be personal: a deletion that leaves them on disk has not succeeded.
#[test]
fn deletion_fails_if_the_file_of_exemplars_cannot_be_replaced() {
    let (disk, world) = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, "a", &[exemplar(3, 1.0)]);
    store.flush().unwrap();
    disk.inject(Fault {
        operation: DiskOperation::Write,
        path_contains: "exemplars".to_owned(),
        skip: 0,
        times: u64::MAX,
        kind: FaultKind::Os(28),
    });
    let selector = Selector::label_equals("host", "a");
    let error = store.delete(&selector, NOW - HOUR..NOW + 1).unwrap_err();
    assert!(error.to_string().contains("exemplars"), "{error}");
    disk.clear_faults();
    store.delete(&selector, NOW - HOUR..NOW + 1).unwrap();
    assert_eq!(values(&store, &["a"]), [0.0; 0]);
}
