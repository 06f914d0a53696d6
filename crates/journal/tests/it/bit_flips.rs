//! Damage: every byte of every file of a small closed journal flipped in turn; every file truncated
//! at every length, missing, zeroed, or followed by garbage. Opening succeeds, all undamaged
//! records are read, and missing ones are a gap of exactly their positions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use journal::*;
use sim::SimDisk;

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

fn open(disk: &SimDisk) -> Result<Journal> {
    Journal::open(Arc::new(disk.process()), Path::new(DIR), &options())
}

type ReadRecords = BTreeMap<u64, (Option<BatchIdentity>, Vec<u8>)>;

/// A closed journal of several segments with a gap, a subscriber and a plain checkpoint, and its
/// expected content.
struct IntactJournal {
    disk: SimDisk,
    records: ReadRecords,
    /// Positions of each frame.
    frames: Vec<std::ops::Range<u64>>,
    end: u64,
}

fn identity(sequence: u64) -> BatchIdentity {
    BatchIdentity { producer: sequence % 2, epoch: 4, sequence }
}

const LAST: u64 = 41;

fn intact_journal() -> IntactJournal {
    let disk = SimDisk::new(3);
    let settings = small(Compression::None, LimitPolicy::DropOldest, Some(2 * SEGMENT_BYTES_MIN));
    Journal::create(&disk.process(), Path::new(DIR), 99, 0, &settings).unwrap();
    let journal = open(&disk).unwrap();
    journal.add_subscriber("a", StartPosition::First, true).unwrap();
    journal.add_checkpoint("m", StartPosition::At(0), false).unwrap();
    for i in 0..=LAST {
        let (one, two) = (vec![i as u8; 700], vec![!(i as u8); 30]);
        let _ = journal.append_batch(Some(identity(i)), &[&one, &two], Level::Process).unwrap();
        if i % 3 == 2 {
            journal.flush(Level::Process).unwrap();
        }
    }
    journal.set_checkpoint("a", StartPosition::At(journal.watermarks().first + 3)).unwrap();
    let end = journal.watermarks().end;
    journal.close().unwrap();
    let journal = open(&disk).unwrap();
    let (records, gaps) = read(&journal).unwrap();
    assert_eq!(gaps, []);
    let mut frames = Vec::new();
    let mut reader = journal.reader(StartPosition::First).unwrap();
    while let Some(item) = reader.next().unwrap() {
        if let ReadItem::Batch(batch) = item {
            frames.push(batch.positions());
        }
    }
    drop(reader);
    journal.close().unwrap();
    assert!(journal_files(&disk).len() > 8);
    IntactJournal { disk, records, frames, end }
}

fn journal_files(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    disk.files()
}

fn read(journal: &Journal) -> Result<(ReadRecords, Vec<RecordGap>)> {
    let (mut records, mut gaps) = (ReadRecords::new(), Vec::new());
    let mut reader = journal.reader(StartPosition::First)?;
    let mut next = reader.position();
    while let Some(item) = reader.next()? {
        let positions = match item {
            ReadItem::Batch(batch) => {
                for record in batch.records() {
                    records.insert(record.position, (record.identity, record.bytes.to_vec()));
                }
                batch.positions()
            }
            ReadItem::Gap(gap) => {
                gaps.push(gap.clone());
                gap.positions
            }
        };
        assert_eq!(positions.start, next, "what is delivered follows what was before");
        assert!(positions.end > next);
        next = positions.end;
    }
    assert_eq!(next, journal.watermarks().end);
    Ok((records, gaps))
}

/// Maximum loss in a damaged journal.
#[derive(Clone, Copy, PartialEq)]
enum AllowedLoss {
    /// None.
    Nothing,
    /// One frame.
    Frame,
    /// Everything in the file.
    File,
}

