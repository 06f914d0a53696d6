//! A gauge histogram is one sample of its series, however often it is sent.

use hist::codec::header::Temporality;
use model::{Sample, Selector, Series, SeriesKind};
use store::{DAY, HOUR, MINUTE, Resolution, RetentionRule, SECOND, Store, TimeGrid};

use crate::fixture::{StoreFixture, histogram, ingest, sample};

const BEGIN: i64 = 20_000 * DAY;

fn sizes() -> Series {
    Series::new("sizes", SeriesKind::Histogram(Temporality::Delta)).validate().unwrap()
}

fn point(minute: i64, values: &[f64]) -> Sample {
    let time = BEGIN + minute * MINUTE;
    sample(time, time, histogram(values))
}

fn send(store: &Store, sequence: u64, samples: &[Sample]) {
    let series = sizes();
    let rows: Vec<_> = samples.iter().map(|sample| (&series, sample.clone())).collect();
    ingest(store, sequence, &rows);
}

/// Checks the values of the first day in each kind of query, and the reasons of gaps.
#[track_caller]
fn count(store: &Store) -> (u64, Vec<String>) {
    let view = store.view().unwrap();
    let found = view.select(&model::Selector::All);
    let whole = |step: i64| {
        let grid = TimeGrid { start: BEGIN, step, columns: (DAY / step) as u64 };
        let columns: Vec<_> =
            view.histograms(&found, grid).unwrap().map(|column| column.unwrap()).collect();
        let gaps: Vec<String> = columns
            .iter()
            .flat_map(|column| column.gaps.iter().map(|gap| gap.reason.clone()))
            .collect();
        (columns.iter().map(|column| column.value.count()).sum::<u64>(), gaps)
    };
    let (by_day, gaps) = whole(DAY);
    assert_eq!(whole(HOUR).0, by_day);
    assert_eq!(whole(90 * SECOND).0, by_day);
    (by_day, gaps)
}

fn settle(store: &Store) {
    store.flush().unwrap();
    while store.maintain().unwrap() {}
}

#[test]
fn resent_request_duplicates_no_point_histogram() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + HOUR);
    let store = world.open().unwrap();
    let samples: Vec<Sample> =
        (1..=50).map(|minute| point(minute, &[1.0, f64::from(minute as i32)])).collect();
    send(&store, 1, &samples);
    send(&store, 2, &samples);
    assert_eq!(count(&store), (100, vec![]), "in memory");
    store.flush().unwrap();
    send(&store, 3, &samples);
    assert_eq!(count(&store), (100, vec![]), "in a part and in memory");
    drop(store);
    let store = world.open().unwrap();
    assert_eq!(count(&store), (100, vec![]), "read again");
    world.set_now(BEGIN + 2 * DAY);
    settle(&store);
    send(&store, 4, &samples);
    assert_eq!(count(&store), (100, vec![]), "rolled up and in memory");
    settle(&store);
    assert_eq!(count(&store), (100, vec![]), "rolled up anew");
}

#[test]
fn conflicting_point_histogram_is_rejected() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + HOUR);
    let store = world.open().unwrap();
    send(&store, 1, &[point(1, &[1.0, 2.0])]);
    for sequence in [2, 3] {
        // The other samples of the request are accepted.
        send(&store, sequence, &[point(1, &[3.0]), point(sequence as i64, &[4.0])]);
        store.flush().unwrap();
    }
    assert_eq!(count(&store).0, 4);
    let refused = store.ingest_progress().unwrap().rejected;
    assert_eq!(refused.iter().map(|gap| gap.lost).collect::<Vec<_>>(), [Some(1), Some(1)]);
    for gap in refused {
        assert!(gap.reason.contains("another histogram at"), "{}", gap.reason);
    }
}

#[test]
fn windows_of_several_senders_add_up() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + HOUR);
    let store = world.open().unwrap();
    let window = sample(BEGIN, BEGIN + MINUTE, histogram(&[1.0, 2.0]));
    send(&store, 1, std::slice::from_ref(&window));
    send(&store, 2, &[window]);
    assert_eq!(count(&store), (4, vec![]));
}

