//! Journals of every released version are readable. The test itself created the directories under
//! `testdata/journal/`: `UPDATE_EXPECT=1` recreates those of the current version, which is allowed
//! only before that version is released.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use disk::OsDisk;
use journal::*;

use crate::basics::{TestDir, drain};

const NOW: i64 = 1_700_000_000_000_000_000;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/journal").join(name)
}

fn options() -> Options {
    Options { has_background_thread: false, clock: Arc::new(|| NOW), ..Options::default() }
}

fn record(i: u64) -> Vec<u8> {
    format!("host{:03} api.latency_ms{{route=\"/cart\"}} {}", i % 7, i * 13).into_bytes()
}

/// Content of a golden journal: 300 records in batches of three, of two producers in turn and of
/// none.
const BATCHES: u64 = 100;

fn identity(batch: u64) -> Option<BatchIdentity> {
    (!batch.is_multiple_of(3)).then_some(BatchIdentity {
        producer: batch % 3,
        epoch: 9,
        sequence: batch,
    })
}

fn make(dir: &Path, compression: Compression) {
    let limits = Limits {
        bytes_max: Some(1 << 20),
        age_max: Some(Duration::from_secs(3600)),
        on_full: LimitPolicy::DropOldest,
    };
    let settings = Settings {
        compression,
        buffer_bytes: 4096,
        segment_bytes: 16 << 10,
        dedup_producers: 4,
        limits,
    };
    Journal::create(&OsDisk, dir, 0x00112233445566778899aabbccddeeff, NOW, &settings).unwrap();
    let journal = Journal::open(Arc::new(OsDisk), dir, &options()).unwrap();
    journal.add_subscriber("site A", StartPosition::First, true).unwrap();
    for batch in 0..BATCHES {
        let records: Vec<_> = (batch * 3..batch * 3 + 3).map(record).collect();
        let records: Vec<_> = records.iter().map(Vec::as_slice).collect();
        let _ = journal.append_batch(identity(batch), &records, Level::Process).unwrap();
    }
    journal.add_checkpoint("middle", StartPosition::At(150), false).unwrap();
    journal.close().unwrap();
}

/// Checks a copy, because opening changes the directory.
#[track_caller]
fn check(name: &str) {
    let dir = TestDir::new();
    copy(&directory(name), &dir.0);
    let report = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!((report.damages.as_slice(), report.records), (&[][..], BATCHES * 3), "{name}");
    let journal = Journal::open(Arc::new(OsDisk), &dir.0, &options()).unwrap();
    assert_eq!(*journal.recovery_report(), RecoveryReport::default(), "{name}");
    assert_eq!(journal.checkpoint("middle").unwrap().position, 150);
    let repeat = journal.append_batch(identity(98), &[b"again"], Level::Process).unwrap();
    assert!(repeat.is_duplicate, "{name}");
    let mut subscriber = journal.subscribe("site A").unwrap();
    let (records, gaps) = drain(&mut subscriber);
    assert_eq!(gaps, []);
    let expected: Vec<_> = (0..BATCHES * 3).map(|i| (i, record(i))).collect();
    assert_eq!(records, expected, "{name}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in
        std::fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()))
    {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn journals_of_version_1_are_read() {
    for (name, compression) in [
        ("v1-none", Compression::None),
        ("v1-lz4", Compression::Lz4),
        ("v1-zstd", Compression::Zstd),
    ] {
        let golden = directory(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let _ = std::fs::remove_dir_all(&golden);
            let dir = TestDir::new();
            make(&dir.0, compression);
            copy(&dir.0, &golden);
            // Lock files are empty, and the buffer of a closed journal is recreated.
            std::fs::remove_dir_all(golden.join("locks")).unwrap();
            std::fs::remove_file(golden.join("buffer")).unwrap();
        }
        check(name);
    }
}

/// A journal whose only process was killed: a plain record, a batch and a batch with an identity
/// exist only in the buffer.
#[test]
fn a_buffer_of_version_1_is_read() {
    let golden = directory("v1-killed");
    let batch: [&[u8]; 2] = [b"two", b""];
    let tagged = Some(BatchIdentity { producer: 4, epoch: 5, sequence: 6 });
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let _ = std::fs::remove_dir_all(&golden);
        let dir = TestDir::new();
        let settings = Settings {
            compression: Compression::None,
            buffer_bytes: BUFFER_BYTES_MIN,
            segment_bytes: SEGMENT_BYTES_MIN,
            dedup_producers: 1,
            limits: Limits { bytes_max: None, age_max: None, on_full: LimitPolicy::Reject },
        };
        Journal::create(&OsDisk, &dir.0, 1, NOW, &settings).unwrap();
        let journal = Journal::open(Arc::new(OsDisk), &dir.0, &options()).unwrap();
        let _ = journal.append(b"one", Level::Process).unwrap();
        let _ = journal.append_batch(None, &batch, Level::Process).unwrap();
        let _ = journal.append_batch(tagged, &batch, Level::Process).unwrap();
        copy(&dir.0, &golden);
        std::fs::remove_dir_all(golden.join("locks")).unwrap();
    }
    let dir = TestDir::new();
    copy(&golden, &dir.0);
    let journal = Journal::open(Arc::new(OsDisk), &dir.0, &options()).unwrap();
    assert_eq!(journal.recovery_report().from_buffer, 5);
    let repeat = journal.append_batch(tagged, &batch, Level::Process).unwrap();
    assert_eq!((repeat.is_duplicate, repeat.positions), (true, 5..5));
    let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
    let expected: [&[u8]; 5] = [b"one", b"two", b"", b"two", b""];
    let expected: Vec<_> = (0..).zip(expected.map(<[u8]>::to_vec)).collect();
    assert_eq!((records, gaps), (expected, vec![]));
}

/// Without compression every byte is determined by the journal.
#[test]
fn written_bytes_match_the_golden_file() {
    let dir = TestDir::new();
    make(&dir.0, Compression::None);
    for file in
        ["journal", "segments/0000000000000000.seg", "checkpoints/middle", "checkpoints/site%20A"]
    {
        let now = std::fs::read(dir.0.join(file)).unwrap();
        let then = std::fs::read(directory("v1-none").join(file)).unwrap();
        assert!(now == then, "{file} differs: a changed byte is a new version");
    }
}
