//! `kill -9` of writers and readers at random times: acknowledged records are present exactly once
//! and no others, subscribers get everything in order, and surviving processes continue.
//!
//! A *round* is one kill and the check after it. Writers number their batches and, after a restart,
//! repeat those not known to be acknowledged, so that the journal must end with every number
//! exactly once.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use journal::*;

use crate::processes::{
    ChildArguments, ChildProcess, SharedCounter, TestDir, Xorshift64, open, print_line, sizes,
    wait_for,
};

/// Records whose content identifies their producer and detects corruption.
pub(crate) mod records {
    use super::*;

    /// Producer, batch, index in the batch, and size of the batch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RecordLabel {
        pub(crate) producer: u64,
        pub(crate) sequence: u64,
        pub(crate) index: u64,
        pub(crate) count: u64,
    }

    pub(crate) fn make(label: RecordLabel, filler_max: u64) -> Vec<u8> {
        let RecordLabel { producer, sequence, index, count } = label;
        let mut bytes: Vec<u8> =
            [producer, sequence, index, count].iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut random = Xorshift64::new(producer << 48 ^ sequence << 8 ^ index);
        let len = random.below(filler_max + 1);
        bytes.extend((0..len).map(|i| (random_byte(label) ^ i) as u8));
        bytes
    }

    fn random_byte(label: RecordLabel) -> u64 {
        Xorshift64::new(label.sequence * 31 + label.index + label.producer).next() >> 32
    }

    /// Parses a record; panics unless it is one that `make` makes.
    pub(crate) fn label(bytes: &[u8]) -> RecordLabel {
        let number = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().unwrap());
        let label = RecordLabel {
            producer: number(0),
            sequence: number(1),
            index: number(2),
            count: number(3),
        };
        let byte = random_byte(label);
        let whole = bytes[32..].iter().enumerate().all(|(i, &b)| b == (byte ^ i as u64) as u8);
        assert!(whole, "record {label:?} is not what was appended");
        label
    }

    /// Records of a batch.
    pub(crate) fn batch(producer: u64, sequence: u64, kind: &BatchShape) -> Vec<Vec<u8>> {
        let mut random = Xorshift64::new(producer.wrapping_mul(77) + sequence);
        let large = kind.large_every > 0 && random.below(kind.large_every) == 0;
        let (count, filler) = match large {
            true => (3 + random.below(3), kind.large_filler),
            false => (1 + random.below(kind.records_max), kind.filler_max),
        };
        (0..count)
            .map(|index| make(RecordLabel { producer, sequence, index, count }, filler))
            .collect()
    }

    /// Kind of batches of a writer.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct BatchShape {
        pub(crate) records_max: u64,
        pub(crate) filler_max: u64,
        /// One in this many is large; 0: none.
        pub(crate) large_every: u64,
        pub(crate) large_filler: u64,
        /// One in this many is appended at level `disk`; 0: none.
        pub(crate) disk_every: u64,
    }

    impl BatchShape {
        pub(crate) const SMALL: BatchShape = BatchShape {
            records_max: 4,
            filler_max: 90,
            large_every: 0,
            large_filler: 0,
            disk_every: 50,
        };
        /// Some larger than half of a buffer of 4 KiB, all within a quarter of 16 KiB.
        pub(crate) const LARGE: BatchShape = BatchShape {
            records_max: 4,
            filler_max: 90,
            large_every: 8,
            large_filler: 700,
            disk_every: 50,
        };

        pub(crate) fn parse(name: &str) -> BatchShape {
            match name {
                "large" => BatchShape::LARGE,
                _ => BatchShape::SMALL,
            }
        }
    }
}

use records::{BatchShape, RecordLabel};

