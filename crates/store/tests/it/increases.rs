//! The increase of cumulative series is unchanged by retention, deletion and late samples.

mod before_first_sample;
mod forgotten_sample;
mod partly_dropped_day;

use hist::Histogram;
use hist::codec::header::Temporality;
use model::{Gap, Selector, Series, SeriesKind};
use store::{DAY, HOUR, MINUTE, Resolution, RetentionRule, SECOND, Store, TimeGrid};

use crate::fixture::{StoreFixture, ingest, sample};

const BEGIN: i64 = 20_000 * DAY;
const DAYS: i64 = 4;
/// Interval of samples: long enough that days get no rollup of minutes unless a rule requires it.
const STEP: i64 = 10 * MINUTE;
/// Increase of a series between two samples, and in a day.
const STEP_GROWS: u64 = 600;
const DAY_GROWS: u64 = 86_400;

fn counter() -> Series {
    Series::new("requests", SeriesKind::Counter(Temporality::Cumulative)).validate().unwrap()
}

fn latencies() -> Series {
    Series::new("latency", SeriesKind::Histogram(Temporality::Cumulative)).validate().unwrap()
}

fn other() -> Series {
    Series::new("other", SeriesKind::Gauge).validate().unwrap()
}

/// A store and the current values of its series.
struct GrowingFixture {
    world: StoreFixture,
    store: Store,
    /// Samples have start times.
    has_start_times: bool,
    batches: u64,
}

impl GrowingFixture {
    fn new(says_since: bool) -> GrowingFixture {
        let world = StoreFixture::new();
        world.set_now(BEGIN);
        let store = world.open().unwrap();
        GrowingFixture { world, store, has_start_times: says_since, batches: 0 }
    }

    /// All days are read and rolled up as they pass.
    fn with_all_days(says_since: bool) -> GrowingFixture {
        let mut growing = GrowingFixture::new(says_since);
        for day in 0..DAYS {
            for at in 1..=DAY / STEP {
                growing.read(BEGIN + day * DAY + at * STEP);
            }
            growing.world.set_now(BEGIN + (day + 1) * DAY + HOUR);
            growing.settle();
        }
        growing
    }

    /// Samples everything at a time; values grow by one a second.
    fn read(&mut self, end: i64) {
        let grown = ((end - BEGIN) / SECOND) as u64;
        let start = if self.has_start_times { BEGIN } else { end };
        let mut histogram = Histogram::default();
        histogram.record_n(7.0, grown);
        self.batches += 1;
        let rows = [
            (&counter(), sample(start, end, grown as f64)),
            (&latencies(), sample(start, end, histogram)),
            (&other(), sample(end, end, 1.0)),
        ];
        ingest(&self.store, self.batches, &rows);
    }

    fn settle(&self) {
        self.store.flush().unwrap();
        while self.store.maintain().unwrap() {}
    }

    fn set_base_retention(&self, duration: i64) {
        let selector = Selector::parse("*").unwrap();
        let rule =
            RetentionRule { resolution: Resolution::Base, duration: Some(duration), selector };
        self.store.set_retention(vec![rule]).unwrap();
        self.settle();
    }

    fn base_rows_before(&self, time: i64) -> u64 {
        let parts = self.store.stat().unwrap().parts;
        let base = parts.iter().filter(|part| part.resolution == Resolution::Base);
        base.filter(|part| part.start < time).map(|part| part.rows).sum()
    }

