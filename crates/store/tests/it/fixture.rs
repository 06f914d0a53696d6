//! A store on a simulated disk, with a clock set by the test.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use disk::Disk;
use hist::Histogram;
use hist::codec::header::Temporality;
use journal::{BatchIdentity, Level};
use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use sim::SimDisk;
use store::{CardinalityLimits, Options, Store, TimeColumn, TimeGrid};

use crate::memory_storage::MemoryStorage;

pub(crate) const DIR: &str = "/store";

/// A machine with a store on it.
pub(crate) struct StoreFixture {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) now: Arc<AtomicI64>,
    pub(crate) head_bytes_max: usize,
    pub(crate) limits: CardinalityLimits,
    /// Storage of parts and series, if not the store's directory.
    pub(crate) storage: Option<MemoryStorage>,
}

impl StoreFixture {
    pub(crate) fn new() -> StoreFixture {
        StoreFixture::on_disk(Arc::new(SimDisk::new(1).process()))
    }

    /// A store with parts and series in memory.
    pub(crate) fn in_memory() -> StoreFixture {
        StoreFixture { storage: Some(MemoryStorage::default()), ..StoreFixture::new() }
    }

    pub(crate) fn on_disk(disk: Arc<dyn Disk>) -> StoreFixture {
        let world = StoreFixture {
            disk,
            now: Arc::default(),
            head_bytes_max: 64 << 20,
            limits: CardinalityLimits::default(),
            storage: None,
        };
        Store::create(&world.disk, Path::new(DIR), &settings()).unwrap();
        world
    }

    pub(crate) fn open(&self) -> store::Result<Store> {
        self.open_at(DIR)
    }

    pub(crate) fn open_at(&self, dir: &str) -> store::Result<Store> {
        let (disk, dir, options) = (Arc::clone(&self.disk), Path::new(dir), self.options());
        match &self.storage {
            Some(storage) => {
                Store::open_with_storage(disk, dir, Arc::new(storage.clone()), &options)
            }
            None => Store::open(disk, dir, &options),
        }
    }

    pub(crate) fn options(&self) -> Options {
        let now = Arc::clone(&self.now);
        let clock: journal::WallClock = Arc::new(move || now.load(Ordering::Relaxed));
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            clock: Arc::clone(&clock),
            ..journal::Options::default()
        };
        Options {
            head_bytes_max: self.head_bytes_max,
            limits: self.limits,
            has_background_thread: false,
            journal,
            clock,
            ..Options::default()
        }
    }

    pub(crate) fn set_now(&self, now: i64) {
        self.now.store(now, Ordering::Relaxed);
    }
}

pub(crate) fn settings() -> journal::Settings {
    journal::Settings {
        buffer_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        ..journal::Settings::default()
    }
}

pub(crate) fn identity(sequence: u64) -> BatchIdentity {
    BatchIdentity { producer: 7, epoch: 1, sequence }
}

pub(crate) fn latency(host: &str) -> Series {
    Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ns")
        .with_label("host", host)
        .validate()
        .unwrap()
}

pub(crate) fn histogram(values: &[f64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

/// Ingests samples of series in one batch.
pub(crate) fn ingest(store: &Store, sequence: u64, samples: &[(&Series, Sample)]) {
    let mut batch = BatchWriter::default();
    for (series, sample) in samples {
        batch.series(series);
        batch.sample(sample).unwrap();
    }
    let _ack = store.ingest(Some(identity(sequence)), &batch.finish(), Level::Disk).unwrap();
}

pub(crate) fn sample(start: i64, end: i64, value: impl Into<IntoSampleValue>) -> Sample {
    Sample { start, end, value: value.into().0 }
}

pub(crate) struct IntoSampleValue(SampleValue);

impl From<Histogram> for IntoSampleValue {
    fn from(value: Histogram) -> IntoSampleValue {
        IntoSampleValue(SampleValue::Histogram(Box::new(value)))
    }
}

impl From<f64> for IntoSampleValue {
    fn from(value: f64) -> IntoSampleValue {
        IntoSampleValue(SampleValue::Number(value))
    }
}

impl From<&str> for IntoSampleValue {
    fn from(value: &str) -> IntoSampleValue {
        IntoSampleValue(SampleValue::Text(value.to_owned()))
    }
}

/// All series of a name, merged into columns.
pub(crate) fn columns(store: &Store, name: &str, grid: TimeGrid) -> Vec<TimeColumn<hist::Mixture>> {
    let view = store.view().unwrap();
    let series = view.select(&Selector::parse(name).unwrap());
    view.histograms(&series, grid).unwrap().collect::<store::Result<_>>().unwrap()
}
