//! Buckets of fine histograms as series: `rate(x_bucket[5m])` decodes each sample of `x` once or a
//! few times, not once for each of its hundreds of buckets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hist::codec::header::Temporality;
use hist::{Histogram, Mixture};
use journal::Level;
use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use query::{
    Language, QueryRequest, ResultData, SeriesHandle, SeriesPoint, Settings, Source, SourceRead,
    StepValue, StoreSource, Stream, execute, promql,
};
use store::{DAY, HOUR, MINUTE, NumberAggregate, Options, SECOND, Store, TimeGrid};

const START: i64 = 1_600_041_600 * SECOND;

/// Source that counts the histograms that it decodes: samples, and columns of increases.
struct DecodeCounter<'a> {
    source: StoreSource<'a>,
    samples: AtomicU64,
    columns: AtomicU64,
}

impl Source for DecodeCounter<'_> {
    fn select(&self, selector: &Selector) -> query::Result<Vec<SeriesHandle>> {
        self.source.select(selector)
    }

    fn time_range(
        &self,
        series: &[SeriesHandle],
        range: Range<i64>,
    ) -> query::Result<Option<Range<i64>>> {
        self.source.time_range(series, range)
    }

    fn samples(
        &self,
        series: &SeriesHandle,
        range: Range<i64>,
    ) -> query::Result<SourceRead<SeriesPoint>> {
        let read = self.source.samples(series, range)?;
        self.samples.fetch_add(read.values.len() as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn histograms(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Mixture>> {
        self.columns.fetch_add(grid.columns * series.len() as u64, Ordering::Relaxed);
        self.source.histograms(series, grid)
    }

    fn numbers(
        &self,
        series: &[&SeriesHandle],
        grid: TimeGrid,
    ) -> query::Result<SourceRead<Option<NumberAggregate>>> {
        self.source.numbers(series, grid)
    }
}

/// A store with cumulative fine histograms of some hosts.
struct FineHistograms {
    store: Store,
    hosts: usize,
    samples: u64,
    end: i64,
}

impl FineHistograms {
    fn new(hosts: usize, interval: i64, samples: u64) -> FineHistograms {
        let clock: journal::WallClock = Arc::new(|| START + 30 * DAY);
        let settings = journal::Settings {
            buffer_bytes: 8 << 20,
            segment_bytes: 32 << 20,
            ..Default::default()
        };
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            clock: Arc::clone(&clock),
            ..Default::default()
        };
        let options =
            Options { has_background_thread: false, journal, clock, ..Options::default() };
        let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
        Store::create(&disk, Path::new("/store"), &settings).unwrap();
        let store = Store::open(disk, Path::new("/store"), &options).unwrap();
        for host in 0..hosts {
            let kind = SeriesKind::Histogram(Temporality::Cumulative);
            let series = Series::new("fine_seconds", kind).with_unit("s");
            let series = series.with_label("host", host.to_string()).validate().unwrap();
            let mut total = Histogram::default();
            let mut batch = BatchWriter::default();
            batch.series(&series);
            for at in 0..samples {
                // Two decades of latencies fill hundreds of buckets.
                for value in 0..40 {
                    let step = (value * 37 + at * 11 + host as u64 * 3) % 400;
                    total.record(0.001 * 1.012f64.powi(step as i32));
                }
                let end = START + interval * (at as i64 + 1);
                let value = SampleValue::Histogram(Box::new(total.clone()));
                batch.sample(&Sample { start: START, end, value }).unwrap();
            }
            let _ack = store.ingest(None, &batch.finish(), Level::Disk).unwrap();
            store.flush().unwrap();
        }
        FineHistograms { store, hosts, samples, end: START + interval * samples as i64 }
    }

    /// Result of a query up to the end, and how many histograms it decodes: samples and columns.
    fn ask(&self, text: &str, steps: (i64, i64)) -> (Vec<Stream>, u64, u64) {
        let view = self.store.view().unwrap();
        let (samples, columns) = Default::default();
        let source = DecodeCounter { source: StoreSource::new(&view), samples, columns };
        let options = promql::Options { standard_only: false, ..promql::Options::all() };
        let (range, step) = steps;
        let start = self.end - range;
        let request =
            QueryRequest { text, language: Language::PromQl, start, end: self.end, step, options };
        let began = std::time::Instant::now();
        let answer = execute(&source, &request, &Settings::default(), &|| false).unwrap();
        let (ResultData::Matrix(streams) | ResultData::Vector(streams)) = answer.data else {
            panic!("{text} has no series");
        };
        let decoded = (source.samples.into_inner(), source.columns.into_inner());
        println!(
            "{text}: {} series, {} samples and {} columns decoded, {:?}",
            streams.len(),
            decoded.0,
            decoded.1,
            began.elapsed()
        );
        (streams, decoded.0, decoded.1)
    }

    fn all_samples(&self) -> u64 {
        self.hosts as u64 * self.samples
    }
}

fn numbers(stream: &Stream) -> Vec<Option<f64>> {
    stream.points.iter().map(|point| point.as_ref().and_then(StepValue::number)).collect()
}

/// A query of the buckets of some hosts took ten seconds.
#[test]
fn each_sample_of_a_day_is_decoded_once_for_all_of_its_buckets() {
    let fine = FineHistograms::new(3, 15 * SECOND, 241);
    let (streams, samples, _) = fine.ask("rate(fine_seconds_bucket[5m])", (HOUR, MINUTE));
    assert!(streams.len() > 3 * 200, "{}", streams.len());
    assert_eq!(samples, fine.all_samples());
    let (one, samples, _) =
        fine.ask("increase(fine_seconds_bucket{le='+Inf'}[5m])", (HOUR, MINUTE));
    assert_eq!((one.len(), samples), (3, fine.all_samples()));
    let (sum, samples, _) = fine.ask("sum by (le) (rate(fine_seconds_bucket[5m]))", (HOUR, MINUTE));
    assert_eq!(samples, fine.all_samples());
    // Each bucket has the count of the histogram up to its bound.
    for stream in sum.iter().step_by(40) {
        let le = stream.labels.get("le");
        let text = format!("sum(rate(fine_seconds_bucket{{le=\"{le}\"}}[5m]))");
        let (alone, ..) = fine.ask(&text, (HOUR, MINUTE));
        assert_eq!(numbers(stream), numbers(&alone[0]), "{le}");
    }
}

#[test]
fn samples_of_days_are_decoded_once_for_each_group_of_buckets() {
    let fine = FineHistograms::new(1, 2 * MINUTE, 2 * 720 + 10);
    let (streams, samples, _) =
        fine.ask("increase(fine_seconds_bucket[1h])", (2 * DAY - HOUR, HOUR));
    assert!(streams.len() > 200, "{}", streams.len());
    // Once for the bounds, and once for all buckets: they are one group.
    assert!(samples <= 2 * fine.all_samples(), "{samples} of {}", fine.all_samples());
    let mut values: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for stream in &streams {
        values.insert(stream.labels.get("le").to_owned(), numbers(stream));
    }
    let total = &values["+Inf"];
    assert!(total.iter().flatten().all(|count| *count > 0.0), "{total:?}");
    for (le, counts) in &values {
        let text = format!("increase(fine_seconds_bucket{{le=\"{le}\"}}[1h])");
        if le.ends_with('7') {
            let (alone, ..) = fine.ask(&text, (2 * DAY - HOUR, HOUR));
            assert_eq!(*counts, numbers(&alone[0]), "{le}");
        }
    }
}

#[test]
fn increases_of_columns_are_read_once_for_all_buckets() {
    let fine = FineHistograms::new(2, MINUTE, 240);
    let text = "sum by (le) (exact_increase(fine_seconds_bucket[10m]))";
    let (streams, _, columns) = fine.ask(text, (3 * HOUR, 10 * MINUTE));
    assert!(streams.len() > 200, "{}", streams.len());
    assert_eq!(columns, 2 * 19);
    let (total, ..) = fine
        .ask("sum(histogram_count(exact_increase(fine_seconds[10m])))", (3 * HOUR, 10 * MINUTE));
    let all = streams.iter().find(|stream| stream.labels.get("le") == "+Inf").unwrap();
    assert_eq!(numbers(all), numbers(&total[0]));
}
