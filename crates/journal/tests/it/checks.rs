//! Properties of arbitrary bytes: one check per fuzz target, by name. `fuzz/` includes this file by
//! path, and `fuzz_regressions` repeats the checks on inputs that once failed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use journal::*;
use sim::SimDisk;

/// A check; panics on failure.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 2] =
    [("journal_parts", parts), ("journal_files", files)];

/// The first byte selects a parser, the rest is its input.
fn parts(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => {
            let (count, sound) = fuzzing::body(bytes);
            assert!(count <= bytes.len() as u64, "a record takes a byte at least");
            assert!(!sound || count > 0 || bytes.is_empty());
        }
        1 => assert!(fuzzing::gaps(bytes) <= bytes.len()),
        _ => {
            if let Some((begin, end)) = fuzzing::ring(bytes) {
                assert!(begin < end && end - begin <= 512);
            }
        }
    }
}

const DIR: &str = "/j";
const RECORDS: u64 = 60;

fn record(i: u64) -> Vec<u8> {
    format!("record {i} {}", "abc".repeat((i % 50) as usize)).into_bytes()
}

fn options() -> Options {
    Options {
        has_background_thread: false,
        sync_interval: None,
        clock: Arc::new(|| 1),
        ..Options::default()
    }
}

/// A small journal with every feature, partly still in the buffer, and its files.
fn intact_journal() -> &'static (SimDisk, Vec<PathBuf>) {
    static INTACT: OnceLock<(SimDisk, Vec<PathBuf>)> = OnceLock::new();
    INTACT.get_or_init(|| {
        let disk = SimDisk::new(1);
        let process = disk.process();
        let limits =
            Limits { bytes_max: Some(1 << 20), age_max: None, on_full: LimitPolicy::DropOldest };
        let settings = Settings {
            compression: Compression::Lz4,
            buffer_bytes: 4096,
            segment_bytes: 16 << 10,
            dedup_producers: 2,
            limits,
        };
        Journal::create(&process, Path::new(DIR), 7, 0, &settings).unwrap();
        let journal = Journal::open(Arc::new(process.clone()), Path::new(DIR), &options()).unwrap();
        journal.add_subscriber("a", StartPosition::First, true).unwrap();
        for i in 0..RECORDS {
            let identity =
                (i % 2 == 0).then_some(BatchIdentity { producer: 1, epoch: 1, sequence: i });
            let level = if i % 20 == 19 { Level::Disk } else { Level::Process };
            let _ = journal.append_batch(identity, &[&record(i)], level).unwrap();
        }
        process.kill();
        drop(journal);
        let mut files: Vec<_> =
            disk.files().into_iter().filter(|(_, len)| *len > 0).map(|(path, _)| path).collect();
        files.sort();
        (disk, files)
    })
}

/// Every five bytes are an edit of a file: kind, file, offset (two bytes), value. After any edits
/// the journal opens or reports lost settings; delivered records were appended, are in order, and
/// have exact gaps; and after a repair it is intact.
fn files(bytes: &[u8]) {
    let (disk, paths) = intact_journal();
    let disk = disk.fork(1);
    for edit in bytes.chunks_exact(5).take(32) {
        let [file, how, high, low, what] = edit.try_into().expect("BUG: five bytes");
        let path: &Path = &paths[usize::from(file) % paths.len()];
        let Some(len) = disk.contents(path).map(|bytes| bytes.len() as u64).filter(|&len| len > 0)
        else {
            continue;
        };
        let at = u64::from(u16::from_be_bytes([high, low])) % len;
        match how % 8 {
            0 => disk.truncate(path, at),
            1 => disk.overwrite(path, len, &vec![what; usize::from(low)]),
            2 => disk.overwrite(path, at, &[what; 64]),
            _ => disk.flip_bit(path, at, u32::from(what % 8)),
        }
    }
    read(&disk);
    match repair(&disk.process(), Path::new(DIR), &mut |_| {}) {
        Err(Error::SettingsLost { .. } | Error::Version { .. }) => return,
        repaired => drop(repaired.unwrap()),
    }
    let report = verify(&disk.process(), Path::new(DIR), &mut |_| {}).unwrap();
    assert_eq!(report.damages, [], "after a repair");
    read(&disk);
}

fn read(disk: &SimDisk) {
    let process = disk.process();
    let journal = match Journal::open(Arc::new(process.clone()), Path::new(DIR), &options()) {
        Err(Error::SettingsLost { .. } | Error::Version { .. }) => return,
        opened => opened.unwrap(),
    };
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut position = reader.position();
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReadItem::Batch(batch) => {
                for found in batch.records() {
                    assert_eq!(found.position, position, "what is missing is a gap");
                    assert_eq!(
                        found.bytes,
                        record(position),
                        "what was not appended was delivered"
                    );
                    position += 1;
                }
                assert_eq!(batch.positions().end, position);
            }
            ReadItem::Gap(gap) => {
                assert_eq!(gap.positions.start, position);
                position = gap.positions.end;
            }
        }
    }
    assert_eq!(position, journal.watermarks().end);
    drop(reader);
    // A sequence above all others is new, whatever is recorded of them.
    let identity = Some(BatchIdentity { producer: 1, epoch: 1, sequence: RECORDS + position });
    let ack = journal.append_batch(identity, &[&record(position)], Level::Disk).unwrap();
    assert_eq!(
        (ack.positions, ack.level, ack.is_duplicate),
        (position..position + 1, Level::Disk, false)
    );
}
