//! Scrapes rejected for lack of space are part of a later one, and lost gauges are reported.

use std::time::Duration;

use journal::{Level, Limits, StartPosition};

use crate::{HostFixture, only, unlimited, wait};

#[test]
fn rejected_reading_is_retried() {
    let limits = Limits { bytes_max: Some(1 << 20), ..unlimited() };
    let place = HostFixture::new(limits, Duration::from_millis(50));
    place.journal.add_subscriber("slow", StartPosition::First, true).unwrap();
    let filler = vec![b'x'; 16 << 10];
    while place.journal.append(&filler, Level::Process).is_ok() {}
    let host = place.start(only("procfs = true\nhiccup_interval = '1ms'"));
    let deferred = place.intake.meter().counter("topdeck_host_deferred_scrapes_total", "", &[]);
    wait("three scrapes are deferred", || deferred.get() >= 3);
    let mut slow = place.journal.subscribe("slow").unwrap();
    while slow.next().unwrap().is_some() {}
    let read = slow.position();
    slow.commit(read, Level::Disk).unwrap();
    host.stop().unwrap();
    let told = place.contents();
    let first = &told.series("host_hiccup_delay", &[]).next().unwrap().1;
    // The row spans the rejected scrapes and includes their delays.
    let span = (first.end - first.start) as f64 / 1e6;
    assert!(span > 100.0, "{span} ms");
    let model::SampleValue::Histogram(waits) = &first.value else { panic!("{first:?}") };
    // A wait is at least 1 ms long; those since the last rejected scrape are a small part.
    assert!(waits.count() as f64 > span / 2.0, "{} waits in {span} ms", waits.count());
    let gap = &told.gaps[0];
    assert!(gap.lost.is_some_and(|lost| lost > 50) && gap.end <= first.end, "{gap:?}");
}
