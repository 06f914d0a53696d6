//! Whole traces survive a kill, a flush and damage, and are removed by age and by size.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::OpenMode;
use journal::Level;
use model::{BatchWriter, TraceSpans};
use sim::{DiskOperation, Fault, FaultKind, SimDisk};
use store::{HOUR, Options, Store, StoredTrace, TraceOptions, TraceSearchStep};

use crate::fixture::{DIR, StoreFixture, histogram, identity, latency, sample};

pub(crate) const NOW: i64 = 100 * HOUR;

fn fixture() -> StoreFixture {
    fixture_on(&SimDisk::new(1))
}

pub(crate) fn fixture_on(disk: &SimDisk) -> StoreFixture {
    let world = StoreFixture::on_disk(Arc::new(disk.process()));
    world.set_now(NOW);
    world
}

/// An operation fails in the directory of traces until the faults are cleared.
fn inject(disk: &SimDisk, operation: DiskOperation) {
    let kind = FaultKind::Os(13);
    let path_contains = "/traces".to_owned();
    disk.inject(Fault { operation, path_contains, skip: 0, times: u64::MAX, kind });
}

pub(crate) fn part(number: u64) -> PathBuf {
    Path::new(DIR).join("traces").join(format!("{number:016x}"))
}

pub(crate) fn warnings(store: &Store) -> String {
    store.stat().unwrap().warnings.join("\n")
}

pub(crate) fn open_with(world: &StoreFixture, traces: TraceOptions) -> Store {
    let options = Options { traces, ..world.options() };
    Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap()
}

/// Ingests a sample with spans of traces.
pub(crate) fn ingest(store: &Store, sequence: u64, traces: &[(u8, &[u8])]) {
    let mut batch = BatchWriter::default();
    batch.series(&latency("a"));
    batch.sample(&sample(NOW - 60, NOW, histogram(&[1.0]))).unwrap();
    for (trace, spans) in traces {
        let is_cut = spans.is_empty();
        batch.trace(TraceSpans { trace_id: [*trace; 16], is_cut, spans });
    }
    let _ack = store.ingest(Some(identity(sequence)), &batch.finish(), Level::Process).unwrap();
}

fn stored(store: &Store, trace: u8) -> Option<StoredTrace> {
    store.trace(&[trace; 16], &mut |_, _| ControlFlow::Continue(())).unwrap()
}

pub(crate) fn spans(store: &Store, trace: u8) -> Option<Vec<u8>> {
    stored(store, trace).map(|found| found.spans)
}

pub(crate) fn searched(store: &Store, range: std::ops::Range<i64>) -> Vec<u8> {
    let mut found = Vec::new();
    let mut each = |step: TraceSearchStep<'_>| {
        if let TraceSearchStep::Spans(spans) = step {
            found.push(spans.trace_id[0]);
        }
        ControlFlow::Continue(())
    };
    store.search_traces(&range, &mut each);
    found
}

#[test]
fn traces_survive_a_kill_from_the_journal_and_from_parts() {
    let world = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, &[(1, b"a"), (2, b"b")]);
    ingest(&store, 2, &[(1, b"c")]);
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"ac"[..]));
    // Without background threads a drop is a kill: nothing is flushed.
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"ac"[..]), "from the journal");
    store.flush().unwrap();
    assert_eq!((store.trace_stat().parts, store.trace_stat().head_bytes), (1, 0));
    ingest(&store, 3, &[(1, b"d"), (3, b"")]);
    drop(store);
    let store = world.open().unwrap();
    let cut = StoredTrace { spans: Vec::new(), is_cut: true };
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"acd"[..]), "from both, each once");
    assert_eq!(stored(&store, 3), Some(cut));
    assert_eq!((spans(&store, 2).as_deref(), spans(&store, 4)), (Some(&b"b"[..]), None));
    assert_eq!(searched(&store, NOW..NOW + 1), [1, 3, 1, 2], "the latest first");
    let mut recent = store.recent_trace_ids(NOW);
    recent.sort_unstable();
    assert_eq!(recent, [[1; 16], [1; 16], [2; 16], [3; 16]]);
}

/// A part has more than the manifest: the store was killed between the two.
#[test]
fn records_of_a_part_are_not_read_again() {
    let world = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, &[(1, b"a")]);
    store.journal().flush(Level::Disk).unwrap();
    world.set_now(NOW + HOUR);
    // The hour is over, and the samples stay in memory.
    assert!(store.maintain().unwrap());
    assert_eq!(store.trace_stat().parts, 1);
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"a"[..]));
    assert!(!store.maintain().unwrap());
    assert_eq!((store.trace_stat().parts, store.trace_stat().head_bytes), (1, 0));
    ingest(&store, 2, &[(1, b"b")]);
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"ab"[..]));
}

