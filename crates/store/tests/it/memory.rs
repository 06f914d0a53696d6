//! Memory of series: with rows in the head, and without rows.
//!
//! Peak bytes allocated by the one thread that does everything; excludes the journal's buffer,
//! which is mapped, and allocator overhead.

use std::sync::Arc;

use disk::{Disk, OsDisk};
use hist::codec::header::Temporality;
use hist::{Histogram, HistogramParts, Scheme};
use journal::Level;
use model::{BatchWriter, Series, SeriesKind};
use store::{MINUTE, Options, SECOND, Store};

use crate::fixture::{latency, sample};
use crate::processes::{TestDir, Xorshift64};

const BATCH: u64 = 500;

/// Like latencies of a busy service: about 130 buckets at scale 5.
fn busy_histogram(seed: u64) -> Histogram {
    let mut random = Xorshift64::new(seed + 1);
    let mut histogram = Histogram::default();
    for _ in 0..2000 {
        // The sum of several uniform numbers is roughly normal in the logarithm.
        let bits: u64 = (0..6).map(|_| random.below(1000)).sum();
        histogram.record((bits as f64 / 1000.0).exp2() * 1e6);
    }
    histogram
}

/// Ingests a minute of `series` series.
fn ingest(store: &Store, series: u64, minute: i64, histograms: &[Histogram]) {
    for first in (0..series).step_by(BATCH as usize) {
        let mut batch = BatchWriter::default();
        for number in first..series.min(first + BATCH) {
            batch.series(&latency(&format!("host-{number}")));
            let value = histograms[number as usize % histograms.len()].clone();
            batch.sample(&sample(minute * MINUTE, (minute + 1) * MINUTE, value)).unwrap();
        }
        let _ = store.ingest(None, &batch.finish(), Level::Process).unwrap();
        store.catch_up().unwrap();
    }
}

fn open(directory: &TestDir, head_bytes_max: usize) -> Store {
    let dir = directory.0.join("s");
    let real: Arc<dyn Disk> = Arc::new(OsDisk);
    Store::create(&real, &dir, &journal::Settings::default()).unwrap();
    let journal =
        journal::Options { is_exclusive: true, has_background_thread: false, ..Default::default() };
    let options = Options {
        head_bytes_max,
        has_background_thread: false,
        clock: Arc::new(|| 30 * MINUTE),
        journal,
        ..Options::default()
    };
    Store::open(real, &dir, &options).unwrap()
}

/// Checks the peak bytes per active series, with a flush whenever the head is full.
#[track_caller]
fn check_active(series: u64, minutes: i64, bytes_per_series_max: u64) {
    let directory = TestDir::new("memory-active");
    // The default at 100,000 series.
    let head_bytes_max = (128 << 20) / 100_000 * series as usize;
    let histograms: Vec<Histogram> = (0..64).map(busy_histogram).collect();
    let buckets = histograms.iter().map(|h| h.positive().len()).sum::<usize>() / histograms.len();
    let (mut flushes, mut head) = (0, 0);
    let measured = allocation_counter::measure(|| {
        let store = open(&directory, head_bytes_max);
        for minute in 0..minutes {
            ingest(&store, series, minute, &histograms);
            head = head.max(store.stat().unwrap().head_bytes);
            flushes += u32::from(store.maintain().unwrap());
        }
    });
    let per_series = measured.bytes_max / series;
    println!(
        "{series} active series of {buckets} buckets: {per_series} B each with all else, {} B by \
         the head's account, {flushes} flushes",
        head / series
    );
    assert!(flushes > 0 && (120..140).contains(&buckets));
    assert!(per_series <= bytes_per_series_max, "{per_series} B");
}

/// Bytes per series without rows in memory.
#[track_caller]
fn check_idle(series: u64, bytes_per_series_max: i64) {
    let directory = TestDir::new("memory-idle");
    let histograms = [Histogram::default()];
    let mut store = None;
    let measured = allocation_counter::measure(|| {
        let opened = open(&directory, 128 << 20);
        ingest(&opened, series, 0, &histograms);
        opened.flush().unwrap();
        store = Some(opened);
    });
    let per_series = measured.bytes_current / series as i64;
    let stat = store.expect("BUG: it was opened").stat().unwrap();
    println!(
        "{series} idle series: {per_series} B each, {} B at the most",
        measured.bytes_max / series
    );
    assert_eq!((stat.series, stat.head_rows), (series, 0));
    assert!(per_series <= bytes_per_series_max, "{per_series} B");
}

/// Checks the peak bytes of the flush of a series with these samples in turn, which do not contain
/// each other.
#[track_caller]
fn check_flush_of_one_series(name: &str, samples: &[Histogram]) {
    const SAMPLES: i64 = 600;
    let directory = TestDir::new(name);
    let store = open(&directory, 128 << 20);
    let kind = SeriesKind::Histogram(Temporality::Cumulative);
    let series = Series::new("latency", kind).validate().unwrap();
    for number in 1..=SAMPLES {
        let mut batch = BatchWriter::default();
        batch.series(&series);
        let value = samples[number as usize % samples.len()].clone();
        batch.sample(&sample(number * SECOND, number * SECOND, value)).unwrap();
        let _ = store.ingest(None, &batch.finish(), Level::Process).unwrap();
        store.catch_up().unwrap();
    }
    let flush = allocation_counter::measure(|| store.flush().unwrap());
    let buckets: usize = samples.iter().map(|sample| sample.positive().len()).sum();
    let decoded = (SAMPLES as usize * buckets / samples.len() * size_of::<(i32, u64)>()) as u64;
    println!("{name}: flush of {decoded} B, decoded, in at most {} B", flush.bytes_max);
    assert!(flush.bytes_max < decoded / 4, "{} B for {decoded} B", flush.bytes_max);
}

/// A value in each of some buckets.
fn histogram_with_buckets(scale: i32, indexes: impl Iterator<Item = i32>) -> Histogram {
    let scheme = Scheme::exp2(scale).unwrap();
    let mut parts = HistogramParts::new(scheme);
    parts.positive = indexes.map(|index| (index, 1)).collect();
    Histogram::from_parts(parts).unwrap()
}

#[test]
fn samples_that_do_not_contain_each_other_are_flushed_one_by_one() {
    let buckets = |first| histogram_with_buckets(8, (first..8_000).step_by(2));
    check_flush_of_one_series("memory-buckets", &[buckets(0), buckets(1)]);
    let scales = [8, 7].map(|scale| histogram_with_buckets(scale, 0..4_000));
    check_flush_of_one_series("memory-scales", &scales);
    let counts = [4_000, 3_999].map(|end| histogram_with_buckets(8, 0..end));
    check_flush_of_one_series("memory-resets", &counts);
}

#[test]
fn an_active_series_takes_two_kilobytes() {
    // Includes a share of fixed costs, such as buffers of a megabyte, because there are few series.
    check_active(4000, 12, 2048 + 4_000_000 / 4000);
}

#[test]
fn an_idle_series_takes_a_kilobyte() {
    check_idle(20_000, 1000);
}

#[test]
#[ignore = "soak: a hundred thousand series, about a minute"]
fn soak_an_active_series_takes_two_kilobytes() {
    check_active(100_000, 12, 2048);
}

#[test]
#[ignore = "soak: a million series, about a minute"]
fn soak_an_idle_series_takes_a_kilobyte() {
    check_idle(1_000_000, 1000);
}
