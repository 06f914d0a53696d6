//! Growth of cumulative histograms by their stored increments equals that by their samples, bit for
//! bit: random series with resets, gaps, late and repeated samples, changes of scheme and staleness
//! markers, in the head and in parts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Disk;
use hist::codec::header::Temporality;
use hist::{Histogram, Mixture, Scheme};
use journal::Level;
use model::{BatchWriter, Gap, Sample, SampleValue, Selector, Series, SeriesKind};
use query::{
    FloatHistogram, Language, Limits, QueryRequest, QueryWarningKind, Result, ResultData,
    STALE_BITS, SeriesHandle, SeriesPoint, Settings, Source, SourceRead, StepValue, StoreSource,
    Stream, execute, promql,
};
use sim::SimDisk;
use store::{HistogramIncrements, MINUTE, NumberAggregate, Options, SECOND, Store, TimeGrid};

const START: i64 = 1_600_000_020 * SECOND;
const CUMULATIVE: SeriesKind = SeriesKind::Histogram(Temporality::Cumulative);

/// Source that counts reads, with or without increments.
struct ReadCounter<'a> {
    source: StoreSource<'a>,
    has_increments: bool,
    samples: AtomicU64,
    increments: AtomicU64,
}

impl Source for ReadCounter<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        self.source.select(selector)
    }

    fn time_range(&self, series: &[SeriesHandle], range: Range<i64>) -> Result<Option<Range<i64>>> {
        self.source.time_range(series, range)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.source.samples(series, range)
    }

    fn increments(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        if !self.has_increments {
            return Ok((None, Vec::new()));
        }
        let read = self.source.increments(series, range)?;
        self.increments.fetch_add(u64::from(read.0.is_some()), Ordering::Relaxed);
        Ok(read)
    }

    fn histograms(&self, series: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        self.source.histograms(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        self.source.numbers(series, grid)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn open_store() -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
    let clock = Arc::new(|| START + 86_400 * SECOND);
    let options = Options { has_background_thread: false, clock, ..Options::default() };
    Store::open(disk, Path::new("/store"), &options).unwrap()
}

/// Sends samples of a host; an empty one has no label.
fn send_of(store: &Store, host: &str, kind: SeriesKind, samples: &[(i64, SampleValue)]) {
    let mut series = Series::new("latency", kind);
    if let Some(zone) = host.get(..1) {
        series = series.with_labels([("host", host), ("zone", zone)]);
    }
    let mut batch = BatchWriter::default();
    batch.series(&series.validate().unwrap());
    for (at, value) in samples {
        batch.sample(&Sample { start: *at, end: *at, value: value.clone() }).unwrap();
    }
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
}

fn scheme(random: &mut Random) -> Scheme {
    match random.below(4) {
        0 => Scheme::explicit(&[-1.0, 0.0, 0.5, 2.0, 9.0, 100.0]).unwrap(),
        1 => Scheme::log_linear2(3).unwrap(),
        2 => Scheme::exp2(0).unwrap(),
        _ => Scheme::exp2(5).unwrap(),
    }
}

/// Sends a random series; `is_plain` if nothing happens that increments do not support. Returns the
/// samples by time.
fn send_series(store: &Store, random: &mut Random, is_plain: bool) -> BTreeMap<i64, Histogram> {
    let scheme = scheme(random);
    send_host(store, random, ("", scheme), is_plain)
}

/// The same for a host whose histograms begin with a scheme.
fn send_host(
    store: &Store,
    random: &mut Random,
    (host, first): (&str, Scheme),
    is_plain: bool,
) -> BTreeMap<i64, Histogram> {
    let send = |store: &Store, kind: SeriesKind, samples: &[(i64, SampleValue)]| {
        send_of(store, host, kind, samples);
    };
    let mut sent = BTreeMap::new();
    let mut total = Histogram::new(first);
    let mut time = START;
    let mut late: Vec<(i64, SampleValue)> = Vec::new();
    for _ in 0..20 + random.below(600) {
        time += (15 + random.below(3) as i64 * 15) * SECOND;
        match random.below(60) {
            0 => total = Histogram::new(total.scheme().clone()),
            1 => time += 7 * MINUTE,
            2 if !is_plain => total = Histogram::new(scheme(random)),
            3 if !is_plain => total.record(-3.5),
            4 => send(
                store,
                SeriesKind::Counter(Temporality::Cumulative),
                &[(time - SECOND, SampleValue::Number(f64::from_bits(STALE_BITS)))],
            ),
            _ => {}
        }
        for _ in 0..random.below(30) {
            total.record(random.below(4000) as f64 / 64.0 * random.below(2) as f64);
        }
        sent.insert(time, total.clone());
        let sample = (time, SampleValue::Histogram(Box::new(total.clone())));
        match random.below(40) {
            0 => late.push(sample),
            1 => send(store, CUMULATIVE, &[sample.clone(), sample]),
            _ => send(store, CUMULATIVE, &[sample]),
        }
        if random.below(80) == 0 {
            store.flush().unwrap();
            send(store, CUMULATIVE, &std::mem::take(&mut late));
        }
    }
    send(store, CUMULATIVE, &late);
    sent
}

fn end_of(sent: &BTreeMap<i64, Histogram>) -> i64 {
    *sent.last_key_value().unwrap().0
}

fn ask(source: &dyn Source, text: &str, end: i64, step: i64) -> (Vec<Stream>, Vec<String>) {
    let options = promql::Options::default();
    let start = START - 5 * MINUTE;
    let question = QueryRequest { text, language: Language::PromQl, start, end, step, options };
    let answer = execute(source, &question, &Settings::default(), &|| false).unwrap();
    let warnings = [QueryWarningKind::Warning, QueryWarningKind::Info]
        .iter()
        .flat_map(|kind| answer.warnings.of_kind(*kind).map(|(text, _)| text.to_owned()))
        .collect();
    match answer.data {
        ResultData::Matrix(streams) | ResultData::Vector(streams) => (streams, warnings),
        other => panic!("a range query has a matrix, not {other:?}"),
    }
}

/// Answers by increments and by samples; returns the number of series read as increments.
#[track_caller]
fn check(store: &Store, text: &str, end: i64, step: i64) -> u64 {
    check_by(store, text, end, step, |found, expected| found.equals(expected))
}

/// The same with another equality.
#[track_caller]
fn check_by(
    store: &Store,
    text: &str,
    end: i64,
    step: i64,
    equals: impl Fn(&FloatHistogram, &FloatHistogram) -> bool,
) -> u64 {
    let view = store.view().unwrap();
    let [by_increments, by_samples] = [true, false].map(|has_increments| ReadCounter {
        source: StoreSource::new(&view),
        has_increments,
        samples: AtomicU64::new(0),
        increments: AtomicU64::new(0),
    });
    let found = ask(&by_increments, text, end, step);
    let expected = ask(&by_samples, text, end, step);
    assert_eq!(found.1, expected.1, "{text}");
    assert_eq!(found.0.len(), expected.0.len(), "{text}");
    for (found, expected) in found.0.iter().zip(&expected.0) {
        assert_eq!(found.labels, expected.labels);
        for (at, pair) in found.points.iter().zip(&expected.points).enumerate() {
            match pair {
                (Some(found), Some(expected)) => {
                    let (found, expected) =
                        (found.histogram().unwrap(), expected.histogram().unwrap());
                    assert!(equals(&found, &expected), "{text} step {at}:\n{found}\n{expected}");
                }
                (None, None) => {}
                _ => panic!("{text} step {at}: {pair:?}"),
            }
        }
    }
    by_increments.increments.into_inner()
}

const EXPRESSIONS: [&str; 7] = [
    "increase(latency[1m])",
    // Whole chunks are within the windows.
    "increase(latency[3h])",
    "rate(latency[1d])",
    "rate(latency[5m])",
    "increase(latency[31m] offset 2m)",
    "increase(latency[40m] @ 1600001220)",
    "sum(rate(latency[90s]))",
];

#[test]
fn growth_by_increments_equals_growth_by_samples() {
    let mut by_increments = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let store = open_store();
        let end = end_of(&send_series(&store, &mut random, seed % 3 > 0));
        for text in EXPRESSIONS {
            for step in [41 * SECOND, 5 * MINUTE, 33 * MINUTE] {
                by_increments += check(&store, text, end, step);
            }
        }
    }
    assert!(by_increments > 300, "{by_increments} reads of increments are too few to prove much");
}

