//! The thread that notices which series vanished and which appeared, and stores what changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use decode::SeriesSink as _;
use intake::{EventCounter, Intake, LogFn, LogLevel, Meter, SeriesKeyEncoding};
use model::{Selector, selector};
use rules::{ObservedSeries, SeriesEvent, SeriesInventory, SeriesSetChange, match_changes};
use store::{ReadView, SelectedSeries, Store};

use crate::sample_writer::RULES_PRODUCER;

/// Time between two polls.
const POLL: Duration = Duration::from_secs(15);
/// How long a new series can be in the place of one that vanished: that one is noticed after five
/// of its intervals.
const APPEARED_RETENTION_NS: i64 = 3600 * 1_000_000_000;
/// Polls after which changes are stored although more series vanish.
const GATHERING_POLLS_MAX: u32 = 8;
/// Series of each list that are held.
const SERIES_MAX: usize = 10_000;
/// Changes that are stored at a time.
const CHANGES_MAX: usize = 20;
/// How long a change counts as open.
const OPEN_NS: i64 = 7 * 86_400 * 1_000_000_000;
/// Name of the producer of changes.
const PRODUCER: &str = "changes";
/// Prefix of own metrics: they come and go with settings.
const OWN_PREFIX: &str = "topdeck_";

/// Stops the thread.
#[derive(Debug, Default)]
pub(crate) struct WatchControl {
    is_stopping: Mutex<bool>,
    wake: Condvar,
    /// Changes of the last seven days that nobody accepted.
    open: AtomicU64,
}

impl WatchControl {
    pub(crate) fn stop(&self) {
        *self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, time: Duration) {
        let stopping = self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner);
        // The loop sees the reason.
        drop(self.wake.wait_timeout_while(stopping, time, |is_stopping| !*is_stopping));
    }

    pub(crate) fn register_metrics(self: &Arc<WatchControl>, meter: &Meter) {
        let own = Arc::clone(self);
        let about = "Changes of series in the last seven days that nobody accepted";
        meter.gauge("topdeck_series_changes_open", about, &[], move || {
            // Relaxed: a number to be shown.
            own.open.load(Ordering::Relaxed) as f64
        });
    }
}

/// Watches series.
pub(crate) struct SeriesWatcher {
    intake: Arc<Intake>,
    store: Arc<Store>,
    control: Arc<WatchControl>,
    log: LogFn,
    inventory: SeriesInventory,
    /// New series by time.
    appeared: VecDeque<ObservedSeries>,
    /// Series that vanished in the polls before: others of the same cause may follow.
    vanished: Vec<ObservedSeries>,
    /// Polls since the first of them vanished.
    gathering_polls: u32,
    dropped: EventCounter,
}

impl SeriesWatcher {
    pub(crate) fn new(
        intake: &Arc<Intake>,
        store: &Arc<Store>,
        control: &Arc<WatchControl>,
        log: &LogFn,
    ) -> SeriesWatcher {
        let dropped = intake.meter().counter(
            "topdeck_series_changes_dropped_total",
            "Series and changes of series that were not stored, because there were too many or \
             the store was not available",
            &[],
        );
        SeriesWatcher {
            intake: Arc::clone(intake),
            store: Arc::clone(store),
            control: Arc::clone(control),
            log: Arc::clone(log),
            inventory: SeriesInventory::default(),
            appeared: VecDeque::new(),
            vanished: Vec::new(),
            gathering_polls: 0,
            dropped,
        }
    }

    /// Polls until stopped.
    pub(crate) fn run(&mut self) {
        while !self.control.is_stopping() {
            if let Err(error) = self.poll() {
                (self.log)(LogLevel::Error, &format!("cannot look for changed series: {error}"));
            }
            self.control.wait(POLL);
        }
    }