/// Other records may come in the place of records that a power loss took.
#[test]
fn records_that_were_not_durable_are_read_again() {
    let world = fixture();
    let store = world.open().unwrap();
    ingest(&store, 1, &[(1, b"a")]);
    world.set_now(NOW + HOUR);
    store.maintain().unwrap();
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"aa"[..]), "in a part and in the journal");
}

#[test]
fn traces_are_removed_by_age_and_by_size() {
    let world = fixture();
    let options = TraceOptions { bytes_max: u64::MAX, retention: 3 * HOUR };
    let store = open_with(&world, options);
    let write_hour = |hour: i64, trace: u8| {
        world.set_now(NOW + hour * HOUR);
        ingest(&store, 1 + hour as u64, &[(trace, &[trace; 100])]);
        store.flush().unwrap();
    };
    (0..3).for_each(|hour| write_hour(hour, hour as u8));
    let maintain_at = |store: &Store, hour: i64| {
        world.set_now(NOW + hour * HOUR);
        while store.maintain().unwrap() {}
        (0..3).filter(|trace| spans(store, *trace).is_some()).collect::<Vec<u8>>()
    };
    assert_eq!(maintain_at(&store, 2), [0, 1, 2]);
    assert_eq!(maintain_at(&store, 3), [1, 2]);
    let stat = store.trace_stat();
    assert_eq!((stat.parts, stat.expired_parts, stat.evicted_parts), (2, 1, 0));
    assert_eq!(searched(&store, NOW..NOW + HOUR / 2), [1], "of one hour, and late ones");
    drop(store);
    let files = || world.disk.list(&Path::new(DIR).join("traces")).unwrap().len();
    assert_eq!(files(), 2);
    let options = TraceOptions { bytes_max: stat.bytes - 1, ..options };
    let store = open_with(&world, options);
    assert_eq!(maintain_at(&store, 3), [2]);
    assert_eq!((store.trace_stat().evicted_parts, files()), (1, 1));
    drop(store);
    let store = open_with(&world, TraceOptions { bytes_max: 0, ..options });
    ingest(&store, 99, &[(1, b"a")]);
    assert_eq!((maintain_at(&store, 3), files()), (vec![], 0));
}

#[test]
fn a_damaged_part_is_reported_and_costs_its_traces_only() {
    let world = fixture();
    let store = world.open().unwrap();
    for trace in 0..2 {
        ingest(&store, u64::from(trace) + 1, &[(trace, b"a")]);
        store.flush().unwrap();
    }
    drop(store);
    let damage = |at: u64| {
        let file = world.disk.open(&part(0), OpenMode::Write).unwrap();
        let end = file.len().unwrap();
        file.write_all_at(&[0xff; 4], end - at).unwrap();
    };
    let check = |store: &Store, expected: &str| {
        let found = [2, 1].map(|trace| spans(store, trace));
        assert_eq!(found, [None, Some(b"a".to_vec())]);
        assert_eq!(spans(store, 0).as_deref(), Some(&b"b"[..]), "of the other part");
        assert_eq!(searched(store, NOW..NOW + 1), [0, 1]);
        let warnings = warnings(store);
        assert!(warnings.contains("traces are missing: /store/traces/"), "{warnings}");
        assert!(warnings.contains(expected), "{warnings}");
        assert_eq!(store.trace_stat().parts, 2);
    };
    let store = world.open().unwrap();
    // While the store is open: a block.
    let file = world.disk.open(&part(0), OpenMode::Write).unwrap();
    let mut block = [0; 1];
    file.read_at(&mut block, 20).unwrap();
    file.write_all_at(&[!block[0]], 20).unwrap();
    let read = |trace| store.trace(&[trace; 16], &mut |_, _| ControlFlow::Continue(()));
    assert!(read(0).unwrap_err().to_string().contains("block 0 is damaged"));
    assert!(read(1).unwrap().is_some_and(|found| !found.is_cut));
    ingest(&store, 3, &[(0, b"b")]);
    assert_eq!(read(0).unwrap(), Some(StoredTrace { spans: b"b".to_vec(), is_cut: true }));
    file.write_all_at(&block, 20).unwrap();
    drop((store, file));
    let store = world.open().unwrap();
    // The table of blocks.
    damage(60);
    check(&store, "the index is damaged");
    drop(store);
    damage(4);
    let store = world.open().unwrap();
    check(&store, "the footer is damaged");
    let bytes = store.trace_stat().bytes;
    drop(store);
    // It counts, and is removed as the oldest.
    let options = TraceOptions { bytes_max: bytes - 1, ..TraceOptions::unlimited() };
    let store = open_with(&world, options);
    while store.maintain().unwrap() {}
    assert_eq!((store.trace_stat().parts, store.trace_stat().evicted_parts), (1, 1));
    assert!(world.disk.open(&part(0), OpenMode::Read).is_err());
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"a"[..]));
}

