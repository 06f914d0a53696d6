//! Rows: their labels, kinds and times.

use std::time::Duration;

use host::{Error, Settings};
use model::{SampleValue, SeriesKind};

use crate::{HostFixture, only, unlimited, wait};

#[test]
fn a_reading_is_in_the_journal() {
    let place = HostFixture::single_reading();
    place.start(Settings::with_keys("box", "shm_metrics = false").unwrap()).stop().unwrap();
    let told = place.contents();
    assert!(told.rows.len() > 100, "{} rows", told.rows.len());
    assert!(told.rows.iter().all(|(series, _)| series.label("host") == Some("box")));
    assert!(told.rows.iter().all(|(series, _)| series.name().starts_with("host_")));
    let cpu = told.number("host_cpu_seconds_total", &[("cpu", "0"), ("mode", "user")]);
    assert!(cpu.is_some_and(|seconds| seconds > 0.0));
    let total = told.number("host_memory_total_bytes", &[]).unwrap();
    assert!(total >= told.number("host_memory_available_bytes", &[]).unwrap());
    // Enabled BPF programs are attached, or there is a warning.
    let available = told.number("host_bpf_available", &[("program", "block_io")]).unwrap();
    let noted = told.series("host_collector_warning", &[("collector", "block_io")]).count();
    assert_eq!(available == 1.0, noted == 0);
}

#[test]
fn hiccups_follow_each_other_without_a_hole() {
    let place = HostFixture::new(unlimited(), Duration::from_millis(20));
    let host = place.start(only("hiccup_interval = '1ms'"));
    wait("three rows", || place.contents().series("host_hiccup_delay", &[]).count() >= 3);
    host.stop().unwrap();
    let told = place.contents();
    let rows: Vec<_> = told.series("host_hiccup_delay", &[]).collect();
    for pair in rows.windows(2) {
        assert_eq!(pair[0].1.end, pair[1].1.start);
    }
    let (first, last) = (&rows[0].1, &rows[rows.len() - 1].1);
    let (count, _) = told.distribution_totals("host_hiccup_delay", &[]);
    // One value per millisecond, including those of stalls; row times have a resolution of some
    // milliseconds.
    let samples = (last.end - first.start) as f64 / 1e6;
    assert!(
        (count as f64) < samples + 30.0 && count as f64 > samples - 60.0,
        "{count} of {samples}"
    );
    assert!(matches!(rows[0].0.kind(), SeriesKind::Histogram(_)));
    assert!(matches!(first.value, SampleValue::Histogram(_)));
}

#[test]
fn invalid_settings_are_rejected() {
    let place = HostFixture::single_reading();
    let start = |settings| host::HostCollector::start(settings, place.intake.clone()).map(drop);
    let keys = |keys: &str, expected: &str| {
        let problems = Settings::with_keys("box", keys).unwrap_err().to_string();
        assert!(problems.contains(expected), "{problems}");
    };
    keys("hiccup_interval = '0s'", "\"0s\": expected a duration");
    keys("hiccup_interval = '11s'", "hiccup_interval is 11s, must be 100µs to 10s");
    keys("shm_scrape_interval = '31s'", "shm_scrape_interval is 31s, must be 100ms to 30s");
    keys("hicup = true", "did you mean \"hiccup\"?");
    let name = |name: &str| {
        let mut settings = only("");
        settings.host = name.to_owned();
        start(settings)
    };
    assert!(matches!(name(""), Err(Error::NameSize { found: 0 })));
    assert!(matches!(name(&"a".repeat(256)), Err(Error::NameSize { found: 256 })));
}
