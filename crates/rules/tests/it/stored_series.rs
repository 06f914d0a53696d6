//! Series in a store on a simulated disk, with a clock that the tests set.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};
use journal::Level;
use model::{BatchWriter, Sample, SampleValue, Series, SeriesKind};
use query::STALE_BITS;
use store::Store;

use crate::harness::{MINUTE, SECOND, START};

/// Name, labels and value of a counter.
pub(crate) type ScrapedCounter = (String, Vec<(&'static str, String)>, f64);

/// A store with a clock.
pub(crate) struct StoredSeries {
    pub(crate) store: Store,
    now: Arc<AtomicI64>,
}

impl StoredSeries {
    pub(crate) fn new() -> StoredSeries {
        let now = Arc::new(AtomicI64::new(START));
        let clock_now = Arc::clone(&now);
        let clock: journal::WallClock = Arc::new(move || clock_now.load(Ordering::Relaxed));
        let settings = journal::Settings {
            buffer_bytes: 64 << 10,
            segment_bytes: 256 << 10,
            ..Default::default()
        };
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            clock: Arc::clone(&clock),
            ..Default::default()
        };
        let options =
            store::Options { has_background_thread: false, journal, clock, ..Default::default() };
        let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &settings).expect("a store");
        let store = Store::open(disk, Path::new("/store"), &options).expect("a store");
        StoredSeries { store, now }
    }

    pub(crate) fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&self, duration_ns: i64) {
        self.now.fetch_add(duration_ns, Ordering::Relaxed);
    }

    fn store_sample(&self, series: &Series, sample: &Sample) {
        let mut batch = BatchWriter::default();
        batch.series(series);
        batch.sample(sample).expect("a valid sample");
        drop(self.store.ingest(None, &batch.finish(), Level::Disk).expect("an acknowledgement"));
    }

    /// A row that ended before now: `latency`, `errors`, `queue`, or texts.
    pub(crate) fn row(&self, name: &str, instance: u8, age_ns: i64, value: u8) {
        let kind = match name {
            "latency" => SeriesKind::Histogram(Temporality::Delta),
            "errors" => SeriesKind::Counter(Temporality::Cumulative),
            "queue" => SeriesKind::Gauge,
            _ => SeriesKind::Text,
        };
        let series = Series::new(name, kind).with_label("instance", instance.to_string());
        let end = self.now() - age_ns;
        let start = match kind {
            SeriesKind::Histogram(_) => end - 5 * SECOND,
            kind if kind.is_cumulative() => START - MINUTE,
            _ => end,
        };
        let value = match kind {
            SeriesKind::Histogram(_) => {
                let mut histogram = Histogram::default();
                [f64::from(value), 3.0].into_iter().for_each(|value| histogram.record(value));
                SampleValue::Histogram(Box::new(histogram))
            }
            SeriesKind::Text => SampleValue::Text(format!("v{}", value % 2)),
            SeriesKind::Counter(_) | SeriesKind::Gauge => SampleValue::Number(f64::from(value)),
        };
        let series = series.validate().expect("a valid series");
        self.store_sample(&series, &Sample { start, end, value });
    }

    /// A row of durations in milliseconds that ends now.
    pub(crate) fn durations(&self, name: &str, labels: &[(&str, &str)], values: &[f64]) {
        let series = Series::new(name, SeriesKind::Histogram(Temporality::Delta))
            .with_unit("ms")
            .with_labels(labels.iter().copied())
            .validate()
            .expect("a valid series");
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        let (start, end) = (self.now() - 5 * SECOND, self.now());
        let value = SampleValue::Histogram(Box::new(histogram));
        self.store_sample(&series, &Sample { start, end, value });
    }

    /// A row of a duration in milliseconds that ends now, of each of these sessions of a zone.
    pub(crate) fn sessions(&self, name: &str, zone: &str, sessions: Range<u32>, value: f64) {
        let mut histogram = Histogram::default();
        histogram.record(value);
        let (start, end) = (self.now() - 5 * SECOND, self.now());
        let sample = Sample { start, end, value: SampleValue::Histogram(Box::new(histogram)) };
        let all: Vec<u32> = sessions.collect();
        // The journal of the tests is small.
        for some in all.chunks(100) {
            let mut batch = BatchWriter::default();
            for session in some {
                let series = Series::new(name, SeriesKind::Histogram(Temporality::Delta))
                    .with_unit("ms")
                    .with_label("zone", zone)
                    .with_label("session", session.to_string());
                batch.series(&series.validate().expect("a valid series"));
                batch.sample(&sample).expect("a valid sample");
            }
            drop(self.store.ingest(None, &batch.finish(), Level::Disk).expect("acknowledged"));
        }
    }

    /// A scrape of counters that ends now: names, labels, values.
    pub(crate) fn counters(&self, counters: &[ScrapedCounter]) {
        let mut batch = BatchWriter::default();
        for (name, labels, value) in counters {
            let kind = SeriesKind::Counter(Temporality::Cumulative);
            let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
            let series = Series::new(name.as_str(), kind).with_labels(labels);
            batch.series(&series.validate().expect("a valid series"));
            let (end, value) = (self.now(), SampleValue::Number(*value));
            batch.sample(&Sample { start: end, end, value }).expect("a valid sample");
        }
        drop(self.store.ingest(None, &batch.finish(), Level::Disk).expect("acknowledged"));
    }

    /// A row that ends now of a histogram in seconds, of which only the buckets are known.
    pub(crate) fn buckets(&self, name: &str, labels: &[(&str, &str)], bounds: &[f64], of: &[f64]) {
        let scheme = Scheme::explicit(bounds).expect("ascending bounds");
        let mut counts = vec![0; bounds.len() + 1];
        of.iter().for_each(|value| counts[bounds.partition_point(|bound| bound < value)] += 1);
        let parts = HistogramParts {
            positive: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
            sum: TrackedValue::Exact(DoubleDouble::new(of.iter().sum())),
            ..HistogramParts::new(scheme)
        };
        let histogram = Histogram::from_parts(parts).expect("a valid histogram");
        let series = Series::new(name, SeriesKind::Histogram(Temporality::Delta))
            .with_unit("s")
            .with_labels(labels.iter().copied())
            .validate()
            .expect("a valid series");
        let (start, end) = (self.now() - SECOND, self.now());
        let value = SampleValue::Histogram(Box::new(histogram));
        self.store_sample(&series, &Sample { start, end, value });
    }

    /// Ends a stream, as `topdeck retire` does.
    pub(crate) fn retire(&self, name: &str, instance: u8) {
        let series = Series::new(name, SeriesKind::Gauge);
        let series = series.with_label("instance", instance.to_string()).validate();
        let value = SampleValue::Number(f64::from_bits(STALE_BITS));
        let sample = Sample { start: self.now() - 1, end: self.now(), value };
        self.store_sample(&series.expect("a valid series"), &sample);
    }
}
