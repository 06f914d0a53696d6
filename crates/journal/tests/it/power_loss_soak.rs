//! Power losses on a real file system: ext4 on a loop device that is shut down (`EXT4_IOC_SHUTDOWN`
//! without flushing its log) while a process appends. Records acknowledged at level `disk` must be
//! present after remounting. Also a real full disk. Needs root, loop devices and a few programs;
//! without them a test reports what is missing and passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use journal::*;

use crate::processes::{
    ChildArguments, ChildProcess, SharedCounter, TestDir, Xorshift64, open, print_line,
    report_skipped, sizes, wait_for,
};
use crate::sigkill::records::{self, BatchShape, RecordLabel};

/// Runs a program; returns its output or the error.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    match output.map_err(|error| format!("there is no {program} ({error})"))? {
        output if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        output => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("{program} {}: {said}", arguments.join(" ")))
        }
    }
}

/// A file system in an image file, unmounted and removed at the end.
struct LoopDevice {
    dir: TestDir,
    device: String,
}

impl LoopDevice {
    /// Creates one; or returns why it cannot.
    fn new(megabytes: u64) -> Result<LoopDevice, String> {
        if run("id", &["-u"])? != "0" {
            return Err("not root, who may mount".to_owned());
        }
        run("perl", &["-e", "1"])?;
        let dir = TestDir::new("loop");
        let image = dir.0.join("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let image = image.to_str().unwrap();
        run("mkfs.ext4", &["-q", "-F", image])?;
        std::fs::create_dir(dir.0.join("mount")).unwrap();
        let device = run("losetup", &["-f", "--show", image])?;
        let made = LoopDevice { dir, device };
        made.mount()?;
        Ok(made)
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.0.join("mount")
    }

    fn journal(&self) -> PathBuf {
        self.mount_point().join("j")
    }

    /// A file beside the image, unaffected by power losses.
    fn outside(&self, name: &str) -> PathBuf {
        self.dir.0.join(name)
    }

    fn mount(&self) -> Result<(), String> {
        run("mount", &[&self.device, self.mount_point().to_str().unwrap()]).map(drop)
    }

    /// Shuts the file system down: nothing reaches the device any more.
    fn cut(&self) -> Result<(), String> {
        // Number of EXT4_IOC_SHUTDOWN, and the flag for not flushing the log.
        let shutdown = r#"open(F, "<", $ARGV[0]) or die $!; my $f = pack("L", 2); ioctl(F, 0x8004587d, $f) or die $!"#;
        run("perl", &["-e", shutdown, self.mount_point().to_str().unwrap()]).map(drop)
    }

    fn unmount(&self) -> Result<(), String> {
        let mount = self.mount_point();
        let since = Instant::now();
        loop {
            match run("umount", &[mount.to_str().unwrap()]) {
                // Another process is inspecting the mount.
                Err(_) if since.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done => return done.map(drop),
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.mount_point().to_str().unwrap()]);
        let _ = run("losetup", &["-d", &self.device]);
    }
}

/// Role of a writer: journal, producer, file with the acknowledged count, kind of batches. Unlike
/// the one in `sigkill.rs`, it repeats from the first sequence not known to be on disk.
pub(crate) fn writer(part: ChildArguments) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let producer = part.number(1);
    let acked = SharedCounter::at(part.path(2));
    let kind = BatchShape::parse(&part.arguments[3]);
    let mut random = Xorshift64::new(part.number(4));
    let mut sequence = acked.get();
    print_line("begun");
    loop {
        let batch = records::batch(producer, sequence, &kind);
        let batch: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        let identity = Some(BatchIdentity { producer, epoch: 1, sequence });
        let level = if random.below(20) == 0 { Level::Disk } else { Level::Process };
        // After the shutdown there are errors.
        let Ok(ack) = journal.append_batch(identity, &batch, level) else { break };
        sequence += 1;
        if ack.level == Level::Disk {
            acked.set(sequence);
        }
    }
    print_line("cut");
    part.receive_line();
}