    /// Looks at all series once.
    pub(crate) fn poll(&mut self) -> store::Result<()> {
        // Batches are rejected: no series arrives, and none is gone. The next poll counts the pause
        // as no silence.
        if self.intake.space_problem().is_some() {
            return Ok(());
        }
        let control = Arc::clone(&self.control);
        let view = self.store.view()?.with_cancellation(Arc::new(move || control.is_stopping()));
        let now_ns = self.intake.now();
        self.inventory.begin_poll(now_ns);
        let mut events: Vec<(SelectedSeries, Option<u64>, SeriesEvent)> = Vec::new();
        let inventory = std::cell::RefCell::new(std::mem::take(&mut self.inventory));
        let mut more = 0;
        let outcome = view.each_activity(
            &|position| inventory.borrow().known_end(position),
            &mut |activity| {
                let event = inventory.borrow_mut().record(activity.position, activity.newer_end);
                match event {
                    Some(event) if events.len() < SERIES_MAX => {
                        events.push((activity.series, activity.producer, event));
                    }
                    Some(_) => more += 1,
                    None => {}
                }
            },
        );
        self.inventory = inventory.into_inner();
        outcome?;
        self.inventory.end_poll();
        self.dropped.add(more);
        let before = self.vanished.len();
        self.add(&view, &events, now_ns);
        self.gathering_polls = if before == 0 { 0 } else { self.gathering_polls + 1 };
        let is_complete =
            self.vanished.len() == before || self.gathering_polls >= GATHERING_POLLS_MAX;
        if !self.vanished.is_empty() && is_complete {
            self.store_changes(&view);
        }
        let recent = rules::read_changes(&view, now_ns.saturating_sub(OPEN_NS)..i64::MAX)?;
        let open = recent.iter().filter(|change| change.acceptance.is_none()).count();
        self.control.open.store(open as u64, Ordering::Relaxed);
        Ok(())
    }

    fn add(
        &mut self,
        view: &ReadView,
        events: &[(SelectedSeries, Option<u64>, SeriesEvent)],
        now_ns: i64,
    ) {
        let mut names: BTreeMap<Option<u64>, String> = BTreeMap::new();
        for (series, producer, event) in events {
            let source = names.entry(*producer).or_insert_with(|| self.source_name(*producer));
            let Some(entry) = view.entry(series) else { continue };
            if source == RULES_PRODUCER || entry.series.name().starts_with(OWN_PREFIX) {
                continue;
            }
            let (source, series) = (source.clone(), (*entry.series).clone());
            let observed = |time_ns| ObservedSeries { source, series, time_ns };
            match event {
                SeriesEvent::Appeared => self.appeared.push_back(observed(now_ns)),
                SeriesEvent::Vanished { end_ns } => self.vanished.push(observed(*end_ns)),
            }
        }
        let first_ns = now_ns.saturating_sub(APPEARED_RETENTION_NS);
        let is_held = |observed: &ObservedSeries| observed.time_ns >= first_ns;
        while self.appeared.len() > SERIES_MAX
            || self.appeared.front().is_some_and(|first| !is_held(first))
        {
            self.appeared.pop_front();
        }
        let excess = self.vanished.len().saturating_sub(SERIES_MAX);
        self.vanished.truncate(SERIES_MAX);
        self.dropped.add(excess as u64);
    }

    fn source_name(&self, producer: Option<u64>) -> String {
        let name = producer.and_then(|id| self.intake.producer_name(id));
        name.unwrap_or_else(|| "unknown".to_owned())
    }

    fn store_changes(&mut self, view: &ReadView) {
        let vanished = std::mem::take(&mut self.vanished);
        let appeared = self.appeared.make_contiguous();
        let mut others: BTreeMap<&str, bool> = BTreeMap::new();
        for observed in &vanished {
            let name = observed.series.name();
            others.entry(name).or_insert_with(|| has_others(view, &self.inventory, name, appeared));
        }
        let has_others = |name: &str| others.get(name).copied().unwrap_or(false);
        let changes = match_changes(&vanished, appeared, &has_others);
        self.dropped.add(changes.len().saturating_sub(CHANGES_MAX) as u64);
        for change in changes.iter().take(CHANGES_MAX) {
            let (source, text) = (&change.source, &change.text);
            (self.log)(LogLevel::Info, &format!("source {source:?}: {text}"));
            if let Err(error) = self.append(change) {
                self.dropped.add(1);
                (self.log)(LogLevel::Error, &format!("cannot store a change of series: {error}"));
            }
        }
    }

    fn append(&self, change: &SeriesSetChange) -> Result<(), intake::Error> {
        let producer = self.intake.producer(PRODUCER);
        // Nothing may change for months.
        producer.disable_absence_monitor();
        let (series, sample) = change.sample();
        let series = series.validate()?;
        let mut writer = self.intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
        writer.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
        writer.sample(&sample)?;
        self.intake.append(&producer, writer)?.wait_durable()?;
        Ok(())
    }
}

