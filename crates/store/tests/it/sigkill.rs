//! `kill -9` at random times of a process that ingests batches, flushes, rolls up and drops on the
//! real disk, with a clock that runs a day in 48 batches. After reopening, each acknowledged batch
//! is present once, and the one in flight once or not at all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use disk::{Disk, OsDisk};
use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};
use journal::{BatchIdentity, Level};
use model::{BatchWriter, Selector, Series, SeriesKind};
use store::{DAY, HOUR, MINUTE, Options, Resolution, RetentionRule, Store, TimeGrid};

use crate::fixture::{histogram, latency, sample};
use crate::processes::{
    ChildArguments, ChildProcess, SharedCounter, TestDir, Xorshift64, print_line,
};

const EVERY: i64 = 30 * MINUTE;

fn time(number: u64) -> i64 {
    (number as i64 + 1) * EVERY
}

fn value(number: u64) -> f64 {
    (number % 97) as f64 + 1.0
}

/// Cumulative histogram as senders of native histograms report it: without extremes.
fn waited() -> Series {
    Series::new("waited", SeriesKind::Histogram(Temporality::Cumulative)).validate().unwrap()
}

/// Values of `waited` after a batch: two more in each.
fn waits(number: u64) -> Histogram {
    let mut parts = HistogramParts::new(Scheme::exp2(3).unwrap());
    parts.positive = vec![(-4, number + 1), (9, number + 1)];
    parts.sum = TrackedValue::Exact(DoubleDouble::new((number + 1) as f64 * 3.0));
    Histogram::from_recorded_parts(parts).unwrap()
}

fn requests() -> Series {
    Series::new("requests", SeriesKind::Counter(Temporality::Cumulative)).validate().unwrap()
}

fn open(dir: &Path, now: &Arc<AtomicI64>, background: bool) -> Store {
    let now = Arc::clone(now);
    let clock: journal::WallClock = Arc::new(move || now.load(Ordering::Relaxed));
    let journal =
        journal::Options { is_exclusive: true, clock: Arc::clone(&clock), ..Default::default() };
    let options =
        Options { has_background_thread: background, journal, clock, ..Options::default() };
    Store::open(Arc::new(OsDisk), dir, &options).unwrap()
}

/// Role of the killed process.
pub(crate) fn writer(part: ChildArguments) {
    let (dir, count) = (part.path(0), SharedCounter::at(part.path(1)));
    let now = Arc::new(AtomicI64::new(time(count.get())));
    let store = open(dir, &now, part.number(2).is_multiple_of(2));
    print_line("open");
    for number in count.get().. {
        now.store(time(number), Ordering::Relaxed);
        let mut batch = BatchWriter::default();
        for host in ["a", "b"] {
            batch.series(&latency(host));
            let value = histogram(&[value(number), 5.0]);
            batch.sample(&sample(time(number) - MINUTE, time(number), value)).unwrap();
        }
        batch.series(&waited());
        batch.sample(&sample(0, time(number), waits(number))).unwrap();
        batch.series(&requests());
        batch.sample(&sample(0, time(number), (number + 1) as f64)).unwrap();
        let identity = BatchIdentity { producer: 3, epoch: 4, sequence: number };
        let level = if number % 8 == 7 { Level::Disk } else { Level::Process };
        let _ = store.ingest(Some(identity), &batch.finish(), level).unwrap();
        count.set(number + 1);
        match number % 12 {
            4 => store.flush().unwrap(),
            9 => drop(store.maintain().unwrap()),
            _ => {}
        }
    }
}

