//! Rows: their labels, kinds and times.

use std::time::Duration;

use host::{Error, Settings};
use model::{Kind, Value};

use crate::{Place, nothing, unlimited, wait};

#[test]
fn a_reading_is_in_the_journal() {
    let place = Place::once();
    place.start(Settings { programs: None, ..Settings::of("box") }).stop().unwrap();
    let told = place.told();
    assert!(told.rows.len() > 100, "{} rows", told.rows.len());
    assert!(told.rows.iter().all(|(series, _)| series.label("host") == Some("box")));
    assert!(told.rows.iter().all(|(series, _)| series.name().starts_with("host_")));
    let cpu = told.number("host_cpu_seconds_total", &[("cpu", "0"), ("mode", "user")]);
    assert!(cpu.is_some_and(|seconds| seconds > 0.0));
    let total = told.number("host_memory_total_bytes", &[]).unwrap();
    assert!(total >= told.number("host_memory_available_bytes", &[]).unwrap());
    // Wanted programs work or not, and if not it is said.
    let available = told.number("host_bpf_available", &[("program", "block_io")]).unwrap();
    let noted = told.of("host_note", &[("about", "block_io")]).count();
    assert_eq!(available == 1.0, noted == 0);
}

#[test]
fn hiccups_follow_each_other_without_a_hole() {
    let place = Place::new(unlimited(), Duration::from_millis(20));
    let host = place.start(Settings { hiccup: Some(Duration::from_millis(1)), ..nothing() });
    wait("three rows", || place.told().of("host_hiccup", &[]).count() >= 3);
    host.stop().unwrap();
    let told = place.told();
    let rows: Vec<_> = told.of("host_hiccup", &[]).collect();
    for pair in rows.windows(2) {
        assert_eq!(pair[0].1.end, pair[1].1.start);
    }
    let (first, last) = (&rows[0].1, &rows[rows.len() - 1].1);
    let (count, _) = told.recorded("host_hiccup", &[]);
    // One a millisecond, those of stalls among them; the clock of rows ticks every few milliseconds.
    let moments = (last.end - first.start) as f64 / 1e6;
    assert!(
        (count as f64) < moments + 30.0 && count as f64 > moments - 60.0,
        "{count} of {moments}"
    );
    assert!(matches!(rows[0].0.kind(), Kind::Histogram(_)));
    assert!(matches!(first.value, Value::Histogram(_)));
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::once();
    let start = |settings| host::Host::start(settings, place.intake.clone()).map(drop);
    let period = |period| start(Settings { hiccup: Some(period), ..nothing() });
    assert!(matches!(period(Duration::ZERO), Err(Error::Period { .. })));
    assert!(matches!(period(Duration::from_secs(11)), Err(Error::Period { .. })));
    let name = |name: &str| start(Settings { host: name.to_owned(), ..nothing() });
    assert!(matches!(name(""), Err(Error::NameSize { found: 0 })));
    assert!(matches!(name(&"a".repeat(256)), Err(Error::NameSize { found: 256 })));
}
