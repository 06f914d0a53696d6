//! The scripted lifecycle of a store and its expected answers at any time, for the fault tests.
//!
//! The number of a batch is its sequence and determines its content, so that an answer shows which
//! batches are counted, and how often. Each step can be repeated after a crash.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use disk::Disk;
use hist::codec::header::Temporality;
use journal::{Ack, BatchIdentity, Level};
use model::{Batch, BatchWriter, Selector, Series, SeriesKind};
use sim::{NameOrder, SimDisk};
use store::{DAY, Error, HOUR, MINUTE, Options, Resolution, RetentionRule, Store, TimeGrid};

use crate::dying_process::{DyingDisk, ProcessDeath};
use crate::fixture::{histogram, latency, sample};

pub(crate) const DIR: &str = "/data/store";

/// Interval of batches.
const EVERY: i64 = 6 * HOUR;
/// Number of the first late batch; late batches belong to the first day.
const LATE: u64 = 100;
const DAYS: i64 = 4;

/// Step of the lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifecycleStep {
    /// Advances the clock to this time.
    Now(i64),
    Ingest(u64, Level),
    Flush,
    Maintain,
    SetRetention,
    Delete,
    Reopen,
}

/// Four days: flushed explicitly and by maintenance, rolled up, rolled up again for late rows,
/// compacted, deleted from, and dropped after a day.
pub(crate) fn script() -> Vec<LifecycleStep> {
    use LifecycleStep::*;
    let disk = |number| Ingest(number, Level::Disk);
    let process = |number| Ingest(number, Level::Process);
    let mut steps = vec![SetRetention, disk(0), process(1), disk(2), Flush, process(3), process(4)];
    steps.extend([Now(DAY + HOUR), Maintain, disk(5), disk(LATE), disk(6), disk(7)]);
    steps.extend([Now(2 * DAY + HOUR), Maintain, Reopen, process(8), Delete, disk(9)]);
    // Eight parts of similar size in one partition are compacted before the end of their day.
    steps.extend((1..9).flat_map(|number| [disk(LATE + number), Flush]));
    steps.extend([Now(2 * DAY + 2 * HOUR), Maintain, disk(10), process(11), Now(3 * DAY + HOUR)]);
    steps.extend([Maintain, disk(12), process(13), Reopen, disk(14), disk(15), Flush, process(16)]);
    steps.extend([Now(4 * DAY + HOUR), Maintain, Reopen]);
    // The month is over.
    steps.extend([Now(31 * DAY), Maintain, Reopen]);
    steps
}

/// End of the batch's samples.
fn time(number: u64) -> i64 {
    match number.checked_sub(LATE) {
        None => number as i64 * EVERY + HOUR,
        Some(0) => 3 * HOUR,
        // In the first hours of the third day, while it is open.
        Some(late) => 2 * DAY + late as i64 * MINUTE,
    }
}

/// Values of `latency`, by host.
fn values(number: u64) -> [Vec<f64>; 2] {
    let n = number as f64;
    match number {
        LATE.. => [vec![n], Vec::new()],
        _ => [vec![n + 1.0, 3.0 * n + 5.0], vec![2.0 * n + 1.0]],
    }
}

/// Deleted range of host `b`.
fn deleted() -> std::ops::Range<i64> {
    2 * DAY..2 * DAY + HOUR
}

fn requests() -> Series {
    Series::new("requests", SeriesKind::Counter(Temporality::Cumulative)).validate().unwrap()
}

/// Value of `requests`.
fn counter_value(number: u64) -> f64 {
    ((number + 1) * (number + 2) / 2) as f64
}

pub(crate) fn batch(number: u64) -> Batch {
    let mut batch = BatchWriter::default();
    let end = time(number);
    for (host, values) in ["a", "b"].into_iter().zip(values(number)) {
        if !values.is_empty() {
            batch.series(&latency(host));
            batch.sample(&sample(end - MINUTE, end, histogram(&values))).unwrap();
        }
    }
    if number < LATE {
        batch.series(&requests());
        batch.sample(&sample(0, end, counter_value(number))).unwrap();
    }
    batch.finish()
}

/// Count and sum, or the increase, by column: of host `a`, of `b`, of `requests`.
pub(crate) type ColumnAnswers = [Vec<(u64, f64)>; 3];

pub(crate) fn grids() -> [TimeGrid; 3] {
    [EVERY, DAY, 90 * MINUTE].map(|step| TimeGrid {
        start: 0,
        step,
        columns: ((DAYS + 1) * DAY / step) as u64,
    })
}

