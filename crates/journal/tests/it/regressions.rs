//! Failures found by the fault tests, each minimised.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use journal::*;
use sim::{DiskOperation, Fault, FaultKind, SimDisk};

use crate::fixture::{DIR, small};

fn options() -> Options {
    Options {
        has_background_thread: false,
        sync_interval: None,
        append_timeout: Duration::from_millis(5),
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

fn create(disk: &SimDisk, settings: &Settings) {
    Journal::create(&disk.process(), Path::new(DIR), 99, 0, settings).unwrap();
}

fn try_open(disk: &SimDisk) -> Result<Journal> {
    Journal::open(Arc::new(disk.process()), Path::new(DIR), &options())
}

#[track_caller]
fn open(disk: &SimDisk) -> Journal {
    try_open(disk).unwrap()
}

fn plain() -> Settings {
    small(Compression::None, LimitPolicy::Reject, None)
}

#[test]
fn journal_in_new_nested_directory_survives_power_cut() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        disk.power_cut();
        open(&disk);
    }
}

#[test]
fn reader_gets_gap_for_records_lost_at_the_end() {
    // For some seed the power loss keeps the first record, and of the second only that a mark has
    // passed it.
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        let _ = journal.append(b"one", Level::Process).unwrap();
        let _ = journal.append(&[2; 1100], Level::Process).unwrap();
        journal.add_checkpoint("seen", StartPosition::End, true).unwrap();
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(StartPosition::First).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), 2);
        assert!(!reader.wait(Some(Duration::ZERO)).unwrap());
    }
}

#[test]
fn buffer_reader_skips_records_lost_in_the_middle() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let mut settings = plain();
        settings.buffer_bytes = 64 << 10;
        create(&disk, &settings);
        let journal = open(&disk);
        for _ in 0..20 {
            let _ = journal.append(&[1; 900], Level::Process).unwrap();
        }
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(StartPosition::First).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), journal.watermarks().end, "{seed}");
    }
}

#[test]
fn recovery_handles_buffer_pages_of_several_laps() {
    for seed in 0..1000 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        // More than three laps, none of it durable at the power loss.
        for i in 0..13 {
            let _ = journal.append(&[i; 1000], Level::Process).unwrap();
        }
        for i in 0..9 {
            let _ = journal.append(&[i; 8], Level::Process).unwrap();
        }
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(StartPosition::First).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), journal.watermarks().end, "{seed}");
    }
}

/// A commit undone by a power loss must not have deleted the records after it.
#[test]
fn volatile_commit_releases_no_segment() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        journal.add_subscriber("a", StartPosition::First, true).unwrap();
        for i in 0..40 {
            let _ = journal.append(&[i; 1000], Level::Process).unwrap();
        }
        journal.flush(Level::Disk).unwrap();
        let mut subscriber = journal.subscribe("a").unwrap();
        while subscriber.next().unwrap().is_some() {}
        subscriber.commit(40, Level::Process).unwrap();
        let _ = journal.append(b"durable", Level::Disk).unwrap();
        disk.power_cut();
        drop((subscriber, journal));
        let journal = open(&disk);
        let position = journal.checkpoint("a").unwrap().position;
        assert!(journal.watermarks().first <= position, "{:?} {position}", journal.watermarks());
    }
}

#[test]
fn failed_sync_during_recovery_is_remembered() {
    for buffer_is_lost in [false, true] {
        let disk = SimDisk::new(1);
        create(&disk, &plain());
        let process = disk.process();
        let journal = Journal::open(Arc::new(process.clone()), Path::new(DIR), &options()).unwrap();
        let _ = journal.append(b"kept", Level::Process).unwrap();
        journal.flush(Level::Process).unwrap();
        process.kill();
        std::mem::forget(journal);
        if buffer_is_lost {
            disk.process().remove(&Path::new(DIR).join("buffer")).unwrap();
        }
        disk.inject(Fault {
            operation: DiskOperation::Sync,
            path_contains: ".seg".to_owned(),
            skip: 0,
            times: 1,
            kind: FaultKind::Os(5),
        });
        assert!(matches!(try_open(&disk), Err(Error::Io { .. })));
        let journal = open(&disk);
        assert_eq!(journal.append(b"second", Level::Disk).unwrap().positions, 1..2);
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(StartPosition::First).unwrap();
        match reader.next().unwrap() {
            Some(ReadItem::Batch(batch)) => {
                assert_eq!(batch.records().next().unwrap().bytes, b"kept")
            }
            other => panic!("{other:?}"),
        };
    }
}

