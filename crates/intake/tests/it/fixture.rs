//! Fixture: an intake over a journal or a store on a simulated disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use decode::SeriesSink as _;
use disk::Disk;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{
    IngestWriter, Intake, Ledger, LedgerLoad, SeriesKeyEncoding, Settings, Supervisor, WriteTarget,
};
use journal::{Journal, StartPosition};
use model::{Batch, BatchWriter, Sample, SampleValue, Series, SeriesKind};
use sim::SimDisk;
use store::Store;

pub(crate) const DIR: &str = "/data/store";
pub(crate) const KEY_ENCODING: SeriesKeyEncoding = SeriesKeyEncoding::GENERIC;

/// A subscriber that keeps the whole journal.
const ALL: &str = "all";

pub(crate) fn journal_settings() -> journal::Settings {
    journal::Settings {
        buffer_bytes: 16 << 10,
        segment_bytes: 64 << 10,
        // The journal forgets sequences early: ledger and store detect duplicates.
        dedup_producers: 1,
        ..journal::Settings::default()
    }
}

fn journal_options(clock: journal::WallClock) -> journal::Options {
    journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        sync_interval: None,
        append_timeout: Duration::from_millis(5),
        clock,
        ..journal::Options::default()
    }
}

/// A clock that advances by a second with each reading.
pub(crate) fn clock(now: &Arc<AtomicI64>) -> journal::WallClock {
    let now = Arc::clone(now);
    Arc::new(move || now.fetch_add(1_000_000_000, Ordering::Relaxed))
}

pub(crate) fn settings(now: &Arc<AtomicI64>) -> Settings {
    Settings { background: false, clock: clock(now), ..Settings::default() }
}

/// Creates a journal that retains all records, unless it exists.
pub(crate) fn create_journal(disk: &Arc<dyn Disk>) -> journal::Result<()> {
    match Journal::create(&**disk, Path::new(DIR), 7, 0, &journal_settings()) {
        Ok(()) | Err(journal::Error::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn open_journal(
    disk: &Arc<dyn Disk>,
    now: &Arc<AtomicI64>,
) -> journal::Result<Arc<Journal>> {
    let journal = Journal::open(Arc::clone(disk), Path::new(DIR), &journal_options(clock(now)))?;
    match journal.add_checkpoint(ALL, StartPosition::First, true) {
        Ok(_) | Err(journal::Error::CheckpointExists { .. }) => Ok(Arc::new(journal)),
        Err(error) => Err(error),
    }
}

/// An intake with a new journal.
pub(crate) fn new_journal_intake(disk: &SimDisk, now: &Arc<AtomicI64>) -> Intake {
    let disk: Arc<dyn Disk> = Arc::new(disk.process());
    create_journal(&disk).unwrap();
    let home = WriteTarget::Journal(open_journal(&disk, now).unwrap());
    Intake::new(home, settings(now)).unwrap()
}

/// An intake with a new journal, background threads and a supervisor.
pub(crate) fn new_threaded_intake(disk: &SimDisk, supervisor: &Supervisor) -> Intake {
    let disk: Arc<dyn Disk> = Arc::new(disk.process());
    create_journal(&disk).unwrap();
    let options = journal::Options { supervisor: supervisor.clone(), ..Default::default() };
    let journal = Journal::open(disk, Path::new(DIR), &options).unwrap();
    let settings = Settings { interval: Duration::MAX, ..Settings::default() };
    Intake::new(WriteTarget::Journal(Arc::new(journal)), settings).unwrap()
}

/// An intake with a new store.
pub(crate) fn new_store_intake(
    disk: &SimDisk,
    now: &Arc<AtomicI64>,
    change: impl FnOnce(&mut store::Options),
) -> (Intake, Arc<Store>) {
    let process: Arc<dyn Disk> = Arc::new(disk.process());
    Store::create(&process, Path::new(DIR), &journal_settings()).unwrap();
    drop(process);
    reopen_store_intake(disk, now, change)
}

/// An intake with the same store in another process.
pub(crate) fn reopen_store_intake(
    disk: &SimDisk,
    now: &Arc<AtomicI64>,
    change: impl FnOnce(&mut store::Options),
) -> (Intake, Arc<Store>) {
    let disk: Arc<dyn Disk> = Arc::new(disk.process());
    let mut options = store::Options {
        has_background_thread: false,
        journal: journal_options(clock(now)),
        clock: clock(now),
        ..store::Options::default()
    };
    change(&mut options);
    let store = Arc::new(Store::open(disk, Path::new(DIR), &options).unwrap());
    (Intake::new(WriteTarget::Store(Arc::clone(&store)), settings(now)).unwrap(), store)
}

pub(crate) fn latency(host: &str) -> Series {
    Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ns")
        .with_label("host", host)
        .validate()
        .unwrap()
}

pub(crate) fn sample(start: i64, values: u64) -> Sample {
    let mut histogram = Histogram::default();
    (1..=values).for_each(|value| histogram.record(value as f64));
    Sample { start, end: start + 1, value: SampleValue::Histogram(Box::new(histogram)) }
}

/// Writes one sample with the given number of values.
pub(crate) fn write(writer: &mut IngestWriter, host: &str, values: u64) {
    writer.series(host.as_bytes(), &mut || Ok(latency(host))).unwrap();
    writer.sample(&sample(0, values)).unwrap();
}

pub(crate) fn batch(host: &str, values: u64) -> Batch {
    let mut batch = BatchWriter::default();
    batch.series(&latency(host));
    batch.sample(&sample(0, values)).unwrap();
    batch.finish()
}

/// The ledger on disk.
pub(crate) fn saved_ledger(intake: &Intake) -> Ledger {
    match intake.ledger_file("ledger").unwrap().load().unwrap() {
        LedgerLoad::Ledger(ledger) => *ledger,
        other => panic!("{other:?}"),
    }
}