/// One read of the whole journal: the batches present, by producer. The last producer is the idle
/// one.
fn read(journal: &Journal, kind: &BatchShape, producers: usize, durable: bool) -> Vec<Vec<u64>> {
    let mut reader = journal.reader(StartPosition::First).unwrap();
    if durable {
        reader.set_level(Level::Disk);
    }
    let mut sequences = vec![Vec::new(); producers];
    let mut open_batch = None;
    while let Some(item) = reader.next().unwrap() {
        let batch = match item {
            ReadItem::Batch(batch) => batch,
            // Only records without a durability guarantee.
            ReadItem::Gap(gap) => {
                assert_eq!(gap.reason, GapReason::LostBeforeSync, "{gap:?}");
                continue;
            }
        };
        for record in batch.records() {
            let RecordLabel { producer, sequence, index, count } = records::label(record.bytes);
            assert_eq!(record.identity, Some(BatchIdentity { producer, epoch: 1, sequence }));
            assert_eq!(open_batch.unwrap_or((producer, sequence, 0)), (producer, sequence, index));
            open_batch = (index + 1 < count).then_some((producer, sequence, index + 1));
            if index == 0 {
                let idle = producer as usize == producers - 1;
                let batch = records::batch(producer, sequence, kind);
                assert_eq!(count, if idle { 1 } else { batch.len() as u64 });
                sequences[producer as usize].push(sequence);
            }
        }
    }
    assert_eq!(open_batch, None, "batches are whole");
    sequences
}

/// Appends, cuts power, checks, and repeats on the same journal.
#[track_caller]
fn check(cuts: u64, seed: u64, kind_name: &'static str, settings: &Settings) {
    const WRITERS: usize = 2;
    let disk = match LoopDevice::new(64) {
        Ok(disk) => disk,
        Err(why) => return report_skipped("power cuts and full disks on ext4", &why),
    };
    let kind = BatchShape::parse(kind_name);
    let mut random = Xorshift64::new(seed);
    Journal::create(&disk::OsDisk, &disk.journal(), random_id(), 0, settings).unwrap();
    let acked: Vec<SharedCounter> =
        (0..WRITERS).map(|i| SharedCounter::at(&disk.outside(&format!("acked-{i}")))).collect();
    let (mut lost, mut kills, mut untrue) = (0, 0, 0);
    for cut in 0..cuts {
        let mut writers: Vec<ChildProcess> = (0..WRITERS)
            .map(|i| {
                let count = disk.outside(&format!("acked-{i}"));
                let journal = disk.journal();
                let (journal, count) = (journal.to_str().unwrap(), count.to_str().unwrap());
                let (producer, seed) = (i.to_string(), random.next().to_string());
                ChildProcess::start("power writer", &[journal, &producer, count, kind_name, &seed])
            })
            .collect();
        writers.iter_mut().for_each(|writer| writer.expect("begun"));
        std::thread::sleep(random.micros(400_000));
        // Sometimes a writer is killed before.
        if random.below(4) == 0 {
            writers[0].kill();
            kills += 1;
            std::thread::sleep(random.micros(60_000));
        }
        // A machine without power acknowledges nothing more, but here the processes continue: while
        // the file system shuts down, a sync may wrongly report success.
        let promised: Vec<u64> = acked.iter().map(SharedCounter::get).collect();
        if let Err(why) = disk.cut() {
            return report_skipped("power cuts and full disks on ext4", &why);
        }
        writers.iter_mut().for_each(ChildProcess::kill);
        disk.unmount().unwrap();
        disk.mount().unwrap();
        let journal = open(&disk.journal(), &Options::default()).unwrap();
        let opened = journal.recovery_report().clone();
        for gap in &opened.gaps {
            assert_eq!(gap.reason, GapReason::LostBeforeSync, "cut {cut}: {opened:?}");
        }
        // The additional one is the idle process below.
        let all = read(&journal, &kind, WRITERS + 1, true);
        for (i, sequences) in all[..WRITERS].iter().enumerate() {
            let promised = promised[i];
            untrue += acked[i].get().saturating_sub(sequences.last().map_or(0, |last| last + 1));
            // Producers repeat from the guaranteed position; present batches are duplicates.
            acked[i].set(promised);
            // Ascending, each once, without a hole up to the guaranteed position.
            assert!(sequences.is_sorted_by(|a, b| a < b), "cut {cut}: order of producer {i}");
            let mut there = sequences.iter().copied().peekable();
            for expected in 0..promised {
                while there.next_if(|&sequence| sequence < expected).is_some() {}
                let found = there.next_if_eq(&expected);
                assert!(
                    found.is_some(),
                    "cut {cut}: batch {expected} of producer {i} is lost, {promised} were \
                     promised: {opened:?}"
                );
            }
            lost += there.count();
        }
        // A process is killed before it writes anything: lost records must not reappear.
        if random.below(2) == 0 {
            drop(journal);
            let mut idle = ChildProcess::start("power idle", &[disk.journal().to_str().unwrap()]);
            idle.expect("appended");
            idle.kill();
            let journal = open(&disk.journal(), &Options::default()).unwrap();
            let again = read(&journal, &kind, WRITERS + 1, true);
            assert_eq!(again[..WRITERS], all[..WRITERS], "cut {cut}: after a kill");
        }
    }
    let batches: u64 = acked.iter().map(SharedCounter::get).sum();
    println!(
        "{cuts} cuts, {kills} kills before them: {batches} batches on disk before a cut, {lost} \
         more survived; {untrue} were acknowledged while the file system was being stopped and \
         are not there"
    );
}