    /// Increase of the counter and the histogram in each column, and the gaps.
    fn increases(&self, grid: TimeGrid) -> (Vec<(u64, u64)>, Vec<Gap>) {
        let view = self.store.view().unwrap();
        let select = |series: &Series| view.select(&Selector::parse(series.name()).unwrap());
        let counters = select(&counter());
        let numbers = view.numbers(&counters, grid).unwrap();
        let selected: Vec<_> = counters.iter().map(|found| *found.as_ref()).collect();
        let columns: Vec<_> = (0..grid.columns).map(|at| grid.column(at)).collect();
        let by_series = view.increases(&selected, &columns, &mut Vec::new()).unwrap();
        let mut rows = by_series.into_iter().next().unwrap_or_default().into_iter();
        let histograms = view.histograms(&select(&latencies()), grid).unwrap();
        let (mut grown, mut gaps) = (Vec::new(), Vec::new());
        for (number, mixture) in numbers.zip(histograms) {
            let (number, mixture) = (number.unwrap(), mixture.unwrap());
            let row = rows.next().flatten();
            assert_eq!(row.as_ref().map(|row| row.value), number.value);
            let is_within = |row: &store::Row<_>| row.start < row.end && row.end <= number.end;
            assert!(row.as_ref().is_none_or(is_within), "{row:?}");
            gaps.extend(number.gaps.into_iter().chain(mixture.gaps));
            let sum = number.value.map_or(0.0, |summary| summary.sum.value());
            grown.push((sum as u64, mixture.value.count()));
        }
        (grown, gaps)
    }

    /// Checks that every day has its increase, in each kind of query.
    #[track_caller]
    fn check(&self, what: &str) {
        let what = format!("{what}, says since when: {}", self.has_start_times);
        let lost = if self.has_start_times { 0 } else { STEP_GROWS };
        let mut expected = vec![(DAY_GROWS, DAY_GROWS); DAYS as usize];
        // The increase of a first sample is unknown unless it has a start time.
        expected[0] = (DAY_GROWS - lost, DAY_GROWS - lost);
        let days = TimeGrid { start: BEGIN, step: DAY, columns: DAYS as u64 };
        assert_eq!(self.increases(days), (expected, Vec::new()), "{what}: by days");
        let all = DAYS as u64 * DAY_GROWS - lost;
        let whole = TimeGrid { start: BEGIN, step: DAYS * DAY, columns: 1 };
        assert_eq!(self.increases(whole), (vec![(all, all)], Vec::new()), "{what}: as a whole");
        let hours = TimeGrid { start: BEGIN, step: HOUR, columns: DAYS as u64 * 24 };
        let (by_hours, gaps) = self.increases(hours);
        let sum = by_hours.iter().fold((0, 0), |sum, hour| (sum.0 + hour.0, sum.1 + hour.1));
        assert_eq!((sum, gaps), ((all, all), Vec::new()), "{what}: by hours");
    }
}

#[test]
fn late_base_retention_rule_changes_no_total() {
    for says_since in [false, true] {
        let growing = GrowingFixture::with_all_days(says_since);
        growing.check("before");
        growing.set_base_retention(2 * DAY);
        assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
        assert_ne!(growing.base_rows_before(BEGIN + 3 * DAY), 0);
        growing.check("after");
        growing.set_base_retention(DAY);
        assert_eq!(growing.base_rows_before(BEGIN + 2 * DAY), 0);
        growing.check("after the second");
    }
}

#[test]
fn late_reading_in_first_remaining_day_changes_no_total() {
    // Between two samples; and before the first, whose predecessor was dropped.
    for late in [6 * HOUR + 5 * MINUTE, 5 * MINUTE] {
        for says_since in [false, true] {
            let mut growing = GrowingFixture::with_all_days(says_since);
            // Two days and an hour after its end: the third day expires in six hours.
            growing.set_base_retention(2 * DAY);
            growing.read(BEGIN + 2 * DAY + late);
            growing.check("in memory");
            growing.settle();
            growing.check("rolled up");
            growing.set_base_retention(DAY);
            growing.check("dropped");
        }
    }
}

