//! Time never goes back between threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Readings of all threads: some seconds. `make soak` sets a larger number.
const READINGS: u64 = 4_000_000;

/// Each thread publishes the greatest time it has read. No thread that has seen a published time
/// may read an earlier one.
fn steps_back(read: impl Fn() -> u64 + Sync, readings: u64) -> (u64, u64) {
    let greatest = AtomicU64::new(0);
    let (back, done) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut own = 0;
                for _ in 0..readings / 2 {
                    let seen = greatest.load(Ordering::Acquire);
                    let now = read();
                    if now < seen || now < own {
                        back.fetch_add(1, Ordering::Relaxed);
                    }
                    own = now;
                    // An unconditional maximum would synchronise the threads by itself.
                    if now > seen {
                        greatest.store(now, Ordering::Release);
                    }
                }
                done.fetch_add(readings / 2, Ordering::Relaxed);
            });
        }
    });
    (back.into_inner(), done.into_inner())
}

#[test]
fn time_is_monotonic_across_threads() {
    // Segments begin and end meanwhile, the first after some milliseconds.
    let (back, done) = steps_back(clock::now, READINGS);
    assert_eq!((back, done), (0, READINGS));
    let (back, _) = steps_back(|| clock::now_bounded().ns, READINGS / 4);
    assert_eq!(back, 0);
}

#[test]
#[ignore = "half a minute; make soak runs it"]
fn soak_time_is_monotonic_across_threads() {
    let (back, done) = steps_back(clock::now, 200_000_000);
    assert_eq!((back, done), (0, 200_000_000));
}

#[test]
fn time_is_monotonic_on_one_thread() {
    let end = Instant::now() + Duration::from_millis(300);
    let mut last = 0;
    while Instant::now() < end {
        for read in [clock::now, clock::now_unordered, || clock::now_bounded().ns] {
            let now = read();
            // A relaxed reading may execute before preceding instructions.
            assert!(now + 1_000 >= last, "{} ns back", last - now);
            last = last.max(now);
        }
    }
}

#[test]
fn coarse_time_is_updated_while_requested() {
    let stop = AtomicBool::new(false);
    let readings = thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                clock::now_coarse();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let reading = |_| {
            thread::sleep(Duration::from_micros(200));
            (clock::now_coarse(), clock::now())
        };
        let readings: Vec<(u64, u64)> = (0..2_000).map(reading).collect();
        stop.store(true, Ordering::Relaxed);
        readings
    });
    for (recent, now) in &readings {
        assert!(recent <= now, "{} ns in the future", recent - now);
    }
    let full = readings.iter().filter(|(recent, now)| recent + 100_000 > *now).count();
    assert!(full < readings.len(), "a full reading each time");
    // Time advances.
    assert!(readings[readings.len() - 1].0 > readings[0].0);
}

#[test]
fn stopwatch_agrees_with_clock() {
    for length_ms in [0, 1, 30] {
        // One std reading outside, one inside.
        let around = Instant::now();
        let stopwatch = clock::Stopwatch::start();
        let inside = Instant::now();
        thread::sleep(Duration::from_millis(length_ms));
        let inside_ns = inside.elapsed().as_nanos() as u64;
        let took_ns = stopwatch.elapsed_ns();
        let around_ns = around.elapsed().as_nanos() as u64;
        // After some milliseconds, the rate is known to 1 in 10^5, and readings overlap.
        let slack_ns = 1_000 + around_ns / 100_000;
        assert!(took_ns + slack_ns >= inside_ns, "{took_ns} of {inside_ns} ns");
        assert!(took_ns <= around_ns + slack_ns, "{took_ns} of {around_ns} ns");
    }
}
