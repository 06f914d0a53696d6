//! A reader sees everything that starting and ending threads record.

use std::thread;

use shm::snapshot::{MetricValue, NumericValue};
use shm::{MetricBuilder, MetricsFileReader};

use crate::test_dir::room::has_space;

fn own() -> MetricsFileReader {
    MetricsFileReader::attach(&shm::status().expect("a file of metrics")).expect("it can be read")
}

/// Value of a series of this process.
#[track_caller]
pub(crate) fn value(name: &str, labels: &[(&str, &str)]) -> MetricValue {
    let labels: Vec<_> = labels.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    let metrics = own().metrics().expect("metrics");
    let found = metrics.into_iter().find(|metric| metric.name == name && metric.labels == labels);
    found.unwrap_or_else(|| panic!("no series {name} {labels:?}")).value
}

shm::label! {
    /// Where requests go.
    enum Route as "route" { Home = "home", Search = "search" }
}

shm::metrics! {
    /// Requests that were answered.
    static ANSWERED: shm::Counter = "it_answered_total";
    /// How long it took.
    static TOOK: shm::Histogram[Route] = "it_took", unit "ns";
    /// What is being done.
    static WORK: shm::InFlight = "it_work", tags &["device", "operation"];
}

#[test]
fn threads_that_come_and_go_lose_nothing() {
    if !has_space() {
        return;
    }
    for _ in 0..4 {
        thread::scope(|scope| {
            for n in 0..6 {
                scope.spawn(move || {
                    for i in 0..10_000u64 {
                        ANSWERED.add(1);
                        TOOK.with_label(if n % 2 == 0 { Route::Home } else { Route::Search })
                            .record(i);
                    }
                });
            }
        });
    }
    assert_eq!(
        value("it_answered_total", &[]),
        MetricValue::Counter(NumericValue::Unsigned(240_000))
    );
    for route in ["home", "search"] {
        let MetricValue::Histogram(seen) = value("it_took", &[("route", route)]) else {
            panic!("no histogram")
        };
        assert_eq!(seen.count(), 120_000);
        assert_eq!(
            seen.tracked_sum().exact().map(|sum| sum.value()),
            Some(12.0 * (9_999.0 * 5_000.0))
        );
        assert_eq!(
            (seen.tracked_min().exact(), seen.tracked_max().exact()),
            (Some(0.0), Some(9_999.0))
        );
    }
    // The fast path returns the same, and nothing for other kinds.
    let reader = own();
    let counts = |name: &str| {
        let of = (0..reader.len()).filter(|&at| reader.name(at) == name);
        of.map(|at| reader.histogram_count(at).expect("it is read")).collect::<Vec<_>>()
    };
    assert_eq!(counts("it_took"), [Some(120_000); 2]);
    assert_eq!(counts("it_answered_total"), [None]);
}

#[test]
fn running_operations_are_listed() {
    if !has_space() {
        return;
    }
    let [sda, sdb, read] = ["sda", "sdb", "read"].map(|tag| shm::Tag::new(tag).expect("room"));
    let all: Vec<_> =
        (0..5_000).map(|n| WORK.begin(n, &[if n % 5 == 0 { sdb } else { sda }, read])).collect();
    let MetricValue::InFlight(seen) = value("it_work", &[]) else { panic!("no table") };
    assert_eq!((seen.started, seen.ended, seen.untracked), (5_000, 0, 0));
    assert_eq!(seen.operations.len(), 5_000);
    let of = |device: &str| seen.operations.iter().filter(|one| one.tags[0].1 == device).count();
    assert_eq!((of("sda"), of("sdb")), (4_000, 1_000));
    // Operations end on another thread.
    thread::scope(|scope| {
        scope.spawn(move || drop(all));
    });
    let MetricValue::InFlight(seen) = value("it_work", &[]) else { panic!("no table") };
    assert_eq!((seen.started, seen.ended, seen.operations.len()), (5_000, 5_000, 0));
}