#[test]
fn late_reading_of_dropped_day_changes_no_total() {
    for says_since in [false, true] {
        let mut growing = GrowingFixture::with_all_days(says_since);
        growing.set_base_retention(2 * DAY);
        // After the last sample of that day.
        growing.read(BEGIN + DAY + 18 * HOUR + 5 * MINUTE);
        for what in ["in memory", "rolled up"] {
            let days = TimeGrid { start: BEGIN, step: DAY, columns: DAYS as u64 };
            let (grown, gaps) = growing.increases(days);
            let days = grown.iter().map(|day| day.0).collect::<Vec<_>>();
            assert_eq!(days[1..], [DAY_GROWS; 3], "{what}, says since when: {says_since}");
            assert!(gaps.iter().all(|gap| gap.reason.contains("arrived after those of their day")));
            assert_ne!(gaps.len(), 0, "{what}: it is in no rollup, which is told");
            growing.settle();
        }
    }
}

#[test]
fn late_reading_is_the_predecessor_after_drop() {
    for says_since in [false, true] {
        let mut growing = GrowingFixture::new(says_since);
        // The last sample of the day arrives after those of the next.
        for at in (1..=2 * DAY / STEP).filter(|&at| at != DAY / STEP) {
            growing.read(BEGIN + at * STEP);
        }
        growing.world.set_now(BEGIN + 2 * DAY + HOUR);
        growing.settle();
        growing.read(BEGIN + DAY);
        for at in 2 * DAY / STEP + 1..=DAYS * DAY / STEP {
            growing.read(BEGIN + at * STEP);
        }
        growing.settle();
        growing.world.set_now(BEGIN + DAYS * DAY + HOUR);
        growing.settle();
        growing.check("before");
        growing.set_base_retention(3 * DAY);
        assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
        growing.check("after");
        growing.read(BEGIN + DAY + 7 * HOUR + MINUTE);
        growing.settle();
        growing.check("rolled up anew");
    }
}

/// A series that starts after the dropped days; the sample before its first arrives late.
#[test]
fn a_series_of_which_nothing_was_dropped_has_no_gap_although_its_first_reading_came_late() {
    for is_late_to_rules in [false, true] {
        let world = StoreFixture::new();
        world.set_now(BEGIN);
        let growing = GrowingFixture {
            store: world.open().unwrap(),
            world,
            has_start_times: false,
            batches: 0,
        };
        let send = |batch: u64, series: &Series, after: i64, value: f64| {
            let end = BEGIN + after;
            ingest(&growing.store, batch, &[(series, sample(end, end, value))]);
            growing.store.flush().unwrap();
        };
        send(1, &other(), HOUR, 1.0);
        send(2, &counter(), 2 * DAY + 7 * HOUR, 20.0);
        send(3, &counter(), 2 * DAY + 8 * HOUR, 25.0);
        growing.world.set_now(BEGIN + 3 * DAY + HOUR);
        if is_late_to_rules {
            growing.set_base_retention(2 * DAY);
            assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
        }
        send(4, &counter(), 2 * DAY + 6 * HOUR + MINUTE, 10.0);
        growing.settle();
        growing.set_base_retention(2 * DAY);
        // By day, and with the first sample in a minute that a column cuts.
        let cut = BEGIN + 2 * DAY + 6 * HOUR + SECOND;
        for (start, step) in [(BEGIN + 2 * DAY, DAY), (cut, 9 * HOUR)] {
            let (grown, gaps) = growing.increases(TimeGrid { start, step, columns: 1 });
            let numbers = grown.iter().map(|column| column.0).collect::<Vec<_>>();
            assert_eq!((numbers, gaps), (vec![15], vec![]), "late to rules: {is_late_to_rules}");
        }
    }
}