/// Expected answer of a store with these batches.
fn expected(grid: TimeGrid, present: &BTreeSet<u64>, is_deleted: bool) -> ColumnAnswers {
    let mut answer = [(); 3].map(|()| vec![(0, 0.0); grid.columns as usize]);
    let mut before = 0.0;
    for &number in present {
        let end = time(number);
        let column = ((end - 1) / grid.step) as usize;
        for (host, values) in values(number).into_iter().enumerate() {
            if host == 1 && is_deleted && deleted().contains(&(end - 1)) {
                continue;
            }
            answer[host][column].0 += values.len() as u64;
            answer[host][column].1 += values.iter().sum::<f64>();
        }
        if number < LATE {
            answer[2][column].0 += 1;
            answer[2][column].1 += counter_value(number) - before;
            before = counter_value(number);
        }
    }
    // Rollups of deltas do not have the number of samples, only whether there were any.
    answer[2].iter_mut().for_each(|column| column.0 = column.0.min(1));
    answer
}

/// Answer and gaps of a store, by column.
pub(crate) type ExpectedRow = [Vec<((u64, f64), Vec<model::Gap>)>; 3];

pub(crate) fn answers_with_gaps(store: &Store, grid: TimeGrid) -> store::Result<ExpectedRow> {
    let view = store.view()?;
    let mut told: ExpectedRow = Default::default();
    for (at, host) in ["a", "b"].into_iter().enumerate() {
        let selector = Selector::parse(&format!(r#"latency{{host="{host}"}}"#)).unwrap();
        for column in view.histograms(&view.select(&selector), grid)? {
            let column = column?;
            told[at].push(((column.value.count(), column.value.sum().estimate), column.gaps));
        }
    }
    for column in view.numbers(&view.select(&Selector::parse("requests").unwrap()), grid)? {
        let column = column?;
        let value = column.value.map_or((0, 0.0), |sum| (sum.count.min(1), sum.sum.value()));
        told[2].push((value, column.gaps));
    }
    Ok(told)
}

/// Answer and gaps of a store.
pub(crate) fn answer(
    store: &Store,
    grid: TimeGrid,
) -> store::Result<(ColumnAnswers, Vec<model::Gap>)> {
    let mut gaps = Vec::new();
    let answer = answers_with_gaps(store, grid)?.map(|columns| {
        let mut value = |(value, more): (_, Vec<model::Gap>)| {
            gaps.extend(more);
            value
        };
        columns.into_iter().map(&mut value).collect()
    });
    gaps.sort();
    gaps.dedup();
    Ok((answer, gaps))
}

/// Why a step did not complete.
#[derive(Debug)]
pub(crate) enum Interruption {
    ProcessDied,
    Error(Error),
}

/// Runs an action that may kill its process.
pub(crate) fn attempt<T>(act: impl FnOnce() -> store::Result<T>) -> Result<T, Interruption> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(done) => done.map_err(Interruption::Error),
        Err(payload) if payload.is::<ProcessDeath>() => Err(Interruption::ProcessDied),
        Err(payload) => resume_unwind(payload),
    }
}

/// A machine with a store, and the acknowledged batches.
pub(crate) struct StoreHarness {
    pub(crate) disk: SimDisk,
    pub(crate) now: Arc<AtomicI64>,
    process: Option<(DyingDisk, Option<Store>)>,
    /// Batches that are always present.
    durable: BTreeSet<u64>,
    /// Batches sent since, in order: a power loss may remove the last of them. Only the last may be
    /// unacknowledged.
    unsynced: Vec<u64>,
    /// The last of `unsynced` was not acknowledged.
    pub(crate) is_unknown: bool,
    is_deleted: bool,
    is_deleting: bool,
    /// Kills the next process after this many operations.
    pub(crate) kill_after: Option<u64>,
    pub(crate) log: Vec<String>,
}

impl StoreHarness {
    pub(crate) fn new(seed: u64, order: NameOrder) -> StoreHarness {
        let disk = SimDisk::new(seed);
        disk.set_name_order(order);
        StoreHarness {
            disk,
            now: Arc::default(),
            process: None,
            durable: BTreeSet::new(),
            unsynced: Vec::new(),
            is_unknown: false,
            is_deleted: false,
            is_deleting: false,
            kill_after: None,
            log: vec![format!("seed {seed}, {order:?}")],
        }
    }