/// Values in columns of a day: as in PromQL, whose windows include their ends, and as in CAQL,
/// whose intervals include their starts.
#[track_caller]
fn check_columns(store: &Store, step: i64, by_end: &[u64], by_start: &[u64], when: &str) {
    let view = store.view().unwrap();
    let found = view.select(&Selector::All);
    let grid = TimeGrid { start: BEGIN, step, columns: (DAY / step) as u64 };
    let count =
        |column: store::Result<store::TimeColumn<hist::Mixture>>| column.unwrap().value.count();
    let ends: Vec<u64> = view.histograms(&found, grid).unwrap().map(count).collect();
    assert_eq!(ends, by_end, "{when}, by end, {step} ns");
    let starts: Vec<u64> = view.histograms_by_start(&found, grid).unwrap().map(count).collect();
    assert_eq!(starts, by_start, "{when}, by start, {step} ns");
}

#[test]
fn distribution_on_the_hour_belongs_to_the_next_hour() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + 2 * DAY);
    let store = world.open().unwrap();
    // One a minute from the start of the day to the start of the next, with more values on the
    // hour.
    let points: Vec<Sample> = (0..=24 * 60)
        .map(|minute| point(minute, &vec![1.0; if minute % 60 == 0 { 10 } else { 1 }]))
        .collect();
    send(&store, 1, &points);
    // An interval ending on the hour is in the hour before, in both languages.
    let window = sample(BEGIN + 59 * MINUTE, BEGIN + HOUR, histogram(&[2.0; 5]));
    send(&store, 2, &[window]);
    let check = |when: &str| {
        let per_hour = |first: u64| [vec![first], vec![69; 23]].concat();
        check_columns(&store, DAY, &[24 * 69 + 5], &[24 * 69 + 5], when);
        check_columns(&store, HOUR, &per_hour(74), &per_hour(74), when);
        // A value on the hour is in the last minute of an hour, or in the first of the next.
        let minutes = |on_the_hour: usize| {
            let mut minutes = vec![1; 24 * 60];
            (0..24).for_each(|hour| minutes[hour * 60 + on_the_hour] = 10);
            minutes[59] += 5;
            minutes
        };
        if when != "base rows dropped" {
            check_columns(&store, MINUTE, &minutes(59), &minutes(0), when);
        }
        let halves = |first: u64, second: u64| {
            let mut halves = [first, second].repeat(24);
            halves[1] += 5;
            halves
        };
        check_columns(&store, 30 * MINUTE, &halves(30, 39), &halves(39, 30), when);
    };
    check("in memory");
    store.flush().unwrap();
    check("in a part");
    settle(&store);
    check("rolled up");
    let rule =
        |resolution| RetentionRule { resolution, duration: Some(HOUR), selector: Selector::All };
    store.set_retention(vec![rule(Resolution::Base)]).unwrap();
    settle(&store);
    check("rolled up anew");
    world.set_now(BEGIN + 6 * DAY);
    settle(&store);
    let parts = store.stat().unwrap().parts;
    assert!(parts.iter().all(|part| part.resolution != Resolution::Base));
    check("base rows dropped");
}

/// Its rollup row has no duration: a query for rows must report that they were dropped.
#[test]
fn lone_point_distribution_survives_base_drop() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + HOUR);
    let store = world.open().unwrap();
    let (resolution, selector) = (Resolution::Base, Selector::All);
    store
        .set_retention(vec![RetentionRule { resolution, duration: Some(HOUR), selector }])
        .unwrap();
    send(&store, 1, &[point(3, &[1.0])]);
    world.set_now(BEGIN + 6 * DAY);
    settle(&store);
    let parts = store.stat().unwrap().parts;
    assert!(parts.iter().all(|part| part.resolution != Resolution::Base));
    let view = store.view().unwrap();
    let found = view.select(&Selector::All);
    let stretch = view.complete_range(&found).unwrap().expect("there is something");
    assert!(stretch.contains(&(BEGIN + 3 * MINUTE - 1)), "{stretch:?}");
    let gaps = view.samples(&found[0], stretch, &mut |_| panic!("a row is left")).unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
}

#[test]
fn first_point_histogram_survives_base_drop() {
    let world = StoreFixture::new();
    world.set_now(BEGIN + HOUR);
    let store = world.open().unwrap();
    send(&store, 1, &[point(20, &[1.0]), point(30, &[2.0, 3.0])]);
    world.set_now(BEGIN + 3 * DAY);
    settle(&store);
    let base = RetentionRule {
        resolution: Resolution::Base,
        duration: Some(HOUR),
        selector: Selector::All,
    };
    store.set_retention(vec![base]).unwrap();
    settle(&store);
    let parts = store.stat().unwrap().parts;
    assert!(parts.iter().all(|part| part.resolution != Resolution::Base), "{parts:?}");

    let view = store.view().unwrap();
    let found = view.select(&Selector::All);
    let stretch = view.complete_range(&found).unwrap().expect("there are rows");
    let grid = TimeGrid { start: stretch.start, step: stretch.end - stretch.start, columns: 1 };
    let mut columns = view.histograms(&found, grid).unwrap();
    assert_eq!(columns.next().unwrap().unwrap().value.count(), 3);
}

