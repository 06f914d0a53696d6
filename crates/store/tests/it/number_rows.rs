//! Rows of many series of numbers that are read part by part, against the read of each series.

use std::ops::Range;
use std::sync::Arc;

use hist::codec::header::Temporality;
use model::{Gap, Sample, SampleValue, Selector, Series, SeriesKind};
use proptest::prelude::*;
use sim::{DiskOperation, Fault, FaultKind, SimDisk};
use store::{DAY, HOUR, LastNumber, MINUTE, ReadView, SECOND, SelectedSeries};

use crate::fixture::{StoreFixture, histogram, ingest, latency, sample};

/// Shortly before midnight: rows are in parts of two days.
const START: i64 = 10 * DAY - 10 * MINUTE;
const SERIES: usize = 9;

#[derive(Clone, Debug)]
enum RowStep {
    /// A row of a series that ends this long after the start.
    Row {
        series: usize,
        at_s: i64,
        length_s: i64,
        value: u8,
    },
    Flush,
    Maintain,
    /// Deletes a series' rows of a range.
    Delete {
        series: usize,
        at_s: i64,
    },
    /// Advances the clock, so that parts are rolled up and merged.
    Pass {
        hours: i64,
    },
}

fn steps() -> impl Strategy<Value = Vec<RowStep>> {
    // Few times, so that rows are sent again, or in another part, with another value or start.
    let row = (0..SERIES, 0..80i64, 0..3i64, 0..4u8).prop_map(|(series, at, length, value)| {
        RowStep::Row { series, at_s: at * 15, length_s: length * 15, value }
    });
    let delete =
        (0..SERIES, 0..80i64).prop_map(|(series, at)| RowStep::Delete { series, at_s: at * 15 });
    let step = prop_oneof![
        40 => row,
        3 => Just(RowStep::Flush),
        1 => Just(RowStep::Maintain),
        1 => delete,
        1 => (1..50i64).prop_map(|hours| RowStep::Pass { hours }),
    ];
    proptest::collection::vec(step, 1..120)
}

fn series(number: usize) -> Series {
    let kind = match number % 3 {
        0 => SeriesKind::Counter(Temporality::Cumulative),
        1 => SeriesKind::Counter(Temporality::Delta),
        _ => SeriesKind::Gauge,
    };
    Series::new("s", kind).with_label("number", number.to_string()).validate().unwrap()
}

fn selected(view: &ReadView) -> Vec<SelectedSeries> {
    view.select(&Selector::All).iter().map(|entry| *entry.as_ref()).collect()
}

/// Samples, and the gaps, of a series by the ordinary read.
fn ordinary(
    view: &ReadView,
    series: &SelectedSeries,
    range: &Range<i64>,
) -> (Vec<Sample>, Vec<Gap>) {
    let mut samples = Vec::new();
    let gaps = view.samples(series, range.clone(), &mut |sample| samples.push(sample)).unwrap();
    (samples, gaps)
}

/// The last sample as a query has it: of the same time, deltas are summed, and of others the last
/// one counts.
fn last_of(samples: &[Sample], kind: SeriesKind) -> LastNumber {
    let Some(last) = samples.last() else { return LastNumber::Missing };
    let same = samples.iter().filter(|sample| sample.end == last.end).count();
    if same > 1 && kind == SeriesKind::Counter(Temporality::Delta) {
        return LastNumber::Deltas(last.end);
    }
    let SampleValue::Number(value) = last.value else { panic!("{last:?} is no number") };
    LastNumber::At(store::Row { start: last.start, end: last.end, value })
}

/// Compares both reads; returns whether the series were read together.
fn check(view: &ReadView, range: &Range<i64>) -> bool {
    let series = selected(view);
    let found = view.number_rows(&series, range, &mut |_| true).unwrap();
    if let Some(rows) = &found {
        for (at, series) in series.iter().enumerate() {
            let mut samples = Vec::new();
            let gaps = rows.samples(at, &mut |sample| samples.push(sample));
            assert_eq!((samples, gaps), ordinary(view, series, range), "{at} of {range:?}");
        }
    }
    let last = view.last_numbers(&series, range, &mut |_| true).unwrap();
    if let Some(last) = &last {
        for (found, series) in last.iter().zip(&series) {
            let (samples, gaps) = ordinary(view, series, range);
            assert_eq!(gaps, []);
            // Deltas of one time and length are one row.
            match (found, last_of(&samples, series.kind)) {
                (LastNumber::Deltas(end), LastNumber::At(row)) => assert_eq!(*end, row.end),
                (found, expected) => assert_eq!(*found, expected, "{range:?}"),
            }
        }
    }
    found.is_some() && last.is_some()
}