#[test]
fn last_set_value_is_read() {
    if !has_space() {
        return;
    }
    let gauge = MetricBuilder::new("it_gauge").unit("By").gauge().expect("room");
    gauge.set(-7);
    assert_eq!(value("it_gauge", &[]), MetricValue::Gauge(NumericValue::Signed(-7)));
    let float = MetricBuilder::new("it_float").float_gauge().expect("room");
    float.set(0.25);
    assert_eq!(value("it_float", &[]), MetricValue::Gauge(NumericValue::Float(0.25)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| float.add(0.5)));
        }
    });
    assert_eq!(value("it_float", &[]), MetricValue::Gauge(NumericValue::Float(20_000.25)));
    let text = MetricBuilder::new("it_text").label("a", "b").text().expect("room");
    assert_eq!(value("it_text", &[("a", "b")]), MetricValue::Text(String::new()));
    assert!(text.set("one"));
    assert!(text.set("größer"));
    assert_eq!(value("it_text", &[("a", "b")]), MetricValue::Text("größer".to_owned()));
    assert!(!text.set(&"ü".repeat(200)));
    assert_eq!(value("it_text", &[("a", "b")]), MetricValue::Text("ü".repeat(120)));
    let up_down = MetricBuilder::new("it_up_down").up_down_counter().expect("room");
    up_down.add(3);
    thread::scope(|scope| {
        scope.spawn(|| up_down.add(-5));
    });
    assert_eq!(value("it_up_down", &[]), MetricValue::Gauge(NumericValue::Signed(-2)));
    let heartbeat = MetricBuilder::new("it_heartbeat").heartbeat(1_000_000_000).expect("room");
    heartbeat.beat();
    heartbeat.beat();
    let MetricValue::Heartbeat(seen) = value("it_heartbeat", &[]) else { panic!("no heartbeat") };
    assert_eq!((seen.beats, seen.every_ns), (2, 1_000_000_000));
    assert!(seen.last_ns > 0 && seen.last_ns <= clock::now());
}

#[test]
fn any_whole_number_is_counted() {
    if !has_space() {
        return;
    }
    let histogram = MetricBuilder::new("it_any").histogram().expect("room");
    let mut expected = hist::Histogram::default();
    for shift in 0..64 {
        for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
            histogram.record(value);
            expected.record(value as f64);
        }
    }
    let MetricValue::Histogram(seen) = value("it_any", &[]) else { panic!("no histogram") };
    assert_eq!((seen.positive(), seen.zero_count()), (expected.positive(), expected.zero_count()));
    assert_eq!(seen.tracked_max().exact(), Some(u64::MAX as f64));
}

#[test]
fn too_many_series_of_a_name_are_counted_together() {
    if !has_space() {
        return;
    }
    let of =
        |n: usize| MetricBuilder::new("it_many").label("n", n.to_string()).counter().expect("room");
    for n in 0..shm::SERIES_PER_NAME_MAX + 20 {
        of(n).add(1);
    }
    assert_eq!(
        value("it_many", &[("overflow", "true")]),
        MetricValue::Counter(NumericValue::Unsigned(20))
    );
    assert!(own().process().rejected_series >= 20);
}

#[test]
fn two_parts_of_a_program_must_agree() {
    if !has_space() {
        return;
    }
    MetricBuilder::new("it_twice").unit("ns").counter().expect("room").add(1);
    MetricBuilder::new("it_twice").unit("ns").counter().expect("the same").add(1);
    let error = MetricBuilder::new("it_twice").unit("ns").histogram().expect_err("another kind");
    assert!(error.to_string().contains("another kind or unit"), "{error}");
    MetricBuilder::new("it_twice").unit("s").counter().expect_err("another unit");
    MetricBuilder::new("").counter().expect_err("no name");
    let labels = MetricBuilder::new("it_labels").label("a", "1").label("a", "2").counter();
    labels.expect_err("a label twice");
    assert_eq!(value("it_twice", &[]), MetricValue::Counter(NumericValue::Unsigned(2)));
}

#[test]
fn this_process_is_found() {
    if !has_space() {
        return;
    }
    MetricBuilder::new("it_found").counter().expect("room");
    let path = shm::status().expect("a file");
    let (found, _) = shm::list_metrics_files();
    let own = found.iter().find(|one| one.path == path).expect("our own file");
    assert_eq!(own.state, shm::ProcessState::Running { pid: std::process::id() });
    let process = MetricsFileReader::attach(&path).expect("it can be read").process();
    assert_eq!(process.identity, shm::ProcessIdentity::current());
    assert!(process.program.starts_with("it"), "{process:?}");
}
