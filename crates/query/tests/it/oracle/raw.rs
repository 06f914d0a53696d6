//! Random measurements of all kinds, kept in raw form and written to a store: late, repeated, with
//! gaps, flushed and rolled up or not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use disk::Disk;
use hist::codec::header::Temporality::{Cumulative, Delta};
use hist::{Histogram, Scheme};
use journal::{BatchIdentity, Level};
use model::{Batch, BatchWriter, Sample, SampleValue, Series, SeriesKind};
use sim::SimDisk;
use store::{DAY, MINUTE, Options, SECOND, Store};

use super::random_queries::Splitmix64;
use crate::memory_storage::MemoryStorage;

/// Start of the measurements: half an hour before the end of a day.
pub(crate) const BEGIN: i64 = 20_000 * DAY - 30 * MINUTE;
/// Duration of the measurements.
pub(crate) const LENGTH: i64 = 90 * MINUTE;

/// Labels without the metric name.
pub(crate) type TagMap = BTreeMap<String, String>;

/// Raw measurement.
#[derive(Clone, Debug)]
pub(crate) struct RawSample {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// For a histogram, the values added since the previous sample or the last reset.
    pub(crate) values: Vec<f64>,
    /// For other kinds, the number; for a cumulative histogram, its count.
    pub(crate) number: f64,
    /// Whether the counter restarted at 0.
    pub(crate) is_restart: bool,
}

/// All measurements of a series, by time.
#[derive(Clone, Debug)]
pub(crate) struct RawSeries {
    pub(crate) series: Series,
    pub(crate) tags: TagMap,
    pub(crate) samples: Vec<RawSample>,
    scheme: Scheme,
}

/// All measurements.
#[derive(Clone, Debug)]
pub(crate) struct RawData {
    pub(crate) series: Vec<RawSeries>,
}

fn kind_of(name: &str) -> SeriesKind {
    match name {
        "latency" | "mixed" => SeriesKind::Histogram(Delta),
        "waited" => SeriesKind::Histogram(Cumulative),
        "requests" => SeriesKind::Counter(Delta),
        "bytes_total" => SeriesKind::Counter(Cumulative),
        _ => SeriesKind::Gauge,
    }
}

fn scheme(random: &mut Splitmix64, name: &str) -> Scheme {
    let scheme = match (name, random.below(4)) {
        ("mixed", 0) => Ok(Scheme::LogLinear10),
        ("mixed", 1) => Scheme::log(0.02),
        ("mixed", 2) => Scheme::explicit(&[-1.0, 0.0, 0.001, 0.01, 0.1, 1.0]),
        (_, 0) => Scheme::exp2(3),
        (_, 1) => Scheme::exp2(8),
        _ => Scheme::exp2(5),
    };
    scheme.unwrap()
}

fn value(random: &mut Splitmix64) -> f64 {
    match random.below(12) {
        0 => 0.0,
        1 => -(random.below(1000) as f64) / 1000.0,
        2 => 0.1,
        _ => (random.below(13_000) as f64 / 1000.0).exp() * 1e-5,
    }
}

fn values(random: &mut Splitmix64, least: u64) -> Vec<f64> {
    (0..least + random.below(8)).map(|_| value(random)).collect()
}

impl RawData {
    pub(crate) fn new(random: &mut Splitmix64) -> RawData {
        let mut series = Vec::new();
        for name in ["latency", "mixed", "waited", "requests", "bytes_total", "load"] {
            for at in 0..1 + random.below(4) {
                let host = ["a", "b", "c", "a"][at as usize];
                let mut own = Series::new(name, kind_of(name)).with_label("host", host);
                let mut tags = TagMap::from([("host".to_owned(), host.to_owned())]);
                if at == 3 || random.below(2) == 0 {
                    let zone = if at == 3 { "third" } else { ["x", "y"][random.below(2) as usize] };
                    own = own.with_label("zone", zone);
                    tags.insert("zone".to_owned(), zone.to_owned());
                }
                if matches!(kind_of(name), SeriesKind::Histogram(_)) {
                    own = own.with_unit("s");
                }
                let scheme = scheme(random, name);
                let taken = random_samples(random, kind_of(name));
                let own = own.validate().unwrap();
                series.push(RawSeries { series: own, tags, samples: taken, scheme });
            }
        }
        RawData { series }
    }
}