/// Opens, appends a few records that stay in the buffer, and is killed.
pub(crate) fn idle(part: ChildArguments) {
    let options = Options { has_background_thread: false, ..Options::default() };
    let journal = open(part.path(0), &options).unwrap();
    let sequence = journal.watermarks().end;
    let record = records::make(RecordLabel { producer: 2, sequence, index: 0, count: 1 }, 0);
    let identity = BatchIdentity { producer: 2, epoch: 1, sequence };
    let ack = journal.append_batch(Some(identity), &[&record], Level::Process).unwrap();
    assert!(!ack.is_duplicate);
    print_line("appended");
    part.receive_line();
}

#[test]
fn disk_level_records_survive_a_power_cut() {
    check(3, 1, "small", &sizes(16 << 10, 64 << 10));
}

#[test]
#[ignore = "soak: 200 power cuts, some minutes"]
fn soak_power_200_cuts() {
    for part in 0..5 {
        check(20, 10 + part, "small", &sizes(16 << 10, 64 << 10));
        check(10, 20 + part, "large", &sizes(4 << 10, 16 << 10));
        check(10, 30 + part, "small", &sizes(128 << 10, 1 << 20));
    }
}

#[test]
fn full_disk_is_a_clear_error() {
    let disk = match LoopDevice::new(8) {
        Ok(disk) => disk,
        Err(why) => return report_skipped("power cuts and full disks on ext4", &why),
    };
    Journal::create(&disk::OsDisk, &disk.journal(), random_id(), 0, &sizes(16 << 10, 1 << 20))
        .unwrap();
    let ballast = disk.mount_point().join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let options = Options { append_timeout: Duration::from_millis(500), ..Options::default() };
    let journal = open(&disk.journal(), &options).unwrap();
    let noise = noise(2000);
    let mut accepted = 0u64;
    // A generous limit, here and below: a blocked append would never end.
    let end = Duration::from_secs(60);
    let error = loop {
        let since = Instant::now();
        match journal.append(&noise, Level::Process) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(since.elapsed() < end, "an append took {:?}", since.elapsed());
        assert!(accepted < 100_000);
    };
    assert!(matches!(error, Error::Full(FullReason::NoSpace)), "{error}");
    for _ in 0..20 {
        let since = Instant::now();
        let refused = journal.append(&noise, Level::Disk);
        assert!(matches!(refused, Err(Error::Full(FullReason::NoSpace))), "{refused:?}");
        assert!(since.elapsed() < end);
    }
    assert_eq!(count(&journal), accepted);
    // A handle opened before, and one opened now.
    let other = open(&disk.journal(), &options).unwrap();
    assert_eq!(count(&other), accepted);
    std::fs::remove_file(&ballast).unwrap();
    wait_for("it goes on", 60, || other.append(&noise, Level::Disk).is_ok());
    assert_eq!(count(&journal), accepted + 1);
    drop((journal, other));
    let journal = open(&disk.journal(), &options).unwrap();
    assert_eq!(*journal.recovery_report(), RecoveryReport::default());
    assert_eq!(count(&journal), accepted + 1);
}

