//! A panic in the journal's thread: the thread is restarted, and every record is present once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use disk::Disk;
use journal::supervisor::{self, FailpointHook};
use journal::*;
use sim::SimDisk;

const DIR: &str = "/journal";
/// Number of injected panics.
const PANICS: u32 = 3;

/// Injects panics at one point, in the journal's thread only.
fn with_panics_at(point: &'static str) -> Supervisor {
    let left = AtomicU32::new(PANICS);
    let failpoint_hook: FailpointHook = Arc::new(move |found: &str| {
        let is_here = found == point && thread::current().name() == Some("journal");
        let take = |left: u32| left.checked_sub(1);
        if is_here && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            panic!("thrown at {point}");
        }
    });
    let wait_first = Duration::ZERO;
    let failpoint_hook = Some(failpoint_hook);
    Supervisor::new(supervisor::SupervisorSettings {
        initial_backoff: wait_first,
        failpoint_hook,
        ..Default::default()
    })
}

#[test]
fn a_reader_in_an_event_loop_is_woken_after_a_panic_of_the_thread_that_waits_for_it() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Journal::create(&*disk, Path::new(DIR), 7, 0, &Settings::default()).unwrap();
    let supervisor = Supervisor::with_injected_panics(&[("journal-ready", 2)]);
    let options =
        Options { is_exclusive: true, supervisor: supervisor.clone(), ..Options::default() };
    let journal = Journal::open(disk, Path::new(DIR), &options).unwrap();
    let mut reader = journal.reader(StartPosition::End).unwrap();
    let fd = reader.readiness().unwrap().try_clone_to_owned().unwrap();
    let _ = journal.append(b"x", Level::Process).unwrap();
    let mut event = [0; 8];
    while rustix::io::read(&fd, &mut event).is_err() {
        thread::yield_now();
    }
    assert_eq!(supervisor.restarts("journal-ready"), 2);
}

/// The records, each of which is its number.
fn read(journal: &Journal) -> Vec<u64> {
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        let ReadItem::Batch(batch) = item else { panic!("nothing is missing") };
        let number = |record: Record<'_>| u64::from_le_bytes(record.bytes.try_into().unwrap());
        found.extend(batch.records().map(number));
    }
    found
}

#[track_caller]
fn check(point: &'static str) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    let settings = Settings {
        segment_bytes: SEGMENT_BYTES_MIN,
        buffer_bytes: BUFFER_BYTES_MIN,
        ..Settings::default()
    };
    Journal::create(&*disk, Path::new(DIR), 7, 0, &settings).unwrap();
    let supervisor = with_panics_at(point);
    let options = Options {
        is_exclusive: true,
        flush_interval: Duration::from_millis(1),
        sync_interval: Some(Duration::from_millis(1)),
        supervisor: supervisor.clone(),
        ..Options::default()
    };
    let journal = Journal::open(Arc::clone(&disk), Path::new(DIR), &options).unwrap();
    let mut count = 0u64;
    let mut append = |level| {
        let _ack = journal.append(&count.to_le_bytes(), level).unwrap();
        count += 1;
    };
    while supervisor.restarts("journal") < u64::from(PANICS) {
        append(Level::Memory);
        thread::yield_now();
    }
    assert_eq!(supervisor.failures(), ["thread journal panics repeatedly (panics: 3)"]);
    append(Level::Disk);
    let expected: Vec<u64> = (0..count).collect();
    assert_eq!(read(&journal), expected);
    drop(journal);
    let journal = Journal::open(disk, Path::new(DIR), &options).unwrap();
    assert_eq!(read(&journal), expected, "after it was opened again");
}

#[test]
fn a_panic_of_the_thread_loses_and_repeats_nothing() {
    check("journal");
}

#[test]
fn panic_before_publication_loses_and_repeats_nothing() {
    check("journal frame");
}

#[test]
fn a_panic_before_a_sync_loses_and_repeats_nothing() {
    check("journal sync");
}

/// The unsynced files of a panicking sync are lost: the next sync must not count their data as
/// durable.
#[test]
fn panic_before_sync_delays_durability() {
    for seed in 0..20 {
        let sim = SimDisk::new(seed);
        let disk: Arc<dyn Disk> = Arc::new(sim.process());
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES_MIN,
            compression: Compression::None,
            ..Settings::default()
        };
        Journal::create(&*disk, Path::new(DIR), 7, 0, &settings).unwrap();
        let options = Options {
            has_background_thread: false,
            sync_interval: None,
            supervisor: Supervisor::with_injected_panics(&[("journal sync", 1)]),
            ..Options::default()
        };
        let journal = Journal::open(disk, Path::new(DIR), &options).unwrap();
        // Several segments.
        let record = |number: u64| [&number.to_le_bytes()[..], &[7; 3000]].concat();
        for number in 0..20 {
            let _ack = journal.append(&record(number), Level::Process).unwrap();
        }
        let synced = catch_unwind(AssertUnwindSafe(|| journal.flush(Level::Disk)));
        assert!(synced.is_err(), "a panic is thrown");
        let ack = journal.append(&record(20), Level::Disk).unwrap();
        assert_eq!((ack.positions, ack.level), (20..21, Level::Disk));
        sim.power_cut();
        std::mem::forget(journal);
        let journal = Journal::open(Arc::new(sim.process()), Path::new(DIR), &options).unwrap();
        let mut reader = journal.reader(StartPosition::First).unwrap();
        let mut expected = 0..21;
        while let Some(item) = reader.next().unwrap() {
            let ReadItem::Batch(batch) = item else { panic!("seed {seed}: {item:?} is missing") };
            for found in batch.records() {
                assert_eq!(Some(found.bytes), expected.next().map(record).as_deref());
            }
        }
        assert_eq!(expected.next(), None, "seed {seed}");
    }
}
