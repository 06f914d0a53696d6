//! Changes of series on a simulated disk.

use std::path::Path;
use std::sync::atomic::AtomicI64;

use intake::WriteTarget;
use model::{Sample, SampleValue, Series, SeriesKind};
use rules::ChangeAcceptance;

use super::*;
use crate::received_alerts::ReceivedAlerts;

const START_NS: i64 = 1_700_000_000 * 1_000_000_000;

struct Fixture {
    disk: sim::SimDisk,
    watcher: SeriesWatcher,
    received: Arc<ReceivedAlerts>,
    now_ns: Arc<AtomicI64>,
    /// Value of the series `up`.
    up: f64,
}

impl Fixture {
    fn new() -> Fixture {
        let sim = sim::SimDisk::new(1);
        let disk: Arc<dyn disk::Disk> = Arc::new(sim.process());
        let journal_settings = journal::Settings {
            buffer_bytes: 1 << 20,
            segment_bytes: 4 << 20,
            ..Default::default()
        };
        Store::create(&disk, Path::new("/store"), &journal_settings).expect("a store");
        drop(disk);
        Fixture::open(sim, START_NS)
    }

    /// Kills the process, and starts it after some time.
    fn restart(self, down_s: i64) -> Fixture {
        let Fixture { disk, watcher, received, now_ns, up: _ } = self;
        drop((watcher, received));
        Fixture::open(disk, now_ns.load(Ordering::SeqCst) + down_s * 1_000_000_000)
    }

    fn open(sim: sim::SimDisk, now_ns: i64) -> Fixture {
        let disk: Arc<dyn disk::Disk> = Arc::new(sim.process());
        let now_ns = Arc::new(AtomicI64::new(now_ns));
        let own = Arc::clone(&now_ns);
        let clock: journal::WallClock = Arc::new(move || own.load(Ordering::SeqCst));
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
        let data = Path::new("/");
        let store = Store::open(Arc::clone(&disk), Path::new("/store"), &options);
        let store = Arc::new(store.expect("a store"));
        let settings = intake::Settings { background: false, clock, ..Default::default() };
        let target = WriteTarget::Store(Arc::clone(&store));
        let intake = Arc::new(Intake::new(target, settings).expect("an intake"));
        let log: LogFn = Arc::new(|_, _| {});
        let control: Arc<WatchControl> = Arc::default();
        control.severity.set(Some(4));
        let opened = ReceivedAlerts::open(Arc::clone(&disk), data, now_ns.load(Ordering::SeqCst));
        let received = Arc::new(opened.0);
        let (file, on_change) = (InventoryStore::new(disk, data), Box::new(|| {}));
        let alerts = SeriesChangeAlerts { received: Arc::clone(&received), on_change };
        let dependencies = WatcherDependencies { intake, store, control, file, alerts, log };
        let watcher = SeriesWatcher::new(dependencies);
        Fixture { disk: sim, watcher, received, now_ns, up: 1.0 }
    }

    /// Alerts: state, severity, source and text.
    fn alerts(&self) -> Vec<String> {
        let alerts = self.received.alerts();
        let shown = alerts.iter().map(|alert| {
            let state = if alert.is_firing { "firing" } else { "resolved" };
            let (severity, source) = (&alert.labels["severity"], &alert.labels["source"]);
            format!("{state} {severity} {source}: {}", alert.annotations["summary"])
        });
        shown.collect()
    }

    fn changes(&self) -> Vec<SeriesSetChange> {
        let view = self.watcher.store.view().expect("a view");
        rules::read_changes(&view, 0..i64::MAX).expect("readable")
    }

