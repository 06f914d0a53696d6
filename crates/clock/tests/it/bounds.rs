//! No reading exceeds its error bound.

use rustix::time::{ClockId, clock_gettime};

use std::thread;
use std::time::{Duration, Instant};

/// By then, the short first segments have ended and a segment of one second is active.
const COMPARISONS: u64 = 8;

fn system_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Number of readings that differ from the system clock, read before and after, by more than the
/// bound.
fn violations(checks: u32) -> u32 {
    let check = |_| {
        let (before, read, after) = (system_ns(), clock::now_bounded(), system_ns());
        u32::from(read.ns + read.error_ns < before || read.ns > after + read.error_ns)
    };
    (0..checks).map(check).sum()
}

#[test]
fn bound_holds_from_the_first_reading() {
    // Covers the assessment of this machine's counter and its first segments.
    let (began, mut checks) = (Instant::now(), 0);
    let status = loop {
        assert_eq!(violations(1_000), 0, "after {checks} checks");
        checks += 1_000;
        let status = clock::status();
        match status.mode {
            clock::ClockMode::System => break status,
            clock::ClockMode::Counter if status.comparisons >= COMPARISONS => break status,
            _ => {}
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{status:?}");
        thread::sleep(Duration::from_millis(1));
    };
    assert!(status.mode == clock::ClockMode::Counter || status.reason.is_some(), "{status:?}");
}

#[test]
#[ignore = "a minute; make soak runs it"]
fn soak_bound_holds_in_100_million_checks() {
    for checked in 0..100 {
        assert_eq!(violations(1_000_000), 0, "after {checked} million checks");
    }
}
