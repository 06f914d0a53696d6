//! `topdeck journal bench`: performance of a journal on this machine, in a given directory.
//!
//! The records resemble lines of an access log, are all different, and are generated before the
//! measurement. CPU time is user and system time of all threads of this process, writing of
//! segments included.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use client::{ProgressLine, print_stdout};
use hist::{Histogram, Recorder};
use journal::{Compression, Journal, Level, Limits, ReadItem, Settings, StartPosition};
use report::journal_format;
use rustix::time::{ClockId, clock_gettime};

use crate::journal::create::create;
use crate::journal::{parse, with_dir};
use render::bytes::format_bytes;
use render::bytes::format_rate;
use render::table::format_table;
use render::text::escape_control;
use render::time::format_duration;
use render::time::format_ns;
use render::value_formatter;

/// Benchmark a journal on this machine
///
/// Creates a journal in a new directory, appends records one by one, prints throughput, CPU time
/// and disk usage, and removes the directory.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Parent directory, on the disk to measure [default: the system's temporary directory]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Number of records [default: 1000000; with the durability disk 2000 per producer]
    #[arg(long, value_name = "N")]
    records: Option<u64>,

    /// Record size
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = parse::size)]
    record_size: u64,

    /// Compression of records
    #[arg(long, default_value = "lz4", value_parser = parse::compression_parser())]
    compression: Compression,

    /// Size of the shared memory buffer
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse::size)]
    buffer: u64,

    /// Durability required of each record before its producer appends the next
    #[arg(long, value_name = "LEVEL", default_value = "process", value_parser = parse::level_parser())]
    durability: Level,

    /// Number of producer threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    producers: u64,

    /// Open the journal for this process exclusively
    #[arg(long)]
    exclusive: bool,

    /// Also measure reading
    #[arg(long)]
    read: bool,
}

const AFTER: &str = "\
Examples:
  topdeck journal bench
  topdeck journal bench /var/lib/app --durability disk --producers 8
  topdeck journal bench --record-size 1KiB --compression zstd --read

Exit status:
  0  success
  1  the directory could not be created or removed, or an append failed
  2  usage error";

