//! Queries of many series of numbers, whose samples are read ahead or only counted, have the
//! results of queries that read series by series: random series with staleness markers, late and
//! repeated samples and resets, in the head and in parts.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Disk;
use hist::Mixture;
use hist::codec::header::Temporality;
use journal::Level;
use model::{BatchWriter, Gap, Sample, SampleValue, Selector, Series, SeriesKind};
use query::{
    FreshCount, Language, NumberGroups, QueryRequest, QueryResult, Result, STALE_BITS,
    SeriesHandle, SeriesPoint, Settings, Source, SourceRead, StoreSource, execute, promql,
};
use sim::SimDisk;
use store::{MINUTE, NumberAggregate, Options, ReadView, SECOND, Store, TimeGrid};

/// Ten minutes before midnight, where partitions change.
const START: i64 = 1_600_041_000 * SECOND;
/// More than are read one by one.
const HOSTS: u64 = 700;
const INTERVAL: i64 = 15 * SECOND;
const SAMPLES: i64 = 60;

/// Source that does not read ahead, or counts how often it does.
struct CountedSource<'a> {
    source: StoreSource<'a>,
    reads_ahead: bool,
    ahead: AtomicU64,
    counted: AtomicU64,
    grouped: AtomicU64,
    /// Selections with labels.
    selected: AtomicU64,
}

impl Source for CountedSource<'_> {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        self.selected.fetch_add(1, Ordering::Relaxed);
        self.source.select(selector)
    }

    fn select_count(&self, selector: &Selector) -> Result<u64> {
        self.source.select_count(selector)
    }

    fn gaps(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Vec<Gap> {
        self.source.gaps(series, range)
    }

    fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
        self.source.estimate_rows(series, range, step)
    }

    fn samples(&self, series: &SeriesHandle, range: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        self.source.samples(series, range)
    }

    fn each_samples(
        &self,
        series: &[&SeriesHandle],
        range: Range<i64>,
        each: &mut dyn FnMut(usize, SourceRead<SeriesPoint>) -> Result<()>,
    ) -> Result<()> {
        self.source.each_samples(series, range, each)
    }

    fn read_ahead(&self, series: &[&SeriesHandle], range: &Range<i64>) -> Result<()> {
        if self.reads_ahead {
            self.ahead.fetch_add(1, Ordering::Relaxed);
            self.source.read_ahead(series, range)?;
        }
        Ok(())
    }

    fn end_read_ahead(&self) {
        self.source.end_read_ahead();
    }

    fn count_fresh(&self, selector: &Selector, range: &Range<i64>) -> Result<Option<FreshCount>> {
        let count = if self.reads_ahead { self.source.count_fresh(selector, range)? } else { None };
        self.counted.fetch_add(u64::from(count.is_some()), Ordering::Relaxed);
        Ok(count)
    }

    fn number_groups(
        &self,
        selector: &Selector,
        range: &Range<i64>,
        series_min: u64,
        keeps: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<Box<dyn NumberGroups + '_>>> {
        if !self.reads_ahead {
            return Ok(None);
        }
        let groups = self.source.number_groups(selector, range, series_min, keeps)?;
        self.grouped.fetch_add(u64::from(groups.is_some()), Ordering::Relaxed);
        Ok(groups)
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
    let clock = Arc::new(|| START + 3_600 * SECOND);
    let options = Options { has_background_thread: false, clock, ..Options::default() };
    Store::open(disk, Path::new("/store"), &options).unwrap()
}

/// Sends some samples of all hosts; each is sent at a random time of a few, some twice.
fn fill(store: &Store, random: &mut Random, kind: SeriesKind) {
    let rounds = 4;
    let mut batches: Vec<Vec<(u64, Sample)>> = vec![Vec::new(); rounds];
    for host in 0..HOSTS {
        let mut value = random.below(1_000) as f64;
        // Some hosts have few samples, or begin late.
        let (first, every) = (random.below(30) as i64, 1 + random.below(6) as i64);
        for at in (first..SAMPLES).step_by(every as usize) {
            value = if random.below(40) == 0 { 0.0 } else { value + random.below(90) as f64 };
            let number = match random.below(12) {
                0 => f64::from_bits(STALE_BITS),
                1 => f64::NAN,
                _ => value,
            };
            let end = START + at * INTERVAL;
            // Some have start timestamps.
            let start = if host % 5 == 0 { end - 40 * INTERVAL } else { end };
            let sample = Sample { start, end, value: SampleValue::Number(number) };
            let usual = at as usize * rounds / SAMPLES as usize;
            let round = if random.below(10) == 0 { random.below(4) as usize } else { usual };
            if random.below(20) == 0 {
                let value = SampleValue::Number(number + random.below(2) as f64);
                batches[random.below(4) as usize].push((host, Sample { value, ..sample.clone() }));
            }
            batches[round].push((host, sample));
        }
    }
    for (round, mut batch) in batches.into_iter().enumerate() {
        batch.sort_by_key(|(host, sample)| (*host, sample.end));
        let mut writer = BatchWriter::default();
        for (host, sample) in &batch {
            let (zone, host) = (format!("z{}", host % 7), format!("h{host:04}"));
            let series = Series::new("m", kind).with_labels([("host", host), ("zone", zone)]);
            writer.series(&series.validate().unwrap());
            writer.sample(sample).unwrap();
        }
        let _acknowledged = store.ingest(None, &writer.finish(), Level::Process).unwrap();
        store.catch_up().unwrap();
        // The last samples stay in the head.
        if round < 3 {
            store.flush().unwrap();
        }
    }
}

