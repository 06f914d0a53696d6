//! Behaviour of a journal without faults.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use disk::{Disk, OsDisk};
use journal::*;
use sim::SimDisk;

/// A temporary directory, removed at the end.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("topdeck-journal-{}-{number}", std::process::id());
            // `Journal::create` creates it; another process with the same id may have left one.
            let path = std::env::temp_dir().join(name);
            if !path.exists() {
                return TestDir(path);
            }
        }
    }

    fn create(&self, settings: &Settings) {
        Journal::create(&OsDisk, &self.0, 7, 0, settings).unwrap();
    }

    fn open(&self) -> Journal {
        Journal::open(Arc::new(OsDisk), &self.0, &Options::default()).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn small(compression: Compression) -> Settings {
    Settings {
        compression,
        buffer_bytes: 16 << 10,
        segment_bytes: 64 << 10,
        limits: Limits { bytes_max: None, age_max: None, on_full: LimitPolicy::Reject },
        ..Settings::default()
    }
}

fn record(i: u64) -> Vec<u8> {
    format!("record {i} {}", "x".repeat((i % 97) as usize)).into_bytes()
}

/// Everything that a reader returns now.
pub(crate) fn drain(reader: &mut JournalReader) -> (Vec<(u64, Vec<u8>)>, Vec<RecordGap>) {
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReadItem::Batch(batch) => {
                records.extend(batch.records().map(|r| (r.position, r.bytes.to_vec())))
            }
            ReadItem::Gap(gap) => gaps.push(gap),
        }
    }
    (records, gaps)
}

#[track_caller]
fn check(journal: &Journal, count: u64) {
    for buffered in [true, false] {
        if !buffered {
            journal.flush(Level::Process).unwrap();
        }
        let mut reader = journal.reader(StartPosition::First).unwrap();
        reader.set_reads_buffer(buffered);
        let (records, gaps) = drain(&mut reader);
        assert_eq!(gaps, []);
        assert_eq!(records.len() as u64, count);
        for (i, (position, bytes)) in records.into_iter().enumerate() {
            assert_eq!((position, bytes), (i as u64, record(i as u64)));
        }
    }
}

#[test]
fn appended_records_are_read() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let dir = TestDir::new();
        dir.create(&small(compression));
        let journal = dir.open();
        for i in 0..5000 {
            let ack = journal.append(&record(i), Level::Process).unwrap();
            assert_eq!(
                ack,
                Ack { positions: i..i + 1, level: Level::Process, is_duplicate: false }
            );
        }
        check(&journal, 5000);
        drop(journal);
        let journal = dir.open();
        assert_eq!(*journal.recovery_report(), RecoveryReport::default());
        check(&journal, 5000);
        assert_eq!(journal.append(&record(5000), Level::Disk).unwrap().level, Level::Disk);
        check(&journal, 5001);
        let marks = journal.close().unwrap();
        assert_eq!(marks, Watermarks { first: 0, durable: 5001, flushed: 5001, end: 5001 });
    }
}