    /// A fork of the current state on a separate disk, without its process.
    pub(crate) fn fork(&self, seed: u64) -> StoreHarness {
        let disk = self.disk.fork(seed);
        StoreHarness {
            disk,
            now: Arc::new(AtomicI64::new(self.now.load(Ordering::Relaxed))),
            process: None,
            durable: self.durable.clone(),
            unsynced: self.unsynced.clone(),
            log: self.log.iter().cloned().chain([format!("forked with {seed}")]).collect(),
            ..*self
        }
    }

    fn begin_process(&mut self) -> DyingDisk {
        self.end_process();
        let dying = DyingDisk::new(&self.disk);
        if let Some(count) = self.kill_after.take() {
            dying.process.kill_after(count);
        }
        self.process = Some((dying.clone(), None));
        dying
    }

    pub(crate) fn end_process(&mut self) {
        if let Some((dying, store)) = self.process.take() {
            dying.is_cleanup.store(true, Ordering::SeqCst);
            drop(store);
        }
    }

    pub(crate) fn create(&mut self) -> Result<(), Interruption> {
        let disk: Arc<dyn Disk> = Arc::new(self.begin_process());
        let settings = journal::Settings {
            buffer_bytes: journal::BUFFER_BYTES_MIN,
            segment_bytes: journal::SEGMENT_BYTES_MIN,
            ..journal::Settings::default()
        };
        let done = attempt(|| Store::create(&disk, Path::new(DIR), &settings));
        self.log.push(format!("create: {done:?}"));
        done
    }

    /// Opens it in a new process.
    pub(crate) fn open(&mut self) -> Result<(), Interruption> {
        let dying = self.begin_process();
        let now = Arc::clone(&self.now);
        let clock: journal::WallClock = Arc::new(move || now.load(Ordering::Relaxed));
        let journal = journal::Options {
            is_exclusive: true,
            has_background_thread: false,
            sync_interval: None,
            append_timeout: Duration::from_millis(5),
            clock: Arc::clone(&clock),
            ..journal::Options::default()
        };
        let options =
            Options { has_background_thread: false, journal, clock, ..Options::default() };
        let opened = attempt(|| Store::open(Arc::new(dying.clone()), Path::new(DIR), &options));
        self.log.push(format!("open: {:?}", opened.as_ref().map(|_| ())));
        let store = opened?;
        self.process = Some((dying, Some(store)));
        Ok(())
    }

    pub(crate) fn store(&self) -> &Store {
        self.process.as_ref().and_then(|(_, store)| store.as_ref()).expect("BUG: it is not open")
    }

    pub(crate) fn is_open(&self) -> bool {
        self.process.as_ref().is_some_and(|(_, store)| store.is_some())
    }

    fn send(&mut self, number: u64, level: Level) -> Result<Ack, Interruption> {
        let batch = batch(number);
        if !self.durable.contains(&number) && !self.unsynced.contains(&number) {
            self.unsynced.push(number);
            self.is_unknown = true;
        }
        // Sequences ascend: late batches have another producer.
        let producer = if number < LATE { 7 } else { 8 };
        let identity = BatchIdentity { producer, epoch: 1, sequence: number };
        let ack = attempt(|| self.store().ingest(Some(identity), &batch, level))?;
        self.is_unknown = false;
        if ack.level == Level::Disk {
            self.durable.extend(self.unsynced.drain(..));
        }
        Ok(ack)
    }

    pub(crate) fn step(&mut self, step: LifecycleStep) -> Result<(), Interruption> {
        let done = self.try_step(step);
        self.log.push(format!("{step:?}: {done:?}"));
        done
    }

