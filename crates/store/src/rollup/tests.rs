//! Compares a store that rolls up days while rows are only in memory with a store that never does.

use std::path::Path;
use std::sync::Arc;

use disk::Disk;
use hist::Histogram;
use hist::codec::header::Temporality::{Cumulative, Delta};
use journal::Level;
use model::selector::kind_name;
use model::{BatchWriter, Sample, SampleValue, Selector, Series, SeriesKind};
use proptest::prelude::*;
use sim::SimDisk;

use crate::grid::TimeGrid;
use crate::manifest::RetentionRule;
use crate::options::Options;
use crate::resolution::{DAY, HOUR, MINUTE, Resolution};
use crate::row::{Row, Rows};
use crate::store::Store;

const DAYS: i64 = 4;
const BEGIN: i64 = 20_000 * DAY;

fn store() -> Store {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
    Store::create(&disk, Path::new("/store"), &journal::Settings::default()).unwrap();
    let journal =
        journal::Options { is_exclusive: true, has_background_thread: false, ..Default::default() };
    let clock: journal::WallClock = Arc::new(|| BEGIN + 9 * DAY);
    let options = Options { has_background_thread: false, journal, clock, ..Options::default() };
    Store::open(disk, Path::new("/store"), &options).unwrap()
}

fn series() -> Vec<Series> {
    let kinds = [
        SeriesKind::Counter(Cumulative),
        SeriesKind::Histogram(Cumulative),
        SeriesKind::Counter(Delta),
        SeriesKind::Histogram(Delta),
    ];
    let named =
        |kind: SeriesKind| Series::new(format!("of {}", kind_name(kind)), kind).validate().unwrap();
    kinds.map(named).into()
}

/// A sample of every series at a minute: cumulative ones grow by a hundred a minute, with resets.
fn batch(minute: i64, says_since: bool, is_new: bool) -> model::Batch {
    let end = BEGIN + minute * MINUTE;
    let amount = if is_new { minute % 7 } else { 100 * minute };
    let mut histogram = Histogram::default();
    histogram.record_n(7.0, amount as u64 + 1);
    let mut batch = BatchWriter::default();
    for series in series() {
        let kind = series.kind();
        batch.series(&series);
        let start = match (kind.is_cumulative(), says_since) {
            (true, true) if is_new => end - 30_000_000_000,
            (true, true) => BEGIN - DAY,
            (true, false) => end,
            (false, _) => end - MINUTE,
        };
        let value = match kind {
            SeriesKind::Histogram(_) => SampleValue::Histogram(Box::new(histogram.clone())),
            _ => SampleValue::Number(amount as f64),
        };
        batch.sample(&Sample { start, end, value }).unwrap();
    }
    batch.finish()
}

/// Reads every series, in columns of several lengths.
fn read(store: &Store) -> String {
    let view = store.view().unwrap();
    let mut out = String::new();
    for series in series() {
        let found = view.select(&Selector::label_equals("__name__", series.name()));
        let of = format!("\n{series}");
        for step in [DAYS * DAY, DAY, 6 * HOUR, HOUR] {
            let grid = TimeGrid { start: BEGIN, step, columns: (DAYS * DAY / step) as u64 };
            match series.kind() {
                SeriesKind::Histogram(_) => {
                    for column in view.histograms(&found, grid).unwrap() {
                        let column = column.unwrap();
                        if column.value.count() > 0 {
                            let (count, start) = (column.value.count(), column.start - BEGIN);
                            out += &format!("{of} {step} {}: {count}", start / HOUR);
                        }
                    }
                }
                _ => {
                    for column in view.numbers(&found, grid).unwrap() {
                        let column = column.unwrap();
                        if let Some(value) = &column.value {
                            let (sum, start) = (value.sum.value(), column.start - BEGIN);
                            out += &format!("{of} {step} {}: {} {sum}", start / HOUR, value.count);
                        }
                    }
                }
            }
        }
    }
    out
}

#[derive(Clone, Debug)]
enum RollupStep {
    /// Ingests samples, which are then only in memory.
    Read(Vec<(i64, bool, bool)>),
    Flush,
    /// Rolls up a day, whatever is in memory.
    Roll(i64),
    Compact,
}

