//! Windows of series, and whether they still have the same rows, against the ordinary read.

use std::ops::Range;

use hist::Mixture;
use hist::codec::header::Temporality;
use model::{Sample, SampleValue, Selector, Series, SeriesKind};
use proptest::prelude::*;
use store::{
    DAY, MINUTE, NumberAggregate, ReadView, SECOND, SelectedSeries, SeriesEntryRef, Store,
    TimeGrid, WindowRows,
};

use crate::fixture::{StoreFixture, histogram, ingest, sample};

const WINDOW: i64 = MINUTE;
/// Shortly before midnight: parts of the day are rolled up in between.
const START: i64 = 10 * DAY - 3 * MINUTE;

/// What happens between two reads.
#[derive(Clone, Debug)]
enum WindowStep {
    /// A row of a series that ends this long before now; if negative, after it.
    Row {
        series: usize,
        age_s: i64,
        length_s: i64,
        value: u8,
    },
    Flush,
    Maintain,
    /// Deletes rows of a series that ended within a range before now.
    Delete {
        series: usize,
        age_s: i64,
        length_s: i64,
    },
    Reopen,
    /// Advances the clock.
    Pass {
        milliseconds: i64,
    },
}

fn steps() -> impl Strategy<Value = Vec<WindowStep>> {
    let row = (0..6usize, prop_oneof![8 => 0..10i64, 2 => -90..0i64, 3 => 10..200i64], 0..12i64)
        .prop_flat_map(|(series, age_s, length_s)| {
            any::<u8>().prop_map(move |value| WindowStep::Row { series, age_s, length_s, value })
        });
    let delete = (0..6usize, 0..100i64, 1..100i64)
        .prop_map(|(series, age_s, length_s)| WindowStep::Delete { series, age_s, length_s });
    let step = prop_oneof![
        20 => row,
        3 => Just(WindowStep::Flush),
        1 => Just(WindowStep::Maintain),
        1 => delete,
        1 => Just(WindowStep::Reopen),
        15 => (1..30_000i64).prop_map(|milliseconds| WindowStep::Pass { milliseconds }),
        1 => (60_000..900_000i64).prop_map(|milliseconds| WindowStep::Pass { milliseconds }),
    ];
    proptest::collection::vec(step, 1..40)
}

fn series(number: usize) -> Series {
    let kind = match number {
        0 | 1 => SeriesKind::Histogram(Temporality::Delta),
        2 => SeriesKind::Histogram(Temporality::Cumulative),
        3 => SeriesKind::Counter(Temporality::Cumulative),
        4 => SeriesKind::Counter(Temporality::Delta),
        _ => SeriesKind::Gauge,
    };
    let series = Series::new("s", kind).with_label("number", number.to_string());
    series.validate().unwrap()
}

fn sample_of(number: usize, now: i64, age_s: i64, length_s: i64, value: u8) -> Sample {
    let end = now - age_s * SECOND;
    let start = match series(number).kind() {
        SeriesKind::Gauge => end,
        kind if kind.is_cumulative() => START - DAY,
        _ => end - length_s * SECOND,
    };
    match series(number).kind() {
        SeriesKind::Histogram(_) => sample(start, end, histogram(&[f64::from(value), 3.0])),
        _ => sample(start, end, f64::from(value)),
    }
}

/// Value of a window by the ordinary read.
#[derive(Clone, Debug, PartialEq)]
enum WindowValue {
    Histogram(Mixture),
    Number(Option<NumberAggregate>),
}

fn ordinary_value(view: &ReadView, series: &[SelectedSeries], range: &Range<i64>) -> WindowValue {
    let grid = TimeGrid { start: range.start, step: range.end - range.start, columns: 1 };
    match series[0].kind {
        SeriesKind::Histogram(_) => {
            let column = view.histograms(series, grid).unwrap().next().unwrap().unwrap();
            WindowValue::Histogram(column.value)
        }
        _ => {
            let column = view.numbers(series, grid).unwrap().next().unwrap().unwrap();
            WindowValue::Number(column.value)
        }
    }
}

/// The groups of series that are read as one.
fn groups(view: &ReadView) -> Vec<Vec<SelectedSeries>> {
    let select = |text: &str| -> Vec<SelectedSeries> {
        let found = view.select(&Selector::parse(text).unwrap());
        found.iter().map(|entry: &SeriesEntryRef| *entry.as_ref()).collect()
    };
    let single = (0..6).map(|number| select(&format!("s{{number=\"{number}\"}}")));
    let merged = select("s{number=~\"[01]\"}");
    single.chain([merged]).collect()
}

/// A window that was read before, and the number of its group.
type EarlierWindow = (usize, WindowRows, WindowValue);