const RECORDS: u64 = 1_000_000;
/// A sync takes about a millisecond on many disks.
const RECORDS_DISK: u64 = 2_000;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let under = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = ScratchDir::new(&under)?;
    let text = measure(options, &dir.0);
    dir.remove()?;
    print_stdout(text?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// New directory, removed on drop.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new(under: &Path) -> Result<ScratchDir> {
        let dir = under.join(format!("topdeck-bench-{}", std::process::id()));
        fs::create_dir(&dir)
            .with_context(|| format!("cannot create directory {}", dir.display()))?;
        Ok(ScratchDir(dir))
    }

    fn remove(self) -> Result<()> {
        let dir = self.0.clone();
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Errors are reported by `remove`.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn measure(options: &Options, dir: &Path) -> Result<String> {
    let records = options.records.unwrap_or(match options.durability {
        Level::Disk => RECORDS_DISK * options.producers,
        Level::Memory | Level::Process => RECORDS,
    });
    if records == 0 {
        bail!("--records 0: there is nothing to measure");
    }
    let settings = Settings {
        compression: options.compression,
        buffer_bytes: options.buffer,
        limits: Limits { bytes_max: None, ..Settings::default().limits },
        ..Settings::default()
    };
    if options.record_size > settings.segment_bytes / 4 {
        let most = format_bytes(settings.segment_bytes / 4);
        bail!(
            "--record-size {}: a record may have at most {most}",
            format_bytes(options.record_size)
        );
    }
    create(dir, &settings)?;
    let open = journal::Options { is_exclusive: options.exclusive, ..journal::Options::default() };
    let journal = Journal::open(Arc::new(disk::OsDisk), dir, &open).map_err(with_dir(dir))?;
    let lines = sample_lines(options.record_size);
    let appended = measure_append(options, &journal, &lines, records)
        .map_err(|error| error.context("measuring"))?;

    let size = records * options.record_size;
    let producers = match options.producers {
        1 => "1 producer".to_owned(),
        n => format!("{n} producers"),
    };
    let mut text = format!(
        "{} of {} ({}), {producers}, level {}{}, compression {}, buffer {}, on {}\n",
        journal_format::format_records(records),
        format_bytes(options.record_size),
        format_bytes(size),
        options.durability,
        if options.exclusive { ", alone" } else { "" },
        journal_format::compression_name(options.compression),
        format_bytes(options.buffer),
        file_system(dir)
    );
    let mut rows = vec![
        ["append".to_owned(), speed_text(records, size, appended.wall)],
        ["CPU".to_owned(), cpu_text(appended.cpu, records)],
    ];
    let stored = stored_bytes(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    rows.push([
        "stored".to_owned(),
        format!(
            "{:.3} bytes per payload byte, {}",
            stored as f64 / size.max(1) as f64,
            format_bytes(stored)
        ),
    ]);
    if let Some(latency) = &appended.latency {
        let at = |q: f64| latency.quantile(q).map_or(f64::NAN, |bracket| bracket.estimate);
        rows.push([
            "acknowledged".to_owned(),
            format!(
                "p50 {}, p90 {}, p99 {}, max {}",
                format_ns(at(0.5)),
                format_ns(at(0.9)),
                format_ns(at(0.99)),
                format_ns(latency.max().map_or(f64::NAN, |bracket| bracket.upper))
            ),
        ]);
    }
    if options.read {
        let (wall, used) = measure_read(&journal, dir, records)?;
        rows.push(["read".to_owned(), speed_text(records, size, wall)]);
        rows.push(["CPU".to_owned(), cpu_text(used, records)]);
    }
    text.push_str(&format_table(&rows, [false; 2]));
    Ok(text)
}

fn speed_text(records: u64, size: u64, wall: Duration) -> String {
    let per_s = records as f64 / wall.as_secs_f64().max(1e-9);
    format!(
        "{} records/s, {}, in {}",
        value_formatter::count(per_s as u64),
        format_rate(size, wall),
        format_duration(wall)
    )
}

fn cpu_text(cpu: Duration, records: u64) -> String {
    format!("{} per record", format_ns(cpu.as_nanos() as f64 / records as f64))
}

/// Cost of appending.
struct AppendMeasurement {
    /// Time until the last acknowledgement.
    wall: Duration,
    /// CPU time until all records are in segments.
    cpu: Duration,
    /// Acknowledgement latency, at levels that wait.
    latency: Option<Histogram>,
}

fn measure_append(
    options: &Options,
    journal: &Journal,
    lines: &[Vec<u8>],
    records: u64,
) -> Result<AppendMeasurement> {
    let mut progress = ProgressLine::new();
    let (done, producers) = (AtomicU64::new(0), options.producers);
    let start = Barrier::new(producers as usize + 1);
    let cpu_before = process_cpu();
    let (wall, results) = thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|producer| {
                let share = records / producers + u64::from(producer < records % producers);
                let (start, done) = (&start, &done);
                scope.spawn(move || {
                    start.wait();
                    run_producer(options, journal, lines, (producer, share), done)
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) && progress.is_visible() {
            progress.show(|_| {
                let appended = done.load(Ordering::Relaxed);
                format!(
                    "{} of {} appended",
                    value_formatter::count(appended),
                    journal_format::format_records(records)
                )
            });
            thread::sleep(Duration::from_millis(20));
        }
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().expect("BUG: a producer panicked"))
            .collect();
        let ends = results.iter().flatten().map(|(end, _)| end.duration_since(started));
        (ends.max().unwrap_or_default(), results)
    });
    journal.flush(Level::Process)?;
    let cpu = process_cpu().saturating_sub(cpu_before);
    progress.clear();
    let mut latency: Option<Histogram> = None;
    for result in results {
        let (_, recorder) = result?;
        let part = recorder.snapshot();
        match &mut latency {
            Some(all) => all.merge(&part)?,
            None => latency = Some(part),
        }
    }
    Ok(AppendMeasurement {
        wall,
        cpu,
        latency: latency.filter(|_| options.durability == Level::Disk),
    })
}

/// Appends one producer's share of the records; returns its end time and its acknowledgement
/// latencies in nanoseconds.
fn run_producer(
    options: &Options,
    journal: &Journal,
    lines: &[Vec<u8>],
    (producer, share): (u64, u64),
    done: &AtomicU64,
) -> Result<(Instant, Recorder)> {
    /// Progress interval of producers, long enough to cost nothing.
    const PROGRESS_RECORDS: u64 = 1024;
    let mut recorder = Recorder::new();
    let timed = options.durability == Level::Disk;
    for n in 0..share {
        let line = &lines[((n + producer * 7919) % lines.len() as u64) as usize];
        let start = timed.then(Instant::now);
        let ack = journal.append(line, options.durability)?;
        if ack.level < options.durability {
            bail!("a record reached {} but not {} in time", ack.level, options.durability);
        }
        if let Some(start) = start {
            recorder.record(start.elapsed().as_nanos() as u64);
        }
        if (n + 1) % PROGRESS_RECORDS == 0 {
            done.fetch_add(PROGRESS_RECORDS, Ordering::Relaxed);
        }
    }
    Ok((Instant::now(), recorder))
}

fn measure_read(journal: &Journal, dir: &Path, records: u64) -> Result<(Duration, Duration)> {
    let mut reader = journal.reader(StartPosition::First).map_err(with_dir(dir))?;
    let (start, cpu_before) = (Instant::now(), process_cpu());
    let mut found = 0;
    while let Some(item) = reader.next().map_err(with_dir(dir))? {
        match item {
            ReadItem::Batch(batch) => {
                found += batch.records().filter(|r| r.position < u64::MAX).count() as u64
            }
            ReadItem::Gap(gap) => bail!("{}", journal_format::describe_gap(&gap)),
        }
    }
    let (wall, cpu) = (start.elapsed(), process_cpu().saturating_sub(cpu_before));
    if found != records {
        bail!("{} read, but {records} appended", journal_format::format_records(found));
    }
    Ok((wall, cpu))
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// Sample lines, enough that no frame has a line twice.
fn sample_lines(size: u64) -> Vec<Vec<u8>> {
    const ALL_BYTES: u64 = 4 << 20;
    let count = (ALL_BYTES / size.max(1)).clamp(16, 1 << 16);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        // Xorshift (George Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut line = |n: u64| {
        let mut line = format!(
            "2026-05-01T12:{:02}:{:02}.{:06}Z GET /api/item/{} 200 {} us user={} trace={:016x}",
            n / 60_000 % 60,
            n / 1000 % 60,
            random(1_000_000),
            random(100_000),
            200 + random(5000),
            random(1_000_000),
            random(u64::MAX)
        );
        while (line.len() as u64) < size {
            line.push_str(&format!(" tag{}={:x}", random(50), random(1 << 32)));
        }
        line.truncate(size as usize);
        line.into_bytes()
    };
    (0..count).map(&mut line).collect()
}

/// Bytes in segments, without the preallocated zeros at the end of the last one.
fn stored_bytes(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir.join("segments"))? {
        let mut file = File::open(entry?.path())?;
        let mut end = file.metadata()?.len();
        let mut block = vec![0; 64 << 10];
        while end > 0 {
            let from = end.saturating_sub(block.len() as u64);
            let part = &mut block[..(end - from) as usize];
            file.seek(SeekFrom::Start(from))?;
            file.read_exact(part)?;
            if let Some(last) = part.iter().rposition(|&byte| byte != 0) {
                sum += from + last as u64 + 1;
                break;
            }
            end = from;
        }
    }
    Ok(sum)
}

/// Name of the file system, with a warning if syncs mean nothing on it.
fn file_system(dir: &Path) -> String {
    const NAMES: [(u64, &str); 7] = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs (memory: a sync costs nothing and has no effect)"),
        (0x794c_7630, "overlayfs"),
        (0x2fc1_2fc1, "zfs"),
        (0x6969, "nfs (a journal requires a local file system)"),
    ];
    let magic = rustix::fs::statfs(dir).ok().map(|stat| stat.f_type as u64);
    let name =
        magic.and_then(|magic| NAMES.iter().find(|(known, _)| *known == magic & 0xffff_ffff));
    let under = dir.parent().unwrap_or(dir).display().to_string();
    match name {
        Some((_, name)) => format!("{}, {name}", escape_control(&under)),
        None => escape_control(&under),
    }
}