/// Samples of a series at random distances, with gaps.
fn random_samples(random: &mut Splitmix64, kind: SeriesKind) -> Vec<RawSample> {
    let step = [15 * SECOND, MINUTE, MINUTE, 7 * SECOND + 13][random.below(4) as usize];
    let mut all: Vec<RawSample> = Vec::new();
    let mut time = BEGIN + random.below(60) as i64 * SECOND;
    let (mut total, mut since) = (0.0, BEGIN - MINUTE);
    let says_since = random.below(2) == 0;
    while time < BEGIN + LENGTH && all.len() < 200 {
        let before = time;
        time += match random.below(12) {
            0 => step * (2 + random.below(20) as i64),
            1 => step + random.below(1_000_000_000) as i64,
            _ => step,
        };
        let mut one = RawSample {
            start: before,
            end: time,
            values: Vec::new(),
            number: 0.0,
            is_restart: false,
        };
        match kind {
            SeriesKind::Histogram(Delta) => one.values = values(random, 1),
            SeriesKind::Counter(Delta) => one.number = random.below(1000) as f64,
            SeriesKind::Gauge => {
                one.start = time;
                one.number = random.below(100_000) as f64 / 64.0 - 200.0;
            }
            _ => {
                let is_histogram = matches!(kind, SeriesKind::Histogram(_));
                one.values = if is_histogram { values(random, 0) } else { Vec::new() };
                let added = match is_histogram {
                    true => one.values.len() as f64,
                    false => random.below(1000) as f64,
                };
                // After a reset the value is smaller than before, so that every reader detects it.
                one.is_restart = random.below(10) == 0 && added < total;
                total = if one.is_restart { added } else { total + added };
                if one.is_restart {
                    since = before;
                }
                one.start = if says_since { since } else { time };
                one.number = total;
            }
        }
        all.push(one);
        // A second producer measured the same interval.
        if !kind.is_cumulative() && kind != SeriesKind::Gauge && random.below(15) == 0 {
            let mut again = all.last().unwrap().clone();
            again.number += 1.0;
            again.values.push(0.25);
            all.push(again);
        }
    }
    all
}

impl RawSeries {
    fn samples(&self) -> Vec<Sample> {
        let kind = self.series.kind();
        let mut total = Histogram::new(self.scheme.clone());
        let sample = |taken: &RawSample| {
            let value = match kind {
                SeriesKind::Histogram(_) => {
                    if taken.is_restart || !kind.is_cumulative() {
                        total = Histogram::new(self.scheme.clone());
                    }
                    taken.values.iter().for_each(|&value| total.record(value));
                    SampleValue::Histogram(Box::new(total.clone()))
                }
                _ => SampleValue::Number(taken.number),
            };
            Sample { start: taken.start, end: taken.end, value }
        };
        self.samples.iter().map(sample).collect()
    }
}

/// Store with all measurements.
pub(crate) fn build_store(raw: &RawData, random: &mut Splitmix64) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    let settings = journal::Settings {
        buffer_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        ..journal::Settings::default()
    };
    let dir = Path::new("/store");
    Store::create(&disk, dir, &settings).unwrap();
    let now = Arc::new(AtomicI64::new(BEGIN));
    let clock: journal::WallClock = {
        let now = Arc::clone(&now);
        Arc::new(move || now.load(Ordering::Relaxed))
    };
    let journal = journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        clock: Arc::clone(&clock),
        ..journal::Options::default()
    };
    let options = Options { has_background_thread: false, journal, clock, ..Options::default() };
    // Some stores are in memory: results do not depend on where chunks are.
    let store = match raw.series.len() % 2 {
        0 => {
            let storage = Arc::new(MemoryStorage::default());
            Store::open_with_storage(disk, dir, storage, &options).unwrap()
        }
        _ => Store::open(disk, dir, &options).unwrap(),
    };
    // Ordered by arrival; some samples are late.
    let mut all: Vec<(i64, &Series, Sample)> = Vec::new();
    for series in &raw.series {
        for sample in series.samples() {
            let late = if random.below(20) == 0 { random.below(LENGTH as u64) as i64 } else { 0 };
            all.push((sample.end + late, &series.series, sample));
        }
    }
    all.sort_by_key(|(comes, ..)| *comes);
    let size = 1 + random.below(400) as usize;
    let mut sent: Vec<(u64, Batch)> = Vec::new();
    for (at, chunk) in all.chunks(size).enumerate() {
        let mut batch = BatchWriter::default();
        for (_, series, sample) in chunk {
            batch.series(series);
            batch.sample(sample).unwrap();
        }
        now.store(chunk.last().unwrap().0, Ordering::Relaxed);
        sent.push((at as u64 + 1, batch.finish()));
        let send = |sent: &(u64, Batch)| {
            let identity = BatchIdentity { producer: 7, epoch: 1, sequence: sent.0 };
            let _ = store.ingest(Some(identity), &sent.1, Level::Disk).unwrap();
        };
        send(sent.last().unwrap());
        if random.below(4) == 0 {
            // Repeated, as by a sender that got no acknowledgement.
            send(&sent[random.below(sent.len() as u64) as usize]);
        }
        match random.below(12) {
            0 => store.flush().unwrap(),
            1 => drop(store.maintain().unwrap()),
            _ => {}
        }
    }
    match random.below(3) {
        0 => {}
        1 => store.flush().unwrap(),
        _ => {
            now.fetch_add(3 * DAY, Ordering::Relaxed);
            store.maintain().unwrap();
        }
    }
    store
}
