//! Series that end with Prometheus' staleness marker by remote write. For a histogram, the marker
//! is a float with the same name and labels, in a counter series. Also series that continue with
//! another kind after their sender has changed its protocol.

use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use hist::Histogram;
use hist::codec::header::Temporality;
use journal::Level;
use model::{BatchWriter, Sample, SampleValue, Series, SeriesKind};
use query::{
    Language, QueryRequest, QueryResult, QueryWarningKind, ResultData, STALE_BITS, Settings,
    StoreSource, execute, promql,
};
use sim::SimDisk;
use store::{Options, SECOND, Store};

const DIR: &str = "/store";
const START: i64 = 1_600_000_020 * SECOND;

/// Adds a series of samples ten seconds apart.
fn put(batch: &mut BatchWriter, name: &str, kind: SeriesKind, values: Vec<(i64, SampleValue)>) {
    batch.series(&Series::new(name, kind).validate().unwrap());
    for (second, value) in values {
        let at = START + second * SECOND;
        batch.sample(&Sample { start: at, end: at, value }).unwrap();
    }
}

fn build_store() -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new(DIR), &journal::Settings::default()).unwrap();
    let clock = Arc::new(|| START + 3_600 * SECOND);
    let options = Options { has_background_thread: false, clock, ..Options::default() };
    let store = Store::open(disk, Path::new(DIR), &options).unwrap();
    let histogram = |count: u64| {
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(1.0));
        SampleValue::Histogram(Box::new(histogram))
    };
    let end = || SampleValue::Number(f64::from_bits(STALE_BITS));
    let cumulative = Temporality::Cumulative;
    let mut batch = BatchWriter::default();
    let samples = [0, 10, 20].map(|at| (at, histogram(5 + at as u64))).to_vec();
    put(&mut batch, "latency", SeriesKind::Histogram(cumulative), samples);
    put(&mut batch, "latency", SeriesKind::Counter(cumulative), vec![(30, end())]);
    let number = |at| (at, SampleValue::Number(100.0 + at as f64));
    let samples = vec![number(0), number(10), (20, end()), number(30)];
    put(&mut batch, "requests", SeriesKind::Counter(cumulative), samples);
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    store
}

/// Result of an instant query.
fn ask(store: &Store, text: &str, second: i64) -> query::Result<QueryResult> {
    let start = START + second * SECOND;
    let options = promql::Options::default();
    let question =
        QueryRequest { text, language: Language::PromQl, start, end: start, step: 0, options };
    let view = store.view().unwrap();
    execute(&StoreSource::new(&view), &question, &Settings::default(), &|| false)
}

/// Result at a timestamp: a number, or none.
#[track_caller]
fn check(store: &Store, text: &str, second: i64, expected: Option<f64>) {
    let answer = ask(store, text, second).unwrap();
    let ResultData::Vector(streams) = answer.data else { panic!("an instant query has a vector") };
    let found = streams.first().and_then(|stream| stream.points[0].as_ref()?.number());
    assert_eq!((streams.len() < 2, found), (true, expected), "{text} at {second} s");
}

#[test]
fn histogram_exists_until_its_stale_marker() {
    let store = build_store();
    check(&store, "histogram_count(latency)", 25, Some(25.0));
    check(&store, "histogram_count(latency)", 35, None);
    check(&store, "histogram_count(exact_increase(latency[1m]))", 40, Some(20.0));
}

#[test]
fn counter_continues_after_its_stale_marker() {
    let store = build_store();
    check(&store, "requests", 15, Some(110.0));
    check(&store, "requests", 25, None);
    check(&store, "requests", 35, Some(130.0));
    check(&store, "exact_increase(requests[1m])", 40, Some(30.0));
}