    /// Accepts a change, as the API does.
    fn accept(&self, change: &SeriesSetChange) {
        let intake = &self.watcher.intake;
        let producer = intake.producer("changes");
        let (by, note) = ("ann".to_owned(), String::new());
        let at_ns = self.now_ns.load(Ordering::SeqCst);
        let (series, sample) = ChangeAcceptance { at_ns, by, note }.sample(&change.id());
        let series = series.validate().expect("a valid series");
        let mut writer = intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
        writer.series(&series.canonical_key(), &mut || Ok(series.clone())).expect("added");
        writer.sample(&sample).expect("added");
        intake.append(&producer, writer).expect("appended").wait_durable().expect("durable");
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
            let value = match series.kind() {
                SeriesKind::Histogram(_) => SampleValue::Histogram(Box::default()),
                _ if series.name() == "up" => SampleValue::Number(self.up),
                _ => SampleValue::Number(1.0),
            };
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

const DROPPED: &str = "label `LoadBalancer` disappeared from 14 series, 1 new, such as \
                       latency{LoadBalancer=\"lb00\",region=\"eu\"}";

#[test]
fn a_change_is_an_alert_until_somebody_accepts_it() {
    let mut fixture = Fixture::new();
    let steady = Series::new("up", SeriesKind::Gauge);
    let new = Series::new("latency", SeriesKind::Gauge).with_label("region", "eu");
    fixture.run(20, &[balanced(14), vec![steady.clone()]].concat());
    assert_eq!(fixture.alerts(), [""; 0]);
    fixture.run(20, &[new.clone(), steady.clone()]);
    assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {DROPPED}")]);
    // It does not end by itself, nor by a restart.
    fixture.run(40, &[new.clone(), steady.clone()]);
    let mut fixture = fixture.restart(3600);
    fixture.run(40, &[new.clone(), steady.clone()]);
    assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {DROPPED}")]);
    let change = fixture.changes().remove(0);
    assert_eq!(fixture.received.alerts()[0].labels["change"], change.id());
    fixture.accept(&change);
    fixture.run(1, &[new, steady]);
    assert_eq!(fixture.alerts(), [format!("resolved info shop: source shop: {DROPPED}")]);
    assert_eq!(fixture.watcher.control.open.load(Ordering::Relaxed), 0);
}

/// Series of an application that is scraped, `up` first.
fn scraped() -> [Series; 4] {
    let histogram = SeriesKind::Histogram(hist::codec::header::Temporality::Delta);
    let kinds = [
        ("up", SeriesKind::Gauge),
        ("requests", SeriesKind::Gauge),
        ("jobs", SeriesKind::Gauge),
        ("duration", histogram),
    ];
    kinds.map(|(name, kind)| {
        Series::new(name, kind).with_label("instance", "a:80").with_label("job", "shop")
    })
}

/// What a scrape that fails stores: `up`, and markers of the series at first.
fn outage(fixture: &mut Fixture, polls: u32) {
    let [up, requests, jobs, duration] = scraped();
    let marker = decode::staleness::marker_series(&duration).expect("valid").expect("a marker");
    fixture.up = 0.0;
    fixture.run(1, &[up.clone(), requests, jobs, marker]);
    fixture.run(polls, &[up]);
    fixture.up = 1.0;
}

/// A user stopped a scraped application for some minutes and saw `kind or unit changed in 20
/// series, 20 new`, with an alert that did not end.
#[test]
fn an_outage_of_a_target_is_no_change_of_its_series() {
    for polls in [10, 40, 300] {
        let mut fixture = Fixture::new();
        fixture.run(2, &[Series::new("steady", SeriesKind::Gauge)]);
        for _ in 0..3 {
            fixture.run(20, &scraped());
            outage(&mut fixture, polls);
        }
        fixture.run(20, &scraped());
        assert_eq!(fixture.texts(), [""; 0], "{polls} polls");
        assert_eq!(fixture.alerts(), [""; 0], "{polls} polls");
    }
}

/// Nothing says that the source is down: it sends by itself.
#[test]
fn an_alert_of_series_that_vanished_ends_when_they_are_back() {
    let steady = Series::new("steady", SeriesKind::Gauge);
    let pushed = [balanced(2), vec![steady.clone()]].concat();
    let text = "2 series vanished, such as latency{LoadBalancer=\"lb00\",region=\"eu\"}";
    for is_restarted in [false, true] {
        let mut fixture = Fixture::new();
        fixture.run(2, std::slice::from_ref(&steady));
        fixture.run(20, &pushed);
        fixture.run(20, std::slice::from_ref(&steady));
        assert_eq!(fixture.texts(), [text]);
        assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {text}")]);
        if is_restarted {
            fixture = fixture.restart(60);
            fixture.run(2, std::slice::from_ref(&steady));
        }
        // One of both is not all.
        fixture.run(2, &[pushed[0].clone(), steady.clone()]);
        assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {text}")]);
        fixture.run(2, &pushed);
        let resolved = [format!("resolved info shop: source shop: {text}")];
        assert_eq!(fixture.alerts(), resolved, "restarted: {is_restarted}");
        assert_eq!(fixture.watcher.control.open.load(Ordering::Relaxed), 0);
        let accepted = fixture.changes().remove(0).acceptance.expect("an acceptance");
        assert_eq!((&accepted.by[..], &accepted.note[..]), (ACCEPTED_BY, ACCEPTED_NOTE));
        // Another time, they are another change.
        fixture.run(20, &pushed);
        fixture.run(60, std::slice::from_ref(&steady));
        assert_eq!(fixture.texts().len(), 2);
    }
}

#[test]
fn a_target_that_returns_with_other_labels_has_changed() {
    let mut fixture = Fixture::new();
    fixture.run(2, &[Series::new("steady", SeriesKind::Gauge)]);
    fixture.run(20, &scraped());
    outage(&mut fixture, 300);
    let [up, requests, jobs, duration] = scraped();
    fixture.run(20, &[up, requests.with_label("zone", "a"), jobs, duration]);
    let text = "label `zone` appeared in 1 series, 1 new, such as \
                requests{instance=\"a:80\",job=\"shop\"}";
    assert_eq!(fixture.texts(), [text]);
}

#[test]
fn alerts_of_changes_can_be_switched_off() {
    let mut fixture = Fixture::new();
    fixture.watcher.control.severity.set(None);
    fixture.run(20, &balanced(14));
    fixture.run(20, &[Series::new("latency", SeriesKind::Gauge).with_label("region", "eu")]);
    assert_eq!(fixture.texts(), [DROPPED]);
    assert_eq!(fixture.alerts(), [""; 0]);
}

/// A deployment dropped a label while the server was down.
#[test]
fn a_change_while_the_server_was_down_is_told_and_nothing_else() {
    let steady = Series::new("up", SeriesKind::Gauge);
    let new = Series::new("latency", SeriesKind::Gauge).with_label("region", "eu");
    for is_killed in [false, true] {
        let mut fixture = Fixture::new();
        fixture.run(25, &[balanced(14), vec![steady.clone()]].concat());
        let last_ns = fixture.now_ns.load(Ordering::SeqCst);
        if !is_killed {
            fixture.watcher.store_inventory();
        }
        let mut fixture = fixture.restart(3600);
        // Senders come back within some minutes.
        fixture.run(10, &[]);
        assert_eq!(fixture.texts(), [""; 0]);
        fixture.run(40, &[new.clone(), steady.clone()]);
        assert_eq!(fixture.texts(), [DROPPED], "killed: {is_killed}");
        let at_ns = fixture.changes()[0].time_ns;
        // Rows that arrived after the inventory was stored are found.
        let expected = last_ns..=last_ns + 1_000_000_000;
        assert!(expected.contains(&at_ns), "{at_ns} in {expected:?}");
        assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {DROPPED}")]);
    }
}

/// The new series appeared before the restart, the old ones are missed only after it.
#[test]
fn a_change_around_a_restart_is_told_once() {
    let steady = Series::new("up", SeriesKind::Gauge);
    let new = Series::new("latency", SeriesKind::Gauge).with_label("region", "eu");
    let after = [new, steady.clone()];
    for polls in [1, 4, 6, 7, 12] {
        let mut fixture = Fixture::new();
        fixture.run(20, &[balanced(14), vec![steady.clone()]].concat());
        fixture.run(polls, &after);
        fixture.watcher.store_inventory();
        let mut fixture = fixture.restart(60);
        fixture.run(60, &after);
        assert_eq!(fixture.texts(), [DROPPED], "{polls} polls");
        assert_eq!(
            fixture.alerts(),
            [format!("firing info shop: source shop: {DROPPED}")],
            "{polls} polls"
        );
    }
}

#[test]
fn a_damaged_inventory_is_kept_and_learned_anew() {
    let mut fixture = Fixture::new();
    fixture.run(25, &balanced(14));
    fixture.disk.flip_bit("/series-inventory", 40, 3);
    let mut fixture = fixture.restart(60);
    fixture.run(60, &[Series::new("up", SeriesKind::Gauge)]);
    assert_eq!(fixture.texts(), [""; 0]);
    assert!(fixture.disk.contents("/series-inventory.damaged").is_some());
    assert!(fixture.disk.contents("/series-inventory").is_some());
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

#[test]
fn alerts_of_changes_are_limited_and_the_rest_is_counted() {
    let fixture = Fixture::new();
    for number in 0..FIRING_MAX as i64 + 5 {
        let change = SeriesSetChange {
            source: "shop".to_owned(),
            text: format!("change {number}"),
            time_ns: START_NS + number,
            acceptance: None,
        };
        fixture.watcher.raise(&change, START_NS + number);
    }
    assert_eq!(fixture.alerts().len(), FIRING_MAX);
    assert_eq!(fixture.watcher.dropped.get(), 5);
}

/// The server was down for longer than a change counts as open.
#[test]
fn a_change_of_long_ago_is_an_alert_from_when_it_is_noticed() {
    let steady = Series::new("up", SeriesKind::Gauge);
    let new = Series::new("latency", SeriesKind::Gauge).with_label("region", "eu");
    let mut fixture = Fixture::new();
    fixture.run(25, &[balanced(14), vec![steady.clone()]].concat());
    fixture.watcher.store_inventory();
    let mut fixture = fixture.restart(8 * 86_400);
    fixture.run(50, &[new.clone(), steady.clone()]);
    assert_eq!(fixture.alerts(), [format!("firing info shop: source shop: {DROPPED}")]);
    let change = fixture.changes().remove(0);
    fixture.accept(&change);
    fixture.run(1, &[new, steady]);
    assert_eq!(fixture.alerts(), [format!("resolved info shop: source shop: {DROPPED}")]);
}
