//! Panics in the threads that read the host: they are run again, and what adds up is told whole.

use std::time::Duration;

use host::Settings;
use intake::Supervisor;

use crate::{Place, nothing, unlimited, wait};

#[test]
fn threads_that_panic_are_run_again() {
    let threads = ["host", "hiccup", "programs", "processes"];
    let supervisor = Supervisor::throwing(&threads.map(|thread| (thread, 1)));
    let place = Place::supervised(unlimited(), Duration::from_millis(20), supervisor.clone());
    let host = place.start(Settings {
        procfs: true,
        processes: true,
        hiccup: Some(Duration::from_millis(1)),
        programs: Some(Settings::PROGRAMS_MIN),
        folder: Some(place.dir.clone()),
        ..nothing()
    });
    for thread in threads {
        wait(thread, || supervisor.restarts(thread) == 1);
    }
    wait("rows after that", || place.told().of("host_hiccup", &[]).count() >= 2);
    host.stop().unwrap();
    assert_eq!(supervisor.failures(), Vec::<String>::new());
}

#[test]
fn a_reading_that_panics_comes_with_the_next() {
    let supervisor = Supervisor::throwing(&[("host reading", 2)]);
    let place = Place::supervised(unlimited(), Duration::from_millis(20), supervisor.clone());
    let host = place.start(Settings { hiccup: Some(Duration::from_millis(1)), ..nothing() });
    wait("rows after panics", || {
        supervisor.restarts("host") == 2 && place.told().of("host_hiccup", &[]).count() >= 2
    });
    host.stop().unwrap();
    let told = place.told();
    let rows: Vec<_> = told.of("host_hiccup", &[]).collect();
    for pair in rows.windows(2) {
        assert_eq!(pair[0].1.end, pair[1].1.start, "nothing is missing between rows");
    }
}