/// Opens a damaged copy and compares it with the original. Returns the number of missing records
/// and of forgotten producers.
fn check(sound: &IntactJournal, disk: &SimDisk, what: &str, worst: AllowedLoss) -> (usize, usize) {
    let journal = match open(disk) {
        Ok(journal) => journal,
        Err(Error::SettingsLost { .. } | Error::NotFound { .. })
            if what.contains("/journal/journal") =>
        {
            assert!(worst == AllowedLoss::File, "{what}");
            return (0, 0);
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let (records, gaps) = read(&journal).unwrap_or_else(|error| panic!("{what}: {error}"));
    for (position, record) in &records {
        assert_eq!(
            sound.records.get(position),
            Some(record),
            "{what}: {position} is not as it was"
        );
    }
    let missing: Vec<u64> =
        sound.records.keys().copied().filter(|position| !records.contains_key(position)).collect();
    // Exactly these positions are in gaps, unless they are the first: then the journal starts after
    // them.
    let first = journal.watermarks().first;
    // Records dropped before are not part of the loss.
    let kept = *sound.records.keys().next().expect("BUG: no record");
    let gaps: Vec<RecordGap> = gaps.into_iter().filter(|gap| gap.positions.end > kept).collect();
    let told: Vec<u64> = gaps.iter().flat_map(|gap| gap.positions.clone()).collect();
    let expected: Vec<u64> = missing.iter().copied().filter(|&p| p >= first).collect();
    assert_eq!(told, expected, "{what}: {gaps:?}");
    assert!(gaps.iter().all(|gap| gap.reason == GapReason::Damaged), "{what}: {gaps:?}");
    match worst {
        AllowedLoss::Nothing => assert_eq!(missing, [], "{what}"),
        AllowedLoss::Frame => {
            let hit = sound.frames.iter().filter(|frame| missing.contains(&frame.start));
            assert!(hit.count() <= 1, "{what}: {missing:?}");
        }
        AllowedLoss::File => {}
    }
    // Checkpoints are unchanged, or reported as corrupt.
    let stat = journal.stat().unwrap();
    for (name, position) in [("a", None), ("m", Some(0))] {
        match journal.checkpoint(name) {
            Ok(checkpoint) => {
                assert!(
                    position.is_none_or(|p| p == checkpoint.position),
                    "{what}: {checkpoint:?}"
                );
                assert!(checkpoint.position <= journal.watermarks().end, "{what}");
            }
            Err(Error::CheckpointCorrupt { .. }) => {
                assert!(stat.damaged_checkpoints.contains(&name.to_owned()), "{what}");
                journal.set_checkpoint(name, StartPosition::First).unwrap();
            }
            Err(Error::NoCheckpoint { .. }) => assert!(what.contains("missing"), "{what}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    // Positions continue, unless both the segment and the buffer's copy of the position are lost.
    let ack = journal.append(b"new", Level::Disk).unwrap();
    assert!(ack.positions.start >= sound.end, "{what}: {ack:?}");
    // Duplicates of present batches are recognised, except for producers whose last batch is
    // damaged.
    let mut forgotten = 0;
    for sequence in [LAST - 1, LAST] {
        let there = records.values().any(|(found, _)| *found == Some(identity(sequence)));
        let ack =
            journal.append_batch(Some(identity(sequence)), &[b"again"], Level::Process).unwrap();
        if !ack.is_duplicate {
            assert!(!there, "{what}: {:?} is there and was appended again", identity(sequence));
            forgotten += 1;
        }
    }
    journal.close().unwrap();
    // The same after another opening.
    let journal = open(disk).unwrap();
    read(&journal).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    (missing.len(), forgotten)
}

fn path_contains(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

/// One superblock copy remains intact.
fn flips(bits: &[u32], step: u64) -> (u32, u32, u32) {
    let sound = intact_journal();
    let (mut flips, mut lost, mut forgot) = (0, 0, 0);
    for (path, len) in journal_files(&sound.disk) {
        // Lock files are empty. The buffer is long and mostly zeros: a sample of it suffices.
        let step = if path_contains(&path, "buffer") { step * 3 + 2 } else { step };
        for byte in (0..len).step_by(step as usize) {
            for &bit in bits {
                let bit = if bit == u32::MAX { (byte % 8) as u32 } else { bit };
                let disk = sound.disk.fork(byte);
                disk.flip_bit(&path, byte, bit);
                let what = format!("bit {bit} of byte {byte} of {}", path.display());
                let worst = if path_contains(&path, ".seg") {
                    AllowedLoss::Frame
                } else {
                    AllowedLoss::Nothing
                };
                let (missing, forgotten) = check(&sound, &disk, &what, worst);
                flips += 1;
                lost += u32::from(missing > 0);
                forgot += u32::from(forgotten > 0);
            }
        }
    }
    (flips, lost, forgot)
}

#[test]
fn a_flipped_bit_costs_at_most_its_frame() {
    let (flips, lost, forgot) = flips(&[u32::MAX], 7);
    println!("{flips} flips, {lost} cost records, {forgot} a producer");
    assert!(flips > 4500, "only {flips}");
    assert!(lost > 1000 && forgot < lost, "{flips} {lost} {forgot}");
}

#[test]
#[ignore = "soak: every bit of every file of a small journal, many minutes"]
fn soak_a_flipped_bit_costs_at_most_its_frame() {
    flips(&[0, 1, 2, 3, 4, 5, 6, 7], 1);
}

fn lengths(step: u64) -> u32 {
    let sound = intact_journal();
    let mut tried = 0;
    for (path, len) in journal_files(&sound.disk) {
        for left in (0..len).step_by(step as usize) {
            let disk = sound.disk.fork(left);
            disk.truncate(&path, left);
            check(&sound, &disk, &format!("{left} bytes of {}", path.display()), AllowedLoss::File);
            tried += 1;
        }
    }
    tried
}

#[test]
fn truncated_file_loses_only_its_tail() {
    let tried = lengths(97);
    println!("{tried} lengths");
    assert!(tried > 300, "only {tried}");
}

#[test]
#[ignore = "soak: every length of every file, many minutes"]
fn soak_truncated_file_loses_only_its_tail() {
    lengths(1);
}

#[test]
fn missing_zero_or_longer_file_loses_only_itself() {
    let sound = intact_journal();
    for (path, len) in journal_files(&sound.disk) {
        let show = path.display();
        let disk = sound.disk.fork(1);
        disk.process().remove(&path).unwrap();
        check(&sound, &disk, &format!("missing {show}"), AllowedLoss::File);
        let disk = sound.disk.fork(1);
        disk.overwrite(&path, 0, &vec![0; len as usize]);
        check(&sound, &disk, &format!("zeros in {show}"), AllowedLoss::File);
        for garbage in [&b"x"[..], &[0xff; 5000], &[0; 9000]] {
            let disk = sound.disk.fork(1);
            disk.overwrite(&path, len, garbage);
            let what = format!("{} bytes behind {show}", garbage.len());
            let worst =
                if path_contains(&path, "gaps") { AllowedLoss::File } else { AllowedLoss::Nothing };
            check(&sound, &disk, &what, worst);
        }
    }
    // Directories are recreated.
    for dir in ["segments", "checkpoints", "locks"] {
        let disk = sound.disk.fork(1);
        for (path, _) in journal_files(&disk) {
            if path_contains(&path, dir) {
                disk.process().remove(&path).unwrap();
            }
        }
        check(&sound, &disk, &format!("missing all of {dir}"), AllowedLoss::File);
    }
}
