//! A process that was forked off has no calibrator until it asks.

#![allow(unsafe_code, reason = "nothing safe forks")]

use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_forked_process_has_a_clock_of_its_own() {
    let began = Instant::now();
    while clock::status().mode == clock::ClockMode::Starting {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", clock::status());
        thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: the child calls what is allowed after a fork of one thread among many: it reads
    // clocks, sleeps and starts a thread (glibc makes that safe), and leaves without running
    // anybody's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let comparisons = clock::status().comparisons;
        let before = clock::now();
        // The line that it has got ends within two seconds; whoever asks then starts the
        // calibrator. Where the system is asked, nobody compares anything.
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
        // SAFETY: ends the process, and nothing else.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    let mut status = 0;
    // SAFETY: waits for the process that was just made, and writes how it ended.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child says that its clock stands or is kept by nobody");
}