proptest! {
    #[test]
    fn rows_of_many_series_are_those_of_each(
        steps in steps(),
        ranges in proptest::collection::vec((-10..80i64, 1..80i64), 1..8),
        in_memory in any::<bool>(),
    ) {
        let world = if in_memory { StoreFixture::in_memory() } else { StoreFixture::new() };
        world.set_now(START + HOUR);
        let store = world.open().unwrap();
        let (mut sequence, mut is_whole, mut now) = (0, true, START + HOUR);
        for step in steps {
            match step {
                RowStep::Row { series: number, at_s, length_s, value } => {
                    sequence += 1;
                    let end = START + at_s * SECOND;
                    let start = if number % 3 == 2 { end } else { end - length_s * SECOND };
                    let sample = sample(start, end, f64::from(value));
                    ingest(&store, sequence, &[(&series(number), sample)]);
                    store.catch_up().unwrap();
                }
                RowStep::Flush => store.flush().unwrap(),
                RowStep::Maintain => _ = store.maintain().unwrap(),
                RowStep::Delete { series: number, at_s } => {
                    let start = START + at_s * SECOND;
                    let selector = Selector::label_equals("number", number.to_string());
                    is_whole = false;
                    store.delete(&selector, start..start + MINUTE).unwrap();
                }
                RowStep::Pass { hours } => {
                    now += hours * HOUR;
                    world.set_now(now);
                }
            }
        }
        let view = store.view().unwrap();
        for (start, length) in ranges {
            let start = START + start * 15 * SECOND;
            let is_read = check(&view, &(start..start + length * 15 * SECOND));
            prop_assert!(is_read || !is_whole);
        }
        check(&view, &(i64::MIN..i64::MAX));
    }
}

/// Without memory, and with a histogram among them, series are not read together.
#[test]
fn series_are_read_together_or_not_at_all() {
    let world = StoreFixture::new();
    let store = world.open().unwrap();
    for number in 0..3 {
        let all: Vec<_> = (0..40).map(|at| sample(START, START + at * SECOND, at as f64)).collect();
        let one = series(number * 3);
        let samples: Vec<_> = all.into_iter().map(|sample| (&one, sample)).collect();
        ingest(&store, number as u64 + 1, &samples);
    }
    store.flush().unwrap();
    let range = START..START + MINUTE;
    let view = store.view().unwrap();
    assert!(check(&view, &range));
    let all = selected(&view);
    assert!(view.number_rows(&all, &range, &mut |_| false).unwrap().is_none());
    assert_eq!(view.last_numbers(&all, &range, &mut |_| false).unwrap(), None);
    let values = sample(START, START + 1, histogram(&[1.0]));
    ingest(&store, 9, &[(&latency("a"), values)]);
    store.catch_up().unwrap();
    let view = store.view().unwrap();
    assert!(view.number_rows(&selected(&view), &range, &mut |_| true).unwrap().is_none());
}

/// The read of each series makes a gap of what cannot be read.
#[test]
fn unreadable_part_is_left_to_the_read_of_each_series() {
    let disk = SimDisk::new(1);
    let world = StoreFixture::on_disk(Arc::new(disk.process()));
    let store = world.open().unwrap();
    let one = series(0);
    ingest(&store, 1, &[(&one, sample(START, START + SECOND, 1.0))]);
    store.flush().unwrap();
    drop(store);
    let store = world.open().unwrap();
    let view = store.view().unwrap();
    let all = selected(&view);
    disk.inject(Fault {
        operation: DiskOperation::Read,
        path_contains: ".part".to_owned(),
        skip: 0,
        times: u64::MAX,
        kind: FaultKind::Os(5),
    });
    let range = START..START + MINUTE;
    assert!(view.number_rows(&all, &range, &mut |_| true).unwrap().is_none());
}
