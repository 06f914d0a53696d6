//! Store of the tests.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use disk::Disk;
use hist::codec::header::Temporality;
use hist::{Histogram, Scheme, TrackedValue};
use model::{BatchWriter, Sample, SampleValue, Series, SeriesKind};
use query::{Source, StoreSource};
use sim::SimDisk;
use store::{MINUTE, SECOND, Store};

/// Sunday 2020-09-13 13:00:00 UTC.
pub(crate) const START: i64 = 1_600_002_000 * SECOND;

pub(crate) struct CaqlFixture {
    store: Store,
}

/// Name, labels, and the value in each slot.
type GaugeSpec = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const GAUGES: [GaugeSpec; 5] = [
    ("req", &[("dc", "us"), ("host", "a")], "1 2 3 4 5 6 7 8 9 10"),
    ("req", &[("dc", "us"), ("host", "b")], "10 10 · 10 10 10 · · 10 10"),
    ("req", &[("dc", "eu"), ("host", "c")], "5 4 3 2 1 0 1 2 3 4"),
    ("total", &[("host", "a")], "0 60 180 360 600 900 30 90 210 390"),
    ("prod.n1.cpu", &[], "1 1 1 1 1 1 1 1 1 1"),
];

const LATENCIES: [(&str, &[(f64, u64)]); 2] =
    [("a", &[(10.0, 50), (20.0, 30), (50.0, 15), (200.0, 5)]), ("b", &[(10.0, 100)])];

impl CaqlFixture {
    /// Runs a function on the source, which is created once.
    pub(crate) fn get<T>(read: impl FnOnce(&dyn Source) -> T) -> T {
        static FIXTURE: LazyLock<CaqlFixture> = LazyLock::new(CaqlFixture::new);
        let view = FIXTURE.store.view().unwrap();
        read(&StoreSource::new(&view))
    }

    fn new() -> CaqlFixture {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let clock: journal::WallClock = Arc::new(|| START + 3600 * SECOND);
        let settings = journal::Settings {
            buffer_bytes: 64 << 10,
            segment_bytes: 256 << 10,
            ..journal::Settings::default()
        };
        Store::create(&disk, Path::new("/store"), &settings).unwrap();
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            clock: Arc::clone(&clock),
            ..journal::Options::default()
        };
        let options = store::Options {
            has_background_thread: false,
            journal,
            clock,
            ..store::Options::default()
        };
        let store = Store::open(disk, Path::new("/store"), &options).unwrap();
        let mut batch = BatchWriter::default();
        for (name, labels, values) in GAUGES {
            series(&mut batch, name, labels, SeriesKind::Gauge, "");
            for (at, word) in values.split(' ').enumerate() {
                if let Ok(number) = word.parse() {
                    // On whole minutes, as scrapers and checks send samples.
                    let time = START + at as i64 * MINUTE;
                    let value = SampleValue::Number(number);
                    batch.sample(&Sample { start: time, end: time, value }).unwrap();
                }
            }
        }
        for (host, counts) in LATENCIES {
            series(&mut batch, "lat", &[("host", host)], LATENCY, "ms");
            for at in 0..10 {
                let start = START + at * MINUTE;
                let value = SampleValue::Histogram(Box::new(histogram(counts)));
                batch.sample(&Sample { start, end: start + MINUTE, value }).unwrap();
            }
        }
        // Instantaneous distributions on whole minutes: one value in the first, two in the second.
        series(&mut batch, "sizes", &[], LATENCY, "B");
        for at in 0..10 {
            let (time, counts) = (START + at * MINUTE, [(10.0, at as u64 + 1)]);
            let value = SampleValue::Histogram(Box::new(histogram(&counts)));
            batch.sample(&Sample { start: time, end: time, value }).unwrap();
        }
        // Cumulative requests that grow by ten each minute.
        let total = SeriesKind::Counter(Temporality::Cumulative);
        series(&mut batch, "served", &[("host", "a")], total, "requests");
        for at in 0..10 {
            let (end, value) =
                (START + (at + 1) * MINUTE, SampleValue::Number(600.0 * (at + 1) as f64));
            batch.sample(&Sample { start: START, end, value }).unwrap();
        }
        // The same in deltas of half a minute.
        series(
            &mut batch,
            "asked",
            &[("host", "a")],
            SeriesKind::Counter(Temporality::Delta),
            "requests",
        );
        for at in 0..20 {
            let start = START + at * 30 * SECOND;
            let value = SampleValue::Number(300.0);
            batch.sample(&Sample { start, end: start + 30 * SECOND, value }).unwrap();
        }
        let identity = journal::BatchIdentity { producer: 7, epoch: 1, sequence: 1 };
        let _ack = store.ingest(Some(identity), &batch.finish(), journal::Level::Disk).unwrap();
        CaqlFixture { store }
    }
}

const LATENCY: SeriesKind = SeriesKind::Histogram(Temporality::Delta);

fn series(
    batch: &mut BatchWriter,
    name: &str,
    labels: &[(&str, &str)],
    kind: SeriesKind,
    unit: &str,
) {
    let labelled = |series: Series, label: &(&str, &str)| series.with_label(label.0, label.1);
    let series = labels.iter().fold(Series::new(name, kind).with_unit(unit), labelled);
    batch.series(&series.validate().unwrap());
}

/// As circllhist stores it: only counts.
fn histogram(counts: &[(f64, u64)]) -> Histogram {
    let mut histogram = Histogram::new(Scheme::LogLinear10);
    counts.iter().for_each(|&(value, count)| histogram.record_n(value, count));
    let mut parts = histogram.into_parts();
    (parts.sum, parts.min, parts.max) =
        (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_parts(parts).unwrap()
}