/// Remote write 1 has no types: a counter without `_total` is received as a gauge until its sender
/// uses version 2.
#[test]
fn both_types_of_a_changed_series_are_returned() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new(DIR), &journal::Settings::default()).unwrap();
    let clock = Arc::new(|| START + 3_600 * SECOND);
    let options = Options { has_background_thread: false, clock, ..Options::default() };
    let store = Store::open(disk, Path::new(DIR), &options).unwrap();
    let mut batch = BatchWriter::default();
    let numbers = |all: &[(i64, f64)]| {
        all.iter().map(|&(at, number)| (at, SampleValue::Number(number))).collect::<Vec<_>>()
    };
    put(&mut batch, "served", SeriesKind::Gauge, numbers(&[(0, 10.0), (10, 20.0), (20, 30.0)]));
    let counter = SeriesKind::Counter(Temporality::Cumulative);
    // The last gauge sample is sent again as a counter.
    put(&mut batch, "served", counter, numbers(&[(20, 30.0), (30, 40.0), (40, 50.0)]));
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    check(&store, "served", 15, Some(20.0));
    check(&store, "served", 45, Some(50.0));
    check(&store, "count_over_time(served[1m])", 45, Some(5.0));
    check(&store, "increase(served[40s])", 40, Some(40.0));
    // Gauges are not deltas: their growth is not known to be an increase.
    check(&store, "exact_increase(served[1m])", 45, Some(20.0));
    check(&store, "served{__kind=\"gauge\"}", 45, Some(30.0));
    let answer = ask(&store, "rate(served[1m])", 45).unwrap();
    let warnings: Vec<&str> =
        answer.warnings.of_kind(QueryWarningKind::Warning).map(|note| note.0).collect();
    assert_eq!(
        warnings,
        ["served was sent as gauge and as cumulative-counter: the samples are merged; select one \
             with __unit or __kind, as in served{__kind=\"gauge\"}"]
    );
}

/// One StatsD client with the name of another source made `count({__name__=~".+"})` fail.
#[test]
fn count_and_selection_of_a_name_in_two_units_need_no_merge() {
    let store = build_store();
    let mut batch = BatchWriter::default();
    for (unit, value) in [("ns", 5e6), ("ms", 5.0)] {
        let kind = SeriesKind::Histogram(Temporality::Delta);
        batch.series(&Series::new("took", kind).with_unit(unit).validate().unwrap());
        let mut histogram = Histogram::default();
        histogram.record(value);
        let value = SampleValue::Histogram(Box::new(histogram));
        batch.sample(&Sample { start: START, end: START + SECOND, value }).unwrap();
    }
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    let labels = |text: &str| {
        let answer = ask(&store, text, 5);
        answer.map(|answer| match answer.data {
            ResultData::Vector(streams) => {
                let mut found: Vec<String> =
                    streams.iter().map(|stream| stream.labels.to_string()).collect();
                found.sort();
                found
            }
            other => panic!("{other:?}"),
        })
    };
    check(&store, "count({__name__=~\"took|requests\"})", 5, Some(3.0));
    check(&store, "count(group by (__unit__) (took))", 5, Some(2.0));
    assert_eq!(
        labels("took").unwrap(),
        [
            "took{__type__=\"histogram\", __unit__=\"ms\"}",
            "took{__type__=\"histogram\", __unit__=\"ns\"}"
        ]
    );
    assert_eq!(labels("took{__unit=\"ms\"}").unwrap(), ["took"]);
    let merged = labels("sum(rate(took[1m]))").unwrap_err().to_string();
    let remedy = "it was sent as delta-histogram in ns and as delta-histogram in ms; select one \
                  with __unit, as in took{__unit=\"ms\"}, or rename or delete the others";
    assert!(merged.contains(remedy), "{merged}");
}

/// Counts of bytes and of ms were "sent as delta-counter and as delta-counter", and the hint was
/// `{__kind="gauge"}`.
#[test]
fn warning_of_merged_counts_names_their_units_and_a_selector_that_works() {
    let store = build_store();
    let mut batch = BatchWriter::default();
    for (unit, count) in [("B", 1), ("ns", 3)] {
        let kind = SeriesKind::Histogram(Temporality::Delta);
        let series = Series::new("checkout", kind).with_label("host", "web-1").with_unit(unit);
        batch.series(&series.validate().unwrap());
        let mut histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(5.0));
        let value = SampleValue::Histogram(Box::new(histogram));
        batch.sample(&Sample { start: START, end: START + SECOND, value }).unwrap();
    }
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    let answer = ask(&store, "exact_increase(checkout_count[1m])", 5).unwrap();
    let warnings: Vec<&str> =
        answer.warnings.of_kind(QueryWarningKind::Warning).map(|warning| warning.0).collect();
    let expected = "checkout_count{host=\"web-1\"} was sent as delta-counter of values in B and as \
                    delta-counter of values in ns: the samples are merged; select one with __unit \
                    or __kind, as in checkout_count{__unit=\"B\", host=\"web-1\"}";
    assert_eq!(warnings, [expected]);
    let narrow = "exact_increase(checkout_count{__unit=\"B\", host=\"web-1\"}[1m])";
    check(&store, narrow, 5, Some(1.0));
    check(&store, "exact_increase(checkout_count{__unit=\"ns\"}[1m])", 5, Some(3.0));
    check(&store, "exact_increase(checkout_count[1m])", 5, Some(4.0));
}