/// Reads all windows that end now. Returns of how many groups the last window is known to be the
/// same.
fn check(store: &Store, now: i64, earlier: &mut Vec<EarlierWindow>) -> usize {
    let view = store.view().unwrap();
    let range = now - WINDOW..now;
    let reader = view.window_reader(range.clone());
    let mut same = 0;
    let mut read_now = Vec::new();
    for (group, series) in groups(&view).into_iter().enumerate() {
        if series.is_empty() {
            continue;
        }
        let value = ordinary_value(&view, &series, &range);
        let mut is_same = false;
        for (_, rows, before) in earlier.iter().filter(|window| window.0 == group) {
            is_same = reader.is_same(rows, &series);
            if is_same {
                assert_eq!(*before, value, "{range:?}: {rows:?}");
            }
        }
        same += usize::from(is_same);
        let rows = match series[0].kind {
            SeriesKind::Histogram(_) => {
                let (mixture, rows) = reader.histogram(&series).unwrap();
                assert_eq!(WindowValue::Histogram(mixture), value, "{range:?}");
                rows
            }
            _ => reader.rows(&series),
        };
        if let Some(rows) = rows {
            assert!(reader.is_same(&rows, &series), "a window is not the same as itself: {rows:?}");
            read_now.push((group, rows, value));
        }
    }
    earlier.extend(read_now);
    same
}

fn run(steps: &[WindowStep]) -> usize {
    let world = StoreFixture::new();
    let (mut now, mut sequence, mut same) = (START, 0, 0);
    world.set_now(now);
    let mut store = world.open().unwrap();
    let mut earlier = Vec::new();
    for step in steps {
        match *step {
            WindowStep::Row { series: number, age_s, length_s, value } => {
                sequence += 1;
                let sample = sample_of(number, now, age_s, length_s, value);
                ingest(&store, sequence, &[(&series(number), sample)]);
            }
            WindowStep::Flush => store.flush().unwrap(),
            WindowStep::Maintain => while store.maintain().unwrap() {},
            WindowStep::Delete { series: number, age_s, length_s } => {
                let selector = Selector::parse(&format!("s{{number=\"{number}\"}}")).unwrap();
                let end = now - age_s * SECOND;
                store.delete(&selector, end - length_s * SECOND..end).unwrap();
            }
            WindowStep::Reopen => {
                drop(store);
                store = world.open().unwrap();
                // Whoever reads windows was started anew, too.
                earlier.clear();
            }
            WindowStep::Pass { milliseconds } => {
                now += milliseconds * 1_000_000;
                world.set_now(now);
            }
        }
        same += check(&store, now, &mut earlier);
    }
    same
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_window_with_the_same_rows_has_the_same_value(steps in steps()) {
        run(&steps);
    }
}

fn row(series: usize, age_s: i64) -> WindowStep {
    WindowStep::Row { series, age_s, length_s: 10, value: 7 }
}

fn pass(seconds: i64) -> WindowStep {
    WindowStep::Pass { milliseconds: seconds * 1000 }
}

// Series 0 is read alone and merged with series 1: as two groups.
#[test]
fn a_flush_does_not_change_the_rows_of_a_window() {
    assert_eq!(run(&[row(0, 5), row(0, 1), WindowStep::Flush]), 2);
    assert_eq!(run(&[row(0, 5), row(0, 1), WindowStep::Flush, pass(54)]), 4);
    assert_eq!(run(&[row(0, 5), row(0, 1), WindowStep::Flush, pass(55)]), 2);
}

#[test]
fn a_flush_to_several_parts_or_of_rows_of_the_same_time_hides_no_row() {
    // A row of the day before and some of this one: the part of this day has fewer than the head.
    for later in 1..4 {
        let mut steps = vec![row(5, 0), row(0, 0), pass(660)];
        steps.extend((0..later).flat_map(|age_s| [row(5, age_s), row(0, age_s)]));
        steps.push(WindowStep::Flush);
        run(&steps);
    }
    // Two rows become one.
    run(&[row(0, 5), row(0, 5), WindowStep::Flush, pass(1)]);
    run(&[row(4, 5), row(4, 5), row(4, 3), WindowStep::Flush, pass(1)]);
}

#[test]
fn a_row_changes_the_windows_of_its_series_only() {
    // Series 0 keeps its window when series 5 gets a row.
    assert_eq!(run(&[row(0, 5), row(5, 5), row(5, 5)]), 4);
    // A row from the future is in the window when its time comes.
    assert_eq!(run(&[row(0, -20), pass(19)]), 2);
    assert_eq!(run(&[row(0, -20), pass(20)]), 0);
    assert_eq!(run(&[row(0, -20), WindowStep::Flush, pass(20)]), 2);
}

#[test]
fn a_window_of_another_length_is_not_the_same() {
    let world = StoreFixture::new();
    world.set_now(START);
    let store = world.open().unwrap();
    let number = SampleValue::Number(1.0);
    ingest(&store, 1, &[(&series(5), Sample { start: START, end: START, value: number })]);
    let view = store.view().unwrap();
    let found = view.select(&Selector::parse("s").unwrap());
    let rows = view.window_reader(START - WINDOW..START).rows(&found).unwrap();
    assert!(view.window_reader(START - WINDOW..START).is_same(&rows, &found));
    assert!(!view.window_reader(START - 2 * WINDOW..START).is_same(&rows, &found));
    // Nor is one before it: later rows may have ended in between.
    assert!(!view.window_reader(START - WINDOW - 1..START - 1).is_same(&rows, &found));
}