/// Its first day is deleted before other rows are dropped: the predecessor of the next day is
/// unknown, and none of that day was dropped.
#[test]
fn a_series_whose_first_day_was_deleted_has_no_gap_when_rows_of_others_are_dropped() {
    let world = StoreFixture::new();
    world.set_now(BEGIN);
    let growing =
        GrowingFixture { store: world.open().unwrap(), world, has_start_times: false, batches: 0 };
    let samples = [(DAY + HOUR, 10.0), (2 * DAY + HOUR, 20.0), (2 * DAY + 2 * HOUR, 25.0)];
    ingest(&growing.store, 1, &[(&other(), sample(BEGIN + HOUR, BEGIN + HOUR, 1.0))]);
    for (at, (after, value)) in samples.into_iter().enumerate() {
        let end = BEGIN + after;
        ingest(&growing.store, at as u64 + 2, &[(&counter(), sample(end, end, value))]);
    }
    growing.world.set_now(BEGIN + 3 * DAY + HOUR);
    growing.settle();
    let selector = Selector::parse("requests").unwrap();
    let first = BEGIN + DAY..BEGIN + 2 * DAY;
    assert_eq!(growing.store.delete(&selector, first).unwrap().rows, 1);
    growing.set_base_retention(2 * DAY);
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
    let cut = BEGIN + 2 * DAY + HOUR - SECOND;
    for (start, step) in [(BEGIN + 2 * DAY, DAY), (cut, 9 * HOUR)] {
        let (grown, gaps) = growing.increases(TimeGrid { start, step, columns: 1 });
        assert_eq!((grown[0].0, gaps), (5, vec![]));
    }
}

/// Two samples of one timestamp, the last of a day: the greater one counts, and arrives when the
/// smaller one is already the predecessor of the next day.
#[test]
fn late_greater_reading_is_the_predecessor() {
    let world = StoreFixture::new();
    world.set_now(BEGIN);
    let store = world.open().unwrap();
    let histogram = |count| {
        let mut histogram = Histogram::default();
        histogram.record_n(7.0, count);
        histogram
    };
    let samples = [(DAY - HOUR, 5), (DAY, 10), (DAY + HOUR, 25), (2 * DAY - HOUR, 30), (DAY, 20)];
    for (at, (after, count)) in samples.into_iter().enumerate() {
        let end = BEGIN + after;
        let rows = [
            (&counter(), sample(end, end, count as f64)),
            (&latencies(), sample(end, end, histogram(count))),
        ];
        ingest(&store, at as u64 + 1, &rows);
        store.flush().unwrap();
    }
    let growing = GrowingFixture { world, store, has_start_times: false, batches: 0 };
    let check = |what: &str| {
        let days = TimeGrid { start: BEGIN, step: DAY, columns: 2 };
        assert_eq!(growing.increases(days), (vec![(15, 15), (10, 10)], Vec::new()), "{what}");
    };
    check("flushed");
    growing.world.set_now(BEGIN + 3 * DAY);
    growing.settle();
    check("rolled up");
    growing.set_base_retention(2 * DAY);
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
    check("dropped");
    // Rolled up again, after rows were stored beside the remaining samples.
    let end = BEGIN + DAY + 2 * HOUR;
    ingest(
        &growing.store,
        9,
        &[(&counter(), sample(end, end, 27.0)), (&latencies(), sample(end, end, histogram(27)))],
    );
    growing.settle();
    check("rolled up anew");
}

/// A day whose samples were dropped, with later arrivals after the rule was removed. Each column
/// has one sample, in a minute that it cuts.
#[test]
fn a_column_without_the_readings_that_were_dropped_has_a_gap_although_others_came_late() {
    let mut growing = GrowingFixture::new(false);
    for minute in [6, 20, 40, 60, 80] {
        growing.read(BEGIN + minute * MINUTE);
    }
    growing.world.set_now(BEGIN + 3 * DAY);
    growing.set_base_retention(DAY);
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
    growing.store.set_retention(Vec::new()).unwrap();
    let check = |growing: &GrowingFixture, minute: i64, what: &str| {
        let start = BEGIN + minute * MINUTE - SECOND;
        let (grown, gaps) = growing.increases(TimeGrid { start, step: STEP, columns: 1 });
        let told = gaps.iter().filter(|gap| gap.start < start + STEP && gap.end > start).count();
        assert_ne!(told, 0, "{what}, minute {minute}: {grown:?}");
    };
    for minute in [100, 120] {
        growing.read(BEGIN + minute * MINUTE);
    }
    growing.store.flush().unwrap();
    for minute in [140, 200, 260, 300] {
        growing.read(BEGIN + minute * MINUTE);
    }
    for what in ["in memory", "flushed", "rolled up"] {
        for minute in [20, 60, 80, 100, 120, 140, 200] {
            check(&growing, minute, what);
        }
        match what {
            "in memory" => growing.store.flush().unwrap(),
            _ => growing.settle(),
        }
    }
}