/// Whether two histograms differ by no more than rounding.
fn is_close(a: &FloatHistogram, b: &FloatHistogram) -> bool {
    let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs());
    let buckets = |a: &[(i32, f64)], b: &[(i32, f64)]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && close(a.1, b.1))
    };
    (&a.grid, a.zero_threshold, a.hint) == (&b.grid, b.zero_threshold, b.hint)
        && [(a.count, b.count), (a.sum, b.sum), (a.zero_count, b.zero_count)]
            .iter()
            .all(|&(a, b)| close(a, b))
        && buckets(&a.positive, &b.positive)
        && buckets(&a.negative, &b.negative)
}

#[test]
fn sums_over_series_by_increments_equal_sums_by_samples() {
    let mut by_increments = 0;
    for seed in 300..308 {
        let mut random = Random(seed);
        let store = open_store();
        let common = scheme(&mut random);
        let mut end = 0;
        // More than a pack, in three zones; some series cannot be read as increments, or have
        // another scheme.
        for host in 0..20 {
            let host = format!("{}{host}", ["a", "b", "c"][host % 3]);
            let is_plain = seed % 2 == 0 || random.below(9) > 0;
            let is_common = seed % 5 > 0 || random.below(9) > 0;
            let first = if is_common { common.clone() } else { scheme(&mut random) };
            end = end.max(end_of(&send_host(&store, &mut random, (&host, first), is_plain)));
        }
        for text in [
            "sum(increase(latency[5m]))",
            "sum by (zone) (rate(latency[90s]))",
            "sum without (host) (increase(latency[3h]))",
            "sum by (host) (increase(latency[31m] offset 2m))",
            "sum(increase(latency[40m] @ 1600001220))",
        ] {
            by_increments += check_by(&store, text, end, 33 * MINUTE, is_close);
        }
    }
    assert!(by_increments > 500, "{by_increments} reads of increments are too few to prove much");
}