/// Role of a writer: journal, producer, file with the acknowledged count, kind of batches.
pub(crate) fn writer(part: ChildArguments) {
    let journal = match part.arguments.get(4).map(String::as_str) {
        Some("again") => reopen(part.path(0)),
        _ => open(part.path(0), &Options::default()).unwrap(),
    };
    let producer = part.number(1);
    let acked = SharedCounter::at(part.path(2));
    let kind = BatchShape::parse(&part.arguments[3]);
    let mut sequence = acked.get();
    // Acknowledged batches are recognised as duplicates when repeated.
    if let Some(known) = sequence.checked_sub(1) {
        let ack = append(&journal, producer, known, &kind);
        assert!(ack.is_duplicate, "acknowledged and not known: {producer} {known}");
    }
    loop {
        let ack = append(&journal, producer, sequence, &kind);
        let wanted = level(sequence, &kind);
        assert!(ack.level >= wanted, "{ack:?} is not {wanted}");
        sequence += 1;
        acked.set(sequence);
    }
}

fn level(sequence: u64, kind: &BatchShape) -> Level {
    match kind.disk_every > 0 && sequence.is_multiple_of(kind.disk_every) {
        true => Level::Disk,
        false => Level::Process,
    }
}

fn append(journal: &Journal, producer: u64, sequence: u64, kind: &BatchShape) -> Ack {
    let batch = records::batch(producer, sequence, kind);
    let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
    let identity = BatchIdentity { producer, epoch: 1, sequence };
    let ack = journal.append_batch(Some(identity), &batch, level(sequence, kind));
    ack.unwrap_or_else(|error| panic!("producer {producer}, batch {sequence}: {error}"))
}

/// Opens and closes several times before it stays open, to be killed meanwhile.
fn reopen(dir: &Path) -> Journal {
    for _ in 0..3 {
        drop(open(dir, &Options::default()).unwrap());
    }
    open(dir, &Options::default()).unwrap()
}

/// Log entry of a reader: kind, position, and a checksum of the record.
const LOG_ENTRY_BYTES: usize = 24;
const READ: u64 = 1;
const COMMITTED: u64 = 2;
const STARTED: u64 = 3;

/// Role of a reader: journal, subscriber, log file.
pub(crate) fn reader(part: ChildArguments) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let file = fs::File::options().append(true).create(true).open(part.path(2)).unwrap();
    let whole = file.metadata().unwrap().len() / LOG_ENTRY_BYTES as u64 * LOG_ENTRY_BYTES as u64;
    file.set_len(whole).unwrap();
    let mut subscriber = journal.subscribe(&part.arguments[1]).unwrap();
    let note = |notes: &[(u64, u64, u64)]| {
        let bytes: Vec<u8> =
            notes.iter().flat_map(|n| [n.0, n.1, n.2]).flat_map(|n| n.to_le_bytes()).collect();
        (&file).write_all(&bytes).unwrap();
    };
    note(&[(STARTED, subscriber.position(), 0)]);
    let mut rounds = 0u64;
    loop {
        let mut notes = Vec::new();
        match subscriber.next().unwrap() {
            Some(ReadItem::Batch(batch)) => {
                notes.extend(batch.records().map(|r| (READ, r.position, sum(r.bytes))));
            }
            Some(ReadItem::Gap(gap)) => panic!("nothing is missing, but: {gap:?}"),
            None => {
                subscriber.wait(Some(Duration::from_millis(200))).unwrap();
                continue;
            }
        }
        note(&notes);
        let level = if rounds.is_multiple_of(20) { Level::Disk } else { Level::Process };
        rounds += 1;
        let position = subscriber.position();
        subscriber.commit(position, level).unwrap();
        note(&[(COMMITTED, position, 0)]);
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, &b| sum.rotate_left(5) ^ u64::from(b).wrapping_mul(0x9e37_79b9))
}

/// State of a test: directory, logs of its processes, and the expected content of the journal.
struct KillFixture {
    kind: &'static str,
    writers: Vec<Option<ChildProcess>>,
    readers: Vec<Option<ChildProcess>>,
    acknowledged: Vec<SharedCounter>,
    /// Next batch of each producer, and the record in it.
    next: Vec<(u64, u64)>,
    /// Checksums of the records by position.
    sums: Vec<u64>,
    /// Checked part of each reader's log: bytes, next position, last commit.
    read_logs: Vec<(usize, u64, u64)>,
    random: Xorshift64,
    /// Last, so that it is removed after all users.
    directory: TestDir,
}