#[test]
fn batches_are_whole_and_repeats_are_recognised() {
    let dir = TestDir::new();
    dir.create(&small(Compression::Lz4));
    let identity = |sequence| Some(BatchIdentity { producer: 1, epoch: 2, sequence });
    let big = vec![7; 12 << 10];
    {
        let journal = dir.open();
        let ack = journal.append_batch(identity(1), &[b"a", b"", b"c"], Level::Disk).unwrap();
        assert_eq!((ack.positions, ack.is_duplicate), (0..3, false));
        let ack = journal.append_batch(identity(1), &[b"a", b"", b"c"], Level::Disk).unwrap();
        assert_eq!((ack.positions, ack.is_duplicate, ack.level), (3..3, true, Level::Disk));
        // Larger than half the buffer.
        assert_eq!(
            journal.append_batch(identity(5), &[&big, &[]], Level::Disk).unwrap().positions,
            3..5
        );
        assert!(journal.append_batch(identity(4), &[b"z"], Level::Disk).unwrap().is_duplicate);
        assert_eq!(journal.append_batch(None, &[], Level::Disk).unwrap().positions, 5..5);
    }
    let journal = dir.open();
    assert!(journal.append_batch(identity(5), &[b"z"], Level::Disk).unwrap().is_duplicate);
    assert!(!journal.append_batch(identity(6), &[b"z"], Level::Disk).unwrap().is_duplicate);
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut seen = Vec::new();
    while let Some(ReadItem::Batch(batch)) = reader.next().unwrap() {
        seen.extend(batch.records().map(|r| (r.position, r.identity, r.bytes.len())));
    }
    let expected = [(1, 1), (1, 0), (1, 1), (5, big.len()), (5, 0), (6, 1)];
    let expected = expected.iter().enumerate().map(|(i, &(s, len))| (i as u64, identity(s), len));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    assert!(matches!(
        journal.append(&vec![0; 20 << 10], Level::Memory),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn subscribers_resume_and_release_segments() {
    let dir = TestDir::new();
    dir.create(&small(Compression::None));
    let journal = dir.open();
    journal.add_subscriber("a", StartPosition::First, true).unwrap();
    journal.add_subscriber("b", StartPosition::First, true).unwrap();
    for i in 0..5000 {
        let _ = journal.append(&record(i), Level::Process).unwrap();
    }
    journal.flush(Level::Process).unwrap();
    let all = journal.stat().unwrap().segments;
    assert!(all > 3, "{all}");
    for name in ["a", "b"] {
        let mut subscriber = journal.subscribe(name).unwrap();
        assert!(matches!(journal.subscribe(name), Err(Error::CheckpointLocked { .. })));
        let (records, gaps) = drain(&mut subscriber);
        assert_eq!((records.len(), gaps.len()), (5000, 0));
        subscriber.commit(4000, Level::Disk).unwrap();
        let beyond = subscriber.commit(5001, Level::Disk);
        assert!(matches!(beyond, Err(Error::CommitBeyondRead { found: 5001, read_to: 5000 })));
    }
    let stat = journal.stat().unwrap();
    assert!(stat.segments < all, "{stat:?}");
    assert!(stat.watermarks.first > 0 && stat.watermarks.first <= 4000);
    let mut subscriber = journal.subscribe("a").unwrap();
    let (records, gaps) = drain(&mut subscriber);
    assert_eq!((records[0].0, records.len(), gaps.len()), (4000, 1000, 0));
    drop(subscriber);
    journal.add_checkpoint("here", StartPosition::At(4500), true).unwrap();
    let position = journal.checkpoint("here").unwrap().position;
    journal.set_checkpoint("a", StartPosition::At(position)).unwrap();
    assert_eq!(journal.subscribe("a").unwrap().position(), 4500);
    journal.remove_checkpoint("b").unwrap();
    assert!(matches!(journal.subscribe("b"), Err(Error::NoCheckpoint { .. })));
    assert!(matches!(
        journal.set_checkpoint("a", StartPosition::At(9999)),
        Err(Error::PositionOutOfRange { .. })
    ));
}

#[test]
fn limit_rejects_or_drops_with_a_gap() {
    for at_limit in [LimitPolicy::Reject, LimitPolicy::DropOldest] {
        let dir = TestDir::new();
        let limits = Limits { bytes_max: Some(256 << 10), age_max: None, on_full: at_limit };
        dir.create(&Settings { limits, ..small(Compression::None) });
        let journal = dir.open();
        journal.add_subscriber("slow", StartPosition::First, true).unwrap();
        let mut accepted = 0;
        for i in 0..20_000 {
            let identity = Some(BatchIdentity { producer: 3, epoch: 4, sequence: i });
            match journal.append_batch(identity, &[&record(i)], Level::Process) {
                Ok(_) => accepted += 1,
                Err(Error::Full(FullReason::RetentionLimit { holder, .. })) => {
                    assert_eq!(holder.as_deref(), Some("slow"));
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let mut subscriber = journal.subscribe("slow").unwrap();
        let (records, gaps) = drain(&mut subscriber);
        match at_limit {
            LimitPolicy::Reject => {
                assert!(accepted < 20_000);
                assert_eq!(gaps, []);
                assert_eq!(records.len() as u64, accepted);
                subscriber.commit(subscriber.position(), Level::Disk).unwrap();
                let _ = journal.append(b"there is room again", Level::Disk).unwrap();
            }
            LimitPolicy::DropOldest => {
                assert_eq!(accepted, 20_000);
                assert_eq!(gaps.len(), 1, "{gaps:?}");
                let gap = &gaps[0];
                assert_eq!(
                    (gap.positions.start, gap.reason, gap.is_complete),
                    (0, GapReason::BytesLimit, true)
                );
                assert_eq!(gap.records() + records.len() as u64, accepted);
                assert_eq!(gap.producers.len(), 1);
                assert_eq!(gap.producers[0].sequences, 0..=gap.records() - 1);
                assert_eq!(gap.producers[0].records, gap.records());
            }
        }
    }
}

#[test]
fn after_a_flood_of_one_clients_producers_a_retry_of_another_is_a_repeat() {
    let dir = TestDir::new();
    dir.create(&Settings { dedup_producers: 64, ..small(Compression::Lz4) });
    let append = |journal: &Journal, origin, producer| {
        let identity =
            BatchIdentity { producer: with_origin(origin, producer), epoch: 1, sequence: 1 };
        journal.append_batch(Some(identity), &[b"x"], Level::Process).unwrap().is_duplicate
    };
    let journal = dir.open();
    assert!((0..8).all(|producer| !append(&journal, 1, producer)));
    // Enough to fill several segments.
    assert!((0..5_000).all(|producer| !append(&journal, 2, producer)));
    assert!((0..8).all(|producer| append(&journal, 1, producer)), "they would count twice");
    drop(journal);
    let journal = dir.open();
    assert!((0..8).all(|producer| append(&journal, 1, producer)), "also after a restart");
    assert!(append(&journal, 2, 4_999), "and so are the latest of the flood");
}

#[test]
fn a_damaged_frame_whose_head_is_sound_says_when_it_was_appended() {
    let disk = SimDisk::new(1);
    let process: Arc<dyn Disk> = Arc::new(disk.process());
    let dir = Path::new("/journal");
    Journal::create(&*process, dir, 7, 0, &small(Compression::None)).unwrap();
    let now = Arc::new(AtomicI64::new(0));
    let clock = Arc::clone(&now);
    let supervisor = Supervisor::default();
    let options = Options {
        is_exclusive: true,
        has_background_thread: false,
        clock: Arc::new(move || clock.load(Ordering::SeqCst)),
        supervisor: supervisor.clone(),
        ..Options::default()
    };
    let open = || Journal::open(Arc::clone(&process), dir, &options).unwrap();
    let journal = open();
    for (second, text) in [b"one..", b"two..", b"three", b"four."].into_iter().enumerate() {
        now.store(second as i64, Ordering::SeqCst);
        let _ack = journal.append(text, Level::Disk).unwrap();
    }
    drop(journal);
    for text in [b"two..", b"three"] {
        let files = disk.files().into_iter().map(|(path, _)| path);
        let of_text = files.filter_map(|path| {
            let bytes = disk.contents(&path)?;
            let at = bytes.windows(text.len()).position(|found| found == text)?;
            path.to_string_lossy().contains("/segments/").then_some((path, at as u64))
        });
        of_text.for_each(|(path, at)| disk.flip_bit(&path, at, 0));
    }
    let journal = open();
    let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
    assert_eq!(records.len(), 2);
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((gap.positions.clone(), gap.reason), (1..3, GapReason::Damaged));
    assert_eq!(gap.time, Some(1..=2));
    let [report] = &supervisor.damage()[..] else { panic!("{:?}", supervisor.damage()) };
    assert_eq!((&*report.location, report.records), ("records 1..3 of the journal", 2));
}

#[test]
fn waiting_reader_is_woken() {
    let dir = TestDir::new();
    dir.create(&small(Compression::None));
    let journal = dir.open();
    let mut reader = journal.reader(StartPosition::End).unwrap();
    assert!(!reader.wait(Some(Duration::from_millis(5))).unwrap());
    let fd = reader.readiness().unwrap().try_clone_to_owned().unwrap();
    let mut event = [0; 8];
    assert!(rustix::io::read(&fd, &mut event).is_err(), "nothing yet");
    std::thread::scope(|scope| {
        scope.spawn(|| journal.append(b"x", Level::Process).unwrap());
        assert!(reader.wait(None).unwrap());
    });
    assert_eq!(drain(&mut reader).0.len(), 1);
    let _ = journal.append(b"y", Level::Process).unwrap();
    let since = std::time::Instant::now();
    while rustix::io::read(&fd, &mut event).is_err() {
        assert!(since.elapsed() < Duration::from_secs(60), "the descriptor never became readable");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_threads_append_and_all_is_there() {
    let dir = TestDir::new();
    dir.create(&small(Compression::Lz4));
    let journal = dir.open();
    const THREADS: u64 = 8;
    const EACH: u64 = 500;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                for i in 0..EACH {
                    let level = if i % 10 == 0 { Level::Disk } else { Level::Process };
                    let bytes = [thread.to_le_bytes(), i.to_le_bytes()].concat();
                    assert!(journal.append(&bytes, level).unwrap().level >= level);
                }
            });
        }
    });
    let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
    assert_eq!((records.len() as u64, gaps.len()), (THREADS * EACH, 0));
    let mut next = [0; THREADS as usize];
    for (_, bytes) in records {
        let number = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap());
        assert_eq!(number(8), next[number(0) as usize], "order holds per thread");
        next[number(0) as usize] += 1;
    }
}

#[test]
fn damage_is_named_counted_and_repaired() {
    let dir = TestDir::new();
    dir.create(&small(Compression::None));
    {
        let journal = dir.open();
        journal.add_subscriber("s", StartPosition::First, true).unwrap();
        for i in 0..5000 {
            let _ = journal.append(&record(i), Level::Process).unwrap();
        }
        journal.close().unwrap();
    }
    let sound = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!((sound.damages.len(), sound.records, sound.positions.clone()), (0, 5000, 0..5000));
    let segments = dir.0.join("segments");
    let mut names: Vec<_> =
        std::fs::read_dir(&segments).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let mut bytes = std::fs::read(&names[1]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&names[1], bytes).unwrap();
    let report = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!(report.damages.len(), 1, "{report:?}");
    let damage = report.damages[0].clone();
    assert!(damage.bytes.contains(&(middle as u64)) && damage.path == names[1]);
    let lost = damage.positions.end - damage.positions.start;
    assert_eq!(report.records + lost, 5000);
    let expect = |journal: &Journal| {
        let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
        // An intact frame header has the time; a repaired journal has lost it.
        let time = gaps[0].time.clone();
        assert_eq!(
            gaps,
            [RecordGap {
                positions: damage.positions.clone(),
                reason: GapReason::Damaged,
                time,
                producers: vec![],
                is_complete: false
            }]
        );
        assert_eq!(records.len() as u64, 5000 - lost);
    };
    expect(&dir.open());
    let repaired = repair(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!(repaired.damages, report.damages);
    assert_eq!(repaired.repaired.len(), 3, "{:?}", repaired.repaired);
    let after = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!(
        (after.damages.len(), after.records, after.explained_gaps.len()),
        (0, 5000 - lost, 1)
    );
    let again = repair(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!(again.repaired, Vec::<String>::new());
    let journal = dir.open();
    expect(&journal);
    assert!(matches!(repair(&OsDisk, &dir.0, &mut |_| {}), Err(Error::InUse { .. })));
    let live = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!((live.damages.len(), live.records), (0, 5000 - lost));
}

/// Published bytes are never reported as a torn tail, which would not be damage.
#[test]
fn damage_of_the_last_frame_is_damage() {
    let dir = TestDir::new();
    dir.create(&small(Compression::None));
    {
        let journal = dir.open();
        for i in 0..10 {
            let _ = journal.append(&record(i), Level::Disk).unwrap();
        }
        journal.close().unwrap();
    }
    let path = dir.0.join("segments/0000000000000000.seg");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let report = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert_eq!((report.damages.len(), report.torn_bytes), (1, 0), "{report:?}");
    assert_eq!(report.damages[0].positions, 9..10);
    let repaired = repair(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert!(repaired.repaired.iter().any(|line| line.contains("quarantine")), "{repaired:?}");
    let journal = dir.open();
    let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
    // The buffer may still have the record.
    assert!(
        records.len() == 10 || (records.len() == 9 && gaps[0].positions == (9..10)),
        "{gaps:?}"
    );
    assert_eq!(journal.append(b"on", Level::Disk).unwrap().positions, 10..11);
}

/// Mixed segments of two copies of a journal overlap: the missing range between them is negative.
#[test]
fn repair_of_overlapping_segments_overflows_nothing() {
    let dir = TestDir::new();
    dir.create(&small(Compression::None));
    let journal = dir.open();
    for i in 0..20_000 {
        let _ = journal.append(&record(i), Level::Memory).unwrap();
    }
    let _ = journal.flush(Level::Disk).unwrap();
    journal.close().unwrap();
    let segments = dir.0.join("segments");
    let mut names: Vec<_> =
        std::fs::read_dir(&segments).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert!(names.len() > 2, "{names:?}");
    // The second segment's name is too low by half, and it ends with the first bytes of a frame.
    let first = |path: &std::path::Path| {
        u64::from_str_radix(path.file_stem().unwrap().to_str().unwrap(), 16).unwrap()
    };
    let early = segments.join(format!("{:016x}.seg", first(&names[1]) / 2));
    std::fs::rename(&names[1], &early).unwrap();
    let mut bytes = std::fs::read(&names[0]).unwrap();
    bytes.extend([7; 64]);
    std::fs::write(&names[0], bytes).unwrap();
    let report = verify(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    let is_inverted = |positions: &std::ops::Range<u64>| positions.end < positions.start;
    let inverted = report.damages.iter().filter(|damage| is_inverted(&damage.positions)).count();
    assert_eq!(inverted, 1, "{report:?}");
    let repaired = repair(&OsDisk, &dir.0, &mut |_| {}).unwrap();
    assert!(repaired.repaired.iter().any(|line| line.contains("quarantine")), "{repaired:?}");
    let journal = dir.open();
    let (records, gaps) = drain(&mut journal.reader(StartPosition::First).unwrap());
    assert!(!records.is_empty() && !gaps.is_empty(), "what can be read is read, the rest a gap");
}

/// Records crafted to look like entry headers once took minutes: each was checked to the end of the
/// ring.
#[test]
fn journal_opens_with_adversarial_records() {
    let dir = TestDir::new();
    dir.create(&Settings { buffer_bytes: 4 << 20, ..small(Compression::None) });
    // A double whose upper half reads as a length, and a number that may be a position.
    let record: Vec<u8> =
        (0..512u64).flat_map(|i| [1.5f64.to_bits(), i]).flat_map(u64::to_le_bytes).collect();
    let many = vec![record.as_slice(); 1];
    let journal = dir.open();
    for _ in 0..600 {
        let _ = journal.append_batch(None, &many, Level::Process).unwrap();
    }
    journal.close().unwrap();
    // With an invalid header, the whole ring is scanned.
    let buffer = std::fs::File::options().write(true).open(dir.0.join("buffer")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&buffer, &[0; 4096], 4096).unwrap();
    let began = std::time::Instant::now();
    let journal = dir.open();
    assert_eq!(journal.watermarks().end, 600);
    // A generous limit: it used to take minutes.
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn reader_seeks_and_reports_times() {
    let dir = TestDir::new();
    dir.create(&small(Compression::Lz4));
    let options = Options { clock: Arc::new(|| 77), ..Options::default() };
    let journal = Journal::open(Arc::new(OsDisk), &dir.0, &options).unwrap();
    for i in 0..3000 {
        let _ = journal.append(&record(i), Level::Process).unwrap();
    }
    let mut reader = journal.reader(StartPosition::First).unwrap();
    // In segments and in the buffer, in the middle of frames, in both directions.
    for position in [2999, 1234, 0, 2000, 1, 3000] {
        reader.seek(position).unwrap();
        let next = reader.next().unwrap();
        let Some(ReadItem::Batch(batch)) = next else {
            assert!(next.is_none() && position == 3000, "{position}: {next:?}");
            continue;
        };
        assert_eq!((batch.positions().start, batch.times()), (position, (77, 77)));
        assert_eq!(batch.records().next().unwrap().bytes, record(position));
    }
    assert!(matches!(
        reader.seek(3001),
        Err(Error::PositionOutOfRange { found: 3001, first: 0, end: 3000 })
    ));
}
