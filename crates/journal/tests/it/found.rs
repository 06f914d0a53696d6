//! What the fault tests found, each by itself and as small as it gets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::SimDisk;
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
    let disk = SimDisk::new(1);
    create(&disk, &plain());
    disk.power_cut();
    open(&disk);
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
