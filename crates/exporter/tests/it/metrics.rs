//! The recorder of the `metrics` crate.

use std::sync::Once;
use std::thread;
use std::time::Duration;

use metrics::{
    Key, Label, Recorder, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use shm::snapshot::{MetricValue, NumericValue};

use crate::room::has_space;
use crate::{count, exact, find, series};

/// Installs the recorder.
fn install_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| exporter::metrics::install().expect("the only recorder"));
}

#[track_caller]
fn rejected(metric: &str, reason: &str) -> u64 {
    count("exporter_rejected_total", &[("metric", metric), ("reason", reason)])
}

#[track_caller]
fn level(name: &str) -> f64 {
    match series(name, &[]).value {
        MetricValue::Gauge(NumericValue::Float(value)) => value,
        other => panic!("no gauge: {other:?}"),
    }
}

#[test]
fn it_is_installed_once() {
    if !has_space() {
        return;
    }
    install_once();
    let error = exporter::metrics::install().expect_err("a second recorder");
    assert!(error.to_string().contains("another one is installed"), "{error}");
}

#[test]
fn threads_lose_no_count() {
    if !has_space() {
        return;
    }
    install_once();
    let handle = counter!("m_answers_total", "peer" => "a");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for n in 0..10_000u32 {
                    handle.increment(1);
                    counter!("m_answers_total", "peer" => "b").increment(2);
                    histogram!("m_answers_seconds").record(f64::from(n) * 1e-6);
                }
            });
        }
    });
    assert_eq!(count("m_answers_total", &[("peer", "a")]), 60_000);
    assert_eq!(count("m_answers_total", &[("peer", "b")]), 120_000);
    let sum = 6.0 * (9_999.0 * 5_000.0) * 1_000.0;
    let seen = crate::histogram("m_answers_seconds", &[]);
    assert_eq!(exact(&seen), (60_000, sum, 0.0, 9_999_000.0));
    assert_eq!(series("m_answers_seconds", &[]).unit, "ns");
}

#[test]
fn a_description_may_come_after_the_handle() {
    if !has_space() {
        return;
    }
    install_once();
    let handle = histogram!("m_described", "route" => "a");
    assert!(find("m_described", &[("route", "a")]).is_none(), "registered before it is used");
    describe_histogram!("m_described", Unit::Milliseconds, "How long it took.");
    handle.record(2.5);
    let seen = series("m_described", &[("route", "a")]);
    assert_eq!((seen.unit.as_str(), seen.help.as_str()), ("ns", "How long it took."));
    assert_eq!(exact(&crate::histogram("m_described", &[("route", "a")])).1, 2_500_000.0);
    // An equal description is accepted; another unit could not be combined with earlier values.
    describe_histogram!("m_described", Unit::Milliseconds, "How long it took.");
    assert_eq!(rejected("m_described", "late_description"), 0);
    describe_histogram!("m_described", Unit::Seconds, "How long it took.");
    assert_eq!(rejected("m_described", "late_description"), 1);
    histogram!("m_described", "route" => "b").record(1.0);
    assert_eq!(exact(&crate::histogram("m_described", &[("route", "b")])).1, 1_000_000.0);
}

#[test]
fn counters_and_gauges_keep_their_unit() {
    if !has_space() {
        return;
    }
    install_once();
    describe_counter!("m_sent", Unit::Kibibytes, "Sent.");
    counter!("m_sent").increment(3);
    describe_gauge!("m_temperature", "In the room.");
    gauge!("m_temperature").set(21.5);
    let seen = series("m_sent", &[]);
    assert_eq!((seen.unit.as_str(), seen.help.as_str()), ("KiBy", "Sent."));
    assert_eq!(seen.value, MetricValue::Counter(NumericValue::Unsigned(3)));
    assert_eq!(series("m_temperature", &[]).help, "In the room.");
    assert_eq!(level("m_temperature"), 21.5);
}

#[test]
fn absolute_values_only_raise() {
    if !has_space() {
        return;
    }
    install_once();
    let handle = counter!("m_absolute");
    handle.absolute(7);
    handle.absolute(3);
    assert_eq!(count("m_absolute", &[]), 7);
    // Many threads report an external count, in no order.
    thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                (0..10_000u64).for_each(|n| {
                    counter!("m_absolute").absolute(n * 7 % 10_000 + thread);
                });
            });
        }
    });
    assert_eq!(count("m_absolute", &[]), 10_002);
    handle.increment(5);
    handle.absolute(10_002);
    assert_eq!(count("m_absolute", &[]), 10_007);
}

#[test]
fn gauges_are_raised_and_lowered_by_many() {
    if !has_space() {
        return;
    }
    install_once();
    gauge!("m_level").set(0.5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let handle = gauge!("m_level");
                for _ in 0..10_000 {
                    handle.increment(3.0);
                    handle.decrement(2.0);
                }
            });
        }
    });
    assert_eq!(level("m_level"), 40_000.5);
    gauge!("m_level").increment(f64::NAN);
    gauge!("m_level").decrement(f64::INFINITY);
    assert_eq!(level("m_level"), 40_000.5);
    assert_eq!((rejected("m_level", "nan"), rejected("m_level", "too_large")), (1, 1));
    gauge!("m_level").set(f64::INFINITY);
    assert_eq!(level("m_level"), f64::INFINITY);
}

