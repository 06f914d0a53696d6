//! What the fault tests found, each by itself and as small as it gets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, Fault, FaultKind, Operation, SimDisk};
use journal::*;

use crate::world::{DIR, small};

fn options() -> Options {
    Options {
        background: false,
        sync_every: None,
        wait_max: Duration::from_millis(5),
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
    small(Codec::None, AtLimit::Refuse, None)
}

#[test]
fn a_journal_in_a_new_folder_of_a_new_folder_survives_a_power_cut() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        disk.power_cut();
        open(&disk);
    }
}

#[test]
fn a_reader_is_told_of_records_lost_at_the_end_and_does_not_wait_for_them() {
    // Sooner or later a power cut keeps the first record, and of the second only that a mark has passed it.
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        let _ = journal.append(b"one", Level::Process).unwrap();
        let _ = journal.append(&[2; 1100], Level::Process).unwrap();
        journal.add_mark("seen", Start::End, true).unwrap();
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(Start::Begin).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), 2);
        assert!(!reader.wait(Some(Duration::ZERO)).unwrap());
    }
}

#[test]
fn a_reader_of_the_buffer_goes_on_behind_what_a_power_cut_took_from_its_middle() {
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
        let mut reader = journal.reader(Start::Begin).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), journal.marks().end, "{seed}");
    }
}

#[test]
fn opening_succeeds_when_the_buffer_has_pages_of_several_laps() {
    for seed in 0..1000 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        // Three laps and a bit, all of it in doubt when the power goes.
        for i in 0..13 {
            let _ = journal.append(&[i; 1000], Level::Process).unwrap();
        }
        for i in 0..9 {
            let _ = journal.append(&[i; 8], Level::Process).unwrap();
        }
        disk.power_cut();
        drop(journal);
        let journal = open(&disk);
        let mut reader = journal.reader(Start::Begin).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.position(), journal.marks().end, "{seed}");
    }
}

/// A commit that the power takes back must not have cost the records behind it.
#[test]
fn a_commit_below_disk_does_not_free_what_a_power_cut_makes_needed_again() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        journal.add_subscriber("a", Start::Begin, true).unwrap();
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
        assert!(journal.marks().first <= position, "{:?} {position}", journal.marks());
    }
}

#[test]
fn a_sync_that_failed_while_opening_is_not_taken_back_by_the_next_opening() {
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
            operation: Operation::Sync,
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
        let mut reader = journal.reader(Start::Begin).unwrap();
        match reader.next().unwrap() {
            Some(Item::Batch(batch)) => assert_eq!(batch.records().next().unwrap().bytes, b"kept"),
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

/// The last segment has its head and nothing else when the disk is full: no frame can be reserved in it, and
/// the next one is begun under the same name.
#[test]
fn a_segment_begun_twice_for_want_of_space_is_not_freed_while_it_is_written() {
    let disk = SimDisk::new(1);
    create(&disk, &plain());
    let process = disk.process();
    let journal = Journal::open(Arc::new(process.clone()), Path::new(DIR), &options()).unwrap();
    journal.add_subscriber("a", Start::Begin, true).unwrap();
    let _ = journal.append(b"first", Level::Process).unwrap();
    // The head is written, the frame is not.
    disk.inject(Fault {
        operation: Operation::Write,
        path_contains: ".seg".to_owned(),
        skip: 1,
        times: 1,
        kind: FaultKind::Os(28),
    });
    assert!(matches!(journal.flush(Level::Process), Err(Error::Full(Full::Disk))));
    process.kill();
    std::mem::forget(journal);
    disk.inject(Fault {
        operation: Operation::Allocate,
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
        let mut reader = journal.reader(Start::At(1)).unwrap();
        while let Some(item) = reader.next().unwrap() {
            assert!(matches!(item, Item::Batch(_)), "{item:?}");
        }
        assert_eq!(reader.position(), u64::from(i) + 2);
    }
}

/// The head of the next segment may arrive without the frames it speaks of.
#[test]
fn a_repeat_of_what_a_power_cut_took_is_accepted_again() {
    let mut taken = 0;
    for seed in 0..400 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        let identity = Some(Identity { producer: 1, boot: 1, sequence: 1 });
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
        let mut reader = journal.reader(Start::Begin).unwrap();
        let mut there = 0;
        while let Some(item) = reader.next().unwrap() {
            if let Item::Batch(batch) = item {
                there += batch.records().filter(|record| record.identity == identity).count();
            }
        }
        assert_eq!(there, 1, "{seed}: {ack:?}");
        taken += u32::from(!ack.repeated);
    }
    assert!(taken > 10, "only {taken}");
}

#[test]
fn a_read_that_fails_once_costs_no_record() {
    for skip in 0..20 {
        let disk = SimDisk::new(1);
        create(&disk, &plain());
        let journal = open(&disk);
        for i in 0..40 {
            let _ = journal.append(&record(i), Level::Disk).unwrap();
        }
        let mut reader = journal.reader(Start::Begin).unwrap();
        disk.inject(Fault {
            operation: Operation::Read,
            path_contains: ".seg".to_owned(),
            skip,
            times: 1,
            kind: FaultKind::Os(5),
        });
        loop {
            match reader.next() {
                Ok(Some(Item::Batch(_))) | Err(_) => {}
                Ok(Some(Item::Gap(gap))) => panic!("{skip}: {gap:?}"),
                Ok(None) => break,
            }
        }
        assert_eq!(reader.position(), 40);
    }
}

#[test]
fn a_segment_that_could_not_be_removed_is_as_durable_as_it_counts() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        create(&disk, &plain());
        let journal = open(&disk);
        journal.add_subscriber("a", Start::Begin, true).unwrap();
        for i in 0..20 {
            let _ = journal.append(&record(i), Level::Process).unwrap();
        }
        journal.flush(Level::Process).unwrap();
        disk.inject(Fault {
            operation: Operation::Remove,
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
        let mut reader = journal.reader(Start::Begin).unwrap();
        while let Some(item) = reader.next().unwrap() {
            assert!(matches!(item, Item::Batch(_)), "{seed}: {item:?}");
        }
    }
}
