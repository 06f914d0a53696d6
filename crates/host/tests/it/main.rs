//! Metrics of this host as stored in a journal, compared with other kernel interfaces.
//!
//! BPF programs need root: where they cannot be loaded, their tests print the reason and pass.
#![forbid(unsafe_code)]

mod block_io;
mod crashes;
mod foreign;
#[path = "../../../shm/tests/it/room.rs"]
mod memory;
mod panics;
mod processes;
mod programs;
mod recording_program;
mod room;
mod rows;
mod run_queue;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, OsDisk};
use host::{HostCollector, Settings};
use intake::{Intake, Supervisor, WriteTarget};
use journal::{Journal, Options, ReadItem, StartPosition};
use model::{Batch, BatchSeries, Gap, Sample, SampleValue, Series};

/// A journal in its own directory, with its intake.
struct HostFixture {
    dir: PathBuf,
    journal: Arc<Journal>,
    intake: Arc<Intake>,
}

impl HostFixture {
    fn new(limits: journal::Limits, interval: Duration) -> HostFixture {
        HostFixture::supervised(limits, interval, Supervisor::default())
    }

    /// With a supervisor that restarts threads.
    fn supervised(
        limits: journal::Limits,
        interval: Duration,
        supervisor: Supervisor,
    ) -> HostFixture {
        let dir = directory();
        let settings = journal::Settings {
            segment_bytes: 256 << 10,
            buffer_bytes: 128 << 10,
            limits,
            ..journal::Settings::default()
        };
        Journal::create(&OsDisk, &dir, journal::random_id(), 0, &settings).unwrap();
        let place = HostFixture::open_with(dir, interval, supervisor);
        // Pins all records: those that every subscriber has passed, the intake's ledger among them,
        // are deleted with their segment.
        place.journal.add_subscriber("test", StartPosition::First, false).unwrap();
        place
    }

    /// Opens the journal of an earlier fixture.
    fn open(dir: PathBuf, interval: Duration) -> HostFixture {
        HostFixture::open_with(dir, interval, Supervisor::default())
    }

    fn open_with(dir: PathBuf, interval: Duration, supervisor: Supervisor) -> HostFixture {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let options = Options { supervisor, ..Options::default() };
        let journal = Arc::new(Journal::open(disk, &dir, &options).unwrap());
        let settings = intake::Settings { interval, ..intake::Settings::default() };
        let intake = Intake::new(WriteTarget::Journal(Arc::clone(&journal)), settings).unwrap();
        HostFixture { dir, journal, intake: Arc::new(intake) }
    }

    /// Closes the journal, and keeps its directory.
    fn close(mut self) -> PathBuf {
        std::mem::take(&mut self.dir)
    }

    /// Starts a host with an interval that never ends: only the final scrape happens.
    fn single_reading() -> HostFixture {
        HostFixture::new(unlimited(), Duration::from_secs(365 * 86_400))
    }

    fn start(&self, settings: Settings) -> HostCollector {
        HostCollector::start(settings, Arc::clone(&self.intake)).unwrap()
    }

    /// Contents of the journal.
    fn contents(&self) -> JournalContents {
        let mut told = JournalContents::default();
        let mut reader = self.journal.reader(StartPosition::First).unwrap();
        while let Some(item) = reader.next().unwrap() {
            let batch = match item {
                ReadItem::Batch(batch) => batch,
                ReadItem::Gap(gap) => panic!("the journal lost records: {gap:?}"),
            };
            for record in batch.records() {
                // Tests fill journals with other records too.
                if record.bytes.first() == Some(&0xd3) {
                    told.add(record.bytes);
                }
            }
        }
        told
    }
}

impl Drop for HostFixture {
    fn drop(&mut self) {
        if self.dir.as_os_str().is_empty() {
            return;
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A new directory: on the disk of the build, or in the temporary directory if that disk is not
/// writable for this user.
fn directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut places = vec![std::env::temp_dir(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))];
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = places.last().expect("a place");
        let dir = place.join(format!("topdeck-host-{}-{number}", std::process::id()));
        match std::fs::create_dir(&dir) {
            Ok(()) => return dir,
            // Left by another process with the same PID.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if places.len() == 1 => panic!("{}: {error}", dir.display()),
            Err(_) => drop(places.pop()),
        }
    }
}

/// Waits for a condition, at most a minute.
#[track_caller]
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    // Most checks decode the whole journal: longer and longer pauses leave the CPU to other tests.
    let mut pause = Duration::from_millis(2);
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Rows and gaps, in order.
#[derive(Debug, Default)]
struct JournalContents {
    rows: Vec<(Series, Sample)>,
    gaps: Vec<Gap>,
}

impl JournalContents {
    fn add(&mut self, bytes: &[u8]) {
        let batch = Batch::decode(bytes.to_vec()).unwrap();
        let mut reader = batch.read();
        for entry in reader.by_ref() {
            let entry = entry.unwrap();
            let BatchSeries::Key(canonical_key) = entry.series else {
                panic!("a journal needs keys")
            };
            let series = Series::from_canonical_key(canonical_key).unwrap();
            let (start, end, value) = (entry.start, entry.end, entry.decode().unwrap());
            self.rows.push((series, Sample { start, end, value }));
        }
        self.gaps.extend_from_slice(reader.gaps());
    }

    /// Values of the series with that name and these labels.
    fn series(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> impl Iterator<Item = &(Series, Sample)> {
        self.rows.iter().filter(move |(series, _)| {
            let has = |&(name, value): &(&str, &str)| series.label(name) == Some(value);
            series.name() == name && labels.iter().all(has)
        })
    }

    /// Number of values of distributions, and their sum.
    fn distribution_totals(&self, name: &str, labels: &[(&str, &str)]) -> (u64, f64) {
        self.series(name, labels).fold((0, 0.0), |(count, sum), (_, sample)| match &sample.value {
            SampleValue::Histogram(histogram) => {
                (count + histogram.count(), sum + histogram.sum().estimate)
            }
            other => panic!("{name} is {other:?}"),
        })
    }

    /// Last number, staleness markers left out.
    fn number(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let numbers = self.series(name, labels).filter_map(|(_, sample)| match sample.value {
            SampleValue::Number(number) => Some(number).filter(|number| !number.is_nan()),
            _ => None,
        });
        numbers.last()
    }
}

/// Default limits of journals.
fn unlimited() -> journal::Limits {
    journal::Settings::default().limits
}

/// Only the sources with these keys of `[host]`.
fn only(keys: &str) -> Settings {
    let sources =
        ["procfs", "block_io", "run_queue", "processes", "hiccup", "shm_metrics", "crashes"];
    let others = sources.iter().filter(|source| !keys.contains(*source));
    let off: String = others.map(|source| format!("{source} = false\n")).collect();
    Settings::with_keys("box", &format!("{keys}\n{off}")).unwrap()
}

/// Whether BPF programs are attached; prints why not.
fn bpf_works(host: &HostCollector) -> bool {
    let notes = host.warnings();
    for note in &notes {
        println!("skipped: {note}");
    }
    notes.is_empty()
}