#[test]
fn ordinary_series_are_read_as_increments() {
    let store = open_store();
    let end = end_of(&send_series(&store, &mut Random(3), true));
    assert_eq!(check(&store, "increase(latency[5m])", end, MINUTE), 1);
    store.flush().unwrap();
    assert_eq!(check(&store, "increase(latency[5m])", end, MINUTE), 1);
}

#[test]
fn repeated_argument_is_read_once() {
    let store = open_store();
    let end = end_of(&send_series(&store, &mut Random(3), true));
    let view = store.view().unwrap();
    let answer = |text: &str| {
        let source = ReadCounter {
            source: StoreSource::new(&view),
            has_increments: true,
            samples: AtomicU64::new(0),
            increments: AtomicU64::new(0),
        };
        let (streams, _) = ask(&source, text, end, MINUTE);
        // NaN differs from itself.
        let points = streams.iter().map(|stream| format!("{:?}", stream.points)).collect();
        (points, source.increments.into_inner())
    };
    let median = "histogram_quantile(0.5, increase(latency[5m]))";
    let p90 = "histogram_quantile(0.9, sum(increase(latency[5m])))";
    let named =
        |text: &str, name: &str| format!("label_replace({text}, \"q\", \"{name}\", \"\", \"\")");
    for text in [median, p90] {
        let (alone, reads): (Vec<String>, u64) = answer(text);
        assert_eq!((alone.len(), reads), (1, 1), "{text}");
        let (both, reads) = answer(&format!("{} or {}", named(text, "a"), named(text, "b")));
        assert_eq!(both, [alone[0].as_str(); 2], "{text}");
        assert_eq!(reads, 1, "{text}");
    }
    let other = named("histogram_quantile(0.5, increase(latency[6m]))", "b");
    assert_eq!(answer(&format!("{median} or {other}")).1, 2);
}

#[test]
fn one_window_over_many_chunks_equals_growth_by_samples() {
    let mut by_increments = 0;
    for seed in 200..230 {
        let mut random = Random(seed);
        let store = open_store();
        let end = end_of(&send_series(&store, &mut random, seed % 4 > 0));
        if seed % 2 == 0 {
            store.flush().unwrap();
        }
        for _ in 0..12 {
            let range = 1 + random.below(20_000);
            let at = end / SECOND - random.below(8_000) as i64;
            let text = format!("increase(latency[{range}s] @ {at})");
            by_increments += check(&store, &text, end, 33 * MINUTE);
        }
    }
    assert!(by_increments > 100, "{by_increments} reads of increments are too few to prove much");
}

/// Statistics of the growth of a series, which is not kept for all steps.
const STATISTICS: [&str; 6] = [
    "histogram_quantile(0.9, increase(latency[5m]))",
    "histogram_quantile(scalar(vector(time() % 100 / 99)), rate(latency[90s]))",
    "histogram_quantile(0.5, increase(latency[40m] @ 1600001220))",
    "histogram_fraction(-Inf, 2, increase(latency[3h]))",
    "histogram_fraction(0.5, scalar(vector(time() % 7)), rate(latency[31m] offset 2m))",
    "histogram_count_above(2, increase(latency[5m]))",
];