    fn try_step(&mut self, step: LifecycleStep) -> Result<(), Interruption> {
        match step {
            LifecycleStep::Now(now) => self.now.store(now, Ordering::Relaxed),
            LifecycleStep::Ingest(number, level) => drop(self.send(number, level)?),
            LifecycleStep::Flush => attempt(|| self.store().flush())?,
            LifecycleStep::Maintain => drop(attempt(|| self.store().maintain())?),
            LifecycleStep::SetRetention => {
                let keep = |resolution, days: i64| RetentionRule {
                    resolution,
                    duration: Some(days * DAY),
                    selector: Selector::parse("{}").unwrap(),
                };
                let keep = vec![keep(Resolution::Base, 1), keep(Resolution::Minute, 40)];
                attempt(|| self.store().set_retention(keep))?;
            }
            LifecycleStep::Delete => {
                self.is_deleting = true;
                let selector = Selector::parse(r#"latency{host="b"}"#).unwrap();
                attempt(|| self.store().delete(&selector, deleted()))?;
                (self.is_deleting, self.is_deleted) = (false, true);
            }
            LifecycleStep::Reopen => return self.open(),
        }
        Ok(())
    }

    /// Cuts and restores power.
    pub(crate) fn power_cut(&mut self) {
        self.disk.power_cut();
        self.end_process();
        self.log.push("the power went".to_owned());
    }

    /// Checks that the store answers with exactly the acknowledged batches. After a power loss, or
    /// if the last batch is unknown, any prefix of the unsynced batches may be present.
    #[track_caller]
    pub(crate) fn check(&self, is_any_loose: bool) {
        let most = self.unsynced.len();
        let least = match is_any_loose {
            true => 0,
            false => most - usize::from(self.is_unknown),
        };
        let answers: Vec<_> = grids().iter().map(|&grid| self.answer(grid)).collect();
        for held in least..=most {
            let present = self.durable.iter().chain(&self.unsynced[..held]).copied().collect();
            for is_deleted in [self.is_deleted, self.is_deleted || self.is_deleting] {
                let is_it = |(grid, found): (TimeGrid, &ColumnAnswers)| {
                    expected(grid, &present, is_deleted) == *found
                };
                if grids().into_iter().zip(&answers).all(is_it) {
                    return;
                }
            }
        }
        let present = self.durable.iter().chain(&self.unsynced).copied().collect();
        for (grid, found) in grids().into_iter().zip(&answers) {
            let expected = expected(grid, &present, self.is_deleted);
            for (what, (expected, found)) in
                ["a", "b", "requests"].iter().zip(expected.iter().zip(found))
            {
                for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                    if expected != found {
                        let start = grid.column(at as u64).start / MINUTE;
                        println!(
                            "{what}, {} min from {start}: {found:?}, not {expected:?}",
                            grid.step / MINUTE
                        );
                    }
                }
            }
        }
        self.fail("the answer is another one");
    }

    fn answer(&self, grid: TimeGrid) -> ColumnAnswers {
        match answer(self.store(), grid) {
            Ok((found, gaps)) => {
                let are_known = gaps.iter().all(|gap| gap.reason.contains("lost in the journal"));
                if !are_known {
                    self.fail(&format!("{gaps:?}"));
                }
                found
            }
            Err(error) => self.fail(&format!("{error}")),
        }
    }

    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        panic!("{what}\nafter\n  {}", self.log.join("\n  "))
    }

    /// Opens the store without faults. Sends again what was not acknowledged, or may be lost.
    #[track_caller]
    pub(crate) fn recover(&mut self, was_power_cut: bool) {
        if let Err(stop) = self.open() {
            self.fail(&format!("opening does not succeed: {stop:?}"));
        }
        self.check(was_power_cut);
        self.send_again();
    }

    #[track_caller]
    pub(crate) fn send_again(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        for number in self.unsynced.clone() {
            if let Err(stop) = self.send(number, Level::Disk) {
                self.fail(&format!("sending {number} again: {stop:?}"));
            }
        }
        self.check(false);
    }

    /// Runs the rest without faults.
    #[track_caller]
    pub(crate) fn finish(&mut self, steps: &[LifecycleStep]) {
        for &step in steps {
            if let Err(stop) = self.step(step) {
                self.fail(&format!("{step:?}: {stop:?}"));
            }
        }
        self.check(false);
    }
}

impl Drop for StoreHarness {
    fn drop(&mut self) {
        self.end_process();
    }
}

#[test]
fn undisturbed_run_stores_everything() {
    let mut life = StoreHarness::new(1, NameOrder::Journal);
    life.create().unwrap();
    life.open().unwrap();
    let before = life.disk.operations();
    let mut most = 0;
    for step in script() {
        life.finish(&[step]);
        most = most.max(life.store().stat().unwrap().parts.len());
    }
    println!("{} operations", life.disk.operations() - before);
    let stat = life.store().stat().unwrap();
    println!("{most} parts at the most, {} in the end", stat.parts.len());
    let count = |resolution| stat.parts.iter().filter(|part| part.resolution == resolution).count();
    assert_eq!(Resolution::ALL.map(count), [0, 5, 5, 1, 6]);
    assert_eq!(stat.gaps, []);
    assert_eq!(stat.warnings, Vec::<String>::new());
}