/// Number of series, and seconds between samples, of [`bytes_of_rollups`].
const MEASURED_SERIES: u64 = 8;
const MEASURED_STEP_S: i64 = 15;

/// Bytes and rows of a day of latency histograms by resolution: gauge or cumulative samples
/// every 15 s, `early` nanoseconds before the whole second. Each has 40 new values; a gauge
/// histogram has 40.
fn bytes_of_rollups(temporality: Temporality, early: i64) -> Vec<(Resolution, u64, u64)> {
    let world = StoreFixture::new();
    world.set_now(BEGIN);
    let store = world.open().unwrap();
    let kind = SeriesKind::Histogram(temporality);
    let series: Vec<Series> = (0..MEASURED_SERIES)
        .map(|at| Series::new("latency", kind).with_label("host", format!("web-{at}")))
        .map(|series| series.validate().unwrap())
        .collect();
    let mut grown = vec![hist::Histogram::default(); series.len()];
    let mut state = 1u64;
    // Roughly log-normal around 12 ms: the sum of four uniform numbers is nearly normal.
    let mut value = || {
        let mut sum = 0.0;
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sum += (state >> 40) as f64 / f64::from(1 << 24) - 0.5;
        }
        (12.0 * (1.2 * sum).exp() * 1e6).round()
    };
    for at in 1..=DAY / (MEASURED_STEP_S * SECOND) {
        let end = BEGIN + at * MEASURED_STEP_S * SECOND - early;
        let mut rows = Vec::new();
        for (series, grown) in series.iter().zip(&mut grown) {
            let values: Vec<f64> = (0..40).map(|_| value()).collect();
            let value = match temporality {
                Temporality::Delta => histogram(&values),
                Temporality::Cumulative => {
                    values.iter().for_each(|&value| grown.record(value));
                    grown.clone()
                }
            };
            rows.push((series, sample(end, end, value)));
        }
        ingest(&store, at as u64, &rows);
        if at % 1_440 == 0 {
            store.flush().unwrap();
        }
    }
    world.set_now(BEGIN + 2 * DAY);
    settle(&store);
    let parts = store.stat().unwrap().parts;
    Resolution::ALL
        .into_iter()
        .map(|resolution| {
            let own = || parts.iter().filter(|part| part.resolution == resolution);
            let (bytes, rows) = (own().map(|part| part.bytes), own().map(|part| part.rows));
            (resolution, bytes.sum(), rows.sum())
        })
        .collect()
}

/// Samples on the whole second are the worst case: one of four is between two minutes. A nanosecond
/// earlier they share a row, as all did before rollups kept values between intervals separate.
#[test]
#[ignore = "measurement: bytes of rollups with and without rows of their own, about a minute"]
fn rows_of_their_own_cost_at_most_half_of_a_store_more() {
    println!(
        "| dataset | rows of | rows before | rows after | bytes before | bytes after | ratio |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    for temporality in [Temporality::Delta, Temporality::Cumulative] {
        let before = bytes_of_rollups(temporality, 1);
        let after = bytes_of_rollups(temporality, 0);
        let mut totals = (0, 0);
        for ((resolution, bytes_before, rows_before), (_, bytes, rows)) in
            before.into_iter().zip(after)
        {
            let ratio = bytes as f64 / bytes_before as f64;
            println!(
                "| {temporality:?} | {resolution} | {rows_before} | {rows} | {bytes_before} | \
                 {bytes} | {ratio:.2} |"
            );
            totals = (totals.0 + bytes_before, totals.1 + bytes);
            let most = match temporality {
                Temporality::Delta if resolution != Resolution::Base => 3.0,
                _ => 1.05,
            };
            assert!(ratio <= most, "{temporality:?} {resolution}: {ratio}");
        }
        let ratio = totals.1 as f64 / totals.0 as f64;
        println!("| {temporality:?} | all | | | {} | {} | {ratio:.2} |", totals.0, totals.1);
        assert!(ratio <= 1.5, "{temporality:?}: {ratio}");
    }
}