fn step() -> impl Strategy<Value = RollupStep> {
    let minute = prop_oneof![
        4 => 1..DAYS * 24 * 60,
        // First and last timestamps of days.
        1 => (0..DAYS, 0i64..3).prop_map(|(day, off)| (day * 24 * 60 + off).max(1)),
        1 => (1..=DAYS, 0i64..3).prop_map(|(day, off)| day * 24 * 60 - off),
    ];
    let sample = (minute, any::<bool>(), prop::bool::weighted(0.1));
    prop_oneof![
        4 => prop::collection::vec(sample, 1..5).prop_map(RollupStep::Read),
        3 => Just(RollupStep::Flush),
        5 => (0..DAYS).prop_map(RollupStep::Roll),
        1 => Just(RollupStep::Compact),
    ]
}

fn run(steps: &[RollupStep]) -> Result<(), TestCaseError> {
    let (rolled, plain) = (store(), store());
    for (at, step) in steps.iter().enumerate() {
        match step {
            RollupStep::Read(samples) => {
                for &(minute, says_since, is_new) in samples {
                    let batch = batch(minute, says_since, is_new);
                    for store in [&rolled, &plain] {
                        let _ack = store.ingest(None, &batch, Level::Process).unwrap();
                        store.catch_up().unwrap();
                    }
                }
            }
            RollupStep::Flush => rolled.flush().unwrap(),
            RollupStep::Roll(day) => rolled.inner().rollup_day(BEGIN + day * DAY).unwrap(),
            RollupStep::Compact => drop(rolled.inner().compact_parts().unwrap()),
        }
        prop_assert_eq!(read(&rolled), read(&plain), "after step {} of {:?}", at, steps);
    }
    rolled.maintain().unwrap();
    prop_assert_eq!(read(&rolled), read(&plain), "all rolled up, of {:?}", steps);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn rollup_with_rows_in_memory_reads_equally(
        steps in prop::collection::vec(step(), 1..14),
    ) {
        run(&steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand programs, an hour"]
    fn soak_rollup_with_rows_in_memory_reads_equally(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(&steps)?;
    }
}

/// Each row was compared with all others of its time.
#[test]
fn rows_of_a_time_have_any_number_of_explicit_layouts() {
    let row = |n: i64| {
        let bounds = [(n * 7919 % 10_007) as f64, 1e9];
        let mut value = Histogram::new(hist::Scheme::explicit(&bounds).unwrap());
        value.record(n as f64);
        Row { start: BEGIN, end: BEGIN + 1 + n % 2, value }
    };
    let mut rows = Rows::Histograms((0..4 * 10_007).map(row).collect());
    rows.normalize(SeriesKind::Histogram(Delta));
    let Rows::Histograms(normalized) = rows else { panic!("{rows:?}") };
    assert_eq!(normalized.len(), 2 * 10_007);
    assert!(normalized.iter().all(|row| row.value.count() == 2));
    let rolled = super::rollup_histograms(&normalized, MINUTE);
    assert_eq!(rolled.len(), 10_007);
    assert!(rolled.iter().all(|row| row.value.count() == 4));
}

#[test]
fn late_reading_of_a_dropped_day_is_reported() {
    let store = store();
    let take = |minute: i64| {
        let _ack = store.ingest(None, &batch(minute, true, false), Level::Process).unwrap();
        store.catch_up().unwrap();
    };
    take(10);
    take(20);
    store.flush().unwrap();
    store.maintain().unwrap();
    let keep =
        RetentionRule { resolution: Resolution::Base, duration: Some(1), selector: Selector::All };
    store.set_retention(vec![keep]).unwrap();
    store.maintain().unwrap();
    take(30);
    let gaps = |step: &str| {
        let view = store.view().unwrap();
        let found = view.select(&Selector::label_equals("__name__", series()[0].name()));
        let grid = TimeGrid { start: BEGIN, step: DAY, columns: 1 };
        let column = view.numbers(&found, grid).unwrap().next().unwrap().unwrap();
        let lost: Vec<_> = column.gaps.iter().filter_map(|gap| gap.lost).collect();
        assert_eq!(lost, [1], "{step}: {:?}", column.gaps);
    };
    gaps("in memory");
    store.flush().unwrap();
    gaps("in a part");
}