/// Whether series of a name are active that did not just appear.
fn has_others(
    view: &ReadView,
    inventory: &SeriesInventory,
    name: &str,
    appeared: &[ObservedSeries],
) -> bool {
    let new = appeared.iter().filter(|observed| observed.series.name() == name).count();
    let all = view.select(&Selector::label_equals(selector::NAME, name));
    let active = all.iter().filter(|entry| inventory.is_active(entry.as_ref().position()));
    active.count() > new
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicI64;

    use intake::WriteTarget;
    use model::{Sample, SampleValue, Series, SeriesKind};

    use super::*;

    const START_NS: i64 = 1_700_000_000 * 1_000_000_000;

    struct Fixture {
        disk: sim::SimDisk,
        watcher: SeriesWatcher,
        now_ns: Arc<AtomicI64>,
    }

    impl Fixture {
        fn new() -> Fixture {
            let sim = sim::SimDisk::new(1);
            let disk: Arc<dyn disk::Disk> = Arc::new(sim.process());
            let now_ns = Arc::new(AtomicI64::new(START_NS));
            let own = Arc::clone(&now_ns);
            let clock: journal::WallClock = Arc::new(move || own.load(Ordering::SeqCst));
            let journal_settings = journal::Settings {
                buffer_bytes: 1 << 20,
                segment_bytes: 4 << 20,
                ..Default::default()
            };
            let journal = journal::Options {
                is_exclusive: true,
                has_background_thread: false,
                clock: Arc::clone(&clock),
                ..Default::default()
            };
            let options = store::Options {
                has_background_thread: false,
                journal,
                clock: Arc::clone(&clock),
                ..Default::default()
            };
            Store::create(&disk, Path::new("/store"), &journal_settings).expect("a store");
            let store = Store::open(disk, Path::new("/store"), &options).expect("a store");
            let store = Arc::new(store);
            let settings = intake::Settings { background: false, clock, ..Default::default() };
            let target = WriteTarget::Store(Arc::clone(&store));
            let intake = Arc::new(Intake::new(target, settings).expect("an intake"));
            let log: LogFn = Arc::new(|_, _| {});
            let watcher = SeriesWatcher::new(&intake, &store, &Arc::default(), &log);
            Fixture { disk: sim, watcher, now_ns }
        }

        /// Sends one sample of each series from one source.
        fn send(&self, series: &[Series]) {
            let intake = &self.watcher.intake;
            let producer = intake.producer("shop");
            let mut writer = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
            let now_ns = self.now_ns.load(Ordering::SeqCst);
            for series in series {
                let series = series.clone().validate().expect("a valid series");
                writer.series(&series.canonical_key(), &mut || Ok(series.clone())).expect("added");
                let value = SampleValue::Number(1.0);
                writer.sample(&Sample { start: now_ns, end: now_ns, value }).expect("added");
            }
            let receipt = intake.append(&producer, writer).expect("appended");
            receipt.wait_durable().expect("durable");
        }

        /// Polls each 15 s while the series are sent.
        fn run(&mut self, polls: u32, series: &[Series]) {
            for _ in 0..polls {
                self.now_ns.fetch_add(15 * 1_000_000_000, Ordering::SeqCst);
                if !series.is_empty() {
                    self.send(series);
                }
                self.watcher.poll().expect("a poll");
            }
        }

        fn texts(&self) -> Vec<String> {
            let view = self.watcher.store.view().expect("a view");
            let changes = rules::read_changes(&view, 0..i64::MAX).expect("readable");
            assert!(changes.iter().all(|change| change.source == "shop"), "{changes:?}");
            changes.into_iter().map(|change| change.text).collect()
        }
    }

    fn balanced(count: usize) -> Vec<Series> {
        let series = |n: usize| {
            Series::new("latency", SeriesKind::Gauge)
                .with_label("LoadBalancer", format!("lb{n:02}"))
                .with_label("region", "eu")
        };
        (0..count).map(series).collect()
    }

    #[test]
    fn a_dropped_label_is_stored_as_an_annotation() {
        let mut fixture = Fixture::new();
        let steady = Series::new("up", SeriesKind::Gauge);
        let old = [balanced(14), vec![steady.clone()]].concat();
        fixture.run(20, &old);
        assert_eq!(fixture.texts(), [""; 0]);
        let new = Series::new("latency", SeriesKind::Gauge).with_label("region", "eu");
        // Flushed rows are found, too.
        fixture.watcher.store.flush().expect("flushed");
        fixture.run(20, &[new, steady]);
        assert_eq!(
            fixture.texts(),
            ["label `LoadBalancer` disappeared from 14 series, 1 new, such as \
              latency{LoadBalancer=\"lb00\",region=\"eu\"}"]
        );
        assert_eq!(fixture.watcher.control.open.load(Ordering::Relaxed), 1);
        let view = fixture.watcher.store.view().expect("a view");
        let change = rules::read_changes(&view, 0..i64::MAX).expect("readable").remove(0);
        // It is shown when the series sent last.
        let last_ns = START_NS + 20 * 15 * 1_000_000_000;
        assert!((last_ns..=last_ns + 1_000_000_000).contains(&change.time_ns), "{change:?}");
    }

    #[test]
    fn a_whole_metric_that_ends_is_told_and_churn_is_not() {
        let mut fixture = Fixture::new();
        let process =
            |pid: usize| Series::new("cpu", SeriesKind::Gauge).with_label("pid", pid.to_string());
        let queue = Series::new("queue", SeriesKind::Gauge);
        fixture.run(20, &[process(1), process(2), queue]);
        fixture.run(20, &[process(1), process(3)]);
        assert_eq!(fixture.texts(), ["1 series vanished, such as queue"]);
    }

    /// A user whose disk was full saw `source "host": 177 series vanished`.
    #[test]
    fn series_whose_batches_are_rejected_do_not_vanish() {
        let mut fixture = Fixture::new();
        fixture.run(20, &balanced(3));
        fixture.disk.set_capacity(fixture.disk.used_bytes());
        let intake = Arc::clone(&fixture.watcher.intake);
        let filler = Series::new("filler", SeriesKind::Gauge).validate().expect("valid");
        // Values that do not compress (xorshift, Marsaglia).
        let seed = std::cell::Cell::new(1_u64);
        let next = || {
            let mut bits = seed.get();
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            seed.set(bits);
            bits as f64
        };
        let append = || {
            let producer = intake.producer("filler");
            let mut writer = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
            writer.series(&filler.canonical_key(), &mut || Ok(filler.clone())).expect("added");
            for end in 1..=1_000 {
                let value = SampleValue::Number(next());
                writer.sample(&Sample { start: 0, end, value }).expect("added");
            }
            intake.append(&producer, writer)
        };
        let refused = (0..10_000).find_map(|_| append().err()).expect("the disk is full");
        assert!(refused.is_retryable(), "{refused}");
        fixture.run(20, &[]);
        fixture.disk.set_capacity(u64::MAX);
        append().expect("there is space").wait_durable().expect("durable");
        fixture.run(2, &balanced(3));
        assert_eq!(fixture.texts(), [""; 0]);
    }

    /// In each poll another process ends.
    #[test]
    fn steady_coming_and_going_delays_no_change() {
        let mut fixture = Fixture::new();
        let process =
            |pid: usize| Series::new("cpu", SeriesKind::Gauge).with_label("pid", pid.to_string());
        let old = Series::new("queue", SeriesKind::Gauge);
        let new = Series::new("queue", SeriesKind::Gauge).with_label("region", "eu");
        for poll in 0..60 {
            let queue = if poll < 30 { &old } else { &new };
            let running = (poll..poll + 8).map(process).chain([queue.clone()]);
            fixture.run(1, &running.collect::<Vec<_>>());
        }
        let told = fixture.texts();
        assert!(told.iter().any(|text| text.contains("`region`")), "{told:?}");
    }

    #[test]
    fn own_series_are_not_watched() {
        let mut fixture = Fixture::new();
        let own = Series::new("topdeck_queries_running", SeriesKind::Gauge);
        let steady = Series::new("up", SeriesKind::Gauge);
        fixture.run(20, &[own, steady.clone()]);
        fixture.run(20, &[steady]);
        assert_eq!(fixture.texts(), [""; 0]);
    }
}
