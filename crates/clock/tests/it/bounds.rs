//! No reading is off by more than it says.

use rustix::time::{ClockId, clock_gettime};

use std::thread;
use std::time::{Duration, Instant};

fn system_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How often a reading was outside of what the system said before and after it, by more than its bound.
fn violations(checks: u32) -> u32 {
    let check = |_| {
        let (before, read, after) = (system_ns(), clock::now_bounded(), system_ns());
        u32::from(read.ns + read.error_ns < before || read.ns > after + read.error_ns)
    };
    (0..checks).map(check).sum()
}

#[test]
fn the_bound_holds_from_the_first_reading_on() {
    let end = Instant::now() + Duration::from_millis(2_500);
    let mut checks = 0;
    while Instant::now() < end {
        assert_eq!(violations(1_000), 0, "after {checks} checks");
        checks += 1_000;
        thread::sleep(Duration::from_millis(1));
    }
    let status = clock::status();
    assert!(status.mode != clock::Mode::Starting, "{status:?}");
    assert!(status.mode == clock::Mode::Counter || status.reason.is_some(), "{status:?}");
}

#[test]
#[ignore = "a minute; make soak runs it"]
fn soak_the_bound_holds_in_100_million_checks() {
    for checked in 0..100 {
        assert_eq!(violations(1_000_000), 0, "after {checked} million checks");
    }
}
