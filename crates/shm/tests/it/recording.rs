//! What is recorded by threads that come and go is what a reader sees.

use std::thread;

use shm::show::{Number, Value};
use shm::{Description, Reader};

use crate::folder::room::has_room;

fn own() -> Reader {
    Reader::attach(&shm::status().expect("a file of metrics")).expect("it can be read")
}

/// The value of a series of this process.
#[track_caller]
pub(crate) fn value(name: &str, labels: &[(&str, &str)]) -> Value {
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
    if !has_room() {
        return;
    }
    for _ in 0..4 {
        thread::scope(|scope| {
            for n in 0..6 {
                scope.spawn(move || {
                    for i in 0..10_000u64 {
                        ANSWERED.add(1);
                        TOOK.of(if n % 2 == 0 { Route::Home } else { Route::Search }).record(i);
                    }
                });
            }
        });
    }
    assert_eq!(value("it_answered_total", &[]), Value::Counter(Number::Unsigned(240_000)));
    for route in ["home", "search"] {
        let Value::Histogram(seen) = value("it_took", &[("route", route)]) else {
            panic!("no histogram")
        };
        assert_eq!(seen.count(), 120_000);
        assert_eq!(
            seen.sum_side().exact().map(|sum| sum.value()),
            Some(12.0 * (9_999.0 * 5_000.0))
        );
        assert_eq!((seen.min_side().exact(), seen.max_side().exact()), (Some(0.0), Some(9_999.0)));
    }
    // The short way tells the same, and nothing of what is no histogram.
    let reader = own();
    let counts = |name: &str| {
        let of = (0..reader.len()).filter(|&at| reader.name(at) == name);
        of.map(|at| reader.recorded(at).expect("it is read")).collect::<Vec<_>>()
    };
    assert_eq!(counts("it_took"), [Some(120_000); 2]);
    assert_eq!(counts("it_answered_total"), [None]);
}

#[test]
fn what_has_not_ended_is_listed() {
    if !has_room() {
        return;
    }
    let [sda, sdb, read] = ["sda", "sdb", "read"].map(|tag| shm::Tag::new(tag).expect("room"));
    let all: Vec<_> =
        (0..5_000).map(|n| WORK.begin(n, &[if n % 5 == 0 { sdb } else { sda }, read])).collect();
    let Value::InFlight(seen) = value("it_work", &[]) else { panic!("no table") };
    assert_eq!((seen.started, seen.ended, seen.unlisted), (5_000, 0, 0));
    assert_eq!(seen.operations.len(), 5_000);
    let of = |device: &str| seen.operations.iter().filter(|one| one.tags[0].1 == device).count();
    assert_eq!((of("sda"), of("sdb")), (4_000, 1_000));
    // They end on another thread.
    thread::scope(|scope| {
        scope.spawn(move || drop(all));
    });
    let Value::InFlight(seen) = value("it_work", &[]) else { panic!("no table") };
    assert_eq!((seen.started, seen.ended, seen.operations.len()), (5_000, 5_000, 0));
}

#[test]
fn what_is_set_is_as_it_was_set_last() {
    if !has_room() {
        return;
    }
    let gauge = Description::new("it_gauge").unit("By").gauge().expect("room");
    gauge.set(-7);
    assert_eq!(value("it_gauge", &[]), Value::Gauge(Number::Signed(-7)));
    let float = Description::new("it_float").float_gauge().expect("room");
    float.set(0.25);
    assert_eq!(value("it_float", &[]), Value::Gauge(Number::Float(0.25)));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| float.add(0.5)));
        }
    });
    assert_eq!(value("it_float", &[]), Value::Gauge(Number::Float(20_000.25)));
    let text = Description::new("it_text").label("a", "b").text().expect("room");
    assert_eq!(value("it_text", &[("a", "b")]), Value::Text(String::new()));
    assert!(text.set("one"));
    assert!(text.set("größer"));
    assert_eq!(value("it_text", &[("a", "b")]), Value::Text("größer".to_owned()));
    assert!(!text.set(&"ü".repeat(200)));
    assert_eq!(value("it_text", &[("a", "b")]), Value::Text("ü".repeat(120)));
    let up_down = Description::new("it_up_down").up_down().expect("room");
    up_down.add(3);
    thread::scope(|scope| {
        scope.spawn(|| up_down.add(-5));
    });
    assert_eq!(value("it_up_down", &[]), Value::Gauge(Number::Signed(-2)));
    let heartbeat = Description::new("it_heartbeat").heartbeat(1_000_000_000).expect("room");
    heartbeat.beat();
    heartbeat.beat();
    let Value::Heartbeat(seen) = value("it_heartbeat", &[]) else { panic!("no heartbeat") };
    assert_eq!((seen.beats, seen.every_ns), (2, 1_000_000_000));
    assert!(seen.last_ns > 0 && seen.last_ns <= clock::now());
}

#[test]
fn any_whole_number_is_counted() {
    if !has_room() {
        return;
    }
    let histogram = Description::new("it_any").histogram().expect("room");
    let mut expected = hist::Histogram::default();
    for shift in 0..64 {
        for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
            histogram.record(value);
            expected.record(value as f64);
        }
    }
    let Value::Histogram(seen) = value("it_any", &[]) else { panic!("no histogram") };
    assert_eq!((seen.positive(), seen.zero_count()), (expected.positive(), expected.zero_count()));
    assert_eq!(seen.max_side().exact(), Some(u64::MAX as f64));
}

#[test]
fn too_many_series_of_a_name_are_counted_together() {
    if !has_room() {
        return;
    }
    let of =
        |n: usize| Description::new("it_many").label("n", n.to_string()).counter().expect("room");
    for n in 0..shm::SERIES_OF_A_NAME_MAX + 20 {
        of(n).add(1);
    }
    assert_eq!(value("it_many", &[("overflow", "true")]), Value::Counter(Number::Unsigned(20)));
    assert!(own().process().refused >= 20);
}

#[test]
fn two_parts_of_a_program_must_agree() {
    if !has_room() {
        return;
    }
    Description::new("it_twice").unit("ns").counter().expect("room").add(1);
    Description::new("it_twice").unit("ns").counter().expect("the same").add(1);
    let error = Description::new("it_twice").unit("ns").histogram().expect_err("another kind");
    assert!(error.to_string().contains("registered already"), "{error}");
    Description::new("it_twice").unit("s").counter().expect_err("another unit");
    Description::new("").counter().expect_err("no name");
    let labels = Description::new("it_labels").label("a", "1").label("a", "2").counter();
    labels.expect_err("a label twice");
    assert_eq!(value("it_twice", &[]), Value::Counter(Number::Unsigned(2)));
}

#[test]
fn this_process_is_found() {
    if !has_room() {
        return;
    }
    Description::new("it_found").counter().expect("room");
    let path = shm::status().expect("a file");
    let (found, _) = shm::processes();
    let own = found.iter().find(|one| one.path == path).expect("our own file");
    assert_eq!(own.fate, shm::Fate::Runs { pid: std::process::id() });
    let process = Reader::attach(&path).expect("it can be read").process();
    assert_eq!(process.identity, shm::Identity::own());
    assert!(process.program.starts_with("it"), "{process:?}");
}