/// A missing part, one from the future, and one that cannot be removed stop no other.
#[test]
fn each_part_expires_on_its_own() {
    let disk = SimDisk::new(1);
    let world = fixture_on(&disk);
    let store = open_with(&world, TraceOptions { retention: HOUR, ..TraceOptions::unlimited() });
    for (trace, hours) in [(0, 50), (1, 0), (2, 0), (3, 1)] {
        world.set_now(NOW + hours * HOUR);
        ingest(&store, u64::from(trace) + 1, &[(trace, b"a")]);
        store.flush().unwrap();
    }
    world.disk.remove(&part(1)).unwrap();
    world.set_now(NOW + HOUR);
    while store.maintain().unwrap() {}
    let stat = store.trace_stat();
    assert_eq!((stat.parts, stat.expired_parts), (2, 2));
    assert!(spans(&store, 0).is_some() && spans(&store, 2).is_none() && spans(&store, 3).is_some());
    world.set_now(NOW + 51 * HOUR);
    disk.inject(Fault {
        operation: DiskOperation::Remove,
        path_contains: "/traces".to_owned(),
        skip: 0,
        times: 1,
        kind: FaultKind::Os(5),
    });
    assert!(store.maintain().unwrap_err().to_string().contains("cannot remove"));
    assert_eq!(store.trace_stat().parts, 1, "the other is removed");
    store.maintain().unwrap();
    assert_eq!(store.trace_stat().parts, 0);
}

#[test]
fn parts_that_cannot_be_listed_are_not_overwritten() {
    let disk = SimDisk::new(1);
    let world = fixture_on(&disk);
    let store = world.open().unwrap();
    ingest(&store, 1, &[(1, b"a")]);
    store.flush().unwrap();
    drop(store);
    inject(&disk, DiskOperation::List);
    let store = world.open().unwrap();
    ingest(&store, 2, &[(2, b"b")]);
    store.flush().unwrap();
    let found = warnings(&store);
    assert!(found.contains("traces are not kept until the next opening: cannot list"), "{found}");
    drop(store);
    disk.clear_faults();
    let store = world.open().unwrap();
    assert_eq!((spans(&store, 1).as_deref(), spans(&store, 2)), (Some(&b"a"[..]), None));
}

#[test]
fn traces_that_cannot_be_written_stop_no_samples() {
    let disk = SimDisk::new(1);
    let world = StoreFixture { head_bytes_max: 1 << 20, ..fixture_on(&disk) };
    let store = world.open().unwrap();
    for operation in [DiskOperation::Create, DiskOperation::CreateDir] {
        inject(&disk, operation);
    }
    ingest(&store, 1, &[(1, b"a")]);
    store.flush().unwrap();
    let rows = || store.stat().unwrap().parts.iter().map(|part| part.rows).sum::<u64>();
    assert_eq!((rows(), spans(&store, 1).as_deref()), (1, Some(&b"a"[..])));
    let found = warnings(&store);
    assert!(found.contains("traces are only in memory: cannot "), "{found}");
    disk.clear_faults();
    assert!(store.maintain().unwrap());
    assert_eq!((store.trace_stat().parts, store.trace_stat().head_bytes), (1, 0));
    // Memory is bounded.
    inject(&disk, DiskOperation::Create);
    for sequence in 2..30 {
        ingest(&store, sequence, &[(sequence as u8, &vec![7; 50_000])]);
        store.flush().unwrap();
        assert!(store.trace_stat().head_bytes < 600_000);
    }
    assert!((10..28).contains(&store.trace_stat().dropped_traces));
    assert_eq!(spans(&store, 1).as_deref(), Some(&b"a"[..]));
}

#[test]
fn memory_of_a_trace_is_reserved_before_it_is_read() {
    let world = fixture();
    let store = world.open().unwrap();
    for sequence in 1..4 {
        ingest(&store, sequence, &[(1, &vec![7; 50_000])]);
        store.flush().unwrap();
    }
    let mut asked = Vec::new();
    let found = store.trace(&[1; 16], &mut |block, spans| {
        asked.push((block, spans));
        if spans < 100_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(found.unwrap(), None);
    let block = asked[0].0;
    assert!((50_000..50_100).contains(&block), "{block}");
    let spans = [0, 50_000, 50_000, 100_000];
    assert_eq!(asked, spans.map(|spans| (block, spans)));
}

#[test]
fn traces_in_memory_are_bounded() {
    let world = StoreFixture { head_bytes_max: 1 << 20, ..fixture() };
    let store = world.open().unwrap();
    for sequence in 1..80 {
        ingest(&store, sequence, &[(sequence as u8, &vec![7; 50_000])]);
        store.maintain().unwrap();
        let bytes = store.trace_stat().head_bytes;
        assert!(bytes < 2 << 20, "{bytes} bytes");
    }
    assert!(store.trace_stat().parts >= 1);
    assert!((1..80).all(|trace| spans(&store, trace).is_some_and(|found| found.len() == 50_000)));
}
