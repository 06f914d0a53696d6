//! Small parts of traces become one, and no kill loses or doubles a span.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use disk::OpenMode;
use sim::{DiskOperation, Fault, FaultKind, SimDisk};
use store::{HOUR, MINUTE, Store, TraceOptions, TraceSearchStep};

use crate::fixture::{DIR, StoreFixture};
use crate::traces::{NOW, fixture_on, ingest, open_with, part, searched, spans, warnings};

/// A store with a part per letter: each has a trace of its own, and spans of trace 0.
fn with_parts(disk: &SimDisk, parts: &[u8]) -> (StoreFixture, Store) {
    let world = fixture_on(disk);
    let store = world.open().unwrap();
    for (at, letter) in parts.iter().enumerate() {
        world.set_now(NOW + at as i64 * MINUTE);
        ingest(&store, 1 + at as u64, &[(0, &[*letter]), (*letter, &[*letter; 3])]);
        store.flush().unwrap();
    }
    (world, store)
}

/// All spans are there, each once, and the next opening has them as well.
#[track_caller]
fn check(store: &Store, parts: &[u8]) {
    assert_eq!(spans(store, 0).as_deref(), Some(parts));
    for letter in parts {
        assert_eq!(spans(store, *letter), Some(vec![*letter; 3]));
    }
    assert_eq!(spans(store, 200), None);
}

fn files(world: &StoreFixture) -> usize {
    world.disk.list(&Path::new(DIR).join("traces")).unwrap().len()
}

fn maintain(store: &Store) {
    while store.maintain().unwrap() {}
}

#[test]
fn parts_of_an_hour_that_is_over_become_one() {
    let (world, store) = with_parts(&SimDisk::new(1), b"abcde");
    maintain(&store);
    assert_eq!(store.trace_stat().parts, 5, "the hour is not over");
    world.set_now(NOW + HOUR);
    maintain(&store);
    assert_eq!((store.trace_stat().parts, files(&world)), (1, 1));
    check(&store, b"abcde");
    assert_eq!(searched(&store, NOW..NOW + 1), [0, 97, 98, 99, 100, 101]);
    // A later hour stays apart.
    ingest(&store, 9, &[(0, b"x")]);
    store.flush().unwrap();
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(spans(&store, 0).as_deref(), Some(&b"abcdex"[..]));
    assert_eq!((store.trace_stat().parts, store.trace_stat().head_bytes), (2, 0));
    world.set_now(NOW + 3 * HOUR);
    maintain(&store);
    assert_eq!(store.trace_stat().parts, 2);
    assert_eq!(store.recent_trace_ids(NOW + HOUR), [[0; 16]], "of the second one");
}

#[test]
fn many_parts_of_the_present_hour_become_one() {
    let (world, store) = with_parts(&SimDisk::new(1), b"abcdefg");
    maintain(&store);
    assert_eq!(store.trace_stat().parts, 7);
    for letter in b"hijklmnop" {
        ingest(&store, u64::from(*letter), &[(0, &[*letter]), (*letter, &[*letter; 3])]);
        store.flush().unwrap();
        maintain(&store);
    }
    // One of eight, which is merged with seven more.
    assert_eq!((store.trace_stat().parts, files(&world)), (2, 2));
    check(&store, b"abcdefghijklmnop");
}

/// Power is lost at each operation of a merge in turn.
#[test]
fn power_loss_during_a_merge_loses_and_doubles_nothing() {
    let disk = SimDisk::new(1);
    let (_, store) = with_parts(&disk, b"abc");
    drop(store);
    let mut cuts = 0;
    for count in 1.. {
        let disk = disk.fork(count);
        let open = |now: i64| {
            let world = StoreFixture { disk: Arc::new(disk.process()), ..StoreFixture::new() };
            world.set_now(now);
            (world.open().unwrap(), world)
        };
        let (store, _) = open(NOW + HOUR);
        disk.cut_after(count);
        let done = (0..5).try_for_each(|_| store.maintain().map(drop));
        if !disk.is_without_power() {
            done.unwrap();
            break;
        }
        cuts += 1;
        drop(store);
        disk.power_cut();
        let (store, world) = open(NOW + HOUR);
        check(&store, b"abc");
        maintain(&store);
        assert_eq!((store.trace_stat().parts, files(&world)), (1, 1), "cut at {count}");
        check(&store, b"abc");
    }
    assert!(cuts > 5, "{cuts} operations");
}

/// Removing the replaced files fails, and the process is killed.
#[test]
fn parts_that_a_merged_one_replaced_are_not_read_after_a_kill() {
    let disk = SimDisk::new(1);
    let (world, store) = with_parts(&disk, b"abc");
    world.set_now(NOW + HOUR);
    let path_contains = "/traces".to_owned();
    let (operation, kind) = (DiskOperation::Remove, FaultKind::Os(5));
    disk.inject(Fault { operation, path_contains, skip: 0, times: u64::MAX, kind });
    assert!(store.maintain().unwrap());
    assert!(store.maintain().unwrap_err().to_string().contains("cannot remove"));
    check(&store, b"abc");
    drop(store);
    assert_eq!(files(&world), 3);
    let store = world.open().unwrap();
    assert_eq!(store.trace_stat().parts, 1);
    check(&store, b"abc");
    // The merged one stays until they are removed: by itself none of them would be replaced.
    world.set_now(NOW + 1000 * HOUR);
    assert!(store.maintain().is_err());
    assert_eq!(store.trace_stat().parts, 1);
    disk.clear_faults();
    maintain(&store);
    assert_eq!((store.trace_stat().parts, files(&world)), (0, 0));
}