#[test]
fn values_are_whole_numbers_of_their_unit() {
    if !has_space() {
        return;
    }
    install_once();
    #[track_caller]
    fn check(name: &'static str, value: f64, unit: &str, expected: f64) {
        let handle = histogram!(name);
        handle.record_many(value, 2);
        assert_eq!(exact(&crate::histogram(name, &[])), (2, 2.0 * expected, expected, expected));
        assert_eq!(series(name, &[]).unit, unit);
    }
    describe_histogram!("m_u_us", Unit::Microseconds, "");
    check("m_u_us", 1.5, "ns", 1_500.0);
    check("m_u_milliseconds", 1.5, "ns", 1_500_000.0);
    check("m.u.seconds", 1.5, "ns", 1.5e9);
    check("m_u_bytes", 4096.4, "By", 4_096.0);
    describe_histogram!("m_u_mebi", Unit::Mebibytes, "");
    check("m_u_mebi", 0.5, "By", 524_288.0);
    describe_histogram!("m_u_batch", Unit::Count, "");
    check("m_u_batch", 17.0, "", 17.0);
    describe_histogram!("m_u_used", Unit::Percent, "");
    check("m_u_used", 99.5, "10*-9.%", 99.5e9);
    check("m_u_share", 0.25, "10*-9", 250_000_000.0);
    // Durations arrive as seconds, whatever the name says.
    histogram!("m_u_took").record(Duration::from_nanos(1_234));
    assert_eq!(exact(&crate::histogram("m_u_took", &[])), (1, 1_234.0, 1_234.0, 1_234.0));
}

#[test]
fn rejected_values_are_counted() {
    if !has_space() {
        return;
    }
    install_once();
    let handle = histogram!("m_refused_seconds");
    handle.record(1.0);
    for value in [-1.0, f64::NEG_INFINITY, f64::NAN, f64::INFINITY, 1e10] {
        handle.record(value);
    }
    handle.record_many(-0.5, 3);
    assert_eq!(crate::histogram("m_refused_seconds", &[]).count(), 1);
    assert_eq!(rejected("m_refused_seconds", "negative"), 5);
    assert_eq!(rejected("m_refused_seconds", "nan"), 1);
    assert_eq!(rejected("m_refused_seconds", "too_large"), 2);
    // A name has one kind only.
    counter!("m_twice").increment(1);
    gauge!("m_twice").set(1.0);
    gauge!("m_twice").increment(1.0);
    assert_eq!((count("m_twice", &[]), rejected("m_twice", "no_series")), (1, 2));
    // Exceeds the limits of shared memory.
    let long = "n".repeat(5_000);
    counter!(long.clone()).increment(1);
    assert_eq!(rejected(&long[..512], "no_series"), 1);
    counter!("").increment(1);
    assert_eq!(rejected("", "no_series"), 1);
}

#[test]
fn labels_are_a_set() {
    if !has_space() {
        return;
    }
    install_once();
    counter!("m_labels", "a" => "1", "b" => "2").increment(1);
    counter!("m_labels", "b" => "2", "a" => "1").increment(1);
    assert_eq!(count("m_labels", &[("a", "1"), ("b", "2")]), 2);
    // Of duplicates the last one wins.
    counter!("m_labels", "a" => "1", "a" => "3").increment(1);
    assert_eq!(count("m_labels", &[("a", "3")]), 1);
}

#[test]
fn too_many_series_of_a_name_are_counted_together() {
    if !has_space() {
        return;
    }
    install_once();
    for n in 0..shm::SERIES_PER_NAME_MAX + 30 {
        counter!("m_many", "n" => n.to_string()).increment(1);
        counter!("m_many", "n" => n.to_string()).increment(1);
    }
    assert_eq!(count("m_many", &[("n", "999")]), 2);
    assert!(find("m_many", &[("n", "1000")]).is_none());
    assert_eq!(count("m_many", &[("overflow", "true")]), 60);
    counter!("m_many", "n" => "another").absolute(1_000);
    assert_eq!(count("m_many", &[("overflow", "true")]), 60);
    assert_eq!(rejected("m_many", "no_series"), 1);
}

/// Keys created by other recorders, in addition to the installed one.
#[test]
fn all_recorders_are_one() {
    if !has_space() {
        return;
    }
    let metadata = metrics::Metadata::new("a", metrics::Level::INFO, None);
    let key = Key::from_parts("m_recorders", vec![Label::new("a", "b")]);
    let (one, other) = (exporter::metrics::MetricsRecorder, exporter::metrics::MetricsRecorder);
    one.register_counter(&key, &metadata).absolute(5);
    other.register_counter(&key, &metadata).absolute(5);
    assert_eq!(count("m_recorders", &[("a", "b")]), 5);
}

/// Runs this binary again for one test, with shared memory disabled.
#[test]
fn a_program_runs_on_without_shared_memory() {
    const CHILD: &str = "FACADE_TEST_WITHOUT_SHARED_MEMORY";
    if std::env::var_os(CHILD).is_some() {
        install_once();
        counter!("m_off").increment(1);
        counter!("m_off").absolute(9);
        gauge!("m_off_level").increment(1.0);
        histogram!("m_off_seconds").record(f64::NAN);
        exporter::tracing::install().expect("the only subscriber");
        tracing::info_span!("off").in_scope(|| tracing::error!("off"));
        exporter::status().expect_err("it is off");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "metrics::a_program_runs_on_without_shared_memory"])
        .env("TOPDECK_SHM", "off")
        .env(CHILD, "1")
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}