#[test]
fn segments_are_not_larger_than_the_setting() {
    let disk = SimDisk::new(1);
    let mut settings = plain();
    settings.buffer_bytes = 1 << 20;
    create(&disk, &settings);
    let journal = open(&disk);
    for i in 0..400u32 {
        let _ = journal.append(&record(i), Level::Process).unwrap();
    }
    journal.flush(Level::Disk).unwrap();
    for (path, len) in disk.files() {
        let segment = path.to_string_lossy().ends_with(".seg");
        assert!(!segment || len <= settings.segment_bytes, "{path:?} has {len} bytes");
    }
}

fn record(i: u32) -> Vec<u8> {
    vec![i as u8; 1000]
}

/// The last segment has only its header when the disk is full: no frame can be reserved in it, and
/// the next segment is created under the same name.
#[test]
fn segment_retried_after_full_disk_is_not_released() {
    let disk = SimDisk::new(1);
    create(&disk, &plain());
    let process = disk.process();
    let journal = Journal::open(Arc::new(process.clone()), Path::new(DIR), &options()).unwrap();
    journal.add_subscriber("a", StartPosition::First, true).unwrap();
    let _ = journal.append(b"first", Level::Process).unwrap();
    // The header is written, the frame is not.
    disk.inject(Fault {
        operation: DiskOperation::Write,
        path_contains: ".seg".to_owned(),
        skip: 1,
        times: 1,
        kind: FaultKind::Os(28),
    });
    assert!(matches!(journal.flush(Level::Process), Err(Error::Full(FullReason::NoSpace))));
    process.kill();
    std::mem::forget(journal);
    disk.inject(Fault {
        operation: DiskOperation::Allocate,
        path_contains: ".seg".to_owned(),
        skip: 0,
        times: 1,
        kind: FaultKind::Os(28),
    });
    let journal = open(&disk);
    journal.flush(Level::Disk).unwrap();
    let mut subscriber = journal.subscribe("a").unwrap();
    while subscriber.next().unwrap().is_some() {}
    subscriber.commit(1, Level::Disk).unwrap();
    for i in 0..60 {
        let _ = journal.append(&record(i), Level::Disk).unwrap();
        let mut reader = journal.reader(StartPosition::At(1)).unwrap();
        while let Some(item) = reader.next().unwrap() {
            assert!(matches!(item, ReadItem::Batch(_)), "{item:?}");
        }
        assert_eq!(reader.position(), u64::from(i) + 2);
    }
}

/// The header of the next segment may survive without the frames it refers to.
#[test]
fn lost_batch_is_accepted_again() {
    let mut taken = 0;
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        let identity = Some(BatchIdentity { producer: 1, epoch: 1, sequence: 1 });
        for i in 0..12 {
            let _ = journal.append(&record(i), Level::Disk).unwrap();
        }
        let _ = journal.append_batch(identity, &[&record(99)], Level::Process).unwrap();
        journal.flush(Level::Process).unwrap();
        for i in 0..4 {
            let _ = journal.append(&record(i), Level::Process).unwrap();
        }
        journal.flush(Level::Process).unwrap();
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let ack = journal.append_batch(identity, &[&record(99)], Level::Disk).unwrap();
        let mut reader = journal.reader(StartPosition::First).unwrap();
        let mut there = 0;
        while let Some(item) = reader.next().unwrap() {
            if let ReadItem::Batch(batch) = item {
                there += batch.records().filter(|record| record.identity == identity).count();
            }
        }
        assert_eq!(there, 1, "{seed}: {ack:?}");
        taken += u32::from(!ack.is_duplicate);
    }
    assert!(taken > 10, "only {taken}");
}