/// A search opened the merged part never, and of the replaced ones only the last.
#[test]
fn a_search_during_a_merge_finds_all() {
    let (world, store) = with_parts(&SimDisk::new(1), b"abc");
    world.set_now(NOW + HOUR);
    let (mut found, mut parts) = (Vec::new(), 0);
    store.search_traces(&(NOW..NOW + HOUR), &mut |step| {
        match step {
            TraceSearchStep::Spans(spans) => found.push(spans.trace_id[0]),
            TraceSearchStep::Before(before) => {
                assert_eq!(before, NOW + (2 - parts) * MINUTE + 5 * MINUTE);
                parts += 1;
                if parts == 2 {
                    maintain(&store);
                    assert_eq!((store.trace_stat().parts, files(&world)), (1, 3));
                }
            }
        }
        ControlFlow::Continue(())
    });
    assert_eq!(found, [0, 99, 0, 98, 0, 97]);
    maintain(&store);
    assert_eq!((store.trace_stat().parts, files(&world)), (1, 1));
}

/// The merged part is read in the place of the last one, which had no spans of the others before.
#[test]
fn spans_that_were_read_before_a_merge_do_not_come_again() {
    let start = || {
        let (world, store) = with_parts(&SimDisk::new(1), b"abc");
        world.set_now(NOW + HOUR);
        store
    };
    let (store, mut found) = (start(), Vec::new());
    store.traces(&[[0; 16]], &mut |spans| {
        found.extend_from_slice(spans.spans);
        maintain(&store);
        ControlFlow::Continue(())
    });
    found.sort_unstable();
    assert_eq!(found, b"abc");
    assert_eq!(store.trace_stat().parts, 1);
    let (store, mut found) = (start(), Vec::new());
    store.search_traces(&(NOW..NOW + HOUR), &mut |step| {
        match step {
            TraceSearchStep::Spans(spans) => found.push((spans.trace_id[0], spans.spans.len())),
            TraceSearchStep::Before(_) => maintain(&store),
        }
        ControlFlow::Continue(())
    });
    assert_eq!(found, [(0, 3), (97, 3), (98, 3), (99, 3)]);
    let store = start();
    let mut merge = |_: usize, _: usize| {
        maintain(&store);
        ControlFlow::Continue(())
    };
    let found = store.trace(&[0; 16], &mut merge).unwrap().unwrap();
    assert_eq!((&found.spans[..], found.is_cut), (&b"abc"[..], false));
    assert_eq!(store.trace_stat().parts, 1);
}

#[test]
fn a_merge_that_an_io_error_stopped_is_tried_again() {
    let disk = SimDisk::new(1);
    let (world, store) = with_parts(&disk, b"abc");
    world.set_now(NOW + HOUR);
    let path_contains = "/traces".to_owned();
    let (operation, kind) = (DiskOperation::Read, FaultKind::Os(5));
    disk.inject(Fault { operation, path_contains, skip: 0, times: 1, kind });
    assert!(store.maintain().is_err());
    assert_eq!(store.trace_stat().parts, 3);
    maintain(&store);
    assert_eq!((store.trace_stat().parts, files(&world)), (1, 1));
    check(&store, b"abc");
}

/// The oldest part is removed as a whole: the limit would cost most of the traces at once.
#[test]
fn a_merged_part_is_a_small_share_of_the_limit_of_size() {
    let (world, store) = with_parts(&SimDisk::new(1), b"abcde");
    let bytes = store.trace_stat().bytes;
    drop(store);
    world.set_now(NOW + HOUR);
    for (bytes_max, parts) in [(bytes, 5), (100 * bytes, 1)] {
        let options = TraceOptions { bytes_max, ..TraceOptions::unlimited() };
        let store = open_with(&world, options);
        maintain(&store);
        assert_eq!(store.trace_stat().parts, parts, "{bytes_max}");
        check(&store, b"abcde");
    }
}

#[test]
fn a_damaged_part_is_not_merged_and_costs_no_other() {
    let (world, store) = with_parts(&SimDisk::new(1), b"abc");
    let file = world.disk.open(&part(1), OpenMode::Write).unwrap();
    file.write_all_at(&[0xff; 9], 20).unwrap();
    world.set_now(NOW + HOUR);
    assert!(store.maintain().unwrap_err().to_string().contains("block 0 is damaged"));
    maintain(&store);
    assert_eq!((store.trace_stat().parts, files(&world)), (3, 3));
    assert_eq!(spans(&store, 0).as_deref(), Some(&b"ac"[..]));
    assert!(warnings(&store).contains("traces are missing"));
}

/// Only what is wanted is read, from memory and from parts.
#[test]
fn traces_are_found_by_their_ids_together() {
    let (_world, store) = with_parts(&SimDisk::new(1), b"abc");
    ingest(&store, 9, &[(b'b', b"x"), (b'z', b"z")]);
    let mut found = Vec::new();
    let wanted = [[b'b'; 16], [b'c'; 16], [b'z'; 16], [200; 16]];
    store.traces(&wanted, &mut |spans| {
        found.push((spans.trace_id[0], spans.spans.len()));
        ControlFlow::Continue(())
    });
    assert_eq!(found, [(b'c', 3), (b'b', 3), (b'b', 1), (b'z', 1)]);
}
