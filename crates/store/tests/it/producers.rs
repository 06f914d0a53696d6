//! Producers of series, and the gaps of a killed process: only series of a producer that had data
//! in memory have them.

use std::path::Path;

use journal::{BatchIdentity, Level};
use model::{BatchWriter, Gap, Selector};
use store::{DAY, Store, TimeGrid};

use crate::fixture::{DIR, StoreFixture, histogram, latency, sample};

/// Ingests a sample of each host as the next batch of a producer, with gaps.
fn ingest_as(store: &Store, (producer, sequence): (u64, u64), hosts: &[&str], gaps: &[Gap]) {
    let mut batch = BatchWriter::default();
    for host in hosts {
        batch.series(&latency(host));
        let end = sequence as i64 + 1;
        batch.sample(&sample(end - 1, end, histogram(&[5.0]))).unwrap();
    }
    gaps.iter().for_each(|gap| batch.gap(gap.clone()));
    let identity = BatchIdentity { producer, epoch: 1, sequence };
    let _ack = store.ingest(Some(identity), &batch.finish(), Level::Disk).unwrap();
}

fn gap(producer: Option<u64>, reason: &str) -> Gap {
    Gap { start: 0, end: 9, producer, lost: None, reason: reason.to_owned() }
}

/// Whether the series of a host has gaps, by columns and by samples.
#[track_caller]
fn has_gaps(store: &Store, host: &str) -> bool {
    let view = store.view().unwrap();
    let series = view.select(&Selector::parse(&format!("latency{{host={host:?}}}")).unwrap());
    assert_eq!(series.len(), 1);
    let grid = TimeGrid { start: 0, step: DAY, columns: 1 };
    let columns = view.histograms(&series, grid).unwrap().collect::<store::Result<Vec<_>>>();
    let in_columns = columns.unwrap().iter().any(|column| !column.gaps.is_empty());
    let of_samples = view.samples(&series[0], 0..DAY, &mut |_| {}).unwrap();
    let listed = view.gaps_of(&series, &(0..DAY));
    assert_eq!((in_columns, in_columns), (!of_samples.is_empty(), !listed.is_empty()), "{host}");
    in_columns
}

fn hosts_with_gaps(store: &Store) -> Vec<&'static str> {
    ["a", "b", "both"].into_iter().filter(|host| has_gaps(store, host)).collect()
}

/// Producer 1 sends a and both, producer 2 sends b and then both.
fn send_all(store: &Store) {
    ingest_as(store, (1, 1), &["a", "both"], &[]);
    ingest_as(store, (2, 1), &["b", "both"], &[]);
}

/// A user who sends over HTTP saw gaps in all of his series because StatsD was on.
#[test]
fn kill_leaves_a_gap_only_in_series_of_producers_with_data_in_memory() {
    for world in [StoreFixture::new(), StoreFixture::in_memory()] {
        let store = world.open().unwrap();
        send_all(&store);
        assert_eq!(hosts_with_gaps(&store), [""; 0]);
        ingest_as(&store, (3, 1), &["own"], &[gap(Some(2), Gap::UNCLEAN_SHUTDOWN)]);
        assert_eq!(hosts_with_gaps(&store), ["b", "both"], "in the head");
        store.flush().unwrap();
        assert_eq!(hosts_with_gaps(&store), ["b", "both"], "flushed");
        drop(store);
        let store = world.open().unwrap();
        assert_eq!(hosts_with_gaps(&store), ["b", "both"], "opened again");
        // Of a series that is not stored, nothing was lost.
        let none: [store::SeriesEntryRef; 0] = [];
        assert_eq!(store.view().unwrap().gaps_of(&none, &(0..DAY)), []);
    }
}

/// 30 gaps of one series were in all series after an import of old samples.
#[test]
fn gap_that_names_a_series_is_in_no_other() {
    let store = StoreFixture::new().open().unwrap();
    send_all(&store);
    let reason = Gap::late_samples_reason(&"latency{host=\"b\"}");
    ingest_as(&store, (3, 1), &["own"], &[gap(None, &reason)]);
    assert_eq!(hosts_with_gaps(&store), ["b"]);
}

#[test]
fn other_gaps_and_those_of_unknown_producers_are_in_all_series() {
    for gap in [gap(Some(2), "a disk was lost"), gap(None, Gap::UNCLEAN_SHUTDOWN)] {
        let store = StoreFixture::new().open().unwrap();
        send_all(&store);
        ingest_as(&store, (3, 1), &["own"], &[gap]);
        assert_eq!(hosts_with_gaps(&store), ["a", "b", "both"]);
    }
}

/// A producer that is not in the series file yet is read again from the journal.
#[test]
fn second_producer_survives_a_kill_before_the_flush() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    ingest_as(&store, (1, 1), &["a", "b", "both"], &[]);
    store.flush().unwrap();
    ingest_as(&store, (2, 1), &["both"], &[]);
    drop(store);
    let store = world.open().unwrap();
    ingest_as(&store, (3, 1), &["own"], &[gap(Some(2), Gap::UNCLEAN_SHUTDOWN)]);
    assert_eq!(hosts_with_gaps(&store), ["both"]);
}

/// Which producers are missing is unknown: all series may have the gap.
#[test]
fn damaged_series_file_leaves_the_gap_in_all_series() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    send_all(&store);
    ingest_as(&store, (3, 1), &["own"], &[gap(Some(2), Gap::UNCLEAN_SHUTDOWN)]);
    store.flush().unwrap();
    drop(store);
    let path = Path::new(DIR).join("series");
    let mut bytes = disk::read_file(&*world.disk, &path, u64::MAX).unwrap().unwrap();
    // The record of the second producer: kind 3, with 24 bytes.
    let head = (24_u32 | 3 << 24).to_le_bytes();
    let at = bytes.windows(4).position(|window| window == head).expect("a second producer");
    bytes[at + 20] ^= 1;
    // Damage at the end of the file counts as a write that was interrupted.
    bytes.extend_from_within(..at);
    let file = world.disk.open(&path, disk::OpenMode::Create).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    drop(file);
    let store = world.open().unwrap();
    assert_eq!(hosts_with_gaps(&store), ["a", "b", "both"]);
}