/// Whether the store has the first `present` batches, each once.
fn has(store: &Store, present: u64) -> Result<(), String> {
    let view = store.view().unwrap();
    for step in [HOUR, DAY] {
        let grid = TimeGrid { start: 0, step, columns: (time(present) / step) as u64 + 1 };
        let of = |at: u64| {
            let range = grid.column(at);
            let first = (range.start / EVERY) as u64;
            first.min(present)..((range.end / EVERY) as u64).min(present)
        };
        // Count and sum of a batch.
        type Batch = fn(u64) -> (u64, f64);
        let latencies: Batch = |number| (4, 2.0 * (value(number) + 5.0));
        let waits: Batch = |_| (2, 3.0);
        for (name, batch) in [("latency", latencies), ("waited", waits)] {
            let series = view.select(&Selector::parse(name).unwrap());
            for (at, column) in view.histograms(&series, grid).unwrap().enumerate() {
                let column = column.unwrap();
                let (count, sum) = of(at as u64)
                    .map(batch)
                    .fold((0, 0.0), |(count, sum), more| (count + more.0, sum + more.1));
                let found = (column.value.count(), column.value.sum().estimate);
                if found != (count, sum) || !column.gaps.is_empty() {
                    return Err(format!(
                        "{name}, column {at} of {step}: {found:?}, not {count}, {sum}; {:?}",
                        column.gaps
                    ));
                }
            }
        }
        let series = view.select(&Selector::parse("requests").unwrap());
        for (at, column) in view.numbers(&series, grid).unwrap().enumerate() {
            let (found, batches) =
                (column.unwrap().value.map_or(0.0, |sum| sum.sum.value()), of(at as u64));
            let expected = (batches.end - batches.start) as f64;
            if found != expected {
                return Err(format!("requests, column {at} of {step}: {found}, not {expected}"));
            }
        }
    }
    Ok(())
}

#[track_caller]
fn check(rounds: u64, seed: u64) {
    let directory = TestDir::new("kill-store");
    let (dir, count) = (directory.0.join("s"), directory.0.join("count"));
    let real: Arc<dyn Disk> = Arc::new(OsDisk);
    Store::create(&real, &dir, &journal::Settings::default()).unwrap();
    let acknowledged = SharedCounter::at(&count);
    let now = Arc::new(AtomicI64::new(0));
    {
        let store = open(&dir, &now, false);
        let keep = |resolution, days: i64| RetentionRule {
            resolution,
            duration: Some(days * DAY),
            selector: Selector::parse("{}").unwrap(),
        };
        store.set_retention(vec![keep(Resolution::Base, 2), keep(Resolution::Minute, 5)]).unwrap();
    }
    let mut random = Xorshift64::new(seed);
    for round in 0..rounds {
        let paths = [&dir, &count].map(|path| path.to_str().unwrap().to_owned());
        let mut child =
            ChildProcess::start("store writer", &[&paths[0], &paths[1], &round.to_string()]);
        // Sometimes during opening.
        if round % 5 != 4 {
            child.expect("open");
        }
        std::thread::sleep(random.micros(150_000));
        assert!(!child.has_ended(), "round {round}: it ended by itself");
        child.kill();
        if round % 3 != 0 && round + 1 < rounds {
            continue;
        }
        let acknowledged = acknowledged.get();
        now.store(time(acknowledged), Ordering::Relaxed);
        let store = open(&dir, &now, false);
        if let Err(less) = has(&store, acknowledged) {
            has(&store, acknowledged + 1).unwrap_or_else(|more| {
                panic!("round {round}, {acknowledged} acknowledged: {less}; with one more: {more}")
            });
        }
        let stat = store.stat().unwrap();
        assert_eq!(stat.gaps, [], "round {round}");
    }
    let store = open(&dir, &now, false);
    let count = |resolution| {
        store.stat().unwrap().parts.iter().filter(|part| part.resolution == resolution).count()
    };
    println!(
        "{rounds} kills, {} batches, parts {:?}",
        acknowledged.get(),
        Resolution::ALL.map(count)
    );
    assert!(acknowledged.get() > 4 * rounds);
}

#[test]
fn kill_loses_and_duplicates_nothing() {
    check(30, 1);
}

#[test]
#[ignore = "soak: five hundred kills, minutes"]
fn soak_kill_500_rounds() {
    check(250, 2);
    check(250, 3);
}