/// One sender that left out the unit had its values added as if they were nanoseconds.
#[test]
fn plain_number_is_not_added_to_values_with_a_unit() {
    let store = build_store();
    let mut batch = BatchWriter::default();
    let kind = SeriesKind::Histogram(Temporality::Delta);
    let mut record = |name: &str, host: &str, unit: &str, value: f64| {
        let series = Series::new(name, kind).with_label("host", host).with_unit(unit);
        batch.series(&series.validate().unwrap());
        let mut histogram = Histogram::default();
        histogram.record(value);
        let value = SampleValue::Histogram(Box::new(histogram));
        batch.sample(&Sample { start: START, end: START + SECOND, value }).unwrap();
    };
    record("took", "a", "ns", 5e8);
    record("took", "a", "", 500.0);
    record("took", "b", "", 500.0);
    record("size", "c", "", 3.0);
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    let count = |text: &str, expected: f64, expected_warnings: &[&str]| {
        check(&store, text, 5, Some(expected));
        let answer = ask(&store, text, 5).unwrap();
        let warnings = answer.warnings.of_kind(QueryWarningKind::Warning);
        let warnings: Vec<&str> = warnings.map(|warning| warning.0).collect();
        assert_eq!(warnings, expected_warnings, "{text}");
    };
    let left_out = "took{host=\"a\"}, took{host=\"b\"} are left out: they have no unit, unlike the \
                    others of the metric; select them with {__unit=\"\"}, or rename or delete them";
    count("histogram_count(sum(exact_increase(took[1m])))", 1.0, &[left_out]);
    count("sum(histogram_count(took))", 1.0, &[left_out]);
    count("sum(histogram_count({__name__=~\"took|size\"}))", 2.0, &[left_out]);
    // The unit is known: the duration is converted to nanoseconds.
    check(&store, "histogram_count_above(250ms, sum(took))", 5, Some(1.0));
    count("sum(histogram_count(took{__unit=\"\"}))", 2.0, &[]);
    // A plain selector shows all series, and adds nothing.
    let answer = ask(&store, "took", 5).unwrap();
    let ResultData::Vector(streams) = answer.data else { panic!("an instant query has a vector") };
    assert_eq!((streams.len(), answer.unit), (3, None));
    count("count(took)", 3.0, &[]);
}

/// `x_bucket{le="0.25"}` of values in nanoseconds was an empty answer without a word.
#[test]
fn bucket_that_no_bound_matches_names_the_unit_of_the_bounds() {
    let store = build_store();
    let mut batch = BatchWriter::default();
    let kind = SeriesKind::Histogram(Temporality::Delta);
    batch.series(&Series::new("took", kind).with_unit("ns").validate().unwrap());
    let mut histogram = Histogram::new(hist::Scheme::explicit(&[5e6, 2.5e8]).unwrap());
    histogram.record(1e6);
    let value = SampleValue::Histogram(Box::new(histogram));
    batch.sample(&Sample { start: START, end: START + SECOND, value }).unwrap();
    let _acknowledged = store.ingest(None, &batch.finish(), Level::Process).unwrap();
    store.catch_up().unwrap();
    let warnings = |text: &str| {
        let answer = ask(&store, text, 5).unwrap();
        let all = answer.warnings.of_kind(QueryWarningKind::Warning);
        all.map(|warning| warning.0.to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(
        warnings("took_bucket{le=\"0.25\"}"),
        ["took_bucket has no bucket with this le: its bounds are in ns, from le=\"5e+06\" to \
          le=\"2.5e+08\"; histogram_count_below(250ms, took) takes any limit"]
    );
    assert_eq!(warnings("took_bucket{le=\"2.5e+08\"}"), [] as [&str; 0]);
}