/// All samples of a series arrived after rows of other series of their day had been dropped.
#[test]
fn a_column_of_a_reading_that_came_too_late_has_a_gap_although_nothing_of_its_series_was_dropped() {
    let mut growing = GrowingFixture::new(false);
    ingest(&growing.store, 1, &[(&other(), sample(BEGIN + HOUR, BEGIN + HOUR, 1.0))]);
    growing.batches = 1;
    growing.world.set_now(BEGIN + 3 * DAY);
    growing.set_base_retention(DAY);
    assert_eq!(growing.base_rows_before(BEGIN + DAY), 0);
    for minute in [100, 120] {
        growing.read(BEGIN + minute * MINUTE);
    }
    growing.store.flush().unwrap();
    for minute in [140, 200, 260] {
        growing.read(BEGIN + minute * MINUTE);
    }
    for what in ["in memory", "flushed"] {
        for minute in [100, 120, 140, 200, 260] {
            let start = BEGIN + minute * MINUTE - SECOND;
            let (grown, gaps) = growing.increases(TimeGrid { start, step: STEP, columns: 1 });
            assert_ne!(gaps.len(), 0, "{what}, minute {minute}: {grown:?}");
        }
        growing.store.flush().unwrap();
    }
}

#[test]
fn deleting_another_series_changes_no_total() {
    for says_since in [false, true] {
        let growing = GrowingFixture::with_all_days(says_since);
        growing.set_base_retention(2 * DAY);
        let selector = Selector::parse("other").unwrap();
        let first = BEGIN + 2 * DAY;
        assert_ne!(growing.store.delete(&selector, first..first + DAY).unwrap().rows, 0);
        growing.check("deleted");
        growing.settle();
        growing.check("settled");
    }
}

#[test]
fn window_from_first_remaining_reading_is_complete() {
    for says_since in [false, true] {
        let growing = GrowingFixture::with_all_days(says_since);
        // The day's first quarter is dropped.
        growing.set_base_retention(2 * DAY - 5 * HOUR);
        let left = BEGIN + 2 * DAY + 6 * HOUR;
        assert_eq!(growing.base_rows_before(left), 0);
        assert_ne!(growing.base_rows_before(left + HOUR), 0);
        let grid = TimeGrid { start: left + SECOND, step: 2 * STEP, columns: 1 };
        let expected = (2 * STEP_GROWS, 2 * STEP_GROWS);
        let (grown, gaps) = growing.increases(grid);
        assert_eq!(grown, [expected], "says since when: {says_since}, {gaps:?}");
        // The sample at that timestamp belongs to the dropped quarter, and the window cuts its
        // minute.
        let grid = TimeGrid { start: left - 30 * SECOND, step: 2 * STEP + MINUTE, columns: 1 };
        let (grown, gaps) = growing.increases(grid);
        let all = (3 * STEP_GROWS, 3 * STEP_GROWS);
        assert!(grown == [all] || !gaps.is_empty(), "says since when: {says_since}, {grown:?}");
    }
}

#[test]
fn a_column_that_cuts_a_day_of_which_rows_were_dropped_has_the_steps_that_end_in_it() {
    for says_since in [false, true] {
        let growing = GrowingFixture::with_all_days(says_since);
        // The day's first quarter is dropped; all other rows are present.
        growing.set_base_retention(2 * DAY - 5 * HOUR);
        let left = BEGIN + 2 * DAY + 6 * HOUR;
        assert_eq!(growing.base_rows_before(left), 0);
        let columns = (DAY - 6 * HOUR) / STEP - 2;
        // A second before each sample, so that each is in the minute that the column cuts.
        let grid =
            TimeGrid { start: left + 2 * STEP - SECOND, step: STEP, columns: columns as u64 };
        let expected = vec![(STEP_GROWS, STEP_GROWS); columns as usize];
        assert_eq!(growing.increases(grid), (expected, vec![]), "says since when: {says_since}");
    }
}

