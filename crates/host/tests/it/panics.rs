//! After a panic in a thread that reads the host, the thread runs again, and counters stay
//! complete.

use std::time::Duration;

use intake::Supervisor;

use crate::{HostFixture, only, unlimited, wait};

#[test]
fn threads_that_panic_are_run_again() {
    let threads = ["host", "hiccup", "programs", "processes", "crashes"];
    let supervisor = Supervisor::with_injected_panics(&threads.map(|thread| (thread, 1)));
    let place = HostFixture::supervised(unlimited(), Duration::from_millis(20), supervisor.clone());
    let keys = "procfs = true\nprocesses = true\nhiccup_interval = '1ms'\n\
                shm_metrics = true\nshm_scrape_interval = '100ms'\ncrashes = true";
    let mut settings = only(keys);
    settings.dir = Some(place.dir.clone());
    let host = place.start(settings);
    for thread in threads {
        wait(thread, || supervisor.restarts(thread) == 1);
    }
    wait("rows after that", || place.contents().series("host_hiccup_delay", &[]).count() >= 2);
    host.stop().unwrap();
    assert_eq!(supervisor.failures(), Vec::<String>::new());
}

#[test]
fn a_reading_that_panics_comes_with_the_next() {
    let supervisor = Supervisor::with_injected_panics(&[("host scrape", 2)]);
    let place = HostFixture::supervised(unlimited(), Duration::from_millis(20), supervisor.clone());
    let host = place.start(only("hiccup_interval = '1ms'"));
    wait("rows after panics", || {
        supervisor.restarts("host") == 2
            && place.contents().series("host_hiccup_delay", &[]).count() >= 2
    });
    host.stop().unwrap();
    let told = place.contents();
    let rows: Vec<_> = told.series("host_hiccup_delay", &[]).collect();
    for pair in rows.windows(2) {
        assert_eq!(pair[0].1.end, pair[1].1.start, "nothing is missing between rows");
    }
}
