//! Whole traces survive a kill, a flush and damage, and are removed by age and by size.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use disk::OpenMode;
use journal::Level;
use model::{BatchWriter, TraceSpans};
use sim::SimDisk;
use store::{HOUR, Options, Store, StoredTrace, TraceOptions};

use crate::fixture::{DIR, StoreFixture, histogram, identity, latency, sample};

const NOW: i64 = 100 * HOUR;

fn fixture() -> StoreFixture {
    let world = StoreFixture::on_disk(Arc::new(SimDisk::new(1).process()));
    world.set_now(NOW);
    world
}

fn open_with(world: &StoreFixture, traces: TraceOptions) -> Store {
    let options = Options { traces, ..world.options() };
    Store::open(Arc::clone(&world.disk), Path::new(DIR), &options).unwrap()
}

/// Ingests a sample with spans of traces.
fn ingest(store: &Store, sequence: u64, traces: &[(u8, &[u8])]) {
    let mut batch = BatchWriter::default();
    batch.series(&latency("a"));
    batch.sample(&sample(NOW - 60, NOW, histogram(&[1.0]))).unwrap();
    for (trace, spans) in traces {
        let is_cut = spans.is_empty();
        batch.trace(TraceSpans { trace_id: [*trace; 16], is_cut, spans });
    }
    let _ack = store.ingest(Some(identity(sequence)), &batch.finish(), Level::Process).unwrap();
}

fn spans(store: &Store, trace: u8) -> Option<Vec<u8>> {
    store.trace(&[trace; 16]).unwrap().map(|found| found.spans)
}

fn searched(store: &Store, range: std::ops::Range<i64>) -> Vec<u8> {
    let mut found = Vec::new();
    let mut each = |spans: Option<TraceSpans<'_>>| {
        found.extend(spans.map(|spans| spans.trace_id[0]));
        ControlFlow::Continue(())
    };
    store.search_traces(&range, &mut each).unwrap();
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
    assert_eq!(store.trace(&[3; 16]).unwrap(), Some(cut));
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
    let path = Path::new(DIR).join("traces").join(format!("{:016x}", 0));
    let file = world.disk.open(&path, OpenMode::Write).unwrap();
    let end = file.len().unwrap();
    file.write_all_at(&[0xff; 4], end - 4).unwrap();
    drop(file);
    let store = world.open().unwrap();
    assert_eq!((spans(&store, 0), spans(&store, 1).as_deref()), (None, Some(&b"a"[..])));
    let warnings = store.stat().unwrap().warnings.join("\n");
    assert!(warnings.contains("traces are missing: "), "{warnings}");
    assert!(warnings.contains("the footer is damaged"), "{warnings}");
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