impl KillFixture {
    fn new(
        name: &str,
        seed: u64,
        writers: usize,
        readers: usize,
        kind: &'static str,
        settings: &Settings,
    ) -> KillFixture {
        let directory = TestDir::new(name);
        directory.create(settings);
        let journal = directory.open();
        journal.add_subscriber("audit", StartPosition::First, true).unwrap();
        for reader in 0..readers {
            journal.add_subscriber(&format!("r{reader}"), StartPosition::First, true).unwrap();
        }
        drop(journal);
        let acked = (0..writers)
            .map(|i| SharedCounter::at(&directory.0.join(format!("acked-{i}"))))
            .collect();
        KillFixture {
            directory,
            kind,
            writers: (0..writers).map(|_| None).collect(),
            readers: (0..readers).map(|_| None).collect(),
            acknowledged: acked,
            next: vec![(0, 0); writers],
            sums: Vec::new(),
            read_logs: vec![(0, 0, 0); readers],
            random: Xorshift64::new(seed),
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.0.join(name).to_str().unwrap().to_owned()
    }

    fn start_writer(&mut self, i: usize, how: &str) {
        let arguments =
            [&self.path("j"), &i.to_string(), &self.path(&format!("acked-{i}")), self.kind, how];
        self.writers[i] = Some(ChildProcess::start("writer", &arguments));
    }

    fn start_reader(&mut self, i: usize) {
        let arguments = [&self.path("j"), &format!("r{i}"), &self.path(&format!("notes-{i}"))];
        self.readers[i] = Some(ChildProcess::start("reader", &arguments.map(|s| s.as_str())));
    }

    fn read_log_path(&self, i: usize) -> PathBuf {
        self.directory.0.join(format!("notes-{i}"))
    }

    fn read_log_len(&self, i: usize) -> u64 {
        fs::metadata(self.read_log_path(i)).map_or(0, |m| m.len())
    }

    /// Waits until each running process has made progress.
    #[track_caller]
    fn wait_for_progress(&mut self) {
        let acked: Vec<u64> = self.acknowledged.iter().map(SharedCounter::get).collect();
        let noted: Vec<u64> = (0..self.readers.len()).map(|i| self.read_log_len(i)).collect();
        for (i, before) in acked.into_iter().enumerate() {
            if let Some(child) = &mut self.writers[i] {
                let acked = &self.acknowledged[i];
                wait_for(&format!("writer {i} goes on"), 10, || {
                    assert!(!child.has_ended(), "writer {i} has failed");
                    acked.get() > before + 1
                });
            }
        }
        // Readers progress only while a writer runs.
        if self.writers.iter().all(Option::is_none) {
            return;
        }
        for (i, before) in noted.into_iter().enumerate() {
            let path = self.read_log_path(i);
            if let Some(child) = &mut self.readers[i] {
                wait_for(&format!("reader {i} goes on"), 10, || {
                    assert!(!child.has_ended(), "reader {i} has failed");
                    fs::metadata(&path).map_or(0, |m| m.len()) > before
                });
            }
        }
    }

    /// Reads new records and compares them with those acknowledged before.
    #[track_caller]
    fn audit(&mut self) {
        let acked: Vec<u64> = self.acknowledged.iter().map(SharedCounter::get).collect();
        let since = Instant::now();
        let journal = self.directory.open();
        assert!(journal.recovery_report().gaps.is_empty(), "{:?}", journal.recovery_report());
        assert!(
            journal.recovery_report().damaged_files.is_empty(),
            "{:?}",
            journal.recovery_report()
        );
        let mut subscriber = journal.subscribe("audit").unwrap();
        assert_eq!(subscriber.position(), self.sums.len() as u64);
        let end = journal.watermarks().end;
        let kind = BatchShape::parse(self.kind);
        while subscriber.position() < end {
            match subscriber.next().unwrap() {
                Some(ReadItem::Batch(batch)) => {
                    for record in batch.records() {
                        assert_eq!(record.position, self.sums.len() as u64);
                        self.sums.push(sum(record.bytes));
                        let label = records::label(record.bytes);
                        let RecordLabel { producer, sequence, index, count } = label;
                        let next = &mut self.next[producer as usize];
                        assert_eq!((sequence, index), *next, "each once and in order: {label:?}");
                        let identity = BatchIdentity { producer, epoch: 1, sequence };
                        assert_eq!(record.identity, Some(identity));
                        *next = if index + 1 == count {
                            (sequence + 1, 0)
                        } else {
                            (sequence, index + 1)
                        };
                        if index == 0 {
                            assert_eq!(
                                count,
                                records::batch(producer, sequence, &kind).len() as u64
                            );
                        }
                    }
                }
                Some(ReadItem::Gap(gap)) => panic!("nothing is missing, but: {gap:?}"),
                None => panic!("{} of {end}, and no more comes", subscriber.position()),
            }
        }
        for (i, &acked) in acked.iter().enumerate() {
            assert!(
                self.next[i].0 >= acked,
                "producer {i}: {acked} acknowledged, {:?} there",
                self.next[i]
            );
            // A writer waits for acknowledgement: at most one more batch may be present.
            if self.writers[i].is_none() {
                let (batches, rest) = self.next[i];
                assert!(
                    batches <= acked + 1 && rest == 0,
                    "{batches} {rest}, {acked} acknowledged"
                );
            }
        }
        subscriber.commit(subscriber.position(), Level::Process).unwrap();
        // A generous limit: a wait for a dead process takes longer.
        let took = since.elapsed();
        assert!(took < Duration::from_secs(60), "opening and reading took {took:?}");
    }

    /// Compares the readers' logs with the checked part of the journal.
    #[track_caller]
    fn check_read_logs(&mut self) {
        for i in 0..self.readers.len() {
            let bytes = fs::read(self.read_log_path(i)).unwrap_or_default();
            let (at, next, committed) = &mut self.read_logs[i];
            for note in bytes[*at..].chunks_exact(LOG_ENTRY_BYTES) {
                let number = |i: usize| u64::from_le_bytes(note[i * 8..][..8].try_into().unwrap());
                let position = number(1);
                match number(0) {
                    READ if position >= self.sums.len() as u64 => break,
                    READ => {
                        assert_eq!(position, *next, "reader {i}: in order, nothing left out");
                        assert_eq!(
                            number(2),
                            self.sums[position as usize],
                            "reader {i}: {position}"
                        );
                        *next = position + 1;
                    }
                    COMMITTED => {
                        assert_eq!(position, *next);
                        *committed = position;
                    }
                    STARTED => {
                        let range = *committed..=*next;
                        assert!(
                            range.contains(&position),
                            "reader {i} began at {position}, not in {range:?}"
                        );
                        *next = position;
                    }
                    kind => panic!("note {kind}"),
                }
                *at += LOG_ENTRY_BYTES;
            }
        }
    }

    /// Lets the readers reach the end and checks their logs.
    #[track_caller]
    fn finish(&mut self) {
        for writer in &mut self.writers {
            drop(writer.take());
        }
        self.audit();
        for i in 0..self.readers.len() {
            if self.readers[i].is_none() {
                self.start_reader(i);
            }
        }
        let end = self.sums.len() as u64;
        let since = Instant::now();
        while self.read_logs.iter().any(|&(_, next, _)| next < end) {
            assert!(since.elapsed() < Duration::from_secs(60), "{:?} of {end}", self.read_logs);
            std::thread::sleep(Duration::from_millis(5));
            self.check_read_logs();
        }
    }

    fn describe(&self) -> String {
        format!(
            "{} records of {} producers, {} readers",
            self.sums.len(),
            self.next.len(),
            self.read_logs.len()
        )
    }
}

/// One writer that is killed while no other process has the journal open.
#[track_caller]
fn check_one_writer(rounds: u64, seed: u64, kind: &'static str, settings: &Settings) {
    let mut world = KillFixture::new("kill-one", seed, 1, 0, kind, settings);
    for _ in 0..rounds {
        world.start_writer(0, "once");
        world.wait_for_progress();
        std::thread::sleep(world.random.micros(20_000));
        world.writers[0].take().unwrap().kill();
        world.audit();
    }
    println!("{rounds} rounds: {}", world.describe());
}

/// Three writers and two readers; one at a time is killed while the others continue.
#[track_caller]
fn check_many(rounds: u64, seed: u64, kind: &'static str, settings: &Settings) {
    let mut world = KillFixture::new("kill-many", seed, 3, 2, kind, settings);
    for _ in 0..rounds {
        for i in 0..3 {
            if world.writers[i].is_none() {
                world.start_writer(i, "once");
            }
        }
        for i in 0..2 {
            if world.readers[i].is_none() {
                world.start_reader(i);
            }
        }
        world.wait_for_progress();
        std::thread::sleep(world.random.micros(15_000));
        // Sometimes all at once.
        let victim = world.random.below(12) as usize;
        match victim {
            0..=7 => world.writers[victim % 3].take().unwrap().kill(),
            8..=10 => world.readers[victim % 2].take().unwrap().kill(),
            _ => {
                // All signals first, then the waits.
                world.writers.iter_mut().for_each(|child| child.take().unwrap().kill());
                world.readers.iter_mut().for_each(|child| child.take().unwrap().kill());
            }
        }
        world.wait_for_progress();
        world.audit();
        world.check_read_logs();
    }
    world.finish();
    println!("{rounds} rounds: {}", world.describe());
}

/// A process killed during opening or closing, with and without another process.
#[track_caller]
fn check_opening(rounds: u64, seed: u64, settings: &Settings) {
    let mut world = KillFixture::new("kill-opening", seed, 2, 0, "small", settings);
    let since = Instant::now();
    drop(world.directory.open());
    let open_micros = since.elapsed().as_micros() as u64;
    for round in 0..rounds {
        if round % 4 == 0 {
            world.start_writer(1, "once");
        }
        if round % 4 == 2 {
            drop(world.writers[1].take());
        }
        let mut child = ChildProcess::start("opener", &[&world.path("j")]);
        child.expect("opening");
        std::thread::sleep(world.random.micros(open_micros * 4 + 2000));
        child.kill();
        world.wait_for_progress();
        if round % 4 != 3 {
            world.start_writer(0, "again");
            world.wait_for_progress();
            drop(world.writers[0].take());
        }
        world.audit();
    }
    println!("{rounds} rounds: {}", world.describe());
}

/// Role of a process that only opens and closes.
pub(crate) fn opener(part: ChildArguments) {
    print_line("opening");
    loop {
        drop(open(part.path(0), &Options::default()).unwrap());
    }
}

fn tiny() -> Settings {
    sizes(4 << 10, 16 << 10)
}

#[test]
fn killed_writer_loses_and_duplicates_nothing() {
    check_one_writer(8, 1, "small", &Settings::default());
    check_one_writer(8, 2, "small", &tiny());
    check_one_writer(6, 3, "large", &tiny());
}

#[test]
fn other_processes_continue_after_a_kill() {
    check_many(12, 4, "small", &sizes(64 << 10, 256 << 10));
    check_many(12, 5, "small", &tiny());
    check_many(10, 6, "large", &tiny());
}

#[test]
fn kill_during_open_or_close_affects_no_other() {
    check_opening(12, 7, &tiny());
}

#[test]
#[ignore = "soak: a thousand kills, about ten minutes"]
fn soak_kill_1000_rounds() {
    for part in 0..4 {
        check_one_writer(30, 100 + part, "small", &Settings::default());
        check_one_writer(30, 200 + part, "small", &tiny());
        check_one_writer(30, 300 + part, "large", &tiny());
        check_many(40, 400 + part, "small", &sizes(64 << 10, 256 << 10));
        check_many(40, 500 + part, "small", &tiny());
        check_many(40, 600 + part, "large", &tiny());
        check_opening(40, 700 + part, &tiny());
    }
}
