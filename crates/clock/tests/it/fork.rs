//! A forked process has no calibrator until its first reading.

#![allow(unsafe_code, reason = "nothing safe forks")]

use std::thread;
use std::time::{Duration, Instant};

#[test]
fn forked_process_starts_its_own_calibrator() {
    let began = Instant::now();
    while clock::status().mode == clock::ClockMode::Starting {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", clock::status());
        thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: the child calls only what is allowed after a fork of a multi-threaded process: it
    // reads clocks, sleeps and starts a thread (safe in glibc), and exits without running
    // destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let comparisons = clock::status().comparisons;
        let before = clock::now();
        // The inherited segment ends within two seconds; the next reading then starts the
        // calibrator. If the system clock is in use, there are no comparisons.
        let is_kept = || {
            let status = clock::status();
            status.mode == clock::ClockMode::System || status.comparisons != comparisons
        };
        let mut is_good = false;
        for _ in 0..12_000 {
            thread::sleep(Duration::from_millis(5));
            is_good = clock::now() > before && is_kept();
            if is_good {
                break;
            }
        }
        // SAFETY: only ends the process.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the forked process and writes its exit status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the clock of the child stands still or has no calibrator");
}