/// Answer to a query, and how often it read ahead, counted, read groups and selected.
fn ask(
    view: &ReadView,
    text: &str,
    (start, end, step): (i64, i64, i64),
    reads_ahead: bool,
) -> (QueryResult, [u64; 4]) {
    let options = promql::Options::default();
    let request = QueryRequest { text, language: Language::PromQl, start, end, step, options };
    let source = CountedSource {
        source: StoreSource::new(view),
        reads_ahead,
        ahead: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        grouped: AtomicU64::new(0),
        selected: AtomicU64::new(0),
    };
    let settings = Settings { threads: 2, ..Settings::default() };
    let answer = execute(&source, &request, &settings, &|| false).unwrap();
    let CountedSource { ahead, counted, grouped, selected, .. } = &source;
    let counts = [ahead, counted, grouped, selected].map(|count| count.load(Ordering::Relaxed));
    (answer, counts)
}

/// One sample per host: sums of some overflow, depending on the order of the series.
fn fill_with_huge_numbers(store: &Store) {
    let mut writer = BatchWriter::default();
    for host in 0..HOSTS {
        let (zone, host_name) = (format!("z{}", host % 7), format!("h{host:04}"));
        let series = Series::new("m", SeriesKind::Gauge);
        let labels = [("host", host_name), ("zone", zone.clone())];
        writer.series(&series.with_labels(labels).validate().unwrap());
        let huge = 0.6 * f64::MAX;
        let number = match (zone.as_str(), host / 7 % 2) {
            ("z0", 0) | ("z1", 1) => huge,
            ("z0", _) | ("z1", _) => -huge,
            ("z2", _) => f64::MAX / 200.0,
            ("z3", 0) => f64::INFINITY,
            _ => host as f64,
        };
        let sample = Sample { start: START, end: START, value: SampleValue::Number(number) };
        writer.sample(&sample).unwrap();
    }
    let _acknowledged = store.ingest(None, &writer.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
}

/// A sum of both signs was infinite in one order and finite in another.
#[test]
fn sums_that_overflow_are_those_of_single_reads() {
    let store = open_store();
    fill_with_huge_numbers(&store);
    let view = store.view().unwrap();
    for text in ["sum by (zone) (m)", "avg by (zone) (m)", "sum(m)", "avg(max_over_time(m[5m]))"] {
        let (expected, _) = ask(&view, text, (START + 1, START + 1, 0), false);
        let (found, counts) = ask(&view, text, (START + 1, START + 1, 0), true);
        assert!(counts[2] > 0, "{text} reads no groups");
        assert_eq!(format!("{:?}", found.data), format!("{:?}", expected.data), "{text}");
    }
}

const QUERIES: [&str; 23] = [
    "count(m)",
    "group(m)",
    "count(m{host=~\"h00.*\"})",
    "count(m offset 2m)",
    "count(m) by (zone)",
    "count(m{zone!=\"z1\"}) without (host)",
    "sum(m)",
    "topk(3, m)",
    "sum by (zone) (rate(m[1m]))",
    "increase(m[5m])",
    "max(max_over_time(m[20m]))",
    "sum(count_over_time(m[1h]))",
    "m[2m]",
    "count(nothing)",
    "count(m) by (host)",
    "avg by (zone) (m)",
    "sum without (host) (increase(m[3m]))",
    "avg(delta(m[5m] offset 1m))",
    "group by (zone, other) (last_over_time(m[2m]))",
    "sum by (zone) (quantile_over_time(0.5, m[5m]))",
    "topk(2, sum by (zone) (irate(m[1m])))",
    "sum by (zone) (m @ 1600041100)",
    "count by (__name__) (resets(m[10m]))",
];

#[test]
fn results_are_those_of_single_reads() {
    for (seed, kind) in [
        SeriesKind::Counter(Temporality::Cumulative),
        SeriesKind::Counter(Temporality::Delta),
        SeriesKind::Gauge,
    ]
    .into_iter()
    .enumerate()
    {
        let mut random = Random(seed as u64);
        let store = open_store();
        fill(&store, &mut random, kind);
        let view = store.view().unwrap();
        let (mut ahead, mut counted, mut grouped) = (0, 0, 0);
        for at in [-1, 0, 5, 31, SAMPLES, SAMPLES + 3, SAMPLES + 30] {
            let start = START + at * INTERVAL + random.below(2) as i64;
            for text in QUERIES {
                for (length, step) in [(0, 0), (MINUTE, 20 * SECOND)] {
                    if step > 0 && text == "m[2m]" {
                        continue;
                    }
                    let range = (start, start + length, step);
                    let (expected, _) = ask(&view, text, range, false);
                    let (found, counts) = ask(&view, text, range, true);
                    // NaN differs from itself.
                    let text_of = |data: &query::ResultData| format!("{data:?}");
                    assert_eq!(text_of(&found.data), text_of(&expected.data), "{text}");
                    assert_eq!(found.warnings, expected.warnings, "{text}");
                    assert_eq!(found.unit, expected.unit, "{text}");
                    ahead += counts[0];
                    counted += counts[1];
                    grouped += counts[2];
                    // Without series, those of other names are searched.
                    if counts[1] + counts[2] > 0 && text != "count(nothing)" {
                        assert_eq!(counts[3], 0, "{text} reads labels");
                    }
                }
            }
        }
        // Some counts of deltas depend on their sums.
        assert!(ahead > 60, "{ahead} of {kind:?}");
        let is_delta = kind == SeriesKind::Counter(Temporality::Delta);
        assert_eq!(grouped > 60, !is_delta, "{grouped} of {kind:?}");
        assert!(counted > if kind == SeriesKind::Gauge { 20 } else { 3 }, "{counted} of {kind:?}");
    }
}