#[test]
fn statistics_of_growth_by_increments_equal_those_by_samples() {
    let mut by_increments = 0;
    for seed in 400..404 {
        let mut random = Random(seed);
        let store = open_store();
        let end = end_of(&send_series(&store, &mut random, seed % 3 > 0));
        let view = store.view().unwrap();
        for text in STATISTICS {
            for step in [3 * MINUTE, 33 * MINUTE] {
                let [found, expected] = [true, false].map(|has_increments| {
                    let source = ReadCounter {
                        source: StoreSource::new(&view),
                        has_increments,
                        samples: AtomicU64::new(0),
                        increments: AtomicU64::new(0),
                    };
                    let (streams, warnings) = ask(&source, text, end, step);
                    by_increments += source.increments.into_inner();
                    // NaN differs from itself.
                    format!("{streams:?} {warnings:?}")
                });
                assert_eq!(found, expected, "{text}");
            }
        }
    }
    assert!(by_increments > 20, "{by_increments} reads of increments are too few to prove much");
}

#[test]
fn statistics_of_growth_do_not_keep_its_histograms() {
    let store = open_store();
    let end = end_of(&send_series(&store, &mut Random(3), true));
    store.flush().unwrap();
    let view = store.view().unwrap();
    // Samples that a query needs, to a factor of two.
    let needed = |text: &str| {
        let options = promql::Options::default();
        let (start, step) = (START - 5 * MINUTE, 10 * SECOND);
        let question = QueryRequest { text, language: Language::PromQl, start, end, step, options };
        let mut limits = Limits { samples: 1 << 8, ..Limits::default() };
        let is_refused = |limits: Limits| {
            let settings = Settings { limits, ..Settings::default() };
            execute(&StoreSource::new(&view), &question, &settings, &|| false).is_err()
        };
        while is_refused(limits) {
            limits.samples *= 2;
        }
        limits.samples
    };
    for (text, kept) in [
        ("histogram_quantile(0.9, increase(latency[5m]))", "increase(latency[5m])"),
        ("histogram_fraction(0, 2, rate(latency[5m]))", "rate(latency[5m])"),
    ] {
        let (mapped, kept) = (needed(text), needed(kept));
        assert!(mapped * 4 <= kept, "{text}: {mapped}, of {kept} with all histograms");
    }
}

/// Number of values between successive samples in each window, from the samples that were sent.
fn counts_in_windows(sent: &BTreeMap<i64, Histogram>, ends: &[i64], range: i64) -> Vec<u64> {
    let increase = |((_, before), (_, after)): ((&i64, &Histogram), (&i64, &Histogram))| {
        let mut increase = after.clone();
        match increase.subtract(before) {
            Ok(()) => increase.count(),
            Err(_) => after.count(),
        }
    };
    let of_window = |&end: &i64| {
        let pairs = sent.iter().zip(sent.iter().skip(1));
        let within = pairs.filter(|(_, after)| end - range < *after.0 && *after.0 <= end);
        within.map(increase).sum()
    };
    ends.iter().map(of_window).collect()
}

#[test]
fn exact_increases_are_those_of_the_samples_that_were_sent() {
    for seed in 100..130 {
        let store = open_store();
        let sent = send_series(&store, &mut Random(seed), true);
        if seed % 2 == 0 {
            store.flush().unwrap();
        }
        let view = store.view().unwrap();
        let end = end_of(&sent);
        for range in [2 * MINUTE, 13 * MINUTE] {
            let text = format!("histogram_count(exact_increase(latency[{}s]))", range / SECOND);
            let (streams, _) = ask(&StoreSource::new(&view), &text, end, 2 * MINUTE);
            let start = START - 5 * MINUTE;
            let ends: Vec<i64> =
                (0..streams[0].points.len() as i64).map(|n| start + n * 2 * MINUTE).collect();
            let number = |point: &Option<StepValue>| {
                point.as_ref().and_then(StepValue::number).unwrap_or(0.0) as u64
            };
            let found: Vec<u64> = streams[0].points.iter().map(number).collect();
            assert_eq!(found, counts_in_windows(&sent, &ends, range), "seed {seed}, {text}");
        }
    }
}