#[test]
fn nan_between_days_loses_no_increase() {
    let world = StoreFixture::new();
    world.set_now(BEGIN);
    let store = world.open().unwrap();
    // Prometheus' staleness marker; the series is present again the next day.
    let samples = [(23 * HOUR, 10.0), (24 * HOUR, f64::NAN), (25 * HOUR, 25.0), (26 * HOUR, 30.0)];
    for (at, (after, value)) in samples.into_iter().enumerate() {
        let end = BEGIN + after;
        ingest(&store, at as u64 + 1, &[(&counter(), sample(end, end, value))]);
    }
    let total = || {
        let view = store.view().unwrap();
        let series = view.select(&Selector::parse("requests").unwrap());
        let grid = TimeGrid { start: BEGIN + DAY, step: DAY, columns: 1 };
        let column = view.numbers(&series, grid).unwrap().next().unwrap().unwrap();
        column.value.unwrap().sum.value()
    };
    assert_eq!(total(), 20.0);
    world.set_now(BEGIN + 3 * DAY);
    store.flush().unwrap();
    while store.maintain().unwrap() {}
    assert_eq!(total(), 20.0);
}

#[test]
fn samples_that_were_dropped_are_a_gap() {
    let growing = GrowingFixture::with_all_days(true);
    let gaps = |range: std::ops::Range<i64>| {
        let view = growing.store.view().unwrap();
        let series = view.select(&Selector::parse("requests").unwrap()).remove(0);
        let gaps = view.samples(&series, range, &mut |_| {}).unwrap();
        gaps.into_iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>()
    };
    let all = i64::MIN..i64::MAX;
    assert_eq!(gaps(all.clone()), []);
    // Two days, and a quarter of the third.
    growing.set_base_retention(2 * DAY - 5 * HOUR);
    let quarters = (0..9).map(|at| (BEGIN + at * 6 * HOUR, BEGIN + (at + 1) * 6 * HOUR));
    assert_eq!(gaps(all), quarters.collect::<Vec<_>>());
    let left = BEGIN + 2 * DAY + 6 * HOUR;
    assert_eq!(gaps(left - HOUR..left + HOUR), [(left - HOUR, left)]);
    assert_eq!(gaps(left..left + DAY), []);
}

#[test]
fn dropped_samples_are_a_gap_despite_late_ones() {
    let world = StoreFixture::new();
    world.set_now(BEGIN);
    let store = world.open().unwrap();
    let series = other();
    let at = |minute: i64| sample(BEGIN + minute * MINUTE, BEGIN + minute * MINUTE, 1.0);
    ingest(&store, 1, &[(&series, at(10)), (&series, at(20)), (&series, at(30))]);
    world.set_now(BEGIN + 3 * DAY);
    let growing = GrowingFixture { world, store, has_start_times: false, batches: 1 };
    growing.set_base_retention(DAY);
    let read = || {
        let view = growing.store.view().unwrap();
        let series = view.select(&Selector::All).remove(0);
        let mut count = 0;
        let range = BEGIN..BEGIN + DAY;
        let gaps = view.samples(&series, range, &mut |_| count += 1).unwrap();
        (count, gaps.into_iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>())
    };
    let quarter = (BEGIN, BEGIN + 6 * HOUR);
    assert_eq!(read(), (0, vec![quarter]));
    for (minute, what) in [(40, "in memory"), (50, "flushed")] {
        ingest(&growing.store, minute as u64, &[(&series, at(minute))]);
        if what == "flushed" {
            growing.store.flush().unwrap();
        }
        let (count, gaps) = read();
        assert!(count > 0 && gaps == [quarter], "{what}: {count} {gaps:?}");
    }
}