/// The disk fills up and all processes are killed: the journal can be opened and read anyway.
#[test]
fn a_journal_on_a_full_disk_can_be_opened_and_read() {
    let disk = match LoopDevice::new(8) {
        Ok(disk) => disk,
        Err(why) => return report_skipped("power cuts and full disks on ext4", &why),
    };
    Journal::create(&disk::OsDisk, &disk.journal(), random_id(), 0, &sizes(16 << 10, 256 << 10))
        .unwrap();
    // Space for more than a segment, released later.
    let reserve = disk.mount_point().join("reserve");
    std::fs::write(&reserve, vec![1; 1 << 20]).unwrap();
    let acked = disk.outside("acked");
    let paths = [disk.journal(), acked.clone()];
    let mut child =
        ChildProcess::start("filler", &paths.each_ref().map(|path| path.to_str().unwrap()));
    child.expect("full");
    fill(&disk.mount_point().join("ballast"));
    child.kill();
    let journal = open(&disk.journal(), &Options::default()).unwrap();
    assert_eq!(count(&journal), SharedCounter::at(&acked).get());
    std::fs::remove_file(reserve).unwrap();
    wait_for("it goes on", 60, || journal.append(b"x", Level::Disk).is_ok());
}

/// Appends until the disk is full, and waits.
pub(crate) fn filler(part: ChildArguments) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let acked = SharedCounter::at(part.path(1));
    let noise = noise(2000);
    while journal.append(&noise, Level::Process).is_ok() {
        acked.set(acked.get() + 1);
    }
    print_line("full");
    part.receive_line();
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let mut size = 64 << 10;
    while size > 0 {
        if file.write_all(&vec![1; size]).is_err() {
            size /= 2;
        }
    }
}

/// Incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut random = Xorshift64::new(3);
    (0..len).map(|_| random.next() as u8).collect()
}

fn count(journal: &Journal) -> u64 {
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut records = 0;
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReadItem::Batch(batch) => records += batch.records().count() as u64,
            ReadItem::Gap(gap) => panic!("nothing is missing, but: {gap:?}"),
        }
    }
    records
}

/// A power loss leaves pages of the buffer from different times. Records that were lost and
/// appended again by their producers must not reappear from there at a later opening.
#[test]
fn lost_records_do_not_return_after_a_kill() {
    let dir = TestDir::new("stale");
    let options = Options { has_background_thread: false, ..Options::default() };
    let settings = sizes(4 << 10, 16 << 10);
    dir.create(&settings);
    let buffer = dir.journal().join("buffer");
    let journal = open(&dir.journal(), &options).unwrap();
    // Eleven words each: the buffer holds 46.
    let append = |journal: &Journal, count: u64| {
        for _ in 0..count {
            let _ = journal.append(&[5; 64], Level::Process).unwrap();
        }
    };
    append(&journal, 46);
    let first_lap = std::fs::read(&buffer).unwrap();
    append(&journal, 46);
    let second_lap = std::fs::read(&buffer).unwrap();
    drop(journal);
    // Power loss: no segment reached the disk, and the middle of the ring is older than the rest.
    let mut bytes = second_lap;
    let ring = bytes.len() - (4 << 10);
    let middle = ring + 1360..ring + 2720;
    bytes[middle.clone()].copy_from_slice(&first_lap[middle]);
    for entry in std::fs::read_dir(dir.journal().join("segments")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::write(&buffer, bytes).unwrap();
    let journal = open(&dir.journal(), &options).unwrap();
    let kept = journal.recovery_report().from_buffer;
    assert!((10..46).contains(&kept), "{kept}: of some pages nothing can be told");
    append(&journal, 2);
    // All processes are killed: a copy of the files as they are.
    let copy = dir.0.join("copy");
    copy_dir(&dir.journal(), &copy);
    let journal = open(&copy, &options).unwrap();
    let mut reader = journal.reader(StartPosition::First).unwrap();
    let mut records = 0;
    while let Some(item) = reader.next().unwrap() {
        if let ReadItem::Batch(batch) = item {
            records += batch.records().count() as u64;
        }
    }
    assert_eq!(records, kept + 2);
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