#[test]
fn transient_read_error_loses_no_record() {
    for skip in 0..20 {
        let disk = SimDisk::new(1);
        create(&disk, &plain());
        let journal = open(&disk);
        for i in 0..40 {
            let _ = journal.append(&record(i), Level::Disk).unwrap();
        }
        let mut reader = journal.reader(StartPosition::First).unwrap();
        disk.inject(Fault {
            operation: DiskOperation::Read,
            path_contains: ".seg".to_owned(),
            skip,
            times: 1,
            kind: FaultKind::Os(5),
        });
        loop {
            match reader.next() {
                Ok(Some(ReadItem::Batch(_))) | Err(_) => {}
                Ok(Some(ReadItem::Gap(gap))) => panic!("{skip}: {gap:?}"),
                Ok(None) => break,
            }
        }
        assert_eq!(reader.position(), 40);
    }
}

#[test]
fn unremovable_segment_keeps_its_durability() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        journal.add_subscriber("a", StartPosition::First, true).unwrap();
        for i in 0..20 {
            let _ = journal.append(&record(i), Level::Process).unwrap();
        }
        journal.flush(Level::Process).unwrap();
        disk.inject(Fault {
            operation: DiskOperation::Remove,
            path_contains: ".seg".to_owned(),
            skip: 0,
            times: u64::MAX,
            kind: FaultKind::Os(5),
        });
        let mut subscriber = journal.subscribe("a").unwrap();
        while subscriber.next().unwrap().is_some() {}
        subscriber.commit(20, Level::Disk).unwrap();
        journal.flush(Level::Disk).unwrap();
        disk.power_cut();
        drop((subscriber, journal));
        let journal = open(&disk);
        let mut reader = journal.reader(StartPosition::First).unwrap();
        while let Some(item) = reader.next().unwrap() {
            assert!(matches!(item, ReadItem::Batch(_)), "{seed}: {item:?}");
        }
    }
}

/// A user saw a server with 39 MB of free space reject everything: segments took 64 MiB or none.
#[test]
fn a_small_disk_gets_segments_of_its_size() {
    let disk = SimDisk::new(3);
    let settings = Settings { segment_bytes: 1 << 20, buffer_bytes: 64 << 10, ..plain() };
    create(&disk, &settings);
    let journal = open(&disk);
    disk.set_capacity(disk.used_bytes() + (700 << 10));
    journal.reserve_first_segment().unwrap();
    let mut accepted = 0;
    while journal.append(&[7; 8_000], Level::Disk).is_ok_and(|ack| ack.level == Level::Disk) {
        accepted += 1;
    }
    let stat = journal.stat().unwrap();
    assert!(stat.segments > 1, "{} segments", stat.segments);
    assert!(accepted * 8_000 > 300 << 10, "{accepted} records");
    assert_eq!(stat.full_reason, Some(FullReason::NoSpace));
    drop(journal);
    let journal = open(&disk);
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut read = 0;
    while reader.next().unwrap().is_some() {
        read += 1;
    }
    assert!(read >= accepted, "{read} of {accepted}");
    disk.set_capacity(u64::MAX);
    let ack = journal.append(b"again", Level::Disk).unwrap();
    assert_eq!(ack.level, Level::Disk);
}

/// A new journal on a full disk is full from the start, not only at the first append.
#[test]
fn a_start_without_space_for_the_first_segment_is_full_until_there_is_space() {
    let disk = SimDisk::new(4);
    create(&disk, &plain());
    let journal = open(&disk);
    disk.set_capacity(disk.used_bytes());
    assert!(matches!(journal.reserve_first_segment(), Err(Error::Full(FullReason::NoSpace))));
    assert!(journal.is_full());
    // The buffer is empty, so nothing waits for the disk, and the journal is still full.
    journal.flush(Level::Disk).unwrap();
    assert!(journal.is_full());
    disk.set_capacity(u64::MAX);
    journal.flush(Level::Disk).unwrap();
    assert!(!journal.is_full());
}
